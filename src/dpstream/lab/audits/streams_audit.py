"""Empirical audits of whole streams: can a reader of all releases tell two neighbouring streams apart?

Every subject is a stream mechanism as users run it (``plan.start``, ``plan.step``) on tiny domains, thousands of times
on each of several neighbouring invented streams. A canary record is inserted at one step (the first, the last, a border
of blocks or trees), or replaced, or inserted and deleted again (two events, so twice the loss is allowed). One part of
the runs learns a statistic of everything that is released at all steps; the other runs prove a lower
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

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed, PrivateBatch, Synthesis
from dpstream.core.counters import LinearMap, SimpleCounter
from dpstream.core.counters.intervals import CalibratedIntervalCounter
from dpstream.core.privacy import ZCDP, Budget, Event, zcdp_to_epsilon
from dpstream.core.privacy.budget import PureDP
from dpstream.core.privacy.convert import group
from dpstream.core.privacy.noise import DiscreteLaplace, Noise
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Baseline, BaselinePlan, DPStabs, DPStabsPlan
from dpstream.families.tabular.dpstabs_state import DPStabsState
from dpstream.io.sinks import Publisher
from dpstream.lab.audits.controls import broken_quiet_counter
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress
from dpstream.lab.audits.loss_bounds import distinguish
from dpstream.mechanisms import MWEMPGM
from dpstream.mechanisms.table_release import ModelSynthesis
from dpstream.stream import Batch, open_stream
from dpstream.tools.evaluate.array_types import Codes

Record = tuple[int, ...]


@dataclass(frozen=True)
class TinyStream:
    """Records by step. ``deletes`` is None for a stream without deletes."""

    domain: Domain
    inserts: tuple[Codes, ...]
    deletes: tuple[Codes, ...] | None = None

    def __len__(self) -> int:
        return len(self.inserts)

    def with_insert(self, record: Record, at: int) -> TinyStream:
        """The stream with one more record, inserted at step ``at`` (1, 2, ...)."""
        return TinyStream(self.domain, _more(self.inserts, record, at), self.deletes)

    def with_delete(self, record: Record, at: int) -> TinyStream:
        """The stream with one more delete, at step ``at``. Only for streams with deletes."""
        assert self.deletes is not None
        return TinyStream(self.domain, self.inserts, _more(self.deletes, record, at))

    def with_replaced(self, record: Record, at: int) -> TinyStream:
        """The stream with ``record`` in place of the first insert of step ``at``; batch sizes stay the same."""
        changed = self.inserts[at - 1].copy()
        changed[0] = record
        return TinyStream(self.domain, (*self.inserts[: at - 1], changed, *self.inserts[at:]), self.deletes)

    def batches(self) -> tuple[EncodedBatch, ...]:
        """The batches for a plan, step by step."""
        deletes: Sequence[Codes | None] = self.deletes or [None] * len(self)
        return tuple(EncodedBatch(self.domain, *pair) for pair in zip(self.inserts, deletes, strict=True))


def crowded(domain: Domain, steps: int, each: int, *, deletions: bool = False) -> TinyStream:
    """A stream with every combination of values ``each`` times at every step, so that no fit clips a count at zero.

    With ``deletions``, every step but the first deletes half as many.
    """
    every = np.indices(domain.sizes).reshape(len(domain), -1).T.astype(np.int32)
    inserts = (np.repeat(every, each, axis=0),) * steps
    if not deletions:
        return TinyStream(domain, inserts)
    gone = np.repeat(every, each // 2, axis=0)
    return TinyStream(domain, inserts, (gone[:0], *(gone,) * (steps - 1)))


def empty(domain: Domain, steps: int) -> TinyStream:
    """A stream without records."""
    return TinyStream(domain, (np.empty((0, len(domain)), np.int32),) * steps)


@dataclass(frozen=True)
class Pair:
    """Two streams of a scene, by their numbers, which differ in so many events."""

    name: str
    first: int
    second: int
    events: int = 1


@dataclass(frozen=True)
class Scene:
    """Tiny streams of one length over one domain. The others are variations of number 0."""

    streams: tuple[TinyStream, ...]
    pairs: tuple[Pair, ...]

    @classmethod
    def inserted(cls, base: TinyStream, record: Record, steps: Sequence[int]) -> Scene:
        """Variations with a canary inserted at one of these steps."""
        streams = (base, *(base.with_insert(record, at) for at in steps))
        pairs = (Pair(f"canary at step {at}", 0, i) for i, at in enumerate(steps, start=1))
        return cls(streams, tuple(pairs))

    @classmethod
    def replaced(cls, base: TinyStream, record: Record, steps: Sequence[int]) -> Scene:
        """Variations with other values in the first record of one of these steps."""
        streams = (base, *(base.with_replaced(record, at) for at in steps))
        pairs = (Pair(f"record replaced at step {at}", 0, i) for i, at in enumerate(steps, start=1))
        return cls(streams, tuple(pairs))

    @classmethod
    def come_and_gone(cls, base: TinyStream, record: Record, at: int, gone: int) -> Scene:
        """Variations with a canary inserted at step ``at``, and with the same canary deleted at step ``gone``: 2
        events."""
        inserted = base.with_insert(record, at)
        pairs = (
            Pair(f"canary at step {at}", 0, 1),
            Pair(f"deletion of the canary at step {gone} or not", 1, 2),
            Pair(f"canary at step {at}, deleted at step {gone}", 0, 2, events=2),
        )
        return cls((base, inserted, inserted.with_delete(record, gone)), pairs)

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.streams[0].domain

    def __len__(self) -> int:
        return len(self.streams[0])


def _more(batches: tuple[Codes, ...], record: Record, at: int) -> tuple[Codes, ...]:
    grown = np.vstack([batches[at - 1], np.array([record], np.int32)])
    return (*batches[: at - 1], grown, *batches[at:])


# Whole streams that are broken on purpose: an audit that does not catch them is blind.
#
# **Never use them on real data.** No configuration file can name them, and nothing outside the audits imports
#   them.


def two_thirds_of_the_noise(plan: DPStabsPlan) -> DPStabsPlan:
    """BROKEN: counters whose noise is scaled by 2/3. They lose 3/2 of their epsilon, 9/4 of their rho."""
    return replace(plan, counter=broken_quiet_counter(plan.counter))


def a_quarter_of_the_noise(plan: DPStabsPlan) -> DPStabsPlan:
    """BROKEN: counters whose noise is scaled by 1/4. They lose 4 times their epsilon, 16 times their rho."""
    return _with_counters_at(plan, 4 if isinstance(plan.budget, PureDP) else 16)


def spent_once_per_counter(plan: DPStabsPlan) -> DPStabsPlan:
    """BROKEN: each of the ``k`` counters that an event enters spends the budget that all of them should share."""
    return _with_counters_at(plan, plan.recipe.rounds)


def _with_counters_at(plan: DPStabsPlan, factor: int) -> DPStabsPlan:
    counter = plan.counter
    assert isinstance(counter, CalibratedIntervalCounter)
    return replace(plan, counter=counter.recipe.calibrate(counter.budget.scaled(factor), counter.unit))


@dataclass
class _CountedBox:
    inner: DPStabsState
    records: int


@dataclass(frozen=True)
class ExactTotal:
    """BROKEN: the stream of a correct plan, with the true number of records in place of the noisy one."""

    plan: DPStabsPlan

    def start(self) -> _CountedBox:
        """A new state, before any record."""
        return _CountedBox(self.plan.start(), 0)

    def step(self, state: _CountedBox, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        """The plan's synthesis with an exact total."""
        synthesis = self.plan.step(state.inner, batch, randomness)
        state.records += int(batch.count([()])[0][0])
        return replace(synthesis, records=float(state.records))

    def pack_state(self, state: _CountedBox) -> Packed:
        """The plan's state and the exact number of records."""
        packed = self.plan.pack_state(state.inner)
        return Packed({"inner": packed.meta, "records": state.records}, packed.arrays)

    def unpack_state(self, packed: Packed) -> _CountedBox:
        """The inverse of ``pack_state``."""
        inner = self.plan.unpack_state(Packed(packed.meta["inner"], packed.arrays))
        return _CountedBox(inner, packed.meta["records"])


