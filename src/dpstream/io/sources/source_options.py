"""The ``[source]`` table of a configuration file: how records become steps. Everything here is public."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, get_args

from dpstream.core.errors import ConfigError
from dpstream.io.objects import URLS, is_object_url, object_path
from dpstream.io.sources.calendar import EVERY, Grid, StepNumbers, day_number, period_grid
from dpstream.io.sources.keyed_options import (
    check_keyed,
    gives_whole_tables,
    keyed_pinned,
    keyed_public,
    needs_comparison,
    reads_now,
)
from dpstream.io.sources.operations import KeyedOperations, Operations
from dpstream.io.sources.source_keys import KINDS, SOURCES, Late, SourceKeys, keys_of_kind, wrong_source

_WHERE = "[source]"
#: kind -> keys that a file must write.
_NEEDED: dict[str, tuple[str, ...]] = {
    "files": (),
    "duckdb": ("database", "query"),
    "postgres": ("time_column",),
    "postgres-changes": ("table", "slot", "publication"),
}
_UNITS = {"minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_DURATION = re.compile(r"([0-9]{1,5}) (minute|hour|day|week)s?")


def duration(text: object, key: str) -> datetime.timedelta:
    """Read a length of time.

    Args:
        text: such as "6 hours".
        key: the key of ``[source]``, for the message.

    Errors:
        ConfigError: it is not a whole number with a unit.

    >>> duration("36 hours", "lag")
    datetime.timedelta(days=1, seconds=43200)
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise wrong_source(
            f"{key} = {text!r} is not a length of time", '"30 minutes", "6 hours", "2 days", "1 week"'
        )
    return datetime.timedelta(seconds=int(match[1]) * _UNITS[match[2]])


def check_kind(options: SourceKeys) -> None:
    """Check that all keys belong to the kind of source and have values that it can use.

    Errors:
        ConfigError: names the key, and what is allowed.
    """
    if options.kind not in SOURCES.names():
        raise wrong_source(f"unknown kind = {options.kind!r}", ", ".join(SOURCES.names()))
    own = keys_of_kind(options.kind)
    for key in options.given():
        if key not in own:
            raise wrong_source(f'{key} has no meaning with kind = "{options.kind}"', ", ".join(own))
    needed = _NEEDED[options.kind] if options.kind in _NEEDED else SOURCES.get(options.kind).needed
    for key in needed:
        if key == "time_column" and options.shape == "snapshots":
            continue  # a snapshot is the whole table, whatever times its rows have
        value = getattr(options, key)
        if not isinstance(value, str) or not value.strip():
            raise wrong_source(f'{key} is missing, which kind = "{options.kind}" needs', "a text")
    if options.lag is not None:
        duration(options.lag, "lag")
        if options.rows is not None or options.every in (None, "files"):
            raise wrong_source("lag has no meaning without a calendar", "leave it out")
    if options.kind == "files":
        _check_files(options)
        return
    _check_database(options)
    if options.kind not in _NEEDED:
        check = SOURCES.get(options.kind).check
        if check is not None:
            check(options)
    elif options.kind == "duckdb":
        _check_query(options)
    else:
        _check_server(options)


def _check_files(options: SourceKeys) -> None:
    if not options.path or not all(isinstance(p, str) and p for p in options.path):
        raise wrong_source("there is no path", 'such as path = "data/*.parquet"')
    if "-" in options.path and len(options.path) > 1:
        raise wrong_source("standard input and files cannot be mixed", 'path = "-"')
    for text in options.path:
        if "://" in text:
            if not is_object_url(text):
                raise wrong_source(f"no files are read from {text.partition('://')[0]}:// URLs", URLS)
            object_path(text)
    for key, words in (("complete", ("rename", "done")), ("eof", ("hold", "close"))):
        if getattr(options, key) not in words:
            raise wrong_source(f"unknown {key} = {getattr(options, key)!r}", ", ".join(words))
    if options.stdin and (options.rows is not None or options.every == "files"):
        raise wrong_source(
            "records on standard input are cut into steps by their own time or step number only",
            "time_column, with or without every",
        )
    if options.stdin and options.lag is not None:
        raise wrong_source("lag has no meaning for standard input", "leave it out")
    unused = "complete" if options.stdin else "eof"
    if getattr(options, unused) != {"complete": "rename", "eof": "hold"}[unused]:
        what = "standard input" if options.stdin else "files"
        raise wrong_source(f"{unused} has no meaning for {what}", "leave it out")


