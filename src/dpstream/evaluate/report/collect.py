"""What a report is made of: the public folder of a run, and the configuration if it was named."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.errors import ConfigError, InputError, StoreDamagedError
from dpstream.evaluate.metrics import churn
from dpstream.schema import Schema
from dpstream.sinks import read, read_catalogue, read_manifest, released_schema
from dpstream.tables import Workload, count_marginals

if TYPE_CHECKING:
    from dpstream.config import Config

__all__ = ["Accuracy", "Run", "StepFacts", "collect", "released_alike", "released_codes", "thin"]

#: Steps whose tables are read and drawn; longer streams are thinned, and the page says so.
MOST_STEPS = 200

_WHAT_IS_ALLOWED = "a configuration file (dpstream.toml), or the folder of releases that a run wrote"
#: What the page reads from a manifest, whatever else is in it.
_NEEDED = (
    "stream",
    "step",
    "period",
    "guarantee",
    "unit",
    "spent",
    "mechanism",
    "horizon",
    "schema",
    "program",
    "rows_in_table",
    "declared_public",
    "made_with_test_seed",
)


@dataclass(frozen=True)
class Accuracy:
    """What a manifest says of the noise: standard deviations in records, None where none can be given.

    Attributes:
        total: of the noisy number of records.
        cell: of one cell of each of ``marginals`` (sets of column names).
        words: the manifest's own sentence.
    """

    total: float | None
    cell: float | None
    marginals: frozenset[frozenset[str]]
    words: str

    @classmethod
    def of(cls, manifest: dict[str, Any]) -> Accuracy | None:
        """From a manifest; None where it does not say (older versions)."""
        entry = manifest.get("accuracy")
        if entry is None:
            return None
        try:
            always = entry["measured_every_step"]
            cliques = frozenset(frozenset(map(str, names)) for names in always["marginals"])
            cell = always["standard_error"]
            total = entry["total_standard_error"]
            return cls(
                None if total is None else float(total),
                None if cell is None or not cliques else float(cell),
                cliques,
                str(entry["words"]),
            )
        except (KeyError, TypeError, ValueError):
            raise StoreDamagedError(
                "the manifest's accuracy cannot be read", where=f"step {manifest['step']}"
            ) from None


@dataclass(frozen=True)
class StepFacts:
    """One release as its manifest tells it; ``rows`` counts the released table's rows."""

    step: int
    period: str | None
    rows: int
    accuracy: Accuracy | None


@dataclass(frozen=True)
class Run:
    """Everything public that a page shows.

    Attributes:
        releases: the folder.
        config: the configuration, if it was named.
        schema: the columns; from the configuration, or rebuilt from the codebook.
        manifest: of the last released step that was not withdrawn.
        states: every step and its state: ``full``, ``dropped``, ``withdrawn`` or ``change``.
        shown: facts of the steps that are drawn (thinned if there are many).
        tables: steps whose tables were read.
        counts: per column, rows by code in each of those tables; shape (tables, codes).
        workload: the marginals that the mechanism was asked to keep.
        churn: mean total variation of those marginals between each of the tables and the one read before it.
        codes: records of the last full table; None if there is none.
    """

    releases: Path
    config: Config | None
    schema: Schema
    manifest: dict[str, Any]
    states: tuple[tuple[int, str], ...]
    shown: tuple[StepFacts, ...]
    tables: tuple[int, ...]
    workload: Workload
    counts: tuple[NDArray[np.int64], ...]
    churn: tuple[float, ...]
    codes: NDArray[np.int32] | None

    @property
    def last_table(self) -> int | None:
        """The step of ``codes``."""
        return self.tables[-1] if self.tables else None

    @property
    def accuracy(self) -> Accuracy | None:
        """Of the last table; None where its manifest does not say."""
        return next((facts.accuracy for facts in self.shown if facts.step == self.last_table), None)

    @property
    def test_seed(self) -> bool:
        """Whether the noise can be predicted, so that there is no guarantee."""
        return bool(self.manifest["made_with_test_seed"])

    def rows(self) -> NDArray[np.int64]:
        """Rows of each read table."""
        total: NDArray[np.int64] = self.counts[0].sum(axis=1)
        return total

    def labels(self, column: int) -> tuple[str, ...]:
        """Labels of a column's codes as the released table can tell them apart."""
        kind = self.schema.columns[column]
        labels = list(kind.labels())
        if released_alike(kind):
            labels[-2:] = [
                f"{kind.other} (always empty: released as null)",
                f"{kind.missing} or {kind.other}",
            ]
        return tuple(labels)


