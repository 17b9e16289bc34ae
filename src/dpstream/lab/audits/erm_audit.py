"""The exact loss of private classifiers, when one record of a small database is replaced, with its label.

A run releases whole numbers (its coefficients on a grid) with one draw of noise each. The running code runs with noise
of 0, which shows the numbers before noise, and a tape records the laws of the noise. With independent discrete Laplace
noise the largest log-ratio between two neighbours is exactly ``sum |difference| / scale``; with discrete Gaussian noise
``rho`` is ``sum difference^2 / (2 sigma^2)``. The databases are chosen so that the bound is nearly reached: columns of
two values, so that one record moves all coefficients alike, and strong regularisation.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.checks import NoiseTape
from dpstream.core.privacy import ZCDP, Budget, DiscreteLaplace, Noise, PureDP, Randomness, noise_for
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch
from dpstream.families.growing import BBScheduler, Database
from dpstream.families.growing.erm import ERM, ErmRun, FeatureMap, LossName
from dpstream.families.growing.erm_stream import ClassifierPlan, ClassifierSynthesis
from dpstream.families.growing.growing_plan import GrowingState
from dpstream.lab.audits.door import beside_the_door, stream_loss
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress, Largest

_RECORDS = 24
#: Streams of other records: a bit of a count is the same in all of them with a probability of 2^-8 at most.
_OTHERS = 8
_DOMAIN = Domain(("a", "b", "label"), (2, 2, 2))
_BUDGETS: tuple[Budget, ...] = (PureDP.of(1), ZCDP.of("1/2"))


def audit_classifiers(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Both loss functions with both kinds of budget, then three broken classifiers."""
    progress("classifiers, all replacements of a record")
    features = FeatureMap(_DOMAIN, "label")
    losses: tuple[LossName, ...] = ("logistic", "svm")
    for loss, budget in itertools.product(losses, _BUDGETS):
        for lam in (None, 1.0, 2.0**-6):
            yield exact_classifier(
                ERM(features, loss, lam=lam), budget, f"classifier {loss}, lam {lam or 'chosen'}"
            )
    progress("streams of classifiers")
    for budget in _BUDGETS:
        plan = BBScheduler(ERM(features, "svm", lam=1.0), 8, gamma="1/2").calibrate(budget)
        assert isinstance(plan, ClassifierPlan)
        yield exact_stream(plan, f"stream of classifiers, {budget}", randomness)
    tells = _TellsParity(plan.budget, plan.unit, plan.horizon, plan.box, plan.schedule, plan.word)
    yield exact_stream(tells, "stream of classifiers, parity of a count", randomness, control=True)
    progress("controls of classifiers")
    for budget in _BUDGETS:
        quiet = _Quiet(features, "svm", lam=1.0)
        yield exact_classifier(quiet, budget, "classifier svm with 2/3 of the noise", control=True)
        half = _AddRemove(features, "svm", lam=1.0)
        yield exact_classifier(half, budget, "classifier svm, one record there or not", control=True)
    wide = _Longer(_DOMAIN, "label")
    for budget in _BUDGETS:
        what = "classifier svm, features a fifth longer than 1"
        yield exact_classifier(ERM(wide, "svm", lam=1.0), budget, what, control=True)


def exact_classifier(box: ERM, budget: Budget, subject: str, *, control: bool = False) -> AuditFinding:
    """The largest loss over all replacements of one record, in several databases."""
    began, worst = time.perf_counter(), Largest(0.0)
    every = [np.array(code, np.int32) for code in itertools.product(*map(range, _DOMAIN.sizes))]
    databases = [np.tile(one, (_RECORDS, 1)) for one in every[::3]]
    databases.append(np.stack([every[i % len(every)] for i in range(_RECORDS)]))
    for number, records in enumerate(databases):
        rounded, noise = [], None
        try:
            for one in every:
                near = records.copy()
                near[0] = one
                numbers, noise = _before_noise(box, budget, near)
                rounded.append(numbers)
        except AssertionError as error:
            # The solver checks the bounds that the sensitivity rests on: outside of them nothing is proved.
            worst.see(math.inf, str(error))
            break
        assert noise is not None
        for (i, first), (j, second) in itertools.combinations(enumerate(rounded), 2):
            pair = f"{every[i].tolist()} against {every[j].tolist()}"
            worst.see(_loss(first - second, noise), f"database {number}: {pair}")
    return AuditFinding.exact(
        began,
        subject=f"{subject}, {'pure' if isinstance(budget, PureDP) else 'zCDP'}",
        claimed=budget,
        found=worst.loss,
        control=control,
        detail=f"records of {', '.join(_DOMAIN.names)}; {worst.where}",
    )


