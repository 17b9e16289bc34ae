"""What a run measures and how its model follows, its draws as they came out, and the noisy counts published of it.

Trusted base: kernel (measures).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Counted, NoisyCounts, marginal_query
from dpstream.core.graphical import Measurement, Model, estimate_total, fit
from dpstream.core.privacy.joint import AnyNoise, HistogramsNoise
from dpstream.core.privacy.noise import Noise
from dpstream.core.privacy.randomness import Randomness
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
    values: NDArray[np.int64]
    noise: AnyNoise

    @classmethod
    def of_draw(
        cls,
        domain: Domain,
        cliques: Sequence[Clique],
        values: NDArray[np.int64],
        noise: AnyNoise,
        kind: str = "",
        *,
        chosen: bool = False,
    ) -> RunOutput:
        """All cells of a marginal, or of several from one joint draw.

        Args:
            kind: tells apart who measured it.
            chosen: whether it was measured because of what was measured before; the query says so then.
        """
        columns = [[domain.names[i] for i in clique] for clique in cliques]
        query: dict[str, Any] = {"kind": "marginals", "columns": columns}
        name = "marginals together"
        if not isinstance(noise, HistogramsNoise):
            (own,) = columns
            query, name = marginal_query(own), " x ".join(own) if own else "number"
        return cls(f"{kind} {name}".strip(), {**query, **({"chosen": True} if chosen else {})}, values, noise)

    @classmethod
    def of_cell(
        cls,
        domain: Domain,
        clique: Clique,
        codes: Sequence[int],
        values: NDArray[np.int64],
        noise: AnyNoise,
        *,
        chosen: bool,
    ) -> RunOutput:
        """One cell of a marginal, by the codes of its columns."""
        columns = [domain.names[i] for i in clique]
        query = {
            "kind": "cell",
            "columns": columns,
            "codes": list(codes),
            **({"chosen": True} if chosen else {}),
        }
        return cls(f"{' x '.join(columns)}, cell {', '.join(map(str, codes))}", query, values, noise)


def measurements_of(
    cliques: Sequence[Clique], values: NDArray[np.int64], noise: Noise | HistogramsNoise
) -> list[Measurement]:
    """What one draw says of each of its marginals."""
    if not isinstance(noise, HistogramsNoise):
        (clique,) = cliques
        return [Measurement(clique, values.astype(np.float64), max(noise.variance, MIN_VARIANCE))]
    parts = np.split(values.astype(np.float64), noise.starts[1:])
    return [
        Measurement(clique, own, max(variance, MIN_VARIANCE))
        for clique, own, variance in zip(cliques, parts, noise.variances, strict=True)
    ]


def sum_of(measured: Sequence[Measurement], noise: Noise | HistogramsNoise) -> Measurement:
    """What one draw says of the number of records: its histograms have one sum between them, with one error."""
    if not isinstance(noise, HistogramsNoise):
        return measured[0]
    return Measurement((), measured[0].values.sum(keepdims=True), max(noise.sum_variance, MIN_VARIANCE))


@dataclass
class Run:
    """A run that is under way: the only place where offline mechanisms read counts to measure them.

    Attributes:
        counts: private, by marginal.
        public_total: number of records where the owner declared it public.
        prior: public: a model that every fit is held to; it also starts from it. None: fits start from the last model.
        known: public: what was measured before.
        measured: the measurements of this run, in order; ``sums``: those whose sums tell the number of records, with
            errors of their own; ``outputs``: everything that was drawn, as it came out.
    """

    domain: Domain
    counts: Mapping[Clique, NDArray[np.int64]]
    randomness: Randomness
    public_total: float | None
    prior: Model | None = None
    known: Sequence[Measurement] = ()
    measured: list[Measurement] = field(default_factory=list)
    sums: list[Measurement] = field(default_factory=list)
    outputs: list[RunOutput] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = Model.uniform(self.domain, 0.0) if self.prior is None else self.prior

    @property
    def total(self) -> tuple[float, float]:
        """The number of records and its variance; before anything is measured, as far as it is known."""
        if self.public_total is not None:
            return self.public_total, 0.0
        return estimate_total(self.sums or self.known)

    def measure(
        self,
        cliques: Sequence[Clique],
        noise: Noise | HistogramsNoise,
        kind: str = "",
        *,
        chosen: bool = False,
    ) -> list[Measurement]:
        """Measure marginals by one draw; ``kind`` and ``chosen`` as of ``RunOutput.of_draw``."""
        values = self.randomness.measure(np.concatenate([self.counts[clique] for clique in cliques]), noise)
        self.outputs.append(RunOutput.of_draw(self.domain, cliques, values, noise, kind, chosen=chosen))
        fresh = measurements_of(cliques, values, noise)
        self.measured += fresh
        self.sums.append(sum_of(fresh, noise))
        return fresh

    def fit(self, iterations: int, max_cells: int, prior_weight: float) -> None:
        """Fit the model to what is known and measured; with a prior, from that one again."""
        self.model = fit(
            self.domain,
            [*self.known, *self.measured],
            total=self.total[0],
            warm=self.model if self.prior is None else self.prior,
            iterations=iterations,
            max_cells=max_cells,
            regularisation=0.0 if self.prior is None else prior_weight,
        )


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