def collect(run: str | Path, *, most: int = MOST_STEPS) -> Run:
    """Read a run: a configuration file, or a folder of releases. Reads nothing private.

    Args:
        most: steps to read at most; the first and the last are always among them.

    Errors:
        ConfigError: neither of the two, no release yet, or releases of another plan than the file's.
        StoreDamagedError, StoreFormatError: files that differ from their published hashes, or cannot be read.
    """
    path = Path(run)
    if not path.exists():
        raise ConfigError("there is nothing of that name", where=str(path), allowed=_WHAT_IS_ALLOWED)
    if path.is_dir():
        return _read(path, None, _catalogue(path), most)
    from dpstream.config import Config

    config = Config.load(path)
    config.table_recipe("report")
    catalogue = _catalogue(config.output.dir, config)
    _require_same_plan(config, catalogue)
    return _read(config.output.dir, config, catalogue, most)


def thin(steps: Sequence[int], most: int) -> tuple[int, ...]:
    """At most ``most`` of the steps, evenly spaced, with the first and the last.

    >>> thin(range(1, 11), 4), thin([5], 4)
    ((1, 4, 7, 10), (5,))
    """
    if len(steps) <= most:
        return tuple(steps)
    places = np.unique(np.linspace(0, len(steps) - 1, max(2, most)).round().astype(int))
    return tuple(steps[int(i)] for i in places)


def released_codes(schema: Schema, releases: Path, step: int) -> NDArray[np.int32]:
    """The records of a released table, as codes.

    Outside text columns ``other`` is released as null. It is read back as ``other`` where nulls can mean nothing
    else, and as ``missing`` where that is declared too.
    """
    frame = read(releases, step)
    try:
        return _reading_schema(schema).encode(frame, where=f"the table of step {step}")
    except InputError as error:
        raise StoreDamagedError(
            f"the table of step {step} does not fit the codebook: {error.what}", where=str(releases)
        ) from None


def released_alike(column: Any) -> bool:
    """Whether ``other`` and ``missing`` are the same null in released tables."""
    return column.other is not None and column.missing is not None and not _is_text(column)


def _is_text(column: Any) -> bool:
    return str(column.arrow_type()) == "string"


def _reading_schema(schema: Schema) -> Schema:
    columns = [
        # The null takes the code that ``other`` had: the last one, in a domain of the same size.
        dataclasses.replace(column, other=None, missing=column.other)
        if column.other is not None and column.missing is None and not _is_text(column)
        else column
        for column in schema.columns
    ]
    return Schema(tuple(columns), schema.ignore, schema.null_values)


def _catalogue(releases: Path, config: Config | None = None) -> dict[str, Any]:
    """The catalogue with at least one step.

    Errors:
        ConfigError: says what is there instead.
    """
    there = (releases / "catalogue.json").is_file()
    if there:
        catalogue = read_catalogue(releases)
        if _entries(catalogue, releases):
            return catalogue
    if config is not None:
        raise ConfigError(_not_yet(config), where=str(releases), allowed=f"dpstream run {config.path}")
    if there:
        raise ConfigError("no step is released yet", where=str(releases), allowed="one release or more")
    raise ConfigError(
        "there are no releases (no catalogue.json)", where=str(releases), allowed=_WHAT_IS_ALLOWED
    )


def _entries(catalogue: dict[str, Any], releases: Path) -> list[dict[str, Any]]:
    try:
        entries = [
            {"step": int(e["step"]), "state": str(e["state"]), "kept": bool(e["kept"])}
            for e in catalogue["steps"]
        ]
    except (KeyError, TypeError, ValueError):
        raise StoreDamagedError("the catalogue cannot be read", where=str(releases)) from None
    return sorted(entries, key=lambda entry: entry["step"])


