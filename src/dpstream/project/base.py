"""``[base]``: the release of an earlier stream that a successor begins with.

The declared rule says what becomes of the old columns. The facts (which release, by its hash; the rule; what both
streams cost together) are pinned in the stream's plan and printed in its manifests. Once the stream is started they
are taken from there, and the table is in its state: the predecessor's folder may go. Where it stays, each opening looks
whether the earlier streams went on.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import StartTable, StepPeriods, StreamPlan, ends, option, shown
from dpstream.core.contracts.recipe_options import TEXT
from dpstream.core.errors import (
    ConfigError,
    DataError,
    DpstreamError,
    StoreDamagedError,
    StoreError,
    UnitError,
    did_you_mean,
)
from dpstream.core.privacy import InsertedRecord, Record, User
from dpstream.core.schema import Clique, Column, Domain, Schema
from dpstream.core.tables import count_marginals
from dpstream.project.reader import Section, exact_number
from dpstream.stream.identity import require_same_unit, whose_unit
from dpstream.stream.ledger.limit import budget_from_dict
from dpstream.stream.predecessor_cost import Base, Broken, Together, own_budget, together
from dpstream.stream.release.released_verdicts import number_of_records
from dpstream.stream.stream import broken_border

if TYPE_CHECKING:
    from dpstream.io.sources.source_options import SourceOptions


#: New label -> share; the shares add up to 1, exactly.
Shares = dict[str, Fraction]
_EQUAL = "equal names mean equal columns"
_SHARES = 'a label, a list of labels (even shares), or exact shares such as {A = "0.6", B = "0.4"}'


def _tables(
    section: Section, key: str, value: Any, read: Callable[..., Any], what: str = ""
) -> dict[str, Any]:
    """A table of columns or of labels; ``read`` reads each value."""
    if not isinstance(value, Mapping):
        raise section.wrong(key, f"{what}{shown(value)} is not a table")
    return {name: read(section, key, part, what=f"{what}{name!r}, ") for name, part in value.items()}


def _table(key: str, read: Callable[..., Any], section: Section, *_: Any) -> dict[str, Any]:
    """A key of ``[base]``."""
    if not section.has(key):
        return {}
    table = _tables(section, key, section.raw(key), read)
    section.note(key, ", ".join(table), default=False)
    return table


def _text(section: Section, key: str, value: Any, what: str = "") -> str:
    """A label or a column; TOML's truth values and whole numbers have labels too."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or (isinstance(value, str) and value):
        return str(value)
    raise section.wrong(key, f"{what}{shown(value)} is not a label")


def _shares(section: Section, key: str, value: Any, what: str) -> Shares:
    """One label, a list of labels in even shares, or a table of labels with exact shares."""
    if not isinstance(value, Mapping):
        labels = [
            _text(section, key, label, what) for label in (value if isinstance(value, list) else [value])
        ]
        if not labels or len(set(labels)) != len(labels):
            raise section.wrong(key, f"{what}{shown(value)} does not name each label once")
        return dict.fromkeys(labels, Fraction(1, len(labels)))
    shares = {label: exact_number(share) for label, share in value.items()}
    for label, share in shares.items():
        if share is None or not 0 < share <= 1:
            raise section.wrong(key, f"{what}{shown(value[label])} is not a share")
    exact = {label: share for label, share in shares.items() if share is not None}
    total = sum(exact.values(), Fraction(0))
    if total != 1:
        raise section.wrong(key, f"{what}the shares add up to {total}", "exact shares that add up to 1")
    return exact


