"""Reads releases from the public directory alone, and checks every hash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, cast

from dpstream.core.contracts import NoisyCounts
from dpstream.core.errors import (
    ConfigError,
    DataError,
    InputError,
    StoreDamagedError,
    StoreFormatError,
    unreadable,
)
from dpstream.core.paths import parse_json, sha256_hex
from dpstream.core.schema import Column, Schema
from dpstream.core.schema.discrete import DISCOVER, Found
from dpstream.io.objects import AnyPath, any_path, asking, is_web_url, read_place
from dpstream.io.sinks.catalogue import CATALOGUE, PARTS, Catalogue, as_it_stands
from dpstream.io.sinks.change_tables import ID, OP, apply_changes, content_sha256
from dpstream.io.sinks.drawing import DRAWN_TABLE
from dpstream.io.sinks.period_tables import add_periods, has_periods
from dpstream.io.sinks.signing import SignedPath
from dpstream.io.sinks.table_files import FORMATS, Format, from_bytes
from dpstream.io.sinks.target import CODEBOOK, MANIFEST, MEASUREMENTS, MODEL, STAYING, step_name

Frame = Literal["arrow", "pandas", "polars"]
#: The manifest of a step, and the noisy counts that were published with it.
MeasuredStep = tuple[dict[str, Any], list[NoisyCounts]]


def read_table(
    directory: str | AnyPath, step: int | None = None, *, frame: Frame = "arrow", ids: bool = False
) -> Any:
    """The released table of a step.

    Where a step was published as changes, they are applied to the last full table before it, one step after the other;
    the result is compared with the hash in the step's manifest.

    Args:
        directory: the folder of releases.
        step: the step; by default the last one that can be read.
        frame: ``arrow`` gives a pyarrow Table, ``pandas`` and ``polars`` their frames (if installed).
        ids: keep the column ``record_id`` of persistent records. A panel's column ``person`` is always kept.

    Errors:
        ConfigError: no such step, a withdrawn or dropped table, or a frame library that is not installed.
        StoreDamagedError: files that differ from the published hashes.
    """
    check_frame(frame)
    root = any_path(directory)
    chain = _choose(_catalogue(root), step, root)
    manifest, table = _part(root, chain[0], "table")
    for number in chain[1:]:
        manifest, changes = _part(root, number, "changes")
        try:
            if has_periods(manifest):
                table = add_periods(table, changes, manifest["records"].get("weight"))
            else:
                table = apply_changes(table, changes)
        except DataError as error:
            raise StoreDamagedError(error.what, where=str(root / step_name(number))) from None
    digest = manifest.get("records", {}).get("content_sha256")
    if digest is not None and content_sha256(table) != digest:
        raise StoreDamagedError(
            "the table differs from its published hash", where=str(root / step_name(chain[-1]))
        )
    if digest is not None and not ids and not has_periods(manifest):
        table = table.drop_columns([ID])
    return as_frame(table, frame)


def read_changes(directory: str | AnyPath, step: int, *, frame: Frame = "arrow") -> Any:
    """The changes from the step before to this one: ``op``, ``record_id`` and the columns.

    Of a panel: the new periods of its people, as ``person``, ``period`` and the columns.

    Errors:
        ConfigError: no such step, or one without changes. StoreDamagedError: files that differ from their hashes.
    """
    root = any_path(directory)
    if not any(name.startswith("changes.") for name in _files_there(root, step)):
        raise ConfigError(
            f"step {step} lacks changes",
            where=str(root),
            allowed='a stream with publish = "changes" or "both"',
        )
    return as_frame(_part(root, step, "changes")[1], frame)


def read_model(directory: str | AnyPath, step: int) -> dict[str, Any]:
    """The model of a step, as docs/reference/files.md describes it.

    Errors:
        ConfigError: no such step, a withdrawn or dropped one, or one without a model. StoreDamagedError: a file that is
            missing, cannot be read, or differs from its hash.
    """
    root = any_path(directory)
    listed = _files_there(root, step).get(MODEL)
    if listed is None:
        raise ConfigError(
            f"no model was published with step {step}",
            where=str(root),
            allowed="a step with model.json",
        )
    path = root / step_name(step) / MODEL
    return _json(_verified(path, listed["sha256"]), path)


def _files_there(root: AnyPath, step: int) -> dict[str, Any]:
    """The files that a step's manifest lists (ConfigError: they are gone)."""
    entry = _catalogue(root).entry(step)
    if entry is not None and (entry["state"] == "withdrawn" or not entry["kept"]):
        raise ConfigError(_why_gone(entry), where=str(root))
    files: dict[str, Any] = read_manifest(root, step)["files"]
    return files