# The outputs of many runs of a stream mechanism, as tables of numbers.
#
# A table has what a reader of all releases sees. At every step these are: every marginal of the workload by
# the model, and as it was measured where that was released; the total and its standard error; and which
# marginals were measured, which shows what was selected.


class Mechanism(Protocol):
    """The methods of a plan that an audit needs (``StreamPlan`` has them)."""

    def start(self) -> Any: ...

    def step(self, state: Any, batch: PrivateBatch, randomness: Randomness) -> Synthesis: ...

    def pack_state(self, state: Any) -> Packed: ...

    def unpack_state(self, packed: Packed) -> Any: ...


@dataclass(frozen=True)
class Outputs:
    """The released numbers of many runs on the streams of a scene.

    Attributes:
        cliques: the marginals in the tables.
        values: shape (streams, runs, steps, columns): all cells by the model, all cells as measured (by the model
            where no measurement was released), and the total.
        flags: shape (streams, runs, steps, cliques + 1): 1 where a marginal was released as measured; the last column
            is the standard error of the total, or -1 where there is none.
    """

    domain: Domain
    cliques: tuple[Clique, ...]
    values: NDArray[np.float64]
    flags: NDArray[np.float64]


def run_scene(
    mechanism: Mechanism,
    cliques: Sequence[Clique],
    scene: Scene,
    runs: int,
    randomness: Randomness,
    tick: Callable[[], None] = lambda: None,
) -> Outputs:
    """Run every stream of a scene ``runs`` times.

    Run ``i`` of a variation continues run ``i`` of the first stream from the step at which the two streams begin to
    differ (through packed state). So the runs of one stream are independent of each other, but runs ``i`` of two
    streams share their beginning. ``tick`` is called after each run.

    Cost: for each run one whole stream, and the steps of each variation from its canary on.
    """
    streams = [stream.batches() for stream in scene.streams]
    parts = [_parting(scene.streams[0], stream) for stream in scene.streams]
    domain, cliques = scene.domain, tuple(cliques)
    width = 2 * sum(domain.cells(clique) for clique in cliques) + 1
    shape = (len(streams), runs, len(scene))
    values, flags = np.zeros((*shape, width)), np.zeros((*shape, len(cliques) + 1))

    def follow(number: int, run: int, state: Any, first: int, copies: bool) -> None:
        for at in range(first, len(scene)):
            if copies:
                for other in range(1, len(streams)):
                    if parts[other] == at:
                        values[other, run, :at] = values[number, run, :at]
                        flags[other, run, :at] = flags[number, run, :at]
                        follow(other, run, mechanism.unpack_state(mechanism.pack_state(state)), at, False)
            synthesis = mechanism.step(state, streams[number][at], randomness)
            _read(synthesis, cliques, values[number, run, at], flags[number, run, at])

    for run in range(runs):
        follow(0, run, mechanism.start(), 0, True)
        tick()
    return Outputs(domain, cliques, values, flags)


