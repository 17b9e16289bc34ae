"""What a run measured, as it is fitted to and as it is published. Public: noisy counts only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpstream.core.contracts import Counted, NoisyCounts, marginal_query
from dpstream.core.graphical import Measurement
from dpstream.core.privacy import AnyNoise, HistogramsNoise, Noise, Noisy
from dpstream.core.schema.domain import Clique, Domain

#: The smallest variance that fits use: at huge budgets the noise's own is below what floating point can weigh.
MIN_VARIANCE = 1e-9


@dataclass(frozen=True)
class RunOutput:
    """One vector of true counts and noise, before it is said which steps and events it is about.

    Attributes:
        name: in the name of the draw.
        query, values, noise: as in ``NoisyCounts``.
    """

    name: str
    query: Mapping[str, Any]
    values: Noisy
    noise: AnyNoise

    @classmethod
    def of_draw(
        cls,
        domain: Domain,
        cliques: Sequence[Clique],
        values: Noisy,
        noise: AnyNoise,
        kind: str = "",
        *,
        chosen: bool = False,
    ) -> RunOutput:
        """All cells of a marginal, or of several from one joint draw.

        Args:
            kind: tells apart who measured it.
            chosen: whether it was measured because of what was measured before; the query lists it then.
        """
        columns = [[domain.names[i] for i in clique] for clique in cliques]
        query: dict[str, Any] = {"kind": "marginals", "columns": columns}
        name = "marginals together"
        if not isinstance(noise, HistogramsNoise):
            (marginal,) = columns
            query, name = marginal_query(marginal), " x ".join(marginal) if marginal else "number"
        return cls(
            f"{kind} {name}".strip(), {**query, **({"chosen": columns} if chosen else {})}, values, noise
        )


def measurements_of(
    cliques: Sequence[Clique], values: Noisy, noise: Noise | HistogramsNoise
) -> list[Measurement]:
    """What one draw says of each of its marginals."""
    starts: tuple[int, ...] = (0,)
    variances: tuple[float, ...] = (noise.variance,)
    if isinstance(noise, HistogramsNoise):
        starts, variances = noise.starts, noise.variances
    parts = zip(cliques, np.split(values.astype(np.float64), starts[1:]), variances, strict=True)
    return [Measurement(clique, part, max(variance, MIN_VARIANCE)) for clique, part, variance in parts]


def signs_query(domain: Domain, terms: Sequence[Clique], chosen: Sequence[Clique] = ()) -> dict[str, Any]:
    """Sums over all records of products of signs: +1 for a column's second value, -1 for its first. A product of no
    columns is 1: the number of records. ``chosen``: terms that were measured because of what was measured before."""

    def named(cliques: Sequence[Clique]) -> list[list[str]]:
        return [[domain.names[i] for i in clique] for clique in cliques]

    return {"kind": "signs", "terms": named(terms), **({"chosen": named(chosen)} if chosen else {})}


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
