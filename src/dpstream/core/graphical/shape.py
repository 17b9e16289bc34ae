"""The distribution of a model: calibrated once when first used, then asked for marginals and records."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical.junction_tree import CliqueList, JunctionTree, offsets, ragged
from dpstream.core.graphical.summing import spread_marginal

#: Pairs go through one table of (sum of sizes)^2 doubles while that stays below this many cells.
_PAIR_TABLE_CELLS = 2**24
#: More pairs than these that no tree clique holds go through that table, where it may be held.
_FEW = 8
#: From so many pairs on the table may be this many times as large as the answer.
_MANY, _TABLE_PER_ANSWER = 1000, 4


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

    def marginals(self, asked: CliqueList, scale: float) -> NDArray[np.float64]:
        """Marginals times ``scale``, one after the other."""
        plan = _query_plan(self.tree, asked)
        out = np.empty(int(asked.ends[-1]))
        if len(plan.paired):
            self._read_pairs(plan, asked, scale, out)
        if plan.inside:
            self._project(plan, asked, scale, out)
        tables, separators = self.calibrated()
        for k in plan.spread:
            part = out[asked.ends[k] : asked.ends[k + 1]]
            part[:] = spread_marginal(self.tree, tables, separators, asked.cliques[k]) * scale
        return out

    def _read_pairs(
        self, plan: _QueryPlan, asked: CliqueList, scale: float, out: NDArray[np.float64]
    ) -> None:
        from dpstream.core.graphical.compiled import pairs

        table = self._pair_table if plan.all_rows else None
        if table is None:
            tables, separators = self.calibrated()
            table = np.empty((int(plan.start[-1]), int(plan.start[-1])))
            pairs.pair_table(self.tree.arrays, tables, separators, plan.row_of, plan.start, table)
            if plan.all_rows:
                self._pair_table = table
        begin, sizes = asked.starts[plan.paired], self.tree.arrays.sizes
        first, last = asked.members[begin], asked.members[asked.starts[plan.paired + 1] - 1]
        second = np.where(asked.lengths[plan.paired] == 2, sizes[last], 0)
        rows = np.column_stack((plan.row_of[first], sizes[first], plan.row_of[last], second))
        pairs.read_pairs(table, rows, scale, asked.ends[plan.paired], out)

    def _project(self, plan: _QueryPlan, asked: CliqueList, scale: float, out: NDArray[np.float64]) -> None:
        from dpstream.core.graphical.compiled import pairs

        tables, _ = self.calibrated()
        flat = np.zeros(int(plan.inside_off[-1]))
        pairs.project_many(
            self.tree.arrays, tables, plan.homes, plan.target_off, plan.targets, plan.inside_off, flat
        )
        flat *= scale
        bounds = plan.inside_off.tolist()
        for k, begin, end in zip(plan.inside, bounds, bounds[1:], strict=False):
            out[asked.ends[k] : asked.ends[k + 1]] = flat[begin:end]

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


class _QueryPlan:
    """How to answer one list of cliques on one tree; kept, since streams ask for the same ones again."""

    def __init__(self, tree: JunctionTree, asked: CliqueList) -> None:
        homes, lengths = tree.homes(asked), asked.lengths
        pairs = np.flatnonzero((lengths == 1) | (lengths == 2))
        outside = pairs[homes[pairs] < 0]
        many = len(outside) > _FEW
        if not self._holds_rows(tree, asked, pairs if many else outside):
            outside, many = outside[:0], False
        elif many:
            # Most pairs are needed: the table of all of them, which the model then keeps.
            everything = sum(tree.domain.sizes)
            if everything * everything <= _PAIR_TABLE_CELLS:
                self._rows_of(tree, np.ones(len(tree.domain), dtype=bool))
        self.paired = pairs if many else outside
        self.all_rows = bool((self.row_of >= 0).all())
        left = np.ones(len(lengths), dtype=bool)
        left[self.paired] = False
        self.inside: list[int] = np.flatnonzero(left & (homes >= 0)).tolist()
        self.spread: list[int] = np.flatnonzero(left & (homes < 0)).tolist()
        inside = [asked.cliques[k] for k in self.inside]
        self.homes = homes[self.inside]
        self.target_off, self.targets = ragged(inside)
        self.inside_off = offsets([tree.domain.cells(c) for c in inside])

    def _holds_rows(self, tree: JunctionTree, asked: CliqueList, pairs: NDArray[np.int64]) -> bool:
        """Whether the table of the attributes of these pairs may be held; its rows, if so."""
        wanted = np.zeros(len(tree.domain), dtype=bool)
        wanted[asked.members[asked.starts[pairs]]] = True
        wanted[asked.members[asked.starts[pairs + 1] - 1]] = True
        rows = int(tree.arrays.sizes[wanted].sum())
        most = _PAIR_TABLE_CELLS
        if len(pairs) > _MANY:
            # One by one they would take minutes; the table is not much larger than all of them.
            most = max(most, _TABLE_PER_ANSWER * int(asked.ends[-1]))
        fits = rows * rows <= most
        self._rows_of(tree, wanted & fits)
        return fits

    def _rows_of(self, tree: JunctionTree, wanted: NDArray[np.bool_]) -> None:
        sizes = tree.domain.sizes
        self.row_of = np.full(len(sizes), -1, dtype=np.int64)
        self.start = np.zeros(len(tree.nodes) + 1, dtype=np.int64)
        rows = 0
        for c, node in enumerate(tree.nodes):
            self.start[c] = rows
            for i in node[len(tree.separators[c]) :]:
                if wanted[i]:
                    self.row_of[i] = rows
                    rows += sizes[i]
        self.start[-1] = rows


@lru_cache(maxsize=64)
def _query_plan(tree: JunctionTree, asked: CliqueList) -> _QueryPlan:
    return _QueryPlan(tree, asked)
