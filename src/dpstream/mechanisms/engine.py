"""The engine of mechanisms for tables: select, measure and fit on the door, and what was drawn, as it is published.

A mechanism is a loop on a ``Run``, which holds the counts: it measures marginals, each time for a part of the budget,
fits a model to what was measured, and selects what the model explains worst.

Trusted base: kernel (selects and measures).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Measurement, Model, estimate_total, fit
from dpstream.core.privacy import Budget, Event, HistogramsNoise, PureDP, Randomness
from dpstream.core.privacy.select import ExponentialMechanism, PermuteAndFlip, Selection, selection_epsilon
from dpstream.core.schema.domain import Clique, Domain
from dpstream.mechanisms.joint_groups import noise_of
from dpstream.mechanisms.run_outputs import MIN_VARIANCE, RunOutput, measurements_of


@dataclass(frozen=True)
class Selector:
    """Choose the (about) largest of some exact scores.

    Guarantee: ``budget`` for one choice. Pure: permute-and-flip, never worse than the exponential mechanism
    (McKenna, Sheldon 2020). zCDP: the exponential mechanism, whose range is bounded, so that
    ``rho = epsilon^2 / 8`` (Cesar, Rogers 2021).
    """

    budget: Budget

    def describe(self) -> str:
        """The selector's name."""
        return "permute-and-flip" if isinstance(self.budget, PureDP) else "exponential mechanism"

    def choose(
        self,
        numerators: NDArray[Any],
        denominators: NDArray[Any],
        allowed: Sequence[int] | NDArray[np.int64],
        sensitivity: Fraction,
        randomness: Randomness,
    ) -> int:
        """The index that is chosen among ``allowed`` (a public set)."""
        index = np.asarray(allowed, dtype=np.int64)
        law: Selection
        if isinstance(self.budget, PureDP):
            law = PermuteAndFlip(self.budget.amount, sensitivity)
        else:
            law = ExponentialMechanism(selection_epsilon(self.budget.amount), sensitivity)
        return int(index[randomness.select(numerators[index], denominators[index], law)])


@dataclass
class Run:
    """A run that is under way: the only place where mechanisms read counts of whole marginals to measure them.

    Attributes:
        counts: private, by marginal.
        unit: whose record costs what is spent.
        prior: public: a model that every fit is held to; it also starts from it. None: fits start from the last model.
        measured: the measurements, in order; ``sums``: those whose sums tell the number of records, with errors of
            their own; ``outputs``: everything that was drawn, as it came out.
        spent: what measurements and selections have cost together.
    """

    domain: Domain
    counts: Mapping[Clique, NDArray[np.int64]]
    unit: Event
    randomness: Randomness
    prior: Model | None = None
    measured: list[Measurement] = field(default_factory=list)
    sums: list[Measurement] = field(default_factory=list)
    outputs: list[RunOutput] = field(default_factory=list)
    spent: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        self.model = Model.uniform(self.domain, 0.0) if self.prior is None else self.prior
        # Under "replace" sizes are declared public; under "add-remove" the total is always estimated.
        public = self.unit.relation == "replace"
        self.public_total = float(next(iter(self.counts.values())).sum()) if public else None

    @property
    def total(self) -> tuple[float, float]:
        """The number of records and its variance (0 where it is public)."""
        return estimate_total(self.sums) if self.public_total is None else (self.public_total, 0.0)

    def measure(
        self, cliques: Sequence[Clique], budget: Budget, kind: str = "", *, chosen: bool = False
    ) -> list[Measurement]:
        """Measure marginals by one draw; ``kind`` and ``chosen`` as of ``RunOutput.of_draw``."""
        noise = noise_of(budget, [self.domain.cells(clique) for clique in cliques], self.unit)
        self.spent += budget.amount
        values = self.randomness.measure(np.concatenate([self.counts[clique] for clique in cliques]), noise)
        self.outputs.append(RunOutput.of_draw(self.domain, cliques, values, noise, kind, chosen=chosen))
        fresh = measurements_of(cliques, values, noise)
        self.measured += fresh
        number = fresh[0]
        if isinstance(noise, HistogramsNoise):  # they have one sum between them, with one error
            sums = number.values.sum(keepdims=True)
            number = Measurement((), sums, max(noise.sum_variance, MIN_VARIANCE))
        self.sums.append(number)
        return fresh

    def select(
        self,
        scores: tuple[NDArray[Any], NDArray[Any]],
        sensitivity: Fraction,
        allowed: NDArray[np.int64],
        budget: Budget,
    ) -> int:
        """The marginal with (about) the largest score, a numerator and a denominator, among those that are allowed."""
        self.spent += budget.amount
        return Selector(budget).choose(*scores, allowed, sensitivity, self.randomness)

    def fit(
        self,
        iterations: int,
        max_cells: int,
        prior_weight: float = 0.0,
        measured: Sequence[Measurement] | None = None,
    ) -> None:
        """Fit the model to everything measured, or to these; with a prior, from that one again."""
        self.model = fit(
            self.domain,
            self.measured if measured is None else measured,
            total=self.total[0],
            warm=self.model if self.prior is None else self.prior,
            iterations=iterations,
            max_cells=max_cells,
            regularisation=0.0 if self.prior is None else prior_weight,
        )