@dataclass(frozen=True, kw_only=True)
class BaseOptions:
    """``[base]``, read but not yet compared with any columns. ``place``: file and section, for messages."""

    place: str = "[base]"
    releases: Path = option(
        allowed="a folder, relative to this file",
        meaning="The earlier stream's releases; read once, at the start.",
        place="folder",
    )
    step: int | None = option(
        None,
        allowed="the number of its last published step",
        shown="its last one",
        meaning="The release to begin with; later steps must be withdrawn.",
        reason="a later step would be lost",
    )
    rename: dict[str, str] = option(
        read=partial(_table, "rename", _text),
        allowed='columns with their names there, such as {postcode = "zip"}',
        shown="none",
        meaning="Columns with another name before.",
        reason=_EQUAL,
        fragment={"type": "object", "additionalProperties": TEXT},
    )
    map: dict[str, dict[str, Shares]] = option(
        read=partial(_table, "map", partial(_tables, read=_shares)),
        allowed=f'old labels, each with {_SHARES}; "null" is the null of a column with other and missing',
        shown="equal labels",
        meaning="`[base.map.COLUMN]`: old values or bins to rename, merge or split.",
        reason=_EQUAL,
        fragment={"type": "object"},
    )
    fill: dict[str, Shares] = option(
        read=partial(_table, "fill", _shares),
        allowed=f"for a column: {_SHARES}",
        shown="none",
        meaning="What old records get in a new column.",
        reason=_EQUAL,
        fragment={"type": "object"},
    )
    drop: tuple[str, ...] = option(
        (),
        allowed="a list of the earlier stream's columns",
        shown="none",
        meaning="Earlier columns that this stream leaves out.",
        reason="a column does not vanish by mistake",
    )
    config: Path | None = option(
        None,
        allowed="a file, relative to this one",
        meaning="The earlier stream's configuration file: leads `dpstream evaluate` to its private records. All its "
        "steps must be published before.",
        reason="only evaluations need it",
    )

    def rule(self) -> dict[str, Any]:
        """The declared rule, JSON-able and exact: one spelling per meaning."""
        return {
            "rename": self.rename,
            "map": {
                column: {old: _texts(shares) for old, shares in rules.items()}
                for column, rules in self.map.items()
            },
            "fill": {column: _texts(shares) for column, shares in self.fill.items()},
            "drop": sorted(self.drop),
        }

    def wrong(self, key: str, what: str, allowed: Iterable[str]) -> ConfigError:
        """The error for a key, or for the whole section (empty); what is allowed is cut after 20 names."""
        names = tuple(allowed)
        shown_names = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        return ConfigError(what, where=f"{self.place} {key}".rstrip(), allowed=shown_names)

    def require(self, key: str, what: str, names: Iterable[str], known: tuple[str, ...]) -> None:
        """Every name is known, as a column or as a value (ConfigError)."""
        for name in names:
            if name not in known:
                raise self.wrong(key, f"{what} {name!r}{did_you_mean(name, known)}", known)


def _texts(shares: Shares) -> dict[str, str]:
    return {label: str(share) for label, share in shares.items()}


#: Label of the nulls of a released column whose ``other`` and ``missing`` both show as null.
NULL = "null"


@dataclass(frozen=True)
class ColumnRule:
    """How a new column follows from the released table.

    Attributes:
        old: the old column, as its released values can be read; None for a column that it does not have.
        shares: shape (old labels, new labels), or (1, new labels); every row adds up to 1.
    """

    old: Column | None
    shares: NDArray[np.float64]


def readable(column: Column) -> Column:
    """The column as a released table shows it.

    Columns of numbers, dates and booleans show ``other`` as null. Where ``missing`` is declared besides, the two can
    no longer be told apart: such a null has the label ``null``, and a rule has to say what becomes of it.
    """
    import pyarrow as pa

    if column.other is None or pa.types.is_string(column.arrow_type()):
        return column
    return replace(column, other=None, missing=column.other if column.missing is None else NULL)