def _check_database(options: SourceKeys) -> None:
    if options.every == "files":
        raise wrong_source('every = "files" has no meaning without files', "a calendar")
    if options.end == "data":
        raise wrong_source(
            'end = "data" fits files only: which periods of a database are read must be public',
            'a day, a step number, or "today"',
        )


def _check_query(options: SourceKeys) -> None:
    if options.shape == "stays":
        return
    if options.time_column is not None:
        raise wrong_source(
            "time_column has no meaning for a query, which says itself what is in a step",
            'leave it out; shape = "stays" needs it for the start of a stay',
        )
    if options.late == "next-step":
        raise ConfigError(
            "a query cannot tell late records from old ones",
            where=f"{_WHERE} late",
            allowed="error (released steps are compared), drop-and-count-nothing (they are not)",
        )


def _check_server(options: SourceKeys) -> None:
    for key in ("url", "url_env", "xid_column"):
        value = getattr(options, key)
        if value is not None and (not isinstance(value, str) or not value):
            raise wrong_source(f"{key} is not a text, or is empty", "a text")
    if (options.url is None) == (options.url_env is None):
        raise wrong_source(
            "url and url_env are both missing, or both given",
            "one of the two: the server's URL, or the name of the environment variable that holds it",
        )
    _check_table(options)
    if options.every is None and options.shape != "stays":
        raise wrong_source("every is missing: a step of a database is a period of a calendar", '"week"')
    if options.wait is not None:
        duration(options.wait, "wait")
    keeps_numbers = options.kind == "postgres" and options.shape != "stays"
    if keeps_numbers and options.late == "next-step" and options.xid_column is None:
        raise wrong_source(
            "xid_column is missing: updates and rewrites of a table change the transaction numbers that the server "
            "keeps, and its rows would be counted twice",
            "a column of the type xid8 with DEFAULT pg_current_xact_id(), or another rule for late records",
        )


def _check_table(options: SourceKeys) -> None:
    """That one thing is read: a table, or where it is read whole, the answer to a query."""
    if options.kind == "postgres" and options.shape != "changes":
        if (options.table is None) == (options.query is None):
            raise wrong_source("nothing says what is read, or two keys do", "one of table and query")
    elif options.query is not None:
        raise wrong_source(
            "query has no meaning for a table that grows, whose rows are told apart by their transactions",
            'table (which may be a view); or shape = "snapshots" or "stays", which read the whole answer',
        )
    key = "table" if options.query is None else "query"
    value = getattr(options, key)
    if not isinstance(value, str) or not value.strip():
        raise wrong_source(f'{key} is missing, which kind = "{options.kind}" needs', "a text")


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


