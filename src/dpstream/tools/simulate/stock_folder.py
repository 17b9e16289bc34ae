"""The invented register: the same records as a change feed, as snapshots and as stays.

Trusted base: invented (writes invented records).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.schema import Categorical, Schema
from dpstream.project.schema_file import write_schema
from dpstream.tools.simulate.example import Example, Record, write_arrow

if TYPE_CHECKING:
    import pyarrow as pa


#: What happens to a key; positions in ``("insert", "update", "delete")``.
INSERT, UPDATE, DELETE = 0, 1, 2

#: Columns and their values; "other" and "missing" are bins for misprints and nulls.
COLUMNS: dict[str, tuple[str, ...]] = {
    "region": ("north", "east", "south", "west", "centre", "islands"),
    "sector": ("farming", "food", "textiles", "wood", "metal", "building", "trade", "transport", "other"),
    "legal_form": ("sole", "partnership", "limited", "company", "cooperative"),
    "staff": ("0", "1-4", "5-9", "10-49", "50-249", "250+", "missing"),
    "turnover": ("under 50k", "50k-250k", "250k-1m", "1m-10m", "10m+"),
    "premises": ("none", "rented", "owned"),
    "exports": ("no", "yes"),
    "filing": ("month", "quarter", "year"),
    "credit": ("A", "B", "C", "D"),
    "inspections": ("0", "1", "2", "3+"),
    "grant": ("no", "yes"),
    "founder_age": ("under 30", "30-39", "40-49", "50-59", "60+"),
    "website": ("no", "yes"),
    "union": ("no", "yes"),
    "bank": ("local", "national", "foreign", "none"),
    "accounts": ("simple", "full", "audited"),
}
#: Mean of a heavy-tailed stay is its scale divided by (this - 1); the variance exists.
_TAIL = 3.0
#: Steps of a year, for seasons; steps of one round of the drift.
_YEAR, _ROUND = 52, 120
#: How far what is usual moves in a round, to and fro.
_DRIFT = 0.5
#: Arrivals of a burst, beside those of an ordinary step.
_BURST = 6.0


@dataclass(frozen=True, repr=False)
class StockStep:
    """What happens in one step, in order of time.

    Attributes:
        keys: the record of each event, a number from 1 in order of arrival.
        kinds: ``INSERT``, ``UPDATE`` or ``DELETE`` of each event.
        codes: the values after each event, shape (events, columns); of a delete the values that go.
    """

    keys: NDArray[np.int64]
    kinds: NDArray[np.int8]
    codes: NDArray[np.int32]


@dataclass(frozen=True)
class _Law:
    """How values are drawn: one matrix of weights for each column, given the column above it."""

    above: tuple[int, ...]
    affinity: tuple[NDArray[np.float64], ...]
    phase: tuple[NDArray[np.float64], ...]
    leaving: tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Stock:
    """Options of the invented register.

    Attributes:
        records: about how many records are present; step 1 loads them.
        mean_stay: mean length of a stay in steps; ``records / mean_stay`` new ones arrive at a step.
        columns: how many columns, 2 to 16.
        updates: share of the present records whose values change in a step.
        season: how far arrivals go up and down over 52 steps, as a share.
        heavy_tails: old records leave more rarely than new ones; otherwise age does not matter.
        reload_at: a step at whose end each present record is deleted and inserted again; None for never.
        burst_at: a step with seven times the usual arrivals; None for never.

    Errors:
        ConfigError: a number that means nothing.
    """

    records: int = 500
    mean_stay: float = 12.0
    columns: int = 10
    updates: float = 0.02
    season: float = 0.3
    heavy_tails: bool = True
    reload_at: int | None = 31
    burst_at: int | None = 41

    def __post_init__(self) -> None:
        for name, number, low, high in (
            ("records", self.records, 1, 10**7),
            ("mean_stay", self.mean_stay, 0.05, 10**6),
            ("columns", self.columns, 2, len(COLUMNS)),
            ("updates", self.updates, 0, 1),
            ("season", self.season, 0, 1),
        ):
            if isinstance(number, bool) or not low <= number <= high:
                raise ConfigError(f"{number} is not possible", where=name, allowed=f"{low} to {high}")

    @property
    def schema(self) -> Schema:
        """The public columns, with the codes that ``steps`` gives."""
        return Schema(tuple(_column(name, COLUMNS[name]) for name in list(COLUMNS)[: self.columns]))

    def steps(self, seed: int = 0) -> Iterator[StockStep]:
        """Steps without end; equal options and seeds give equal steps.

        Cost: linear in the present records and the arrivals of a step.
        """
        generator = np.random.default_rng(seed)
        law = self._law(generator)
        keys, codes, born = self._first_table(law, generator)
        newest, step = len(keys), 1
        while True:
            loaded = len(keys) if step == 1 else 0
            count = int(generator.poisson(self._arrivals(step)))
            arrival = np.sort(generator.random(count))
            fresh = self._draw(law, count, step, generator)
            keys = np.concatenate([keys, newest + 1 + np.arange(count)])
            newest += count
            codes = np.concatenate([codes, fresh])
            born = np.concatenate([born, step - 1 + arrival])
            # A loaded record is there from the beginning of its step.
            inserted_at = np.where(born >= step - 1, born - (step - 1), 0.0)
            is_new = (born >= step - 1) | (loaded > 0)
            before = codes
            updated = generator.random(len(keys)) < self.updates * (1 - inserted_at)
            updated_at = inserted_at + generator.random(len(keys)) * (1 - inserted_at)
            codes = codes.copy()
            codes[updated] = self._redraw(law, codes[updated], step, generator)
            age = step - 1 + inserted_at - born
            left_at = inserted_at + self._remaining(self._mean_stays(law, before), age, generator)
            gone = left_at < 1
            updated &= updated_at < left_at
            codes[~updated] = before[~updated]
            yield _events(keys, before, codes, (is_new, inserted_at), (updated, updated_at), (gone, left_at),
                          reload=step == self.reload_at)  # fmt: skip
            keys, codes, born = keys[~gone], codes[~gone], born[~gone]
            step += 1

    def _arrivals(self, step: int) -> float:
        usual = self.records / self.mean_stay * (1 + self.season * math.sin(2 * math.pi * step / _YEAR))
        return usual * (1 + _BURST * (step == self.burst_at))

    def _law(self, generator: np.random.Generator) -> _Law:
        sizes = [len(values) for values in list(COLUMNS.values())[: self.columns]]
        above = tuple((column - 1) // 2 for column in range(1, self.columns))
        affinity = [generator.normal(0, 0.7, (1, sizes[0]))]
        affinity += [
            generator.normal(0, 0.5, size)[None, :] + generator.normal(0, 1, (sizes[up], size))
            for size, up in zip(sizes[1:], above, strict=True)
        ]
        phase = tuple(generator.random(size) * 2 * math.pi for size in sizes)
        leaving = (generator.normal(0, 0.5, sizes[0]), generator.normal(0, 0.5, sizes[1]))
        # One over the hazard, not the hazard, has the mean 1: then the mean stay is what was asked for.
        root = _shares(affinity[0])[0]
        mean = root @ (
            np.exp(-leaving[0])[:, None] * np.exp(-leaving[1])[None, :] * _shares(affinity[1])
        ).sum(1)
        return _Law((-1, *above), tuple(affinity), phase, (leaving[0] + math.log(mean), leaving[1]))

    def _mean_stays(self, law: _Law, codes: NDArray[np.int32]) -> NDArray[np.float64]:
        """Mean stays, in steps, of records that arrive with such values."""
        return np.asarray(self.mean_stay * np.exp(-law.leaving[0][codes[:, 0]] - law.leaving[1][codes[:, 1]]))

    def _remaining(
        self, means: NDArray[np.float64], age: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Time until such records leave."""
        if not self.heavy_tails:
            return means * generator.exponential(1, len(means))
        # A Pareto law of the second kind: the older a record, the longer it stays.
        return np.asarray(((_TAIL - 1) * means + age) * (generator.random(len(means)) ** (-1 / _TAIL) - 1))

    def _draw(self, law: _Law, count: int, step: int, generator: np.random.Generator) -> NDArray[np.int32]:
        codes = np.zeros((count, self.columns), np.int32)
        everything = np.ones(count, np.bool_)
        for column in range(self.columns):
            self._fill(law, codes, column, everything, step, generator)
        return codes

    def _redraw(
        self, law: _Law, codes: NDArray[np.int32], step: int, generator: np.random.Generator
    ) -> NDArray[np.int32]:
        """Draw one column of each record again, and all below it: what records look like stays as it is."""
        codes = codes.copy()
        changed = np.zeros(codes.shape, np.bool_)
        changed[np.arange(len(codes)), generator.integers(self.columns, size=len(codes))] = True
        for column in range(self.columns):
            if column:
                changed[:, column] |= changed[:, law.above[column]]
            self._fill(law, codes, column, changed[:, column], step, generator)
        return codes

    def _fill(
        self,
        law: _Law,
        codes: NDArray[np.int32],
        column: int,
        rows: NDArray[np.bool_],
        step: int,
        generator: np.random.Generator,
    ) -> None:
        moved = _DRIFT * np.sin(2 * math.pi * step / _ROUND + law.phase[column])
        cumulative = np.cumsum(_shares(law.affinity[column] + moved[None, :]), axis=1)
        up = codes[rows, law.above[column]] if column else np.zeros(int(rows.sum()), np.int32)
        draw = generator.random(len(up))
        found = (cumulative[up] <= draw[:, None]).sum(axis=1)
        codes[rows, column] = np.minimum(found, cumulative.shape[1] - 1)

    def _first_table(
        self, law: _Law, generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
        """Keys, values and times of arrival of the records that step 1 loads: as after a long time."""
        drawn = self._draw(law, 8 * self.records, 0, generator)
        # Long stays are met more often than they arrive.
        means = self._mean_stays(law, drawn)
        chosen = generator.choice(len(drawn), self.records, p=means / means.sum())
        age = np.zeros(self.records)
        if self.heavy_tails:
            age = (_TAIL - 1) * means[chosen] * (generator.random(self.records) ** (-1 / (_TAIL - 1)) - 1)
        return np.arange(1, self.records + 1), drawn[chosen], -age - 1e-9


def _column(name: str, values: tuple[str, ...]) -> Categorical:
    listed = tuple(value for value in values if value not in ("other", "missing"))
    return Categorical(
        name,
        listed,
        other="other" if "other" in values else None,
        missing="missing" if "missing" in values else None,
    )


def _shares(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    shares = np.exp(weights - weights.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _events(
    keys: NDArray[np.int64],
    before: NDArray[np.int32],
    after: NDArray[np.int32],
    inserts: tuple[NDArray[np.bool_], NDArray[np.float64]],
    updates: tuple[NDArray[np.bool_], NDArray[np.float64]],
    deletes: tuple[NDArray[np.bool_], NDArray[np.float64]],
    *,
    reload: bool,
) -> StockStep:
    """One step's events in order of time; a reload comes last."""
    parts = [
        (np.flatnonzero(rows), at[rows], kind, values[rows])
        for kind, (rows, at), values in (
            (INSERT, inserts, before),
            (UPDATE, updates, after),
            (DELETE, deletes, after),
        )
    ]
    if reload:
        kept = np.flatnonzero(~deletes[0])
        parts += [
            (kept, np.full(len(kept), at), kind, after[kept]) for at, kind in ((1.0, DELETE), (2.0, INSERT))
        ]
    order = np.argsort(np.concatenate([at for _, at, _, _ in parts]), kind="stable")
    rows = np.concatenate([rows for rows, _, _, _ in parts])[order]
    kinds = np.concatenate([np.full(len(rows), kind, np.int8) for rows, _, kind, _ in parts])[order]
    return StockStep(keys[rows], kinds, np.concatenate([codes for _, _, _, codes in parts])[order])


#: Steps in one file of the change feed.
_STEPS_PER_FILE = 13
_WORDS = np.array(["insert", "update", "delete"])
#: What stands in the files where the domain says ``other``; where it says ``missing`` there is nothing.
_MISPRINTS = ("??", "Fodo", "99")


def stock_of(record: Record) -> Stock:
    """The options in a record."""
    return Stock(**{field.name: record[field.name] for field in fields(Stock)})


def _write(record: Record, folder: Path) -> None:
    """Three shapes; more steps leave what was written of the earlier ones, but for the ends of stays."""
    import pyarrow as pa

    stock, steps, file_format = stock_of(record), record["steps"], record["file_format"]
    columns = list(COLUMNS)[: stock.columns]
    values: dict[int, tuple[int, ...]] = {}
    start: dict[int, int] = {}
    end: dict[int, int] = {}
    present: set[int] = set()
    feed: list[pa.Table] = []
    for step, made in enumerate(islice(stock.steps(record["seed"]), steps), start=1):
        for key, kind, codes in zip(
            made.keys.tolist(), made.kinds.tolist(), made.codes.tolist(), strict=True
        ):
            values[key] = tuple(codes)
            if kind == INSERT:
                present.add(key)
                start.setdefault(key, step)
                end.pop(key, None)
            elif kind == DELETE:
                present.discard(key)
                end[key] = step
        feed.append(_feed(made, step, columns))
        if len(feed) == _STEPS_PER_FILE or step == steps:
            part = (step - 1) // _STEPS_PER_FILE
            write_arrow(pa.concat_tables(feed), folder / "changes" / f"part-{part:04d}.{file_format}")
            feed = []
        there = sorted(present)
        snapshot = _table({"key": _names(np.array(there, np.int64))}, _codes(values, there, columns), columns)
        write_arrow(snapshot, folder / "snapshots" / f"step-{step:05d}.{file_format}")
    every = sorted(start)
    ends = {"start": pa.array([start[key] for key in every], pa.int64())}
    ends["end"] = pa.array([end.get(key) for key in every], pa.int64())
    stays = _table(
        {"key": _names(np.array(every, np.int64)), **ends}, _codes(values, every, columns), columns
    )
    write_arrow(stays, folder / "stays" / f"stays.{file_format}")


def _words(record: Record) -> dict[str, Any]:
    """What the configuration says of this register: public guesses, and its columns."""
    stock = stock_of(record)
    return {
        "size": _coarse(stock.records),
        "arrivals": _coarse(stock.records / stock.mean_stay),
        "schema": write_schema(stock.schema),
    }


def _coarse(number: float) -> int:
    """The nearest of 1, 3, 10, 30, 100, ..."""
    guesses = [scale * int(10**power) for power in range(9) for scale in (1, 3)]
    return min(guesses, key=lambda guess: abs(math.log(guess / number)))


def _feed(made: StockStep, step: int, columns: list[str]) -> pa.Table:
    import pyarrow as pa

    front = {
        "step": pa.array(np.full(len(made.keys), step, np.int64)),
        "op": pa.array(_WORDS[made.kinds]),
        "key": _names(made.keys),
    }
    return _table(front, made.codes, columns, gone=made.kinds == DELETE)


def _table(
    front: dict[str, Any],
    codes: NDArray[np.int32],
    columns: list[str],
    gone: NDArray[np.bool_] | None = None,
) -> pa.Table:
    import pyarrow as pa

    cells = dict(front)
    for i, name in enumerate(columns):
        values = np.array([None if value == "missing" else value for value in COLUMNS[name]], dtype=object)[
            codes[:, i]
        ]
        stray = np.flatnonzero(values == "other")
        values[stray] = np.array(_MISPRINTS, dtype=object)[codes[stray].sum(axis=1) % len(_MISPRINTS)]
        if gone is not None:
            values[gone] = None
        cells[name] = pa.array(values, pa.string())
    return pa.table(cells)


def _codes(values: dict[int, tuple[int, ...]], keys: list[int], columns: list[str]) -> NDArray[np.int32]:
    return np.array([values[key] for key in keys], np.int32).reshape(len(keys), len(columns))


def _names(keys: NDArray[np.int64]) -> pa.Array:
    import pyarrow as pa

    return pa.array([f"B{key:07d}" for key in keys.tolist()], pa.string())


STOCK = Example(_write, words=_words)
