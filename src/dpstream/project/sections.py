"""The sections of a configuration file as frozen values, and what makes them consistent."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Literal, cast, get_args

from dpstream.core.contracts import (
    HEADLINE_SHARE,
    Family,
    Headline,
    Limits,
    RecipeContext,
    StreamPlan,
    StreamRecipe,
    build,
    located,
    shown,
)
from dpstream.core.errors import ConfigError, UnitError
from dpstream.core.privacy import (
    ZCDP,
    Budget,
    Event,
    EventUnit,
    Individual,
    InsertedRecord,
    PureDP,
    Record,
    Unit,
    User,
    approximate_to_zcdp,
    exact_amount,
    handled_as,
    parse_unit,
)
from dpstream.core.privacy.unit import Returns
from dpstream.core.schema import Schema
from dpstream.families.registry import DEFAULT_MECHANISM, family_of, mechanisms, mechanisms_with
from dpstream.io.objects import object_path
from dpstream.io.sinks.feed import OWN_SINKS, SINKS
from dpstream.io.sources.source_keys import Late, other_kind, rows_of_source
from dpstream.io.sources.source_options import SourceOptions
from dpstream.project.keys import LICENSE, WEB_ADDRESS, keys_of
from dpstream.project.reader import EffectiveSetting, Section
from dpstream.stream import PostgresServer, StateKey
from dpstream.stream.identity import require_constraints
from dpstream.stream.release.publishing import FULL_EVERY, Publishing, RecordKind, TableKind
from dpstream.stream.store.postgres import schema_name

#: What runs where records have keys and the file names no mechanism.
DEFAULT_KEYED = "census"
_RECORDS = ("record", "record-replace")


def asks_for_record(stream: Section, limits: Limits | None = None) -> bool:
    """Whether the file protects a record's whole stay; without a unit, what its mechanism protects."""
    if stream.has("unit") or limits is None:
        return stream.raw("unit") in _RECORDS
    return limits.units[0] in _RECORDS


def insert_only(source: Section) -> bool:
    """Whether the owner declares that records are never updated and never leave."""
    return source.raw("insert_only") is True


def default_mechanism(stream: Section, source: Section) -> tuple[str, str | None]:
    """What runs where the file names no mechanism, and why; None: the reason in the table of keys."""
    if not asks_for_record(stream):
        return DEFAULT_MECHANISM, None
    if insert_only(source):
        why = "the table is declared insert-only, so a record is one event, and what was measured of it stays true"
        return DEFAULT_MECHANISM, why
    return DEFAULT_KEYED, "records have keys: it measures the records that are there, so churn adds no error"


def check_key_column(section: Section, unit: Unit) -> None:
    """A key belongs to the unit ``record``, and that unit to a key.

    Errors:
        ConfigError: one without the other.
    """
    if isinstance(unit, Record) or insert_only(section):
        if not section.has("key_column"):
            raise section.wrong("key_column", "the key is missing, which unit = record needs")
    elif section.has("key_column"):
        raise section.wrong(
            "key_column",
            f"a key column is set with the unit {unit.name!r}, which does not follow records",
            '[stream] unit = "record", or no key_column',
        )


_HOST = r"(?:[A-Za-z0-9_.%-]*|\[[0-9a-fA-F:.%]+\])(?::[0-9]+)?"
#: No password can hide in what this lets through: no second part before the host, no other sign.
_URL = re.compile(rf"postgres(?:ql)?://(?:[^\s:@/?#]+@)?{_HOST}(?:,{_HOST})*(?:/[^\s?#@:]*)?(?:\?[^\s#@]*)?")
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_HOLDS = "the URL holds a password, or signs that need %XX (it is not shown here)"
_ELSEWHERE = (
    "postgresql://user@host:5432/database; the password in PGPASSWORD, ~/.pgpass, a service file "
    "(postgresql:///?service=name), or the whole URL in the variable that {url_env} names"
)


