"""Reading releases back: needs the public directory only, and checks every hash."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, cast

from dpstream.errors import ConfigError, StoreDamagedError, StoreFormatError
from dpstream.sinks.publisher import CATALOGUE, CODEBOOK, MANIFEST, step_name
from dpstream.sinks.tables import FORMATS, Format, from_bytes

__all__ = ["Frame", "read", "read_catalogue", "read_manifest"]

Frame = Literal["arrow", "pandas", "polars"]


def read(directory: str | Path, step: int | None = None, *, frame: Frame = "arrow") -> Any:
    """The released table of a step.

    Args:
        directory: the releases.
        step: which one; the last full table by default.
        frame: ``arrow`` gives a pyarrow Table, ``pandas`` and ``polars`` their frames (if installed).

    Errors:
        ConfigError: no such step, a withdrawn or dropped table, or a frame library that is not installed.
        StoreDamagedError: files that differ from the published hashes.
    """
    if frame not in ("arrow", "pandas", "polars"):
        raise ConfigError(f"unknown frame {frame!r}", where="read", allowed="arrow, pandas, polars")
    root = Path(directory)
    number = _choose(read_catalogue(root), step, root)
    manifest = read_manifest(root, number)
    tables = [name for name in manifest["files"] if name.removeprefix("table.") in FORMATS]
    if len(tables) != 1:
        raise StoreDamagedError("the manifest names no table", where=str(root / step_name(number)))
    path = root / step_name(number) / tables[0]
    data = _verified(path, manifest["files"][tables[0]]["sha256"])
    form = cast(Format, path.suffix.removeprefix("."))
    table = from_bytes(data, form, _fields(root) if form == "csv" else ())
    return _as_frame(table, frame)


def read_catalogue(directory: str | Path) -> dict[str, Any]:
    """The catalogue of all published steps.

    Errors:
        ConfigError: there is none. StoreDamagedError, StoreFormatError: it cannot be read.
    """
    path = Path(directory) / CATALOGUE
    if not path.is_file():
        raise ConfigError(
            "there are no releases", where=str(directory), allowed="a directory that a stream wrote"
        )
    return _json(path.read_bytes(), path)


def read_manifest(directory: str | Path, step: int) -> dict[str, Any]:
    """The manifest of a step, checked against the catalogue."""
    root = Path(directory)
    entries = {entry["step"]: entry for entry in read_catalogue(root)["steps"]}
    if step not in entries:
        raise ConfigError(f"there is no step {step}", where=str(root), allowed=_span(list(entries)))
    path = root / step_name(step) / MANIFEST
    return _json(_verified(path, entries[step]["manifest_sha256"]), path)


def _choose(catalogue: dict[str, Any], step: int | None, root: Path) -> int:
    entries = {int(entry["step"]): entry for entry in catalogue["steps"]}
    there = [number for number, entry in entries.items() if entry["state"] == "full" and entry["kept"]]
    if step is None:
        if not there:
            raise ConfigError("no step has a full table", where=str(root))
        return max(there)
    if step in there:
        return step
    if step not in entries:
        what = f"there is no step {step}"
    elif entries[step]["state"] != "full":
        what = f"step {step} is not a full table (state {entries[step]['state']!r})"
    else:
        what = f"the table of step {step} was dropped by the keep policy; its manifest is there"
    raise ConfigError(what, where=str(root), allowed=_span(there))


def _span(steps: list[int]) -> str:
    return f"steps from {min(steps)} to {max(steps)}" if steps else "none yet"


def _verified(path: Path, digest: str) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise StoreDamagedError("the file is missing", where=str(path)) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise StoreDamagedError("the file differs from its published hash", where=str(path))
    return data


def _json(data: bytes, path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(data)
        version = value["format"]
    except (ValueError, KeyError, TypeError):
        raise StoreDamagedError("the file cannot be read", where=str(path)) from None
    if version != 1:
        raise StoreFormatError(f"format {version!r}", where=str(path), allowed="format 1")
    return value


def _fields(root: Path) -> list[dict[str, Any]]:
    path = root / CODEBOOK
    try:
        fields: list[dict[str, Any]] = json.loads(path.read_bytes())["resources"][0]["schema"]["fields"]
    except (FileNotFoundError, ValueError, KeyError, IndexError, TypeError):
        raise StoreDamagedError("the codebook cannot be read", where=str(path)) from None
    return fields


def _as_frame(table: Any, frame: Frame) -> Any:
    if frame == "arrow":
        return table
    try:
        if frame == "pandas":
            return table.to_pandas()
        import polars
    except ImportError:
        raise ConfigError(f"{frame} is not installed", where="read", allowed=f"pip install {frame}") from None
    return polars.from_arrow(table)
