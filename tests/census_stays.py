"""Keyed tables for the tests: stays in, the end of each step out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpstream.core.privacy import Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import KeyedChanges, PresentBatch, PresentTable, PresentView
from dpstream.families.census import CensusPlan, CensusSynthesis

SMALL = Domain(("a", "b", "c"), (2, 3, 2))
TINY = Domain(("a", "b"), (2, 2))


def scheduled(plan: CensusPlan, **changes: Any) -> CensusPlan:
    """The plan with another schedule: ``ratio``, or ``departures``."""
    return replace(plan, schedule=replace(plan.schedule, **changes))


def releases(
    plan: CensusPlan, ends: Iterable[PresentBatch], noise: str | Randomness
) -> Iterator[CensusSynthesis]:
    """What a stream releases, step by step."""
    state, randomness = plan.start(), Randomness.seeded(noise) if isinstance(noise, str) else noise
    for batch in ends:
        yield plan.step(state, batch, randomness)


@dataclass(frozen=True)
class Stay:
    """A record: first step, first step at whose end it is absent (None: it stays), values by the step they begin."""

    key: int
    comes: int
    leaves: int | None
    values: dict[int, tuple[int, ...]]

    def at(self, step: int) -> tuple[int, ...] | None:
        if step < self.comes or (self.leaves is not None and step >= self.leaves):
            return None
        return self.values[max(when for when in self.values if when <= step)]


def batches(stays: list[Stay], steps: int, domain: Domain = SMALL) -> Iterator[PresentBatch]:
    """The table at the end of every step."""
    table = PresentTable.empty(domain)
    for step in range(1, steps + 1):
        found = {}
        for stay in stays:
            now, before = stay.at(step), stay.at(step - 1)
            if now != before:
                found[stay.key] = now
        keys = np.array([[key, 0] for key in sorted(found)], np.uint64).reshape(-1, 2)
        present = np.array([found[int(key)] is not None for key, _ in keys], np.bool_)
        codes = [found[int(key)] for key in keys[present][:, 0]]
        changes = KeyedChanges(keys, present, np.array(codes, np.int32).reshape(-1, len(domain.sizes)))
        table, departed = table.after(changes, step)
        yield PresentBatch(PresentView(table, departed))


def crowd(
    seed: int, steps: int, *, size: int = 60, stay: float = 5.0, domain: Domain = SMALL, each: float = 6.0
) -> list[Stay]:
    """Some stays with updates: ``size`` records from step 1, about ``each`` a step from then on."""
    generator = np.random.default_rng(seed)
    stays: list[Stay] = []

    def values() -> tuple[int, ...]:
        return tuple(int(generator.integers(0, n)) for n in domain.sizes)

    for step in range(1, steps + 1):
        for _ in range(size if step == 1 else int(generator.poisson(each))):
            leaves = step + 1 + int(generator.exponential(stay))
            held = {step: values()}
            if generator.random() < 0.3:
                held[step + 1 + int(generator.integers(0, 4))] = values()
            stays.append(Stay(len(stays) + 1, step, leaves if leaves <= steps else None, held))
    return stays
