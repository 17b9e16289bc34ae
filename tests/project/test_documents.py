"""What the repository says about itself stays true."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import hooks
import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dpstream"
LAB = ROOT / "lab" / "src" / "dpstream_lab"
#: Folders with a page of their own: those below the package, and those below a folder that only holds others.
PACKAGES = ["dpstream"] + [
    "dpstream." + ".".join(path.parent.relative_to(SOURCE).parts)
    for path in sorted([*SOURCE.glob("*/__init__.py"), *SOURCE.glob("*/*/README.md")])
]
LOCKS = [
    *("requirements/dev.txt", "requirements/run.txt", "requirements/service.txt"),
    *("requirements/spark.txt", "requirements/spark-connect.txt", "requirements/validators.txt"),
]
TEXT = {".py", ".md", ".toml", ".txt", ".yml", ".cff", ".cfg", ".sh", ".json", ".csv", ""}
#: Paths of somebody's machine. Spelled in pieces, so that this file does not contain what it forbids.
MACHINE_PATH = re.compile(
    r"(?<![\w.~/$}<-])/(?:" + "|".join(["wor" + "k", "ro" + "ot", "hom" + "e", "Use" + "rs"]) + r")/\w"
)
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)(?: ; (.+?))? \\$", re.MULTILINE)


def tracked() -> list[Path]:
    """The repository's files (in an sdist, which has no git, all files)."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode == 0:
        paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.parts)]
    return [path for path in paths if path.is_file()]


def pins(lock: str) -> dict[tuple[str, str], str]:
    """``(package, marker) -> version`` of a lock file."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    return {(name, marker): version for name, version, marker in PIN.findall(text)}


@pytest.mark.parametrize("name", PACKAGES)
def test_public_names_are_importable_and_documented(name: str) -> None:
    package = importlib.import_module(name)
    offered = [name for name in vars(package) if not name.startswith("_")]
    names = getattr(package, "__all__", offered)
    assert len(set(names)) == len(names)
    for public in names:
        thing = getattr(package, public)
        if callable(thing) and hasattr(thing, "__module__") and thing.__module__.startswith("dpstream"):
            assert thing.__doc__, f"{name}.{public} has no docstring"


@pytest.mark.parametrize(
    "name",
    [
        "dpstream",
        *(
            f"dpstream.{part}"
            for part in ["tabular", "panel", "points", "growing", "counters", "checks", "spark"]
        ),
    ],
)
def test_docstrings_of_what_people_import_have_at_most_15_lines(name: str) -> None:
    package = importlib.import_module(name)
    for public in getattr(package, "__all__", vars(package)):
        thing = getattr(package, public)
        parts = (
            {f"{public}.{part}": what for part, what in vars(thing).items()}
            if isinstance(thing, type)
            else {}
        )
        for part, what in {public: thing, **parts}.items():
            if callable(what) or isinstance(what, property | classmethod):
                assert "._" in part or len((inspect.getdoc(what) or "").splitlines()) <= 15, part


@pytest.mark.parametrize("name", PACKAGES[1:])
def test_every_subpackage_says_what_it_promises(name: str) -> None:
    readme = SOURCE.joinpath(*name.split(".")[1:]) / "README.md"
    assert readme.is_file(), f"{name} has no README.md"
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert len(text) > 300


@pytest.mark.parametrize("readme", sorted(SOURCE.rglob("README.md")), ids=lambda path: path.parent.name)
def test_a_readme_is_a_map(readme: Path) -> None:
    """Each name in backticks is there, beside its module where a table names both; each module is in the map."""
    text = readme.read_text(encoding="utf-8")
    assert missing_names(readme) == []
    named = {re.split(r"[/.]", name.removesuffix(".py"))[-1] for name in re.findall(r"`([^`\n]+)`", text)}
    within = [path.parent for path in SOURCE.rglob("README.md")]
    mine = [
        path
        for path in readme.parent.rglob("*.py")
        if next(folder for folder in path.parents if folder in within) == readme.parent
    ]
    assert {path.stem for path in mine} - {"__init__"} <= named


def test_a_name_that_is_gone_is_missed(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("class Here: ...\n")
    readme = tmp_path / "README.md"
    readme.write_text(
        "`Schema.gone_long_ago`, `docs/gone.md`\n\n| name | module |\n|---|---|\n| `Here`, `Schema` | `here` |\n"
        "| a \\| b | `here.py`, `none` |\n"
    )
    assert missing_names(readme) == ["gone_long_ago", "docs/gone.md", "Schema", "none"]


def rows(readme: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A README's lines outside of code: a row of a table with its cells by column, another line without any."""
    text = re.sub(r"```.*?```", "", readme.read_text(encoding="utf-8"), flags=re.DOTALL)
    columns = list[str]()
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        yield line, dict(zip(columns, cells, strict=False))
        columns = [] if not cells else columns or cells


