"""A released table in other columns: exact linear maps, and plans that begin with it; and very wide tables."""

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

from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.graphical import tree_cells
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Baseline, DPStabs, Pooled
from dpstream.families.tabular.pooled_estimates import move_to_columns
from dpstream.mechanisms.limits import TreeCapacity, check_each
from dpstream.mechanisms.workload_cells import Cells
from dpstream.project.base import ColumnSource, MappedTable
from dpstream.tools.simulate import simulate


@st.composite
def tables(draw):
    """Some columns, each from old codes by shares: some certain, some split."""
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    rows, columns = draw(st.integers(0, 30)), draw(st.integers(1, 4))
    sources, sizes = [], []
    for _ in range(columns):
        old, new = (int(n) for n in generator.integers(1, 5, size=2))
        if generator.random() < 0.5:
            shares = np.eye(new)[generator.integers(0, new, size=old)]
        else:
            shares = generator.dirichlet(np.ones(new), size=old)
        sources.append(ColumnSource(generator.integers(0, old, size=rows).astype(np.int32), shares))
        sizes.append(new)
    total = float(generator.integers(0, 100)) if rows else 0.0
    return MappedTable(Domain(tuple("abcd"[:columns]), tuple(sizes)), tuple(sources), total, 1.0, seed)


def joint(table):
    """Every record with its shares in every cell, one by one."""
    cells = np.zeros(table.domain.sizes)
    rows = len(table.columns[0].codes)
    for row in range(rows):
        laws = [column.shares[column.codes[row]] for column in table.columns]
        for cell in itertools.product(*map(range, table.domain.sizes)):
            cells[cell] += np.prod([law[code] for law, code in zip(laws, cell, strict=True)])
    return cells * (table.total / rows if rows else 0.0)


@settings(deadline=None, max_examples=60)
@given(table=tables())
def test_marginals_are_those_of_every_record_with_its_shares(table):
    names = range(len(table.domain))
    cliques = [c for k in range(1, 4) for c in itertools.combinations(names, k)]
    whole = joint(table)
    for clique, values in zip(cliques, table.marginals(cliques), strict=True):
        others = tuple(axis for axis in names if axis not in clique)
        assert values == pytest.approx(whole.sum(axis=others).ravel(), abs=1e-9)


def test_records_are_drawn_by_the_shares():
    """Two values split 1 to 3: a cell of 40,000 records lies within six standard deviations (false alarm 2e-9)."""
    rows = 40_000
    split = ColumnSource(np.zeros(rows, np.int32), np.array([[0.25, 0.75]]))
    kept = ColumnSource(np.arange(rows, dtype=np.int32) % 2, np.eye(2))
    table = MappedTable(Domain(("a", "b"), (2, 2)), (split, kept), float(rows), None, 5)
    codes = table.records()
    assert (codes == table.records()).all()
    assert (codes[:, 1] == kept.codes).all()
    limit = 6 * np.sqrt(rows * 0.25 * 0.75)
    assert abs((codes[:, 0] == 0).sum() - rows / 4) < limit
    # The control: another share would be noticed.
    assert abs((codes[:, 0] == 0).sum() - 0.3 * rows) > limit


DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
EMPTY = np.empty((0, 3), np.int32)
PAIRS = Workload.all_k_way(DOMAIN, 2)


def start_table(rows, error=2.0):
    codes = np.random.default_rng(rows).integers(0, (2, 3, 2), size=(rows, 3)).astype(np.int32)
    columns = tuple(ColumnSource(codes[:, i], np.eye(size)) for i, size in enumerate(DOMAIN.sizes))
    return MappedTable(DOMAIN, columns, float(rows), error, 1)


@pytest.mark.parametrize(
    "recipe",
    [
        DPStabs(PAIRS),
        DPStabs(PAIRS, k=1),
        DPStabs(PAIRS, k=2, past="literal"),
        DPStabs(PAIRS, k=2, deletions=True),
        Pooled(PAIRS),
    ],
)
def test_empty_steps_leave_the_base_as_it_is(recipe):
    """Next to no noise: through packing and three empty steps the table stays, up to the fit."""
    base, plan = start_table(300), recipe.calibrate(epsilon="1000")
    state = plan.start_from(base)
    for _ in range(3):
        state = plan.unpack_state(plan.pack_state(state))
        batch = EncodedBatch(DOMAIN, EMPTY, EMPTY if plan.recipe.deletions else None)
        synthesis = plan.step(state, batch, Randomness.seeded(1))
    for got, wanted in zip(synthesis.marginals(PAIRS.cliques), base.marginals(PAIRS.cliques), strict=True):
        assert got == pytest.approx(wanted, abs=0.01)
    assert (synthesis.total, synthesis.total_error) == (pytest.approx(300), pytest.approx(2.0, abs=1e-3))
    assert not synthesis.measured


def test_errors_of_the_number_of_records_add_up_in_variance():
    plan = DPStabs(PAIRS).calibrate(epsilon="1")
    batch = EncodedBatch(DOMAIN, EMPTY)
    alone = plan.step(plan.start(), batch, Randomness.seeded(1)).total_error
    both = plan.step(plan.start_from(start_table(50, 7.0)), batch, Randomness.seeded(1)).total_error
    assert both == pytest.approx(np.hypot(alone, 7.0))
    assert plan.step(plan.start_from(start_table(50, None)), batch, Randomness.seeded(1)).total_error is None


def test_the_baseline_begins_with_the_records():
    plan = Baseline(PAIRS).calibrate(epsilon="1000")
    base = start_table(40)
    state = plan.unpack_state(plan.pack_state(plan.start_from(base)))
    synthesis = plan.step(state, EncodedBatch(DOMAIN, EMPTY), Randomness.seeded(1))
    assert (synthesis.codes == base.records()).all()
    assert synthesis.total_error == pytest.approx(2.0, abs=1e-3)


def test_a_table_over_other_columns_is_refused():
    other = Workload.all_k_way(Domain(("a", "b"), (2, 3)), 2)
    for recipe in (DPStabs(other), Baseline(other), Pooled(other)):
        with pytest.raises(ConfigError, match="other columns"):
            recipe.calibrate(epsilon=1).start_from(start_table(5))


# Wide tables


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
