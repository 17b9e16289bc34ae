"""Empirical audits of whole streams: can a reader of all releases tell two neighbouring streams apart?

Every subject is a stream mechanism as users run it (``plan.start``, ``plan.step``) on tiny domains, thousands of times
on each of several neighbouring invented streams. A canary record is inserted at one step (the first, the last, a border
of blocks or trees), or replaced, or inserted and deleted again (two events, so twice the loss is allowed). One part of
the runs learns a statistic of everything that is released at all steps (``outputs``); the other runs prove a lower
bound on the loss (``loss_bounds``).

* Each finding has the confidence ``STREAMS_CONFIDENCE``. There are at most 40 findings of honest mechanisms, so chance
  accuses an honest program with probability 1e-6 at most. ``AuditFinding.detail`` has the bound of the same runs at
  95 %, which shows better how near the loss is to the claim, and may be wrong once in twenty times.
* zCDP plans are audited against the (epsilon, delta) guarantee that their rho implies at one large delta
  (``zcdp_to_epsilon``: Canonne, Kamath, Steinke 2020). A small delta would need too many runs.
* The code between a synthesis and the disk is not audited here. ``published_audit`` checks exactly that it never sees a
  record, so runs through the durable stream would show nothing new, at ten times the cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from dpstream.core.counters import LinearMap, SimpleCounter
from dpstream.core.privacy import ZCDP, Budget, Event, PureDP, Randomness, zcdp_to_epsilon
from dpstream.core.privacy.convert import group
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload
from dpstream.families.tabular import MWEMPGM, Baseline, BaselinePlan, DPStabs, DPStabsPlan
from dpstream.lab.audits.canaries import Pair, Scene, crowded, empty
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress
from dpstream.lab.audits.leaky import (
    ExactTotal,
    a_quarter_of_the_noise,
    spent_once_per_counter,
    two_thirds_of_the_noise,
)
from dpstream.lab.audits.loss_bounds import distinguish
from dpstream.lab.audits.outputs import Mechanism, Outputs, features, run_scene
from dpstream.lab.audits.published_audit import audit_published

#: The confidence of each finding. With 40 findings the false-alarm rate of the whole audit is at most 1e-6.
STREAMS_CONFIDENCE = 1 - 2.5e-8

#: The delta at which zCDP plans are audited.
DELTA = Fraction(1, 100)

#: A long audit has so many times the runs of a short one.
LONG = 15

_TRAIN = 0.4
_SEED = 1  # of the public split into training and judging runs

_ONE = Domain(("a",), (2,))
_TWO = Domain(("a", "b"), (2, 2))
_THREE = Domain(("a", "b", "c"), (2, 2, 2))


@dataclass(frozen=True)
class StreamSubject:
    """One mechanism, its claim, and the streams on which it runs.

    Attributes:
        law: the matrices of a counter that makes the measurements, for the evidence in ``features``. Only the power of
            the audit depends on it.
        runs: the number of runs on each stream in a short audit.
    """

    name: str
    mechanism: Mechanism
    workload: Workload
    budget: Budget
    law: LinearMap
    scene: Scene
    runs: int
    control: bool = False


def audit_streams(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Whole streams, then the controls, then published files.

    Cost: the short audit about a minute and a half of one core; the long one 15 times as much.
    """
    factor = 1 if length == "short" else LONG
    for subject in (*stream_subjects(), *stream_controls()):
        progress(f"control: {subject.name}" if subject.control else subject.name)
        yield from audit_stream(subject, subject.runs * factor, randomness)
    progress("published files")
    yield from audit_published()


def audit_stream(
    subject: StreamSubject, runs: int, randomness: Randomness, tick: Callable[[], None] = lambda: None
) -> Iterator[AuditFinding]:
    """One finding for each pair of the subject's scene, all from the same runs; ``tick`` is called after each run."""
    start = time.perf_counter()
    outputs = run_scene(subject.mechanism, subject.workload.cliques, subject.scene, runs, randomness, tick)
    # All pairs use the same runs, so each finding gets its share of their time.
    share = (time.perf_counter() - start) / len(subject.scene.pairs)
    for pair in subject.scene.pairs:
        yield _finding(subject, outputs, pair, share)


def _finding(subject: StreamSubject, outputs: Outputs, pair: Pair, seconds: float) -> AuditFinding:
    start = time.perf_counter()
    budget = group(subject.budget, pair.events)
    delta = 0.0 if isinstance(budget, PureDP) else float(DELTA)
    claimed = float(budget.amount) if isinstance(budget, PureDP) else zcdp_to_epsilon(budget, DELTA)
    first, second, names = features(outputs, subject.scene, pair, subject.law)
    strict, usual = (
        distinguish(first, second, confidence=level, seed=_SEED, delta=delta, train=_TRAIN, names=names)
        for level in (STREAMS_CONFIDENCE, 0.95)
    )
    claim = f"{budget} for {pair.events} events, " if pair.events > 1 else ""
    if delta:
        claim = f"{budget}, that is ({claimed:.3g}, {delta:g})-DP, "
    detail = f"{claim}{strict.statistic}; at 95 % alone the bound is {usual.epsilon:.2f}"
    return AuditFinding.empirical(
        start - seconds,
        subject=f"{subject.name}, {pair.name}",
        claimed=claimed,
        found=strict.epsilon,
        confidence=STREAMS_CONFIDENCE,
        runs=strict.runs,
        control=subject.control,
        detail=detail,
    )


