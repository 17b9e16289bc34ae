"""A small real mechanism for the stream's tests: one simple counter of the first column's marginal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    CellEstimate,
    Measured,
    NoisyCounts,
    Packed,
    Part,
    PrivateBatch,
    StreamPlan,
    SyntheticTable,
    marginal_query,
)
from dpstream.core.privacy import Event, PureDP, Randomness, noise_for
from dpstream.core.schema import Boolean, Categorical, Clique, Domain, Integer, Schema
from dpstream.io.sinks import Publisher
from dpstream.io.sinks.table_files import Format
from dpstream.stream import Batch, Publishing, Stream, open_stream

SCHEMA = Schema(
    [
        Categorical("zip", ["94102", "94103", "94110"], other="other"),
        Boolean("paid"),
        Integer("rent", edges=[0, 500, 1000, 2000], missing="missing"),
    ]
)


@dataclass(frozen=True)
class ToySynthesis(SyntheticTable):
    """The counter's estimates on the first column, uniform on the others."""

    domain: Domain
    estimates: NDArray[np.float64]
    deviation: float
    noisy_counts: Sequence[NoisyCounts] = ()

    @property
    def total(self) -> float:
        return float(self.estimates.sum())

    @property
    def total_error(self) -> float:
        return self.deviation * len(self.estimates) ** 0.5

    @property
    def measured(self) -> dict[Clique, Measured]:
        return {(0,): Measured(self.estimates, self.deviation)}

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        found = []
        for clique in cliques:
            rest = self.domain.cells([i for i in clique if i != 0])
            values = self.estimates if 0 in clique else np.array([self.total])
            found.append(np.repeat(values / rest, rest))
        return found

    def marginal(self, clique: Clique) -> CellEstimate:
        values = self.marginals([clique])[0].reshape(self.domain.shape(clique))
        return CellEstimate(values, self.deviation if clique == (0,) else None)

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        generator = np.random.default_rng(seed)
        weights = np.maximum(self.estimates, 0) + 1e-9
        codes = [generator.choice(len(weights), size=rows, p=weights / weights.sum())]
        codes += [generator.integers(size, size=rows) for size in self.domain.sizes[1:]]
        return np.stack(codes, axis=1).astype(np.int32)

    def blocks(self, rows: int, seed: int, size: int) -> Iterator[Callable[[], NDArray[np.int32]]]:
        for number, first in enumerate(range(0, rows, size)):
            yield partial(self.sample, min(size, rows - first), 1000 * (seed % 2**40) + number)

    def pack(self) -> Packed:
        return Packed({"deviation": self.deviation}, {"estimates": self.estimates})


@dataclass
class ToyState:
    step: int
    true: NDArray[np.int64]
    noise: NDArray[np.int64]


@dataclass(frozen=True)
class ToyPlan(StreamPlan):
    """Guarantee: pure epsilon, event, add/remove: each event is in one increment of one histogram."""

    budget: PureDP = field(default_factory=lambda: PureDP.of(1))
    horizon: int | None = None
    domain: Domain = SCHEMA.domain
    unit: Event = field(default_factory=Event)
    label: str = "plain"

    @property
    def name(self) -> str:
        return "toy"

    def parts(self) -> tuple[Part, ...]:
        budget = self.budget.scaled(1 - getattr(self.unit, "cut_share", 0))
        return (
            Part("select", 1, budget.scaled(Fraction(1, 3)), "not used"),
            Part("measure", 1, budget.scaled(Fraction(2, 3)), "one histogram"),
        )

    def options(self) -> dict[str, Any]:
        return {"label": self.label}

    def start(self) -> ToyState:
        size = self.domain.sizes[0]
        return ToyState(0, np.zeros(size, np.int64), np.zeros(size, np.int64))

    def step(self, state: ToyState, batch: PrivateBatch, randomness: Randomness) -> ToySynthesis:
        noise = noise_for(self.budget.scaled(Fraction(2, 3)), 1, 1)
        state.step += 1
        exact, drawn = batch.count([(0,)])[0], randomness.draw(noise, len(state.noise))
        state.true += exact
        state.noise += drawn
        deviation = (noise.variance * state.step) ** 0.5
        query = marginal_query(self.domain.names[:1])
        step = state.step
        counts = NoisyCounts(f"step {step}", "net", step, step, query, exact + drawn, noise)
        return ToySynthesis(self.domain, (state.true + state.noise).astype(float), deviation, (counts,))

    def pack_state(self, state: ToyState) -> Packed:
        return Packed({"step": state.step}, {"true": state.true, "noise": state.noise})

    def unpack_state(self, packed: Packed) -> ToyState:
        return ToyState(packed.meta["step"], packed.arrays["true"], packed.arrays["noise"])

    def unpack_synthesis(self, packed: Packed) -> ToySynthesis:
        return ToySynthesis(self.domain, packed.arrays["estimates"], packed.meta["deviation"])


def batch(step: int) -> Batch:
    """A batch of a few dozen records with a deletion, different at every step."""
    generator = np.random.default_rng(step)
    zips = np.array(["94102", "94103", "94110", "10001"])[generator.integers(0, 4, 40)]
    frame = {
        "zip": zips.tolist(),
        "paid": (generator.random(40) < 0.5).tolist(),
        "rent": [None if r < 0 else int(r) for r in generator.integers(-200, 2001, 40)],
    }
    gone = {name: values[:3] for name, values in frame.items()}
    return Batch(frame, gone if step % 2 == 0 else None)


def start(
    tmp_path: Path,
    *,
    plan: StreamPlan | None = None,
    publish: bool = True,
    form: Format = "parquet",
    schema: Schema = SCHEMA,
    publishing: Publishing = Publishing(),  # noqa: B008 (frozen)
    keep: int | None = None,
    max_rows: int | None = None,
    **options: Any,
) -> Stream:
    sink = Publisher(tmp_path / "releases", format=form) if publish else None
    policy = replace(publishing, keep=keep, max_rows=max_rows)
    return open_stream(
        plan or ToyPlan(), schema, tmp_path / "state", publish_to=sink, publishing=policy, **options
    )


def run(tmp_path: Path, steps: int, **options: object) -> None:
    with start(tmp_path, **options) as stream:
        for step in range(1, steps + 1):
            stream.step(batch(step), f"b{step}", period=f"2026-W{step:02d}")