def column_rules(options: BaseOptions, old: Schema, new: Schema) -> tuple[ColumnRule, ...]:
    """One rule per new column: what is declared, and equal labels where nothing is.

    Errors:
        ConfigError: a label or a column that goes nowhere, a rule about something that is not there.
    """
    for key, names in (("drop", options.drop), ("rename", options.rename.values())):
        options.require(key, "the predecessor has no column", names, old.names)
    for key in ("rename", "map", "fill"):
        options.require(key, "the schema has no column", getattr(options, key), new.names)
    used = {options.rename.get(name, name) for name in new.names}
    for name in old.names:
        if name in options.drop and name in options.rename.values():
            raise options.wrong("drop", f"the column {name!r} is dropped and renamed", ["one of the two"])
        if name not in used and name not in options.drop:
            allowed = f'drop = ["{name}"], or a column that it becomes under [base.rename]'
            raise options.wrong("drop", f"the predecessor's column {name!r} goes nowhere", [allowed])
    rules = []
    for column in new.columns:
        name = options.rename.get(column.name, column.name)
        there = name in old.names and name not in options.drop
        rules.append(_mapped(options, readable(old[name]), column) if there else _filled(options, column))
    return tuple(rules)


def _mapped(options: BaseOptions, old: Column, new: Column) -> ColumnRule:
    if new.name in options.fill:
        what = f"the column {new.name!r} is in the predecessor"
        raise options.wrong("fill", what, ["[base.map], or drop it there"])
    labels = old.labels()
    declared = options.map.get(new.name, {})
    options.require("map", f"the predecessor's column {old.name!r} has no value", declared, labels)
    rules = {label: {label: Fraction(1)} for label in labels if label in new.labels() and label != NULL}
    rules |= declared
    for label in labels:
        if label not in rules:
            what = f"nothing says what becomes of {label!r} of the predecessor's column {old.name!r}"
            first, *others = new.labels()
            raise options.wrong("", what, [f"[base.map.{new.name}] with one or several of {first}", *others])
    return ColumnRule(old, np.array([_row(options, "map", new, rules[label]) for label in labels]))


def _filled(options: BaseOptions, new: Column) -> ColumnRule:
    if new.name in options.map:
        raise options.wrong("map", f"the predecessor has no column for {new.name!r}", ["[base.fill]"])
    if new.name not in options.fill:
        what = f"the predecessor has no column {new.name!r}, and nothing says what its records get"
        first, *others = new.labels()
        allowed = f"[base.rename], or [base.fill] {new.name} = one or several of {first}"
        raise options.wrong("", what, [allowed, *others])
    return ColumnRule(None, np.array([_row(options, "fill", new, options.fill[new.name])]))


def _row(options: BaseOptions, key: str, new: Column, shares: Shares) -> NDArray[np.float64]:
    """Shares of the new labels."""
    options.require(key, f"the column {new.name!r} has no value", shares, new.labels())
    return np.array([float(shares.get(label, 0)) for label in new.labels()])


@dataclass(frozen=True)
class ColumnSource:
    """Where one column comes from.

    Attributes:
        codes: of the old column, one per record; all 0 for a column that the old table does not have.
        shares: row ``i`` says how the records with old code ``i`` are spread over the new codes; shape (old codes,
            new codes), nothing below 0, every row adds up to 1.
    """

    codes: NDArray[np.int32]
    shares: NDArray[np.float64]

    @property
    def certain(self) -> bool:
        """Whether every old code becomes one new code."""
        return bool((self.shares.max(axis=1) == 1.0).all())


