"""The package where nothing around it can be written: no cache of compiled code, no home."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import dpstream
from dpstream.core import compiling

SOURCE = Path(dpstream.__file__).parent
#: Where a child looks for compiled code.
_PLACES = ("NUMBA_CACHE_DIR", "HOME", "XDG_CACHE_HOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy whose ``__pycache__`` is a file, which nobody can write into (permissions do not stop root)."""
    copy = tmp_path_factory.mktemp("sealed") / "dpstream"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [copy, *(path for path in copy.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").write_text("")
    return copy


def child(sealed: Path, code: str, **places: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in _PLACES}
    environment |= {"PYTHONPATH": str(sealed.parent), "PYTHONDONTWRITEBYTECODE": "1", **places}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


_LAZY = "import dpstream.core.graphical.compiled.elimination; print(dpstream.__file__)"
_EAGER = "import dpstream.core.tables._counting_kernels"


def test_without_any_place_it_works_and_says_so_once(sealed: Path) -> None:
    done = child(sealed, _LAZY, HOME=os.devnull)
    assert done.stdout == f"{sealed / '__init__.py'}\n"
    assert done.stderr.count("UncachedWarning") == 1
    assert "NUMBA_CACHE_DIR" in done.stderr


@pytest.mark.parametrize("place", ["NUMBA_CACHE_DIR", "HOME"])
def test_a_named_folder_or_a_home_is_used(sealed: Path, tmp_path: Path, place: str) -> None:
    places = {"HOME": os.devnull, place: str(tmp_path)}
    done = child(sealed, _EAGER, **places)
    assert done.stderr == ""
    assert list(tmp_path.rglob("*.nbi"))


def test_without_a_home_no_folder_called_tilde_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A user without an entry has no home, and ``~`` stays ``~``."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    (place,) = compiling._folders(tmp_path)
    assert place.parent == tmp_path / "__pycache__"


def test_another_install_of_the_same_sources_compiles_nothing(tmp_path: Path) -> None:
    """A copy with new paths and times finds what the first one compiled; a changed source does not."""
    code = f"""
        from numba.core import event
        heard = []
        class Listener(event.Listener):
            on_start = lambda self, event: heard.append(event)
            on_end = lambda self, event: None
        event.register("numba:compile", Listener())
        {_EAGER}
        print(len(heard))
    """
    copies = [tmp_path / name / "dpstream" for name in ("first", "second", "third")]
    for copy in copies:
        shutil.copytree(
            SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copyfile
        )
    with (copies[2] / "core" / "tables" / "_siphash.py").open("a") as file:
        file.write("# changed\n")
    heard = [int(child(copy, textwrap.dedent(code), HOME=str(tmp_path / "home")).stdout) for copy in copies]
    assert heard[0] > 0
    assert heard[1] == 0
    assert heard[2] == heard[0]


def test_other_failures_of_the_compiler_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("something else")

    monkeypatch.setattr(numba, "njit", broken)
    with pytest.raises(RuntimeError, match="something else"):
        compiling.njit(cache=True)(child)
