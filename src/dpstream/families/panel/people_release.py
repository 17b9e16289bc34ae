"""What a period of a panel stream gives: persistent synthetic people, answers and their errors. All of it public."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    UNPACKED,
    CellEstimate,
    NoisyCounts,
    Packed,
    PeopleEstimate,
    SyntheticTable,
    pack_fields,
)
from dpstream.core.errors import ConfigError
from dpstream.core.schema import Clique, Domain, Schema
from dpstream.families.panel.queries import WindowQuery, parse_question
from dpstream.io.sinks.period_tables import PERIOD, PERSON, WEIGHT, called, long_rows, wide_name, wide_table

History = NDArray[np.uint8]
Ints = NDArray[np.int64]

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

    @classmethod
    def shared(cls, groups: Ints, padding: Ints) -> Weights:
        """Each group's padding, shared by those who are in it."""
        people = np.bincount(groups, minlength=len(padding))
        each = (people - padding) / np.maximum(people, 1)
        return cls(each[groups], int(padding[people == 0].sum()))

    def facts(self, column: str) -> dict[str, Any]:
        """For the manifest; JSON-able."""
        return {
            "column": column,
            "smallest": float(self.values.min()) if len(self.values) else None,
            "negative": int((self.values < 0).sum()),
            "padding_left": self.lost,
        }