def _not_yet(config: Config) -> str:
    from dpstream.streams import read_status
    from dpstream.streams.place import has_store

    if not has_store(config.state_dir, server=config.server):
        return "there are no releases: the run has not started"
    status = read_status(config.state_dir, server=config.server)
    if status.last_step:
        return f"{status.last_step} steps are committed, and none is in this folder"
    if status.reserved is not None:
        return f"there are no releases yet: step {status.reserved} was begun and is not finished"
    return "there are no releases yet: the run has started and no step is finished"


def _require_same_plan(config: Config, catalogue: dict[str, Any]) -> None:
    from dpstream.streams.identity import plan_hash

    if catalogue.get("plan_hash") != plan_hash(config.facts()):
        raise ConfigError(
            "the releases were made under another plan than this file's",
            where=str(config.path),
            allowed=f"the file as it was for the run, or the folder {str(config.output.dir)!r} itself",
        )


def _read(releases: Path, config: Config | None, catalogue: dict[str, Any], most: int) -> Run:
    if isinstance(most, bool) or most < 2:
        raise ConfigError(f"most = {most}", where="report", allowed="2 or more steps")
    entries = _entries(catalogue, releases)
    states = tuple((entry["step"], _state(entry)) for entry in entries)
    told = [step for step, state in states if state != "withdrawn"]
    if not told:
        raise ConfigError("all releases are withdrawn", where=str(releases), allowed="one release or more")
    shown = thin(told, most)
    tables = thin([step for step, state in states if state == "full"], most)
    manifests = {step: _manifest(releases, step) for step in sorted({*shown, *tables[-1:]})}
    last = manifests[shown[-1]]
    schema = released_schema(releases, last) if config is None else config.schema()
    workload = _workload(schema, last, releases)
    counts, changes, codes = _count(workload, schema, releases, tables)
    facts = tuple(
        StepFacts(step, _period(m), int(m["rows_in_table"]), Accuracy.of(m)) for step, m in manifests.items()
    )
    return Run(releases, config, schema, last, states, facts, tables, workload, counts, changes, codes)


def _state(entry: dict[str, Any]) -> str:
    state = str(entry["state"])
    return "dropped" if state == "full" and not entry["kept"] else state


def _period(manifest: dict[str, Any]) -> str | None:
    return None if manifest["period"] is None else str(manifest["period"])


def _manifest(releases: Path, step: int) -> dict[str, Any]:
    manifest = read_manifest(releases, step)
    lacking = [key for key in _NEEDED if key not in manifest]
    if lacking:
        raise StoreDamagedError(
            f"the manifest of step {step} lacks {', '.join(lacking)}", where=str(releases), allowed="format 1"
        )
    return manifest


def _workload(schema: Schema, manifest: dict[str, Any], releases: Path) -> Workload:
    """The mechanism's, or all single columns for a mechanism that has none."""
    try:
        spec = manifest["mechanism"]["options"].get("workload", "all-1-way")
        return Workload.parse(schema.domain, spec)
    except (InputError, KeyError, TypeError, AttributeError):
        raise StoreDamagedError(
            "the manifest's workload does not fit the columns", where=str(releases)
        ) from None


def _count(
    workload: Workload, schema: Schema, releases: Path, tables: Sequence[int]
) -> tuple[tuple[NDArray[np.int64], ...], tuple[float, ...], NDArray[np.int32] | None]:
    """Single columns of every table, how far each table is from the one before, and the last table."""
    sizes = schema.domain.sizes
    counts = tuple(np.zeros((len(tables), size), dtype=np.int64) for size in sizes)
    codes, before, changes = None, None, []
    for row, step in enumerate(tables):
        codes = released_codes(schema, releases, step)
        for column, size in enumerate(sizes):
            counts[column][row] = np.bincount(codes[:, column], minlength=size)
        after = count_marginals(codes, schema.domain, workload.cliques)
        if before is not None:
            changes.append(churn(before, after))
        before = after
    return counts, tuple(changes), codes
