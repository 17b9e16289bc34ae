"""The distribution of a model: calibrated once when first used, then asked for marginals and records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical.junction_tree import JunctionTree, offsets
from dpstream.core.graphical.summing import spread_marginal
from dpstream.core.schema.domain import Clique

__all__ = ["Shape"]

#: Pairs go through one table of (sum of sizes)^2 doubles while that stays below this many cells.
_PAIR_TABLE_CELLS = 2**24


class Shape:
    """Potentials on a junction tree, and what they imply. Probabilities throughout."""

    __slots__ = ("_calibrated", "_pair_table", "potentials", "tree")

    def __init__(self, tree: JunctionTree, potentials: NDArray[np.float64]) -> None:
        self.tree = tree
        self.potentials = potentials
        self._calibrated: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
        self._pair_table: NDArray[np.float64] | None = None

    def calibrated(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probabilities of the cells of all tree cliques, and of all separators."""
        if self._calibrated is None:
            from dpstream.core.graphical.compiled import inference

            tables = np.empty(self.tree.cells)
            separators = np.empty(int(self.tree.arrays.sep_off[-1]))
            inference.calibrate(self.tree.arrays, self.tree.factors, self.potentials, tables, separators)
            self._calibrated = tables, separators
        return self._calibrated

    def marginals(self, cliques: Sequence[Clique], scale: float) -> list[NDArray[np.float64]]:
        """Marginals times ``scale``."""
        plan = _query_plan(self.tree, tuple(cliques))
        out: list[NDArray[np.float64]] = [_EMPTY] * len(cliques)
        if plan.paired:
            self._read_pairs(plan, scale, out)
        if plan.inside:
            self._project(plan, scale, out)
        tables, separators = self.calibrated()
        for k in plan.spread:
            out[k] = spread_marginal(self.tree, tables, separators, cliques[k]) * scale
        return out

    def _read_pairs(self, plan: _QueryPlan, scale: float, out: list[NDArray[np.float64]]) -> None:
        from dpstream.core.graphical.compiled import pairs

        table = self._pair_table if plan.all_rows else None
        if table is None:
            tables, separators = self.calibrated()
            table = np.empty((int(plan.start[-1]), int(plan.start[-1])))
            pairs.pair_table(self.tree.arrays, tables, separators, plan.row_of, plan.start, table)
            if plan.all_rows:
                self._pair_table = table
        flat = np.empty(int(plan.pair_off[-1]))
        pairs.read_pairs(table, plan.pair_rows, scale, plan.pair_off, flat)
        bounds = plan.pair_off.tolist()
        for k, begin, end in zip(plan.paired, bounds, bounds[1:], strict=False):
            out[k] = flat[begin:end]

    def _project(self, plan: _QueryPlan, scale: float, out: list[NDArray[np.float64]]) -> None:
        from dpstream.core.graphical.compiled import pairs

        tables, _ = self.calibrated()
        flat = np.zeros(int(plan.inside_off[-1]))
        pairs.project_many(
            self.tree.arrays, tables, plan.homes, plan.target_off, plan.targets, plan.inside_off, flat
        )
        flat *= scale
        bounds = plan.inside_off.tolist()
        for k, begin, end in zip(plan.inside, bounds, bounds[1:], strict=False):
            out[k] = flat[begin:end]

    def log_density(self, codes: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Logarithm of each record's probability, shape (rows,); -inf where it is zero."""
        tables, _ = self.calibrated()
        arrays, sizes = self.tree.arrays, self.tree.domain.sizes
        total = np.zeros(len(codes))
        with np.errstate(divide="ignore"):
            for c, axes in enumerate(self.tree.nodes):
                # A record's value in the residual, given its value in the separator: p(x) is the product.
                table = tables[arrays.cell_off[c] : arrays.cell_off[c + 1]]
                table = table.reshape(int(arrays.sep[c]), int(arrays.res[c]))
                cell = np.zeros(len(codes), dtype=np.int64)
                for axis in axes:
                    cell = cell * sizes[axis] + codes[:, axis]
                log_rows = np.log(table.sum(axis=1))
                share = np.log(table) - np.where(np.isfinite(log_rows), log_rows, 0.0)[:, None]
                total += share.reshape(-1)[cell]
        return total

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """Records, shape (rows, attributes), column-major."""
        from dpstream.core.graphical.compiled import sampling

        out = np.empty((len(self.tree.domain), rows), dtype=np.int32)
        tables, _ = self.calibrated()
        # Any integer is a seed; hashing it through SeedSequence keeps near seeds apart.
        state = np.random.SeedSequence(abs(int(seed)) * 2 + (seed < 0)).generate_state(1, np.uint64)[0]
        sampling.sample(self.tree.arrays, tables, state, out)
        return out.T


_EMPTY = np.empty(0)


class _QueryPlan:
    """How to answer one list of cliques on one tree; kept, since streams ask for the same ones again."""

    def __init__(self, tree: JunctionTree, cliques: tuple[Clique, ...]) -> None:
        homes = [tree.home(c) for c in cliques]
        pairs = [k for k, c in enumerate(cliques) if 1 <= len(c) <= 2]
        outside = [k for k in pairs if homes[k] is None]
        wanted = sorted({i for k in (pairs if len(outside) > 8 else outside) for i in cliques[k]})
        rows = sum(tree.domain.sizes[i] for i in wanted)
        if rows * rows > _PAIR_TABLE_CELLS:
            outside, wanted = [], []
        if len(outside) > 8:
            # Most pairs are needed: the table of all of them, which the model then keeps.
            everything = sum(tree.domain.sizes)
            if everything * everything <= _PAIR_TABLE_CELLS:
                wanted = list(range(len(tree.domain)))
            self.paired = pairs
        else:
            self.paired = outside
        self.all_rows = len(wanted) == len(tree.domain)
        done = set(self.paired)
        self.inside = [k for k in range(len(cliques)) if k not in done and homes[k] is not None]
        self.spread = [k for k in range(len(cliques)) if k not in done and homes[k] is None]
        self._plan_pairs(tree, [cliques[k] for k in self.paired], wanted)
        inside = [cliques[k] for k in self.inside]
        self.homes = np.array([homes[k] for k in self.inside], dtype=np.int64)
        self.target_off = offsets([len(c) for c in inside])
        self.targets = np.array([i for c in inside for i in c], dtype=np.int64)
        self.inside_off = offsets([tree.domain.cells(c) for c in inside])

    def _plan_pairs(self, tree: JunctionTree, pairs: list[Clique], wanted: list[int]) -> None:
        sizes = tree.domain.sizes
        self.row_of = np.full(len(sizes), -1, dtype=np.int64)
        self.start = np.zeros(len(tree.nodes) + 1, dtype=np.int64)
        needed = set(wanted)
        rows = 0
        for c, node in enumerate(tree.nodes):
            self.start[c] = rows
            for i in node[len(tree.separators[c]) :]:
                if i in needed:
                    self.row_of[i] = rows
                    rows += sizes[i]
        self.start[-1] = rows
        self.pair_off = offsets([tree.domain.cells(c) for c in pairs])
        ends = [(c[0], c[-1], sizes[c[1]] if len(c) == 2 else 0) for c in pairs]
        self.pair_rows = np.array(
            [(self.row_of[i], sizes[i], self.row_of[j], size) for i, j, size in ends], dtype=np.int64
        ).reshape(-1, 4)


@lru_cache(maxsize=64)
def _query_plan(tree: JunctionTree, cliques: tuple[Clique, ...]) -> _QueryPlan:
    return _QueryPlan(tree, cliques)
