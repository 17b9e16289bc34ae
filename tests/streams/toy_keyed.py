"""A small real mechanism that reads present records: at every step it counts them in the first column, with noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
import toy_stream
from toy_stream import ToyPlan, ToyState, ToySynthesis

from dpstream.core.contracts import BatchReads, Part, PrivateBatch
from dpstream.core.privacy import PureDP, Randomness, Record, noise_for
from dpstream.stream import KeyedBatch, KeyRules

STEPS = 8
#: Values of a record: zip, paid, rent.
Values = tuple[str, bool, int | None]
NAMES = ("zip", "paid", "rent")


@dataclass(frozen=True)
class KeyedPlan(ToyPlan):
    """Guarantee: pure epsilon, record, add/remove: a stay is counted at most ``horizon`` times, each an equal part.

    The state holds the true counts and the first steps of those that left, so that tests can see what was read.
    """

    budget: PureDP = field(default_factory=lambda: PureDP.of(STEPS))
    horizon: int | None = STEPS
    unit: Record = field(default_factory=Record)
    reads: ClassVar[BatchReads] = "present"

    @property
    def name(self) -> str:
        return "toy census"

    @property
    def _each(self) -> PureDP:
        return self.budget.scaled(Fraction(1, self.horizon or 1))

    def parts(self) -> tuple[Part, ...]:
        return (Part("measure", self.horizon or 1, self._each, "one histogram of the present records"),)

    def step(self, state: ToyState, batch: PrivateBatch, randomness: Randomness) -> ToySynthesis:
        noise = noise_for(self._each, 1, 1)
        state.step += 1
        state.true = batch.present.count([(0,)], 0)[0]
        state.noise = np.sort(batch.present.departed).astype(np.int64)
        measured = state.true + randomness.draw(noise, len(state.true))
        return ToySynthesis(self.domain, measured.astype(float), noise.variance**0.5)


def values(rng: np.random.Generator) -> Values:
    rent = int(rng.integers(-200, 2001))
    return (
        ("94102", "94103", "94110", "10001")[rng.integers(4)],
        bool(rng.random() < 0.5),
        None if rent < 0 else rent,
    )


def frame(rows: Mapping[Any, Values]) -> dict[str, list[Any]]:
    """A snapshot's rows."""
    columns = {name: [value[i] for value in rows.values()] for i, name in enumerate(NAMES)}
    return {"id": list(rows), **columns}


def events(rows: list[tuple[Any, str | None, Values | None]]) -> dict[str, list[Any]]:
    """Keys, operations and values; a delete's values are null."""
    none: tuple[None, None, None] = (None, None, None)
    columns = {name: [(value or none)[i] for *_, value in rows] for i, name in enumerate(NAMES)}
    return {"id": [key for key, *_ in rows], "op": [op for _, op, _ in rows], **columns}


def batch(step: int) -> KeyedBatch:
    """Inserts, updates and deletes of a few dozen keys, different at every step; the rules leave out what does not
    fit."""
    rng = np.random.default_rng(step)
    rows: list[tuple[Any, str | None, Values | None]] = []
    for key in rng.integers(0, 60, 40).tolist():
        op = ("insert", "insert", "update", "delete")[rng.integers(4)]
        rows.append((f"key-{key}", op, None if op == "delete" else values(rng)))
    return KeyedBatch(events(rows), "id", "op", rules=KeyRules(unknown="drop"))


start = partial(toy_stream.start, plan=KeyedPlan())