@dataclass(frozen=True)
class MappedTable:
    """The table with the declared shares: a ``StartTable``.

    Marginals are exact linear maps of the released table's: a record whose value is split counts with its shares
    in every cell, so that nothing is drawn. Splits of different columns are independent, given the old record.

    Attributes:
        domain: the new columns.
        columns: one source per new column.
        total, total_error: the number of records, and its standard error. The table may have been cut.
        seed: public; ``records`` has to draw where a value is split.

    >>> halves = ColumnSource(np.array([0, 0, 1], np.int32), np.array([[0.5, 0.5, 0], [0, 0, 1]]))
    >>> table = MappedTable(Domain(("zip",), (3,)), (halves,), 3.0, None, 1)
    >>> table.marginals([(0,)])[0].tolist()
    [1.0, 1.0, 1.0]
    """

    domain: Domain
    columns: tuple[ColumnSource, ...]
    total: float
    total_error: float | None
    seed: int

    @cached_property
    def _codes(self) -> NDArray[np.int32]:
        """The records: columns whose old codes each become one new code are mapped; the others keep their old codes."""
        mapped = [
            column.shares.argmax(axis=1)[column.codes] if column.certain else column.codes
            for column in self.columns
        ]
        return np.asfortranarray(np.column_stack(mapped).astype(np.int32))

    @cached_property
    def _half(self) -> Domain:
        """The domain of ``_codes``."""
        sizes = (
            size if column.certain else len(column.shares)
            for column, size in zip(self.columns, self.domain.sizes, strict=True)
        )
        return Domain(self.domain.names, tuple(sizes))

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """See ``StartTable``. Cost: one count of the table, and a product per column that is split."""
        rows = len(self._codes)
        scale = self.total / rows if rows else 0.0
        marginals = []
        for clique, counted in zip(cliques, count_marginals(self._codes, self._half, cliques), strict=True):
            values = counted.astype(np.float64).reshape(self._half.shape(clique))
            for axis, position in enumerate(clique):
                column = self.columns[position]
                if not column.certain:
                    values = np.moveaxis(np.tensordot(values, column.shares, axes=(axis, 0)), -1, axis)
            marginals.append(scale * values.ravel())
        return marginals

    def records(self) -> NDArray[np.int32]:
        """The table's records, split values drawn by their shares."""
        generator = np.random.default_rng(self.seed)
        codes = self._codes.copy()
        for position, column in enumerate(self.columns):
            if not column.certain:
                ends = column.shares.cumsum(axis=1)
                ends[:, -1] = np.inf  # sums of shares may end a rounding error below 1
                places = generator.random(len(codes))
                codes[:, position] = (places[:, None] >= ends[column.codes]).sum(axis=1)
        return codes


@dataclass(frozen=True)
class Predecessor:
    """What the folder says. All of it is public.

    Attributes:
        step: the release that the successor begins with.
        manifest, digest: its manifest, and the manifest's hash.
        last, last_digest: the manifest of the last step that was published, withdrawn or not, and its hash.
        lost: later steps, all of them withdrawn: their events are in no table.
        schema: the old columns.
    """

    folder: Path
    step: int
    manifest: dict[str, Any]
    digest: str
    last: dict[str, Any]
    last_digest: str
    lost: tuple[int, ...]
    schema: Schema


def read_predecessor(options: BaseOptions) -> Predecessor:
    """Read and check everything but the table.

    Errors:
        ConfigError: no releases, no such step, or one that was withdrawn, dropped, or is not the last.
        StoreDamagedError: files that differ from their hashes.
    """
    from dpstream.io.sinks import read_catalogue, read_manifest, released_schema

    folder = options.releases
    if not (folder / "catalogue.json").is_file():
        allowed = "the folder of a stream that has published"
        raise options.wrong("releases", f"no release was found in {str(folder)!r}", [allowed])
    entries = {int(entry["step"]): entry for entry in read_catalogue(folder)["steps"]}
    if not entries:
        raise options.wrong("", "the predecessor has no release", ["one or more"])
    there = [step for step, entry in entries.items() if entry["state"] != "withdrawn"]
    step = max(there, default=max(entries)) if options.step is None else options.step
    if step not in entries:
        allowed = f"{max(there)}" if there else "a published step (a held one awaits approval)"
        raise options.wrong("step", f"the predecessor has no published step {step}", [allowed])
    entry = entries[step]
    if entry["state"] == "withdrawn" or not entry["kept"]:
        why = "was withdrawn" if entry["state"] == "withdrawn" else "was dropped by the keep policy"
        raise options.wrong("step", f"the table of step {step} {why}", ["another table"])
    lost = tuple(sorted(number for number in entries if number > step))
    later = [number for number in lost if number in there]
    if later:
        what = f"the predecessor goes on after step {step}: step {later[0]} would be lost"
        raise options.wrong("step", what, [f"{max(there)}"])
    manifest = read_manifest(folder, step)
    return Predecessor(
        folder,
        step,
        manifest,
        str(entry["manifest_sha256"]),
        read_manifest(folder, max(entries)),
        str(entries[max(entries)]["manifest_sha256"]),
        lost,
        released_schema(folder, manifest),
    )