def read_measurements(directory: str | AnyPath, through: int | None = None) -> list[NoisyCounts]:
    """The noisy counts that were published with the steps up to ``through`` (all by default), in the order of steps.

    They stay when a table expires or is withdrawn. A step that is held or rejected has published none.

    Errors:
        ConfigError: no releases there. StoreDamagedError: files that are missing or differ from their published hashes.

    Cost: reads one manifest and one file a step.
    """
    return [one for _, counts in measured_steps(directory, through) for one in counts]


def measured_steps(directory: str | AnyPath, through: int | None = None) -> Iterator[MeasuredStep]:
    """The manifest of each step up to ``through``, with the noisy counts that were published with it.

    Errors and cost:
        As ``read_measurements``.
    """
    root = any_path(directory)
    for entry in _catalogue(root).entries():
        step = int(entry["step"])
        if through is not None and step > through:
            break
        manifest = _manifest(root, entry)
        wanted = manifest["files"].get(MEASUREMENTS)
        path = root / step_name(step) / MEASUREMENTS
        lines = [] if wanted is None else _verified(path, wanted["sha256"]).splitlines()
        try:
            counts = [NoisyCounts.from_line(line) for line in lines]
        except ConfigError:
            raise StoreDamagedError("unreadable noisy counts", where=str(path)) from None
        yield manifest, counts


def _part(root: AnyPath, step: int, kind: str) -> tuple[dict[str, Any], Any]:
    """The manifest of a step, and its table or its changes."""
    manifest = read_manifest(root, step)
    names = [name for name in manifest["files"] if name.removeprefix(f"{kind}.") in FORMATS]
    if not names and kind == "table" and DRAWN_TABLE in manifest["files"]:
        raise ConfigError(
            f"the table of step {step} is elsewhere",
            where=str(root),
            allowed=f"partition step={step} of the table that [output] names: spark.read.parquet",
        )
    if len(names) != 1:
        raise StoreDamagedError(f"the manifest lists no {kind}", where=str(root / step_name(step)))
    path = root / step_name(step) / names[0]
    data = _verified(path, manifest["files"][names[0]]["sha256"])
    if (label := f"{names[0]}-metadata.json") in manifest["files"]:
        # The label says what the rows are and what protects them, so it must be as trustworthy as the table.
        _verified(path.with_name(label), manifest["files"][label]["sha256"])
    form = cast(Format, path.suffix.removeprefix("."))
    own = [{"name": ID, "type": "integer"}, {"name": OP, "type": "string"}]
    return manifest, from_bytes(data, form, [*_fields(root), *own] if form == "csv" else ())


def check_signed(root: SignedPath) -> int:
    """Read every published file, and compare it with what the owner signed; gives how many there are.

    Errors:
        StoreDamagedError: the file that is missing, was changed or does not belong there.
    """
    signed = set(root.signature.files)
    for name in (CATALOGUE, *sorted(signed)):
        if not name.startswith(f"{PARTS}/"):  # one that is not counted yet may be missing
            (root / name).read_bytes()
    count = len(signed)
    for entry in _catalogue(root).entries():
        folder, gone = (
            root / step_name(int(entry["step"])),
            not entry["kept"] or entry["state"] == "withdrawn",
        )
        files = _manifest(root, entry)["files"]
        wanted = {name: files[name]["sha256"] for name in files if not gone or name in STAYING}
        for name, digest in wanted.items():
            _verified(folder / name, digest)
        count += 1 + len(wanted)
        assert isinstance(folder, SignedPath)
        for name in sorted(folder.names() - wanted.keys() - {MANIFEST}):
            if not name.startswith(".") and f"{folder.key}/{name}" not in signed:
                what = _why_gone(entry) if gone else "not signed"
                raise StoreDamagedError(what, where=str(folder / name))
    return count


def read_catalogue(directory: str | AnyPath) -> dict[str, Any]:
    """The catalogue with all its parts; the key ``steps`` has the entries of all published steps in order.

    Errors:
        ConfigError: releases are missing. StoreDamagedError, StoreFormatError: the catalogue, or a part of it, cannot
            be read.
    """
    catalogue = _catalogue(any_path(directory))
    return {**catalogue.facts, "steps": catalogue.entries()}


def readable_steps(directory: str | AnyPath) -> tuple[int, ...]:
    """The steps whose tables ``read_table`` can give, in order: full tables, and changes that follow one without a gap.

    Errors:
        As ``read_catalogue``.
    """
    steps: list[int] = []
    for entry in _catalogue(any_path(directory)).entries():
        number, state = int(entry["step"]), entry["state"]
        follows = state == "change" and steps[-1:] == [number - 1]
        if entry["kept"] and (state == "full" or follows):
            steps.append(number)
    return tuple(steps)