@dataclass(frozen=True, kw_only=True)
class SourceOptions(SourceKeys):
    """Where records come from, and how they are cut into steps: the checked values of all keys of ``[source]``.

    Errors:
        ConfigError: a value is not allowed, or keys contradict each other. It names the key and what is allowed.
    """

    def __post_init__(self) -> None:
        check_kind(self)
        check_keyed(self)
        for key in ("time_column", "op_column", "user_column"):
            value = getattr(self, key)
            if value is not None and (not isinstance(value, str) or not value):
                raise wrong_source(f"{key} is not a column name", "a text")
        if self.op_column is not None and self.op_column == self.time_column:
            raise wrong_source("op_column and time_column are the same column", "two columns")
        if not isinstance(self.op_values, Operations):
            words = Operations if self.key_column is None else KeyedOperations
            object.__setattr__(self, "op_values", words.parse(self.op_values))
        elif self.key_column is not None and self.op_column is not None and self.op_values == Operations():
            object.__setattr__(self, "op_values", KeyedOperations())
        if self.op_column is None and self.op_values != Operations():
            raise wrong_source("op_values has no meaning without op_column", "op_column")
        if self.user_column is not None and self.user_column in (self.time_column, self.op_column):
            raise wrong_source("user_column is also the time column or the operation column", "two columns")
        if self.late not in _LATE:
            raise wrong_source(f"unknown late = {self.late!r}", ", ".join(_LATE))
        if not isinstance(self.offsets, bool):
            raise wrong_source(f"offsets = {self.offsets!r} is no boolean", "true or false")
        if self.offsets and (self.time_column is None or self.every is None):
            raise wrong_source(
                "offsets has no meaning without a calendar", "time_column and every, or leave it out"
            )
        if self.period_columns is not None:
            self._check_wide()
        elif self.rows is not None or self.every == "files":
            self._check_without_time()
        else:
            self._check_times()

    def _check_wide(self) -> None:
        """Check the keys of files with one column per period."""
        for key in ("time_column", "every", "rows", "start", "end", "op_column"):
            if getattr(self, key) is not None:
                raise wrong_source(
                    f"{key} has no meaning with period_columns: each period is a column", "leave it out"
                )
        if self.late != "error" or self.stdin or self.user_column is None:
            key = "late" if self.late != "error" else "path" if self.stdin else "user_column"
            raise wrong_source(
                f"{key} does not fit period_columns",
                'late = "error", files, and user_column, the column that names the person of a row',
            )
        given = self.period_columns
        if isinstance(given, str):
            if len(_PERIOD.findall(given)) != 1 or given.count("{column}") > 1:
                raise wrong_source(
                    f"period_columns = {given!r} does not show the place of the period's number",
                    'one {period} (or {period:02}), such as "poor_{period}"',
                )
            return
        texts = isinstance(given, list | tuple) and all(isinstance(name, str) and name for name in given)
        if not given or not texts or len(set(given)) != len(given) or self.user_column in given:
            raise wrong_source(
                "period_columns is not a list of different columns without user_column",
                'such as ["m1", "m2"]',
            )
        object.__setattr__(self, "period_columns", tuple(given))

    def _check_without_time(self) -> None:
        if self.rows is not None and self.every is not None:
            raise wrong_source("every and rows are both given", "one of the two")
        if self.rows is not None and (
            isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1
        ):
            raise wrong_source(f"rows = {self.rows!r} is not a number of rows", "a whole number, at least 1")
        cut = 'every = "files"' if self.rows is None else f"rows = {self.rows}"
        for key in ("time_column", "start", "end"):
            if getattr(self, key) is not None:
                raise wrong_source(
                    f"{key} has no meaning with {cut}: records are taken in the order of the files",
                    f"leave {key} out (and name a time column in the schema's ignore list)",
                )
        if self.late != "error":
            raise wrong_source(f"late has no meaning with {cut}", "leave it out")

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
        if not isinstance(every, str):
            raise wrong_source(f"unknown every = {every!r}", EVERY)
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
        """Whether released steps can be read again from the source, for comparison."""
        if reads_now(self):
            return False
        if self.kind not in KINDS:
            return SOURCES.get(self.kind).repeatable
        return self.kind in ("duckdb", "postgres") or (self.kind == "files" and not self.stdin)

    @property
    def always_compared(self) -> bool:
        """Whether every run must compare released steps with the source, because only they show a late end."""
        return self.key_column is not None and needs_comparison(self)

    @property
    def whole_tables(self) -> bool:
        """Whether a step holds all records that exist, and the stream finds the changes."""
        return self.key_column is not None and gives_whole_tables(self)

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
        if self.key_column is not None:
            facts += keyed_public(self)
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
        if self.period_columns is not None:
            # A list may grow, so it is not pinned itself. The comparison of released periods notices other changes.
            words["period_columns"] = (
                self.period_columns if isinstance(self.period_columns, str) else "listed"
            )
        return {
            **words,
            **user,
            **keyed_pinned(self),
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
