"""Records that stay: the table of a step from the table before it, by as few deletes and inserts as the law allows.

Where a record that leaves and one that comes agree in most columns, they may be one record that is updated: it keeps
its id and the cells that do not change. The table as a multiset of codes is the same.

Public post-processing: it reads the previous table, the previous model and the new one, which are released, and
a seed. The guarantee is that of the models.

How the new table of ``m`` rows comes from the old one of ``n``, with ``p`` and ``q`` the old and the new model's
probabilities: a record ``x`` stays with probability ``min(1, m q(x) / (n p(x)))``; the places that are left are
filled from the new model, a draw being accepted with probability ``max(0, 1 - n p(x) / (m q(x)))``. So every
value combination has ``min(n p, m q)`` records that stay and ``max(0, m q - n p)`` that come, in expectation:
``m q`` together, which is what a fresh sample has, and no way to do so keeps more (the overlap of two measures is
the sum of their minima: a maximal coupling). Coins are dealt rather than tossed one by one, so that the table
keeps the low sampling error of fresh samples.

Mechanisms that release a table instead of a model are carried by the overlap of the two tables themselves; those whose
records have places, by what of the old table fits the new counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed, PlacedRecords, Synthesis, SyntheticTable
from dpstream.core.errors import StoreDamagedError
from dpstream.core.schema import Schema
from dpstream.core.schema.domain import Codes
from dpstream.io.sinks.change_tables import DELETE, ID, INSERT, OP, UPDATE, cells_differ

# Records that leave and records that come, paired so that few cells change. Public data only, nothing is drawn.

#: Records that are compared each with each; more are cut into parts of neighbours.
_COMPARED = 1024

_Places = NDArray[np.int64]


def most_that_change(columns: int) -> int:
    """How many columns of a record may change at most, so that more than half of them stay as they are.

    >>> [most_that_change(columns) for columns in (1, 2, 3, 4, 10)]
    [0, 0, 1, 1, 4]
    """
    return (columns - 1) // 2


def pair_alike(leaving: Codes, coming: Codes, may_change: NDArray[np.bool_]) -> tuple[_Places, _Places]:
    """Pairs whose columns agree, more than half of them; the most alike first.

    Args:
        leaving, coming: shape (records, columns).
        may_change: for each column whether it may differ.

    Returns:
        Positions in both, in the order of ``leaving``; each at most once.

    Cost: linear in the records; about 0.1 s for a thousand of each.
    """
    none = np.zeros(0, dtype=np.int64)
    first, second = np.arange(len(leaving)), np.arange(len(coming))
    found = [(none, none)]
    order = np.flatnonzero(may_change).tolist()
    # Columns that must agree decide first which records are neighbours; then one way round, and the other.
    for columns in (order, order[::-1]):
        for left, come in _neighbours(leaving, coming, first, second, columns, ~may_change):
            one, other = _closest(leaving[left], coming[come], may_change)
            found.append((left[one], come[other]))
        left, come = (np.concatenate(part) for part in zip(*found, strict=True))
        first, second = (
            np.setdiff1d(np.arange(len(leaving)), left),
            np.setdiff1d(np.arange(len(coming)), come),
        )
    inorder = np.argsort(left)
    return left[inorder], come[inorder]


def _neighbours(
    leaving: Codes,
    coming: Codes,
    first: _Places,
    second: _Places,
    columns: list[int],
    fixed: NDArray[np.bool_],
) -> Iterator[tuple[_Places, _Places]]:
    """Parts of the records ``first`` of those that leave, and ``second`` of those that come."""
    both = np.concatenate([leaving[first], coming[second]])
    # ``lexsort`` sorts by its last key first.
    keys = [*(both[:, i] for i in reversed(columns)), *(both[:, i] for i in np.flatnonzero(fixed))]
    order = np.lexsort(keys) if len(both) > _COMPARED else np.arange(len(both))
    for start in range(0, len(order), _COMPARED):
        part = order[start : start + _COMPARED]
        yield first[part[part < len(first)]], second[part[part >= len(first)] - len(first)]


def _closest(leaving: Codes, coming: Codes, may_change: NDArray[np.bool_]) -> tuple[_Places, _Places]:
    """Pairs of a few records, by the number of columns that differ; equal ones in their order."""
    columns = leaving.shape[1]
    differ = np.zeros((len(leaving), len(coming)), dtype=np.int16)
    for column in range(columns):
        weight = 1 if may_change[column] else columns
        differ += np.int16(weight) * (leaving[:, column, None] != coming[None, :, column])
    left: list[int] = []
    come: list[int] = []
    paired, taken = np.zeros(len(leaving), dtype=bool), np.zeros(len(coming), dtype=bool)
    for number in range(most_that_change(columns) + 1):
        alike = differ == number
        for row in np.flatnonzero(~paired & alike.any(axis=1)).tolist():
            places = np.flatnonzero(alike[row] & ~taken)
            if len(places):
                left.append(row)
                come.append(int(places[0]))
                paired[row] = taken[places[0]] = True
    return np.array(left, dtype=np.int64), np.array(come, dtype=np.int64)


# Released records as they stand in the state: a whole table, and what changed since, in segments. Public data only.
#
# A step adds a segment with its changes, and earlier ones stay as they were, so that they need not be written again. A
# segment that is at least half as large as the one before it is joined with it: there are at most as many as the
# logarithm of the number of records, and each record is written again as often.

_Ids = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Rows:
    """Records: ids that ascend, their codes, and their typed values (a pyarrow Table)."""

    ids: _Ids
    codes: Codes
    table: Any


@dataclass(frozen=True, repr=False)
class Segment:
    """Records that go, and then records that come, as arrays that are stored.

    Attributes:
        gone: ids; of records that are updated, too.
        ids: of the records that come.
        codes: in the smallest integers that hold them.
        table: the bytes of an Arrow stream.
    """

    gone: _Ids
    ids: _Ids
    codes: NDArray[Any]
    table: NDArray[np.uint8]

    @classmethod
    def of(cls, rows: Rows, gone: _Ids | None = None) -> Segment:
        """The changes that take the records ``gone`` away and bring ``rows``."""
        kind = np.uint8 if not rows.codes.size or rows.codes.max() < 256 else np.int32
        none = np.zeros(0, dtype=np.int64)
        table = _to_bytes(rows.table)
        return cls(none if gone is None else gone, rows.ids, rows.codes.astype(kind), table)

    @property
    def size(self) -> int:
        """How many records it speaks of."""
        return len(self.gone) + len(self.ids)

    def rows(self) -> Rows:
        """The records that come."""
        try:
            table = _from_bytes(self.table)
        except (TypeError, ValueError):
            raise _unreadable() from None
        if not len(self.codes) == len(self.ids) == table.num_rows:
            raise _unreadable()
        return Rows(self.ids.astype(np.int64), self.codes.astype(np.int32), table)


def _unreadable() -> StoreDamagedError:
    return StoreDamagedError("the last release's records are unreadable", where="state")


def grown(segments: tuple[Segment, ...], change: Segment, after: Rows) -> tuple[Segment, ...]:
    """The segments after one more step.

    Args:
        after: all records that there are then.
    """
    if not change.size:
        return segments
    found = [*segments, change]
    while len(found) > 2 and 2 * found[-1].size >= found[-2].size:
        last = found.pop()
        gone = np.union1d(found[-1].gone, last.gone)
        found[-1] = Segment.of(_followed(found[-1].rows(), last), gone)
    if len(found) == 2 and 2 * found[1].size >= found[0].size:
        found = [Segment.of(after)]
    return tuple(found)


def whole(segments: tuple[Segment, ...]) -> Rows:
    """All records that the segments lead to.

    Errors:
        StoreDamagedError: a segment contradicts itself.
    """
    rows = segments[0].rows()
    for segment in segments[1:]:
        rows = _followed(rows, segment)
    return rows


def pack_segments(segments: tuple[Segment, ...]) -> dict[str, NDArray[Any]]:
    """All arrays, by the number of their segment and their name."""
    return {
        f"{number}/{name}": getattr(segment, name)
        for number, segment in enumerate(segments)
        for name in ("gone", "ids", "codes", "table")
    }


def unpack_segments(arrays: dict[str, NDArray[Any]], number: int) -> tuple[Segment, ...]:
    """The inverse of ``pack_segments``, for this number of segments."""
    names = ("gone", "ids", "codes", "table")
    return tuple(Segment(*(arrays[f"{place}/{name}"] for name in names)) for place in range(number))


def _followed(rows: Rows, segment: Segment) -> Rows:
    """Records after the changes of a segment."""
    import pyarrow as pa

    come = segment.rows()
    stays = np.flatnonzero(~np.isin(rows.ids, segment.gone))
    ids = np.concatenate([rows.ids[stays], come.ids])
    order = np.argsort(ids, kind="stable")
    place = np.concatenate([stays, len(rows.ids) + np.arange(len(come.ids))])[order]
    table = pa.concat_tables([rows.table, come.table]).combine_chunks().take(pa.array(place))
    return Rows(ids[order], np.concatenate([rows.codes, come.codes])[place], table.combine_chunks())


def _to_bytes(table: Any) -> NDArray[np.uint8]:
    import pyarrow as pa

    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(buffer.getvalue(), dtype=np.uint8)


def _from_bytes(data: NDArray[np.uint8]) -> Any:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(np.ascontiguousarray(data))) as reader:
        return reader.read_all().combine_chunks()


Density = Callable[[Codes], NDArray[np.float64]]
_PREFIX = "records/"
#: Rounds of draws from the new model before the last few places are filled without looking at the old one.
_ROUNDS = 16


@dataclass(frozen=True)
class PersistentRecords:
    """The records of a released table.

    Attributes:
        codes: shape (rows, columns).
        ids: ascending; an id is never used twice in a stream.
        next_id: the first id that was never used.
        table: typed values, as released, without ids.
        segments: the same, as the state holds it.
    """

    codes: Codes
    ids: NDArray[np.int64]
    next_id: int
    table: Any
    segments: tuple[Segment, ...]

    @cached_property
    def with_ids(self) -> Any:
        """The table as released: ids first."""
        return _numbered(self.table, self.ids)

    @classmethod
    def of(cls, rows: Rows, next_id: int, segments: tuple[Segment, ...] | None = None) -> PersistentRecords:
        """Some records; without ``segments`` they are stored whole."""
        parts = (Segment.of(rows),) if segments is None else segments
        return cls(rows.codes, rows.ids, next_id, rows.table, parts)

    def pack(self) -> Packed:
        """Arrays and JSON."""
        meta = {"next_id": self.next_id, "segments": len(self.segments)}
        return Packed(meta, pack_segments(self.segments))

    @classmethod
    def unpack(cls, packed: Packed) -> PersistentRecords:
        """The inverse of ``pack``."""
        try:
            segments = unpack_segments(packed.arrays, int(packed.meta["segments"]))
            next_id = int(packed.meta["next_id"])
        except (KeyError, TypeError, ValueError):
            raise _unreadable() from None
        return cls.of(whole(segments), next_id, segments)


@dataclass(frozen=True)
class Succession:
    """One step from table to table.

    Attributes:
        records: the new ones.
        changes: operation, id and values; deletes first, then updates, each in the order of their ids. None where
            this is the first table.
        deletes, inserts, updates: how many.
    """

    records: PersistentRecords
    changes: Any
    deletes: int
    inserts: int
    updates: int = 0


def records_before(
    records: PersistentRecords | None, synthesis_of: Callable[[int], Synthesis | None], step: int
) -> tuple[PersistentRecords, SyntheticTable] | None:
    """What ``carry`` starts from at a step; None where there is nothing, or its model was dropped."""
    earlier = None if records is None else synthesis_of(step - 1)
    table = None if earlier is None else earlier.answers
    return None if records is None or table is None else (records, table)


def carry(
    before: tuple[PersistentRecords, SyntheticTable] | None,
    after: SyntheticTable,
    schema: Schema,
    rows: int,
    seed: int,
    *,
    first_id: int = 1,
    may_change: Collection[str] = (),
) -> Succession:
    """The table of ``rows`` rows for the synthesis ``after``, changed as little as possible.

    Args:
        before: the previous table, and the synthesis it was made for; None starts with a fresh sample.
        seed: equal arguments give equal tables, byte for byte.
        first_id: of the first record, where there is nothing before.
        may_change: columns in which a record may change and keep its id; none: records only leave and come.

    Cost: two looks at the density of each record, and one or two samples of the new model.
    """
    if after.placed is not None:
        return _carry_placed(before[0] if before else None, after.placed, rows, seed, first_id, may_change)
    if before is None:
        return _begin(after.sample(rows, seed), schema, seed, first_id)
    stays, added = carry_codes(before[0].codes, before[1], after, rows, seed)
    return _succession(before[0], stays, added, schema, seed, may_change)


def _carry_placed(
    before: PersistentRecords | None,
    after: PlacedRecords,
    rows: int,
    seed: int,
    first_id: int,
    may_change: Collection[str],
) -> Succession:
    """``carry`` where the release consists of records: those that still have their place stay."""
    if before is None:
        return _begin(after.records(rows, seed), after.fine, seed, first_id)
    stays, added = after.follow(before.codes, rows, seed)
    return _succession(before, stays, added, after.fine, seed, may_change)


def _begin(codes: Codes, schema: Schema, seed: int, first_id: int) -> Succession:
    """The first table, which follows no other."""
    ids = np.arange(first_id, first_id + len(codes), dtype=np.int64)
    rows = Rows(ids, codes, schema.decode(codes, _inner(seed)))
    records = PersistentRecords.of(rows, first_id + len(codes))
    return Succession(records, None, 0, len(codes))


def carry_codes(
    old: Codes, earlier: SyntheticTable, after: SyntheticTable, rows: int, seed: int
) -> tuple[NDArray[np.bool_], Codes]:
    """Which of the old records stay, and the codes of those that come (see ``carry``)."""
    if after.density is not None and earlier.density is not None and len(old):
        stays, added = _couple(old, earlier.density, after.density, after.sample, rows, seed)
    else:
        stays, added = np.zeros(len(old), dtype=bool), after.sample(rows, seed)
    return _cancel(old, stays, added)


def _couple(
    old: Codes,
    earlier: Density,
    after: Density,
    sample: Callable[[int, int], Codes],
    rows: int,
    seed: int,
) -> tuple[Any, Codes]:
    """Which records stay, and the codes of those that come."""
    generator = np.random.default_rng([seed, 1])
    scale = np.log(len(old)) - np.log(max(rows, 1))

    def surplus(codes: Codes) -> NDArray[np.float64]:
        """log of n p / (m q); where both vanish in floating point the record may stay."""
        with np.errstate(invalid="ignore"):
            log: NDArray[np.float64] = scale + earlier(codes) - after(codes)
        log[np.isnan(log)] = 0.0
        return log

    if rows == 0:
        return np.zeros(len(old), dtype=bool), old[:0]
    stays = _deal(np.exp(np.minimum(0.0, -surplus(old))), old, generator)
    over = int(stays.sum()) - rows
    if over > 0:  # rounding: the chances add up to at most ``rows``, and dealing is within one of them
        stays[generator.choice(np.flatnonzero(stays), over, replace=False)] = False
    missing = rows - int(stays.sum())
    parts: list[Codes] = []
    for _ in range(_ROUNDS):
        if missing == 0:
            break
        drawn = sample(max(rows, 64), int(generator.integers(2**63)))
        taken = _deal(-np.expm1(np.minimum(0.0, surplus(drawn))), drawn, generator)
        parts.append(drawn[taken][:missing])
        missing -= len(parts[-1])
    if missing:  # the old table is short of its own expectation by these few
        parts.append(sample(missing, int(generator.integers(2**63))))
    return stays, np.concatenate([old[:0], *parts])


def _deal(chances: NDArray[np.float64], codes: Codes, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Take each record with its chance, exactly; how many are taken is within one of its expectation, also in
    every run of records that are alike (systematic sampling along a random order of the columns)."""
    taken = chances >= 1.0
    open_ = np.flatnonzero((chances > 0.0) & ~taken)
    columns = generator.permutation(codes.shape[1])
    order = open_[np.lexsort((generator.random(len(open_)), *(codes[open_, i] for i in columns)))]
    passed = np.floor(np.cumsum(chances[order]) + generator.random())
    taken[order] = np.diff(passed, prepend=0.0) > 0.5
    return taken


