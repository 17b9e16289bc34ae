"""What the open epoch of a stream with a season lets expect. Public: it reads what closed epochs gave, and steps."""

from __future__ import annotations

import numpy as np

from dpstream.core.graphical import Measurement, Model, fit
from dpstream.families.tabular.pooled_state import Ahead, PooledState
from dpstream.families.tabular.workload_cells import Cells

#: A fit to columns alone starts from a model that is near them.
_ITERATIONS = 20


def look_ahead(state: PooledState, cells: Cells) -> Ahead | None:
    """What the steps up to the one before the next border let expect; None where there is none."""
    steps = range(state.closed + 1, state.border)
    if not steps:
        return None
    rates = np.array([side.estimates.expected_rates(steps) for side in state.sides])
    shares = state.sides[0].estimates.expected_columns(_start(state).flat_marginals(cells.cliques), steps)
    return Ahead(rates.cumsum(axis=1), (rates[0][:, None] * shares).cumsum(axis=0))


def open_model(state: PooledState, cells: Cells, since: int, max_cells: int) -> Model:
    """The shape of the open epoch's records: a known model, moved to the columns that are expected."""
    if state.ahead is None:
        return state.latest
    counts = np.maximum(state.ahead.columns[since - 1], 1e-6)
    columns = [(i, clique) for i, clique in enumerate(cells.cliques) if len(clique) == 1]
    targets = [Measurement(clique, counts[cells.part(i)], 1.0) for i, clique in columns]
    total = max(float(state.ahead.events[0, since - 1]), 1e-6)
    return fit(
        cells.workload.domain,
        targets,
        total=total,
        warm=_start(state).with_total(total),
        iterations=_ITERATIONS,
        max_cells=max_cells,
    )


def _start(state: PooledState) -> Model:
    """The table's model, which knows all epochs; where records leave, it holds fewer than came: the last epoch's."""
    return state.table if len(state.sides) == 1 else state.latest
