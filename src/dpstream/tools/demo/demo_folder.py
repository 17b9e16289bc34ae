"""The demo's folder: made anew at every call, and never at the cost of anybody else's files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from dpstream.core.errors import ConfigError
from dpstream.core.files import check_target

__all__ = ["MARKER", "PICTURE", "fresh_folder"]

#: Says that the demo made the folder.
MARKER = ".dpstream-demo"
PICTURE = "demo.png"
#: Everything that a demo writes; anything else in its folder stays.
_OURS = ("data", "releases", "state", "dpstream.toml", "README.md", "simulation.json", PICTURE, MARKER)


def fresh_folder(folder: Path, fill: Callable[[Path], object]) -> None:
    """Remove what an earlier demo left in ``folder``, then let ``fill`` write the new beginning.

    ``fill`` gets an empty folder beside it. Its files move into place once they and the marker are there, so
    that a stop in the middle never leaves a folder that the next call would refuse.

    Errors:
        ConfigError: the folder holds files, and no demo made it.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError("is a file", where=str(folder), allowed="a folder that is new, empty or a demo's")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        raise ConfigError(
            "the folder is not empty, and no demo made it",
            where=str(folder),
            allowed="a folder that is new, empty or a demo's",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".dpstream-demo-", dir=folder.parent) as name:
        fresh = Path(name) / folder.name
        fill(fresh)
        folder.mkdir(exist_ok=True)
        check_target(folder / MARKER)
        (folder / MARKER).write_text(
            "Made by python -m dpstream.tools.demo, which may remove what it made.\n"
        )
        for old in _OURS[:-1]:
            _remove(folder / old)
        for new in sorted(fresh.iterdir()):
            new.rename(folder / new.name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
