"""The sections of a configuration file as frozen values, and what makes them consistent."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from dpstream.core.contracts import Given, Limits, StreamPlan, build, located, shown
from dpstream.core.contracts.registry import mechanisms_with
from dpstream.core.errors import ConfigError, UnitError
from dpstream.core.objects import object_path
from dpstream.core.privacy import (
    ZCDP,
    Budget,
    Event,
    EventUnit,
    Individual,
    PureDP,
    Record,
    Unit,
    User,
    approximate_to_zcdp,
    exact_amount,
    parse_unit,
)
from dpstream.core.schema import Schema
from dpstream.io.sinks.sink_kinds import OWN_SINKS, SINKS
from dpstream.io.sources.keyed_options import key_rules, keys_that_matter
from dpstream.io.sources.keyed_source import plain_options
from dpstream.io.sources.source_keys import Late, other_kind, rows_of_source
from dpstream.io.sources.source_options import SourceOptions
from dpstream.project.keyed_sections import check_key_column
from dpstream.project.reader import Section, Used
from dpstream.project.server_url import check_url
from dpstream.stream.identity import require_constraints
from dpstream.stream.release.publishing import FULL_EVERY, Publishing, RecordKind, TableKind

if TYPE_CHECKING:
    from dpstream.core.schema import Schema


@dataclass(frozen=True)
class BudgetOptions:
    """What the stream may cost. ``stated`` is the (epsilon, delta) that ``budget`` was derived from.

    ``account``: the file in which several streams add up, as written.
    """

    budget: Budget
    stated: tuple[Fraction, Fraction] | None
    horizon: int | None
    account: str | None = None


@dataclass(frozen=True)
class OutputOptions:
    """Where releases go. ``keep`` is None for all.

    ``database`` is a DuckDB file or a PostgreSQL connection string, where ``sink`` needs one.
    """

    dir: Path
    format: Literal["parquet", "csv"]
    keep: int | None
    publishing: Publishing = field(default_factory=Publishing)
    sink: str = "folder"
    database: str | None = None
    table: str = "synthetic"


def read_unit(section: Section, limits: Limits) -> Unit:
    """``[stream] unit`` and ``total``, which say the relation together.

    Errors:
        UnitError: a unit that the mechanism's family cannot protect.
        ConfigError: an unknown unit, or a unit and a total that contradict each other.
    """
    word = section.raw("unit") if section.has("unit") else None
    if limits.bounded and section.has("max_events"):
        raise section.wrong("max_events", limits.bounded, "leave it out")
    if word is not None and not isinstance(word, str):
        raise section.wrong(
            "unit", f"{shown(word)} is not a unit", ", ".join(limits.units) if limits.people else None
        )
    if section.has("returns"):
        raise section.wrong(
            "returns", "it is set without unit = record: no other unit has keys that come back"
        )
    unit = _people(section, word, limits) if limits.people else _events(section, word, limits)
    if isinstance(unit, User):
        if section.choice("total", ("private", "public"), "private") == "public":
            raise section.wrong(
                "total",
                "'public' contradicts unit = 'user': with a user's records the sizes of steps change",
                "total = 'private', or unit = 'event'",
            )
        section.note("unit", unit.name, default=False)
    else:
        unit = _related(section, unit, limits, default=word is None)
    if unit.name not in limits.units:
        raise section.wrong(
            "unit" if section.has("unit") else "total",
            limits.other_units.format(unit=unit.name),
            'total = "public" (the unit becomes event-replace)'
            if "event-replace" in limits.units
            else ", ".join(limits.units),
        )
    return unit


def _events(section: Section, word: str | None, limits: Limits) -> EventUnit:
    """A unit of a stream that does not follow people."""
    if section.has("max_events") and word != "user":
        raise section.wrong("max_events", "a bound on events per user is set without the unit user")
    bound = section.count("max_events")
    with located(section.place("unit" if bound is None else "max_events")):
        unit = parse_unit("event" if word is None else word, bound)
    if isinstance(unit, Individual | Record):
        following = mechanisms_with(lambda family: family.limits.people)
        raise UnitError(
            f"the mechanism cannot protect the unit {word!r}: it does not follow people",
            where=section.place("unit"),
            allowed=f"{', '.join(limits.units)}; or [mechanism] name = {' or '.join(map(repr, following))}",
        )
    return unit


def _people(section: Section, word: str | None, limits: Limits) -> Individual:
    """A unit of a stream that follows people."""
    with located(section.place("unit")):
        unit = None if word == "user" else parse_unit(limits.units[0] if word is None else word)
    if not isinstance(unit, Individual):
        raise UnitError(
            limits.other_units.format(unit=word),
            where=section.place("unit"),
            allowed=", ".join(limits.units),
        )
    return unit


def _related(
    section: Section, unit: Event | Individual, limits: Limits, *, default: bool
) -> Event | Individual:
    """The unit with the relation that ``total`` says; noted."""
    kind, what = (
        ("individual", "the number of people") if limits.people else ("event", "the sizes of all steps")
    )
    said = "public" if unit.relation == "replace" else "private"
    total = section.choice("total", ("private", "public"), said)
    if unit.relation == "replace" and total == "private":
        raise section.wrong(
            "total",
            f"'private' contradicts unit = '{kind}-replace', which makes {what} public",
            f"total = 'public', or unit = '{kind}'",
        )
    if unit.relation == "add-remove" and total == "public":
        reason = 'total = "public" switches the relation to replace'
        section.note("unit", f"{kind}-replace", default=True, reason=reason)
        return dataclasses.replace(unit, relation="replace")
    section.note("unit", unit.name, default=default, reason=limits.unit_reason or None)
    return unit


def read_source(section: Section, unit: Unit, given: Given) -> SourceOptions:
    """Read ``[source]``. Cutting by rows needs public sizes; a unit that is a user or a person needs a user column."""
    check_key_column(section, unit)
    if section.has("user_column") and not isinstance(unit, User | Individual):
        raise section.wrong("user_column", "a user column is set, and the unit is about single records")
    if section.has("period_columns") and not isinstance(unit, Individual):
        raise section.wrong(
            "period_columns", "only a mechanism that follows people has periods of people", "a time_column"
        )
    if isinstance(unit, User | Individual) and not section.has("key_column"):
        section.required("user_column")
    if section.table.get("kind", "files") == "files":
        section.required("path")
    kind = other_kind(section.raw("kind"))
    if section.has("url") and kind is None:
        check_url(section)
    own = None if kind is None or kind.options is None else build(section, kind.options, given)
    shared = rows_of_source(())
    with located(section.place()):
        options = SourceOptions.parse({key: section.raw(key) for key in section.table if key in shared}, own)
    if options.insert_only:
        options = plain_options(options)
    if options.needs_public_sizes and unit.relation != "replace":
        raise section.wrong(
            "rows",
            f"{options.rows} rows a step would publish the size of every step, and sizes are private here",
            '[stream] total = "public" (the unit becomes event-replace), or a time_column',
        )
    for key in shared:
        if section.has(key):
            section.note(key, str(section.raw(key)), default=False)
    if options.time_column is not None:
        for key in ("start", "late"):
            if not section.has(key):
                section.note(key, str(getattr(options, key)), default=True)
    if options.key_column is not None:
        _note_rules(section, options)
    return options


def _note_rules(section: Section, options: SourceOptions) -> None:
    """The defaults of what becomes of rows that do not fit."""
    rules = key_rules(options)
    for key in keys_that_matter(options):
        if not section.has(key):
            section.note(key, str(getattr(rules, key, getattr(options, key))), default=True)


def check_source(section: Section, options: SourceOptions, limits: Limits) -> None:
    """Whether the mechanism's family can follow such a source.

    Errors:
        ConfigError: names the key, why not, and what is allowed.
    """
    if options.rows is not None and limits.rows is not None:
        raise section.wrong("rows", *limits.rows)
    if options.deletions and limits.deletes:
        keys = {"postgres-changes": "kind"}
        key = "key_column" if options.key_column else keys.get(options.kind, "op_column")
        raise section.wrong(key, limits.deletes, "a source without deletes")
    if options.late in limits.late:
        others = ", ".join(rule for rule in get_args(Late) if rule not in limits.late)
        raise section.wrong("late", limits.late[options.late], others)


def check_fits(section: Section, options: SourceOptions, plan: StreamPlan, schema: Schema) -> None:
    """Whether the source can feed the plan, where it says so itself, and the plan follows the schema. Reads no data.

    Errors:
        ConfigError, UnitError, LimitError: it cannot.
    """
    require_constraints(plan, schema, begins=options.continues)
    if options.updates == "changed" and schema.rules is not None and schema.rules.read:
        names = ", ".join(column.name for column in schema.rules.read)
        raise section.wrong(
            "updates",
            f"'changed' leaves out what an update keeps, so {names}, which follows from other columns, cannot be held "
            "against it",
            "read = false for it in [schema.constraints.derived], or updates that give whole records",
        )
    kind = other_kind(options.kind)
    if kind is not None and kind.fits is not None:
        with located(section.place()):
            kind.fits(options, plan)


def read_budget(section: Section) -> BudgetOptions:
    """Exactly one of epsilon, rho, and epsilon with delta.

    (epsilon, delta) becomes the largest rho whose loss is within it, rounded down, so the noise is at least
    what it has to be.

    Errors:
        ConfigError: none or several. BudgetError: an amount that cannot be used.
    """
    given = [key for key in ("epsilon", "rho", "delta") if section.has(key)]
    if given not in (["epsilon"], ["rho"], ["epsilon", "delta"]):
        what = f"{' and '.join(given)} do not make a budget" if given else "there is no budget"
        raise ConfigError(what, where=section.place(), allowed="epsilon, or rho, or epsilon and delta")
    stated = None
    budget: Budget
    if given == ["rho"]:
        budget = section.amount("rho", ZCDP.of)
    elif given == ["epsilon"]:
        budget = section.amount("epsilon", PureDP.of)
    else:
        epsilon = section.amount("epsilon", lambda value: PureDP.of(value).epsilon)
        delta = section.amount("delta", lambda value: exact_amount(value, where="delta"))
        with located(section.place("delta")):
            budget = round_down(approximate_to_zcdp(epsilon, delta))
        stated = (epsilon, delta)
        reason = "the largest rho within epsilon and delta, rounded down"
        section.used.append(Used("budget", "rho", str(budget), reason))
    horizon = section.count_or_word("horizon", "none")
    account = section.text("account") if section.has("account") else None
    return BudgetOptions(budget, stated, horizon, account)


def round_down(budget: ZCDP) -> ZCDP:
    """At most nine significant digits, never more than before.

    >>> round_down(ZCDP(Fraction(1, 3)))
    ZCDP(rho=Fraction(333333333, 1000000000))
    """
    scale = Fraction(1)
    while budget.rho * scale < 10**8:
        scale *= 10
    while budget.rho * scale >= 10**9:
        scale /= 10
    return ZCDP(Fraction(int(budget.rho * scale)) / scale)


def read_output(section: Section, base: Path, limits: Limits) -> OutputOptions:
    """``[output]``, with the kinds of records that the recipe can have."""
    folder = section.file_path("dir", base, "folder", "releases")
    form = section.choice("format", ("parquet", "csv"), "parquet")
    keep = section.count_or_word("keep", "all")
    publishing = _read_publishing(section, limits.records)
    sink = section.choice("sink", SINKS.names(), "folder")
    database, table = _read_database(section, sink, base)
    if sink not in OWN_SINKS and SINKS.get(sink).draws_tables:
        if publishing.records != "fresh":
            raise section.wrong("sink", f"sink = {sink!r} draws each table anew", 'records = "fresh"')
        if form == "csv":
            raise section.wrong("format", f"the tables of sink = {sink!r} are Parquet", "parquet")
    if limits.no_changes and sink in ("duckdb", "postgresql") and publishing.publish == "changes":
        raise section.wrong("publish", f"sink = {sink!r} {limits.no_changes}", 'publish = "full" or "both"')
    return OutputOptions(
        folder, "csv" if form == "csv" else "parquet", keep, publishing, sink, database, table
    )


def _read_publishing(section: Section, kinds: tuple[str, ...]) -> Publishing:
    records = cast(RecordKind, section.choice("records", kinds, kinds[0]))
    publish = cast(TableKind, section.choice("publish", get_args(TableKind), "full"))
    if publish != "changes" and section.has("full_every"):
        raise section.wrong("full_every", "every table is full already", 'only with publish = "changes"')
    full_every = FULL_EVERY
    if publish == "changes":
        full_every = section.count("full_every", FULL_EVERY) or FULL_EVERY
    approve, may_change = section.flag("approve", False), _read_may_change(section, records, kinds)
    measurements = section.flag("measurements", True)
    with located(section.place()):
        return Publishing(
            records=records,
            publish=publish,
            full_every=full_every,
            approve=approve,
            may_change=may_change,
            measurements=measurements,
        )


def _read_may_change(
    section: Section, records: RecordKind, kinds: tuple[str, ...]
) -> Literal["any"] | tuple[str, ...] | None:
    if records != "persistent" or "fresh" not in kinds:
        if section.has("may_change"):
            where = "only where tables may be drawn anew, with records = persistent"
            raise section.wrong("may_change", "no synthetic record is updated here", where)
        return None
    if section.raw("may_change") == "any":
        section.note("may_change", "any", default=False)
        return "any"
    return section.columns("may_change", "as the feed has it")


def _read_database(section: Section, sink: str, base: Path) -> tuple[str | None, str]:
    table = "synthetic"
    if sink in ("folder", "stdout"):
        for key in ("database", "table"):
            if section.has(key):
                bucket = ", bucket" if key == "database" else ""
                raise section.wrong(
                    key, f"sink = {sink!r} has no {key}", f"only with duckdb, postgresql{bucket} or spark"
                )
        return None, table
    if sink == "bucket":
        if section.has("table"):
            raise section.wrong("table", "a bucket gets files", "only with duckdb, postgresql or spark")
        place = section.text("database")
        with located(section.place("database")):
            object_path(place)
        return place, table
    table = section.text("table", table)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,49}", table):
        raise section.wrong("table", f"{shown(table)} cannot be used")
    if sink == "duckdb":
        return str(section.file_path("database", base, "file", "releases.duckdb")), table
    folder = "" if sink in OWN_SINKS else SINKS.get(sink).folder
    if folder:
        return str(section.file_path("database", base, "folder", folder)), table
    if sink not in OWN_SINKS and not section.has("database"):
        return None, table
    place = section.text("database")
    if re.search(r"password|://[^/@]*:[^/@]*@", place):
        # The value is not shown: it holds a password.
        raise section.wrong("database", "the connection string holds a password")
    return place, table


def read_state(section: Section, base: Path) -> Path:
    """``[state]``."""
    return section.file_path("dir", base, "folder", "state")


def check_columns(section: Section, options: SourceOptions, schema: Schema) -> None:
    """Columns that steer the stream cannot be attributes of the table as well."""
    for key in ("time_column", "op_column", "user_column", "xid_column", "key_column", "delete_time_column"):
        column = getattr(options, key)
        if column is not None and column in schema.names:
            raise section.wrong(
                key,
                f"column {column!r} is declared in the schema as well",
                f"another column, or a copy of {column!r} under another name",
            )