def border(old: Mapping[str, Any], new: SourceOptions, place: str) -> tuple[str | None, str]:
    """Where the old stream ends and the new one starts, if public facts show that no event is in both.

    Args:
        old: the manifest of the predecessor's last step.

    Returns:
        The first day (or number) of the new stream, and the reason why the border holds; or None, and why
        nothing shows it.

    Errors:
        ConfigError: there is a border, and the successor does not begin at it.
    """
    cut, own = old["source"], new.pinned()
    # A time column (or one and the same question for a period) decides about each record by itself.
    same = cut is not None and _way(cut) == _way(own) and (cut["time_column"] or "query" in cut)
    if not same or new.grid is None:
        return None, "nothing public shows that the two streams cut the same records at one border in time"
    if old["period"] is not None and isinstance(new.start, datetime.date):
        last = datetime.date.fromisoformat(str(old["period"]).split("/")[1])
        wanted: object = last + datetime.timedelta(days=1)
    elif old["period"] is None and isinstance(cut["start"], int) and isinstance(new.start, int):
        wanted = cut["start"] + int(old["step"])
    else:
        return None, "one of the two streams has a calendar and the other has not"
    if new.start != wanted:
        raise ConfigError(
            f"the stream starts at {new.start}, and its predecessor ends before {wanted}",
            where=place,
            allowed=f"[source] start = {wanted}",
        )
    return str(new.start), (
        f"records before {new.start} are in the earlier stream only, and all others in this one only (as long as "
        "the earlier one publishes no further step, and both write times alike: with an offset, or without one)"
    )


def _way(cut: Mapping[str, Any]) -> dict[str, Any]:
    """How a source assigns records to steps, for comparison; files and standard input do it alike."""
    kind = cut.get("kind", "files")
    return {"kind": "files" if kind == "stdin" else kind, **{k: cut.get(k) for k in ("query", "time_column")}}


def _require_form(cut: Mapping[str, Any], own: Mapping[str, Any], stream: str, place: str) -> None:
    """In UTC and as it stands, one time may lie on both sides of a border."""
    files = all(_way(one)["kind"] == "files" and one["time_column"] and one["every"] for one in (cut, own))
    forms = [f"{'with' if one.get('offsets') else 'without'} an offset" for one in (own, cut)]
    if files and forms[0] != forms[1]:
        raise ConfigError(
            f"times are read {forms[0]}, and those of the stream {stream!r} {forms[1]}: "
            "a record could be counted in both",
            where=f"{place}, [source] time_column = {own['time_column']!r}",
            allowed=f"times {forms[1]} (cast the column), and [source] offsets = "
            f"{'true' if cut.get('offsets') else 'false'}",
        )


