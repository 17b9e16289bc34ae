"""Linear classifiers as a black box: what a run reads, and what it measures (``erm_run.py``).

Trusted base: kernel (draws a classifier).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpstream.core.contracts import (
    RecipeContext,
    SectionReader,
    build,
)
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.randomness import Randomness
from dpstream.families.growing.blackbox import BoxRun, Counts, Database
from dpstream.families.growing.erm_options import ErmOptions
from dpstream.families.growing.erm_run import (
    LOSSES,
    ErmRun,
    LinearClassifier,
    Rows,
    minimise,
)
from dpstream.families.growing.growing_plan import GrowingState


@dataclass(frozen=True)
class ERM(ErmOptions):
    """Regularised logistic regression, or a linear support vector machine with a rounded hinge.

    Guarantee: a run satisfies its budget (pure, or zCDP) for the replacement of one record, ``t`` public. The
    minimiser of the regularised risk moves by at most ``2 / (lam t)`` (Chaudhuri, Monteleoni, Sarwate 2011,
    Theorem 8); the solver's certified distance to it and the rounding to a grid are part of the sensitivity; the
    noise is exact integer noise. Proof: docs/theory/erm.md.

    Args:
        schema: the columns, one of which is the target.
        positive: the label of the target that counts as positive; None: its second one.
        predictors: the columns to predict from; None: all but the target.
        as_numbers: those that are taken as one number, by the position of their bin; the others are one-hot.
        loss: ``logistic`` or ``svm``.
        radius: the norm of the coefficients that the regularisation is balanced for; a public guess. None takes half
            a unit for each feature of each column: ``sqrt(columns * features) / 2``.
        lam: strength of the regularisation, a float; None: chosen for each run from ``t``, the budget and
            ``radius`` so that the bound of ``predicted_excess`` is smallest, or more where noise would be large.

    Errors:
        ConfigError, SchemaError: an unknown column, label or loss, a number without an order, a ``radius`` or ``lam``
            that cannot be used, or more than 10^7 combinations of features and target.

    Cost: about ``sqrt(smoothness / lam) log(t)`` passes over the different records; memory for them.

    Reference: Chaudhuri, Monteleoni, Sarwate (2011), Algorithm 1, with another noise; Bassily, Smith, Thakurta
    (2014) for the lower bounds.
    """

    @property
    def reads(self) -> Counts:
        """The counts of all combinations of features and target."""
        return Counts(self.features.domain, (self.features.clique,))

    def run(self, budget: Budget, data: Database, randomness: Randomness) -> BoxRun[LinearClassifier]:
        """Minimise, round, add noise.

        Errors:
            LimitError: see ``ErmRun.check``.
        """
        run = self.plan(budget, data.t)
        run.check()
        point = minimise(Rows(self.features, data.counts[0], data.t), run)
        whole = np.rint(point / run.step).astype(np.int64)
        noisy = randomness.measure(whole, run.noise).astype(np.float64)
        measured, error = noisy * run.step, run.standard_error
        return BoxRun(LinearClassifier(self.features, self.loss, measured, error, data.t, run.lam))

    def plan(self, budget: Budget, t: int) -> ErmRun:
        """The public numbers of a run."""
        loss = LOSSES[self.loss]
        lam = self.best_lam(budget, t, loss) if self.lam is None else float(self.lam)
        return ErmRun(self.features, loss, lam, budget, t)

    def predicted_excess(self, budget: Budget, t: int) -> float:
        """A bound on the expected excess risk over every classifier of norm ``radius`` or less.

        The excess risk is the mean loss over the ``t`` records, without regularisation, less that of the other
        classifier. A bound of the loss of the classifier 0 (``log 2``, or 1 for ``svm``) or more promises nothing.
        """
        run = self.plan(budget, t)
        share = run.shrinkage
        noise = run.loss.smoothness * run.standard_error**2 / 2.0
        solver = run.share / (run.lam * t) + run.step * math.sqrt(self.features.dimension) / 2.0
        bias = run.lam * self.assumed_radius**2 / 2.0
        return (1.0 - share) * run.loss.at_zero + share * (bias + solver) + share**2 * noise


def read_erm(section: SectionReader, given: RecipeContext, earlier: Mapping[str, Any]) -> ERM:
    """The black box that the options describe.

    Errors:
        ConfigError: an option that is unknown or unusable. SchemaError: an unknown column.
    """
    if given.schema is None:
        raise section.wrong("target", "a classifier needs a schema: labels and bins", "a file with [schema]")
    box: ERM = build(section, ERM, given)
    return box


@dataclass
class ClassifierState(GrowingState):
    """The state of a stream of classifiers."""

    table: LinearClassifier  # type: ignore[assignment]
