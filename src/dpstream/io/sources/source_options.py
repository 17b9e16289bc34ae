"""The ``[source]`` table of a configuration file: how records become steps. Everything here is public.

What each key may hold, and with what it means something, is declared with it (``source_keys.py``). Here are the values
that do not fit each other, and what follows from all of them.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

from dpstream.core.errors import ConfigError
from dpstream.core.paths import sha256_hex
from dpstream.core.showing import templates
from dpstream.core.tables import KeyRules
from dpstream.io.objects import URLS, is_object_url, object_path
from dpstream.io.sources.calendar import EVERY, Grid, StepNumbers, day_number, period_grid
from dpstream.io.sources.operations import BY_KEY, Operations
from dpstream.io.sources.source_keys import (
    CUTS,
    KINDS,
    RECORDS,
    SOURCES,
    Late,
    SourceKeys,
    check_keys,
    duration,
    keys_of_kind,
    meaningless,
    other_kind,
    rows_of_source,
    wrong_source,
)

if TYPE_CHECKING:
    from jinja2 import Template

_WHERE = "[source]"
#: kind -> keys that a file must write.
_NEEDED = {"duckdb": ("database", "query"), "postgres-changes": ("table", "slot", "publication")}
_LATE: tuple[Late, ...] = get_args(Late)


_COLUMNS = ("key_column", "time_column", "delete_time_column", "op_column", "user_column", "xid_column")


def _check_paths(options: SourceKeys) -> None:
    if not options.path or not all(isinstance(p, str) and p for p in options.path):
        raise wrong_source("path is missing", rows_of_source(())["path"].allowed)
    if "-" in options.path and len(options.path) > 1:
        raise wrong_source("path mixes standard input and files", 'path = "-"')
    for text in options.path:
        if "://" in text:
            if not is_object_url(text):
                raise wrong_source(f"files cannot be read from {text.partition('://')[0]}:// URLs", URLS)
            object_path(text)


#: The place of a period's number in ``period_columns``.
PERIOD = re.compile(r"\{period(?::0([1-9]))?\}")


@dataclass(frozen=True, kw_only=True)
class SourceOptions(SourceKeys):
    """Where records come from, and how they are cut into steps: the checked values of all keys of ``[source]``.

    Errors:
        ConfigError: a value is not allowed, or keys contradict each other. It names the key and what is allowed.
    """

    def __post_init__(self) -> None:
        if self.kind not in SOURCES.names():
            raise wrong_source(f"unknown kind = {self.kind!r}", ", ".join(SOURCES.names()))
        check_keys(self)
        if self.kind == "files":
            _check_paths(self)
        for refused, error in self._refusals():
            if refused:
                raise error
        for needed, applies, why in self._needs():
            for name in needed if applies else ():
                if getattr(self, name) is None:
                    raise wrong_source(
                        f"{name} is missing, which {why} needs", rows_of_source(())[name].allowed
                    )
        for one, other in combinations(_COLUMNS, 2):
            if getattr(self, one) is not None and getattr(self, one) == getattr(self, other):
                raise wrong_source(f"{one} and {other} name one column", "two columns")
        if not isinstance(self.op_values, Operations):
            object.__setattr__(
                self, "op_values", Operations.parse(self.op_values, keyed=self.records != "events")
            )
        elif self.records != "events" and self.op_column is not None and self.op_values == Operations():
            object.__setattr__(self, "op_values", BY_KEY)
        kind = other_kind(self.kind)
        if kind is not None and kind.check is not None:
            kind.check(self)
        if self.period_columns is not None:
            self._check_wide(self.period_columns)
        elif self.cut == "calendar":
            self._check_calendar(str(self.every))
        elif self.cut == "numbers":
            self._check_numbers()

    def _needs(self) -> Iterator[tuple[tuple[str, ...], bool, str]]:
        """Keys that a file must write, whether it must, and why."""
        kind, whole = self.kind, self.records in ("snapshots", "stays")
        stored = kind in ("postgres", "mysql", "spark")
        other = other_kind(kind)
        named = f'kind = "{kind}"'
        yield _NEEDED.get(kind, ()) if other is None else other.needed, True, named
        yield ("table",), kind == "postgres" and not whole, named
        yield ("every",), kind.startswith("postgres") and self.records != "stays", named
        yield ("time_column",), stored and not whole and self.table is not None, "table"
        yield ("xid_column",), kind == "postgres" and not whole and self.late == "next-step", self._late
        yield ("time_column", "delete_time_column"), self.records == "stays", RECORDS["stays"]
        yield ("user_column",), self.cut == "columns", CUTS["columns"]
        yield ("op_column",), self.op_values not in (Operations(), BY_KEY), "op_values"

    @property
    def _late(self) -> str:
        return f'late = "{self.late}"'

    def _refusals(self) -> Iterator[tuple[bool, ConfigError]]:
        """Values that do not fit the others: whether it is so, and the refusal."""
        kind, records, late = self.kind, self.records, self.late
        keys, whole, stays = keys_of_kind(kind), records in ("snapshots", "stays"), records == "stays"
        grows = kind == "postgres" and not whole
        for pair in (("url", "url_env"), ("table", "query")):
            several = (getattr(self, pair[0]) is None) == (getattr(self, pair[1]) is None)
            named = " or ".join(pair)
            applies = set(pair) <= {*keys} and not (grows and "table" in pair)
            yield applies and several, wrong_source(f"give either {named}", f"one of {named}")
        yield (
            grows and self.query is not None,
            meaningless(
                "query", "for a growing table", 'table (or a view); or shape = "snapshots" or "stays"'
            ),
        )
        yield (
            not whole and self.query is not None and self.time_column is not None,
            meaningless("time_column", "with query", 'leave it out; or shape = "stays"'),
        )
        here = f"with {RECORDS['stays']}" if stays else "without files"
        yield (
            self.cut == "each file" and (kind != "files" or self.stdin or stays),
            meaningless(CUTS["each file"], here, "a calendar, or step numbers"),
        )
        yield (
            self.end == "data" and (kind != "files" or stays),
            meaningless('end = "data"', here, 'a day, a step number, or "today"'),
        )
        yield (
            records == "snapshots" and kind == "files" and self.cut != "each file",
            wrong_source("each file is a snapshot and a step", CUTS["each file"]),
        )
        yield (
            records in ("changes", "states") and kind in ("postgres", "mysql"),
            wrong_source(
                "a table's unordered rows cannot be changes by key",
                'shape = "snapshots" or "stays", kind = "postgres-changes", or insert_only = true',
            ),
        )
        yield (
            # A left-out end would keep its record for ever; of a database nobody sees which records are late.
            late not in self.late_rules and not (kind == "postgres" and late == "next-step"),
            meaningless(
                self._late, f'with kind = "{kind}" and {RECORDS[records]}', ", ".join(self.late_rules)
            ),
        )
        compared = stays and late == "error"
        yield compared and self.shrinks != 0.1, meaningless("shrinks", f"with {self._late}")
        yield (
            # The first end would delete the record, although another stay of its key is still open.
            compared and self.known == "update",
            meaningless(
                'known = "update"', f"with {self._late}", 'error; with late = "next-step" also update'
            ),
        )
        yield (
            self.cut in ("calendar", "numbers") and self.time_column is None and kind == "files",
            wrong_source(
                "the end of a step is undefined", 'time_column (with every), every = "files", or rows'
            ),
        )

    def _check_wide(self, given: object) -> None:
        """Check ``period_columns``: files with one column per period."""
        if isinstance(given, str):
            if len(PERIOD.findall(given)) != 1 or given.count("{column}") > 1:
                raise wrong_source(
                    f"period_columns = {given!r} lacks the period's number",
                    'one {period} (or {period:02}), such as "poor_{period}"',
                )
            return
        texts = isinstance(given, list | tuple) and all(isinstance(name, str) and name for name in given)
        names = tuple(given) if isinstance(given, list | tuple) else ()
        if not names or not texts or len(set(names)) != len(names) or self.user_column in names:
            raise wrong_source(
                "period_columns: expected different columns without user_column", 'such as ["m1", "m2"]'
            )
        object.__setattr__(self, "period_columns", names)

    def _check_calendar(self, every: str) -> None:
        start = _day(self.start, "start")
        if start is None:
            raise _wrong("start", "is missing")
        object.__setattr__(self, "start", start)
        grid = period_grid(every, start, _WHERE)
        if self.end not in ("today", "data"):
            end = _day(self.end, "end")
            if end is None:
                raise _wrong("end", "is missing")
            self._check_order(start, end)
            grid.period(grid.step(day_number(end)))  # has a last day
            object.__setattr__(self, "end", end)

    def _check_numbers(self) -> None:
        start = 1 if self.start is None else self.start
        if isinstance(start, bool) or not isinstance(start, int) or abs(start) > 2**53:
            raise wrong_source("start: expected a step number", f"a whole number, or every = {EVERY}")
        object.__setattr__(self, "start", start)
        if self.end == "data":
            return
        if isinstance(self.end, bool) or not isinstance(self.end, int):
            raise _wrong("end", "is missing" if self.end is None else "must be a step number")
        self._check_order(start, self.end)

    @staticmethod
    def _check_order(start: Any, end: Any) -> None:
        if end < start:
            raise wrong_source("end precedes start", "start or later")

    @classmethod
    def parse(cls, table: Mapping[str, Any], own: Any = None) -> Self:
        """Read the ``[source]`` table of a configuration file.

        Args:
            table: its keys and values.
            own: the values of the keys that only this kind of source has; they are not in ``table``.

        Errors:
            ConfigError: an unknown key, or a value that is not allowed.

        >>> options = SourceOptions.parse({"path": "data/*.csv", "rows": 50})
        >>> options.rows
        50
        """
        known = rows_of_source(())
        for key in table:
            if key not in known:
                raise wrong_source(f"unknown key {key!r}", ", ".join(known))
        values = dict(table)
        path = values.pop("path", ())
        paths = (path,) if isinstance(path, str) else path
        if not isinstance(paths, list | tuple):
            raise wrong_source("path: expected a text or texts", '"data/*.csv"')
        return cls(path=tuple(paths), own=own, **values)

    @property
    def grid(self) -> Grid | None:
        """The public step borders; None with ``rows``, ``every = "files"`` or ``period_columns``."""
        if self.cut == "calendar" and isinstance(self.start, datetime.date):
            return period_grid(str(self.every), self.start, _WHERE)
        return StepNumbers(int(self.start)) if self.cut == "numbers" else None  # type: ignore[arg-type]  # checked

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
            number = PERIOD.search(self.period_columns)
            return f"{step:0{number[1] or 1}}" if number else None
        if self.period_columns is not None:
            return self.period_columns[step - 1] if step <= len(self.period_columns) else None
        return None if self.grid is None else self.grid.period_name(step)

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
            raise wrong_source("the end of a step is not public", "every, start and end")
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
    def late_rules(self) -> tuple[Late, ...]:
        """The rules for late records that fit the other keys."""
        blind = self.kind in ("duckdb", "mysql", "spark") or (
            self.kind == "postgres" and self.xid_column is None
        )
        if self.cut not in ("calendar", "numbers") or self.records == "snapshots":
            return ("error",)
        refused = {"next-step"} if blind and self.records != "stays" else set()
        if self.records in (
            "changes",
            "stays",
        ):  # a late delete or end that was left out would leave its record
            refused.add("drop-and-count-nothing")
        return tuple(rule for rule in _LATE if rule not in refused)

    @property
    def accepts_late(self) -> str:
        """Which other rules take late records, for errors about one: those that this source can have."""
        taken = [f'"{rule}"' for rule in self.late_rules[1:]]
        return f"[source] late = {' or '.join(taken)}" if taken else "no such records"

    @property
    def id_column(self) -> str | None:
        """The column that says whose row it is: a user's, or which record's."""
        return self.user_column if self.key_column is None else self.key_column

    @property
    def step_column(self) -> str | None:
        """The column whose time gives a row its step, where one time does."""
        return None if self.records == "stays" else self.time_column

    @property
    def delete_column(self) -> str | None:
        """The column of inserts and deletes, where a row is an event of its own. Operations by key are read later."""
        return self.op_column if self.key_column is None else None

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
        return ["shape", *(["unknown", "known"] if self.records == "changes" else []), "repeated"]

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
        kind = other_kind(self.kind)
        of_kind = () if kind is None else kind.public(self) if callable(kind.public) else kind.public
        text = _words().render(options=self, by_key=by_key, of_kind=of_kind)
        return tuple(" ".join(part.split("\n")).strip() for part in re.split(r"\n\n+", text.strip()))

    def pinned(self) -> dict[str, Any]:
        """The settings that may not change while a stream lives, as JSON values: how a record gets its step.

        ``end`` is pinned as ``"public"`` (a day, a step number, ``"today"``) or ``"data"``. The owner may move a public
        end, because it says nothing about the data. But a stream with a public end may not change to ``"data"``. The
        place of the files is not pinned.
        """
        operations = self.op_values.pinned()
        query = None if self.query is None else " ".join(self.query.split())
        pinned: dict[str, Any] = {
            "op_values": None if operations == Operations().pinned() else operations,
            "kind": "stdin" if self.stdin else self.kind if self.kind != "files" else None,
            # A manifest identifies the query without quoting it.
            "query": query and "sha256:" + sha256_hex(query.encode()),
            "own": None if self.own is None else SOURCES.get(self.kind).pinned(self.own),
            "offsets": self.offsets or None,
            "user_column": self.user_column,
            "same_unit": self.same_unit,
            # A list may grow, so it is not pinned itself. The comparison of released periods notices other changes.
            "period_columns": "listed" if isinstance(self.period_columns, tuple) else self.period_columns,
        }
        if self.key_column is not None:
            rules = self.key_rules
            pinned |= {"key_column": self.key_column, "shape": self.shape, "updates": self.updates}
            pinned |= {name: getattr(rules, name) for name in ("unknown", "known", "repeated", "shrinks")}
            pinned["delete_time_column"] = self.delete_time_column
        return {
            **{key: value for key, value in pinned.items() if value is not None},
            "time_column": self.time_column,
            "every": self.every,
            "rows": self.rows,
            "start": self.start.isoformat() if isinstance(self.start, datetime.date) else self.start,
            "end": self.end if self.end in (None, "data") else "public",
            "op_column": self.op_column,
            "late": None if self.grid is None else self.late,
        }


def _wrong(key: str, what: str) -> ConfigError:
    """The refusal of a value; the key's declaration says why, and what is allowed."""
    row = rows_of_source(())[key]
    return wrong_source(f"{key} {what}: {row.reason}", row.allowed)


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
    raise wrong_source(f"{key} = {value!r}: expected a day", 'such as "2026-01-05"')


@cache
def _words() -> Template:
    """What ``declared_public`` says."""
    made = templates()
    made.filters["quoted"] = repr
    return made.from_string(Path(__file__).with_name("words.j2").read_text(encoding="utf-8"))
