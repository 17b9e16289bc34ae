"""What a step gives: a mixture of the cohorts' models, and what is known of its number of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dpstream.core.contracts import Packed
from dpstream.core.graphical import Model
from dpstream.families.tabular.table_release import ModelSynthesis


@dataclass(frozen=True)
class CensusSynthesis(ModelSynthesis):
    """A mixture of models, and what its manifest says of its errors (public, JSON-able)."""

    told: Mapping[str, Any] = field(default_factory=dict)

    def accuracy(self) -> dict[str, Any]:
        """For the manifest."""
        return dict(self.told)

    def pack(self) -> Packed:
        """Models side by side, and what is told."""
        packed = super().pack()
        return Packed({**packed.meta, "told": dict(self.told)}, packed.arrays)

    @classmethod
    def unpack(cls, packed: Packed) -> CensusSynthesis:
        """The inverse of ``pack``."""
        plain = ModelSynthesis.unpack(packed)
        own = {item.name: getattr(plain, item.name) for item in fields(ModelSynthesis)}
        return cls(**own, told=packed.meta["told"])


def mixture(
    parts: list[tuple[Model, float]], total: float, total_error: float | None, told: Mapping[str, Any]
) -> CensusSynthesis:
    """Models with their numbers of records, which need not add up to the total."""
    held = [(model, number) for model, number in parts if number > 0.0] or parts[-1:]
    whole = sum(number for _, number in held)
    weights = tuple(number / whole for _, number in held) if whole > 0.0 else None
    models = tuple(model.with_total(total) for model, _ in held)
    census = int(told["last_census"]["step"])
    return CensusSynthesis(
        models, total, total_error=total_error, weights=weights, measured_up_to=census, told=told
    )
