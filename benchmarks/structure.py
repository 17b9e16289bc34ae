"""The structure in numbers: lines of code, rooms, arrows between them, circles, and words of families outside them.

    python benchmarks/structure.py [--source src/dpstream] [--json]

A *room* is a folder directly below the package, or below a folder that holds no code of its own (``core``,
``families``, ``io``, ``tools``). An *arrow* is
a pair of rooms of which one imports the other, at whatever place: inside functions and under ``TYPE_CHECKING`` too. A
*circle* is a set of modules that reach each other by imports. Lines of code are without blank lines, comments and
docstrings. Nodes of the syntax tree and lines of all other text files show what packed or moved lines would hide.
The distribution ``dpstream-lab``, which is not installed with the package, benchmarks and tests have sums of their own.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import re
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
#: Words by which code asks, or says, which family or mechanism something is.
WORDS = re.compile(
    r"\b(?:tabular|panel|panels|points|growing|dpstabs|DPStabs|pooled|Pooled|baseline|Baseline|pmwg|PMWG|scheduler|improver"
    r"|erm|classifiers?|PeoplePlan|PeopleSynthesis|PointsStream|PlacedSynthesis|ClassifierRelease)\b"
)
#: Where families may be named: their own folders, the namespaces of their recipes, and the audit.
FREE = ("families", "tabular", "panel", "points", "growing")
AUDIT = "dpstream.tools.audit"
#: Folders that hold no code of their own.
HALLS = ("core", "families", "io", "tools")
LAB = HERE / "lab" / "src" / "dpstream_lab"
#: The registry of the evaluations and report pages of families: its folders are free too (``tool_folders``).
REGISTRY = Path("tools") / "family_tools.py"


def code_lines(text: str) -> int:
    """Lines with code on them."""
    skip = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skip:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def other_text_lines(source: Path) -> int:
    """Lines of the text files that are not Python: pages, styles, scripts, tables, READMEs."""
    lines = 0
    for path in source.rglob("*"):
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts:
            with contextlib.suppress(UnicodeDecodeError):
                lines += len(path.read_text(encoding="utf-8").splitlines())
    return lines


def module_name(path: Path, source: Path) -> str:
    parts = ("dpstream", *path.relative_to(source).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def graph(source: Path) -> tuple[dict[str, Path], dict[str, set[str]]]:
    """Modules, and which imports which."""
    modules = {module_name(path, source): path for path in sorted(source.rglob("*.py"))}

    def known(name: str) -> str:
        while name and name not in modules:
            name = name.rpartition(".")[0]
        return name

    edges: dict[str, set[str]] = {}
    for module, path in modules.items():
        found = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {known(alias.name) for alias in node.names if alias.name.startswith("dpstream")}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpstream"):
                found |= {known(f"{node.module}.{alias.name}") for alias in node.names}
        edges[module] = found - {module, "", "dpstream"}
    return modules, edges


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected sets of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on: set[str] = set()
    found: list[list[str]] = []

    def visit(root: str) -> None:
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on.add(other)
                    work.append((other, iter(sorted(edges[other]))))
                    break
                if other in on:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = []
                    while True:
                        one = stack.pop()
                        on.discard(one)
                        part.append(one)
                        if one == node:
                            break
                    if len(part) > 1:
                        found.append(sorted(part))

    for module in edges:
        if module not in index:
            visit(module)
    return sorted(found, key=len, reverse=True)


def room_of(module: str) -> str:
    parts = module.split(".")[1:]
    if not parts:
        return "dpstream"
    if parts[0] in HALLS and len(parts) > 1:
        return ".".join(parts[:2])
    return parts[0]


def tool_folders(source: Path, edges: dict[str, set[str]]) -> set[str]:
    """Packages with the tools of one family: the registry names a module in them, under the name of the package.

    A package that a module outside of it imports does not count: it is reached past the registry.
    """
    registry = source / REGISTRY
    if not registry.is_file():
        return set()
    tables = [n for n in ast.walk(ast.parse(registry.read_text(encoding="utf-8"))) if isinstance(n, ast.Dict)]
    named = [
        (key.value, str(value.value).partition(":")[0].rpartition(".")[0])
        for table in tables
        for key, value in zip(table.keys, table.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant)
    ]
    folders = {package for family, package in named if family and package.endswith(f".{family}")}
    return {
        package
        for package in folders
        if not any(
            inside(other, {package})
            for module, others in edges.items()
            if not inside(module, {package})
            for other in others
        )
    }


def inside(module: str, packages: set[str]) -> bool:
    """Whether a module lies in one of some packages."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def words_of_families(source: Path) -> Counter[str]:
    """Module -> words of its code (no comments, no docstrings) that name a family where none is to be named."""
    modules, edges = graph(source)
    found: Counter[str] = Counter()
    own = tool_folders(source, edges) | {AUDIT}
    for module, path in modules.items():
        parts = module.split(".")[1:]
        if not parts or parts[0] in FREE or inside(module, own):
            continue
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            if token.type == tokenize.NAME and WORDS.fullmatch(token.string):
                found[module] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=HERE / "src" / "dpstream")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    modules, edges = graph(options.source)
    rooms: dict[str, int] = defaultdict(int)
    nodes = 0
    for module, path in modules.items():
        text = path.read_text(encoding="utf-8")
        rooms[room_of(module)] += code_lines(text)
        nodes += sum(1 for _ in ast.walk(ast.parse(text)))
    arrows = {
        (room_of(a), room_of(b)) for a, others in edges.items() for b in others if room_of(a) != room_of(b)
    }
    laboratory, benchmarks, tests = (
        [code_lines(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")]
        for folder in (LAB, HERE / "benchmarks", HERE / "tests")
    )
    installed = sum(rooms.values())
    words = words_of_families(options.source)
    facts = {
        "modules": len(modules),
        "lines_of_code": installed,
        "syntax_nodes": nodes,
        "other_text_lines": other_text_lines(options.source),
        "rooms": len(rooms),
        "arrows": len(arrows),
        "circles": [len(part) for part in circles(edges)],
        "names_of_families_outside": sum(words.values()),
        "lab_modules": len(laboratory),
        "lab_lines_of_code": sum(laboratory),
        "benchmarks_lines_of_code": sum(benchmarks),
        "installed_and_lab_and_benchmarks": installed + sum(laboratory) + sum(benchmarks),
        "tests_lines_of_code": sum(tests),
        "lines_by_room": dict(sorted(rooms.items())),
        "families_named_in": dict(words.most_common()),
    }
    if options.json:
        print(json.dumps(facts, indent=1))
        return
    for key, value in facts.items():
        if isinstance(value, dict):
            print(f"{key}:")
            for name, number in value.items():
                print(f"  {number:>6}  {name}")
        else:
            print(f"{key}: {value}")


if __name__ == "__main__":
    main()