def base_facts(
    options: BaseOptions,
    predecessor: Predecessor,
    plan: StreamPlan,
    schema: Schema,
    source: SourceOptions,
    before: Sequence[Broken] | None = None,
) -> dict[str, Any]:
    """What the successor is pinned to, JSON-able; the columns and the border are checked.

    Args:
        before: the broken borders between the streams before this one; None: nobody can look at them.

    Errors:
        UnitError: the two streams protect different units. ConfigError: see ``column_rules`` and ``border``; an earlier
        stream that has drawn a step again; times of another form than the predecessor's.
    """
    manifest = predecessor.manifest
    per = plan.unit.per if isinstance(plan.unit, User) else None
    units = [(manifest["unit"]["name"], manifest["unit"].get("per")), (plan.unit.name, per and per.name)]
    if units[0] != units[1]:
        named = [repr(name) if length is None else f"{name!r} per {length}" for name, length in units]
        raise UnitError(
            f"the predecessor protects the unit {named[0]} and this stream {named[1]}: "
            "their costs cannot be added",
            where=options.place,
            allowed="the same unit",
        )
    if predecessor.schema.open_columns:
        raise options.wrong("", "the earlier stream discovers values", ["another stream to begin with"])
    facts = {"unit": plan.unit.name, "source": source.pinned()}
    if isinstance(plan.unit, Record):
        facts["returns"] = plan.unit.returns
    earlier_unit = {**manifest["unit"], "unit": manifest["unit"]["name"], "source": manifest["source"]}
    require_same_unit(facts, whose_unit(earlier_unit), str(manifest["stream"]), options.place)
    # What an earlier stream says of its unit and that of a still earlier one, readers of this one have to know.
    if (manifest["source"] or {}).get("same_unit") and not source.same_unit:
        raise UnitError(
            f"the predecessor {manifest['stream']!r} has same_unit = {manifest['source']['same_unit']!r}, and "
            "this stream has none",
            where=options.place,
            allowed="[stream] same_unit here, too",
        )
    again = [one.words for one in before or () if one.again is not None]
    if again:
        what = f"{'; '.join(again)}: the costs of all streams cannot be added"
        raise options.wrong("", what, ["another stream to begin with"])
    column_rules(options, predecessor.schema, schema)
    if predecessor.last["source"] is not None:
        _require_form(predecessor.last["source"], source.pinned(), str(manifest["stream"]), options.place)
    starts, why = border(predecessor.last, source, options.place)
    earlier = manifest.get("base", {}).get("composition")
    # One of the earlier stream's periods ends at the border, and one of this stream begins there.
    apart = per is not None and ends(per, 0)
    if isinstance(per, StepPeriods):
        apart = ends(per, predecessor.step)
    both = ""
    if isinstance(plan.unit, InsertedRecord):
        both, counts = "a record's key", "counts it once"
    elif isinstance(plan.unit, User) and not apart:
        period = "" if per is None else f" of one period ({per.name})"
        both, counts = f"a user's events{period}", "has its own bound on them"
    elif isinstance(plan.unit, Record):
        both, counts = "a record's stay", "charges what it sees of it"
    if both:
        why = f"{both} may lie on both sides of the border, and each stream {counts}"
    elif starts is not None and earlier is not None and (earlier["rule"] == "sum" or before):
        starts, why = None, "not every border between the earlier streams is shown to hold"
    elif starts is not None and earlier is not None and before is None:
        starts, why = (
            None,
            "without [base] config nothing shows whether the streams before the earlier one go on",
        )
    adds = isinstance(plan.unit, User | Record) and not apart
    rule: Together = "sum" if starts is None or adds else "parallel"
    budget = dict(own_budget(manifest))
    last = {"stream": manifest["stream"], "stream_id": manifest["stream_id"], "budget": budget}
    periods = [*([] if earlier is None else earlier["periods"]), last]
    budgets = [*(budget_from_dict(period["budget"]) for period in periods), plan.budget]
    return {
        "stream": manifest["stream"],
        "stream_id": manifest["stream_id"],
        "plan_hash": manifest["plan_hash"],
        "step": predecessor.step,
        "period": manifest["period"],
        "manifest_sha256": predecessor.digest,
        "total_standard_error": _total_error(manifest),
        "made_with_test_seed": bool(manifest["made_with_test_seed"]),
        "withdrawn_since": list(predecessor.lost),
        "last_manifest_sha256": predecessor.last_digest,
        "rule": options.rule(),
        "composition": {
            "rule": rule,
            "border": starts,
            "periods": periods,
            "own": plan.budget.as_dict(),
            "together": together(budgets, rule).as_dict(),
            "why": why if rule == "parallel" else f"{why}, so that the budgets add up",
        },
    }


def _total_error(manifest: Mapping[str, Any]) -> float | None:
    """The standard error of the table's number of records; None where a negative estimate was shown as 0."""
    number = number_of_records(manifest)
    return None if not number.value and number.error else number.noise_error


