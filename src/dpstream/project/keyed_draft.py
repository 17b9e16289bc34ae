"""Recognises tables that change in private data: change feeds by key, snapshots of one table, and stays.

What is recognised is a guess that is read off the data; ``dpstream init`` writes it down for the owner to look at.

Trusted base: owner (drafts from private records).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError
from dpstream.core.schema.dates import read_date, read_time
from dpstream.io.sources.formats import files_of, read_sample
from dpstream.io.sources.operations import DELETE, INSERT, UPDATE
from dpstream.project.column_draft import CONFIRM, FILL_IN, Drafted, is_text, may_identify, words_in

#: Words of known change feeds (also Debezium's, and those of Delta tables), in small letters.
_WORDS = {
    INSERT: ("insert", "i", "c", "create", "r", "read"),
    UPDATE: ("update", "u", "update-after", "update_postimage", "after"),
    DELETE: ("delete", "d", "remove"),
    "ignore": ("update-before", "update_preimage", "before"),
}
#: Words in the name of a column of operations, which may then hold inserts only.
_OPERATION = re.compile("op|operation|dml|cdc|change|action")
_DEFAULT_WORDS = {"insert", "update", "update-after", "delete", "update-before"}
#: Whole sets of words of known feeds: the sample need not have all of them.
_FEEDS: Sequence[Mapping[str, list[str]]] = (
    {INSERT: ["c", "r"], UPDATE: ["u"], DELETE: ["d"]},
    {INSERT: ["i"], UPDATE: ["u"], DELETE: ["d"]},
    {INSERT: ["I"], UPDATE: ["U"], DELETE: ["D"]},
    {INSERT: ["INSERT"], UPDATE: ["UPDATE"], DELETE: ["DELETE"]},
)
#: Words in the name of a column that holds ends.
_ENDS = re.compile(
    "end(ed)?|until|to|closed?|deleted?|leave|left|gone|departed|departure|exit|out|discharge|death"
)
#: ... and starts. Whole numbers are taken for times only where the names of both columns say so.
_STARTS = re.compile(
    "start(ed)?|begin|began|from|since|open(ed)?|created?|entry|entered|in|arrival|arrived|admission|birth|launch(ed)?"
)
#: Words in the name of a column of numbers that says when something happened.
_WHEN = re.compile("step|time|when|at|t|ts|period|day|week|month|year|date")
_KEYS = re.compile(".*(id|key)|number|no|nr|code")
#: What a step number looks like.
_NUMBER = re.compile(r"-?[0-9]{1,18}")
#: Files that are compared, and rows of each.
_FILES, _ROWS = 4, 100_000
#: How many keys neighbouring snapshots share, and how many cells of the rows of shared keys are equal.
_SHARED, _EQUAL = 0.3, 0.7
#: Rows of a column that are looked at before all are.
_FIRST = 1000
#: Columns that are tried as keys.
_MAX_COLUMNS = 40


@dataclass(frozen=True)
class Recognised:
    """A table that changes, and its columns.

    Attributes:
        shape: as ``[source] shape``; ``events`` for a feed whose rows are read without keys.
        key: the column of the keys; None of such a feed.
        operation: the column of operations, and ``words`` that are not the usual ones.
        start, end: the columns of a stay's times.
        when: the column that says when a row of a feed happened, where it was found and not named.
        updates: of a feed without keys, words of rows that say what changed, not what was there before: nothing reads
            them without a key.
    """

    shape: str
    key: str | None
    operation: str | None = None
    words: Mapping[str, list[str]] = field(default_factory=dict)
    start: str | None = None
    end: str | None = None
    when: str | None = None
    updates: tuple[str, ...] = ()

    @property
    def columns(self) -> set[str]:
        """Columns beside the attributes of the records."""
        return {
            name for name in (self.key, self.operation, self.start, self.end, self.when) if name is not None
        }

    def source(self) -> dict[str, Any]:
        """Keys of ``[source]``, without those of the calendar."""
        keys: dict[str, Any] = {}
        if self.key is not None:
            why = "it looks like the key; at most one record at a time has each"
            keys["key_column"] = Drafted(self.key, why, CONFIRM)
        if self.shape in ("snapshots", "stays"):
            keys["shape"] = Drafted(self.shape, mark=CONFIRM)
        if self.operation is not None:
            keys["op_column"] = Drafted(self.operation, "its words are those of a change feed", CONFIRM)
        if self.updates:
            words = ", ".join(self.updates)
            why = f"rows with {words} lack the old row: name the key (dpstream init --key-column)"
            keys["op_column"] = Drafted(self.operation, why, FILL_IN)
        if self.words:
            keys["op_values"] = Drafted(dict(self.words), "what the words of the feed mean", CONFIRM)
        if self.end is not None:
            why = "it is never before the start; empty cells are records still there"
            keys["delete_time_column"] = Drafted(self.end, why, CONFIRM)
        return keys


def recognise(
    data: Any,
    table: Any,
    *,
    key_column: str | None = None,
    time_column: str | None = None,
    delete_time_column: str | None = None,
    whole: bool = False,
) -> Recognised | None:
    """What the data look like; None where no record of theirs seems to have a key, or nothing seems to leave.

    Args:
        data: a path, where several files may be snapshots of one table.
        table: a sample of all of it.
        key_column: the owner's word for which column the key is.
        time_column: the column that cuts the data into steps.
        delete_time_column: the owner's word for which column holds the ends of stays.
        whole: ``table`` is of a database, which can be read again and again, so one reading may be one snapshot.

    Errors:
        ConfigError: nothing fits ``key_column`` or ``delete_time_column``.
    """

    keys = [key_column] if key_column is not None else key_candidates(table, time_column)
    if delete_time_column is not None:
        found = _stays(table, keys, time_column, delete_time_column)
        if found is None:
            raise ConfigError(
                f"no stays fit the ends in {delete_time_column!r}",
                where="delete time column",
                allowed="a column of days or numbers, never before those of --time-column, and a unique --key-column",
            )
        return found
    found = _feed(table, keys, time_column)
    files = [] if whole or not isinstance(data, (str, Path)) else files_of(data)
    if time_column is None and found is not None and (whole or len(files) == 1):
        found = replace(found, when=_when(table, found))
    elif time_column is None and found is None:
        found = _snapshots(files, keys)
    if found is None:
        found = _stays(table, keys, time_column)
    if found is None and whole and key_column is not None and _once(table.column(key_column)):
        found = Recognised("snapshots", key_column)
    if found is None and key_column is not None:
        raise ConfigError(
            f"the key {key_column!r} fits neither a change feed nor snapshots nor stays",
            where="key column",
            allowed="a column of operations; several files with each key once; or rows with a start and an end. If "
            f"rows are only added, draft without the key, then set key_column = {json.dumps(key_column)}, "
            'insert_only = true and unit = "record"',
        )
    return found


def event_operations(table: Any) -> Recognised | None:
    """A feed whose rows are read without keys; None where no column holds operations, or nothing leaves."""
    for name in table.column_names:
        found = _operations(name, table.column(name))
        if found is None:
            continue
        # The new row of an update comes, and its old one goes.
        new = [word for word in found.get(UPDATE, []) if "after" in word.lower() or "post" in word.lower()]
        words = {INSERT: found[INSERT] + new, DELETE: found.get(DELETE, []) + found.get("ignore", [])}
        updates = tuple(word for word in found.get(UPDATE, []) if word not in new)
        if not words[DELETE] and not _says(name, _OPERATION):
            continue
        words[DELETE] = words[DELETE] or [_delete_like(found[INSERT][0])]
        usual = set(words[INSERT] + words[DELETE]) <= _DEFAULT_WORDS
        return Recognised("events", None, name, {} if usual else words, updates=updates)
    return None


def are_operations(name: str, words: Sequence[str]) -> bool:
    """Whether the declared values of a column are words of a change feed: inserts, and what else happens (or its name
    says so)."""
    known = _meanings(words)
    return known is not None and (_says(name, _OPERATION) or DELETE in known or UPDATE in known)


def _meanings(words: Sequence[str]) -> dict[str, list[str]] | None:
    """The words of a column of operations by what they mean; None where one means nothing, or none an insert."""
    known = {kind: [word for word in words if word.lower() in those] for kind, those in _WORDS.items()}
    whole = sum(map(len, known.values())) == len(words) and known[INSERT]
    return {kind: found for kind, found in known.items() if found} if whole else None


def _whole_feed(words: Mapping[str, list[str]]) -> Mapping[str, list[str]]:
    """The words of the known feed that these belong to; else themselves."""
    for feed in _FEEDS:
        if all(set(found) <= set(feed.get(kind, ())) for kind, found in words.items()):
            return feed
    return words


def _delete_like(insert: str) -> str:
    """The word for deletes that goes with one for inserts."""
    word = "d" if len(insert) == 1 else "delete"
    return word.upper() if insert.isupper() else word


def key_candidates(table: Any, time_column: str | None) -> list[str]:
    """Columns that may be keys: texts or whole numbers without nulls; those whose names say so first."""
    names = [
        name
        for name in table.column_names[:_MAX_COLUMNS]
        if name != time_column and may_identify(table.column(name)) and not table.column(name).null_count
    ]
    return sorted(names, key=lambda name: not _says(name, _KEYS))


def _says(name: str, words: re.Pattern[str]) -> bool:
    """Whether one of the words is in a name."""
    return any(words.fullmatch(part) for part in words_in(name))


def _feed(table: Any, keys: Sequence[str], time_column: str | None) -> Recognised | None:
    for name in table.column_names:
        words = _operations(name, table.column(name)) if name != time_column else None
        if words is None:
            continue
        meaning = {word: kind for kind, found in words.items() for word in found}
        operations = [meaning[word] for word in table.column(name).to_pylist()]
        for key in keys:
            if key != name and all(
                # Most columns show at their beginning that they cannot be keys.
                _alternates(table.column(key).slice(0, rows).to_pylist(), operations[:rows])
                for rows in (_FIRST, table.num_rows)
            ):
                usual = set(meaning) <= _DEFAULT_WORDS
                return Recognised("changes", key, name, {} if usual else _whole_feed(words))
    return None


def _operations(name: str, column: Any) -> dict[str, list[str]] | None:
    """The words of a column of operations by what they mean; None where it is none."""
    import pyarrow.compute as pc

    if not is_text(column) or column.null_count:
        return None
    distinct = pc.unique(column.slice(0, _ROWS)).to_pylist()
    least = 1 if _says(name, _OPERATION) else 2
    if not least <= len(distinct) <= len(_WORDS) + 2 or len(pc.unique(column)) != len(distinct):
        return None
    return _meanings(distinct)


def _alternates(keys: Sequence[Any], operations: Sequence[str]) -> bool:
    """Whether each key is inserted where it is not there, and leaves where it is."""
    present: set[Any] = set()
    for key, operation in zip(keys, operations, strict=True):
        if operation == INSERT:
            if key in present:
                return False
            present.add(key)
        elif operation == DELETE:
            if key not in present:
                return False
            present.discard(key)
        elif operation == UPDATE and key not in present:
            return False
    return True


def _snapshots(files: Sequence[Path], keys: Sequence[str]) -> Recognised | None:
    """Whether neighbouring files hold mostly the same records."""
    if len(files) < 2:
        return None
    tables = [read_sample(file, _ROWS) for file in files[:_FILES]]
    if any(set(table.column_names) != set(tables[0].column_names) for table in tables):
        return None
    for key in keys:
        if all(_once(table.column(key)) for table in tables) and _alike(tables, key):
            return Recognised("snapshots", key)
    return None


def _once(column: Any) -> bool:
    return not column.null_count and bool(len(column.unique()) == len(column))


def _alike(tables: Sequence[Any], key: str) -> bool:
    """Whether neighbouring tables share most of their keys, and rows of one key most of their cells."""
    others = [name for name in tables[0].column_names if name != key]
    rows = [
        dict(zip(table.column(key).to_pylist(), table.select(others).to_pylist(), strict=True))
        for table in tables
    ]
    shared = kept = equal = 0
    for before, after in pairwise(rows):
        both = before.keys() & after.keys()
        shared, kept = shared + len(both), kept + min(len(before), len(after))
        equal += sum(before[k][name] == after[k][name] for k in both for name in others)
    return equal > 0 and shared >= _SHARED * kept and equal >= _EQUAL * shared * len(others)


def _when(table: Any, feed: Recognised) -> str | None:
    """The column of times of a feed in one file: days, or numbers whose name says so, that never go back."""
    for name in table.column_names:
        found = _times(table.column(name)) if name not in feed.columns else None
        if found is None or None in found or not (_are_days(found) or _says(name, _WHEN)):
            continue
        if all(earlier <= later for earlier, later in pairwise(found)):
            return str(name)
    return None


def _stays(
    table: Any, keys: Sequence[str], time_column: str | None, delete_time_column: str | None = None
) -> Recognised | None:
    """A start without nulls, an end that is never before it, and a key that no two rows share."""
    times = {name: found for name in table.column_names if (found := _times(table.column(name))) is not None}
    # Columns whose names say that they hold ends come first; others need an empty cell, a record that is still there.
    for end in sorted(times, key=lambda name: not _says(name, _ENDS)):
        ends, chosen = times[end], end == delete_time_column
        if delete_time_column is not None and not chosen:
            continue
        if not (chosen or _says(end, _ENDS)) and (None not in ends or not _are_days(ends)):
            continue
        for start in sorted(times, key=lambda name: not _says(name, _STARTS)):
            starts = times[start]
            if start == end or None in starts or time_column not in (None, start):
                continue
            if _are_days(starts) != _are_days(ends):
                continue
            if not _are_days(starts) and time_column is None and not _says(start, _STARTS):
                continue
            if all(b is None or a <= b for a, b in zip(starts, ends, strict=True)):
                key = next((k for k in keys if k not in (start, end) and _once(table.column(k))), None)
                if key is not None:
                    return Recognised("stays", key, start=start, end=end)
    return None


def _times(column: Any) -> list[Any] | None:
    """The times of a column, None where a cell is empty: days as ISO texts, or whole numbers (years, numbers of days
    or steps); None where it holds anything else."""
    import pyarrow as pa

    kind = column.type
    found: list[Any] = []
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        try:
            return [None if value is None else value.isoformat()[:10] for value in column.to_pylist()]
        except (pa.ArrowException, ValueError, OverflowError):
            return None  # a zone or a year that no calendar has: said where the column is read as one
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = column.to_pylist()
        if all(number is None or float(number).is_integer() for number in numbers):
            found = [None if number is None else int(number) for number in numbers]
    elif is_text(column):
        for text in column.to_pylist():  # most columns of texts show early that they hold no times
            if text is None or not text.strip():
                found.append(None)
            elif _NUMBER.fullmatch(text.strip()):
                found.append(int(text))
            elif read_date(text) is None and read_time(text) is None:
                return None
            else:
                found.append(text[:10])
    else:
        return None
    return found if len({type(value) for value in found} - {type(None)}) == 1 else None


def _are_days(times: Sequence[Any]) -> bool:
    return any(isinstance(value, str) for value in times)
