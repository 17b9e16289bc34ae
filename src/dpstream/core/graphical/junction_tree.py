"""Junction trees: from a clique set to the integer plans that the compiled loops run on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import InputError, LimitError
from dpstream.core.graphical.compiled.arrays import FactorArrays, Ints, TreeArrays
from dpstream.core.schema.domain import Clique, Domain

__all__ = ["JunctionTree", "check_clique", "junction_tree", "tree_cells", "tree_cells_each"]


#: Beyond this no table is allocated: index maps are 32-bit, and such a model cannot be used anyway.
MOST_CELLS = 2**27


@dataclass(frozen=True, eq=False)
class JunctionTree:
    """A junction tree of some cliques over all attributes of a domain, ready to run.

    ``cliques``: the given cliques of two or more attributes, sorted. ``nodes``: the tree's cliques in
    preorder, as their tables' axes (separator first); every attribute is in one of them.
    Potentials are one flat vector: one table per attribute, then one per clique of ``cliques``.
    """

    domain: Domain
    cliques: tuple[Clique, ...]
    nodes: tuple[tuple[int, ...], ...]
    separators: tuple[Clique, ...]
    arrays: TreeArrays
    factors: FactorArrays
    member_starts: NDArray[np.int64]
    members: NDArray[np.int64]

    @property
    def cells(self) -> int:
        """Cells of all tables of the tree's cliques."""
        return int(self.arrays.cell_off[-1])

    @property
    def parameters(self) -> int:
        """Length of the potentials' vector."""
        return int(self.factors.table_off[-1])

    def factor(self, clique: Clique) -> int:
        """Index of the potential of a clique (of one attribute, or one of ``cliques``)."""
        if len(clique) == 1:
            return clique[0]
        return len(self.domain) + self.cliques.index(clique)

    def slot(self, clique: Clique) -> slice:
        """Where a clique's potential is in the flat vector."""
        f = self.factor(clique)
        return slice(int(self.factors.table_off[f]), int(self.factors.table_off[f + 1]))

    def home(self, clique: Sequence[int]) -> int | None:
        """The smallest tree clique that holds all of these attributes, or None."""
        wanted = set(clique)
        best: int | None = None
        cell_off = self.arrays.cell_off
        for c, axes in enumerate(self.nodes):
            if wanted.issubset(axes):
                cells = cell_off[c + 1] - cell_off[c]
                if best is None or cells < cell_off[best + 1] - cell_off[best]:
                    best = c
        return best


def check_clique(domain: Domain, clique: Sequence[int]) -> Clique:
    """The clique as a sorted tuple of ints; InputError if it is not one of this domain."""
    return _checked(len(domain), tuple(clique))


@lru_cache(maxsize=16384)
def _checked(attributes: int, clique: tuple[int, ...]) -> Clique:
    # Remembered: a stream asks about the same few hundred cliques thousands of times a second.
    checked = tuple(int(i) for i in clique)
    if any(a >= b for a, b in pairwise(checked)):
        raise InputError(f"{checked} is not sorted or repeats an attribute", where="clique")
    if checked and not 0 <= checked[0] <= checked[-1] < attributes:
        raise InputError(
            f"{checked} names an attribute that does not exist",
            where="clique",
            allowed=f"0 to {attributes - 1}",
        )
    return checked


def _adjacency(attributes: int, cliques: Iterable[Clique]) -> NDArray[np.bool_]:
    graph = np.zeros((attributes, attributes), dtype=np.bool_)
    for clique in cliques:
        for i in clique:
            for j in clique:
                if i != j:
                    graph[i, j] = True
    return graph


def _float_sizes(domain: Domain) -> NDArray[np.float64]:
    return np.array(domain.sizes, dtype=np.float64)


def tree_cells(domain: Domain, cliques: Iterable[Clique]) -> int:
    """Number of cells of the junction tree of a clique set (what its model costs per iteration).

    The very triangulation that a model of these cliques uses. Attributes in no clique count with their
    size. Cost: 10 to 30 microseconds for 15 cliques over 13 attributes. Capped at 2^53.
    """
    return _cells(domain, frozenset(check_clique(domain, c) for c in cliques))


@lru_cache(maxsize=4096)
def _cells(domain: Domain, cliques: frozenset[Clique]) -> int:
    from dpstream.core.graphical.compiled import elimination

    return int(elimination.best_elimination(_adjacency(len(domain), cliques), _float_sizes(domain))[2])


def tree_cells_each(
    domain: Domain, cliques: Iterable[Clique], candidates: Sequence[Clique]
) -> NDArray[np.int64]:
    """``tree_cells`` of ``cliques`` plus one candidate, for each candidate, in one compiled call."""
    from dpstream.core.graphical.compiled import elimination

    graph = _adjacency(len(domain), [check_clique(domain, c) for c in cliques])
    checked = [check_clique(domain, c) for c in candidates]
    starts, members = _ragged(checked)
    out = np.empty(len(checked))
    elimination.cells_with_each(graph, _float_sizes(domain), starts, members, out)
    return out.astype(np.int64)


def junction_tree(domain: Domain, cliques: Iterable[Clique]) -> JunctionTree:
    """The junction tree of a clique set, built once per set (the 64 last used are kept).

    Raises LimitError where its tables would not fit into memory. Cost when new: under 1 ms.
    """
    wanted = {check_clique(domain, c) for c in cliques}
    return _build(domain, tuple(sorted(c for c in wanted if len(c) > 1)))


