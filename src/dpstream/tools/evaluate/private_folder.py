"""A folder for files that hold private truth: the owner's alone, marked, and never among releases.

Trusted base: owner (what only the owner sees).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dpstream.core import durable
from dpstream.core.errors import ConfigError

#: On screen and in every file: such a number was computed from the private table itself, without noise.
LABEL: Final = "evaluation only, not releasable"


#: Says what the folder holds, and that dpstream made it.
PRIVATE_MARKER: Final = "NOT-RELEASABLE.txt"
#: Every folder of releases has one, whichever stream wrote it.
_CATALOGUE: Final = "catalogue.json"
_TEXT = f"""\
{LABEL}

These files hold exact private numbers: do not publish them, and do not choose options by them.
"""


def check_private_folder(path: str | Path, apart_from: Mapping[str, Path], *, where: str = "out") -> None:
    """Refuse a place that ``open_private_folder`` would refuse; before long work. Changes nothing.

    Args:
        apart_from: what must neither hold the folder nor lie in it, by name (releases, the secret state).
        where: the option's name, for messages.

    Errors:
        ConfigError: a place that is refused, among them every folder of releases, of any stream, and all in it; a
        file; a folder with other files (its rights would be changed).
    """
    folder = Path(path)
    inner = folder.resolve()
    for name, other in apart_from.items():
        outer = other.resolve()
        if inner == outer or outer in inner.parents or inner in outer.parents:
            raise ConfigError(
                f"the folder {str(folder)!r} and the {name} {str(other)!r} lie inside each other",
                where=where,
                allowed="a folder of its own",
            )
    releases = releases_around(folder)
    if releases is not None:
        raise ConfigError(
            f"{str(releases)!r} is a folder of releases",
            where=where,
            allowed="a folder of its own",
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{str(folder)!r} is a file", where=where, allowed="a folder")
    if folder.is_dir() and not (folder / PRIVATE_MARKER).is_file() and any(folder.iterdir()):
        raise ConfigError(
            f"the folder {str(folder)!r} holds other files",
            where=where,
            allowed="a new or empty folder, or an evaluation's",
        )


def releases_around(place: str | Path) -> Path | None:
    """The folder of releases that ``place`` is, or lies in, after links; any stream's. None where there is none."""
    full = Path(place).resolve()
    return next((folder for folder in (full, *full.parents) if (folder / _CATALOGUE).exists()), None)


def open_private_folder(path: str | Path, apart_from: Mapping[str, Path], *, where: str = "out") -> Path:
    """The folder, made if it is not there: mode 0700, with ``PRIVATE_MARKER`` in it.

    Arguments and errors as in ``check_private_folder``.
    """
    folder = Path(path)
    check_private_folder(folder, apart_from, where=where)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    write_private(folder / PRIVATE_MARKER, _TEXT.encode())
    return folder


def write_private(path: Path, data: bytes) -> Path:
    """Write a whole file with mode 0600: readers see the old bytes or the new ones."""
    durable.replace_file(path, data, mode=0o600)
    return path