def read_server(section: Section, stream: str) -> PostgresServer | None:
    """``url`` or ``url_env``; None where the store is a file.

    A password may come from PGPASSWORD, a password file, a service file or the variable that ``url_env``
    names; the configuration is a public file, so a URL with a password in it is refused, and not shown.

    Errors:
        ConfigError: a URL that is none, one with a password, or a variable that is not set.
    """
    url, name = section.raw("url"), section.raw("url_env")
    if url is not None and name is not None:
        raise section.wrong("url_env", "url says it already", "one of url and url_env")
    if name is not None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise section.wrong("url_env", "this is not the name of an environment variable")
        url = os.environ.get(name, "")
        if not url:
            raise section.wrong("url_env", f"the environment variable {name} is not set")
        section.note("url_env", name, default=False)
        return PostgresServer(url, schema_name(stream))
    if url is None:
        return None
    check_url(section)
    section.note("url", url, default=False)
    return PostgresServer(url, schema_name(stream))


def is_url(given: object) -> bool:
    """Whether this is the URL of a PostgreSQL server, by its beginning."""
    return isinstance(given, str) and given.startswith(("postgresql://", "postgres://"))


def check_url(section: Section) -> None:
    """Refuse a ``url`` that is none, or that holds a password (ConfigError); it is not shown then."""
    url = section.raw("url")
    if not isinstance(url, str) or not is_url(url):
        raise section.wrong("url", "this is not the URL of a PostgreSQL database")
    if _may_hold_password(url):
        raise section.wrong("url", _HOLDS, _ELSEWHERE.format(url_env="url_env"))


def refuse_password(url: str, where: str, url_env: str = "url_env") -> None:
    """Refuse a URL that would stand in a public file and may hold a password (ConfigError); it is not shown then.

    Args:
        url_env: how the variable with the whole URL is named where ``url`` was given.
    """
    if _may_hold_password(url):
        raise ConfigError(_HOLDS, where=where, allowed=_ELSEWHERE.format(url_env=url_env))


def _may_hold_password(url: str) -> bool:
    return not _URL.fullmatch(url) or "password" in url.lower()


@dataclass(frozen=True)
class KeyPlace:
    """A file or an environment variable; the key itself is read when a store is opened, not before."""

    file: Path | None
    variable: str | None

    def read(self) -> StateKey:
        """The key.

        Errors:
            ConfigError: it is not there, is none, or others may read it.
        """
        if self.file is not None:
            return StateKey.from_file(self.file)
        return StateKey.from_environment(self.variable or "")


def read_key_place(section: Section, base: Path, state: Path, output: Path) -> KeyPlace | None:
    """One of ``key_file`` and ``key_env``; None where the store is not encrypted.

    Errors:
        ConfigError: both, no name, or a file that lies in the state or among the releases.
    """
    if section.has("key_file") and section.has("key_env"):
        raise section.wrong("key_env", "key_file says it already", "one of key_file and key_env")
    if section.has("key_env"):
        name = section.text("key_env")
        if not _NAME.fullmatch(name):
            raise section.wrong("key_env", "this is not the name of an environment variable")
        return KeyPlace(None, name)
    if not section.has("key_file"):
        return None
    file = section.file_path("key_file", base, "file")
    for folder, what in ((state, "beside what it protects"), (output, "among the releases")):
        if folder.resolve() in file.resolve().parents:
            raise section.wrong("key_file", f"the key lies {what}")
    return KeyPlace(file, None)


def check_account(account: Path | None, state: Path, output: Path, section: Section, base: Path) -> None:
    """An account belongs to several streams: not into the state or the output of one.

    Args:
        base: the folder of the configuration.
    """
    if account is None:
        return
    section.file_path("account", base, "file")
    for folder in (state, output):
        if folder.resolve() in account.resolve().parents:
            raise section.wrong("account", f"the account lies inside {str(folder)!r}")


