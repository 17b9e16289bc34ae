"""The recipes of panel streams: a synthesizer, the columns of a report, and the people who may come later."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core import counters
from dpstream.core.contracts import (
    ExpectedErrors,
    ExpectedTable,
    Explanation,
    MarginalError,
    NoisyCounts,
    Option,
    Packed,
    Part,
    Recipe,
    RecipeContext,
    SectionReader,
    Terms,
    located,
    marginal_query,
    option,
    shown,
)
from dpstream.core.contracts.expectations import check_steps
from dpstream.core.contracts.explanation import with_measurements
from dpstream.core.counters.cell_law import cell_law
from dpstream.core.counters.counter import CounterState
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.budget import ZCDP, Amount
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Individual, Unit
from dpstream.core.schema import Boolean, Schema
from dpstream.core.schema.domain import Domain
from dpstream.families.panel.cumulative import (
    Cumulative,
    CumulativePlan,
    CumulativeRelease,
    CumulativeState,
    Split,
)
from dpstream.families.panel.people import (
    PeoplePlan,
    PeopleState,
    absent_code,
    check_names,
    check_period_names,
    check_places,
    periods_and_budget,
    readable_schema,
)
from dpstream.families.panel.people_release import CumulativeSynthesis, WindowSynthesis, append_columns
from dpstream.families.panel.queries import AtLeast
from dpstream.families.panel.window import FixedWindow, FixedWindowPlan, WindowRelease, WindowState

# The options of panels, in the order in which they are shown.


def _counted(
    section: SectionReader, given: RecipeContext, earlier: Mapping[str, Any]
) -> tuple[str, ...] | None:
    if not section.has("counted"):
        return None
    listed = section.raw("counted")
    if (
        not isinstance(listed, list)
        or not listed
        or not all(isinstance(label, str | int) for label in listed)
    ):
        raise section.wrong("counted", f"{shown(listed)} is no list of values")
    section.note("counted", ", ".join(str(label) for label in listed), default=False)
    # Values are compared as labels: those of a boolean column are false and true.
    return tuple(str(label).lower() if isinstance(label, bool) else str(label) for label in listed)


def _period_names(
    section: SectionReader, given: RecipeContext, earlier: Mapping[str, Any]
) -> tuple[str, ...] | None:
    """The names of all periods, as listed or as the source has them; None where they are numbers from 1 anyway."""
    listed = section.raw("period_names")
    if listed is not None:
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise section.wrong("period_names", f"{shown(listed)} is not a list of names")
        section.note("period_names", ", ".join(listed), default=False)
        return tuple(listed)
    if given.horizon is None or given.step_name is None:
        return None
    names, periods = [], range(1, given.horizon + 1)
    for period in periods:
        with located(section.place()):
            name = given.step_name(period)
        if name is None:
            return None
        names.append(name)
    return None if names == [str(period) for period in periods] else tuple(names)


COUNTER = Option(
    meaning="How noisy running sums are kept. `best`: the counter with the smallest predicted error for each "
    "threshold. A stream keeps the counters that it began with.",
    reason="the counter with the smallest predicted error for the periods that are left to a threshold",
    words=("best", *counters.ZCDP_COUNTER_NAMES),
)
WINDOW = Option(
    "a number of periods from 1 to the horizon",
    "How many periods in a row the synthetic people are right about. Every further one multiplies the patterns, "
    "and the padding, by the number of values.",
)
THRESHOLDS = Option(
    "a number from 1 to the horizon",
    'The largest number of times that is followed: "at least b so far" for b = 1, 2, ... up to it.',
    "each threshold that is left out leaves its budget to the others",
    "the horizon",
)
COUNTED = Option(
    'a list of values of the column, such as ["late"]',
    "The reports that are counted; all others, missing ones included, are not.",
    "a boolean column says itself what is counted",
    "true, of a boolean column",
    read=_counted,
    fragment={"type": "array", "minItems": 1, "items": {"type": ["string", "integer", "boolean"]}},
)
SPLIT = Option(
    meaning="How the budget is shared among the thresholds: by the error that it causes, or as published (`levels`).",
    reason="it makes the sum of all variances the smallest",
)
FAILURE = Option(
    "an exact number between 0 and 1",
    "The probability that the stated bound fails anywhere; of a window it also sets the padding.",
    "the bound holds for all periods at once in 95 of 100 streams",
    "1/20",
)
PEOPLE = Option(
    "a number of places from 1, with unit = individual-replace",
    "How many people there is room for, declared public, so that others may join later. Who has not joined, or has "
    "no report, has the value `missing`, which every column then has to declare.",
    "those who report in the first period are the panel",
    "not set",
)
PERIOD_NAMES = Option(
    "a list of names, one for each period of the horizon",
    "What published tables call the periods (`poor_2005-04`). A stream keeps what it began with.",
    "what readers call them",
    "names of the calendar, or what stands for the period in the columns of the source; else numbers",
    read=_period_names,
    fragment={"type": "array", "minItems": 1, "items": {"type": "string"}},
)


# What each period of a panel measured: noisy numbers of people, as they are published beside the release.


def counted_patterns(release: WindowRelease, names: Sequence[str]) -> tuple[NoisyCounts, ...]:
    """The histogram of the newest window: people by what they reported in each of its periods, without padding."""
    if release.noisy is None:
        return ()
    last, width = release.period, release.plan.recipe.window
    first = last - width + 1
    query = {"kind": "patterns", "columns": list(names), "periods": width}
    draw = f"window, periods {first} to {last}"
    return (NoisyCounts(draw, "people", first, last, query, release.noisy, release.noise),)


def counted_thresholds(
    release: CumulativeRelease, name: str, codes: Sequence[int]
) -> tuple[NoisyCounts, ...]:
    """The counters' running sums, one for each threshold that can be reached by now; at the first period also the
    number of people, where it is private.

    Args:
        name: of the column; ``codes``: those of its values that are counted.
    """
    plan, last, made = release.plan, release.period, list[NoisyCounts]()
    if release.noisy_people is not None and plan.total_noise is not None:
        people = np.array([release.noisy_people], np.int64)
        made.append(
            NoisyCounts("number of people", "people", 1, 1, marginal_query([]), people, plan.total_noise)
        )
    for times in range(1, min(last, plan.recipe.largest) + 1):
        law = cell_law(plan.counters[times - 1], last - times + 1, 1)
        assert law is not None
        made.append(
            NoisyCounts(
                f"period {last}, at least {times}",
                "people",
                1,
                last,
                {"kind": "at least", "columns": [name], "codes": list(codes), "times": times},
                release.estimates[times : times + 1],
                law,
                series=f"at least {times}",
            )
        )
    return tuple(made)


@dataclass(frozen=True)
class PanelWindow(Recipe["WindowStreamPlan"]):
    """A stream of the fixed-window synthesizer.

    Attributes:
        schema: what a person reports; several columns are taken together, so their sizes multiply.
        window: k, how many periods in a row the synthetic people are right about.
        failure: beta, the probability that the stated bound fails anywhere.
        people: how many places the panel has, declared public; without it, the people of the first period are all.
        period_names: how published tables call the periods, one name for each; None: by their numbers.

    A plan needs a rho, and the number of periods as its horizon. All periods together cost one person's whole history
    that rho; the unit is ``Individual()``, or with ``people`` ``Individual("replace")``.
    """

    schema: Schema
    window: int = option(of=WINDOW)
    failure: Amount = option("0.05", FAILURE)
    people: int | None = option(None, PEOPLE)
    period_names: tuple[str, ...] | None = option(None, PERIOD_NAMES)

    def _plan(self, terms: Terms) -> WindowStreamPlan:
        periods, budget = periods_and_budget(terms)
        symbols = self.schema.domain.cells(tuple(range(len(self.schema))))
        core = FixedWindow(periods, self.window, symbols, self.failure).calibrate(budget.rho, terms.unit)
        return WindowStreamPlan(*_common_fields(self, core))


@dataclass(frozen=True)
class WindowStreamPlan(PeoplePlan[WindowState]):
    """A calibrated ``PanelWindow``; see ``PeoplePlan`` and ``FixedWindowPlan`` for the guarantee."""

    core: FixedWindowPlan
    name = "panel-window"

    def parts(self) -> tuple[Part, ...]:
        """One histogram over patterns at each period from the first full window on."""
        core = self.core
        each = core.budget.scaled(Fraction(1, core.histograms))
        detail = (
            f"{core.patterns} patterns of {core.recipe.window} periods, each with {core.noise.describe()}"
        )
        return (Part("histograms", core.histograms, each, detail),)

    def options(self) -> dict[str, Any]:
        """All options."""
        recipe = self.core.recipe
        return {
            "periods": recipe.periods,
            "window": recipe.window,
            "symbols": recipe.symbols,
            "failure": str(recipe.failure),
            "padding": self.core.padding,
            "people": self.places,
            "period_names": None if self.period_names is None else list(self.period_names),
        }

    def released_schema(self, schema: Schema) -> Schema:
        """The columns, numbers and dates by the labels of their bins."""
        return readable_schema(schema)

    def explain(self) -> Explanation:
        """Errors at the last period: of one pattern, and of at least so many of the last periods."""
        core = self.core
        nobody, width = np.zeros(core.patterns, np.int64), core.recipe.window
        last = WindowRelease(core, core.recipe.periods, np.zeros((0, 1), np.uint8), nobody, 0)
        asked = [("one pattern", np.eye(1, core.patterns)[0])]
        if core.recipe.symbols == 2:
            least = [AtLeast(b, width) for b in _first_and_last(width)]
            asked += [(question.describe(), question.weights(2)) for question in least]
        panel = {"first_release": width, "padding": core.patterns * core.padding, "bound": core.bound}
        measured = f"from period {width} on {core.patterns:,} numbers a period, those of the newest window"
        facts = {"each": core.patterns, "all": core.patterns * core.histograms}
        errors = [(words, math.sqrt(last.error_variance(weights))) for words, weights in asked]
        own = self._explained(math.sqrt(core.noise.variance), panel, errors)
        return with_measurements(own, measured, facts)

    def expected_errors(self, steps: Sequence[int], expected: ExpectedTable) -> tuple[ExpectedErrors, ...]:
        """Of the newest period's reports: the number of people, every column, every pair of them."""
        return tuple(self._expected(step, expected) for step in check_steps(steps, self.core.recipe.periods))

    def _expected(self, step: int, expected: ExpectedTable) -> ExpectedErrors:
        if step < self.core.recipe.window:
            return ExpectedErrors(step, expected.size_at(step), None)
        nobody, history = np.zeros(self.core.patterns, np.int64), np.zeros((0, 1), np.uint8)
        release = WindowSynthesis(self.columns, step, history, 0, self.places, self.core, nobody, 0)
        names, columns = self.columns.names, range(len(self.columns))
        cliques = [*((i,) for i in columns), *combinations(columns, 2)]
        marginals = [
            MarginalError(
                tuple(names[i] for i in clique),
                self.columns.cells(clique),
                release.marginal(clique).standard_error or 0.0,
            )
            for clique in cliques
        ]
        return ExpectedErrors(step, expected.size_at(step), release.total_error, tuple(marginals))

    def unpack_synthesis(self, packed: Packed) -> WindowSynthesis:
        """The inverse of ``WindowSynthesis.pack``."""
        meta, arrays = packed.meta, packed.arrays
        return WindowSynthesis(
            self.columns,
            meta["period"],
            arrays["history"],
            meta["new"],
            meta["people"],
            self.core,
            arrays["counts"],
            int(arrays["clipped"][0]),
            period_names=self.period_names,
        )

    def _advance(
        self, state: PeopleState[WindowState], reports: NDArray[np.int64], randomness: Randomness
    ) -> WindowSynthesis:
        assert state.core is not None
        released = self.core.step(state.core, reports, randomness)
        counts, new, measured = np.zeros(self.core.patterns, np.int64), 0, tuple[NoisyCounts, ...]()
        if released is not None:
            state.history = append_columns(state.history, released.columns)
            counts, new = released.counts, released.columns.shape[1]
            measured = counted_patterns(released, self.columns.names)
        people = self.public_people(state.core)
        return WindowSynthesis(
            self.columns,
            state.period,
            state.history,
            new,
            people,
            self.core,
            counts,
            state.core.clipped,
            period_names=self.period_names,
            noisy_counts=measured,
        )

    def _pack_core(self, core: WindowState) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"period": core.period, "clipped": core.clipped}, {"private": core.private}

    def _unpack_core(
        self, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], history: NDArray[np.uint8]
    ) -> WindowState:
        synthetic = None
        if history.shape[1]:
            recipe = self.core.recipe
            powers = recipe.symbols ** np.arange(recipe.window - 1, -1, -1)
            synthetic = (history[:, -recipe.window :].astype(np.int64) @ powers).astype(np.int32)
        return WindowState(meta["period"], arrays["private"], synthetic, meta["clipped"])


