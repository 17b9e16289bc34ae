"""A calibrated graphical model: a distribution over records, times a number of records.

The distribution (``Shape``) is calibrated once when first used, then asked for marginals and records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import ConfigError, InputError, LimitError, StoreDamagedError, StoreFormatError
from dpstream.core.graphical.junction_tree import (
    CliqueList,
    JunctionTree,
    check_clique,
    clique_list,
    junction_tree,
    offsets,
    ragged,
    tree_cells,
)
from dpstream.core.schema.domain import (
    Clique,
    Domain,
    Impossible,
    pack_impossible,
    pack_mask,
    unpack_impossible,
)

if TYPE_CHECKING:
    from dpstream.core.graphical.compiled.sampling import DealtBlocks

SpreadTable = tuple[NDArray[np.float64], tuple[int, ...]]


def spread_marginal(
    tree: JunctionTree, tables: NDArray[np.float64], separators: NDArray[np.float64], clique: Clique
) -> NDArray[np.float64]:
    """Probabilities of a clique's cells (C order), exact, for any clique.

    Every wanted attribute sits in the residual of one tree clique. From these upwards each tree clique
    multiplies its conditional P(residual | separator) with what its children send, and sums out what
    nobody above wants; cliques without wanted attributes below them send 1 and are skipped.
    """
    wanted = set(clique)
    pending: dict[int, list[SpreadTable]] = {}
    results: list[SpreadTable] = []
    parents = tree.arrays.parent
    for c in range(len(tree.nodes) - 1, -1, -1):
        own = wanted.intersection(tree.nodes[c][len(tree.separators[c]) :])
        received = pending.pop(c, [])
        if not own and not received:
            continue
        current = _conditional(tree, tables, separators, c)
        keep = wanted.union(tree.separators[c])
        for k, other in enumerate(received):
            later = keep.union(*(axes for _, axes in received[k + 1 :]))
            current = _multiply(tree, current, other, later)
        current = _multiply(tree, current, None, keep)
        if parents[c] >= 0:
            pending.setdefault(int(parents[c]), []).append(current)
        else:
            results.append(current)
    joint: SpreadTable = (np.ones(()), ())
    for part in results:
        joint = _multiply(tree, joint, part, wanted)
    table, axes = joint
    return np.ascontiguousarray(table.transpose([axes.index(i) for i in clique])).reshape(-1)


def _conditional(
    tree: JunctionTree, tables: NDArray[np.float64], separators: NDArray[np.float64], c: int
) -> SpreadTable:
    arrays = tree.arrays
    table = tables[arrays.cell_off[c] : arrays.cell_off[c + 1]].reshape(arrays.sep[c], arrays.res[c])
    mass = separators[arrays.sep_off[c] : arrays.sep_off[c + 1], None]
    conditional = np.divide(table, mass, out=np.zeros_like(table), where=mass > 0.0)
    axes = tree.nodes[c]
    return conditional.reshape(tree.domain.shape(axes)), axes


def _multiply(tree: JunctionTree, a: SpreadTable, b: SpreadTable | None, keep: set[int]) -> SpreadTable:
    """Product of two tables, summed over the axes that are not in ``keep``."""
    operands = [a] if b is None else [a, b]
    axes = tuple(dict.fromkeys(i for _, part in operands for i in part))
    label = {i: k for k, i in enumerate(axes)}
    out = tuple(i for i in axes if i in keep)
    arguments: list[Any] = []
    for table, part in operands:
        arguments += [table, [label[i] for i in part]]
    arguments.append([label[i] for i in out])
    return np.asarray(np.einsum(*arguments)), out


#: Pairs go through one table of (sum of sizes)^2 doubles while that stays below this many cells.
_PAIR_TABLE_CELLS = 2**24
#: More pairs than these that no tree clique holds go through that table, where it may be held.
_FEW = 8
#: From so many pairs on the table may be this many times as large as the answer.
_MANY, _TABLE_PER_ANSWER = 1000, 4


class Shape:
    """Potentials on a junction tree, and what they imply. Probabilities throughout."""

    __slots__ = ("_calibrated", "_pair_table", "log_mass", "potentials", "tree")

    def __init__(self, tree: JunctionTree, potentials: NDArray[np.float64]) -> None:
        self.tree = tree
        self.potentials = potentials
        self._calibrated: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
        #: Logarithm of what the potentials add up to, once it is calibrated.
        self.log_mass = math.nan
        self._pair_table: NDArray[np.float64] | None = None

    def calibrated(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probabilities of the cells of all tree cliques, and of all separators."""
        if self._calibrated is None:
            from dpstream.core.graphical.compiled import inference

            tables = np.empty(self.tree.cells)
            separators = np.empty(int(self.tree.arrays.sep_off[-1]))
            self.log_mass = inference.calibrate(
                self.tree.arrays, self.tree.factors, self.potentials, tables, separators
            )
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

        tables, _ = self.calibrated()
        # Any integer is a seed; hashing it through SeedSequence keeps near seeds apart.
        state = np.random.SeedSequence(abs(int(seed)) * 2 + (seed < 0)).generate_state(1, np.uint64)[0]
        return sampling.draw(self.tree.arrays, tables, rows, state)


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