def missing_names(readme: Path) -> list[str]:
    """Files and names in a README's backticks that are not there, or not in the module of their row.

    Symbols of papers, in columns of their own, are no names.
    """
    missing = list[str]()
    for line, cells in rows(readme):
        symbols = [cell for head, cell in cells.items() if "symbol" in head or "paper" in head]
        for name in re.findall(r"`([^`]+)`", line.replace(symbols[0], "", 1) if symbols else line):
            if re.fullmatch(r"(?:docs|tests|benchmarks)/[\w./-]+\.\w+", name):
                missing += [name] * (not (ROOT / name).exists())
            else:
                words = re.findall(r"\w*[a-z]_\w+|\b[A-Z]\w+[a-z]\w*", name)
                missing += [word for word in words if word not in program_words()]
        for name in re.findall(r"`([^`]+)`", cells.get("module", "")):
            # Of a file beside the README or below it; with a folder, of any other one.
            path = name.removesuffix(".py").lstrip("./").replace(".", "/")
            modules = [other for other in readme.parent.rglob("*.py") if "/" not in path]
            modules = modules or list(SOURCE.rglob("*.py"))
            there = (readme.parent / name).exists() and name.endswith(("/", ".j2"))
            there = there or any(f"/{other.with_suffix('')}".endswith(f"/{path}") for other in modules)
            missing += [name] * (not there)
        if {"name", "module"} <= set(cells):
            module, name = (re.findall(r"`([^`]+)`", cells[head]) for head in ("module", "name"))
            ends = [f"/{part.removesuffix('.py').lstrip('./').replace('.', '/')}.py" for part in module]
            paths = [*readme.parent.rglob("*.py"), *SOURCE.rglob("*.py")]
            texts = [path.read_text(encoding="utf-8") for path in paths if f"/{path}".endswith(tuple(ends))]
            there = set(re.findall(r"\w+", "\n".join(texts)))
            found = [word for part in name for word in re.findall(r"[A-Za-z_]\w{2,}", part)]
            missing += [word for word in found if texts and word not in there]
    return missing


@functools.cache
def program_words() -> frozenset[str]:
    """All words of the program's code, templates and tests."""
    files = [path for folder in (SOURCE, LAB, ROOT / "tests") for path in folder.rglob("*")]
    texts = [path.read_text(encoding="utf-8") for path in files if path.suffix in (".py", ".j2", ".toml")]
    here = Path(__file__).read_text(encoding="utf-8")
    return frozenset(re.findall(r"\w+", "\n".join(text for text in texts if text != here)))


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_what_the_architecture_names_is_there(page: str) -> None:
    """Modules and names of modules in backticks, such as `core.tables.Workload`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    parts = "|".join(path.name for path in SOURCE.iterdir() if path.is_dir() and "__" not in path.name)
    names = re.findall(rf"`(?:dpstream\.)?((?:{parts})(?:\.\w+)+)`", text)
    assert len(names) > 5
    for name in names:
        pkgutil.resolve_name(f"dpstream.{name}")


def test_modules_are_short() -> None:
    folders = (SOURCE, LAB, ROOT / "tests")
    paths = [
        *(path for folder in folders for path in folder.rglob("*.py")),
        *(ROOT / "benchmarks").glob("*.py"),
    ]
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in paths
    }
    assert {path: length for path, length in lengths.items() if length > 1000} == {}


def test_no_dangerous_shortcuts() -> None:
    """No pickle, eval, bare except, unfinished parts, or ordinary randomness where the guarantee is made."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.unparse(node) if isinstance(node, ast.Name | ast.ImportFrom | ast.Import) else ""
            bad = text in ("eval", "exec", "NotImplementedError") or re.search(
                r"\b(pickle|marshal|shelve)\b", text
            )
            if bad or (isinstance(node, ast.ExceptHandler) and node.type is None):
                found.append(
                    f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {text or 'bare except'}"
                )
    for part in ("core/privacy", "core/counters", "core/tables"):
        found += [
            f"{path.relative_to(ROOT)}: general-purpose randomness"
            for path in (SOURCE / part).rglob("*.py")
            if re.search(r"np\.random|import random\b|import secrets\b", path.read_text(encoding="utf-8"))
        ]
    assert found == []


