"""Imports go downwards only.

The order (higher may import lower; parts of one level do not import each other)::

    cli, demo
    evaluate
    checks, simulate
    config
    streams, sources, sinks
    growing
    tabular, panel, points
    graphical, counters, tables
    mechanism
    privacy, schema, libpq (connections to PostgreSQL)
    durable (file and commit calls), compiling, foreign (other libraries' exceptions)
    files (paths are looked at before they are opened)
    errors
    showing (what every printed text passes)

Imports inside functions and under ``TYPE_CHECKING`` count too. ``ALLOWED`` lists every exception with
its reason.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "dpstream"

LEVELS: tuple[tuple[str, ...], ...] = (
    ("showing",),
    ("errors",),
    ("files",),
    ("durable", "compiling", "foreign"),
    ("privacy", "schema", "libpq"),
    ("mechanism",),
    ("graphical", "counters", "tables"),
    ("tabular", "panel", "points"),
    ("growing",),
    ("streams", "sources", "sinks"),
    ("config",),
    ("checks", "simulate"),
    ("evaluate",),
    ("cli", "demo"),
)
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}

#: The package itself and ``python -m dpstream`` hand out the public names of every level.
FRONT = {"__init__", "__main__"}

#: (module, part it imports): why.
ALLOWED: dict[tuple[str, str], str] = {
    (
        "dpstream.core.contracts",
        "streams",
    ): "StreamPlan.open: a plan opens its durable stream (import on call)",
}


def module_name(path: Path, source: Path) -> str:
    """``src/dpstream/core/privacy/unit.py`` -> ``dpstream.core.privacy.unit``."""
    parts = ("dpstream", *path.relative_to(source).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, module: str, is_package: bool) -> list[tuple[int, str]]:
    """Line and absolute name of every dpstream module that is imported anywhere in a module."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = ".".join(part for part in (base, node.module) if part)
            # `from dpstream import privacy` names the part in the alias, not in the module.
            found += [
                (node.lineno, f"{name}.{alias.name}" if name == "dpstream" else name) for alias in node.names
            ]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            if not (node.args and isinstance(node.args[0], ast.Constant)):
                found.append((node.lineno, "dpstream.<computed>"))
            else:
                found.append((node.lineno, str(node.args[0].value)))
    return [(line, name) for line, name in found if name == "dpstream" or name.startswith("dpstream.")]


def violations(source: Path) -> list[str]:
    """Every import that goes sideways or upwards, as ``module:line: ...``."""
    problems = []
    for path in sorted(source.rglob("*.py")):
        module = module_name(path, source)
        part = module.split(".")[1] if module.count(".") else path.stem
        if part in FRONT:
            continue
        if part not in LEVEL:
            problems.append(f"{module}: part {part!r} has no level; add it to LEVELS")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for line, name in imported(tree, module, path.name == "__init__.py"):
            target = name.split(".")[1] if "." in name else ""
            if target in ("", "__version__", part) or (module, target) in ALLOWED:
                continue
            if target not in LEVEL:
                # A name that the front re-exports: it comes from some level that cannot be seen here.
                problems.append(f"{module}:{line}: imports {name}; import it from its own part")
            elif LEVEL[target] >= LEVEL[part]:
                problems.append(f"{module}:{line}: {part} imports {target}, which is not below it")
    return problems


def test_imports_go_downwards() -> None:
    assert violations(SOURCE) == []


def test_exceptions_are_used() -> None:
    used = set()
    for path in SOURCE.rglob("*.py"):
        module = module_name(path, SOURCE)
        for _, name in imported(ast.parse(path.read_text(encoding="utf-8")), module, False):
            used.add((module, name.split(".")[1] if "." in name else ""))
    assert set(ALLOWED) <= used


@pytest.mark.parametrize(
    ("module", "line", "message"),
    [
        ("privacy/noise.py", "from dpstream.core.contracts import Part", "privacy imports mechanism"),
        ("privacy/noise.py", "from dpstream.core.schema.domain import Domain", "privacy imports schema"),
        ("privacy/noise.py", "from ..schema import Domain", "privacy imports schema"),
        ("counters/tree.py", "def f():\n    import dpstream.core.tables", "counters imports tables"),
        (
            "graphical/fit.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dpstream import tabular",
            "graphical imports tabular",
        ),
        ("errors.py", "from .privacy import unit", "errors imports privacy"),
        ("schema/__init__.py", "from ..tables import Workload", "schema imports tables"),
        ("streams/run.py", "import importlib as i\ni.import_module('dpstream.cli')", "streams imports cli"),
        ("streams/run.py", "from dpstream import Batch", "import it from its own part"),
        ("privacy/noise.py", "from importlib import import_module\nimport_module(x)", "own part"),
        ("novelty.py", "", "has no level"),
    ],
)
def test_planted_violations_are_found(tmp_path: Path, module: str, line: str, message: str) -> None:
    path = tmp_path / module
    path.parent.mkdir(exist_ok=True)
    path.write_text(line, encoding="utf-8")
    found = violations(tmp_path)
    assert len(found) == 1
    assert message in found[0]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        (
            "tabular/stabs.py",
            "from dpstream.core.counters import simple\nfrom ..privacy.budget import Budget",
        ),
        ("privacy/noise.py", "from .randomness import Randomness\nimport dpstream.core.errors"),
        ("cli/__init__.py", "from dpstream import __version__, streams"),
        ("__init__.py", "from dpstream.stream import read"),
        ("mechanism.py", "def f():\n    from dpstream.stream import Stream"),
    ],
)
def test_downward_imports_pass(tmp_path: Path, module: str, line: str) -> None:
    path = tmp_path / module
    path.parent.mkdir(exist_ok=True)
    path.write_text(line, encoding="utf-8")
    assert violations(tmp_path) == []
