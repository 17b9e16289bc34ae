"""What a run measured, as it came out; and the noisy counts that are published of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Counted, NoisyCounts, marginal_query
from dpstream.core.privacy.cube import AnyNoise
from dpstream.core.schema.domain import Clique, Domain

__all__ = ["RunOutput", "published", "signs_query"]


@dataclass(frozen=True)
class RunOutput:
    """One vector of true counts and noise, before it is said which steps and events it is about.

    Attributes:
        name: in the name of the draw.
        query, values, noise: as in ``NoisyCounts``.
    """

    name: str
    query: Mapping[str, Any]
    values: NDArray[np.int64]
    noise: AnyNoise

    def as_chosen(self) -> RunOutput:
        """The same, with the mark of what was measured because of what the run had measured before."""
        return replace(self, query={**self.query, "chosen": True})

    @classmethod
    def of_marginal(
        cls, domain: Domain, clique: Clique, values: NDArray[np.int64], noise: AnyNoise, kind: str = ""
    ) -> RunOutput:
        """All cells of a marginal; ``kind`` tells apart who measured it."""
        columns = [domain.names[i] for i in clique]
        name = " x ".join(columns) if columns else "number"
        return cls(f"{kind} {name}".strip(), marginal_query(columns), values, noise)


def signs_query(domain: Domain, terms: Sequence[Clique]) -> dict[str, Any]:
    """Sums over all records of products of signs: +1 for a column's second value, -1 for its first. A product of no
    columns is 1: the number of records."""
    return {"kind": "signs", "terms": [[domain.names[i] for i in term] for term in terms]}


def published(
    outputs: Sequence[RunOutput],
    run: str,
    counted: Counted,
    first: int,
    last: int,
    as_of: int | None = None,
) -> list[NoisyCounts]:
    """The noisy counts of one run.

    Args:
        run: begins the names of its draws; no other run of the stream has it.
    """
    seen: dict[str, int] = {}
    counts = []
    for output in outputs:
        seen[output.name] = turn = seen.get(output.name, 0) + 1
        draw = f"{run}, {output.name}" + (f" ({turn})" if turn > 1 else "")
        counts.append(
            NoisyCounts(draw, counted, first, last, output.query, output.values, output.noise, as_of)
        )
    return counts
