"""Streams whose values are discovered, with a stand-in for the law: a value enters that is counted often enough."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dpstream import Batch, Boolean, Categorical, Schema, Workload
from dpstream.core.privacy import Randomness
from dpstream.families.tabular import Pooled
from dpstream.mechanisms.discovery_plan import Discoveries, Discovery, OpenColumn

OPEN = Schema(
    (
        Boolean("paid"),
        Categorical("kind", "discover", known=["v1"], other="other", missing="missing"),
    )
)


@dataclass(frozen=True)
class ExactRule:
    """Publishes the exact counts above ``least``: private by no law, and without chance."""

    least: int
    most: int | None
    seen: list[dict[str, int]]

    def publish(self, counts: Iterable[tuple[str, int]], randomness: Randomness) -> list[tuple[str, int]]:
        listed = list(counts)
        assert len(dict(listed)) == len(listed)
        self.seen.append(dict(listed))
        return sorted((value, count) for value, count in listed if count > self.least)[: self.most]


@dataclass(frozen=True)
class Exactly(Discoveries):
    """A stand-in for the law, at some steps; it keeps what it was given."""

    steps: tuple[int, ...] = ()
    least: int = 20
    seen: list[dict[str, int]] = field(default_factory=list, compare=False)

    def due(self, step: int, last: int) -> bool:
        return step in self.steps and step > last

    def rule(self, column: str, found: Iterable[str] = (), most: int | None = None) -> Any:
        return ExactRule(self.least, most, self.seen)


def discovering(*steps: int, least: int = 20, **options: Any) -> Any:
    """A plan that discovers values of ``kind`` at the ends of some steps."""
    unit, column = options.pop("unit", None), OpenColumn("kind", 1, ("v1", "other", "missing"))
    recipe = Pooled(
        Workload.all_k_way(OPEN.domain, 2),
        discovery=Discovery((column,), delta=Fraction(1, 1000)),
        **options,
    )
    plan = recipe.calibrate(epsilon=4, unit=unit)
    own = plan.discovery
    assert own is not None
    return replace(plan, discovery=Exactly(own.recipe, own.budget, own.unit, steps, least))


def frame(step: int, rows: int = 200, *, last: str = "") -> dict[str, Any]:
    """Records of a step: values with a heavy tail, some nulls; ``last`` names what is rare."""
    drawn = np.random.default_rng(step)
    kinds = drawn.zipf(1.7, rows) % 40
    values = [f"v{kind}" if kind < 5 else f"{last}rare{kind}" for kind in kinds]
    return {"paid": (drawn.random(rows) < 0.3).tolist(), "kind": [None, *values[1:]]}


def batch(step: int) -> Batch:
    return Batch(frame(step))


def files(home: Path) -> dict[str, bytes]:
    paths = (home / "releases").rglob("*")
    return {str(path.relative_to(home)): path.read_bytes() for path in paths if path.is_file()}
