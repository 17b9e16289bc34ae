"""Change over time: do the synthetic shares go the way that the true ones go? Evaluation only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dpstream.tools.evaluate.array_types import Floats
from dpstream.tools.evaluate.metrics import SEED

if TYPE_CHECKING:
    from dpstream.core.schema import Domain, Schema

#: The smallest change of a true share that counts: one percent of the table.
CLEAR: Final = 0.01
#: Steps between which changes are compared, at most, and values whose course is kept.
_MAX_STEPS: Final = 12
_MAX_MOVED: Final = 6
_DRAWS: Final = 5


@dataclass(frozen=True, eq=False)
class ColumnCounts:
    """True and synthetic counts of every column at one step, flat side by side."""

    step: int
    true: NDArray[Any]
    made: NDArray[Any]


@dataclass(frozen=True, eq=False)
class MovedValue:
    """A value whose true share moved much (``column = value``), and its shares at every evaluated step."""

    name: str
    true: Floats
    made: Floats


@dataclass(frozen=True, eq=False)
class Trends:
    """How changes over time are kept.

    Attributes:
        steps: all steps of ``moved``. compared: those between which changes are compared.
        changes: how many true shares changed by ``CLEAR`` or more.
        wrong: share of them that go another way in the released tables, or do not move; NaN where there are none.
        size: the released changes as a share of the true ones (least squares through zero): 1 is all of it.
        floor: ``wrong`` of samples of real records of the same sizes.
        moved: the values that moved most, of different columns.
    """

    steps: tuple[int, ...]
    compared: tuple[int, ...]
    changes: int
    wrong: float
    size: float
    floor: float
    moved: tuple[MovedValue, ...]


def find_trends(schema: Schema, found: Sequence[ColumnCounts]) -> Trends:
    """Changes between up to twelve evaluated steps evenly apart, from each to the next and from the first to the last.

    Steps whose true or released table is empty are left out. Negative true counts (deletes that found no record) are
    taken as 0.
    """
    domain = schema.domain
    starts = np.concatenate([[0], np.cumsum(domain.sizes)])
    filled = [one for one in found if _shares(one.true, starts)[1] and _shares(one.made, starts)[1]]
    if not filled:
        return Trends((), (), 0, math.nan, math.nan, math.nan, ())
    steps = np.array([one.step for one in filled])
    real = np.array([_shares(one.true, starts)[0] for one in filled])
    made = np.array([_shares(one.made, starts)[0] for one in filled])
    even = np.linspace(steps[0], steps[-1], min(_MAX_STEPS, len(steps)))
    chain = np.unique([int(np.abs(steps - place).argmin()) for place in even])
    clear, true_changes = _clear(real[chain], domain, starts)
    changes = _changes(made[chain])[clear]
    rng = np.random.default_rng(SEED)
    floors = []
    for _ in range(_DRAWS if clear.any() else 0):
        samples = [
            np.array([_drawn(rng, real[i], getattr(filled[i], side), starts) for i in chain])
            for side in ("true", "made")
        ]
        one, other = (_changes(sample)[clear] for sample in samples)
        floors.append(float((np.sign(one) != np.sign(other)).mean()))
    known = bool(clear.any())
    return Trends(
        tuple(steps.tolist()),
        tuple(steps[chain].tolist()),
        int(clear.sum()),
        float((np.sign(changes) != np.sign(true_changes)).mean()) if known else math.nan,
        float((changes * true_changes).sum() / (true_changes**2).sum()) if known else math.nan,
        float(np.mean(floors)) if floors else math.nan,
        _moved(real, made, starts, schema),
    )


def _shares(counts: NDArray[Any], starts: NDArray[np.int64]) -> tuple[Floats, bool]:
    """Counts as shares of their column, and whether every column has some."""
    counts = np.maximum(np.asarray(counts, dtype=np.float64), 0.0)
    totals = np.add.reduceat(counts, starts[:-1])
    return counts / np.repeat(np.where(totals > 0, totals, 1.0), np.diff(starts)), bool((totals > 0).all())


def _drawn(rng: np.random.Generator, shares: Floats, like: NDArray[Any], starts: NDArray[np.int64]) -> Floats:
    """Shares of a sample of real records, as large as a table, column by column."""
    parts = []
    for first, last in itertools.pairwise(starts):
        size = max(1, round(float(np.maximum(like[first:last], 0).sum())))
        parts.append(rng.multinomial(size, shares[first:last] / shares[first:last].sum()) / size)
    return np.concatenate(parts)


def _changes(shares: Floats) -> Floats:
    """From each step to the next, and from the first to the last where there are more than two."""
    changes = np.diff(shares, axis=0)
    return changes if len(shares) <= 2 else np.concatenate([changes, shares[-1:] - shares[:1]])


def _clear(real: Floats, domain: Domain, starts: NDArray[np.int64]) -> tuple[NDArray[np.bool_], Floats]:
    changes = _changes(real)
    clear = np.abs(changes) >= CLEAR
    for first, size in zip(starts, domain.sizes, strict=False):
        if size == 2:  # the other value mirrors it
            clear[:, first] = False
    return clear, changes[clear]


def _moved(real: Floats, made: Floats, starts: NDArray[np.int64], schema: Schema) -> tuple[MovedValue, ...]:
    """Of each column the value that moved most; the first third is left aside, where tables are small."""
    spread = np.ptp(real[len(real) // 3 :], axis=0)
    best = []
    for column, (first, last) in enumerate(itertools.pairwise(starts)):
        # Of two values the second one: the other mirrors it.
        place = first + (1 if last - first == 2 else int(spread[first:last].argmax()))
        best.append((float(spread[place]), column, int(place - first), int(place)))
    best.sort(key=lambda one: -one[0])
    return tuple(
        MovedValue(
            f"{schema.names[column]} = {schema.columns[column].labels()[code]}",
            real[:, place],
            made[:, place],
        )
        for size, column, code, place in best[:_MAX_MOVED]
        if size > 0
    )