def read_manifest(directory: str | AnyPath, step: int) -> dict[str, Any]:
    """The manifest of a step, checked against the catalogue. For a withdrawn step, ``withdrawn`` has the reason.

    Errors:
        ConfigError: releases or the step are missing. StoreDamagedError, StoreFormatError: the manifest or the
            catalogue cannot be read, or the manifest differs from its hash.
    """
    root = any_path(directory)
    catalogue = _catalogue(root)
    entry = catalogue.entry(step)
    if entry is None:
        there = list(catalogue.backwards())
        raise ConfigError(f"unknown step {step}", where=str(root), allowed=_span(there))
    return _manifest(root, entry)


def _manifest(root: AnyPath, entry: Mapping[str, Any]) -> dict[str, Any]:
    """As ``read_manifest``, of a step whose entry in the catalogue is at hand."""
    path = root / step_name(int(entry["step"])) / MANIFEST
    manifest = as_it_stands(dict(entry), _json(_verified(path, entry["manifest_sha256"]), path))
    if entry["state"] == "withdrawn":
        manifest["withdrawn"] = {"reason": entry.get("reason")}
    return manifest


def released_schema(directory: str | AnyPath, manifest: dict[str, Any]) -> Schema:
    """The schema of a release, from the public codebook alone.

    Errors:
        ConfigError: the releases are those of a panel, which have no schema of records.
        StoreDamagedError: the codebook cannot be read, or belongs to another schema than the release.
    """
    if has_periods(manifest):
        raise ConfigError(
            "a panel has no table of records",
            where=str(directory),
            allowed="releases of pooled, dpstabs or baseline",
        )
    with _codebook(any_path(directory)) as book:
        # The column of record ids is in the codebook, but not in the schema.
        fields = [field for field in book["resources"][0]["schema"]["fields"] if "dpstream" in field]
        fingerprint = book["dpstream"]["schema"]
        columns = {
            str(f["name"]): {k: v for k, v in f["dpstream"].items() if k not in ("size", "codes")}
            for f in fields
        }
        found = {
            str(f["name"]): [
                Found(str(code["label"]), int(code["from_step"]), int(code["noisy_count"]))
                for code in f["dpstream"]["codes"]
                if "from_step" in code
            ]
            for f in fields
            if f["dpstream"].get("values") == DISCOVER
        }
        schema = Schema.from_codebook(columns, book["dpstream"].get("constraints")).grown(found)
        labels = [tuple(code["label"] for code in f["dpstream"]["codes"]) for f in fields]
    if fingerprint != manifest["schema"] or labels != [column.labels() for column in schema.released_columns]:
        raise StoreDamagedError(
            "the codebook belongs to other releases", where=str(any_path(directory) / CODEBOOK)
        )
    return schema


def as_released(column: Column) -> Column:
    """The column that encodes released values as the codes that they were released from.

    Released numbers, dates and booleans have null for ``other``. If such a column declares no ``missing``, null is read
    as ``other``; the code is the same under either name. If it declares both, see ``released_alike``.
    """
    if column.other is None or column.missing is not None or _is_text(column):
        return column
    return replace(column, other=None, missing=column.other)


def released_alike(column: Column) -> bool:
    """Whether a released null may mean ``other`` or ``missing``, and nobody can say which."""
    return column.other is not None and column.missing is not None and not _is_text(column)


def _is_text(column: Column) -> bool:
    return str(column.arrow_type()) == "string"


def _catalogue(root: AnyPath) -> Catalogue:
    with asking(root):
        there = (root / CATALOGUE).is_file()
    if not there:
        allowed = "a stream's output directory"
        if is_web_url(str(root)):
            server = str(root).partition("/v1")[0]
            allowed = f"one stream, such as {server}/v1/streams/NAME"
        raise ConfigError("no releases found", where=str(root), allowed=allowed)
    return Catalogue(root)


def _choose(catalogue: Catalogue, step: int | None, root: AnyPath) -> list[int]:
    """The steps whose files give the table: one with a full table, and the changes after it (ConfigError: none do)."""
    if step is not None:
        chain_or_why = _chain(catalogue, step)
        if isinstance(chain_or_why, str):
            there = list(catalogue.backwards())
            if step not in there:
                raise ConfigError(f"unknown step {step}", where=str(root), allowed=_span(there))
            there = [one for one in there if not isinstance(_chain(catalogue, one), str)]
            raise ConfigError(chain_or_why, where=str(root), allowed=_span(there))
        return chain_or_why
    for number in catalogue.backwards():
        chain = _chain(catalogue, number)
        if not isinstance(chain, str):
            return chain
    raise ConfigError("no step has a full table", where=str(root), allowed="a folder with a kept step")