@dataclass(frozen=True)
class PanelCumulative(Recipe["CumulativeStreamPlan"]):
    """A stream of the cumulative synthesizer: how many people have had at least b so far.

    Attributes:
        schema: what a person reports: one column.
        counted: labels of the reports that are counted; ``true`` of a boolean column by default. All others are not,
            missing ones included.
        thresholds, counter, split, failure: see ``Cumulative``.
        people, period_names: as in ``PanelWindow``.
    """

    schema: Schema
    counted: tuple[str, ...] | None = option(None, COUNTED)
    thresholds: int | None = option(None, THRESHOLDS)
    counter: str = option("best", COUNTER)
    split: Split = option("error", SPLIT)
    failure: Amount = option("0.05", FAILURE)
    people: int | None = option(None, PEOPLE)
    period_names: tuple[str, ...] | None = option(None, PERIOD_NAMES)

    def _plan(self, terms: Terms) -> CumulativeStreamPlan:
        periods, budget = periods_and_budget(terms)
        counted = self._codes()
        recipe = Cumulative(periods, self.thresholds, self.counter, self.split, self.failure)
        core = _calibrated(recipe, budget, terms.unit)
        return CumulativeStreamPlan(*_common_fields(self, core), counted)

    def _codes(self) -> tuple[int, ...]:
        if len(self.schema) != 1:
            raise ConfigError(
                "a cumulative panel follows one column",
                where="schema",
                allowed="one column, or a stream for each",
            )
        column = self.schema.columns[0]
        labels = column.labels()
        given = self.counted
        if given is None and isinstance(column, Boolean):
            given = ("true",)
        if given is None:
            raise ConfigError(
                f"nothing says which reports of {column.name!r} are counted",
                where="counted",
                allowed=f"some of {', '.join(labels[:20])}",
            )
        unknown = [label for label in given if label not in labels]
        if unknown or not given or len(set(given)) == len(labels):
            what = f"{unknown[0]!r} is no value of" if unknown else "no value, or every value is counted of"
            raise ConfigError(
                f"{what} {column.name!r}", where="counted", allowed=f"some of {', '.join(labels[:20])}"
            )
        return tuple(sorted(labels.index(label) for label in set(given)))


