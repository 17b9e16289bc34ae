"""The wheel in clean environments with the oldest, the pinned and the newest versions of what it needs.

    python tests/project/versions.py            # all; a few minutes, and a package index
    python tests/project/versions.py oldest pinned

Oldest are the bounds in ``pyproject.toml`` (uv's ``--resolution lowest-direct``), newest whatever the index has today.
In each the installed command simulates, checks and runs a stream of two steps; its releases are read back.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESOLUTIONS = {
    "oldest": ("--resolution", "lowest-direct", "-r", ROOT / "pyproject.toml"),
    "pinned": ("--require-hashes", "-r", ROOT / "requirements" / "run.txt"),
    "newest": ("--resolution", "highest", "-r", ROOT / "pyproject.toml"),
}
READ = "import dpstream as dp; read = dp.read('example/releases'); assert read.step == 2; read.table()"


def run(*words: object, cwd: Path) -> str:
    """Run a command that does not see this checkout nor this user's compiled code; gives what it prints."""
    names = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    names |= {"NUMBA_CACHE_DIR": str(cwd / "compiled")}
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env=names, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def try_out(which: str, wheel: Path, home: Path) -> str:
    """Install and run; gives the versions."""
    uv, python = Path(sys.executable).with_name("uv"), home / "venv" / "bin" / "python"
    run(uv, "venv", "-q", "-p", sys.executable, "venv", cwd=home)
    install = (uv, "pip", "install", "-q", "--python", python)
    run(*install, *RESOLUTIONS[which], cwd=home)
    run(*install, "--no-deps", wheel, cwd=home)
    program = python.with_name("dpstream")
    run(program, "simulate", "census", "--steps", "2", "--out", "example", cwd=home)
    for verb in ("check", "run", "status"):
        run(program, verb, "example/dpstream.toml", cwd=home)
    run(python, "-c", READ, cwd=home)
    assert list((home / "compiled").rglob("*.nbi")), "compiled code is kept"
    versions = run(uv, "pip", "freeze", "--python", python, cwd=home).split()
    return ", ".join(one for one in versions if "==" in one)


def main() -> None:
    """See above."""
    wanted = sys.argv[1:] or list(RESOLUTIONS)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", place, ROOT, cwd=place)
        (wheel,) = place.glob("*.whl")
        for which in wanted:
            begun, home = time.monotonic(), place / which
            home.mkdir()
            print(f"{which}: {try_out(which, wheel, home)} ({time.monotonic() - begun:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