def check_database(output: OutputOptions, source: SourceOptions, section: Section, base: Path) -> None:
    """The file of ``sink = "duckdb"``: not among the releases, and not what the next step reads as a source.

    Args:
        base: the folder of the configuration.
    """
    if output.sink != "duckdb" or output.database is None:
        return
    file, folder = Path(output.database).resolve(), output.dir.resolve()
    if folder in file.parents:
        raise section.wrong(
            "database",
            f"the database {file.name!r} lies among the releases",
            "a file outside of the output folder",
        )
    patterns = source.path if source.kind == "files" else ()
    for pattern in patterns:
        whole = os.path.normpath(base.resolve() / pattern)
        if file.match(whole) or ("**" in pattern and fnmatch.fnmatch(str(file), whole)):
            raise section.wrong(
                "database",
                f"the next run would read the database {file.name!r} as a source, by [source] path = {pattern!r}",
                "a file that no pattern of [source] path matches",
            )


def check_places(state: Path, output: Path, where: str) -> Path:
    """The state's folder, refused where it would lie among the releases or hold them.

    Errors:
        ConfigError: the state holds private counts, and the output is public.
    """
    inner, outer = state.resolve(), output.resolve()
    if inner == outer or outer in inner.parents or inner in outer.parents:
        raise ConfigError(
            f"the secret state {str(state)!r} and the output {str(output)!r} lie inside each other",
            where=where,
            allowed=keys_of("state")["dir"].allowed,
        )
    return state


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


def read_unit(section: Section, source: Section, limits: Limits) -> Unit:
    """``[stream] unit`` and ``total``, which say the relation together; of an insert-only table the one insert.

    Errors:
        UnitError: a unit that the mechanism's family cannot protect.
        ConfigError: an unknown unit, or a unit and a total that contradict each other.
    """
    word, keyed = section.raw("unit"), asks_for_record(section, limits)
    if limits.bounded and section.has("max_events"):
        raise section.wrong("max_events", limits.bounded, "leave it out")
    if section.has("unit") and not isinstance(word, str):
        raise section.wrong(
            "unit", f"{shown(word)} is not a unit", ", ".join(limits.units) if limits.people else None
        )
    if section.has("returns") and not keyed:
        raise section.wrong(
            "returns", "it is set without unit = record: no other unit has keys that come back"
        )
    unit: Unit
    if keyed:
        unit = _of_records(section, source, word)
    else:
        unit = _of_people(section, word, limits) if limits.people else _of_events(section, word, limits)
    if isinstance(unit, User) and not isinstance(unit, InsertedRecord):
        if section.choice("total") == "public":
            raise section.wrong(
                "total",
                "'public' contradicts unit = 'user': with a user's records the sizes of steps change",
                "total = 'private', or unit = 'event'",
            )
        section.note("unit", unit.name, default=False)
    elif not isinstance(unit, User):
        unit = _related(section, unit, limits, default=word is None)
    _check(section, unit, limits)
    return unit


def _of_records(section: Section, source: Section, word: str | None) -> Record | InsertedRecord:
    """A unit of a stream whose records have keys."""
    if section.has("max_events"):
        raise section.wrong("max_events", "a bound on events per user is set without the unit user")
    if not insert_only(source):
        returns = cast(Returns, section.choice("returns"))
        return Record("replace" if word == "record-replace" else "add-remove", returns)
    public = word == "record-replace" or section.raw("total") == "public"
    for key, wrong in (("returns", section.has("returns")), ("total", public)):
        if wrong:
            raise section.wrong(
                key,
                f"{key} = {shown(section.raw(key))} does not fit [source] insert_only, where each key counts once",
                "leave it out, or insert_only = false",
            )
    section.choice("total")
    unit = InsertedRecord()
    reason = "[source] insert_only: a record is its one insert, and a key counts once"
    section.note("unit", unit.name, default=True, reason=reason)
    return unit


def _of_events(section: Section, word: str | None, limits: Limits) -> EventUnit:
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


def _of_people(section: Section, word: str | None, limits: Limits) -> Individual:
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


#: Of each kind of unit, what is public where total is.
_PUBLIC = {
    "event": "the sizes of all steps",
    "individual": "the number of people",
    "record": "which keys are there",
}