def stream_subjects() -> tuple[StreamSubject, ...]:
    """Honest mechanisms. Most claim epsilon = 2, where a given number of runs shows the largest part of the claim."""
    one, pairs = Workload.all_k_way(_ONE, 1), Workload.all_k_way(_THREE, 2)
    square, singles = Workload.all_k_way(_TWO, 2), Workload.all_k_way(_TWO, 1)
    crowd_one, crowd_two, crowd_three = (crowded(domain, 4, 10) for domain in (_ONE, _TWO, _THREE))
    simple = DPStabs(one, counter="simple").calibrate(PureDP.of(2), horizon=4)
    return (
        _subject(
            "DP-STabS, simple counter",
            simple,
            Scene.inserted(crowd_one, (1,), (1, 4)),
            2000,
        ),
        _subject(
            "DP-STabS, simple counter, empty stream",
            simple,
            Scene.inserted(empty(_ONE, 4), (1,), (1, 4)),
            800,
        ),
        _subject(
            "DP-STabS, block counter of 2",
            DPStabs(square, counter="block").calibrate(PureDP.of(2), horizon=4),
            Scene.inserted(crowd_two, (1, 1), (1, 2, 4)),
            800,
        ),
        _subject(
            "DP-STabS, tree counters of 4 and 1",
            DPStabs(square, counter="tree").calibrate(PureDP.of(2), horizon=5),
            Scene.inserted(crowded(_TWO, 5, 10), (1, 1), (1, 4, 5)),
            800,
        ),
        _subject(
            "DP-STabS, least-squares trees",
            DPStabs(square, counter="optimal-tree").calibrate(PureDP.of(2), horizon=5),
            Scene.inserted(crowded(_TWO, 5, 10), (1, 1), (1, 4)),
            800,
        ),
        _subject(
            "DP-STabS, one of three marginals selected",
            DPStabs(pairs, k=1).calibrate(PureDP.of(2)),
            Scene.inserted(crowd_three, (1, 0, 1), (1, 3)),
            700,
        ),
        _subject(
            "DP-STabS, literal, one of two marginals selected",
            DPStabs(singles, k=1, past="literal").calibrate(PureDP.of(3)),
            Scene.inserted(crowd_two, (1, 1), (2, 4)),
            700,
        ),
        _subject(
            "DP-STabS with deletions, one of two marginals selected",
            DPStabs(singles, k=1, deletions=True).calibrate(PureDP.of(3)),
            Scene.come_and_gone(crowded(_TWO, 4, 10, deletions=True), (1, 1), 2, 4),
            600,
        ),
        _subject(
            "DP-STabS, replace",
            DPStabs(square, counter="simple").calibrate(PureDP.of(2), unit=Event("replace")),
            Scene.replaced(crowd_two, (1, 1), (1, 4)),
            600,
        ),
        _subject(
            "DP-STabS, zCDP",
            DPStabs(one, counter="simple").calibrate(ZCDP.of("1/2")),
            Scene.inserted(crowd_one, (1,), (3,)),
            800,
        ),
        _subject(
            "baseline, one marginal",
            Baseline(one, MWEMPGM(k=1)).calibrate(PureDP.of(2)),
            Scene.inserted(crowd_one, (1,), (1, 4)),
            600,
        ),
    )


def stream_controls() -> tuple[StreamSubject, ...]:
    """Broken mechanisms, each with the claim of the honest plan that it was made from."""
    one, singles = Workload.all_k_way(_ONE, 1), Workload.all_k_way(_TWO, 1)
    simple, zcdp = (
        DPStabs(one, counter="simple").calibrate(PureDP.of(1)),
        DPStabs(one, counter="simple").calibrate(ZCDP.of("1/2")),
    )
    twice = DPStabs(singles, counter="simple").calibrate(PureDP.of(1))
    # Both streams share the first step, which therefore runs once for both.
    single = Scene.inserted(crowded(_ONE, 2, 10), (1,), (2,))
    double = Scene.inserted(crowded(_TWO, 2, 10), (1, 1), (2,))
    return (
        _control("2/3 of the noise", simple, two_thirds_of_the_noise(simple), single, 4500),
        _control("budget spent once per counter", twice, spent_once_per_counter(twice), double, 2500),
        _control("exact total", simple, ExactTotal(simple), single, 300),
        # With a delta the bound is far below the claim, so this control has to be coarser.
        _control("1/4 of the noise, zCDP", zcdp, a_quarter_of_the_noise(zcdp), single, 1000),
    )


def _subject(name: str, plan: DPStabsPlan | BaselinePlan, scene: Scene, runs: int) -> StreamSubject:
    # The baseline measures with fresh noise at every step, which is what a simple counter does.
    counter = (
        plan.counter
        if isinstance(plan, DPStabsPlan)
        else SimpleCounter().calibrate(plan.budget, plan.unit.event)
    )
    law = counter.materialize(len(scene))
    if law.decoder.shape[0] != law.decoder.shape[1]:
        # The evidence needs the inverse of the decoder, so a counter with more noises than outputs gets a simple one.
        law = SimpleCounter().calibrate(plan.budget, plan.unit.event).materialize(len(scene))
    return StreamSubject(name, plan, plan.recipe.workload, plan.budget, law, scene, runs)


def _control(name: str, plan: DPStabsPlan, broken: Mechanism, scene: Scene, runs: int) -> StreamSubject:
    law = plan.counter.materialize(len(scene))
    return StreamSubject(
        f"DP-STabS, {name}", broken, plan.recipe.workload, plan.budget, law, scene, runs, control=True
    )