_query_plan = lru_cache(maxsize=64)(_QueryPlan)


#: Values of a column that no record has keep this share.
_RAREST = 1e-12
_KIND = "graphical-model"
_FORMAT = 1
#: Cells of the tree of a model under a condition.
MAX_GIVEN_CELLS = 2**22


class Model:
    """A calibrated graphical model; immutable, and everything it gives is post-processing.

    ``total`` is the (noisy) number of records: any finite number. The model's *shape* is a probability
    distribution in any case; marginals are the shape's times ``total``.
    """

    __slots__ = ("_cliques", "_shape", "_total")

    def __init__(
        self,
        tree: JunctionTree,
        potentials: NDArray[np.float64],
        total: float,
        *,
        cliques: Iterable[Clique] | None = None,
    ) -> None:
        """``potentials``: flat, as the tree lays them out. ``cliques``: the tree's, most recent first."""
        if len(potentials) != tree.parameters or not np.isfinite(potentials).all():
            raise InputError("potentials and cliques differ", where="graphical model")
        self._total = _finite(total)
        self._shape = Shape(tree, np.array(potentials, dtype=np.float64))
        self._cliques = tree.cliques if cliques is None else tuple(cliques)

    @classmethod
    def uniform(cls, domain: Domain, total: float) -> Model:
        """Every record equally likely."""
        tree = junction_tree(domain, ())
        return cls(tree, np.zeros(tree.parameters), total)

    @property
    def domain(self) -> Domain:
        return self._shape.tree.domain

    @property
    def total(self) -> float:
        return self._total

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """Cliques of the potentials of two or more attributes, most recently measured first.

        Each single attribute has a potential besides.
        """
        return self._cliques

    @property
    def tree(self) -> JunctionTree:
        return self._shape.tree

    @property
    def potentials(self) -> NDArray[np.float64]:
        """All potentials, flat, as ``tree`` lays them out (a copy)."""
        return self._shape.potentials.copy()

    def with_total(self, total: float) -> Model:
        """The same shape with another number of records (shares everything computed so far)."""
        other = object.__new__(Model)
        other._total = _finite(total)
        other._shape = self._shape
        other._cliques = self._cliques
        return other

    def bounded(self, limit: float) -> Model:
        """The same model with its log-potentials clipped, so that nothing is all but impossible.

        Every single attribute's potential stays within ``limit`` below its maximum, every interaction within
        ``limit`` of zero. As a prior, a model that has not seen a value for long would otherwise give it
        e.g. probability 1e-50, and no number of records could bring it back soon.
        """
        potentials = self.potentials
        singles = sum(self.domain.sizes)
        start = 0
        for size in self.domain.sizes:
            own = potentials[start : start + size]
            np.maximum(own, own.max() - limit, out=own)
            start += size
        np.clip(potentials[singles:], -limit, limit, out=potentials[singles:])
        return Model(self.tree, potentials, self._total, cliques=self._cliques)

    def with_column(self, attribute: int, counts: NDArray[np.float64]) -> Model:
        """The same model with the distribution of one attribute replaced by that of these counts (not negative; one of
        them not 0). What the model says given the attribute's value stays."""
        begin = sum(self.domain.sizes[:attribute])
        now = self.with_total(1.0).marginal((attribute,))
        wanted, potentials = counts / counts.sum(), self.potentials
        potentials[begin : begin + len(now)] += np.log(np.maximum(wanted, _RAREST) / np.maximum(now, _RAREST))
        return Model(self.tree, potentials, self._total, cliques=self._cliques)

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Exact marginals in records, flat in C order, one per clique; each sums to ``total``.

        No sampling; also for cliques that no tree clique holds. Pairs are done all at once. A clique of
        three or more attributes spread over the tree is summed out along the tree, at a cost of its
        own cells times the separators it passes.
        """
        asked = clique_list(self.domain, cliques)
        flat, ends = self._shape.marginals(asked, self._total), asked.ends.tolist()
        return [flat[begin:end] for begin, end in pairwise(ends)]

    def flat_marginals(self, cliques: Sequence[Clique]) -> NDArray[np.float64]:
        """``marginals`` one after the other, without an array for each."""
        return self._shape.marginals(clique_list(self.domain, cliques), self._total)

    def marginal(self, clique: Clique) -> NDArray[np.float64]:
        """One marginal (see ``marginals``)."""
        return self.marginals([clique])[0]

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """``rows`` records as codes, shape (rows, attributes), column-major; repeatable for one seed.

        Each record follows the model exactly (unbiased). Records are dealt, not drawn independently:
        within a tree clique every cell's count, given its separator's count, is within one of its
        expectation, so one table has far less sampling error than independent draws would.
        """
        if rows < 0 or rows >= 2**31:
            raise InputError(f"rows = {rows}", where="sample", allowed="0 to 2147483647")
        return self._shape.sample(rows, seed)

    def log_density(self, codes: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Logarithm (base e) of the probability of each record, shape (rows,); -inf where it is zero.

        Args:
            codes: records, shape (rows, attributes).

        Errors:
            InputError: codes of another shape or outside the domain.

        Cost: one look-up per record and tree clique.
        """
        given = np.asarray(codes)
        sizes = np.array(self.domain.sizes)
        if given.ndim != 2 or given.shape[1] != len(sizes) or given.dtype.kind not in "iu":
            raise InputError("codes and model differ", where="log_density")
        if given.size and (given.min() < 0 or (given.max(axis=0) >= sizes).any()):
            raise InputError("a code lies outside the domain", where="log_density")
        return self._shape.log_density(given)

    def given(self, excluded: Sequence[Impossible]) -> tuple[Model, float] | None:
        """The model of the records outside some cells, and their share of all; None where none is.

        Both are exact: the cells get no mass, and what is left keeps its proportions.

        Errors:
            LimitError: with these cells' cliques the junction tree is too large.
        """
        domain = replace(self.domain, impossible=(*self.domain.impossible, *excluded))
        cells = tree_cells(domain, self._cliques)
        if cells > MAX_GIVEN_CELLS:
            raise LimitError(
                f"the condition joins too many columns: {cells:.3g} cells",
                where="where",
                allowed=f"at most {MAX_GIVEN_CELLS}",
            )
        try:
            tree = junction_tree(domain, self._cliques)
        except ConfigError:  # no record is left
            return None
        left = Model(tree, self._shape.potentials, self._total, cliques=self._cliques)
        for shape in (self._shape, left._shape):
            shape.calibrated()
        return left, math.exp(min(left._shape.log_mass - self._shape.log_mass, 0.0))

    def law(self) -> dict[str, Any]:
        """The exact model, JSON-able, with columns by their names: see docs/reference/files.md, "The model"."""
        domain, potentials = self.domain, self._shape.potentials
        cliques: list[Clique] = [*((i,) for i in range(len(domain))), *self._cliques]
        own = [(clique, potentials[self.tree.slot(clique)].tolist()) for clique in cliques]
        never = [(one.clique, "".join(map(str, one.mask(domain).astype(int)))) for one in domain.impossible]

        def named(key: str, tables: Iterable[tuple[Clique, Any]]) -> list[dict[str, Any]]:
            return [{"columns": [domain.names[i] for i in clique], key: table} for clique, table in tables]

        return {"potentials": named("values", own), "impossible": named("cells", never)}

    @classmethod
    def of_law(cls, domain: Domain, law: Mapping[str, Any], total: float) -> Model:
        """The inverse of ``law``. KeyError, TypeError, ValueError, InputError."""
        cells = [(one["cells"], domain.clique(one["columns"])) for one in law["impossible"]]
        never = tuple(Impossible(own, pack_mask(np.array(list(bits)) == "1")) for bits, own in cells)
        domain = replace(domain, impossible=never)
        tables = {domain.clique(one["columns"]): one["values"] for one in law["potentials"]}
        cliques = tuple(clique for clique in tables if len(clique) > 1)
        tree = junction_tree(domain, cliques)
        potentials = np.zeros(tree.parameters)
        for clique, values in tables.items():
            given = np.array(values, dtype=np.float64)
            if given.shape != potentials[tree.slot(clique)].shape:
                raise ValueError
            potentials[tree.slot(clique)] = given
        return cls(tree, potentials, total, cliques=cliques)

    def pack(self) -> Packed:
        """Arrays and JSON from which ``unpack`` gives an equal model (same results, bit for bit)."""
        meta: dict[str, Any] = {
            "kind": _KIND,
            "format": _FORMAT,
            "names": list(self.domain.names),
            "sizes": list(self.domain.sizes),
            "cliques": [list(c) for c in self._cliques],
            "total": self._total,
            **pack_impossible(self.domain),
        }
        return Packed(meta, {"potentials": self._shape.potentials.copy()})

    @classmethod
    def unpack(cls, packed: Packed) -> Model:
        """The inverse of ``pack``. StoreFormatError, StoreDamagedError."""
        meta = packed.meta
        if meta.get("kind") != _KIND or meta.get("format") != _FORMAT:
            raise StoreFormatError("unknown format of a model", where="model", allowed=f"format {_FORMAT}")
        try:
            sizes = tuple(int(s) for s in meta["sizes"])
            domain = Domain(tuple(meta["names"]), sizes, unpack_impossible(meta))
            cliques = tuple(check_clique(domain, c) for c in meta["cliques"])
            potentials = np.array(packed.arrays["potentials"], dtype=np.float64)
            tree = junction_tree(domain, cliques)
            if len(set(cliques)) != len(cliques) or len(cliques) != len(tree.cliques):
                raise InputError("cliques repeat or are too small", where="model")
            return cls(tree, potentials, float(meta["total"]), cliques=cliques)
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise StoreDamagedError(f"a packed model contradicts itself: {error}", where="model") from error

    def __repr__(self) -> str:
        return f"Model(total={self._total:.6g}, cliques={list(self._cliques)})"