@dataclass(frozen=True)
class CumulativeStreamPlan(PeoplePlan[CumulativeState]):
    """A calibrated ``PanelCumulative``; see ``PeoplePlan`` and ``CumulativePlan`` for the guarantee."""

    core: CumulativePlan
    counted: tuple[int, ...]
    name = "panel-cumulative"

    def parts(self) -> tuple[Part, ...]:
        """The number of people, where it is private, and the counters of all thresholds."""
        core = self.core
        rest = ZCDP(sum(core.shares, Fraction(0)))
        detail = f"at least 1 to {core.recipe.largest}; counters by threshold: {_runs(self._counters())}"
        parts = [Part("thresholds", 1, rest, detail)]
        if core.total is not None and core.total_noise is not None:
            parts.insert(
                0, Part("people", 1, core.total, f"their number, with {core.total_noise.describe()}")
            )
        return tuple(parts)

    def options(self) -> dict[str, Any]:
        """All options. Each threshold's counter is there by name, and a hash of what it gets of the budget."""
        recipe, core = self.core.recipe, self.core
        shares = json.dumps([str(share) for share in core.shares]).encode()
        return {
            "periods": recipe.periods,
            "thresholds": recipe.largest,
            "counters": _runs(self._counters()),
            "split": recipe.split,
            "shares": "sha256:" + hashlib.sha256(shares).hexdigest(),
            "counted": list(self.counted),
            "failure": str(recipe.failure),
            "padding": core.padding,
            "people": self.places,
            "period_names": None if self.period_names is None else list(self.period_names),
        }

    def released_schema(self, schema: Schema) -> Schema:
        """One boolean column: whether the synthetic person's report is counted."""
        return Schema((Boolean(schema.columns[0].name),))

    def explain(self) -> Explanation:
        """Errors at the last period, of thresholds."""
        core = self.core
        last = core.recipe.periods
        panel = {"first_release": 1, "padding": core.padding, "bound": core.bounds[-1]}
        deviations = {b: math.sqrt(core.variance(b, last)) for b in _first_and_last(core.recipe.largest)}
        errors = [(f"at least {b} of all {last} periods", error) for b, error in deviations.items()]
        most, numbers = core.recipe.largest, sum(min(t, core.recipe.largest) for t in range(1, last + 1))
        measured = f"at each period the running sums of thresholds, 1 at first and up to {most:,}"
        if core.total is not None:
            measured += ", and at the first period the number of people"
        size = (
            f"In all {last:,} periods these are {numbers:,} running sums, each on a line of 250 to 400 bytes"
        )
        facts = {"most": most, "all": numbers + (core.total is not None)}
        own = self._explained(deviations[1], panel, errors)
        return with_measurements(own, measured, facts, size)

    def expected_errors(self, steps: Sequence[int], expected: ExpectedTable) -> tuple[ExpectedErrors, ...]:
        """Of the number of people, and of those with at least so many counted reports: a yes or a no, so two cells."""
        core, found = self.core, []
        total = 0.0 if core.total_noise is None else math.sqrt(core.total_noise.variance)
        for step in check_steps(steps, core.recipe.periods):
            marginals = tuple(
                MarginalError((f"at least {b}",), 2, math.sqrt(core.variance(b, step)))
                for b in range(1, min(step, core.recipe.largest) + 1)
            )
            found.append(ExpectedErrors(step, expected.size_at(step), total, marginals))
        return tuple(found)

    def unpack_synthesis(self, packed: Packed) -> CumulativeSynthesis:
        """The inverse of ``CumulativeSynthesis.pack``."""
        meta, arrays = packed.meta, packed.arrays
        released = CumulativeRelease(
            self.core, meta["period"], arrays["history"][:, -1:], arrays["reached"], arrays["estimates"]
        )
        return self._synthesis(arrays["history"], meta["people"], released)

    def _synthesis(
        self, history: NDArray[np.uint8], people: int | None, released: CumulativeRelease
    ) -> CumulativeSynthesis:
        domain = Domain(self.columns.names, (2,))
        return CumulativeSynthesis(
            domain,
            released.period,
            history,
            1,
            people,
            released,
            period_names=self.period_names,
        )

    def _counters(self) -> list[str]:
        return [counter.name for counter in self.core.counters]

    def _advance(
        self, state: PeopleState[CumulativeState], reports: NDArray[np.int64], randomness: Randomness
    ) -> CumulativeSynthesis:
        assert state.core is not None
        symbols = np.isin(reports, self.counted).astype(np.int64)
        released = self.core.step(state.core, symbols, randomness)
        state.history = append_columns(state.history, released.columns)
        made = self._synthesis(state.history, self.public_people(state.core), released)
        return replace(made, noisy_counts=counted_thresholds(released, self.columns.names[0], self.counted))

    def _pack_core(self, core: CumulativeState) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays: dict[str, NDArray[Any]] = {"private": core.private, "reached": core.reached}
        for number, counter in enumerate(core.counters):
            arrays |= {f"counter/{number}/{name}": array for name, array in counter.items()}
        return {"period": core.period}, arrays

    def _unpack_core(
        self, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], history: NDArray[np.uint8]
    ) -> CumulativeState:
        counters: list[CounterState] = [{} for _ in self.core.counters]
        for name, array in arrays.items():
            if name.startswith("counter/"):
                _, number, own = name.split("/", 2)
                counters[int(number)][own] = array
        for counter, kept in zip(self.core.counters, counters, strict=True):
            counter.check_state(kept, 1)
        # People who have reached the largest threshold get no further ones, so the sums need no limit.
        synthetic = history.sum(axis=1, dtype=np.int32)
        return CumulativeState(meta["period"], arrays["private"], counters, arrays["reached"], synthetic)


