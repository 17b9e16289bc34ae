"""The grammar of messages: every sentence that an error of the program can say, found in its source.

    python tests/project/test_messages.py [FOLDER]    # lists the sentences that break a rule, and counts words

What is said is the first argument of an exception, and ``allowed``. Values in it count as one word. Words of sentences
are those of texts with three words or more, docstrings and SQL excepted, and of templates.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "dpstream"
#: Words of a sentence at most.
LONGEST = 22
_DENIES = re.compile(r"\b(is|are|was|were) no(t a|t an)?\b(?! longer)|\bnone (is|are)\b", re.IGNORECASE)
_PRONOUN = re.compile(r"(it|this|these|they|that|those)\b", re.IGNORECASE)
_IS_NO = re.compile(r"\b(is|are|was|were) no\b(?! longer)")
#: What a database reads, and nobody else.
_SQL = re.compile(r"\s*(ALTER|CREATE|DELETE|DROP|INSERT|LOCK|PRAGMA|SELECT|SET|UPDATE|WITH) ")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_MARKS = re.compile(r"\{[%#].*?[%#]\}|\{\{.*?\}\}|<[^>]+>", re.DOTALL)
_TEMPLATES = (".j2", ".html", ".md", ".toml")
#: Words at most: of sentences in the package (35,000 with those of SQL), and of the documentation.
MOST_SENTENCES, MOST_DOCS = 32_890, 75_000
DOCS = SOURCE.parents[1] / "docs"


def messages(folder: Path = SOURCE) -> Iterator[tuple[str, int, str]]:
    """File, line and text of what errors say."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _name(node.func).endswith(
                ("Error", "unreadable", "damaged_store")
            ):
                said = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "allowed")]
                for argument in said:
                    text = _text(argument)
                    if text is not None:
                        yield _shown(path), node.lineno, text


def _shown(path: Path) -> str:
    """Within the package, or as it is given."""
    return str(path.relative_to(SOURCE) if path.is_relative_to(SOURCE) else path)


def faults(text: str) -> list[str]:
    """Which rules a message breaks.

    >>> faults("it is no folder")
    ['says what something is not', 'begins with a pronoun']
    >>> faults("expected a folder, got {}")
    []
    """
    found = ["says what something is not"] if _DENIES.search(text) else []
    found += ["begins with a pronoun"] if _PRONOUN.match(text) else []
    longest = max((len(part.split()) for part in re.split(r"[.;:(](?:\s|$)|\)", text)), default=0)
    return found + ([f"has a sentence of {longest} words"] if longest > LONGEST else [])


def denials(folder: Path = SOURCE) -> list[str]:
    """Lines of code, templates and READMEs with "is no": a sentence that says what something is not."""
    files = [path for path in sorted(folder.rglob("*")) if path.suffix in (".py", *_TEMPLATES)]
    return [
        f"{_shown(path)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if _IS_NO.search(line)
    ]


def sentence_words(folder: Path = SOURCE) -> int:
    """Words of sentences in code and templates."""
    many = 0
    for path in folder.rglob("*"):
        if path.suffix == ".py":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            texts = [
                node.value
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
            ]
            words = [_WORD.findall(text) for text in texts if " " in text and not _SQL.match(text)]
            many += sum(len(found) for found in words if len(found) >= 3)
        elif path.suffix in _TEMPLATES and path.name != "README.md":
            many += len(_WORD.findall(_MARKS.sub(" ", path.read_text(encoding="utf-8"))))
    return many


def docs_words(folder: Path = DOCS) -> int:
    """Words of the documentation."""
    return sum(len(path.read_text(encoding="utf-8").split()) for path in folder.rglob("*.md"))


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def wrong(folder: Path = SOURCE) -> list[str]:
    """The messages that break a rule, and where they stand."""
    return [
        f"{file}:{line}: {', '.join(found)}: {text}"
        for file, line, text in messages(folder)
        if (found := faults(text))
    ]


def test_every_message_keeps_the_grammar() -> None:
    assert len(list(messages())) > 500
    assert not wrong()


def test_sentences_say_what_is() -> None:
    assert not denials()


def test_there_are_few_words() -> None:
    assert sentence_words() <= MOST_SENTENCES
    assert docs_words() <= MOST_DOCS


if __name__ == "__main__":
    of = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else SOURCE
    print("\n".join([*wrong(of), *denials(of)]))
    print(f"{sentence_words(of):,} words of sentences; {docs_words():,} words of documentation")