def _parting(base: TinyStream, other: TinyStream) -> int:
    """The first step (0, 1, ...) at which two streams differ; 0 if they never do."""
    for at in range(len(base)):
        same = np.array_equal(base.inserts[at], other.inserts[at])
        if base.deletes is not None and other.deletes is not None:
            same = same and np.array_equal(base.deletes[at], other.deletes[at])
        if not same:
            return at
    return 0


def _read(
    synthesis: Synthesis, cliques: Sequence[Clique], values: NDArray[np.float64], flags: NDArray[np.float64]
) -> None:
    table = synthesis.answers
    assert table is not None
    measured = table.measured
    cells = (len(values) - 1) // 2
    place = 0
    for i, clique in enumerate(cliques):
        model = table.marginal(clique).values.ravel()
        known = measured.get(clique)
        values[place : place + model.size] = model
        values[cells + place : cells + place + model.size] = model if known is None else known.values.ravel()
        flags[i] = known is not None
        place += model.size
    values[-1] = synthesis.total
    flags[-1] = -1.0 if synthesis.total_error is None else synthesis.total_error


def features(
    outputs: Outputs, scene: Scene, pair: Pair, law: LinearMap
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[str, ...]]:
    """Two tables for ``distinguish`` (one row per run), and the names of their columns.

    * The gain of every released number at every step, and which marginals were released as measured.
    * The evidence: for every noisy sum that a counter with the matrices ``law`` makes, and in which the two streams
      differ, the log-likelihood ratio of the two true sums; and the sum of this evidence over all marginals. Where
      everything is measured at every step, that sum is the log-likelihood ratio of the whole output, the best
      statistic. Elsewhere it is only a guess, and the regression can use the gains.
    """
    first, second = (_increments(scene.streams[i], outputs.cliques) for i in (pair.first, pair.second))
    cells = [
        f"{'x'.join(outputs.domain.names[i] for i in clique)}[{cell}]"
        for clique in outputs.cliques
        for cell in range(outputs.domain.cells(clique))
    ]
    labels = [
        *(f"{cell} by the model" for cell in cells),
        *(f"{cell} as measured" for cell in cells),
        "total",
    ]
    steps = range(1, len(scene) + 1)
    names = [f"gain of {label} at step {at}" for at in steps for label in labels]
    flagged = [*(f"marginal {i} measured" for i in range(len(outputs.cliques))), "error of the total"]
    names += [f"{flag}, step {at}" for at in steps for flag in flagged]
    evidence = _Evidence(law, first, second)
    names += [
        f"evidence in {[*cells, 'total'][column]}, noisy sum {row + 1}" for row, column in evidence.places
    ]
    names.append("evidence in all marginals")
    tables = []
    for number in (pair.first, pair.second):
        values, flags = outputs.values[number], outputs.flags[number]
        gains = np.diff(values, axis=1, prepend=0.0)
        flat = [gains, flags, evidence.of(values[:, :, len(cells) :])]
        tables.append(np.hstack([table.reshape(len(values), -1) for table in flat]))
    return tables[0], tables[1], tuple(names)


