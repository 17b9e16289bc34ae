"""Drafts a whole ``dpstream.toml`` from a data file: what ``dpstream init`` writes.

Comments come from the table of keys; what a mechanism needs comes from its recipe's options and its family. Only
``[schema]`` is read off the data, and whether the time column holds numbers.

Trusted base: owner (drafts from private records).
"""

from __future__ import annotations

import datetime
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpstream.core.contracts import Family, Key, Limits, RecipeContext
from dpstream.core.contracts.recipe_options import keys_of_recipes
from dpstream.core.errors import ConfigError, LimitError, SchemaError, counted
from dpstream.core.privacy import ZCDP, PureDP, parse_unit
from dpstream.core.privacy.convert import best_guess
from dpstream.core.schema import Schema, arrow
from dpstream.families.registry import DEFAULT_MECHANISM, family_of, mechanisms_with
from dpstream.io.sources.calendar import EVERY, period_grid
from dpstream.io.sources.formats import read_sample
from dpstream.io.sources.query import is_database
from dpstream.project.column_draft import (
    ALL,
    CONFIRM,
    FILL_IN,
    SAMPLE_ROWS,
    Drafted,
    coordinates,
    edge_sentences,
    followers,
    guess_column,
    guess_columns,
    is_text,
    schema_facts,
    whose_column,
)
from dpstream.project.contribution_bounds import bound_sentences, yearly_sentence
from dpstream.project.drafted_tables import (
    DatabaseTable,
    dated_panel,
    periods_of,
    read_server_table,
    read_table,
)
from dpstream.project.json_schema import LINE
from dpstream.project.keyed_draft import Recognised, event_operations, key_candidates, recognise
from dpstream.project.keys import keys_of, rows_of, section_of
from dpstream.project.reader import exact_number, is_url, reason_for
from dpstream.project.schema_file import toml_key, toml_value
from dpstream.project.sections import DEFAULT_KEYED, read_recipe
from dpstream.stream.templates import Words, said