def _common_fields(
    recipe: PanelWindow | PanelCumulative, core: Any
) -> tuple[ZCDP, Individual, int, Domain, int | None, int | None, tuple[str, ...] | None, Any]:
    """The fields of a ``PeoplePlan`` around a synthesizer's plan."""
    schema, people = recipe.schema, recipe.people
    check_names(schema)
    names = check_period_names(recipe.period_names, core.recipe.periods, schema)
    absent = absent_code(schema)
    check_places(people, core.unit, absent)
    return core.budget, core.unit, core.recipe.periods, schema.domain, absent, people, names, core


@lru_cache(maxsize=16)
def _calibrated(recipe: Cumulative, budget: ZCDP, unit: Unit | None) -> CumulativePlan:
    """The calibrated recipe, remembered: choosing counters for hundreds of thresholds takes seconds."""
    return recipe.calibrate(budget.rho, unit)


def _runs(names: Sequence[str]) -> str:
    """Equal neighbours together.

    >>> _runs(["tree", "tree", "simple"])
    '1-2 tree, 3 simple'
    """
    parts, first = [], 1
    for name, run in groupby(names):
        last = first + len(list(run)) - 1
        parts.append(f"{first} {name}" if first == last else f"{first}-{last} {name}")
        first = last + 1
    return ", ".join(parts)


def _first_and_last(last: int) -> list[int]:
    """The first few numbers and the last: tables of hundreds of lines help nobody."""
    return list(range(1, last + 1)) if last <= 6 else [1, 2, 3, last // 2, last]