def draw_blocks(models: Sequence[Model], shares: NDArray[np.int64], seed: int, size: int) -> DrawnBlocks:
    """A table of ``shares[k]`` records of each model, in random order, as makers of blocks of ``size`` records.

    A maker gives codes, shape (records, attributes), column-major; any thread may call it. Equal arguments give equal
    blocks. Nothing is computed before the blocks are asked for.

    Cost: the integers of all cells of all models, and to take a block's share a look at each of them.
    """
    return DrawnBlocks(tuple(models), np.array(shares, dtype=np.int64), seed, size)


@dataclass(frozen=True, eq=False)
class DrawnBlocks:
    """See ``draw_blocks``."""

    models: tuple[Model, ...]
    shares: NDArray[np.int64]
    seed: int
    size: int

    def __iter__(self) -> Iterator[Callable[[], NDArray[np.int32]]]:
        return iter(self.dealt())

    def dealt(self) -> DealtBlocks:
        """The same blocks, after the last step that computes with the models' probabilities."""
        from dpstream.core.graphical.compiled.sampling import deal_blocks

        shapes = [(model.tree.arrays, model._shape.calibrated()[0]) for model in self.models]
        return deal_blocks(shapes, self.shares, self.seed, self.size)


def _finite(total: float) -> float:
    value = float(total)
    if not math.isfinite(value):
        raise InputError(f"the total is {value}", where="graphical model", allowed="a finite number")
    return value