#: The mechanism that follows coordinates.
POINTS = "points"
_WORDS = Words(Path(__file__).with_name("draft.j2"))


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        key: the key of the file that the answer becomes.
        words: what it is about, and what the answer means.
        default: what an empty answer stands for; empty: it is left open.
        read: the value of an answer.
    """

    key: str
    words: str
    default: str
    read: Callable[[str], Any]


#: Asks, and gives the answer; None: left open. An answer that ``Question.read`` refuses is asked for again.
Ask = Callable[[Question], Any]


def _amount(text: str) -> str:
    number = exact_number(text)
    if number is None or not 0 < number <= 1000:
        raise ValueError
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**53:
        raise ValueError
    return int(text)


def _day(text: str) -> str:
    datetime.date.fromisoformat(text)
    return text


def _end(text: str) -> str:
    return text if text == "today" else _day(text)


def _length(text: str) -> str:
    if text != "files":
        period_grid(text, datetime.date(2000, 1, 1), "every")
    return text


_AMOUNT = (_amount, 'an exact positive number up to 1000, such as "1"')
_COUNT = (_count, "a whole number from 1")
#: What is asked for keys that the draft leaves open: the usual answer, what reads one, and what is allowed.
_ASKED: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "epsilon": ("1", *_AMOUNT),
    "rho": ("0.005", *_AMOUNT),
    "every": ("week", _length, EVERY),
    "start": ("", _day, "a day such as 2026-01-05"),
    "end": ("", _end, "a day such as 2026-01-05, or today"),
    "max_events": ("", *_COUNT),
    "horizon": ("", *_COUNT),
    "size": ("", *_COUNT),
    "records_per_step": ("", *_COUNT),
}
#: What epsilon bounds, by an example.
_RATES = [(text, 100 * best_guess(float(text), 0.0)) for text in ("0.1", "0.5", "1", "2", "5")]


def _question(key: str, default: str, read: Callable[[str], Any], allowed: str, **facts: Any) -> Question:
    def read_or_say(text: str) -> Any:
        try:
            return read(text)
        except (ConfigError, ValueError):
            raise ConfigError(f"{text!r} cannot be used", allowed=allowed) from None

    return Question(key, _WORDS.text(f"ask_{key}", rates=_RATES, **facts), default, read_or_say)


def _columns_question(names: Sequence[str]) -> Question:
    """Which columns are public as they stand."""

    def read(text: str) -> tuple[str, ...]:
        chosen = tuple(word.strip() for word in text.split(","))
        if not {*chosen} <= {ALL, *names}:
            raise ValueError
        return chosen

    return _question("public", "", read, "columns of the data with commas, * for all, or an empty answer")


def _choice(key: str, answers: Sequence[str], allowed: str, **facts: Any) -> Question:
    """A question whose answer is some of these, or empty."""

    def read(text: str) -> str:
        if text not in answers:
            raise ValueError
        return text

    return _question(key, "", read, f"{allowed}, or an empty answer", **facts)


_ENVELOPE = {"before", "after", "op"}
#: Makes rows of envelopes: the record, what happened to it, and when.
_UNWRAP = (
    "jq -c '(.payload // .) | (.after // .before) + {op, at: ((.ts_ms // 0) / 1000 | todate)}' FILE > "
    "changes.ndjson"
)


def refuse_envelope(table: Any) -> None:
    """Refuse nested change records (Debezium's envelopes): no column of them is one of the table (ConfigError)."""
    import pyarrow as pa

    nested = {name for name in table.column_names if pa.types.is_nested(table.schema.field(name).type)}
    names = set(table.column_names)
    if (names >= _ENVELOPE and nested & _ENVELOPE) or nested >= {"schema", "payload"}:
        raise ConfigError(
            "the records are envelopes of a change feed (before, after, op)",
            where="init",
            allowed=f"rows with an operation column; this makes them: {_UNWRAP}",
        )


#: What stands for a day that the owner has to write.
_DAY = "YYYY-MM-DD"


def draft_config(
    data: Any,
    time_column: str | None = None,
    *,
    person_column: str | None = None,
    key_column: str | None = None,
    delete_time_column: str | None = None,
    mechanism: str | None = None,
    name: str | None = None,
    path: str | None = None,
    database_table: str | None = None,
    url_env: str | None = None,
    public: Collection[str] = (),
    ask: Ask | None = None,
    tell: Callable[[str], None] | None = None,
    rows: int = SAMPLE_ROWS,
) -> str:
    """The text of a drafted configuration file.

    Args:
        data: a path (csv, csv.gz, parquet, ndjson; a folder; a pattern; a DuckDB file), the URL of a PostgreSQL
            server, or any table that ``Schema.encode`` takes.
        time_column: the column that cuts the data into steps; it becomes no attribute.
        person_column: the column that says who a row is. Without a time column the data are wide: one row a person,
            and columns that are numbered, or called after dates. By default one that looks like it, where all other
            columns are called after dates.
        key_column: the column that names a record, of a table that changes; by default one that looks like it, where
            the data look like a change feed, snapshots or stays.
        delete_time_column: the column with the ends of stays; by default one that looks like it.
        mechanism: its name; by default the first one that follows people where there is a person column, or the one
            for tables that change.
        name, path: the stream's name and the source's path; by default taken from ``data``.
        database_table: the table of a DuckDB file or of a PostgreSQL server; by default its only one.
        url_env: the environment variable that holds the server's URL, in the place of ``data``.
        public: columns whose values are publicly known as they occur, ``*`` for all: the draft has them, to be
            confirmed. What other columns hold is left to be filled in.
        ask: asks the owner what the data cannot tell; None: the draft leaves it to be filled in.
        tell: gets private sentences for the owner: how many events persons have.
        rows: how many rows are looked at, at most.

    Guarantee: none. The text is private until confirmed.

    Errors:
        ConfigError: an unknown mechanism, time or person column or path; a mechanism that cannot use a person column,
        or needs one; wide data without period columns. DataError: a file that cannot be read.
    """
    table, path, database = _read(data, path, database_table, url_env, rows)
    refuse_envelope(table)
    columns = (time_column, person_column, key_column, delete_time_column)
    for what, column in zip(("time", "person", "key", "delete time"), columns, strict=True):
        if column is not None and column not in table.column_names:
            raise ConfigError(
                f"unknown column {column!r}",
                where=f"{what} column",
                allowed=f"one of the {counted(len(table.column_names), 'column')} of the data",
            )
    if not {*public} <= {ALL, *table.column_names}:
        raise ConfigError(
            "an unknown column is called public",
            where="--public",
            allowed="columns of the data, or '*' for all",
        )
    dated = None
    free = mechanism is None or family_of(mechanism).limits.people
    if database is None and free and not any(columns):
        dated = dated_panel(table, key_candidates(table, None))
    keyed = None
    if _may_be_keyed(key_column, delete_time_column, person_column or dated, mechanism):
        keyed = recognise(
            data,
            table,
            key_column=key_column,
            time_column=time_column,
            delete_time_column=delete_time_column,
            whole=database is not None,
        )
    proposed = _proposed(table, person_column or dated, time_column, mechanism, keyed is not None, ask)
    family = family_of(proposed.mechanism)
    limits, whose = family.limits, proposed.person
    if ask is None and whose is None and limits.units[0] == "event" and "user" in limits.units:
        whose = whose_column(table, table.column_names, time_column)
    feed = keyed
    if feed is None and limits.units[0] != "record" and not (limits.people or limits.deletes):
        feed = event_operations(table)
    if keyed is not None:
        time_column = time_column or keyed.start or keyed.when
    source: dict[str, Any] = {"path": path} | ({} if feed is None else feed.source())
    if feed is None and limits.units[0] == "record":
        source["key_column"] = Drafted()
    if whose is not None:
        source["user_column"] = _whose(whose, found=dated is not None, likely=proposed.person is None)
    budget = _asked(family, "budget")
    if whose is not None and time_column is None and limits.people and database is None:
        periods = periods_of(table, whose)
        source["period_columns"] = periods.template
        reports = guess_column(periods.variable, periods.values(table), bins=False)
        schema = schema_facts({periods.variable: reports}, public=public, bins=False)
        if not isinstance(periods.template, str):
            budget["horizon"] = Drafted(len(periods.columns), "the periods that have a column")
    else:
        source |= _steps(table, time_column, keyed)
        if database is not None:
            source.pop("offsets", None)  # a database's session reads all times in UTC
            source = database.source(source, keyed, {"every": "week"} | _days())
        apart = {time_column, whose, *(() if feed is None else feed.columns)}
        attributes = [name for name in table.column_names if name not in apart]
        made = {"bins": family.bins, "bounds_only": family.bounds_only}
        guesses = guess_columns(table, attributes, **made)
        if ask is not None and not public:
            public = ask(_columns_question(attributes)) or ()
        if tell is not None:
            for sentence in edge_sentences(guesses, public):
                tell(sentence)
        discovers = proposed.mechanism == (DEFAULT_MECHANISM if feed is None else "census")
        schema = schema_facts(
            guesses, followers(table, attributes), public=public, discovers=discovers, **made
        )
    stream = {"name": name or _stream_name(path)} | _unit(limits, whose)
    by_days = time_column if "every" in source else None
    if whose is not None and "max_events" in stream and tell is not None:
        counts = table.column(whose).drop_null().value_counts().field("counts")
        sentences = bound_sentences(counts.to_pylist())
        if sentences and by_days:
            sentences[-1:-1] = [yearly_sentence(_events_of_years(table, whose, by_days))]
        for sentence in sentences:
            tell(sentence)
    # What grows without an end has no size; people are there in every step.
    expect: dict[str, Any] = {"size": Drafted(1000)} if feed is not None or limits.people else {}
    if not limits.people:
        expect["records_per_step"] = Drafted(100)
    if ask is not None:
        source, stream = _answered(ask, source), _answered(ask, stream)
        expect, budget = _answered(ask, expect), _answered(ask, budget)
    offered = ("returns",) if keyed is not None else ("per",) if by_days and "max_events" in stream else ()
    about = _about(proposed, mechanism, feed, dated=dated is not None, person=whose is not None)
    sections = [
        _section("stream", stream, _rows("stream", limits), offered=offered),
        _section("source", source, _rows("source", limits, changes=keyed is not None)),
        _section("expect", expect, offered=() if keyed is not None or limits.people else ("order",)),
        _mechanism(family, proposed.mechanism) | {"about": about},
        _section("budget", budget, offered=("horizon",)),
        _section("output", {"dir": "releases", "format": "parquet", "keep": "all"}),
        _section("state", {"dir": "state"}, offered=("key_file",)),
    ]
    lines = _WORDS.lines(
        "file", line=LINE, sections=sections, schema=schema, toml=toml_value, key=toml_key, comment=_comment
    )
    return "\n".join(said(lines)).rstrip() + "\n"


@dataclass(frozen=True)
class _Proposed:
    """A mechanism for the data.

    Attributes:
        person: the column that says who a row is, as the owner says it or the columns' names.
        crowded: the columns have too many combinations for a mechanism that follows people.
        place: columns that look like coordinates, which another mechanism would follow.
    """

    mechanism: str
    person: str | None
    crowded: bool = False
    place: tuple[str, str] | None = None


def _proposed(
    table: Any,
    person: str | None,
    time_column: str | None,
    mechanism: str | None,
    keyed: bool,
    ask: Ask | None,
) -> _Proposed:
    """The mechanism that was named; else what the data look like, and what the owner answers."""
    names = table.column_names
    if keyed:
        return _Proposed(DEFAULT_KEYED, person)
    if mechanism is not None:
        return _Proposed(_checked(mechanism, person), person)
    place = coordinates(table, names)
    if person is None and ask is not None:
        likely = whose_column(table, names, time_column)
        person = ask(_choice("user_column", names, "a column of the data", likely=likely))
        asks_points = person is None and place is not None
        if asks_points and ask(_choice("mechanism", [POINTS], POINTS, place=place)) is not None:
            return _Proposed(POINTS, None)
        return _Proposed(
            DEFAULT_MECHANISM, person, place=place
        )  # the unit is that of people, and it follows nobody
    if person is None:
        return _Proposed(DEFAULT_MECHANISM, None, place=place)
    follows = mechanisms_with(lambda family: family.limits.people)[0]
    attributes = [name for name in names if name not in (time_column, person)]
    if time_column is not None and not _takes(follows, table, attributes):
        return _Proposed(DEFAULT_MECHANISM, person, True, place)
    return _Proposed(follows, person, place=place)


def _about(
    proposed: _Proposed, mechanism: str | None, feed: Recognised | None, *, dated: bool, person: bool
) -> list[str]:
    """Why the mechanism is proposed, and what else would be; nothing where the owner named it."""
    about = []
    if mechanism is None and proposed.mechanism != POINTS:
        shape = None if feed is None else feed.shape
        reason = _WORDS.text("reason", shape=shape, dated=dated, person=person, crowded=proposed.crowded)
        about.append(f"{proposed.mechanism} is proposed because {reason}.")
    if proposed.place is not None:
        first, second = proposed.place
        about.append(
            f"Also suggested: --mechanism {POINTS}, because {first!r} and {second!r} look like coordinates (numbers of "
            "records become public)."
        )
    return about


def _read(
    data: Any, path: str | None, database_table: str | None, url_env: str | None, rows: int
) -> tuple[Any, str, DatabaseTable | None]:
    """A sample of the data, the source's path, and the table of a database that the sample is of."""
    if url_env is not None or is_url(data):
        database = read_server_table(None if url_env is not None else data, url_env, database_table, rows)
        return database.sample, database.name.rpartition(".")[2], database
    if not isinstance(data, (str, Path)):
        return arrow.to_table(data, "draft").slice(0, rows), path or "data.parquet", None
    if is_database(Path(data)):
        database = read_table(data, database_table, rows, path or str(data))
        return database.sample, path or str(data), database
    if database_table is not None:
        raise ConfigError("only a database has named tables", where="table")
    return read_sample(data, rows), path or str(data), None


def _may_be_keyed(
    key_column: str | None, delete_time_column: str | None, person_column: str | None, mechanism: str | None
) -> bool:
    """Whether the data may be a table that changes: nothing else is asked for."""
    other = person_column is not None or mechanism not in (None, DEFAULT_KEYED)
    if other and (key_column is not None or delete_time_column is not None):
        raise ConfigError(
            "a key column, and one of ends, are for tables that change",
            where="key column" if key_column is not None else "delete time column",
            allowed=f"no person column, and only {DEFAULT_KEYED}",
        )
    return not other


def _whose(column: str, *, found: bool, likely: bool) -> Any:
    """``[source] user_column``: as the owner says it, found in a table of periods, or likely."""
    if found:
        return Drafted(column, "no two rows share it, and all other columns are dates", CONFIRM)
    if likely:
        why = (
            'its values repeat; if each record is somebody else\'s, write unit = "event" without max_events, and '
            "move the column to [schema]"
        )
        return Drafted(column, why, CONFIRM)
    return column


def _answered(ask: Ask, section: Mapping[str, Any]) -> dict[str, Any]:
    """The section with the owner's answers, where there are questions."""
    answered = dict(section)
    for key, value in section.items():
        open_yet = isinstance(value, Drafted) and value.mark == FILL_IN
        if key in _ASKED and (open_yet or (key == "every" and value != "files")):
            if isinstance(value, Drafted) and value.value == FILL_IN and key in ("start", "end"):
                continue  # numbers of a time column that holds no days
            answer = ask(_question(key, *_ASKED[key]))
            answered[key] = value if answer is None else answer
    return answered


def _checked(mechanism: str, person_column: str | None) -> str:
    """The mechanism, if it can be drafted with what is said about people."""
    family = family_of(mechanism)
    if family.limits.people and person_column is None:
        raise ConfigError(
            f"{family.noun} needs to know who a row is",
            where=f"mechanism {mechanism}",
            allowed="a person column",
        )
    if person_column is not None and not family.limits.people and "user" not in family.limits.units:
        raise ConfigError(
            f"{family.noun} has no use for a person column",
            where=f"mechanism {mechanism}",
            allowed="no person column, or another mechanism",
        )
    return mechanism


def _takes(mechanism: str, table: Any, attributes: list[str]) -> bool:
    """Whether a mechanism that follows people, as it would be drafted, takes all columns together."""
    family = family_of(mechanism)
    guesses = guess_columns(table, attributes, bins=family.bins, bounds_only=family.bounds_only)
    names = {key.name for key in family.keys if mechanism in key.mechanisms}
    options = {key: value for key, value in family.draft.get("mechanism", {}).items() if key in names}
    try:
        schema = Schema(tuple(guess.column for guess in guesses.values() if guess.column is not None))
        section = section_of("draft", "mechanism", {"name": mechanism, **options})
        recipe = read_recipe(section, RecipeContext(schema.domain, schema, step_name=str))
        drafted = family.draft["budget"]
        budget = ZCDP.of(1) if "rho" in drafted else PureDP.of(1)
        horizon = int(drafted.get("horizon", 0)) or None
        recipe.calibrate(budget, parse_unit(family.limits.units[0]), horizon)
    except (ConfigError, LimitError, SchemaError):
        return False
    return True


def _unit(limits: Limits, person_column: str | None) -> dict[str, Any]:
    if person_column is not None and not limits.people:
        said = Drafted("data", '"public" where the bound is known in public, not read off the data', CONFIRM)
        return {"unit": "user", "max_events": Drafted(), "max_events_from": said, "total": "private"}
    unit = limits.units[0]
    return {"unit": unit, "total": "public" if unit.endswith("replace") else "private"}


def _events_of_years(table: Any, whose: str, time_column: str) -> list[int]:
    """How many records each person has in each year with one. Private."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = table.column(time_column).cast(pa.string())
    years = pc.utf8_slice_codeunits(pc.utf8_ltrim_whitespace(times), 0, 4)
    known = pa.table({"user": table.column(whose), "year": years}).drop_null()
    return list(
        known.group_by(["user", "year"]).aggregate([([], "count_all")]).column("count_all").to_pylist()
    )


def _steps(table: Any, time_column: str | None, keyed: Recognised | None) -> dict[str, Any]:
    """How the records are cut into steps."""
    if time_column is None:
        return {"every": "files"}
    late = {"late": "error"}
    _require_times(time_column, table.column(time_column))
    if _holds_numbers(table.column(time_column)):
        first = Drafted(why="the public first number (step 1): 1, or a year; never read it off the data")
        last = Drafted(why="the last number that is over; move it on later")
        return {"time_column": time_column, "start": first, "end": last} | late
    offsets = {"offsets": True} if _have_offsets(table.column(time_column)) else {}
    return {"time_column": time_column, "every": "week"} | offsets | _days() | late


def _require_times(name: str, column: Any) -> None:
    """Refuse a time column that begins with neither a day nor a number; a run reads all of it."""
    text = next(iter(column.drop_null().slice(0, 1).to_pylist()), None)
    if isinstance(text, str) and not re.match(r"\s*(\d{4}-\d\d-\d\d|-?\d+\s*$)", text):
        raise ConfigError(
            f"column {name!r} holds neither days nor step numbers",
            where="time column",
            allowed="such as 2026-01-31, 2026-01-31T12:00:00, or 7",
        )


def _days() -> dict[str, Any]:
    return {
        "start": Drafted(
            _DAY,
            "the public first day; for weeks a Monday, for months the first; never read it off the data",
        ),
        "end": Drafted(_DAY, 'the public last day, or "today"; it may be moved later'),
    }


def _holds_numbers(column: Any) -> bool:
    """Whether a time column can hold step numbers only. Whole numbers are never days."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_text(column):
        return bool(pc.all(pc.match_substring_regex(column, r"^\s*-?\d{1,18}\s*$")).as_py())
    return bool(pa.types.is_integer(column.type))


def _have_offsets(column: Any) -> bool:
    """Whether the first time has an offset; a file that has times of both forms is refused when it is read."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        return column.type.tz is not None
    first = next((text for text in column.drop_null().slice(0, 1).to_pylist() if isinstance(text, str)), "")
    return re.search(r":\d\d.*(Z|[+-]\d\d:?\d\d)\s*$", first) is not None


def _rows(section: str, limits: Limits, *, changes: bool = False) -> dict[str, Key]:
    """The rows of the table of keys, with what a stream with these limits can have.

    Args:
        changes: whether records have keys, so that a late delete may not be left out.
    """
    rows = rows_of(section, {})
    narrowed = {"unit": limits.units}
    if "late" in rows:
        refused = {*limits.late, *(("drop-and-count-nothing",) if changes else ())}
        narrowed["late"] = tuple(rule for rule in rows["late"].allowed.split(", ") if rule not in refused)
    return rows | {
        key: replace(rows[key], allowed=", ".join(words)) for key, words in narrowed.items() if key in rows
    }


def _asked(family: Family, section: str) -> dict[str, Any]:
    """What the family's draft writes. Numbers are the owner's choice; a switch is decided."""
    drafted = family.draft.get(section, {})
    return {key: value if isinstance(value, bool) else Drafted(value) for key, value in drafted.items()}


def _mechanism(family: Family, name: str) -> dict[str, Any]:
    """Its options: those that have to be written, and the others with their defaults."""
    keys = keys_of_recipes("mechanism", {name: family.recipes[name]})
    rows = {key.name: replace(key, reason=reason_for(key.reason, name)) for key in keys}
    written: dict[str, Any] = {"name": name}
    written |= {key: Drafted() for key, row in rows.items() if row.default is None}
    written |= {key: value for key, value in _asked(family, "mechanism").items() if key in rows}
    return _section("mechanism", written, {"name": keys_of("mechanism")["name"], **rows}, offered=rows)


#: What a key that is offered as a comment says in place of dots.
_EXAMPLES = {"per": "year"}


def _section(
    name: str, written: Mapping[str, Any], rows: Mapping[str, Key] | None = None, offered: Iterable[str] = ()
) -> dict[str, Any]:
    """A section of the file: keys with their values, and ``offered`` keys as comments with their defaults."""
    known = keys_of(name) if rows is None else rows
    lines = []
    for key in dict.fromkeys((*written, *offered)):
        row = known[key] if key not in written else replace(known[key], default=None)
        if key in written:
            line = _line(key, written[key])
        else:
            line = f"# {key} = {toml_value(_EXAMPLES[key]) if key in _EXAMPLES else _default(row)}"
        lines.append({"about": row.about, "line": line})
    return {"name": name, "about": [], "rows": lines}


def _comment(text: str, indent: int = 1) -> Any:
    """Lines of a comment, which the template takes as they are."""
    from markupsafe import Markup

    start = "#" + " " * indent
    return Markup(
        textwrap.fill(
            text,
            110,
            initial_indent=start,
            subsequent_indent=start,
            break_on_hyphens=False,
            break_long_words=False,
        )
    )


def _line(key: str, value: Any) -> str:
    if not isinstance(value, Drafted):
        return f"{key} = {toml_value(value)}"
    why = f": {value.why}" if value.why else ""
    return f"{key} = {toml_value(value.value)}  # {value.mark}{why}"


def _default(row: Key) -> str:
    """The default as a file would say it, or dots where its words are not a value."""
    text = row.default or ""
    if text in ("true", "false") and row.fragment.get("type") == "boolean":
        return text
    if text.isdigit() and row.fragment.get("type") == "integer":
        return text
    if text in row.allowed.split(", ") or exact_number(text) is not None:
        return toml_value(text)
    return "..."


def _stream_name(path: str) -> str:
    """The name of the file, or of its folder where files have all kinds of names."""
    place = Path(path)
    names = (
        re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")
        for stem in (place.name.split(".")[0], place.parent.name)
    )
    return next((name for name in names if name), "stream")
