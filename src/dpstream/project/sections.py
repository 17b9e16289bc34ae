"""The sections of a configuration file as frozen values, and what makes them consistent."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Literal, cast, get_args

from dpstream.core.errors import ConfigError, DpstreamError, UnitError
from dpstream.core.privacy import (
    ZCDP,
    Budget,
    Event,
    EventUnit,
    Individual,
    PureDP,
    Unit,
    User,
    approximate_to_zcdp,
    exact_amount,
    parse_unit,
)
from dpstream.io.sources.options import SourceOptions
from dpstream.project.keys import DEFAULT_MECHANISM, FAMILIES_TO_COME, MECHANISMS, keys_of
from dpstream.project.reader import Section, Used, shown
from dpstream.project.server_url import check_url
from dpstream.stream.release.publishing import FULL_EVERY, Publishing, RecordKind, TableKind

__all__ = [
    "BudgetOptions",
    "OutputOptions",
    "SinkKind",
    "located",
    "mechanism_name",
    "names_one_of",
    "other_choice",
    "read_budget",
    "read_output",
    "read_source",
    "read_state",
    "read_unit",
    "refuse_deletions",
]

#: Where tables go besides the folder.
SinkKind = Literal["folder", "duckdb", "postgresql", "stdout"]


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
    sink: SinkKind = "folder"
    database: str | None = None
    table: str = "synthetic"


@contextmanager
def located(place: str) -> Iterator[None]:
    """Name file and section in errors of the parts below, which do not know of files."""
    try:
        yield
    except DpstreamError as error:
        inner = (error.where or "").removeprefix("workload, ")
        if error.where is not None and error.where.startswith(place.split(" [")[0]):
            raise
        # The parts name their own table; the place names it already.
        inner = "" if inner.strip("[]") in ("mechanism", "budget", "workload", "source", "output") else inner
        where = f"{place} {inner}".rstrip()
        raise type(error)(error.what, where=where, allowed=error.allowed) from None


def read_unit(section: Section) -> EventUnit:
    """``[stream] unit`` and ``total``, which say the relation together.

    Errors:
        UnitError: a unit that a tabular stream cannot protect.
        ConfigError: an unknown unit, or a unit and a total that contradict each other.
    """
    word = section.raw("unit") if section.has("unit") else None
    if word is not None and not isinstance(word, str):
        raise section.wrong("unit", f"{shown(word)} is not a unit")
    if section.has("max_events") and word != "user":
        raise section.wrong("max_events", "a bound on events per user is set without the unit user")
    bound = section.count("max_events")
    with located(section.place("unit" if bound is None else "max_events")):
        unit = parse_unit("event" if word is None else word, bound)
    if isinstance(unit, Individual):
        raise UnitError(
            f"a tabular stream cannot protect the unit {word!r}: only the whole stream of a person tells that",
            where=section.place("unit"),
            allowed="event, event-replace, user; or a panel, which follows people, under [mechanism]",
        )
    if isinstance(unit, User):
        if section.choice("total", ("private", "public"), "private") == "public":
            raise section.wrong(
                "total",
                "'public' contradicts unit = 'user': with a user's records the sizes of steps change",
                "total = 'private', or unit = 'event'",
            )
        section.note("unit", unit.name, default=False)
        return unit
    default = "public" if unit.relation == "replace" else "private"
    total = section.choice("total", ("private", "public"), default)
    if unit.relation == "replace" and total == "private":
        raise section.wrong(
            "total",
            "'private' contradicts unit = 'event-replace', which makes the sizes of all steps public",
            "total = 'public', or unit = 'event'",
        )
    if unit.relation == "add-remove" and total == "public":
        reason = 'total = "public" switches the relation to replace'
        section.note("unit", "event-replace", default=True, reason=reason)
        return Event("replace")
    section.note("unit", unit.name, default=word is None)
    return unit


def read_source(section: Section, unit: Unit) -> SourceOptions:
    """``[source]``; cutting by rows needs public sizes, and units that are people a user column."""
    if section.has("user_column") and not isinstance(unit, User | Individual):
        raise section.wrong("user_column", "a user column is set without the unit user or a panel")
    if section.has("period_columns") and not isinstance(unit, Individual):
        raise section.wrong("period_columns", "only a panel has periods of people", "a time_column")
    if isinstance(unit, User | Individual):
        section.required("user_column")
    if section.table.get("kind", "files") == "files":
        section.required("path")
    if section.has("url"):
        check_url(section)
    with located(section.place()):
        options = SourceOptions.parse(section.table)
    if options.needs_public_sizes and unit.relation != "replace":
        raise section.wrong(
            "rows",
            f"{options.rows} rows a step would publish the size of every step, and sizes are private here",
            '[stream] total = "public" (the unit becomes event-replace), or a time_column',
        )
    if options.broken == "drop-and-count-nothing" and unit.relation == "replace":
        raise section.wrong(
            "broken",
            "a record that is left out would change numbers that are public here",
            'error, missing; or [stream] total = "private"',
        )
    for key in keys_of("source"):
        if section.has(key):
            section.note(key, str(section.raw(key)), default=False)
    if options.time_column is not None:
        for key in ("start", "late"):
            if not section.has(key):
                section.note(key, str(getattr(options, key)), default=True)
    return options


def names_one_of(section: Section, names: Collection[str]) -> bool:
    """Whether ``[mechanism]`` names one of these.

    Errors:
        ConfigError: it names no mechanism (said first: what another family needs would mislead).
    """
    word = section.raw("name")
    if section.has("name") and word not in MECHANISMS:
        mechanism_name(section)
    return word in names


def refuse_deletions(section: Section, options: SourceOptions, why: str) -> None:
    """For what only grows.

    Errors:
        ConfigError: a source that declares deletes.
    """
    if options.deletions:
        key = "kind" if options.kind == "postgres-changes" else "op_column"
        raise section.wrong(key, why, "a source without deletes")


def other_choice(section: Section, word: str, own: Mapping[str, Collection[str]]) -> tuple[str, str] | None:
    """A key of the file that only another choice than ``word`` has, and that choice; ``own``: keys by choice."""
    found = ((key, other) for other, keys in own.items() if other != word for key in keys if section.has(key))
    return next(found, None)


def mechanism_name(section: Section) -> str:
    """``[mechanism] name``; families that are planned say so."""
    word = section.raw("name")
    if word in FAMILIES_TO_COME:
        raise section.wrong("name", f"the mechanism {word!r} is not built yet", ", ".join(MECHANISMS))
    name = section.choice("name", MECHANISMS, DEFAULT_MECHANISM)
    section.variant = name
    own = [key for key, row in keys_of("mechanism").items() if not row.mechanisms or name in row.mechanisms]
    for key in section.table:
        if key not in own:
            raise _foreign(section, key, name, own)
    return name


def _foreign(section: Section, key: str, name: str, own: Sequence[str]) -> ConfigError:
    """An option of another mechanism. Where the file names none, it may have been written for an earlier default."""
    if section.has("name"):
        return section.wrong(key, f"the mechanism {name!r} has no option {key!r}", ", ".join(own))
    having = keys_of("mechanism")[key].mechanisms
    if "dpstabs" in having:
        remedy = 'name = "dpstabs", which was the default before'
    else:
        remedy = " or ".join(f'name = "{other}"' for other in having)
    return section.wrong(
        key,
        f"no mechanism is named, so it is the default, {name!r}, which has no option {key!r}",
        f"{remedy}; or, of {name!r}, {', '.join(own)}",
    )


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


def read_output(section: Section, base: Path, *, panel: bool = False) -> OutputOptions:
    """``[output]``; the synthetic people of a panel always persist."""
    folder = section.file_path("dir", base, "folder", "releases")
    form = section.choice("format", ("parquet", "csv"), "parquet")
    keep = section.count_or_word("keep", "all")
    publishing = _read_publishing(section, panel)
    sink = cast(SinkKind, section.choice("sink", get_args(SinkKind), "folder"))
    database, table = _read_database(section, sink, base)
    return OutputOptions(
        folder, "csv" if form == "csv" else "parquet", keep, publishing, sink, database, table
    )


def _read_publishing(section: Section, panel: bool) -> Publishing:
    kinds = ("persistent",) if panel else get_args(RecordKind)
    records = cast(RecordKind, section.choice("records", kinds, kinds[0]))
    publish = cast(TableKind, section.choice("publish", get_args(TableKind), "full"))
    if publish != "changes" and section.has("full_every"):
        raise section.wrong("full_every", "every table is full already", 'only with publish = "changes"')
    full_every = FULL_EVERY
    if publish == "changes":
        full_every = section.count("full_every", FULL_EVERY) or FULL_EVERY
    approve = section.raw("approve") if section.has("approve") else False
    if not isinstance(approve, bool):
        raise section.wrong("approve", f"{shown(approve)} is not a choice")
    section.note("approve", str(approve).lower(), default=not section.has("approve"))
    with located(section.place()):
        return Publishing(records=records, publish=publish, full_every=full_every, approve=approve)


def _read_database(section: Section, sink: SinkKind, base: Path) -> tuple[str | None, str]:
    table = "synthetic"
    if sink not in ("duckdb", "postgresql"):
        for key in ("database", "table"):
            if section.has(key):
                raise section.wrong(key, f"sink = {sink!r} has no database", "only with duckdb or postgresql")
        return None, table
    table = section.text("table", table)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,49}", table):
        raise section.wrong("table", f"{shown(table)} cannot be used")
    if sink == "duckdb":
        return str(section.file_path("database", base, "file", "releases.duckdb")), table
    place = section.text("database")
    if re.search(r"password|://[^/@]*:[^/@]*@", place):
        # The value is not shown: it holds a password.
        raise section.wrong("database", "the connection string holds a password")
    return place, table


def read_state(section: Section, base: Path) -> Path:
    """``[state]``."""
    return section.file_path("dir", base, "folder", "state")