class _Evidence:
    """Computes the log-likelihood ratios of the noisy sums behind a counter's outputs."""

    def __init__(self, law: LinearMap, first: NDArray[np.float64], second: NDArray[np.float64]) -> None:
        # Every tick makes one noisy sum, so the decoder is square; it is unit lower triangular.
        self.back = np.linalg.inv(law.decoder.astype(np.float64))
        self.sums = [law.encoder @ table for table in (first, second)]
        rows, columns = np.nonzero(self.sums[0] != self.sums[1])
        self.places = list(zip(rows.tolist(), columns.tolist(), strict=True))
        self.laws = [law.scales[row] for row in rows]
        # The total is a sum of noisy cells without noise of its own, so its evidence is not added to that of the cells.
        self.own = columns != first.shape[1] - 1

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The evidence, shape (runs, noisy sums that differ + 1); the last column is the sum over the cells."""
        sums = np.einsum("nt,rtc->rnc", self.back, values)
        terms = [
            _distance(noise, sums[:, row, column] - self.sums[1][row, column])
            - _distance(noise, sums[:, row, column] - self.sums[0][row, column])
            for noise, (row, column) in zip(self.laws, self.places, strict=True)
        ]
        table = np.stack(terms, axis=1)
        return np.hstack([table, table[:, self.own].sum(axis=1, keepdims=True)])


def _distance(noise: Noise, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The negative log-likelihood, up to a constant."""
    if isinstance(noise, DiscreteLaplace):
        return np.abs(values) / float(noise.scale)
    return values**2 / (2.0 * float(noise.sigma_squared))


def _increments(stream: TinyStream, cliques: tuple[Clique, ...]) -> NDArray[np.float64]:
    """The true net counts, shape (steps, cells + 1); the last column is the total."""
    counts = [np.concatenate(batch.count((*cliques, ()))) for batch in stream.batches()]
    return np.array(counts, dtype=np.float64)