def base_table(options: BaseOptions, predecessor: Predecessor, schema: Schema) -> MappedTable:
    """The table in the new columns. Checked against its published hashes.

    Errors:
        StoreDamagedError: files that differ from their hashes, or hold values without a code.
    """
    from dpstream.io.sinks import read_table

    table = read_table(predecessor.folder, predecessor.step)
    columns = []
    for rule in column_rules(options, predecessor.schema, schema):
        codes = np.zeros(table.num_rows, np.int32)
        if rule.old is not None:
            codes = _codes(rule, table, predecessor)
        columns.append(ColumnSource(codes, rule.shares))
    return MappedTable(
        schema.domain,
        tuple(columns),
        float(predecessor.manifest["rows"]),
        _total_error(predecessor.manifest),
        int(predecessor.digest[:15], 16),
    )


def _codes(rule: ColumnRule, table: Any, predecessor: Predecessor) -> Any:
    assert rule.old is not None
    try:
        return rule.old.encode(table.column(rule.old.name))
    except DataError:
        raise StoreDamagedError(
            f"the released column {rule.old.name!r} holds values beyond its codebook",
            where=f"{predecessor.folder}, step {predecessor.step}",
        ) from None


# A ``config`` here is a ``Config``, whose module imports this one.


class PredecessorWarning(UserWarning):
    """The borders between the streams before this one cannot be looked at."""


def find_base(config: Any, options: BaseOptions, pinned: Mapping[str, Any] | None = None) -> Base:
    """The base of a configuration's stream.

    Args:
        pinned: the pinned plan of the started stream; None: its state or its releases say it.

    Errors:
        ConfigError: no release to begin with, columns that do not fit, a border that does not hold.
        UnitError: the earlier stream protects another unit. StoreDamagedError: damaged releases.
    """
    if options.releases.resolve() == config.output.dir.resolve():
        allowed = "another [output] dir, or an earlier stream's folder"
        raise options.wrong("releases", "the stream would begin with its own releases", [allowed])

    facts = _known(config, options) if pinned is None else pinned.get("base")
    # Under another declared rule it is another base; the stream will say so.
    known = facts is not None and facts["rule"] == options.rule() and options.step in (None, facts["step"])
    if facts is None or not known:
        predecessor = read_predecessor(options)
        before = None if options.config is None else _before(config, options, predecessor.manifest["stream"])
        facts = base_facts(
            options, predecessor, config.plan(), config.schema(), config.source_options, before
        )
    broken = broken_borders(config, options, facts, started=known)
    return Base(facts, partial(_pinned_table, config, options, facts["manifest_sha256"]), known, broken)


def _pinned_table(config: Any, options: BaseOptions, digest: str) -> StartTable:
    """Read the table that the facts name; another release than theirs is refused."""
    if options.config is not None:
        require_all_published(type(config).load(options.config))
    predecessor = read_predecessor(options)
    if predecessor.digest != digest:
        raise StoreDamagedError(
            "the stream began with another release of the predecessor", where=options.place
        )
    return base_table(options, predecessor, config.schema())


def require_all_published(old: Any) -> None:
    """Refuse a predecessor that has steps which are not among its releases: published later, their records would be
    in both streams.

    Errors:
        ConfigError: a step is held, or its publication was interrupted.
    """
    from dpstream.stream import read_status
    from dpstream.stream.store.place import has_store

    if not has_store(old.state_dir, server=old.server):
        return
    stored = read_status(old.state_dir, server=old.server)
    waiting = sorted({*stored.held, *stored.unpublished})
    if waiting:
        raise ConfigError(
            f"step {waiting[0]} of {old.name!r} is not published yet",
            where=str(old.path),
            allowed="dpstream approve, or the rest of the run",
        )


