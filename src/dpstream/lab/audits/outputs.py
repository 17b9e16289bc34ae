"""The outputs of many runs of a stream mechanism, as tables of numbers.

A table has what a reader of all releases sees. At every step these are: every marginal of the workload by the model,
and as it was measured where that was released; the total and its standard error; and which marginals were measured,
which shows what was selected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed, PrivateBatch, Synthesis
from dpstream.core.counters import LinearMap
from dpstream.core.privacy.noise import DiscreteLaplace, Noise
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.schema.domain import Clique, Domain
from dpstream.lab.audits.canaries import Pair, Scene, TinyStream


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