def _related(
    section: Section, unit: Event | Individual | Record, limits: Limits, *, default: bool
) -> Event | Individual | Record:
    """The unit with the relation that ``total`` says; noted."""
    kind = unit.name.removesuffix("-replace")
    said = "public" if unit.relation == "replace" else "private"
    total = section.choice("total", default=said)
    if unit.relation == "replace" and total == "private":
        raise section.wrong(
            "total",
            f"'private' contradicts unit = '{kind}-replace', which makes public {_PUBLIC[kind]}",
            f"total = 'public', or unit = '{kind}'",
        )
    if unit.relation == "add-remove" and total == "public":
        reason = 'total = "public" switches the relation to replace'
        section.note("unit", f"{kind}-replace", default=True, reason=reason)
        return dataclasses.replace(unit, relation="replace")
    section.note("unit", unit.name, default=default, reason=limits.unit_reason or None)
    return unit


def _check(section: Section, unit: Unit, limits: Limits) -> None:
    """Refuse a unit that the mechanism's family cannot protect."""
    if handled_as(unit) in limits.units:
        return
    if not isinstance(unit, Record | InsertedRecord):
        raise section.wrong(
            "unit" if section.has("unit") else "total",
            limits.other_units.format(unit=unit.name),
            'total = "public" (the unit becomes event-replace)'
            if "event-replace" in limits.units
            else ", ".join(limits.units),
        )
    if isinstance(unit, InsertedRecord):
        raise UnitError(
            "the mechanism of this file does not fit [source] insert_only, where a record is its one insert",
            where=section.place("unit"),
            allowed=f'[mechanism] name = "{DEFAULT_MECHANISM}", or insert_only = false',
        )
    if unit.name == "record-replace" and "record" in limits.units:
        raise section.wrong("total", limits.other_units.format(unit=unit.name), "private")
    raise UnitError(
        f"the mechanism of this file cannot protect the unit {unit.name!r}",
        where=section.place("unit"),
        allowed=f'[mechanism] name = "{DEFAULT_KEYED}"; or, where records never change and never leave, [source] '
        "insert_only = true",
    )


def read_source(section: Section, unit: Unit, given: RecipeContext) -> SourceOptions:
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
        options = replace(options, user_column=options.key_column, key_column=None, insert_only=False)
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
    rules = options.key_rules
    for key in options.keys_that_matter:
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
        section.used.append(EffectiveSetting("budget", "rho", str(budget), reason))
    horizon = section.count_or_word("horizon")
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
    form = section.choice("format")
    keep = section.count_or_word("keep")
    publishing = _read_publishing(section, limits.records)
    sink = section.choice("sink")
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
    publish = cast(TableKind, section.choice("publish"))
    if publish != "changes" and section.has("full_every"):
        raise section.wrong("full_every", "every table is full already", 'only with publish = "changes"')
    full_every = FULL_EVERY
    if publish == "changes":
        full_every = section.count("full_every", FULL_EVERY) or FULL_EVERY
    approve, may_change = section.flag("approve"), _read_may_change(section, records, kinds)
    measurements = section.flag("measurements")
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


def named_family(section: Section, default: str = DEFAULT_MECHANISM) -> Family:
    """The family of the mechanism that the section names; a value that names none is told before anything else is.

    Errors:
        ConfigError: it names no mechanism, or one whose package is broken.
    """
    word = section.raw("name") if section.has("name") else default
    if word not in mechanisms():
        section.choice("name", mechanisms(), default)
    return family_of(word)


def read_recipe(
    section: Section, given: RecipeContext, default: str = DEFAULT_MECHANISM, why: str | None = None
) -> StreamRecipe:
    """The recipe.

    Args:
        default: the mechanism where the section names none, and ``why``; None: as the table of keys says.

    Errors:
        ConfigError, LimitError: an option that is unknown, unusable, or of another mechanism.
    """
    family = named_family(section, default)
    if section.has("name"):
        name = section.choice("name", mechanisms(), default)
    else:
        name = default
        section.note("name", name, default=True, reason=why)
    section.variant = name
    own = ["name", *(key.name for key in family.keys if name in key.mechanisms)]
    for key in section.table:
        if key not in own:
            raise _foreign(section, key, name, own)
    return family.read(name, section, given)