def broken_borders(
    config: Any, options: BaseOptions, facts: Mapping[str, Any], *, started: bool
) -> tuple[Broken, ...]:
    """Why what ``facts`` say of this stream and the earlier ones together does not hold: an earlier stream has
    published a step after a border, or has drawn again what a later one began with.

    Public folders show that where they still are; those before the last one are found through ``[base] config``.
    Without a folder there is nothing to compare. Nor is there where a later version, or a public file that has gone,
    makes the earlier stream's file invalid: a stream that was ``started`` goes on then, with a warning.

    Errors:
        DpstreamError: the stream was not started, and ``[base] config`` is invalid or the file of another stream.
    """
    found = list(_since(options.releases, facts))
    if options.config is not None and options.config.is_file():
        try:
            found += _before(config, options, facts["stream"])
        except DpstreamError as error:
            if not started:
                raise
            warnings.warn(
                f"{options.place} config: the streams before {facts['stream']!r} cannot be read: {error}",
                PredecessorWarning,
                stacklevel=2,
            )
    # Where all budgets are added up, a record may be in all of the streams.
    added = facts["composition"]["rule"] == "sum"
    return tuple(one for one in found if one.again is not None or not added)


def _before(config: Any, options: BaseOptions, stream: str) -> tuple[Broken, ...]:
    """The broken borders between the streams before this one."""
    old = type(config).load(options.config)
    if old.name != stream:
        what = f"the file is of stream {old.name!r}"
        raise options.wrong("config", what, [f"the configuration of {stream!r}"])
    # Where neither its state nor its releases are left, nothing says what it began with.
    if old.base_options is None or _known(old, old.base_options) is None:
        return ()
    base = old.base()
    return () if base is None else base.broken


def _since(folder: Path, facts: Mapping[str, Any]) -> Iterator[Broken]:
    """What has happened in the earlier stream's folder since."""
    from dpstream.io.sinks import read_catalogue

    if not (folder / "catalogue.json").is_file():
        return
    try:
        catalogue = read_catalogue(folder)
        steps = {int(entry["step"]): str(entry["manifest_sha256"]) for entry in catalogue["steps"]}
        same = catalogue["stream_id"] == facts["stream_id"]
    except (StoreError, KeyError, TypeError, ValueError):
        return  # damaged: the stream was started from it before
    name, last = facts["stream"], max(int(facts["step"]), *facts["withdrawn_since"], 0)
    again = budget_from_dict(facts["composition"]["periods"][-1]["budget"])
    if not same:
        # A folder may go, and another stream's may take its place.
        if catalogue.get("stream") == name:
            yield Broken(f"the stream {name!r} has begun anew in {str(folder)!r}", again)
        return
    # Whoever draws an earlier step again draws this one, too.
    if steps.get(last) != facts["last_manifest_sha256"]:
        yield Broken(
            f"the stream {name!r} has drawn step {last} again, from an older copy of its state", again
        )
    later = [number for number in steps if number > last]
    if later and facts["composition"]["rule"] == "parallel":
        yield Broken(f"the stream {name!r} has published step {min(later)}, after the border")


def require_border(config: Any) -> None:
    """Refuse a further step where a border between the streams is broken.

    Errors:
        ConfigError: see ``broken_borders``.
    """
    base = config.base()
    if base is not None and base.broken:
        raise broken_border(base.broken, config.base_options.place)


def _known(config: Any, options: BaseOptions) -> dict[str, Any] | None:
    """What the started stream is pinned to, or what its releases say."""
    from dpstream.io.sinks import read_catalogue, read_manifest
    from dpstream.stream import read_status
    from dpstream.stream.store.place import has_store

    if has_store(config.state_dir, server=config.server):
        stored = read_status(config.state_dir, server=config.server)
        # Of a state without a step another plan may take the place: while the earlier folder is there, it is looked at.
        if not stored.unspent or not (options.releases / "catalogue.json").is_file():
            pinned: dict[str, Any] | None = stored.plan.get("base")
            return pinned
    if not (config.output.dir / "catalogue.json").is_file():
        return None
    steps = [int(entry["step"]) for entry in read_catalogue(config.output.dir)["steps"]]
    published = read_manifest(config.output.dir, max(steps)).get("base") if steps else None
    return None if published is None else {key: value for key, value in published.items() if key != "words"}
