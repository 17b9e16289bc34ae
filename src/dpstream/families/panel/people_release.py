"""What a period of a panel stream gives: persistent synthetic people, answers and their errors. All of it public."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import CellEstimate, NoisyCounts, Packed, PeopleEstimate, SyntheticTable
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.schema import Schema
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables.report_tables import (
    PERIOD,
    PERSON,
    WEIGHT,
    called,
    long_rows,
    wide_name,
    wide_table,
)
from dpstream.families.panel.cumulative import CumulativeRelease
from dpstream.families.panel.queries import AtLeast, Consecutive, WindowQuery, parse_question
from dpstream.families.panel.window import FixedWindowPlan, WindowAnswer, WindowRelease

# Weights of the synthetic people of one period, which take the padding out of weighted sums. All of it
# public.
#
# Padding is invented people in known numbers: so many in every pattern of the window that ends with a period,
# or so many who have had nothing so far. People who are alike in that share it: each of ``c`` of them has the
# weight ``1 - padding / c``, so that together they weigh ``c - padding``, which is the debiased count. It is
# negative where the count is. Where ``c`` is 0 nobody carries the ``-padding``, and sums over such people are
# too large by it; it takes a count that is wrong by at least the padding.

#: What readers of a table are told first.
WEIGHING = (
    "The rows hold padding (invented people) and are to be weighted: the sum of a period's weights over the synthetic "
    "people whom a question counts is its answer, without padding. A weight holds for questions that end with its "
    "period, and may be negative."
)


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

    def describe(self, column: str) -> str:
        """What the manifest says first."""
        negative = int((self.values < 0).sum())
        words = f"{WEIGHING} Those of this period are in {column}; "
        words += f"{negative} of them are negative. " if negative else "none is negative. "
        if self.lost:
            words += (
                f"Nobody is there to carry the weight of {self.lost} of the invented people: sums over such people are "
                "too large by up to so many. "
            )
        return words


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


# The released people with all their periods: one table that grows, and questions about any number of periods.

_WIDER_NOTE = (
    "looks back on more periods than the synthetic people are right about in a row: it may be wrong by any amount, and "
    "the padding is still in it"
)
_CUMULATIVE_NOTE = "a cumulative panel is right about numbers of ones so far, not about when"


@dataclass
class People:
    """Synthetic people as they were released; public. Columns are added at the end, nothing is ever changed.

    >>> People().periods
    0
    """

    _last: WindowRelease | CumulativeRelease | None = None
    _columns: list[NDArray[np.uint8]] = field(default_factory=list)

    @property
    def periods(self) -> int:
        """How many periods were released."""
        return sum(columns.shape[1] for columns in self._columns)

    def add(self, release: WindowRelease | CumulativeRelease) -> None:
        """Extend everybody by the newest period.

        Errors:
            DataError: a release of another panel, one that was added before, or one after a release left out.
        """
        last = self._last
        if self.periods + release.columns.shape[1] != release.period or (
            last is not None and (last.plan != release.plan or last.people != release.people)
        ):
            raise DataError(
                f"the release of period {release.period} does not follow",
                where="panel",
                allowed=f"the releases of one panel in order; {self.periods} periods are here",
            )
        self._columns.append(release.columns)
        self._last = release

    def wide(self) -> NDArray[np.uint8]:
        """The symbols of all people, shape (people, periods): a fresh array."""
        return np.hstack(self._columns) if self._columns else np.zeros((0, 0), np.uint8)

    def answer(self, query: WindowQuery, *, people: int | None = None) -> WindowAnswer:
        """Answer a question about the last ``query.width`` periods.

        Up to the window this is ``WindowRelease.answer``. A wider question, and any about the periods of a cumulative
        panel, is answered from the synthetic people as they are: with a note, and without errors.

        Args:
            people: as in ``WindowRelease.answer``; not used where there are no errors.

        Errors:
            ConfigError: there are fewer periods, or no such symbol. Also those of ``WindowRelease.answer``.
        """
        last = self._last
        if isinstance(last, WindowRelease):
            if query.width <= last.plan.recipe.window:
                return last.answer(query, people=people)
            return answer_wider(query, self.wide(), last.plan.recipe.symbols)
        return answer_wider(query, self.wide(), 2, _CUMULATIVE_NOTE)


def answer_wider(
    query: WindowQuery, table: NDArray[np.uint8], symbols: int, note: str = _WIDER_NOTE
) -> WindowAnswer:
    """Answer a question that the noise scales say nothing about, from the released people as they are.

    Args:
        table: their symbols, shape (people, periods).
        note: why there are no errors.

    Errors:
        ConfigError: there are fewer periods, or no such symbol.
    """
    periods = table.shape[1]
    if query.width > periods:
        raise ConfigError(
            f"the question looks back {query.width} periods",
            where="panel",
            allowed=f"up to {periods}, the periods so far",
        )
    query.check(symbols)
    count = float(query.of(table[:, -query.width :]).sum())
    share = count / len(table) if len(table) else math.nan
    return WindowAnswer(share, share, count, None, None, None, f"{query.describe()}: {note}")


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

    domain: Domain
    period: int
    history: NDArray[np.uint8]
    new: int
    people: int | None
    period_names: tuple[str, ...] | None = field(default=None, kw_only=True)
    #: See ``Synthesis.noisy_counts``.
    noisy_counts: Sequence[NoisyCounts] = field(default=(), kw_only=True, compare=False, repr=False)

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

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[Any]]: ...

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
        meta = {"period": self.period, "new": self.new, "people": self.people}
        return Packed(meta, {"history": self.history, **self._arrays()})

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

    def _told_weights(self) -> tuple[str, dict[str, Any]]:
        """What the manifest says of the newest weights: in words, which come first, and as facts."""
        if not self.history.shape[1]:
            return "", {}
        weights = self._weights(self.history.shape[1])
        if self._weight_column is None or weights is None:
            return "The rows hold no padding, and need no weights. ", {"weights": None}
        column = wide_name(self._weight_column, self._called(self.history.shape[1]))
        return weights.describe(column), {"weights": weights.facts(column)}

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


@dataclass(frozen=True)
class WindowSynthesis(PanelSynthesis):
    """The synthetic people of the fixed window: right about every ``window`` periods in a row."""

    core: FixedWindowPlan
    counts: NDArray[np.int64]
    clipped: int

    @property
    def _padding(self) -> int:
        return self.core.padding

    def _weights(self, period: int) -> Weights | None:
        recipe = self.core.recipe
        if period < recipe.window:
            return None
        return window_weights(self.history[:, :period], recipe.window, recipe.symbols, self._padding)

    @property
    def _release(self) -> WindowRelease:
        self._need_release()
        newest = self.history[:, self.history.shape[1] - self.new :]
        return WindowRelease(self.core, self.period, newest, self.counts, self.clipped)

    @property
    def total(self) -> float:
        """See ``PanelSynthesis.total``."""
        if not self.history.shape[1]:
            return 0.0
        if self.people is not None:
            return float(self.people)
        return float(self.counts.sum() - self.core.patterns * self.core.padding)

    @property
    def total_error(self) -> float | None:
        """See ``PanelSynthesis.total_error``."""
        if not self.history.shape[1]:
            return None
        if self.people is not None:
            return 0.0
        return math.sqrt(self._release.error_variance(np.ones(self.core.patterns)))

    def marginal(self, clique: Clique) -> CellEstimate:
        """See ``PanelSynthesis.marginal``; the standard error is that of every cell."""
        symbols = self.core.recipe.symbols
        release, codes = self._release, np.arange(self.core.patterns) % symbols
        cells = np.indices(self.domain.sizes).reshape(len(self.domain), -1)[list(clique)]
        cell = (
            np.ravel_multi_index(tuple(cells), self.domain.shape(clique))
            if clique
            else np.zeros(symbols, np.int64)
        )
        values = np.bincount(
            cell[codes], self.counts - float(self.core.padding), minlength=self.domain.cells(clique)
        ).astype(np.float64)
        error = math.sqrt(release.error_variance((cell[codes] == 0).astype(np.float64)))
        return CellEstimate(values.reshape(self.domain.shape(clique)), error)

    def own_answer(self, question: Any, codes_of: Callable[[str], tuple[int, ...]]) -> PeopleEstimate:
        """A ``WindowQuery``, or words (see ``questions.parse_question``)."""
        query = (
            parse_question(question, codes_of, self._default_codes())
            if isinstance(question, str)
            else question
        )
        if not isinstance(query, WindowQuery):
            raise ConfigError(
                "the question cannot be read",
                where="panel",
                allowed="words, or AtLeast, Consecutive, Pattern",
            )
        recipe = self.core.recipe
        if query.width <= recipe.window:
            estimate = self._release.answer(query, people=self.people)
        else:
            estimate = answer_wider(query, self.history, recipe.symbols)
        words = f"{query.describe()}; {_ERROR_NOTE}" if estimate.count_error is not None else estimate.note
        return PeopleEstimate(
            estimate.count,
            estimate.count_error,
            estimate.value,
            estimate.standard_error,
            estimate.bound,
            estimate.raw,
            words,
        )

    def accuracy(self) -> dict[str, Any]:
        """Errors, padding and clipping, for the manifest; JSON-able."""
        core = self.core
        weighing, facts = self._told_weights()
        return {
            "total_standard_error": self.total_error,
            "measured_every_step": {"standard_error": None, "marginals": []},
            "panel": {
                "padding_of_a_pattern": core.padding,
                "patterns": core.patterns,
                "clipped_groups": self.clipped,
                "bound": core.bound,
                "failure": str(core.recipe.failure),
                "answers": self._usual_answers() if self.history.shape[1] else [],
                **facts,
            },
            "words": weighing
            + describe_errors(
                self.total_error,
                self.people,
                bool(self.history.shape[1]),
                self.clipped,
                core.bound,
                core.padding,
                "count of one pattern of any period",
            ),
        }

    def _default_codes(self) -> tuple[int, ...] | None:
        """What a question without a condition is about: the second of two symbols."""
        return (1,) if self.core.recipe.symbols == 2 else None

    def _usual_answers(self) -> list[dict[str, Any]]:
        """Usual questions about yes and no, answered."""
        if self.core.recipe.symbols != 2:
            return []
        width = self.core.recipe.window
        asked: list[WindowQuery] = [AtLeast(times, width) for times in range(1, width + 1)]
        asked += [Consecutive(times, width) for times in range(2, width)]
        answers = [(query.describe(), self._release.answer(query, people=self.people)) for query in asked]
        return [
            {
                "question": words,
                "count": _finite(one.count),
                "count_standard_error": one.count_error,
                "share": _finite(one.value),
                "share_standard_error": None if one.standard_error is None else _finite(one.standard_error),
            }
            for words, one in answers
        ]

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"counts": self.counts, "clipped": np.array([self.clipped], np.int64)}


@dataclass(frozen=True)
class CumulativeSynthesis(PanelSynthesis):
    """The synthetic people of cumulative counts: right about how many have had at least ``b`` so far."""

    release: CumulativeRelease

    @property
    def _padding(self) -> int:
        return self.release.plan.padding

    def _weights(self, period: int) -> Weights | None:
        return zero_weights(self.history[:, :period], self._padding)

    @property
    def total(self) -> float:
        """See ``PanelSynthesis.total``."""
        return float(self.release.people - self.release.plan.padding)

    @property
    def total_error(self) -> float | None:
        """See ``PanelSynthesis.total_error``."""
        noise = self.release.plan.total_noise
        return 0.0 if noise is None else math.sqrt(noise.variance)

    def marginal(self, clique: Clique) -> CellEstimate:
        """Counts of the newest period's synthetic reports; their errors are not known."""
        counts = np.bincount(self.history[:, -1], minlength=2).astype(np.float64)
        counts[0] -= self.release.plan.padding
        return CellEstimate(counts if clique else np.array(counts.sum()), None)

    def own_answer(self, question: Any, codes_of: Callable[[str], tuple[int, ...]]) -> PeopleEstimate:
        """A number of times, or words such as "at least 3 so far"."""
        times = question
        if isinstance(question, str):
            asked = parse_question(question, codes_of, (1,), so_far=self.period)
            if not isinstance(asked, AtLeast) or asked.width != self.period or asked.values != (1,):
                raise ConfigError(
                    "cumulative releases are right about all periods so far only",
                    where="panel",
                    allowed='a question such as "at least 3 so far"',
                )
            times = asked.times
        estimate = self.release.at_least(times)
        return PeopleEstimate(
            float(estimate.count),
            estimate.standard_error,
            estimate.value,
            estimate.share_error,
            estimate.bound,
            estimate.count / self.release.people if self.release.people else math.nan,
            f"at least {times} of the first {self.period} periods; the standard error is that of the counter's "
            f"unbiased estimate, {estimate.unbiased}{'' if self.people is not None else _SHARE_NOTE}",
            float(estimate.unbiased),
        )

    def accuracy(self) -> dict[str, Any]:
        """Errors, padding and clipping, for the manifest; JSON-able."""
        release, plan = self.release, self.release.plan
        bound = plan.bounds[self.period - 1]
        weighing, facts = self._told_weights()
        thresholds = range(1, min(self.period, plan.recipe.largest) + 1)
        return {
            "total_standard_error": self.total_error,
            "measured_every_step": {"standard_error": None, "marginals": []},
            "panel": {
                "padding": plan.padding,
                "bound": bound,
                "failure": str(plan.recipe.failure),
                "answers": [
                    {
                        "question": f"at least {b} of the first {self.period} periods",
                        "count": int(release.reached[b]),
                        "unbiased": int(release.estimates[b]),
                        "unbiased_standard_error": math.sqrt(plan.variance(b, self.period)),
                    }
                    for b in thresholds
                ],
                **facts,
            },
            "words": weighing + describe_errors(self.total_error, self.people, True, 0, bound, plan.padding),
        }

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"reached": self.release.reached, "estimates": self.release.estimates}


_ERROR_NOTE = (
    "the standard error follows from public noise scales (the coins of rounding are bounded from above)"
)

_SHARE_NOTE = "; that of the share holds the noise of the number of people, too"


def describe_errors(
    error: float | None,
    people: int | None,
    released: bool,
    clipped: int,
    bound: float,
    padding: int,
    counted: str = "count of this period or an earlier one",
) -> str:
    """How wrong a release may be, in words."""
    if not released:
        return "There are no synthetic people yet: the first release comes with the first full window."
    number = (
        "The number of people is declared public."
        if people is not None
        else f"The number of people is noisy, with a standard error of {error:.3g}."
    )
    share = (
        "" if not clipped else " Groups of synthetic people were clipped, so answers may be biased a little."
    )
    padded = "Padding is invented people: answers have it taken out, the table holds it. " if padding else ""
    return f"{number} {padded}With the stated probability no {counted} is wrong by more than {bound:.4g} people.{share}"


def append_columns(history: NDArray[np.uint8], columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The history with new periods; what is there stays as it is."""
    if not history.shape[1]:
        return np.asfortranarray(columns)
    return np.asfortranarray(np.concatenate([history, columns], axis=1))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
