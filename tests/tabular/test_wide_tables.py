"""Tables of many columns: what is kept for many marginals at once says what each by itself says."""

from __future__ import annotations

import itertools
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.core.errors import LimitError
from dpstream.core.graphical import tree_cells
from dpstream.core.privacy import Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled
from dpstream.families.tabular.pooled_estimates import move_to_columns
from dpstream.mechanisms.limits import TreeCapacity, check_each
from dpstream.mechanisms.workload_cells import Cells
from dpstream.tools.simulate import simulate


def _workload(sizes: list[int], wide: int) -> Workload:
    domain = Domain(tuple(f"c{i}" for i in range(len(sizes))), tuple(sizes))
    columns = range(len(sizes))
    cliques = [(i,) for i in columns]
    cliques += [*itertools.combinations(columns, 2), *itertools.combinations(columns, 3)][:wide]
    return Workload(domain, tuple(cliques), (Fraction(1),) * len(cliques))


def _moved_alone(
    cells: Cells, values: NDArray[np.float64], measured: NDArray[np.bool_], index: int, total: float
) -> NDArray[np.float64]:
    """One marginal, axis by axis."""
    clique = cells.cliques[index]
    table = values[cells.part(index)].reshape(cells.workload.domain.shape(clique)).copy()
    for axis, column in enumerate(clique):
        place = cells.cliques.index((column,))
        if len(clique) == 1 or not measured[place]:
            continue
        wanted = values[cells.part(place)]
        wanted = wanted + (total - wanted.sum()) / len(wanted)
        others = tuple(i for i in range(table.ndim) if i != axis)
        excess = (wanted - table.sum(axis=others)) * len(wanted) / table.size
        table += np.expand_dims(excess, others)
    return table.ravel()


@given(st.lists(st.integers(1, 21), min_size=2, max_size=7), st.integers(1, 40), st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_answers_move_to_their_columns_to_the_last_bit(sizes: list[int], wide: int, seed: int) -> None:
    cells, random = Cells(_workload(sizes, wide)), np.random.default_rng(seed)
    values = random.normal(50.0, 30.0, cells.total)
    measured = random.random(len(cells.cliques)) < 0.6
    wanted = values.copy()
    for i in np.flatnonzero(~measured).tolist():
        wanted[cells.part(i)] = _moved_alone(cells, values, measured, i, 1234.5)
    move_to_columns(cells, values, measured, 1234.5)
    assert values.tobytes() == wanted.tobytes()


@given(st.lists(st.integers(2, 6), min_size=3, max_size=8), st.integers(20, 300), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_marginals_are_put_in_where_there_is_room(sizes: list[int], most: int, seed: int) -> None:
    workload = _workload(sizes, 60)
    order = np.random.default_rng(seed).permutation(len(workload)).tolist()
    wanted: list[int] = []
    for i in order:
        held = [workload.cliques[j] for j in (*wanted, i)]
        if tree_cells(workload.domain, held) <= most:
            wanted.append(i)
    for i in order:
        alone = Workload(workload.domain, (workload.cliques[i],), (Fraction(1),))
        cells = tree_cells(workload.domain, alone.cliques)
        check_each(alone, cells)
        with pytest.raises(LimitError, match="exceeds its cells"):
            check_each(alone, cells - 1)
    room = TreeCapacity(workload, most)
    assert room.take_in_order(order) == wanted
    left = [
        i for i in order if tree_cells(workload.domain, [workload.cliques[j] for j in (*wanted, i)]) <= most
    ]
    assert room.within(order).tolist() == left


def test_a_stream_of_fifty_columns() -> None:
    random = np.random.default_rng(11)
    sizes = random.choice([2, 3, 4, 8, 20], 50)
    domain = Domain(tuple(f"c{i}" for i in range(50)), tuple(sizes.tolist()))
    plan = Pooled(Workload.all_k_way(domain, 2)).calibrate(epsilon=50, horizon=None)
    state, randomness = plan.start(), Randomness.seeded(4)
    for step in range(3):
        group = random.integers(0, 2, 4000)
        codes = (random.random((4000, 50)) * sizes).astype(np.int32)
        # Five columns say the same; the others nothing of one another.
        codes[:, ::10] = np.minimum(group[:, None], sizes[::10] - 1)
        synthesis = plan.step(state, EncodedBatch(domain, codes), randomness)
        state = plan.unpack_state(plan.pack_state(state))
        assert abs(synthesis.total - 4000 * (step + 1)) < 400
    both = synthesis.marginal((0, 40)).values / synthesis.total
    apart = synthesis.marginal((1, 41)).values / synthesis.total
    assert both[0, 0] + both[1, 1] > 0.9
    np.testing.assert_allclose(apart, np.outer(apart.sum(axis=1), apart.sum(axis=0)), atol=0.02)


_STATUS = """
import sys
from click.testing import CliRunner
from dpstream.cli import main
done = CliRunner().invoke(main, ["status", sys.argv[1]])
assert done.exit_code == 0, done.output
assert "numba" not in sys.modules
"""


@pytest.mark.parametrize("name", ["evictions", "panel"])
def test_status_loads_no_compiler(tmp_path: Path, name: str) -> None:
    made = simulate(name, 1, tmp_path, rows_per_step=50)
    subprocess.run([sys.executable, "-c", _STATUS, str(made)], check=True)
