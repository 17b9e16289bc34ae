"""Streams whose values are discovered, with a stand-in for the law: a value enters that is counted often enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpstream.core.privacy import Randomness
from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.core.tables import Workload
from dpstream.families.tabular import Pooled
from dpstream.stream import Batch

OPEN = Schema(
    (
        Boolean("paid"),
        Categorical("kind", "discover", known=["v1"], other="other", missing="missing"),
    )
)


@dataclass(frozen=True)
class Exactly:
    """Publishes the exact counts above ``least`` at some steps: private by no law, and without chance."""

    steps: tuple[int, ...]
    least: int = 20
    columns: tuple[str, ...] = ("kind",)
    seen: list[dict[str, int]] = field(default_factory=list, compare=False)

    def due(self, step: int, last: int) -> bool:
        return step in self.steps and step > last

    def other_code(self, column: str) -> int:
        return 1

    def publish(
        self,
        column: str,
        counts: Iterable[tuple[str, int]],
        randomness: Randomness,
        *,
        found: Sequence[str],
        most: int,
    ) -> list[tuple[str, int]]:
        listed = list(counts)
        assert len(dict(listed)) == len(listed)
        self.seen.append(dict(listed))
        return sorted((value, count) for value, count in listed if count > self.least)[:most]


def discovering(*steps: int, least: int = 20, schema: Schema = OPEN, **options: Any) -> Any:
    """A plan that discovers values of ``kind`` at the ends of some steps."""
    unit, calibrated = options.pop("unit", None), Pooled(Workload.all_k_way(schema.domain, 2), **options)
    plan = calibrated.calibrate(epsilon=4, unit=unit)
    return replace(plan, discovery=Exactly(steps, least))


def frame(step: int, rows: int = 200, *, last: str = "") -> dict[str, Any]:
    """Records of a step: values with a heavy tail, some nulls; ``last`` names what is rare."""
    drawn = np.random.default_rng(step)
    kinds = drawn.zipf(1.7, rows) % 40
    values = [f"v{kind}" if kind < 5 else f"{last}rare{kind}" for kind in kinds]
    return {"paid": (drawn.random(rows) < 0.3).tolist(), "kind": [None, *values[1:]]}


def batch(step: int) -> Batch:
    return Batch(frame(step))
