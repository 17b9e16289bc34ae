"""The built distributions hold the package and nothing else, and a start loads nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Slow to import or only needed by some verbs: never loaded by ``import dpstream`` or ``--help``.
HEAVY = (
    *("numpy", "numba", "pyarrow", "scipy", "matplotlib", "pandas", "polars", "jax", "jinja2", "rich"),
    *("importlib.metadata", "dpstream_lab"),
)

#: Runs code and prints which heavy packages it loaded and the CPU time (reported, never judged).
_PROBE = """
import sys, time
{code}
print(sorted(set({heavy!r}) & set(sys.modules)))
print(f"cpu {{time.process_time():.2f}} s", file=sys.stderr)
"""
_HELP = """
from dpstream.cli import main
try:
    main(["--help"])
except SystemExit as end:
    assert not end.code, end.code
"""


def run(command: Sequence[str | Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run in an environment that does not see this checkout, nor a folder for compiled code."""
    hidden = ("PYTHON", "NUMBA", "XDG")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result


def probe(python: Path, code: str, cwd: Path) -> str:
    """The heavy packages that some code loads, as printed on the last line."""
    result = run([python, "-c", _PROBE.format(code=code, heavy=HEAVY)], cwd)
    print(f"{code.strip().splitlines()[0]}: {result.stderr.strip()}")
    return result.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT], out)
    return out


@pytest.mark.slow
def test_distributions_hold_the_package_and_nothing_else(distributions: Path) -> None:
    (wheel,) = distributions.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top.split("-")[0] for top in tops} == {"dpstream"}
    expected = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "dpstream").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert {Path(name).suffix for name in expected} >= {".py", ".md", ".typed", ".j2", ".html", ".css", ".js"}
    assert expected <= set(names)
    with zipfile.ZipFile(wheel) as archive:
        sources = {name: archive.read(name).decode() for name in names if name.endswith(".py")}
    # Mechanisms that are broken on purpose are in dpstream-lab.
    assert [name for name, text in sources.items() if "BROKEN" in text or "import dpstream_lab" in text] == []
    assert [name for name in names if "lab" in Path(name).parts] == []
    assert any(name.endswith("licenses/LICENSE") for name in names)
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        *("pyproject.toml", "Makefile", "LICENSE", "README.md"),
        *("requirements/run.txt", "lab/pyproject.toml"),
    } <= files
    assert not [name for name in files if name.startswith((".venv", "site/", "demo/", "dist/"))]


@pytest.mark.parametrize("code", ["import dpstream", _HELP], ids=["import", "help"])
def test_start_loads_nothing_heavy(tmp_path: Path, code: str) -> None:
    assert probe(Path(sys.executable), code, tmp_path) == "[]"


def test_probe_sees_heavy_packages(tmp_path: Path) -> None:
    assert "'pyarrow'" in probe(Path(sys.executable), "import pyarrow", tmp_path)
