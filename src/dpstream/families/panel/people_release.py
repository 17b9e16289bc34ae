"""What a period of a panel stream gives: persistent synthetic people, answers and their errors. All of it public."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import UNPACKED, CellEstimate, NoisyCounts, Packed, SyntheticTable, pack_fields
from dpstream.core.errors import ConfigError
from dpstream.core.schema import Schema
from dpstream.core.schema.domain import Clique, Domain
from dpstream.io.sinks.period_tables import PERIOD, PERSON, WEIGHT, called, long_rows, wide_name, wide_table

# Weights of the synthetic people of one period, which take the padding out of weighted sums. All of it
# public.
#
# Padding is invented people in known numbers: so many in every pattern of the window that ends with a period,
# or so many who have had nothing so far. People who are alike in that share it: each of ``c`` of them has the
# weight ``1 - padding / c``, so that together they weigh ``c - padding``, which is the debiased count. It is
# negative where the count is. Where ``c`` is 0 nobody carries the ``-padding``, and sums over such people are
# too large by it; it takes a count that is wrong by at least the padding.


@dataclass(frozen=True)
class Weights:
    """The weights of a period.

    Attributes:
        values: one for each synthetic person, in their order.
        lost: how many invented people no weight takes out, because nobody is there to carry it.
    """

    values: NDArray[np.float64]
    lost: int

    def facts(self, column: str) -> dict[str, Any]:
        """For the manifest; JSON-able."""
        return {
            "column": column,
            "smallest": float(self.values.min()) if len(self.values) else None,
            "negative": int((self.values < 0).sum()),
            "padding_left": self.lost,
        }


def window_weights(history: NDArray[np.uint8], window: int, symbols: int, padding: int) -> Weights:
    """Weights of the last period of a fixed window's people.

    Args:
        history: symbols, shape (people, periods), of at least ``window`` periods.
        padding: invented people of each pattern.
    """
    patterns = np.zeros(len(history), np.int64)
    for period in range(history.shape[1] - window, history.shape[1]):
        patterns = patterns * symbols + history[:, period]
    return _shared(patterns, np.full(symbols**window, padding, np.int64))


def zero_weights(history: NDArray[np.uint8], padding: int) -> Weights:
    """Weights of the last period of people of whom ``padding`` invented ones have only zeros."""
    return _shared(np.asarray(history.any(axis=1), np.int64), np.array([padding, 0], np.int64))


def _shared(groups: NDArray[np.int64], padding: NDArray[np.int64]) -> Weights:
    """Each group's padding, shared by those who are in it."""
    people = np.bincount(groups, minlength=len(padding))
    each = (people - padding) / np.maximum(people, 1)
    return Weights(each[groups], int(padding[people == 0].sum()))