@dataclass(frozen=True)
class PanelSynthesis(SyntheticTable):
    """What a period gives: synthetic people, who are in all releases, answers and their errors; a ``GrowingTable``.

    Attributes:
        plan: its ``PeoplePlan``, which says what the synthetic people are right about.
        period: t.
        history: symbols of the synthetic people, shape (people, periods); no periods before the first release.
        people: n where it is public.
        counts: synthetic people, padding included: by the pattern of their last k periods, or with at least b counted
            reports, for b = 0 .. B.
        estimates: of cumulative counts, the counters' own estimates of the same.
        clipped: how many groups had to be clipped so far; answers of a window are unbiased where it is 0.
    """

    plan: Any = field(metadata=UNPACKED)
    period: int
    history: History
    people: int | None
    counts: Ints
    estimates: Ints
    clipped: int
    #: See ``Synthesis.noisy_counts``.
    noisy_counts: Sequence[NoisyCounts] = field(
        default=(), kw_only=True, compare=False, repr=False, metadata=UNPACKED
    )

    @property
    def domain(self) -> Domain:
        """The released columns."""
        released: Domain = self.plan.released
        return released

    @property
    def new(self) -> int:
        """How many of the periods are new with this step."""
        return (
            self.history.shape[1]
            if self.period == self.plan.first_release
            else int(self.history.shape[1] > 0)
        )

    @property
    def columns(self) -> History:
        """The symbols of the new periods, shape (people, ``new``)."""
        return self.history[:, self.history.shape[1] - self.new :]

    @property
    def total(self) -> float:
        """Estimated number of people, without padding; 0 before the first release."""
        if not self.history.shape[1]:
            return 0.0
        padding = float(self.plan.padding_of_reports.sum())
        return float(len(self.history) - padding if self.people is None else self.people)

    @property
    def total_error(self) -> float | None:
        """Its standard error; 0 where the number is public, None before the first release."""
        if not self.history.shape[1]:
            return None
        return 0.0 if self.people is not None else math.sqrt(self.plan.total_variance(self.period))

    def marginal(self, clique: Clique) -> CellEstimate:
        """How many people reported what in the newest period, without padding; the error is that of every cell."""
        self._need_release()
        padding = self.plan.padding_of_reports
        counts = np.bincount(self.history[:, -1], minlength=len(padding)) - padding
        others = tuple(i for i in range(len(self.domain)) if i not in clique)
        values = np.asarray(counts.reshape(self.domain.sizes).sum(axis=others))
        return CellEstimate(values, self.plan.cell_error(clique, self.period))

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

    # Answers.

    def own_answer(self, question: Any, codes_of: Callable[[str], tuple[int, ...]]) -> PeopleEstimate:
        """A ``WindowQuery``, a number of times so far, or words (see ``parse_question``)."""
        if isinstance(question, str):
            # A question without a condition is about the second of two symbols.
            default = (1,) if len(self.plan.padding_of_reports) == 2 else None
            so_far = self.period if self.plan.so_far else None
            question = parse_question(question, codes_of, default, so_far=so_far)
        return self.answer(question)

    def answer(self, question: WindowQuery | int) -> PeopleEstimate:
        """Answer a question about people's periods, with errors as far as the synthetic people are right about it.

        Of a window: about the last ``width`` periods; a wider one is answered from the synthetic people as they are,
        padding included, and without errors. Cumulative: how many people have had at least so many counted reports so
        far; the count never falls from period to period, ``unbiased`` may fall, and be outside of what is possible.

        Errors:
            ConfigError: there are fewer periods, no such symbol, or no such threshold.
        """
        self._need_release()
        answer: PeopleEstimate = self.plan.answer(self, question)
        return answer

    def _need_release(self) -> None:
        if not self.history.shape[1]:
            raise ConfigError(
                f"period {self.period} precedes the first release with synthetic people",
                where="panel",
                allowed="a later period",
            )

    # The table.

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
            raise ConfigError("no synthetic people yet", where="rows", allowed="a later period")
        chosen = np.random.default_rng(seed).choice(people, rows, replace=rows > people)
        return table.take(np.sort(chosen))

    def table(self, schema: Schema) -> Any:
        """See ``GrowingTable.table``. Cost: all periods so far, one byte a person and period before decoding."""
        return wide_table(self._frames(schema, self.history.shape[1]), len(self.history), self._weight_column)

    def additions(self, schema: Schema) -> Any:
        """See ``GrowingTable.additions``."""
        empty = self._with_weights(schema.decode(np.zeros((0, len(schema)), np.int32), 0), None)
        label = 0 if self.plan.period_names is None else ""
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
        return called(period, self.plan.period_names)

    @property
    def _weight_column(self) -> str | None:
        return WEIGHT if self.plan.padding else None

    def _with_weights(self, frame: Any, period: int | None) -> Any:
        """The variables of a period with its weights; nulls where it has none. Without a period: of no rows."""
        import pyarrow as pa

        if self._weight_column is None:
            return frame
        weights = None if period is None else self.plan.weights(self.history[:, :period])
        column = pa.nulls(len(frame), pa.float64()) if weights is None else pa.array(weights.values)
        return frame.append_column(self._weight_column, column)

    def _codes(self, period: int) -> NDArray[np.int32]:
        symbols = self.history[:, period - 1].astype(np.int64)
        return np.column_stack(np.unravel_index(symbols, self.domain.sizes)).astype(np.int32)

    # The manifest.

    def accuracy(self) -> dict[str, Any]:
        """Errors, padding and clipping; JSON-able."""
        facts = self.plan.accuracy(self)
        if self.history.shape[1]:
            weights, column = self.plan.weights(self.history), wide_name(WEIGHT, self._called(self.period))
            facts["weights"] = None if weights is None else weights.facts(column)
        return {
            "total_standard_error": self.total_error,
            "measured_every_step": {"standard_error": None, "marginals": []},
            "panel": facts,
        }


_WIDER_NOTE = (
    "looks back on more periods than the synthetic people follow: it may be wrong by any amount, and "
    "includes padding"
)


def answer_wider(query: WindowQuery, history: NDArray[np.uint8], symbols: int) -> PeopleEstimate:
    """Answer a question that the noise scales say nothing about, from the released people as they are.

    Args:
        history: their symbols, shape (people, periods).

    Errors:
        ConfigError: there are fewer periods, or no such symbol.
    """
    periods = history.shape[1]
    if query.width > periods:
        raise ConfigError(
            f"the question looks back {query.width} periods",
            where="panel",
            allowed=f"up to {periods}, the periods so far",
        )
    query.check(symbols)
    count = float(query.of(history[:, -query.width :]).sum())
    share = count / len(history) if len(history) else math.nan
    return PeopleEstimate(count, None, share, None, None, share, f"{query.describe()}: {_WIDER_NOTE}")