def _foreign(section: Section, key: str, name: str, own: Sequence[str]) -> ConfigError:
    """An option of another mechanism; where the file names none, of another than the default."""
    if section.has("name"):
        return section.wrong(key, f"the mechanism {name!r} has no option {key!r}", ", ".join(own))
    having = keys_of("mechanism")[key].mechanisms
    remedy = " or ".join(f'name = "{other}"' for other in having)
    return section.wrong(
        key,
        f"no mechanism is named, so it is the default, {name!r}, which has no option {key!r}",
        f"{remedy}; or, of {name!r}, {', '.join(own)}",
    )


_SECONDS = 600


@dataclass(frozen=True)
class AccuracyOptions:
    """The section as values.

    Attributes:
        simulate: runs of a simulation at each border that doubles; None for none.
        simulate_seconds: CPU seconds after which such a simulation begins no further run.
    """

    simulate: int | None = None
    simulate_seconds: int = _SECONDS


def read_headline(section: Section) -> tuple[Headline, Fraction]:
    """``headline`` and ``headline_share``; whether the columns are there is for the recipe to say.

    Errors:
        ConfigError: no list of lists of columns; a share that is none, or without a headline.
    """
    if not section.has("headline"):
        if section.has("headline_share"):
            raise section.wrong(
                "headline_share",
                "a share is set for headlines, and there are none",
                "a headline, or no share",
            )
        return (), HEADLINE_SHARE
    given = section.raw("headline")
    if not isinstance(given, list) or not all(
        isinstance(one, list) and one and all(isinstance(name, str) for name in one) for one in given
    ):
        raise section.wrong("headline", f"{shown(given)} is no list of marginals")
    if not given:
        raise section.wrong("headline", "no marginal is named", "one marginal or more, or no headline")
    headline = tuple(tuple(one) for one in given)
    section.note("headline", ", ".join(" x ".join(one) for one in headline), default=False)
    return headline, section.share("headline_share", HEADLINE_SHARE)


def read_accuracy(section: Section) -> AccuracyOptions:
    """``[accuracy]``.

    Errors:
        ConfigError: a number that cannot be used, or a limit of nothing.
    """
    simulate = section.count_or_word("simulate")
    if simulate is not None and not 2 <= simulate <= 1000:
        what = "one run tells no spread" if simulate < 2 else f"{simulate} runs are more than are ever needed"
        raise section.wrong("simulate", what)
    if simulate is None and section.has("simulate_seconds"):
        raise section.wrong(
            "simulate_seconds", "it limits simulations, and there are none", "only with simulate"
        )
    seconds = _SECONDS if simulate is None else section.count("simulate_seconds", _SECONDS)
    return AccuracyOptions(simulate, seconds or _SECONDS)


@dataclass(frozen=True)
class Publication:
    """``[statement]`` as values; None where the file does not say it.

    Attributes:
        title, description, publisher, contact, decided_by, reason, version, license, url: texts of ``[statement]``.
    """

    title: str | None = None
    description: str | None = None
    publisher: str | None = None
    contact: str | None = None
    decided_by: str | None = None
    reason: str | None = None
    version: str | None = None
    license: str | None = None
    url: str | None = None


def read_publication(statement: Section) -> Publication:
    """The section ``[statement]``.

    Errors:
        ConfigError: a value that is no text, or an address that may not stand in a link.
    """
    texts = {one.name: statement.text(one.name) for one in fields(Publication) if statement.has(one.name)}
    for key, form, what in (
        ("url", WEB_ADDRESS, "an address that a public page may link to"),
        ("license", LICENSE, "the name or address of a licence"),
    ):
        if key in texts and not re.fullmatch(form, texts[key]):
            raise statement.wrong(key, f"{shown(texts[key])} is not {what}")
    return Publication(**texts)
