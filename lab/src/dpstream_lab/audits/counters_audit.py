"""Empirical audits of counters: what an attacker who sees every output can really infer.

The certificate says what a counter costs if its noise is as it says; here noise is really drawn, one counter of each
kind of noise. The cells of a histogram get independent noise, so one run of a counter with ``n`` cells is ``n`` runs.
Two streams differ by one in one increment. The attacker knows both, sees all outputs, subtracts the known stream, and
takes the likelihood ratio of the noisy sums behind the outputs. The changed step is in turn at borders, in the middle
and at the ends, because a mistake in a counter often shows at one step only. One tail of the ratio bounds the loss
(see ``loss_bounds``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import CalibratedCounter, LinearMap, SimpleCounter, TreeCounter, counter_by_name
from dpstream.core.errors import BudgetError
from dpstream.core.privacy import ZCDP, Budget, DiscreteLaplace, Event, PureDP, Randomness
from dpstream.tools.audit.controls import quiet_counter
from dpstream.tools.audit.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream_lab.audits.controls import BrokenShortTree
from dpstream_lab.audits.loss_bounds import lower_bound

#: Of every empirical finding: chance accuses one of the few honest counters with probability 2e-7 at most.
COUNTERS_CONFIDENCE = 1 - 5e-8

#: The part of the runs that trains; the rest judges.
_TRAIN = 0.2
_RUNS: dict[AuditLength, int] = {"short": 200_000, "long": 600_000}


def audit_counters(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Both kinds of noise, both relations, through the public running code; then the controls."""
    one, half = PureDP.of(1), ZCDP.of("0.5")
    simple, tree = SimpleCounter().calibrate(one, Event()), TreeCounter(4).calibrate(one, Event())
    gaussian = TreeCounter(4).calibrate(half, Event())
    for name, counter, control in (
        ("simple", simple, False),
        ("tree", tree, False),
        ("tree, replace", TreeCounter(4).calibrate(one, Event("replace")), False),
        ("tree, zCDP", gaussian, False),
        ("simple with 2/3 of the noise", quiet_counter(simple), True),
        ("tree with 2/3 of the noise", quiet_counter(tree), True),
        ("tree with 2/3 of the noise, zCDP", quiet_counter(gaussian), True),
        ("tree, one level short", BrokenShortTree(4).calibrate(one, Event()), True),
    ):
        progress(f"{'control: ' * control}counter {name}")
        yield audit_counter(counter, 4, _RUNS[length], randomness, f"counter {name}, runs", control=control)


def calibrated_by_name(
    name: str, horizon: int, budget: Budget, unit: Event | None = None
) -> CalibratedCounter | None:
    """The counter with this name in configuration files; None where it does not take this kind of budget."""
    recipe = counter_by_name(name, horizon=horizon)
    try:
        return recipe.calibrate(budget, unit or Event())
    except BudgetError:
        return None


def audit_counter(
    counter: CalibratedCounter,
    ticks: int,
    runs: int,
    randomness: Randomness,
    subject: str,
    *,
    control: bool = False,
    steps: Sequence[int] | None = None,
) -> AuditFinding:
    """A lower confidence bound on the loss of a counter's first ``ticks`` outputs.

    Args:
        counter: an interval counter; its claim is its budget. Its matrices decide the power of the audit only.
        runs: runs per side and changed step.
        steps: the steps that are changed in turn, by default ``border_steps(ticks)``. They share the error.

    Cost: about ``runs * ticks * len(steps)`` draws; 8 bytes for each output of a side.
    """
    began, worst = time.perf_counter(), Largest()
    steps = border_steps(ticks) if steps is None else steps
    confidence = 1 - (1 - COUNTERS_CONFIDENCE) / len(steps)
    cells, pure = counter.unit.changed_cells, isinstance(counter.budget, PureDP)
    law = counter.materialize(ticks)
    noise = _outputs(counter, ticks, None, runs, cells, randomness)
    for step in steps:
        moved = _outputs(counter, ticks, step, runs, cells, randomness)
        a, b = (_evidence(law, step, outputs) for outputs in (moved, noise))
        found = lower_bound(a, b, confidence=confidence, pure=pure, train=_TRAIN)
        worst.see(found, f"most at tick {step} of {_listing(steps)}")
    return AuditFinding.of(
        began,
        subject=subject,
        claimed=counter.budget,
        found=worst.loss,
        confidence=COUNTERS_CONFIDENCE,
        runs=runs,
        control=control,
        detail=worst.where,
    )


def border_steps(ticks: int) -> list[int]:
    """First and last tick, the middle, powers of two and their successors, borders of square-root and growing blocks.

    Between them these are the ticks at which mistakes in a counter show.

    >>> border_steps(16)
    [1, 2, 3, 4, 5, 8, 9, 13, 14, 15, 16]
    >>> border_steps(1)
    [1]
    """
    chosen = {1, ticks - 1, ticks, ticks // 2, ticks // 2 + 1}
    power = 1
    while power <= ticks:
        chosen |= {power, power + 1}
        power *= 2
    partition, size = 4, 2
    while partition <= ticks:
        chosen |= {partition, partition + 1}
        size += 1
        partition += size * size
    chosen -= {17, 33, 65} - {ticks}  # successors of higher powers show nothing that 9 does not show
    return sorted(step for step in chosen if 1 <= step <= ticks)


def _listing(steps: Sequence[int]) -> str:
    return f"{len(steps)} changed ticks ({', '.join(map(str, steps))})"


def _outputs(
    counter: CalibratedCounter, ticks: int, changed: int | None, runs: int, cells: int, randomness: Randomness
) -> NDArray[np.int64]:
    """The outputs less the known stream: int64[ticks + 1, cells, runs].

    Row 0 is the empty sum. At tick ``changed`` the increment is one higher in the first cell of each run, and one lower
    in the second cell where the unit is a replacement. The second cell has its sign turned, so both look one higher.
    """
    state = counter.init(cells * runs)
    result = np.zeros((ticks + 1, cells, runs), np.int64)
    known = np.zeros((), np.int64)
    for tick in range(1, ticks + 1):
        # Any public stream will do, but a constant one would hide a counter whose noise depends on its input.
        base = np.int64(7 * tick % 5 - 1)
        known = known + base
        increment = np.full((cells, runs), base)
        if tick == changed:
            increment[0] += 1
            increment[1:] -= 1
        result[tick] = counter.step(state, increment.ravel(), randomness).reshape(cells, runs) - known
    result[:, 1:] *= -1
    return result


def _evidence(law: LinearMap, step: int, outputs: NDArray[np.int64]) -> NDArray[np.float64]:
    """The log-likelihood ratio of each run: its noisy sums with the change over those without it."""
    # Every tick makes one noisy sum, so the decoder is square; it is unit lower triangular.
    back = np.linalg.inv(law.decoder.astype(np.float64))
    sums = np.rint(np.einsum("nt,tcr->ncr", back, outputs[1:]))
    ratio = np.zeros(outputs.shape[2])
    for row in np.flatnonzero(law.encoder[:, step - 1]):
        noise, shifted = law.scales[row], sums[row] - law.encoder[row, step - 1]
        if isinstance(noise, DiscreteLaplace):
            terms = (np.abs(sums[row]) - np.abs(shifted)) / float(noise.scale)
        else:
            terms = (sums[row] ** 2 - shifted**2) / (2 * float(noise.sigma_squared))
        ratio += terms.sum(axis=0)
    # Equal ratios are one event, whatever the order in which floats were added.
    return ratio.round(9)
