"""The exact loss of private classifiers, when one record of a small database is replaced, with its label.

A run measures whole numbers (its coefficients on a grid) with one draw of noise each; a door shows the numbers and the
law of the noise. The databases are chosen so that the bound is nearly reached: columns of two values, so that one
record moves all coefficients alike, and strong regularisation.
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

from dpstream.core.contracts import PrivateBatch
from dpstream.core.privacy import ZCDP, Budget, Noise, PureDP, Randomness, noise_for
from dpstream.core.schema import Boolean, Schema
from dpstream.families.growing import ERM, BBScheduler, Database
from dpstream.families.growing.classifier_stream import ClassifierPlan, ClassifierSynthesis
from dpstream.families.growing.erm_run import ErmRun, FeatureMap, LossName
from dpstream.families.growing.growing_plan import GrowingState
from dpstream.tools.audit.door import Door, Measured, measured_loss
from dpstream.tools.audit.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.tools.audit.transcripts import Subject
from dpstream_lab.audits.growing_audit import growing_subject
from dpstream_lab.audits.subjects import rebuilt, transcripts_of

_RECORDS = 24
_SCHEMA = Schema((Boolean("a"), Boolean("b"), Boolean("label")))
_DOMAIN = _SCHEMA.domain
_BUDGETS: tuple[Budget, ...] = (PureDP.of(1), ZCDP.of("1/2"))


def audit_classifiers(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Both loss functions with both kinds of budget, then three broken classifiers."""
    progress("classifiers, all replacements of a record")
    losses: tuple[LossName, ...] = ("logistic", "svm")
    for loss, budget in itertools.product(losses, _BUDGETS):
        for lam in (None, 1.0, 2.0**-6):
            yield exact_classifier(
                ERM(_SCHEMA, "label", loss=loss, lam=lam), budget, f"classifier {loss}, lam {lam or 'chosen'}"
            )
    yield from _STREAMS(length, randomness, progress)
    progress("controls of classifiers")
    for budget in _BUDGETS:
        quiet = _Quiet(_SCHEMA, "label", loss="svm", lam=1.0)
        yield exact_classifier(quiet, budget, "classifier svm with 2/3 of the noise", control=True)
        half = _AddRemove(_SCHEMA, "label", loss="svm", lam=1.0)
        yield exact_classifier(half, budget, "classifier svm, one record there or not", control=True)
    wide = _Wide(_SCHEMA, "label", loss="svm", lam=1.0)
    for budget in _BUDGETS:
        what = "classifier svm, features a fifth longer than 1"
        yield exact_classifier(wide, budget, what, control=True)


def exact_classifier(box: ERM, budget: Budget, subject: str, *, control: bool = False) -> AuditFinding:
    """The largest loss over all replacements of one record, in several databases."""
    began, worst = time.perf_counter(), Largest(0.0)
    every = [np.array(code, np.int32) for code in itertools.product(*map(range, _DOMAIN.sizes))]
    databases = [np.tile(one, (_RECORDS, 1)) for one in every[::3]]
    databases.append(np.stack([every[i % len(every)] for i in range(_RECORDS)]))
    for number, records in enumerate(databases):
        measured = list[Measured]()
        try:
            for one in every:
                near = records.copy()
                near[0] = one
                measured.append(_measured(box, budget, near))
        except AssertionError as error:
            # The solver checks the bounds that the sensitivity rests on: outside of them nothing is proved.
            worst.see(math.inf, str(error))
            break
        for (i, first), (j, second) in itertools.combinations(enumerate(measured), 2):
            pair = f"{every[i].tolist()} against {every[j].tolist()}"
            loss = measured_loss(first.noise, first.exact - second.exact)
            worst.see(loss, f"database {number}: {pair}")
    return AuditFinding.of(
        began,
        subject=f"{subject}, {'pure' if isinstance(budget, PureDP) else 'zCDP'}",
        claimed=budget,
        found=worst.loss,
        control=control,
        detail=f"records of {', '.join(_DOMAIN.names)}; {worst.where}",
    )


def _measured(box: ERM, budget: Budget, records: NDArray[np.int32]) -> Measured:
    """What a run measures: its coefficients in steps of a grid, and the law of their noise."""
    door = Door(b"classifier")
    cells = np.ravel_multi_index(tuple(records.T), _DOMAIN.sizes)
    counts = np.bincount(cells, minlength=_DOMAIN.cells(range(len(_DOMAIN))))
    box.run(budget, Database(len(records), (counts,)), door)
    (measured,) = door.measured
    return measured


def stream_subjects() -> Iterator[Subject]:
    """Whole streams, with both kinds of budget; then one that tells a bit of a count."""
    for budget in _BUDGETS:
        plan = BBScheduler(ERM(_SCHEMA, "label", loss="svm", lam=1.0), 8, gamma="1/2").calibrate(budget)
        yield growing_subject(plan, f"stream of classifiers, {budget}", _SIZES)
    broken = rebuilt(_TellsParity, plan)
    yield growing_subject(broken, "stream of classifiers, parity of a count", _SIZES, control=True)


_SIZES = (5, 4, 9, 1, 12)
_STREAMS = transcripts_of(stream_subjects, 1, 10)


# Controls.


class _TellsParity(ClassifierPlan):
    """BROKEN: the next run's number of records holds a bit of a count."""

    def step(self, state: GrowingState, batch: PrivateBatch, randomness: Randomness) -> ClassifierSynthesis:
        made: ClassifierSynthesis = super().step(state, batch, randomness)
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


class _Wide(ERM):
    """BROKEN: the noise for features of norm 1, and longer ones."""

    @cached_property
    def features(self) -> FeatureMap:
        """Features that are longer than declared."""
        return _Longer(_DOMAIN, "label")
