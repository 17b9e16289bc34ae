"""One self-contained page about a run: collected, rendered, and written where it may be. See ``write_report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreError
from dpstream.tools.evaluate.run_folder import MAX_STEPS, Folder, open_folder
from dpstream.tools.family_tools import tool_for
from dpstream.tools.report.assembly import REPORT_MARKER, FamilyPage


def write_report(
    run: str | Path,
    out: str | Path,
    *,
    pairs: Sequence[tuple[str, str]] = (),
    most_steps: int = MAX_STEPS,
    force: bool = False,
) -> Path:
    """Write one self-contained page about a run: what it protects, what it cost, what it gives.

    Args:
        run: a configuration file, or a folder of releases. From the folder alone the page shows what any reader of
            the releases can see.
        out: the page, ending in ``.html``. An earlier report of that name is replaced.
        pairs: pairs of columns that get a heat map whatever their association.
        most_steps: manifests to read at most, evenly spaced with the first and the last; by default 200.
        force: replace other files than reports.

    Guarantee: everything on the page is post-processing of the releases and of public declarations.

    Errors:
        ConfigError: no run, no release yet, a place that cannot be taken.
        SchemaError: an unknown column in ``pairs``.
        StoreDamagedError: files that differ from their published hashes.

    Cost: reads the last table, and manifests. CPU time: a second or two for 104
    steps of 8 columns; exact intervals of joint draws add as much.
    """
    place = _place(Path(out), force)
    folder = open_folder(run, most=most_steps)
    _check_place(place, folder)
    drawn = tool_for("page", FamilyPage, folder.mechanism)
    page = drawn.page(folder, pairs)
    # A label may hold half of a surrogate pair, which no file can.
    _write(place, page.encode("utf-8", "replace"))
    return place


def _place(out: Path, force: bool) -> Path:
    """The page's path, refused where it would destroy anything but an earlier report."""
    if out.suffix not in (".html", ".htm"):
        raise ConfigError(f"unknown ending of {out.name!r}", where="--out", allowed="a name in .html")
    if out.is_dir():
        raise ConfigError("a folder has that name", where=str(out), allowed="another name")
    if out.exists() and not force:
        with out.open("rb") as file:
            ours = REPORT_MARKER.encode() in file.read(200)
        if not ours:
            raise ConfigError("the file exists", where=str(out), allowed="another name, or --force")
    return out


def _check_place(out: Path, run: Folder) -> None:
    # A link of that name is replaced, not followed.
    place = out.parent.resolve() / out.name
    inside = run.releases.resolve() in place.parents
    if inside and place.parent != run.releases.resolve():
        raise ConfigError("a step's folder is closed", where=str(out), allowed="another folder")


def _write(out: Path, page: bytes) -> None:
    try:
        if not out.parent.is_dir():
            out.parent.mkdir(parents=True)
        durable.replace_file(out, page, mode=0o644)
    except OSError as error:
        raise StoreError(
            f"the report could not be written: {error.strerror or error}", where=str(out)
        ) from error