# Exact audit of the code between a synthesis and the disk: does a published byte depend on the records?
#
# A mechanism that reads no record runs as a durable stream on very different records, with the same random
# words (of a test seed). All published files (manifests, catalogue, codebook and tables) must then be equal,
# byte for byte. Then they are functions of the synthesis, public facts and fresh random words, and cost
# nothing beyond the mechanism's guarantee. Timing is not audited.


_SCHEMA = Schema((Categorical("place", ("north", "south", "west")), Boolean("paid")))
_STEPS = 3


class BlindPlan(DPStabsPlan):
    """DP-STabS that replaces every batch by invented records, so that its synthesis cannot depend on a record."""

    def step(self, state: DPStabsState, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        """One step on 60 invented records."""
        return super().step(state, EncodedBatch(self.domain, _rows(60)), randomness)


class LeakyPlan(BlindPlan):
    """BROKEN: like ``BlindPlan``, but its total is one higher where the batch has a record."""

    def step(self, state: DPStabsState, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        """The blind step, with a total that leaks."""
        synthesis = super().step(state, batch, randomness)
        leak = int(batch.count([()])[0][0]) > 0
        return replace(synthesis, records=synthesis.records + leak)


def audit_published() -> Iterator[AuditFinding]:
    """The published files of a mechanism that reads no record, and of a control that leaks."""
    recipe = DPStabs(Workload.all_k_way(_SCHEMA.domain, 2))
    plan = recipe.calibrate(PureDP.of(1))
    parts = (plan.recipe, plan.budget, plan.unit, plan.horizon, plan.counter, plan.selector)
    yield _published_finding(
        "published files of a mechanism that reads nothing", BlindPlan(*parts), control=False
    )
    yield _published_finding("published files, total that leaks", LeakyPlan(*parts), control=True)


def published_bytes(plan: DPStabsPlan, batches: Sequence[Codes]) -> dict[str, bytes]:
    """Every published file of a durable stream in a temporary folder, with a fixed test seed."""
    with tempfile.TemporaryDirectory() as folder:
        releases = Path(folder) / "releases"
        with open_stream(
            plan,
            _SCHEMA,
            Path(folder) / "state",
            randomness=Randomness.seeded("published"),
            publish_to=Publisher(releases),
        ) as stream:
            for step, codes in enumerate(batches, start=1):
                stream.step(Batch(codes), f"batch {step}", period=f"week {step}")
        files = sorted(path for path in releases.rglob("*") if path.is_file())
        return {str(path.relative_to(releases)): path.read_bytes() for path in files}


def _published_finding(subject: str, plan: DPStabsPlan, *, control: bool) -> AuditFinding:
    start = time.perf_counter()
    streams = {
        "no record": [_rows(0)] * _STEPS,
        "one record at step 2": [_rows(0), _rows(1), _rows(0)],
        "many records": [_rows(500), _rows(40), _rows(7)],
    }
    made = {name: published_bytes(plan, batches) for name, batches in streams.items()}
    first = made.pop("no record")
    # This includes files that only one folder has.
    differing = sorted(
        {
            f"{file} ({name})"
            for name, files in made.items()
            for file in files.keys() | first.keys()
            if files.get(file) != first.get(file)
        }
    )
    size = sum(len(data) for data in first.values())
    detail = (
        f"all {len(first)} files, {size} bytes, are equal" if not differing else f"differs: {differing[0]}"
    )
    return AuditFinding.exact(
        start,
        subject=subject,
        claimed=0.0,
        found=float("inf") if differing else 0.0,
        control=control,
        detail=f"{detail}; streams of {', '.join(streams)}",
    )


def _rows(count: int) -> Codes:
    """Invented records: codes of all values in turn."""
    sizes = np.array(_SCHEMA.domain.sizes)
    codes: Codes = (np.arange(count)[:, None] * np.array([1, 3]) % sizes).astype(np.int32)
    return codes


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
