"""The public folder of a run: which steps there are, what their manifests say, and their tables as codes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpstream.core.errors import ConfigError, InputError, StoreDamagedError, unreadable
from dpstream.io.sinks import read_catalogue, read_manifest, read_table, readable_steps
from dpstream.io.sinks.release_reader import as_released
from dpstream.stream.measured_counts import Headline, headlines
from dpstream.stream.public_release import PublicRelease, read
from dpstream.stream.release.manifest import COUNTED
from dpstream.stream.release.released_verdicts import number_of_records, table_measured
from dpstream.tools.evaluate.array_types import Codes

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.project import Config

#: Steps whose tables are read and drawn; longer streams are thinned, and the page says so.
MAX_STEPS = 200

#: Numbers at the ends of periods with an exact interval each, evenly spaced.
_MAX_STOCKS = 60

_WHAT_IS_ALLOWED = "a configuration file (dpstream.toml), or a folder of releases"
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
    "holds",
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

    def column_error(self, name: str, sizes: Mapping[str, int]) -> float | None:
        """Of a count of one value of a column; None where it cannot be given.

        The smallest over the marginals that hold the column: its values are sums of their cells, whose noise is
        independent.
        """
        cells = [
            math.prod(sizes.get(other, 1) for other in names - {name})
            for names in self.marginals
            if name in names
        ]
        return None if self.cell is None or not cells else self.cell * math.sqrt(min(cells))

    @classmethod
    def of(cls, manifest: dict[str, Any]) -> Accuracy:
        """From a manifest."""
        with unreadable("the manifest's accuracy cannot be read", f"step {manifest['step']}"):
            entry = manifest["accuracy"]
            # A classifier has no marginals.
            always = entry.get("measured_every_step", {"marginals": [], "standard_error": None})
            cliques = frozenset(frozenset(map(str, names)) for names in always["marginals"])
            cell = always["standard_error"]
            return cls(
                number_of_records(manifest).noise_error,
                None if cell is None or not cliques else float(cell),
                cliques,
                str(entry["words"]),
            )


@dataclass(frozen=True)
class StepFacts:
    """One release as its manifest tells it; ``rows`` counts the released table's rows, ``holds`` says in words which
    records it is about."""

    step: int
    period: str | None
    rows: int
    accuracy: Accuracy
    holds: str

    @property
    def counted(self) -> str:
        """What kind of number ``rows`` is."""
        return "a public number" if self.accuracy.total == 0 else "a noisy number"


@dataclass(frozen=True, eq=False)
class PublishedRun:
    """What the manifests of any stream tell.

    Attributes:
        manifest: of the last released step that was not withdrawn.
        states: every step and its state: ``full``, ``dropped``, ``withdrawn`` or ``change``.
        shown: facts of the steps that are drawn (thinned if there are many).
    """

    manifest: dict[str, Any]
    states: tuple[tuple[int, str], ...]
    shown: tuple[StepFacts, ...]

    @property
    def test_seed(self) -> bool:
        """Whether the noise can be predicted, which voids the guarantee."""
        return bool(self.manifest["made_with_test_seed"])

    @property
    def measured_up_to(self) -> int:
        """The last step whose counts are measured: what came since is expected."""
        return table_measured(self.manifest)[0]

    @property
    def counted_records(self) -> str:
        """What the records that are counted are called."""
        return str(self.manifest["accuracy"].get(COUNTED, "records"))


@dataclass(frozen=True)
class Folder:
    """A run's releases before any table is read.

    Attributes:
        config: the configuration, if it was named.
        states: every step and its state: ``full``, ``dropped``, ``withdrawn`` or ``change``.
        steps: those that are shown: not withdrawn, thinned if there are many.
        full: all steps that have a full table.
        most: steps, and tables, to show at most.
    """

    releases: Path
    config: Config | None
    states: tuple[tuple[int, str], ...]
    steps: tuple[int, ...]
    full: tuple[int, ...]
    most: int
    _manifests: dict[int, dict[str, Any]] = field(default_factory=dict, repr=False)

    @cached_property
    def release(self) -> PublicRelease | None:
        """What measurements say, from the public folder; None where no table can be read."""
        return read(self.releases) if self.readable else None

    @cached_property
    def headlines(self) -> list[Headline]:
        """What was measured over time."""
        return [] if self.release is None else headlines(self.release, min(self.most, _MAX_STOCKS))

    @property
    def readable(self) -> tuple[int, ...]:
        """All steps whose table can be read, also where only changes of it were published."""
        return readable_steps(self.releases)

    @property
    def manifest(self) -> dict[str, Any]:
        """Of the last shown step."""
        return self.manifest_of(self.steps[-1])

    @property
    def mechanism(self) -> str:
        """The name of the mechanism, as in configuration files."""
        with unreadable("the manifest names no mechanism", str(self.releases)):
            return str(self.manifest["mechanism"]["name"])

    def manifest_of(self, step: int) -> dict[str, Any]:
        """Read once, with its hash checked.

        Errors:
            StoreDamagedError: it lacks what every manifest has.
        """
        if step not in self._manifests:
            self._manifests[step] = _manifest(self.releases, step)
        return self._manifests[step]

    def facts(self, more: Sequence[int] = ()) -> tuple[StepFacts, ...]:
        """Of the shown steps, and of ``more`` among them; in order."""
        return tuple(
            StepFacts(step, _period(m), int(m["rows_in_table"]), Accuracy.of(m), str(m["holds"]))
            for step in sorted({*self.steps, *more})
            for m in [self.manifest_of(step)]
        )


def open_folder(run: str | Path, *, most: int = MAX_STEPS) -> Folder:
    """A run by its configuration file or its folder of releases. Reads nothing private.

    Args:
        most: steps to read at most; the first and the last are always among them.

    Errors:
        ConfigError: neither of the two, no release yet, or releases of another plan than the file's.
        StoreDamagedError, StoreFormatError: files that differ from their published hashes, or cannot be read.
    """
    path = Path(run)
    if not path.exists():
        raise ConfigError("the run is missing", where=str(path), allowed=_WHAT_IS_ALLOWED)
    if path.is_dir():
        return _read(path, None, _catalogue(path), most)
    from dpstream.project import Config

    return releases_of(Config.load(path), most=most)


def releases_of(config: Config, releases: Path | None = None, *, most: int = MAX_STEPS) -> Folder:
    """What a configuration's run released; see ``open_folder``.

    Args:
        releases: another place than the configuration says.
    """
    place = config.output.dir if releases is None else releases
    catalogue = _catalogue(place, config)
    require_same_plan(config, catalogue, place)
    return _read(place, config, catalogue, most)


def thin(steps: Sequence[int], most: int) -> tuple[int, ...]:
    """At most ``most`` of the steps, evenly spaced, with the first and the last.

    >>> thin(range(1, 11), 4), thin([5], 4)
    ((1, 4, 7, 10), (5,))
    """
    if len(steps) <= most:
        return tuple(steps)
    places = np.unique(np.linspace(0, len(steps) - 1, max(2, most)).round().astype(int))
    return tuple(steps[int(i)] for i in places)


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
        raise ConfigError("releases are missing", where=str(releases), allowed=f"dpstream run {config.path}")
    if there:
        raise ConfigError("no step is released yet", where=str(releases), allowed="one release or more")
    raise ConfigError(
        "releases are missing (no catalogue.json)", where=str(releases), allowed=_WHAT_IS_ALLOWED
    )


def _entries(catalogue: dict[str, Any], releases: Path) -> list[dict[str, Any]]:
    with unreadable("the catalogue cannot be read", str(releases)):
        entries = [
            {"step": int(e["step"]), "state": str(e["state"]), "kept": bool(e["kept"])}
            for e in catalogue["steps"]
        ]
    return sorted(entries, key=lambda entry: entry["step"])


def require_same_plan(config: Config, catalogue: dict[str, Any], place: Path) -> str:
    """The hash of the plan that the releases were made under, which is the file's.

    Errors:
        ConfigError: they are another stream's, or were made under another plan.
    """
    from dpstream.stream.identity import mechanism_remedy, plan_hash

    if catalogue["stream"] != config.name:
        raise ConfigError(
            f"the releases are of the stream {catalogue['stream']!r}, not of {config.name!r}",
            where=str(place),
            allowed="the configuration of the releases",
        )
    manifest = read_manifest(place, int(catalogue["steps"][-1]["step"]))
    base = manifest.get("base")
    # What the manifests say of the earlier stream, so that no state is asked for it.
    known = {} if base is None else {"base": {key: value for key, value in base.items() if key != "words"}}
    facts = config.facts(pinned=known)
    hashed = plan_hash(facts)
    if catalogue.get("plan_hash") == hashed:
        return hashed
    file = "the file of the run"
    if manifest["schema"] != facts["schema"]["fingerprint"]:
        what = "the releases have another schema"
    elif manifest["source"] != facts["source"]:
        what = "the releases have other steps"
    else:
        what = "the releases have another plan"
        mechanism = str(manifest["mechanism"]["name"])
        file = mechanism_remedy(mechanism, str(facts["mechanism"])) or file
    raise ConfigError(what, where=str(config.path), allowed=f"{file}, or the folder {str(place)!r} itself")


def _read(releases: Path, config: Config | None, catalogue: dict[str, Any], most: int) -> Folder:
    if isinstance(most, bool) or most < 2:
        raise ConfigError(f"most = {most}", where="report", allowed="2 or more steps")
    states = tuple((entry["step"], _state(entry)) for entry in _entries(catalogue, releases))
    standing = [step for step, state in states if state != "withdrawn"]
    if not standing:
        raise ConfigError("all releases are withdrawn", where=str(releases), allowed="one release or more")
    full = tuple(step for step, state in states if state == "full")
    return Folder(releases, config, states, thin(standing, most), full, most)


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


def read_codes(table: Any, schema: Schema, where: str) -> Codes:
    """A released table as codes.

    A released table shows ``other`` as null in columns of numbers, dates and booleans. It is read back as ``other``
    where nulls can mean nothing else, and as ``missing`` where the column declares that, too.

    Errors:
        DataError: a table that does not fit.
    """
    columns = tuple(as_released(column) for column in schema.columns)
    # What follows from other columns was computed, and need not be read.
    readable = replace(schema, columns=columns, constraints=None)
    extra: Literal["error", "ignore"] = "error" if schema.constraints is None else "ignore"
    return readable.encode(table, where=where, extra=extra)


def released_codes(schema: Schema, releases: Path, step: int) -> Codes:
    """The records of a released table, as ``read_codes`` reads them.

    Errors:
        StoreDamagedError: it differs from its published hash, or does not fit the columns.
    """
    table = read_table(releases, step)
    try:
        return read_codes(table, schema, f"the table of step {step}")
    except InputError as error:
        raise StoreDamagedError(
            f"the table of step {step} does not fit the codebook: {error.what}", where=str(releases)
        ) from None
