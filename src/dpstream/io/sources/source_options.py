"""The ``[source]`` table of a configuration file: how records become steps. Everything here is public.

A file is flat, and most keys mean something with some others only: ``_RULES`` says which do not, and why. What each key
may hold is declared with it (``source_keys.py``).
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Self, get_args

from dpstream.core.durations import seconds
from dpstream.core.errors import ConfigError
from dpstream.core.tables import KeyRules
from dpstream.io.objects import URLS, is_object_url, object_path
from dpstream.io.sources.calendar import EVERY, Grid, StepNumbers, day_number, period_grid
from dpstream.io.sources.operations import KeyedOperations, Operations
from dpstream.io.sources.source_keys import (
    KINDS,
    SOURCES,
    Late,
    SourceKeys,
    keys_of_kind,
    rows_of_source,
    wrong_source,
)

_WHERE = "[source]"
#: kind -> keys that a file must write.
_NEEDED: dict[str, tuple[str, ...]] = {
    "files": (),
    "duckdb": ("database", "query"),
    "postgres": (),
    "postgres-changes": ("table", "slot", "publication"),
}


def duration(text: object, key: str) -> datetime.timedelta:
    """Read a length of time.

    Args:
        text: such as "6 hours".
        key: the key of ``[source]``, for the message.

    Errors:
        ConfigError: it is not a number with a unit.

    >>> duration("36 hours", "lag")
    datetime.timedelta(days=1, seconds=43200)
    """
    length = seconds(text)
    if length is None:
        raise wrong_source(
            f"{key} = {text!r} is not a length of time", '"30 minutes", "6 hours", "2 days", "1 week"'
        )
    return datetime.timedelta(seconds=length)


_COLUMNS = ("key_column", "time_column", "delete_time_column", "op_column", "user_column", "xid_column")
_OF_KEYS = "shape delete_time_column updates unknown known repeated shrinks"
_ENDS = 'a day, a step number, or "today"'
_STAYS_FOR_EVER = "were left out, its record would stay for ever"


class _Check:
    """Whether the keys of ``[source]`` belong to its kind, have values that they can have, and fit together.

    Errors:
        ConfigError: names the key, the reason, and what is allowed.
    """

    def __init__(self, options: SourceKeys) -> None:
        if options.kind not in SOURCES.names():
            raise wrong_source(f"unknown kind = {options.kind!r}", ", ".join(SOURCES.names()))
        self.options, self._given, self._rows = options, options.given(), rows_of_source(())
        self._keys = keys_of_kind(options.kind)
        for key in self._given:
            if key not in self._keys:
                raise wrong_source(
                    f'{key} has no meaning with kind = "{options.kind}"', ", ".join(self._keys)
                )
            _check_value(key, getattr(options, key), self._rows[key].fragment, self._rows[key].allowed)
        self._check_kind(options.kind, changes=options.shape == "changes")
        self._check_records(by_key=options.key_column is not None)
        self._check_cut()
        for one, other in combinations(_COLUMNS, 2):
            if getattr(options, one) is not None and getattr(options, one) == getattr(options, other):
                raise wrong_source(f"{one} and {other} are the same column", "two columns")

    def _no(self, keys: str, why: str, allowed: str = "leave it out") -> None:
        """Refuse keys (``key=word``: this value of one) that mean nothing here."""
        for key, _, word in (text.partition("=") for text in keys.split()):
            if key in self._given and word in ("", getattr(self.options, key)):
                shown = f'{key} = "{word}"' if word else key
                raise wrong_source(f"{shown} has no meaning {why}", allowed)

    def _need(self, keys: str, what: str) -> None:
        for key in keys.split():
            if getattr(self.options, key) is None:
                raise wrong_source(f"{key} is missing, which {what}", self._rows[key].allowed)

    def _check_kind(self, kind: str, *, changes: bool) -> None:
        """Where the records are."""
        options, no = self.options, self._no
        if kind == "files":
            _check_paths(options)
        if options.stdin:
            no(
                "rows every=files",
                "for standard input, cut into steps by their own time or number",
                "time_column",
            )
            no("lag complete period_columns", "for standard input, whose records are taken as they come")
            no("shape=snapshots shape=stays", "for standard input, which cannot be read as a whole", "files")
        elif kind == "files":
            no("eof", "for files, which say themselves where they end")
        else:
            no("every=files", "without files", "a calendar")
            no("end=data", "here: it fits files only, as which periods are read must be public", _ENDS)
        grows = 'table (also a view); or shape = "snapshots" or "stays", which read the whole answer'
        if kind == "postgres" and changes:
            no("query", "for a table that grows, whose rows are told apart by their transactions", grows)
            self._need("table", 'kind = "postgres" needs')
        elif {"table", "query"} <= set(self._keys):
            self._need_one_of("table", "query")
        if "url" in self._keys:
            self._need_one_of("url", "url_env")
        if kind.startswith("postgres") and options.shape != "stays":
            self._need("every", "PostgreSQL needs: a step of a database is a period of a calendar")
        if changes and options.query is not None:
            no("time_column", "for a query, which says itself what is in a step", 'or shape = "stays"')
        if changes and kind in ("duckdb", "mysql", "spark"):
            known = "error (released steps are compared), drop-and-count-nothing (they are not)"
            no("late=next-step", "for a database that cannot tell late records from old ones", known)
        if changes and kind in ("postgres", "mysql", "spark") and options.table is not None:
            self._need("time_column", "a table needs: it says to which step a row belongs")
        if kind == "spark":
            no(
                "shape=snapshots shape=stays",
                "for Spark, where a step is what changed in its period",
                "files",
            )
        if kind == "postgres" and changes and options.late == "next-step":
            self._need(
                "xid_column",
                'late = "next-step" needs: updates and rewrites of a table change the transaction numbers that the '
                "server keeps, and its rows would be counted twice",
            )
        self._need(
            " ".join(_NEEDED[kind] if kind in KINDS else SOURCES.get(kind).needed), f'kind = "{kind}" needs'
        )

    def _need_one_of(self, *keys: str) -> None:
        if sum(getattr(self.options, key) is None for key in keys) != 1:
            pair = " and ".join(keys)
            raise wrong_source(f"{pair} are both missing, or both given", f"one of {pair}")

    def _check_records(self, *, by_key: bool) -> None:
        """What the rows are: records that come and go, or what happens to records with keys."""
        options, no = self.options, self._no
        if not by_key:
            no(f"{_OF_KEYS} insert_only", "without key_column", "key_column, or leave it out")
            return
        no("rows", "with key_column: one record would move all those after it to other steps")
        no("period_columns", "with key_column: people are followed by user_column")
        if options.kind == "postgres-changes":
            no("insert_only", "for a log, which may hold updates and deletes", 'kind = "postgres"')
        if options.insert_only:
            no(f"{_OF_KEYS} op_column", "with insert_only: every row is an insert")
        elif options.shape == "snapshots":
            whole = 'with shape = "snapshots": '
            no(
                "time_column delete_time_column late xid_column wait",
                f"{whole}the table is read as it is then",
            )
            no("op_column updates unknown known", f"{whole}every row of a snapshot is a record that exists")
            if options.kind == "files" and options.every != "files":
                raise wrong_source("each file is one snapshot and one step", 'every = "files"')
        elif options.shape == "stays":
            self._check_stays()
        else:
            no("delete_time_column", 'with shape = "changes": only stays have it')
            no("shrinks", 'with shape = "changes": only snapshots have it')
            if options.kind in ("postgres", "mysql"):
                raise wrong_source(
                    "the rows of a table have no order, so the table cannot be a feed of changes by key",
                    'shape = "snapshots" or "stays", kind = "postgres-changes", or insert_only = true',
                )
            if options.feed:
                no(
                    "late=drop-and-count-nothing",
                    f"here: if a late delete {_STAYS_FOR_EVER}",
                    "error, next-step",
                )
            else:
                no(
                    "updates unknown known",
                    "without op_column: a row holds its record as it is now",
                    "op_column",
                )

    def _check_stays(self) -> None:
        stays, no = 'with shape = "stays": ', self._no
        self._need("time_column delete_time_column", 'shape = "stays" needs')
        no("op_column updates", f"{stays}a stay has a start and an end, and no operation")
        no("repeated", f"{stays}those of one key in a step follow each other (known is about overlaps)")
        no("xid_column wait", f"{stays}the table is read as it is, whoever is writing")
        no(
            "every=files",
            f"{stays}the steps of a stay come from its own times",
            "a calendar, or step numbers",
        )
        no("end=data", f"{stays}the latest time in the data may be an end in the future", _ENDS)
        no("late=drop-and-count-nothing", f"{stays}if a late end {_STAYS_FOR_EVER}", "error, next-step")
        if self.options.late == "error":
            compared = f'with late = "error", {stays}'
            no("shrinks", f"{compared}released steps are read again and compared")
            # The first end would delete the record, although another stay of its key is still open.
            allowed = 'error; with late = "next-step" also update'
            no("known=update", f"{compared}the end of one stay would end the other stays of its key", allowed)

    def _check_cut(self) -> None:
        """How the records are cut into steps."""
        options, no = self.options, self._no
        if options.op_column is None:
            no("op_values", "without op_column", "op_column")
        if options.period_columns is not None:
            no(
                "time_column every rows start end op_column late",
                "with period_columns: each period is a column",
            )
            self._need("user_column", "period_columns needs")
        if options.rows is not None:
            no("every", "with rows, which cuts into steps too", "one of the two")
        for key in ("rows", "every") if options.every == "files" or options.rows is not None else ():
            if getattr(options, key) is not None:
                ignore = "leave it out (and name a time column in the schema's ignore list)"
                no(
                    "time_column start end late",
                    f"with {key}: records are taken in the order of the files",
                    ignore,
                )
        if options.every in (None, "files"):
            no("lag offsets", "without a calendar", "time_column and every, or leave it out")


def _check_value(key: str, value: object, fragment: Mapping[str, Any], allowed: str) -> None:
    """Check a value against what is declared of its key; days, words of operations and lists are read elsewhere."""
    if "enum" in fragment and value not in fragment["enum"]:
        raise wrong_source(f"unknown {key} = {value!r}", allowed)
    kind = fragment.get("type")
    if kind == "string" and not (isinstance(value, str) and value.strip()):
        raise wrong_source(f"{key} is not a text, or is empty", allowed)  # an url may hold a password
    if kind == "boolean" and not isinstance(value, bool):
        raise wrong_source(f"{key} = {value!r} is not a boolean", allowed)
    if kind == "integer" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise wrong_source(f"{key} = {value!r} is not a whole number from 1", allowed)
    if key in ("lag", "wait"):
        duration(value, key)
    if key == "shrinks" and (
        isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1
    ):
        raise wrong_source(f"shrinks = {value!r} is not a share", allowed)


def _check_paths(options: SourceKeys) -> None:
    if not options.path or not all(isinstance(p, str) and p for p in options.path):
        raise wrong_source("there is no path", 'such as path = "data/*.parquet"')
    if "-" in options.path and len(options.path) > 1:
        raise wrong_source("standard input and files cannot be mixed", 'path = "-"')
    for text in options.path:
        if "://" in text:
            if not is_object_url(text):
                raise wrong_source(f"no files are read from {text.partition('://')[0]}:// URLs", URLS)
            object_path(text)


_LATE = get_args(Late)
_KEYS = tuple(dict.fromkeys(["kind", *(key for kind in KINDS for key in keys_of_kind(kind))]))
_END = 'a last {unit} ("{example}"), "data" (you declare it public into which step the newest record falls)'

#: late -> what this rule does not protect, in a sentence for plans and manifests.
_LATE_PUBLIC: dict[str, str] = {
    "error": "a late record stops the stream, and that it stopped is visible, so whether there is one is not "
    'protected (late = "error")',
    "next-step": "when the program runs is declared public: a late record is counted at the first step of "
    'the run that finds it (late = "next-step")',
    "drop-and-count-nothing": "when the program runs is declared public: a record that comes after its step "
    'is in no release (late = "drop-and-count-nothing")',
}

_CHANGED_PUBLIC = (
    "released periods are asked for again, and an answer that has changed stops the stream; that it stopped is "
    'visible, so whether a record was changed, or came late, is not protected (late = "error")'
)

#: kind -> what else this kind of source does not protect.
_KIND_PUBLIC: dict[str, tuple[str, ...]] = {
    "files": (),
    "stdin": (
        "when the first record of a later step (or a line that ends a step) arrives on standard input is "
        "declared public: it is what closes a step",
        "a time of a period that has not begun, or far behind all others, stops the stream on standard input; that it "
        "stopped is visible, so whether there is such a record is not protected (check the times before they are sent)",
    ),
    "duckdb": (
        "the query decides which records are in a step, and is trusted to decide about each protected record "
        "by that record alone (no LIMIT, no ranking, no join or subquery that lets one record move another)",
    ),
    "postgres": (
        "the table (or view) is trusted to hold each protected record in rows of its own, which no other record "
        "moves; rows are only added",
        "when transactions that write to the server end is declared public: a step waits for those that were "
        "open, and one that stays open stops the stream",
    ),
    "postgres-changes": (
        "when transactions commit is declared public: it says to which step their changes belong",
        "a truncation, a change of a column, and a change without the old row stop the stream, and that it "
        "stopped is visible",
    ),
}

#: The place of a period's number in ``period_columns``.
_PERIOD = re.compile(r"\{period(?::0([1-9]))?\}")

#: For columns that a source reads itself: a record without a time has no step, and no bin can take it.
_STOPS = (
    "{what} stops the stream in column {column!r}, and that it stopped is visible, so whether there is one is "
    "not protected ({key}; no bin can take it: check the files before the run)"
)

#: late -> what happens to a start, an end or a value of a stay that comes late or is changed.
_LATE_STAYS = {
    "error": "released steps are read again, and a start, an end or a value in them that has changed stops the stream; "
    "that it stopped is visible, so whether one was changed, or came late, is not protected "
    '(late = "error")',
    "next-step": "when the program runs is declared public: a start, an end or a value that is changed or comes late "
    'counts at the first step of the run that finds it (late = "next-step")',
}
_SEEN = "stops the stream, and that it stopped is visible, so whether there is one is not protected"


@dataclass(frozen=True, kw_only=True)
class SourceOptions(SourceKeys):
    """Where records come from, and how they are cut into steps: the checked values of all keys of ``[source]``.

    Errors:
        ConfigError: a value is not allowed, or keys contradict each other. It names the key and what is allowed.
    """

    def __post_init__(self) -> None:
        _Check(self)
        if not isinstance(self.op_values, Operations):
            words = Operations if self.key_column is None else KeyedOperations
            object.__setattr__(self, "op_values", words.parse(self.op_values))
        elif self.key_column is not None and self.op_column is not None and self.op_values == Operations():
            object.__setattr__(self, "op_values", KeyedOperations())
        check = None if self.kind in KINDS else SOURCES.get(self.kind).check
        if check is not None:
            check(self)
        if self.period_columns is not None:
            self._check_wide(self.period_columns)
        elif self.rows is None and self.every != "files":
            self._check_times()

    def _check_wide(self, given: object) -> None:
        """Check ``period_columns``: files with one column per period."""
        if isinstance(given, str):
            if len(_PERIOD.findall(given)) != 1 or given.count("{column}") > 1:
                raise wrong_source(
                    f"period_columns = {given!r} does not show the place of the period's number",
                    'one {period} (or {period:02}), such as "poor_{period}"',
                )
            return
        texts = isinstance(given, list | tuple) and all(isinstance(name, str) and name for name in given)
        names = tuple(given) if isinstance(given, list | tuple) else ()
        if not names or not texts or len(set(names)) != len(names) or self.user_column in names:
            raise wrong_source(
                "period_columns is not a list of different columns without user_column",
                'such as ["m1", "m2"]',
            )
        object.__setattr__(self, "period_columns", names)

    def _check_times(self) -> None:
        if self.time_column is None and self.kind == "files":
            raise wrong_source(
                "nothing says where a step ends", 'time_column (with every), every = "files", or rows'
            )
        if self.every is not None:
            self._check_calendar(self.every)
        else:
            self._check_numbers()

    def _check_calendar(self, every: str) -> None:
        start = _day(self.start, "start")
        if start is None:
            raise wrong_source(
                "start is missing: periods are counted from a public first day, because step borders must not "
                "depend on private data",
                'such as start = "2026-01-05"',
            )
        object.__setattr__(self, "start", start)
        grid = period_grid(every, start, _WHERE)
        if self.end not in ("today", "data"):
            end = _day(self.end, "end")
            if end is None:
                raise wrong_source(
                    "end is missing: the number of steps must not depend on private data "
                    "unless you say that it may",
                    _END.format(unit="day", example="2026-12-31")
                    + ' or "today" (every period that is over; its records must be there by then)',
                )
            if end < start:
                raise wrong_source("end is before start", "start or later")
            grid.period(grid.step(day_number(end)))  # has a last day
            object.__setattr__(self, "end", end)

    def _check_numbers(self) -> None:
        start = 1 if self.start is None else self.start
        if isinstance(start, bool) or not isinstance(start, int) or abs(start) > 2**53:
            raise wrong_source(
                "without every the time column holds step numbers, and start is not one",
                f"a whole number, or every = {EVERY}",
            )
        object.__setattr__(self, "start", start)
        if self.end == "data":
            return
        if isinstance(self.end, bool) or not isinstance(self.end, int):
            what = "end is missing" if self.end is None else "end is not a step number"
            raise wrong_source(
                f"{what}: the number of steps must not depend on private data unless you say that it may",
                _END.format(unit="step number", example="977").replace('"977"', "977"),
            )
        if self.end < start:
            raise wrong_source("end is before start", "start or later")

    @classmethod
    def parse(cls, table: Mapping[str, Any], own: Any = None) -> Self:
        """Read the ``[source]`` table of a configuration file.

        Args:
            table: its keys and values.
            own: the values of the keys that only this kind of source has; they are not in ``table``.

        Errors:
            ConfigError: an unknown key, or a value that is not allowed.

        >>> options = SourceOptions.parse({"path": "data/*.csv", "rows": 50})
        >>> options.needs_public_sizes
        True
        """
        for key in table:
            if key not in _KEYS:
                raise wrong_source(f"unknown key {key!r}", ", ".join(_KEYS))
        values = dict(table)
        path = values.pop("path", ())
        paths = (path,) if isinstance(path, str) else path
        if not isinstance(paths, list | tuple):
            raise wrong_source("path is not a text or a list of texts", '"data/*.csv"')
        return cls(path=tuple(paths), own=own, **values)

    @property
    def grid(self) -> Grid | None:
        """The public step borders; None with ``rows``, ``every = "files"`` or ``period_columns``."""
        if self.rows is not None or self.every == "files" or self.period_columns is not None:
            return None
        if isinstance(self.start, datetime.date) and self.every is not None:
            return period_grid(self.every, self.start, _WHERE)
        return StepNumbers(int(self.start))  # type: ignore[arg-type]  # checked above

    def period_name(self, step: int) -> str | None:
        """How the period of a step is called: as the calendar has it, or as the columns of the periods do.

        None where this file does not say so: steps are files or numbers of rows, or a list of columns is too short.
        All of it is public before there are data.

        Errors:
            ConfigError: the calendar ends before.

        >>> SourceOptions(
        ...     path=("*",), time_column="t", every="month", start="2005-04-01", end="today"
        ... ).period_name(2)
        '2005-05'
        """
        if isinstance(self.period_columns, str):
            number = _PERIOD.search(self.period_columns)
            return f"{step:0{number[1] or 1}}" if number else None
        if self.period_columns is not None:
            return self.period_columns[step - 1] if step <= len(self.period_columns) else None
        return None if self.grid is None else self.grid.period_name(step)

    @property
    def needs_public_sizes(self) -> bool:
        """Whether a step is a number of records. Then the unit must be ``event-replace``."""
        return self.rows is not None

    def last_step(self, today: datetime.date) -> int | None:
        """The last step that is due, where public facts decide it; None where the data or the files do.

        Args:
            today: the public clock (``clock()``).
        """
        grid = self.grid
        if grid is None or self.end == "data":
            return None
        return min(step for step in (grid.closed(today), self.final_step()) if step is not None)

    def due(self, today: datetime.date) -> tuple[Grid, int]:
        """The step borders and the last step that is due, where public facts decide both.

        Errors:
            ConfigError: they depend on the data or on the files.
        """
        grid, last = self.grid, self.last_step(today)
        if grid is None or last is None:
            raise wrong_source("nothing public says where a step ends", "every, start and end")
        return grid, last

    def final_step(self) -> int | None:
        """The last step of the stream; None where ``end`` is not a day or a step number."""
        if self.grid is None or self.end is None or isinstance(self.end, str):
            return None
        return self.grid.step(day_number(self.end) if isinstance(self.end, datetime.date) else self.end)

    def clock(self, now: datetime.datetime | None = None) -> datetime.date:
        """The day (UTC) that decides which periods are over: now less the grace period ``lag``.

        >>> options = SourceOptions(
        ...     path=("*",), time_column="t", every="day", start="2026-01-05", end="today", lag="6 hours"
        ... )
        >>> options.clock(datetime.datetime(2026, 1, 6, 5, 59)).isoformat()
        '2026-01-05'
        """
        moment = now or datetime.datetime.now(datetime.UTC)
        return (moment if self.lag is None else moment - duration(self.lag, "lag")).date()

    @property
    def accepts_late(self) -> str:
        """Which other rules take late records, for errors about one: those that this source can have."""
        taken = [f'"{rule}"' for rule in _LATE if rule != "error" and self.can_have_late(rule)]
        if not taken:
            return 'no such records: nothing but late = "error" fits this source'
        return f"late = {' or '.join(taken)} in [source] accepts such records"

    def can_have_late(self, late: Late) -> bool:
        """Whether this rule for late records fits the other keys."""
        if late == "drop-and-count-nothing" and not self.drops_late:
            return False
        try:
            replace(self, late=late)
        except ConfigError:
            return False
        return True

    @property
    def repeatable(self) -> bool:
        """Whether released steps can be read again from the source, for comparison: not where a step is the table at
        the time of reading."""
        if self.shape == "snapshots" and self.kind != "files":
            return False
        if self.kind not in KINDS:
            return SOURCES.get(self.kind).repeatable
        return self.kind in ("duckdb", "postgres") or (self.kind == "files" and not self.stdin)

    @property
    def always_compared(self) -> bool:
        """Whether every run must compare released steps with the source: only they show a late end or an erased
        row."""
        return self.shape == "stays" and self.late == "error"

    @property
    def whole_tables(self) -> bool:
        """Whether a step holds all records that exist at its end, and the stream finds the changes."""
        return self.shape == "snapshots" or (self.shape == "stays" and self.late == "next-step")

    @property
    def key_rules(self) -> KeyRules:
        """The rules for rows that contradict the records so far, with the defaults of the shape filled in."""
        known = self.known or ("error" if self.shape == "stays" else "update")
        repeated = self.repeated or ("error" if self.shape == "snapshots" else "last")
        if self.shape == "stays" and self.whole_tables:
            repeated = "error" if known == "error" else "last"  # the rows of one key are stays that overlap
        return KeyRules(self.unknown, known, repeated, float(self.shrinks))

    @property
    def keys_that_matter(self) -> list[str]:
        """The keys of ``[source]`` whose rules can apply to rows of this shape."""
        if self.shape == "snapshots":
            return ["repeated", "shrinks"]
        if self.shape == "stays":
            return ["known", *(["shrinks"] if self.whole_tables else [])]
        return ["shape", *(["unknown", "known"] if self.feed else []), "repeated"]

    @property
    def deletions(self) -> bool:
        """Whether records may leave."""
        keyed = self.key_column is not None and not self.insert_only
        return keyed or self.op_column is not None or self.kind == "postgres-changes"

    def declared_public(self, *, by_key: bool = False) -> tuple[str, ...]:
        """What the source treats as public, and what it does not protect, in sentences for plans and manifests.

        Args:
            by_key: whether ``user_column`` is the key of records that are never updated.
        """
        facts = []
        if self.end == "data":
            facts.append('the step into which the newest record falls is declared public (end = "data")')
        if self.every == "files":
            facts.append("which files exist, and their names, are declared public (one file, one step)")
        if self.period_columns is not None:
            facts.append("which period columns the files have is declared public (one column, one period)")
        if self.rows is not None:
            facts.append(
                f"the number of records is declared public (steps of {self.rows} records; how many of them "
                "are deletes is public too)"
            )
        if self.kind == "postgres" and self.shape != "changes":
            # Of a table that is read whole, keyed_public says it.
            facts += () if self.query is None else _KIND_PUBLIC["duckdb"]
        elif self.kind in KINDS:
            facts += _KIND_PUBLIC["stdin" if self.stdin else self.kind]
        else:
            public = SOURCES.get(self.kind).public
            facts += public(self) if callable(public) else public
        facts += self._keyed_public()
        if self.shape != "changes":
            return tuple(facts)
        if self.kind != "files" and self.repeatable and self.late == "error":
            facts.append(_CHANGED_PUBLIC)
        elif self.grid is not None and self.kind != "duckdb":
            facts.append(_LATE_PUBLIC[self.late])
        if self.time_column is not None:
            what = "a null or unreadable time"
            facts.append(_STOPS.format(what=what, column=self.time_column, key="time_column"))
        if self.op_column is not None and self.key_column is None:
            what = 'a null, "update" or unknown operation'
            facts.append(_STOPS.format(what=what, column=self.op_column, key="op_column"))
        if self.user_column is not None:
            facts.append(
                _STOPS.format(
                    what="a null or empty key, or keys of several types,"
                    if by_key
                    else "a null or empty user id, or ids of several types,",
                    column=self.user_column,
                    key="key_column" if by_key else "user_column",
                )
            )
        return tuple(facts)

    def _keyed_public(self) -> Iterator[str]:
        """What this way of reading keyed records does not protect. The sentences about refused keys and about tables
        that shrank come from ``stream.declared``."""
        if self.key_column is None:
            return
        if self.shape != "changes" and self.kind == "postgres" and self.query is None:
            yield (
                "the table (or view) is trusted to hold each protected record in a row of its own, which no other "
                "record moves"
            )
        if self.shape == "snapshots" and self.kind != "files":
            yield "when the program runs is declared public: a snapshot is the table as it is when its step is read"
        if self.shape == "stays":
            yield (
                f"a null or unreadable start, an unreadable end, or an end before its start {_SEEN} (time_column, "
                "delete_time_column)"
            )
            yield _LATE_STAYS[self.late]
        if self.op_column is not None:
            yield f"a null or unknown operation {_SEEN} (op_column; column {self.op_column!r})"

    def pinned(self) -> dict[str, Any]:
        """The settings that may not change while a stream lives, as JSON values: how a record gets its step.

        ``end`` is pinned as ``"public"`` (a day, a step number, ``"today"``) or ``"data"``. The owner may move a public
        end, because it is no fact about the data. But a stream with a public end may not change to ``"data"``. The
        place of the files is not pinned.
        """
        start = self.start.isoformat() if isinstance(self.start, datetime.date) else self.start
        end = self.end if self.end in (None, "data") else "public"
        # Keys that older states do not have are left out where they have their defaults.
        own = self.op_values.pinned()
        words: dict[str, Any] = {} if own == Operations().pinned() else {"op_values": own}
        if self.stdin or self.kind != "files":
            words["kind"] = "stdin" if self.stdin else self.kind
        if self.query is not None:
            # A manifest identifies the query without quoting it.
            text = " ".join(self.query.split())
            words["query"] = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        if self.own is not None:
            words["own"] = SOURCES.get(self.kind).pinned(self.own)
        if self.offsets:
            words["offsets"] = True
        user = {} if self.user_column is None else {"user_column": self.user_column}
        if self.same_unit is not None:
            user["same_unit"] = self.same_unit
        keyed: dict[str, Any] = {}
        if self.key_column is not None:
            rules, names = self.key_rules, ("unknown", "known", "repeated", "shrinks")
            keyed = {"key_column": self.key_column, "shape": self.shape, "updates": self.updates}
            keyed |= {name: getattr(rules, name) for name in names}
            if self.delete_time_column is not None:
                keyed["delete_time_column"] = self.delete_time_column
        if self.period_columns is not None:
            # A list may grow, so it is not pinned itself. The comparison of released periods notices other changes.
            words["period_columns"] = (
                self.period_columns if isinstance(self.period_columns, str) else "listed"
            )
        return {
            **words,
            **user,
            **keyed,
            "time_column": self.time_column,
            "every": self.every,
            "rows": self.rows,
            "start": start,
            "end": end,
            "op_column": self.op_column,
            "late": None if self.grid is None else self.late,
        }


def _day(value: object, key: str) -> datetime.date | None:
    if value is None:
        return None
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    if isinstance(value, str):
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            pass
    raise wrong_source(f"{key} = {value!r} is not a day", 'such as "2026-01-05"')
