"""Imports go downwards only, and nobody above the families asks which one it is.

The order (higher may import lower; parts of one level do not import each other)::

    cli
    service: pages, desk, releases (the consumers' feed)
    tools: running (a run, and what follows it), families (what one family's tools are), choosing, audit, report,
        errors, evaluate, family_tools (whose are whose), simulate
    project (dpstream.toml)
    families.registry (which families there are, by name)
    stream (the step protocol; release, store, ledger); checks (certificates)
    families: tabular, growing, census, panel, points
    mechanisms (what mechanisms for tables are made of)
    spark (an engine: records that stay in a cluster)
    io: sources, sinks, libpq
    core: tables, counters, graphical; contracts; privacy, schema; pictures; durable, compiling, foreign, threads;
        paths; objects; web; errors; showing

Imports inside functions and under ``TYPE_CHECKING`` count too.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import structure

SOURCE = Path(__file__).resolve().parents[2] / "src" / "dpstream"

LEVELS: tuple[tuple[str, ...], ...] = (
    ("core.showing", "core.version", "core.durations"),
    ("core.errors",),
    ("core.paths",),
    ("core.durable", "core.compiling", "core.foreign", "core.threads"),
    ("core.privacy", "core.schema"),
    ("core.contracts",),
    ("core.graphical", "core.counters", "core.tables"),
    ("io.libpq", "io.objects"),
    ("io.sources", "io.sinks"),
    ("spark",),
    ("mechanisms",),
    ("families.tabular", "families.growing", "families.census", "families.panel", "families.points"),
    ("stream", "checks"),
    ("families.registry",),
    ("project",),
    ("tools.simulate",),
    ("tools.family_tools",),
    ("tools.evaluate",),
    ("tools.report", "tools.errors", "tools.folder"),
    ("tools.running",),
    ("tools.audit",),
    ("tools.choosing",),
    ("tools.forecast",),
    ("tools.families",),
    ("service.tokens",),
    ("service.guard",),
    ("service.releases",),
    ("service.desk",),
    ("service.pages",),
    ("cli",),
)
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}
#: Folders that hold other parts and no code of their own.
HALLS = ("core", "families", "io", "service", "tools")

#: Packages whose names are parts: `from dpstream import stream` names the part in the alias, not in the module.
BARE = ("dpstream", *(f"dpstream.{hall}" for hall in HALLS))

#: The package itself, ``python -m dpstream`` and the namespaces of recipes hand out the public names of every level.
FRONT = {"__init__", "__main__", "counters", "growing", "panel", "points", "tabular"}

#: Who may know a family: families, the tools of one family, the audit, the namespaces of recipes. Everybody else knows
#: the registry at most.
KNOWING = ("families", "tools.families", "tools.audit", *sorted(FRONT))
#: Names of mechanisms. What lies in ``NAMELESS`` says none of them in a string, but for a few modules, with the reason.
MECHANISMS = re.compile(
    r"(?<![\w-])(pooled|dpstabs|baseline|census|panel-window|panel-cumulative|scheduler|improver|pmwg)(?![\w-])"
)
NAMELESS = ("core", "io", "spark", "mechanisms", "checks", "stream")
STILL_NAMING = {
    "dpstream.io.sinks.release_reader": "a message says whose releases are tables of records",
    "dpstream.io.sources.source_keys": "two keys explain what they change for a mechanism",
    "dpstream.mechanisms.options": "two options explain what mechanisms make of them",
    "dpstream.spark.spark_batch": "a message says which mechanisms read counts only",
    "dpstream.stream.identity": "a message says which mechanisms follow constraints",
    "dpstream.stream.release.estimates": "notes say what no census has counted",
}


def part_of(module: str) -> str:
    """``dpstream.core.privacy.unit`` -> ``core.privacy``; ``dpstream.stream.store.store`` -> ``stream``."""
    parts = module.split(".")[1:]
    return ".".join(parts[:2]) if parts and parts[0] in HALLS else "".join(parts[:1])


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
            found += [(node.lineno, f"{name}.{alias.name}" if name in BARE else name) for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            name = node.args[0] if node.args else None
            if isinstance(name, ast.JoinedStr) and isinstance(name.values[0], ast.Constant):
                name = name.values[0]  # f"dpstream.cli.{verb}": some module of a part that is written there
                name = name if str(name.value).endswith(".") and str(name.value).count(".") > 1 else None
            found.append(
                (node.lineno, str(name.value) if isinstance(name, ast.Constant) else "dpstream.<computed>")
            )
    return [(line, name) for line, name in found if name == "dpstream" or name.startswith("dpstream.")]


def violations(source: Path) -> list[str]:
    """Every import that goes sideways or upwards, as ``module:line: ...``."""
    problems = []
    for path in sorted(source.rglob("*.py")):
        module = module_name(path, source)
        part = part_of(module)
        if (path.parent == source and path.stem in FRONT) or part in HALLS:
            continue
        if part not in LEVEL:
            problems.append(f"{module}: part {part!r} has no level; add it to LEVELS")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for line, name in imported(tree, module, path.name == "__init__.py"):
            target = part_of(name)
            if target in ("", part):
                continue
            if target not in LEVEL:
                # A name that the front re-exports: it comes from some level that cannot be seen here.
                problems.append(f"{module}:{line}: imports {name}; import it from its own part")
            elif LEVEL[target] >= LEVEL[part]:
                problems.append(f"{module}:{line}: {part} imports {target}, which is not below it")
    return problems


def knowing(source: Path) -> set[str]:
    """Modules which import a family, of parts that must not know one."""
    found = set()
    for path in source.rglob("*.py"):
        module = module_name(path, source)
        if module.split(".")[1:2] and not {part_of(module), module.split(".")[1]} & set(KNOWING):
            names = imported(ast.parse(path.read_text(encoding="utf-8")), module, path.name == "__init__.py")
            families = {name for _, name in names if name.startswith("dpstream.families.")}
            found |= {module} if any(part_of(name) != "families.registry" for name in families) else set()
    return found


def named(source: Path) -> set[str]:
    """Modules that name a mechanism in a string, of parts that must not; docstrings do not count."""
    found = set()
    for part in NAMELESS:
        for path in (source / part).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            strings = (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in texts)
            if any(isinstance(node.value, str) and MECHANISMS.search(node.value) for node in strings):
                found.add(module_name(path, source))
    return found


def circles(source: Path) -> list[list[str]]:
    """Modules that reach each other by imports; those inside functions and for types count."""
    found: list[list[str]] = structure.circles(structure.graph(source)[1])
    return found


def test_no_modules_import_each_other() -> None:
    assert circles(SOURCE) == []


def test_a_planted_circle_is_found(tmp_path: Path) -> None:
    for name, other in (("one", "two"), ("two", "three"), ("three", "one")):
        text = f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dpstream.{other} import x\n"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "four.py").write_text("import dpstream.one", encoding="utf-8")
    assert circles(tmp_path) == [["dpstream.one", "dpstream.three", "dpstream.two"]]


def test_no_module_names_a_family() -> None:
    """Outside families, the audit and the folders that the registry of tools names."""
    assert structure.words_of_families(SOURCE) == {}


def test_who_still_names_a_mechanism_is_listed() -> None:
    """No contract and no mathematics does; the list only ever gets shorter."""
    assert named(SOURCE) == set(STILL_NAMING)


def test_a_planted_name_of_a_mechanism_is_found(tmp_path: Path) -> None:
    path = tmp_path / "core" / "novelty.py"
    path.parent.mkdir()
    path.write_text('"""Not pooled."""\nPOOLED = f"{1} {2}"', encoding="utf-8")
    assert named(tmp_path) == set()
    path.write_text('allowed = f"dpstabs, {1}"', encoding="utf-8")
    assert named(tmp_path) == {"dpstream.core.novelty"}


@pytest.mark.parametrize(
    ("module", "line", "counted"),
    [
        ("tools/report/novelty.py", "panel = 1", True),
        ("tools/families/panel/novelty.py", "panel = 1", False),
        # A folder that somebody imports past the registry is not the family's own.
        ("tools/report/novelty.py", "from dpstream.tools.families.panel import page", True),
        # A folder that the registry does not name is free for nobody.
        ("tools/families/points/novelty.py", "panel = 1", True),
        ("tools/report/novelty.py", '"""Of a panel."""  # panel', False),
    ],
)
def test_planted_words_of_families_are_counted(tmp_path: Path, module: str, line: str, counted: bool) -> None:
    registry = '_OWN = {"page": {"": "dpstream.tools.report.x:X", "panel": "dpstream.tools.families.panel.page:PAGE"}}'
    texts = {"tools/family_tools.py": registry, "tools/families/panel/page.py": "panel = 2", module: line}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert bool(structure.words_of_families(tmp_path)) == counted


def test_imports_go_downwards() -> None:
    assert violations(SOURCE) == []


def of_the_laboratory(source: Path) -> set[str]:
    """Files that import dpstream-lab, which is not installed with dpstream."""
    lines = re.compile(r"^\s*(?:from|import) dpstream_lab\b", re.MULTILINE)
    return {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if lines.search(path.read_text("utf-8"))
    }


def test_the_laboratory_is_imported_by_itself_only(tmp_path: Path) -> None:
    assert of_the_laboratory(SOURCE) == set()
    (tmp_path / "planted.py").write_text("def f():\n    from dpstream_lab.audits import controls")
    assert of_the_laboratory(tmp_path) == {"planted.py"}


def test_nobody_else_knows_a_family() -> None:
    assert knowing(SOURCE) == set()


TYPED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dpstream.families import tabular"


@pytest.mark.parametrize(
    ("module", "line", "message"),
    [
        ("core/privacy/noise.py", "from dpstream.core.contracts import Part", "imports core.contracts"),
        ("core/privacy/noise.py", "from ..schema import Domain", "core.privacy imports core.schema"),
        ("core/counters/intervals.py", "def f():\n    import dpstream.core.tables", "imports core.tables"),
        ("core/graphical/fit.py", TYPED, "core.graphical imports families.tabular"),
        ("core/schema/__init__.py", "from ..tables import Workload", "core.schema imports core.tables"),
        ("stream/run.py", "import importlib as i\ni.import_module('dpstream.cli')", "stream imports cli"),
        ("stream/run.py", "from dpstream import Batch", "import it from its own part"),
        ("core/privacy/noise.py", "from importlib import import_module\nimport_module(x)", "own part"),
        ("stream/run.py", "from dpstream.families.registry import x", "stream imports families.registry"),
        ("novelty.py", "", "has no level"),
    ],
)
def test_planted_violations_are_found(tmp_path: Path, module: str, line: str, message: str) -> None:
    path = tmp_path / module
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(line, encoding="utf-8")
    found = violations(tmp_path)
    assert len(found) == 1
    assert message in found[0]


@pytest.mark.parametrize(
    "module", ["stream/store/novelty.py", "tools/report/novelty.py", "service/novelty.py"]
)
def test_a_planted_knowledge_is_found(tmp_path: Path, module: str) -> None:
    path = tmp_path / module
    path.parent.mkdir(parents=True)
    path.write_text("from dpstream.families.registry import family_of", encoding="utf-8")
    assert knowing(tmp_path) == set()
    path.write_text("def f():\n    from dpstream.families.panel import people", encoding="utf-8")
    assert knowing(tmp_path) == {module_name(path, tmp_path)}