def _before_noise(box: ERM, budget: Budget, records: NDArray[np.int32]) -> tuple[NDArray[np.int64], Noise]:
    """The numbers before noise, in steps of the grid, and the law of their noise."""
    tape = NoiseTape()
    cells = np.ravel_multi_index(tuple(records.T), _DOMAIN.sizes)
    counts = np.bincount(cells, minlength=_DOMAIN.cells(range(len(_DOMAIN))))
    made = box.run(budget, Database(len(records), (counts,)), tape)
    ((noise, size),) = tape.draws
    assert size == len(made.measured)
    return np.rint(made.measured / box.plan(budget, len(records)).step).astype(np.int64), noise


def _loss(difference: NDArray[np.int64], noise: Noise) -> float:
    if isinstance(noise, DiscreteLaplace):
        return float(Fraction(int(np.abs(difference).sum())) / noise.scale)
    return float(Fraction(int((difference**2).sum())) / (2 * noise.sigma_squared))


def exact_stream(
    plan: ClassifierPlan, subject: str, randomness: Randomness, *, control: bool = False
) -> AuditFinding:
    """The largest loss of a whole stream, with a record replaced in each step in turn."""
    began, worst = time.perf_counter(), Largest()
    steps = [np.arange(3 * size).reshape(size, 3) % 2 for size in (5, 4, 9, 1, 12)]
    base = [EncodedBatch(_DOMAIN, codes.astype(np.int32)) for codes in steps]
    for at, codes in enumerate(steps):
        near = codes.copy()
        near[0] = 1 - near[0]
        other = [*base[:at], EncodedBatch(_DOMAIN, near.astype(np.int32)), *base[at + 1 :]]
        worst.see(stream_loss(plan, base, other, randomness), f"a record of step {at + 1}")
    generator = np.random.default_rng(1)
    others = [
        [EncodedBatch(_DOMAIN, generator.integers(0, 2, codes.shape).astype(np.int32)) for codes in steps]
        for _ in range(_OTHERS)
    ]
    words = beside_the_door(plan, base, others, randomness)
    worst.see(math.inf if words else 0.0, f"other records: {words}")
    return AuditFinding.exact(
        began,
        subject=f"{subject}, transcripts",
        claimed=plan.budget,
        found=worst.loss,
        control=control,
        detail=f"most with {worst.where}",
    )


# Controls.


class _TellsParity(ClassifierPlan):
    """BROKEN: the next run's number of records holds a bit of a count."""

    def _synthesis(self, state: GrowingState) -> ClassifierSynthesis:
        made = super()._synthesis(state)
        return replace(made, next_run=made.next_run + int(state.counts[0][0]) % 2)


class _Quiet(ERM):
    """BROKEN: two thirds of the noise."""

    def plan(self, budget: Budget, t: int) -> ErmRun:
        run = super().plan(budget, t)
        factor = Fraction(3, 2)
        return _Underestimated(run.features, run.loss, run.lam, run.budget, run.t, factor)


class _AddRemove(ERM):
    """BROKEN: the noise for a record that is added or removed, half of what a replacement needs."""

    def plan(self, budget: Budget, t: int) -> ErmRun:
        run = super().plan(budget, t)
        return _Underestimated(run.features, run.loss, run.lam, run.budget, run.t, Fraction(2))


@dataclass(frozen=True)
class _Underestimated(ErmRun):
    """BROKEN: a run whose noise fits the sensitivity divided by ``factor``."""

    factor: Fraction = Fraction(1)

    @cached_property
    def noise(self) -> Noise:
        l1, l2_squared = self.sensitivity
        return noise_for(self.budget, l1 / self.factor, l2_squared / self.factor**2)


class _Longer(FeatureMap):
    """BROKEN: features of norm 1.2."""

    @cached_property
    def scale(self) -> float:
        return 1.2 / math.sqrt(len(self.positions) + 1)