def _ragged(lists: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    starts = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in lists], out=starts[1:])
    return starts, np.array([i for part in lists for i in part], dtype=np.int64)


@dataclass
class _Node:
    """A maximal elimination clique: ``top`` is the last vertex whose clique was absorbed into it."""

    attributes: frozenset[int]
    top: int
    parent: int = -1


def _clique_tree(
    order: list[int], later: list[frozenset[int]]
) -> tuple[list[tuple[Clique, Clique, int]], list[int]]:
    """Preorder list of (separator, residual, parent) and the end of each subtree."""
    place = {v: k for k, v in enumerate(order)}
    parent_of = {v: min(later[v], key=place.__getitem__) if later[v] else -1 for v in order}
    host: dict[int, int] = {}
    nodes: list[_Node] = []
    absorbing: dict[int, int] = {}
    for v in order:
        if v in absorbing:
            host[v] = absorbing[v]
            nodes[host[v]].top = v
        else:
            host[v] = len(nodes)
            nodes.append(_Node(later[v] | {v}, v))
        parent = parent_of[v]
        # N(v) has as many vertices as the parent's clique: it is that clique, and lies inside ours.
        if parent >= 0 and len(later[v]) == len(later[parent]) + 1:
            absorbing[parent] = host[v]
    children: dict[int, list[int]] = {}
    for k, node in enumerate(nodes):
        above = parent_of[node.top]
        node.parent = host[above] if above >= 0 else -1
        children.setdefault(node.parent, []).append(k)
    listing: list[tuple[Clique, Clique, int]] = []
    ends: list[int] = []

    stack = [(k, -1) for k in reversed(children.get(-1, []))]
    while stack:
        k, parent_index = stack.pop()
        if k < 0:
            ends[parent_index] = len(listing)
            continue
        separator = later[nodes[k].top]
        index = len(listing)
        residual = nodes[k].attributes - separator
        listing.append((tuple(sorted(separator)), tuple(sorted(residual)), parent_index))
        ends.append(index + 1)
        stack.append((-1, index))
        stack.extend((child, index) for child in reversed(children.get(k, [])))
    return listing, ends


@lru_cache(maxsize=64)
def _build(domain: Domain, cliques: tuple[Clique, ...]) -> JunctionTree:
    from dpstream.core.graphical.compiled import elimination
    from dpstream.core.graphical.compiled.inference import index_maps

    order, later, cells = elimination.best_elimination(_adjacency(len(domain), cliques), _float_sizes(domain))
    if cells > MOST_CELLS:
        raise LimitError(
            f"the junction tree of these {len(cliques)} cliques has {cells:.3g} cells",
            where="graphical model",
            allowed=f"at most {MOST_CELLS}; use fewer or smaller cliques",
        )
    listing, ends = _clique_tree(order.tolist(), [frozenset(np.flatnonzero(row).tolist()) for row in later])
    sizes = np.array(domain.sizes, dtype=np.int64)
    nodes = tuple(separator + residual for separator, residual, _ in listing)
    axis_off, axes = _ragged(nodes)
    sep = np.array([domain.cells(s) for s, _, _ in listing], dtype=np.int64)
    res = np.array([domain.cells(r) for _, r, _ in listing], dtype=np.int64)
    parents = np.array([parent for _, _, parent in listing], dtype=np.int64)
    cell_off = offsets(sep * res)

    def maps_to(sources: Ints, targets: Sequence[Clique]) -> tuple[Ints, NDArray[np.int32]]:
        lengths = np.where(sources >= 0, (sep * res)[sources], 0)
        map_off = offsets(lengths)
        maps = np.empty(int(map_off[-1]), dtype=np.int32)
        target_off, flat = _ragged(targets)
        index_maps(axis_off, axes, sizes, sources, target_off, flat, map_off, maps)
        return map_off, maps

    map_off, maps = maps_to(parents, [s for s, _, _ in listing])
    arrays = TreeArrays(
        parents, np.array(ends, dtype=np.int64), sep, res, cell_off, offsets(sep),
        axis_off, axes, np.array([len(s) for s, _, _ in listing], dtype=np.int64), map_off, maps, sizes,
    )  # fmt: skip
    owners: tuple[Clique, ...] = tuple((i,) for i in range(len(domain))) + cliques
    node_sets = [frozenset(node) for node in nodes]
    node_cells = (sep * res).tolist()

    def holder(owner: Clique) -> int:
        return min((c for c, s in enumerate(node_sets) if s.issuperset(owner)), key=node_cells.__getitem__)

    holders = np.array([holder(owner) for owner in owners], dtype=np.int64)
    factor_map_off, factor_maps = maps_to(holders, owners)
    table_off = offsets(np.array([domain.cells(f) for f in owners], dtype=np.int64))
    starts, members = _ragged(owners)
    return JunctionTree(
        domain,
        cliques,
        nodes,
        tuple(s for s, _, _ in listing),
        arrays,
        FactorArrays(holders, table_off, factor_map_off, factor_maps),
        starts,
        members,
    )


def offsets(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of several blocks begins, one after the other, and where the last one ends."""
    out = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=out[1:])
    return out