def _cancel(old: Codes, stays: Any, added: Codes) -> tuple[Any, Codes]:
    """A record that would leave while an equal one comes stays instead: the smallest change to that table."""
    leaving = np.flatnonzero(~stays)
    if not len(leaving) or not len(added):
        return stays, added
    both = np.concatenate([old[leaving], added])
    _, group = np.unique(both, axis=0, return_inverse=True)
    group = group.reshape(-1)
    left, come = group[: len(leaving)], group[len(leaving) :]
    size = int(group.max()) + 1
    pairs = np.minimum(np.bincount(left, minlength=size), np.bincount(come, minlength=size))
    stays = stays.copy()
    stays[leaving[_rank(left) < pairs[left]]] = True
    return stays, added[_rank(come) >= pairs[come]]


def _rank(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each element, how many of its group stand before it."""
    order = np.argsort(group, kind="stable")
    sorted_ = group[order]
    starts = np.searchsorted(sorted_, sorted_)
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - starts
    return rank


def _succession(
    old: PersistentRecords, stays: Any, added: Codes, schema: Schema, seed: int, may_change: Collection[str]
) -> Succession:
    import pyarrow as pa

    come = schema.decode(added, _inner(seed))
    left = np.flatnonzero(~stays)
    changeable = np.array([name in may_change for name in schema.names], dtype=bool)
    before, new = pair_alike(old.codes[left], added, changeable) if changeable.any() else (left[:0], left[:0])
    changed = left[before]
    is_kept, is_fresh = np.array(stays, dtype=bool), np.ones(len(added), dtype=bool)
    is_kept[changed], is_fresh[new] = True, False
    kept, goes, fresh = (np.flatnonzero(mask) for mask in (is_kept, ~is_kept, is_fresh))
    # Where each cell comes from: rows of the old table, and after them the rows that come.
    many = len(old.ids)
    both = pa.concat_tables([old.table, come]).combine_chunks()
    codes, columns, visible = np.concatenate([old.codes, added]), [], np.zeros(len(changed), dtype=bool)
    rows = np.concatenate([kept, many + fresh])
    found = np.empty((len(rows), codes.shape[1]), dtype=codes.dtype)
    at = np.searchsorted(kept, changed)
    # A column that follows from others changes with them.
    shown = schema.with_derived(codes)
    for number in range(shown.shape[1]):
        source, others = rows, np.flatnonzero(shown[changed, number] != shown[many + new, number])
        if len(others):
            source = rows.copy()
            source[at[others]] = many + new[others]
            was, now = (both.column(number).take(pa.array(p)) for p in (changed[others], source[at[others]]))
            visible[others] |= cells_differ(was, now)
        columns.append(both.column(number).take(pa.array(source)))
        if number < codes.shape[1]:
            found[:, number] = codes[source, number]
    table = pa.table(columns, schema=both.schema)
    ids = np.concatenate([old.ids[kept], np.arange(old.next_id, old.next_id + len(fresh), dtype=np.int64)])
    after, new_rows = Rows(ids, found, table), np.arange(len(kept), len(rows))
    segment = Segment.of(_some(after, np.concatenate([at, new_rows])), old.ids[left])
    records = PersistentRecords.of(after, old.next_id + len(fresh), grown(old.segments, segment, after))
    # Of two codes that are shown alike (two nulls) a reader sees no update.
    parts = (
        (DELETE, Rows(old.ids[goes], old.codes[goes], old.table.take(pa.array(goes)))),
        (UPDATE, _some(after, at[visible])),
        (INSERT, _some(after, new_rows)),
    )
    words = pa.array([word for word, part in parts for _ in part.ids], pa.string())
    changes = pa.concat_tables([_numbered(part.table, part.ids) for _, part in parts]).combine_chunks()
    numbers = (len(goes), len(fresh), int(visible.sum()))
    return Succession(records, changes.add_column(0, OP, words), *numbers)


def _some(rows: Rows, place: NDArray[np.int64]) -> Rows:
    import pyarrow as pa

    return Rows(rows.ids[place], rows.codes[place], rows.table.take(pa.array(place)))


def _numbered(table: Any, ids: NDArray[np.int64]) -> Any:
    import pyarrow as pa

    return table.add_column(0, ID, pa.array(ids, pa.int64()))


def _inner(seed: int) -> np.random.Generator:
    """The generator of values inside bins, apart from those that choose the bins."""
    return np.random.default_rng([seed, 2])


def join_packed(state: Packed, records: PersistentRecords | None, next_id: int) -> Packed:
    """A mechanism's packed state with the last release's records beside it; unchanged where no step had any."""
    if records is None and next_id == 1:
        return state
    meta: dict[str, Any] = {"next_id": next_id}
    arrays: dict[str, Any] = {}
    if records is not None:
        packed = records.pack()
        meta, arrays = packed.meta, packed.arrays
    own = {_PREFIX + name: array for name, array in arrays.items()}
    return Packed({"state": state.meta, _PREFIX: meta}, {**state.arrays, **own}, state.public | own.keys())


def split_packed(packed: Packed) -> tuple[Packed, PersistentRecords | None, int]:
    """The inverse of ``join_packed``; states that never had records come back as they are."""
    if _PREFIX not in packed.meta:
        return packed, None, 1
    own = {n.removeprefix(_PREFIX): a for n, a in packed.arrays.items() if n.startswith(_PREFIX)}
    rest = {n: a for n, a in packed.arrays.items() if not n.startswith(_PREFIX)}
    meta = packed.meta[_PREFIX]
    records = PersistentRecords.unpack(Packed(meta, own)) if own else None
    return Packed(packed.meta["state"], rest), records, int(meta["next_id"])
