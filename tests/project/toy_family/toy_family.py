"""A family of another package: one histogram of one column at every step. Found through its entry point only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    CellEstimate,
    Family,
    Limits,
    Measured,
    Packed,
    Part,
    PrivateBatch,
    StartTable,
    StreamPlan,
    SyntheticTable,
    option,
)
from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy import Budget, Event, PureDP, Randomness, Unit, noise_for
from dpstream.core.schema import Clique, Domain

#: Whoever loads this module can be seen by the tests.
LOADED = True


@dataclass(frozen=True)
class Histogram:
    """One column's histogram, released at every step."""

    domain: Domain
    column: str = option(
        allowed="a column of the schema", meaning="Whose values are counted.", fragment={"type": "string"}
    )
    rounding: Literal["none", "whole"] = option(
        "none", reason="the noise is whole already", meaning="What becomes of the noisy counts."
    )

    def __post_init__(self) -> None:
        if self.column not in self.domain.names:
            raise ConfigError(
                f"{self.column!r} is no column", where="column", allowed=", ".join(self.domain.names)
            )

    def calibrate(
        self, budget: Budget | None = None, unit: Unit | None = None, horizon: int | None = None
    ) -> HistogramPlan:
        if not isinstance(budget, PureDP):
            raise BudgetError("a toy has a pure guarantee", where="budget", allowed="epsilon")
        assert unit is None or isinstance(unit, Event)
        return HistogramPlan(self, budget, unit or Event(), horizon)


@dataclass(frozen=True)
class HistogramRelease(SyntheticTable):
    domain: Domain
    at: int
    counts: NDArray[np.float64]
    #: Of each count; None for a stream that began with another one's table.
    error: float | None

    @property
    def total(self) -> float:
        return float(self.counts.sum())

    @property
    def total_error(self) -> float | None:
        return None if self.error is None else self.error * len(self.counts) ** 0.5

    @property
    def measured(self) -> dict[Clique, Measured]:
        return {} if self.error is None else {(self.at,): Measured(self.counts, self.error)}

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        found = []
        for clique in cliques:
            shape = self.domain.shape(clique)
            here = self.counts if self.at in clique else np.array([self.total])
            spread = [size if place == self.at else 1 for place, size in zip(clique, shape, strict=True)]
            part = here.reshape(spread) / (np.prod(shape) / len(here))
            found.append(np.broadcast_to(part, shape).ravel())
        return found

    def marginal(self, clique: Clique) -> CellEstimate:
        values = self.marginals([clique])[0].reshape(self.domain.shape(clique))
        return CellEstimate(values, self.error if clique == (self.at,) else None)

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        generator = np.random.default_rng(seed)
        weights = np.maximum(self.counts, 0) + 1e-9
        drawn = [generator.integers(size, size=rows) for size in self.domain.sizes]
        drawn[self.at] = generator.choice(len(weights), size=rows, p=weights / weights.sum())
        return np.stack(drawn, axis=1).astype(np.int32)

    def pack(self) -> Packed:
        return Packed({"error": self.error}, {"counts": self.counts})


@dataclass(frozen=True)
class HistogramPlan(StreamPlan):
    """Guarantee: pure epsilon for an event: it is in one step's histogram."""

    recipe: Histogram
    budget: PureDP
    unit: Event
    horizon: int | None

    @property
    def domain(self) -> Domain:
        return self.recipe.domain

    @property
    def at(self) -> int:
        return self.domain.names.index(self.recipe.column)

    @property
    def name(self) -> str:
        return "histogram"

    def parts(self) -> tuple[Part, ...]:
        return (Part("measure", 1, self.budget, "one histogram"),)

    def options(self) -> dict[str, Any]:
        return {"column": self.recipe.column, "rounding": self.recipe.rounding}

    def start(self) -> dict[str, Any]:
        return {"step": 0, "counts": np.zeros(self.domain.sizes[self.at], np.int64), "based": False}

    def start_from(self, base: StartTable) -> dict[str, Any]:
        counts = np.rint(base.marginals([(self.at,)])[0]).astype(np.int64)
        return {**self.start(), "counts": counts, "based": True}

    def step(self, state: dict[str, Any], batch: PrivateBatch, randomness: Randomness) -> HistogramRelease:
        noise = noise_for(self.budget, 1, 1)
        state["step"] += 1
        state["counts"] = (
            state["counts"] + batch.count([(self.at,)])[0] + randomness.draw(noise, len(state["counts"]))
        )
        error = None if state["based"] else float((noise.variance * state["step"]) ** 0.5)
        return HistogramRelease(self.domain, self.at, state["counts"].astype(float), error)

    def pack_state(self, state: dict[str, Any]) -> Packed:
        return Packed({"step": state["step"], "based": state["based"]}, {"counts": state["counts"]})

    def unpack_state(self, packed: Packed) -> dict[str, Any]:
        return {**packed.meta, "counts": packed.arrays["counts"]}

    def unpack_synthesis(self, packed: Packed) -> HistogramRelease:
        return HistogramRelease(self.domain, self.at, packed.arrays["counts"], packed.meta["error"])


FAMILY = Family(
    "histograms",
    "a stream of histograms",
    {"histogram": Histogram},
    Limits(
        units=("event",),
        other_units="a histogram cannot protect the unit {unit!r}",
        deletes="a histogram does not forget",
        rows=("a histogram has no use for rows", "a time_column"),
        late={"next-step": "a histogram is never late"},
        base=True,
        records=("fresh",),
        no_tables=("one of histograms", ""),
    ),
)
