"""What every text passes before a person sees it: nothing steers the terminal, and no password is read out.

File names, headers and strings of a configuration are chosen by others. A terminal obeys control characters in them,
and a URL under a misspelt key stands in the message about that key.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

#: Control characters but tab and newline, marks of direction, separators of lines, halves of characters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_WORDS = r"(?:ssl)?password|passwd|pwd|passphrase|secret|api[_-]?key"
#: Where a text of JSON ends: what is escaped stays valid there.
_END = r'"(?:[ \t\r\n]*[,:}\]]|$)'
#: scheme://user:password@, up to the last @ of the line before another URL: a user may hold one, and a password may
#: hold one, and quotes and blanks. Where the line has none, up to the next one. A port is not a password: digits
#: that end there, or with a blank after which no @ follows before a quote or the words that every error ends with.
_URL = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*://[^\n:/'\"]*:)"
    r"(?!//|\d{1,5}(?:[/?#][^\s@'\"]*)?(?:[ \t](?!(?:(?!\(allowed: )[^\n'\"])*@)|[\r\n'\")]|$))"
    rf"(?:(?:(?!://|{_END})[^\n])*@|\S*@|(?:(?!://|{_END})[^@]){{0,500}}@)"
)
_PAIR = re.compile(
    rf"((?:{_WORDS})(?:\s*=|['\"]\s*[=:(])\s*)(?:\\?(['\"]).*?\\?\2|[^\s&'\",;)]+)", re.IGNORECASE
)


def shown(text: str) -> str:
    r"""The text as it may be printed; what is escaped stays valid in JSON.

    >>> shown("a\x1b[2Jb"), shown("postgresql://me:hidden@host/db")
    ('a\\u001b[2Jb', 'postgresql://me:***@host/db')
    """
    if "://" in text:
        text = _URL.sub(r"\1***@", text)
    text = _PAIR.sub(r"\1***", text)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def notebook_page(
    title: str,
    facts: Mapping[str, Any],
    heads: Sequence[str] = (),
    rows: Iterable[Sequence[Any]] = (),
    below: str = "",
) -> str:
    """The page that a notebook shows of an object: facts, and a table. Every text is escaped.

    >>> notebook_page("Plan", {"unit": "<event>"})
    '<div><strong>Plan</strong><dl><dt>unit</dt><dd>&lt;event&gt;</dd></dl></div>'
    """

    def cells(name: str, values: Iterable[Any]) -> str:
        return "".join(f"<{name}>{_escaped(value)}</{name}>" for value in values)

    parts = [f"<strong>{_escaped(title)}</strong><dl>"]
    parts += [f"<dt>{_escaped(key)}</dt><dd>{_escaped(value)}</dd>" for key, value in facts.items()]
    parts.append("</dl>")
    if heads:
        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
        parts.append(f"<table><thead><tr>{cells('th', heads)}</tr></thead><tbody>{body}</tbody></table>")
    if below:
        parts.append(f"<p>{_escaped(below)}</p>")
    return f"<div>{''.join(parts)}</div>"


def _escaped(value: Any) -> str:
    return "" if value is None else html.escape(shown(str(value)))


def templates(package: str | None = None, folder: str = "templates", **options: Any) -> Environment:
    """Templates of a package, as all of them are read: a fact that is not given is an error, and lines of statements
    leave no line behind.

    Args:
        options: of Jinja2, beside these.
    """
    import jinja2

    return jinja2.Environment(
        loader=None if package is None else jinja2.PackageLoader(package, folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )


def script_json(value: Any) -> str:
    """JSON that may stand inside ``<script>``: no sign in it can end the element or open a comment.

    >>> print(script_json(["</script><!--", "ü"]))
    ["\\u003c/script\\u003e\\u003c!--","\\u00fc"]
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


class ShownStream:
    """A text stream whose lines pass ``shown``; bytes and everything else go to the stream itself."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write what may be seen."""
        self.stream.write(shown(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Each line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