def _chain(catalogue: Catalogue, step: int) -> list[int] | str:
    """The steps to read for the table of ``step``; or the reason why it cannot be read, as a text."""
    chain: list[int] = []
    number = step
    while (entry := catalogue.entry(number)) is not None:
        if entry["state"] not in ("full", "change") or not entry["kept"]:
            reason = _why_gone(entry)
            return reason if number == step else f"step {step} is a change, and {reason}"
        chain.append(number)
        if entry["state"] == "full":
            return chain[::-1]
        number -= 1
    return f"step {step} is a change, and step {number} before it is missing"


def _why_gone(entry: dict[str, Any]) -> str:
    if entry["state"] == "withdrawn":
        reason = f": {entry['reason']}" if "reason" in entry else ""
        return f"step {entry['step']} was withdrawn{reason}"
    if entry["state"] not in ("full", "change"):
        return f"unknown state {entry['state']!r} of step {entry['step']}"
    return f"the keep policy dropped the table of step {entry['step']}; its manifest remains"


def _span(steps: list[int]) -> str:
    """The steps in words, those between which none is missing as a range; of many ranges the newest.

    >>> _span([1, 4, 5, 6])
    'steps 1, 4-6'
    """
    ranges: list[list[int]] = []
    for step in sorted(steps):
        if ranges and step == ranges[-1][1] + 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    more = "" if len(words) <= 10 else "older ones, "
    return f"step{'s' * (len(steps) > 1)} {more}{', '.join(words[-10:])}" if steps else "none yet"


def _verified(path: AnyPath, digest: str) -> bytes:
    try:
        data = read_place(path)
    except FileNotFoundError:
        raise StoreDamagedError("file missing", where=str(path)) from None
    if sha256_hex(data) != digest:
        raise StoreDamagedError("the file differs from its published hash", where=str(path))
    return data


def _json(data: bytes, path: AnyPath) -> dict[str, Any]:
    with unreadable("unreadable file", str(path)):
        value: dict[str, Any] = parse_json(data)
        version = value["format"]
    if version != 1:
        raise StoreFormatError(
            f"unknown file format {version!r}",
            where=str(path),
            allowed="format 1, or a newer dpstream",
        )
    return value


def _fields(root: AnyPath) -> list[dict[str, Any]]:
    with _codebook(root) as book:
        fields: list[dict[str, Any]] = book["resources"][0]["schema"]["fields"]
        more: list[dict[str, Any]] = book["dpstream"].get("panel", {}).get("fields", [])
        return [*fields, *more]


def panel_labels(directory: str | AnyPath) -> dict[str, tuple[str, ...]]:
    """The labels of the values of a panel's columns, from the public codebook, in the order of their codes.

    Errors:
        StoreDamagedError: the codebook cannot be read, or has none.
    """
    with _codebook(any_path(directory)) as book:
        return {
            str(field["name"]): tuple(str(code["label"]) for code in field["dpstream"]["codes"])
            for field in book["dpstream"]["panel"]["fields"]
            if "dpstream" in field
        }


@contextmanager
def _codebook(root: AnyPath) -> Iterator[dict[str, Any]]:
    """The public codebook; what does not fit it, inside the block too, is damage."""
    path = root / CODEBOOK
    try:
        data = read_place(path)
    except FileNotFoundError:
        raise StoreDamagedError("codebook missing", where=str(path)) from None
    try:
        yield parse_json(data)
    except (InputError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise StoreDamagedError("unreadable codebook", where=str(path)) from None


def check_frame(frame: str) -> None:
    """Check the name of a kind of frame (ConfigError)."""
    if frame not in ("arrow", "pandas", "polars"):
        raise ConfigError(f"unknown frame {frame!r}", where="read", allowed="arrow, pandas, polars")


def as_frame(table: Any, frame: Frame) -> Any:
    """Convert a pyarrow Table into a frame of another library.

    Errors:
        ConfigError: the library is not installed.
    """
    if frame == "arrow":
        return table
    try:
        if frame == "pandas":
            return table.to_pandas()
        import polars
    except ImportError:
        raise ConfigError(f"{frame} is not installed", where="read", allowed=f"pip install {frame}") from None
    return polars.from_arrow(table)