@dataclass(frozen=True)
class PanelSynthesis(SyntheticTable):
    """Synthetic people, who are in all releases; a ``GrowingTable``.

    Attributes:
        domain: the released columns.
        period: t.
        history: symbols of the synthetic people, shape (people, periods); no periods before the first release.
        new: how many of the periods are new with this step.
        people: n where it is public.
        period_names: how the table calls the periods; None: by their numbers.
    """

    domain: Domain = field(metadata=UNPACKED)
    period: int
    history: NDArray[np.uint8]
    new: int
    people: int | None
    period_names: tuple[str, ...] | None = field(default=None, kw_only=True, metadata=UNPACKED)
    #: See ``Synthesis.noisy_counts``.
    noisy_counts: Sequence[NoisyCounts] = field(
        default=(), kw_only=True, compare=False, repr=False, metadata=UNPACKED
    )

    # Each synthesizer defines these.

    @property
    @abstractmethod
    def total(self) -> float:
        """Estimated number of people, without padding; 0 before the first release."""

    @property
    @abstractmethod
    def total_error(self) -> float | None:
        """Its standard error; 0 where the number is public, None before the first release."""

    @abstractmethod
    def marginal(self, clique: Clique) -> CellEstimate:
        """How many people reported what in the newest period, without padding."""

    @property
    @abstractmethod
    def _padding(self) -> int:
        """Invented people: of each pattern, or of those who have had none so far."""

    @abstractmethod
    def _weights(self, period: int) -> Weights | None:
        """Those of one period; None before the first of which the synthesizer counts anything."""

    # These are the same for all.

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Many marginals at once, flat."""
        return [self.marginal(clique).values.ravel() for clique in cliques]

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """Reports of the newest period of synthetic people who are drawn at random, shape (rows, columns)."""
        self._need_release()
        generator = np.random.default_rng(seed)
        people = len(self.history)
        chosen = generator.choice(people, rows, replace=rows > people) if people else np.zeros(0, np.int64)
        return self._codes(self.period)[chosen]

    @property
    def columns(self) -> NDArray[np.uint8]:
        """The symbols of the new periods, shape (people, ``new``)."""
        return self.history[:, self.history.shape[1] - self.new :]

    @property
    def grows(self) -> PanelSynthesis:
        """The release itself: its table only grows."""
        return self

    def rows(self, schema: Schema, most: int) -> int:
        """One for each synthetic person; never cut."""
        return len(self.history)

    def released(self, schema: Schema, rows: int, seed: int) -> Any:
        """The synthetic people: all, in their order, where as many are wanted as there are; else some of them."""
        table, people = self.table(schema), len(self.history)
        if rows == people:
            return table
        if people == 0:
            raise ConfigError("there are no synthetic people", where="rows", allowed="a later period")
        chosen = np.random.default_rng(seed).choice(people, rows, replace=rows > people)
        return table.take(np.sort(chosen))

    def table(self, schema: Schema) -> Any:
        """See ``GrowingTable.table``. Cost: all periods so far, one byte a person and period before decoding."""
        return wide_table(self._frames(schema, self.history.shape[1]), len(self.history), self._weight_column)

    def additions(self, schema: Schema) -> Any:
        """See ``GrowingTable.additions``."""
        empty = self._with_weights(schema.decode(np.zeros((0, len(schema)), np.int32), 0), None)
        label = 0 if self.period_names is None else ""
        return long_rows(self._frames(schema, self.new), len(self.history), (label, empty))

    def facts(self) -> dict[str, Any]:
        """See ``GrowingTable.facts``."""
        facts = {
            "kind": "panel",
            "person": PERSON,
            "period": PERIOD,
            "people": len(self.history),
            "periods": self.history.shape[1],
            "new_periods": self.new,
        }
        return facts if self._weight_column is None else {**facts, "weight": self._weight_column}

    def pack(self) -> Packed:
        """Arrays and JSON."""
        return pack_fields(self)

    def _frames(self, schema: Schema, last: int) -> list[tuple[int | str, Any]]:
        """The last periods as they are called, decoded: with labels only, so nothing is drawn."""
        if not len(self.history):
            return []
        periods = range(self.history.shape[1] - last + 1, self.history.shape[1] + 1)
        return [
            (self._called(period), self._with_weights(schema.decode(self._codes(period), 0), period))
            for period in periods
        ]

    def _called(self, period: int) -> int | str:
        return called(period, self.period_names)

    @property
    def _weight_column(self) -> str | None:
        return WEIGHT if self._padding else None

    def _with_weights(self, frame: Any, period: int | None) -> Any:
        """The variables of a period with its weights; nulls where it has none. Without a period: of no rows."""
        import pyarrow as pa

        if self._weight_column is None:
            return frame
        weights = None if period is None else self._weights(period)
        column = pa.nulls(len(frame), pa.float64()) if weights is None else pa.array(weights.values)
        return frame.append_column(self._weight_column, column)

    def _accuracy(self, panel: dict[str, Any]) -> dict[str, Any]:
        """What the manifest says of errors, padding and clipping; JSON-able.

        Args:
            panel: facts of the synthesizer.
        """
        return {
            "total_standard_error": self.total_error,
            "measured_every_step": {"standard_error": None, "marginals": []},
            "panel": {**panel, **self._weight_facts()},
        }

    def _weight_facts(self) -> dict[str, Any]:
        """About the newest weights; nothing before the first release."""
        periods = self.history.shape[1]
        if not periods:
            return {}
        weights = self._weights(periods)
        if self._weight_column is None or weights is None:
            return {"weights": None}
        return {"weights": weights.facts(wide_name(self._weight_column, self._called(periods)))}

    def _codes(self, period: int) -> NDArray[np.int32]:
        symbols = self.history[:, period - 1].astype(np.int64)
        return np.column_stack(np.unravel_index(symbols, self.domain.sizes)).astype(np.int32)

    def _need_release(self) -> None:
        if not self.history.shape[1]:
            raise ConfigError(
                f"period {self.period} came before the first release: there are no synthetic people yet",
                where="panel",
                allowed="a later period",
            )


def append_columns(history: NDArray[np.uint8], columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The history with new periods; what is there stays as it is."""
    if not history.shape[1]:
        return np.asfortranarray(columns)
    return np.asfortranarray(np.concatenate([history, columns], axis=1))