def test_no_machine_paths() -> None:
    found = []
    for path in tracked():
        if path.suffix in TEXT and path.name != "LICENSE":
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if MACHINE_PATH.search(line):
                    found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []


def test_machine_paths_are_recognised() -> None:
    assert MACHINE_PATH.search("x = '/" + "home/ann/data.csv'")
    assert MACHINE_PATH.search("see /" + "work/main")
    assert not MACHINE_PATH.search("docs/work/plan and https://example.org/home/page and /path/to/data")


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_files_are_hashes_without_addresses(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    for word in ("http:", "https:", "index", "find-links", "file:", "://", " /"):
        lines = [line for line in text.splitlines() if word in line and not line.strip().startswith("--hash")]
        assert lines == [], word
    blocks = re.split(r"\n(?=\S)", text)
    assert len(blocks) == len(pins(lock)) > 10
    assert all("--hash=sha256:" in block for block in blocks)


@pytest.mark.parametrize("lock", ["requirements/run.txt", "requirements/service.txt"])
def test_run_environment_is_part_of_the_tested_one(lock: str) -> None:
    developers = pins("requirements/dev.txt")
    run = pins(lock)
    assert {package for package, _ in run} <= {package for package, _ in developers}
    for (package, marker), version in run.items():
        tested = {v for (p, _), v in developers.items() if p == package}
        assert version in tested, f"{package} {version} ({marker}) is not among {tested}"


def test_lock_files_hold_every_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    needs = {
        "requirements/run.txt": [*project["project"]["dependencies"], *project["dependency-groups"]["build"]],
        "requirements/service.txt": [*project["project"]["dependencies"], *extras["service"]],
        "requirements/dev.txt": [*project["project"]["dependencies"], *extras["plot"], *extras["dev"]],
        "requirements/spark.txt": [*project["project"]["dependencies"], *extras["spark"]],
        "requirements/validators.txt": project["dependency-groups"]["validators"],
        "requirements/spark-connect.txt": [*project["dependency-groups"]["connect"], "grpcio"],
    }
    for lock, wanted in needs.items():
        names = {re.split(r"[\[><=~!; ]", need)[0].lower() for need in wanted} - {"dpstream"}
        assert names <= {package for package, _ in pins(lock)}
    assert set(project["dependency-groups"]["build"]) <= set(extras["dev"])


def test_versions_agree() -> None:
    import dpstream

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert project["version"] == dpstream.__version__
    lab = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert lab["version"] == dpstream.__version__
    assert lab["dependencies"] == [f"dpstream[evaluate]=={dpstream.__version__}"]
    assert f"version: {dpstream.__version__}\n" in citation
    assert dpstream.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for path in [*ROOT.glob("*.md"), *SOURCE.glob("*/README.md")]:
        broken += [
            f"{path.relative_to(ROOT)}: {target}"
            for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
            if not target.startswith(("http:", "https:")) and not (path.parent / target).exists()
        ]
    assert broken == []


def test_the_readme_has_three_screens() -> None:
    """Of forty lines, as a terminal shows it; sizes of the pages are kept by those who write them."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert sum(max(1, -(-len(line) // 120)) for line in lines) <= 120


def test_benchmarks_are_described() -> None:
    for word, code, said in (("--list", 0, ""), ("nothing", 2, "no benchmark nothing")):
        command = [sys.executable, ROOT / "benchmarks" / "run.py", word]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert said in done.stderr


def test_faults_of_built_pages_are_found(tmp_path: Path) -> None:
    """``make lint`` and ``make docs`` build them all; here a site is right, and then wrong in each way."""
    pages = {
        "index.html": "<p>start</p>",
        "reference/api/core.privacy.html": "<p>names</p>",
        "project/security.html": '<a href="https://example.org">elsewhere</a>',
        "reference/commands.html": "dpstream simulate evictions Exit codes: 0",
    }
    for page, text in pages.items():
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).write_text(text)
    assert list(hooks.faults(tmp_path)) == []
    for page, text, fault in (
        ("project/security.html", None, "there is no project/security.html"),
        ("reference/commands.html", "dpstream simulate evictions", "not on one page"),
        ("reference/copy.html", pages["reference/commands.html"], "not on one page"),
        ("reference/api/core.privacy.html", "<blockquote>", "became a quotation"),
        ("index.html", '<script src="https://example.org/x.js">', "takes something from elsewhere"),
    ):
        path = tmp_path / page
        path.unlink() if text is None else path.write_text(text)
        assert [fault in one for one in hooks.faults(tmp_path)] == [True]
        path.write_text(pages[page]) if page in pages else path.unlink()
