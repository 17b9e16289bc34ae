"""What counters release, as noisy counts: running sums, or what was gained at a step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Events, NoisyCounts, marginal_query
from dpstream.core.counters import CalibratedCounter
from dpstream.core.counters.cell_law import cell_law, gain_law
from dpstream.core.schema.domain import Clique, Domain


def counter_outputs(
    counter: CalibratedCounter,
    domain: Domain,
    part: Events,
    step: int,
    measured: Iterable[tuple[Clique, int, NDArray[np.int64]]],
    *,
    sums: bool,
) -> list[NoisyCounts]:
    """The noisy counts of one side of a step; none of a counter whose law of noise is not known.

    Values of one counter share noise from step to step, so they have a series.

    Args:
        measured: marginal, ticks of its counter, and values.
        sums: whether values are running sums since step 1 (every marginal is measured at every step); else what a
            marginal gained at this step, because its counter knows nothing of the steps that did not measure it.
    """
    counts = []
    for clique, ticks, values in measured:
        law = cell_law(counter, ticks, 1) if sums else gain_law(counter, ticks)
        if law is None:
            continue
        columns = [domain.names[i] for i in clique]
        series = f"{part}, {' x '.join(columns)}"
        first, query = 1 if sums else step, marginal_query(columns)
        counts.append(
            NoisyCounts(f"step {step}, {series}", part, first, step, query, values, law, series=series)
        )
    return counts
