"""The sections of a configuration file as frozen values, and what makes them consistent."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, cast, get_args

from dpstream.core.contracts import (
    Family,
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
    Record,
    Unit,
    User,
    approximate_to_zcdp,
    handled_as,
    parse_unit,
)
from dpstream.core.privacy.unit import Returns
from dpstream.core.schema import Schema
from dpstream.families.registry import DEFAULT_MECHANISM, family_of, mechanisms, mechanisms_with
from dpstream.io.objects import object_path
from dpstream.io.sinks.target import OWN_SINKS, SINKS
from dpstream.io.sources.source_keys import Late, other_kind, rows_of_source
from dpstream.io.sources.source_options import SourceOptions
from dpstream.project.keys import (
    SECTIONS,
    BudgetKeys,
    FileKeys,
    Output,
    StateKeys,
    StreamKeys,
    keys_of,
    section_of,
)
from dpstream.project.reader import Section
from dpstream.stream import PostgresServer
from dpstream.stream.identity import require_constraints
from dpstream.stream.release.publishing import RecordKind
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
        why = "the table is insert-only: a record is one event, and its measurements stay true"
        return DEFAULT_MECHANISM, why
    return DEFAULT_KEYED, "it measures the records that are there, so churn adds no error"


def sections_of(file: str, folder: Path, document: Mapping[str, Any]) -> dict[str, Section]:
    """All sections of a file by name, before their values are read.

    Args:
        folder: that paths are relative to.

    Errors:
        ConfigError: a section that has to be a table, an unknown key, or another format.
    """
    found = {"": section_of(file, "", document, folder)}
    found[""].read(FileKeys)
    for name in SECTIONS:
        if name not in ("", "schema"):
            chosen = default_mechanism(found["stream"], found["source"])[0] if name == "mechanism" else ""
            found[name] = section_of(file, name, document.get(name), folder, chosen)
    return found


def read_server(state: StateKeys, section: Section, stream: str) -> PostgresServer | None:
    """The server that keeps the store; None where it is a file.

    A password may come from PGPASSWORD, a password file, a service file or the variable that ``url_env``
    names; the configuration is a public file, so a URL with a password in it is refused, and not shown.

    Errors:
        ConfigError: a variable that is not set.
    """
    section.alone("url", "url_env")
    url = state.url
    if state.url_env is not None:
        url = os.environ.get(state.url_env)
        if not url:
            raise section.wrong("url_env", f"the environment variable {state.url_env} is not set")
    return None if url is None else PostgresServer(url, schema_name(stream))


def check_key(state: StateKeys, section: Section, output: Path) -> None:
    """The key of an encrypted store lies neither in the state nor among the releases (ConfigError)."""
    section.alone("key_file", "key_env")
    for folder, what in ((state.dir, "beside what it protects"), (output, "among the releases")):
        if state.key_file is not None and folder.resolve() in state.key_file.resolve().parents:
            raise section.wrong("key_file", f"the key lies {what}")


def check_account(account: Path | None, state: Path, output: Path, section: Section) -> None:
    """An account belongs to several streams: not into the state or the output of one."""
    for folder in (state, output):
        if account is not None and folder.resolve() in account.resolve().parents:
            raise section.wrong("account", f"the account lies inside {str(folder)!r}")


def check_database(output: Output, source: SourceOptions, section: Section) -> None:
    """The file of ``sink = "duckdb"``: not among the releases, and not what the next step reads as a source."""
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
        whole = os.path.normpath(section.folder.resolve() / pattern)
        if file.match(whole) or ("**" in pattern and fnmatch.fnmatch(str(file), whole)):
            raise section.wrong(
                "database",
                f"[source] path = {pattern!r} would read the database {file.name!r}",
                "a file that no pattern of [source] path matches",
            )


@dataclass(frozen=True)
class BudgetOptions:
    """What the stream may cost. ``stated`` is the (epsilon, delta) that ``budget`` was derived from.

    ``account``: the file in which several streams add up.
    """

    budget: Budget
    stated: tuple[Fraction, Fraction] | None
    horizon: int | None
    account: Path | None = None


def read_unit(section: Section, keys: StreamKeys, source: Section, limits: Limits) -> Unit:
    """``[stream] unit`` and ``total``, which say the relation together; of an insert-only table the one insert.

    Errors:
        UnitError: a unit that the mechanism's family cannot protect.
        ConfigError: a unit and a total, or other keys, that contradict each other.
    """
    keyed = asks_for_record(section, limits)
    if limits.bounded and keys.max_events is not None:
        raise section.wrong("max_events", limits.bounded, "leave it out")
    if keys.returns is not None and not keyed:
        raise section.wrong("returns", "only unit = record has keys that come back")
    if keys.max_events is not None and (keyed or keys.unit != "user"):
        raise section.wrong("max_events", "only unit = user has a bound on events")
    if keys.max_events_from is not None and keys.max_events is None:
        raise section.wrong("max_events_from", "only max_events comes from somewhere", "leave it out")
    unit: Unit
    if keyed:
        unit = _of_records(section, keys, source)
    else:
        unit = _of_people(section, keys, limits) if limits.people else _of_events(section, keys, limits)
    if not isinstance(unit, User):
        unit = _related(section, unit, limits, default=keys.unit is None)
    elif not isinstance(unit, InsertedRecord) and section.choice("total", _TOTALS, "private") == "public":
        raise section.wrong(
            "total",
            "'public' contradicts unit = 'user', whose records change the sizes of steps",
            "total = 'private', or unit = 'event'",
        )
    _check(section, unit, limits)
    return unit


def _of_records(section: Section, keys: StreamKeys, source: Section) -> Record | InsertedRecord:
    """A unit of a stream whose records have keys."""
    if not insert_only(source):
        returns = cast(Returns, section.choice("returns", get_args(Returns), "new"))
        return Record("replace" if keys.unit == "record-replace" else "add-remove", returns)
    public = keys.unit == "record-replace" or keys.total == "public"
    for key, wrong in (("returns", keys.returns is not None), ("total", public)):
        if wrong:
            raise section.wrong(
                key,
                f"{key} = {shown(section.raw(key))} contradicts [source] insert_only, where each key counts once",
                "leave it out, or insert_only = false",
            )
    section.choice("total", _TOTALS, "private")
    unit = InsertedRecord()
    reason = "[source] insert_only: a record is its one insert"
    section.note("unit", unit.name, default=True, reason=reason)
    return unit


def _of_events(section: Section, keys: StreamKeys, limits: Limits) -> EventUnit:
    """A unit of a stream that does not follow people."""
    with located(section.place("unit" if keys.max_events is None else "max_events")):
        unit = parse_unit(keys.unit or "event", keys.max_events, keys.cut_share)
    if isinstance(unit, Individual | Record):
        following = mechanisms_with(lambda family: family.limits.people)
        raise UnitError(
            f"the mechanism cannot protect the unit {keys.unit!r}",
            where=section.place("unit"),
            allowed=f"{', '.join(limits.units)}; or [mechanism] name = {' or '.join(map(repr, following))}",
        )
    return unit


def _of_people(section: Section, keys: StreamKeys, limits: Limits) -> Individual:
    """A unit of a stream that follows people."""
    with located(section.place("unit")):
        unit = None if keys.unit == "user" else parse_unit(keys.unit or limits.units[0])
    if not isinstance(unit, Individual):
        raise UnitError(
            limits.other_units.format(unit=keys.unit),
            where=section.place("unit"),
            allowed=", ".join(limits.units),
        )
    return unit


_TOTALS = ("private", "public")
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
    total = section.choice("total", _TOTALS, said)
    if unit.relation == "replace" and total == "private":
        raise section.wrong(
            "total",
            f"'private' contradicts unit = '{kind}-replace', which makes public {_PUBLIC[kind]}",
            f"total = 'public', or unit = '{kind}'",
        )
    if unit.relation == "add-remove" and total == "public":
        reason = 'total = "public"'
        section.note("unit", f"{kind}-replace", default=True, reason=reason)
        return replace(unit, relation="replace")
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
            'total = "public"' if "event-replace" in limits.units else ", ".join(limits.units),
        )
    if isinstance(unit, InsertedRecord):
        raise UnitError(
            "the mechanism does not fit [source] insert_only",
            where=section.place("unit"),
            allowed=f'[mechanism] name = "{DEFAULT_MECHANISM}", or insert_only = false',
        )
    if unit.name == "record-replace" and "record" in limits.units:
        raise section.wrong("total", limits.other_units.format(unit=unit.name), "private")
    raise UnitError(
        f"the mechanism cannot protect the unit {unit.name!r}",
        where=section.place("unit"),
        allowed=f'[mechanism] name = "{DEFAULT_KEYED}"; or [source] insert_only = true, where records never change '
        "or leave",
    )


def read_source(section: Section, unit: Unit, given: RecipeContext) -> SourceOptions:
    """Read ``[source]``. A key belongs to the unit ``record``, and that unit to a key; cutting by rows needs public
    sizes; a unit that is a user or a person needs a user column."""
    if isinstance(unit, Record) or insert_only(section):
        if not section.has("key_column"):
            raise section.wrong("key_column", "unit = record needs a key")
    elif section.has("key_column"):
        raise section.wrong(
            "key_column",
            f"the unit {unit.name!r} has no key column",
            '[stream] unit = "record", or no key_column',
        )
    if section.has("user_column") and not isinstance(unit, User | Individual):
        raise section.wrong("user_column", f"the unit {unit.name!r} has no user column")
    if section.has("period_columns") and not isinstance(unit, Individual):
        raise section.wrong("period_columns", "only panels have period columns", "a time_column")
    if isinstance(unit, User | Individual) and not section.has("key_column"):
        section.required("user_column")
    if section.table.get("kind", "files") == "files":
        section.required("path")
    kind = other_kind(section.raw("kind"))
    if section.has("url") and kind is None:
        section.server_url("url")
    own = None if kind is None or kind.options is None else build(section, kind.options, given)
    shared = rows_of_source(())
    with located(section.place()):
        options = SourceOptions.parse({key: section.raw(key) for key in section.table if key in shared}, own)
    if options.insert_only:
        options = replace(options, user_column=options.key_column, key_column=None, insert_only=False)
    if options.rows is not None and unit.relation != "replace":
        raise section.wrong(
            "rows",
            f"{options.rows} rows a step would publish sizes, which are private here",
            '[stream] total = "public", or a time_column',
        )
    for key in shared:
        if section.has(key):
            section.note(key, str(section.raw(key)), default=False)
    if options.time_column is not None:
        for key in ("start", "late"):
            if not section.has(key):
                section.note(key, str(getattr(options, key)), default=True)
    # The defaults of what becomes of rows that do not fit.
    for key in options.keys_that_matter if options.key_column is not None else ():
        if not section.has(key):
            section.note(key, str(getattr(options.key_rules, key, getattr(options, key))), default=True)
    return options


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
            f"'changed' leaves out what an update keeps, so {names} cannot be checked against other columns",
            "read = false for it in [schema.constraints.derived], or updates with whole records",
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
        what = f"{' and '.join(given)} do not make a budget" if given else "the budget is missing"
        raise ConfigError(what, where=section.place(), allowed="epsilon, or rho, or epsilon and delta")
    keys = section.read(BudgetKeys)
    budget: Budget | None = keys.rho or keys.epsilon
    stated = None
    if keys.epsilon is not None and keys.delta is not None:
        stated = (keys.epsilon.epsilon, keys.delta)
        with located(section.place("delta")):
            budget = round_down(approximate_to_zcdp(*stated))
        reason = "the largest rho within epsilon and delta, rounded down"
        section.note("rho", str(budget), default=True, reason=reason)
    assert budget is not None
    return BudgetOptions(budget, stated, keys.horizon, keys.account)


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


def read_output(section: Section, limits: Limits, columns: tuple[str, ...]) -> Output:
    """``[output]``, with the kinds of records that the recipe can have.

    Args:
        columns: of the schema.
    """
    output, kinds = section.read(Output), limits.records
    records = cast(RecordKind, section.choice("records", kinds, kinds[0]))
    changeable = records == "persistent" and "fresh" in kinds
    if output.may_change is not None and not changeable:
        where = "only where tables may be drawn anew, with records = persistent"
        raise section.wrong("may_change", "synthetic records stay as they are", where)
    if output.may_change is None and changeable:
        section.note("may_change", "as the feed has it", default=True)
    if records in limits.no_records:
        allowed = ", ".join(kind for kind in kinds if kind not in limits.no_records)
        raise section.wrong("records", limits.no_records[records], allowed)
    if output.sign is not None and output.dir.resolve() in output.sign.resolve().parents:
        raise section.wrong("sign", "the key lies among the releases")
    sink, output = output.sink, replace(output, records=records, database=_database(section, output))
    with located(section.place()):
        output.publishing.check_columns(columns)
    if sink not in OWN_SINKS and SINKS.get(sink).draws_tables:
        if records != "fresh":
            raise section.wrong("sink", f"sink = {sink!r} draws each table anew", 'records = "fresh"')
        if output.format == "csv":
            raise section.wrong("format", f"the tables of sink = {sink!r} are Parquet", "parquet")
    if limits.no_changes and sink in ("duckdb", "postgresql") and output.publish == "changes":
        raise section.wrong("publish", f"sink = {sink!r} {limits.no_changes}", 'publish = "full" or "both"')
    return output


def _database(section: Section, output: Output) -> str | None:
    """Where the sink writes beside the folder."""
    sink, place = output.sink, output.database
    takes = {"folder": (), "stdout": (), "bucket": ("database",)}.get(sink, ("database", "table"))
    for key in ("database", "table"):
        if section.has(key) and key not in takes:
            bucket = ", bucket" if key == "database" else ""
            raise section.wrong(
                key, f"sink = {sink!r} has no {key}", f"only with duckdb, postgresql{bucket} or spark"
            )
    if "table" in takes and not section.has("table"):
        section.note("table", output.table, default=True)
    folder = "" if sink in OWN_SINKS else SINKS.get(sink).folder
    if folder or sink == "duckdb":
        kind: Literal["file", "folder"] = "folder" if folder else "file"
        return str(section.file_path("database", kind, folder or "releases.duckdb"))
    if not takes or (place is None and sink not in OWN_SINKS):
        return None
    place = str(section.required("database"))
    if sink == "bucket":
        with located(section.place("database")):
            object_path(place)
    elif re.search(r"password|://[^/@]*:[^/@]*@", place):
        # The value is not shown: it holds a password.
        raise section.wrong("database", "the connection string holds a password")
    return place


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
    return family_of(section.choice("name", mechanisms(), default))


def read_recipe(
    section: Section, given: RecipeContext, default: str = DEFAULT_MECHANISM, why: str | None = None
) -> StreamRecipe:
    """The recipe.

    Args:
        default: the mechanism where the section names none, and ``why``; None: as the table of keys says.

    Errors:
        ConfigError, LimitError: an option that is unknown, unusable, or of another mechanism.
    """
    name = section.choice("name", mechanisms(), default)
    family = family_of(name)
    if not section.has("name"):
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
        f"the default mechanism {name!r} has no option {key!r}",
        f"{remedy}; or, of {name!r}, {', '.join(own)}",
    )
