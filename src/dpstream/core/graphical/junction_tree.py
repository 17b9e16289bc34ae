"""Junction trees: from a clique set to the integer plans that the compiled loops run on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, InputError, LimitError
from dpstream.core.schema.domain import Clique, Domain

Ints = NDArray[np.int64]


class TreeArrays(NamedTuple):
    """Cliques in preorder (parents first, subtrees contiguous); ``m`` of them.

    A clique's table has its separator's axes first, then its residual's, each in ascending order of
    attributes: a matrix of ``sep`` rows and ``res`` columns.
    """

    parent: Ints  #: [m], -1 for the root of a component
    last: Ints  #: [m], end (exclusive) of the clique's subtree
    sep: Ints  #: [m], cells of the separator to the parent (1 for a root)
    res: Ints  #: [m], cells of the residual
    cell_off: Ints  #: [m + 1], offsets of the cliques' tables
    sep_off: Ints  #: [m + 1], offsets of the separators' tables
    axis_off: Ints  #: [m + 1]
    axes: Ints  #: attributes of each clique in the table's order
    sep_axes: Ints  #: [m], how many of them are the separator's
    map_off: Ints  #: [m + 1], offsets into ``maps``
    maps: NDArray[np.int32]  #: for each clique with a parent: parent's cell -> cell of the separator
    sizes: Ints  #: [p], sizes of all attributes
    #: [cells], the logarithm that each cell of the cliques' tables begins with: 0, or far below every potential where
    #: no record is; empty where every cell is possible
    floor: NDArray[np.float64]


class FactorArrays(NamedTuple):
    """Potentials: one per attribute first, then one per clique of two or more attributes."""

    clique: Ints  #: [F], tree clique that holds the potential
    table_off: Ints  #: [F + 1], offsets of the potentials' tables (C order of the sorted clique)
    map_off: Ints  #: [F + 1]
    maps: NDArray[np.int32]  #: tree clique's cell -> cell of the potential


#: Beyond this no table is allocated: index maps are 32-bit, and such a model cannot be used anyway.
MAX_CELLS = 2**27
#: What a cell begins with where no record is: a logarithm below all that potentials add up to.
_NOWHERE = -1e8
_EVERYWHERE = np.empty(0)
#: Larger trees are reported as this large: 2^53 is exact in a double.
MAX_COUNTED = 2**53


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

    def homes(self, cliques: CliqueList) -> NDArray[np.int64]:
        """The smallest tree clique that holds each of these cliques (the first of equal ones), or -1."""
        return self._index.find(cliques)

    @cached_property
    def _index(self) -> _NodeIndex:
        return _NodeIndex(len(self.domain), self.nodes, np.diff(self.arrays.cell_off))


class _NodeIndex:
    """Which tree cliques hold which attributes: looked up for many cliques at once."""

    def __init__(self, attributes: int, nodes: Sequence[tuple[int, ...]], cells: NDArray[np.int64]) -> None:
        self._attributes = attributes
        best_first = np.argsort(cells, kind="stable").tolist()
        self._nodes = [(c, frozenset(nodes[c])) for c in best_first]
        own = [np.array(nodes[c], dtype=np.int64) for c in best_first]
        pairs = np.concatenate([np.add.outer(axes * attributes, axes).ravel() for axes in own])
        owners = np.repeat(np.array(best_first, dtype=np.int64), [len(axes) ** 2 for axes in own])
        # Of every two attributes (or one, twice) the first tree clique, which is the best.
        self._pairs, first = np.unique(pairs, return_index=True)
        self._owners = owners[first]

    def find(self, asked: CliqueList) -> NDArray[np.int64]:
        """See ``JunctionTree.homes``."""
        starts, members, lengths = asked.starts, asked.members, asked.lengths
        found = np.full(len(lengths), -1, dtype=np.int64)
        short = np.flatnonzero((lengths == 1) | (lengths == 2))
        wanted = members[starts[short]] * self._attributes + members[starts[short + 1] - 1]
        place = np.minimum(np.searchsorted(self._pairs, wanted), len(self._pairs) - 1)
        held = self._pairs[place] == wanted
        found[short[held]] = self._owners[place[held]]
        for k in np.flatnonzero((lengths == 0) | (lengths > 2)).tolist():
            found[k] = next((c for c, axes in self._nodes if axes.issuperset(asked.cliques[k])), -1)
        return found


def check_clique(domain: Domain, clique: Sequence[int]) -> Clique:
    """The clique as a sorted tuple of ints; InputError if it is not one of this domain."""
    return _checked(len(domain), tuple(clique))


@lru_cache(maxsize=16384)
def _checked(attributes: int, clique: tuple[int, ...]) -> Clique:
    # Remembered: a stream asks about the same few hundred cliques thousands of times a second.
    checked = tuple(int(i) for i in clique)
    if any(a >= b for a, b in pairwise(checked)):
        raise InputError(f"{checked} is unsorted or repeats an attribute", where="clique")
    if checked and not 0 <= checked[0] <= checked[-1] < attributes:
        raise InputError(
            f"{checked} names an unknown attribute",
            where="clique",
            allowed=f"0 to {attributes - 1}",
        )
    return checked


@dataclass(frozen=True, eq=False)
class CliqueList:
    """Cliques of a domain, checked, also as flat arrays; one object for one list (``clique_list``).

    ``starts``, ``members``: their attributes, one clique after the other.
    """

    domain: Domain
    cliques: tuple[Clique, ...]
    starts: NDArray[np.int64]
    members: NDArray[np.int64]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Attributes of each clique."""
        return np.diff(self.starts)

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Where the cells of each clique begin if they stand one after the other, and where the last ones end."""
        if (self.lengths == 2).all():
            sizes = np.array(self.domain.sizes, dtype=np.int64)
            return offsets(sizes[self.members[0::2]] * sizes[self.members[1::2]])
        return offsets([self.domain.cells(clique) for clique in self.cliques])


def clique_list(domain: Domain, cliques: Iterable[Sequence[int]]) -> CliqueList:
    """Many cliques, checked once (the 32 last used lists are kept); InputError if one is not of this domain."""
    return _clique_list(domain, tuple(map(tuple, cliques)))


@lru_cache(maxsize=32)
def _clique_list(domain: Domain, cliques: tuple[Clique, ...]) -> CliqueList:
    starts, members = ragged(cliques)
    within = np.ones(len(members), dtype=bool)
    within[starts[:-1][np.diff(starts) > 0]] = False  # the first of a clique is larger than nothing
    falls = within[1:] & (members[1:] <= members[:-1])
    if falls.any() or (members < 0).any() or (members >= len(domain)).any():
        for clique in cliques:
            check_clique(domain, clique)
    return CliqueList(domain, cliques, starts, members)


def _graph(domain: Domain, cliques: Iterable[Clique]) -> NDArray[np.bool_]:
    """Which attributes some tree clique has to hold together: those of a clique, and of impossible cells."""
    graph = np.zeros((len(domain), len(domain)), dtype=np.bool_)
    for clique in chain(cliques, (one.clique for one in domain.impossible)):
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
    size; cliques with impossible cells are always in the tree. Cost: 10 to 30 microseconds for 15 cliques over
    13 attributes. Capped at 2^53.
    """
    return _cells(domain, frozenset(check_clique(domain, c) for c in cliques))


@lru_cache(maxsize=4096)
def _cells(domain: Domain, cliques: frozenset[Clique]) -> int:
    from dpstream.core.graphical.compiled import elimination

    return int(elimination.best_elimination(_graph(domain, cliques), _float_sizes(domain))[2])


def junction_tree(domain: Domain, cliques: Iterable[Clique]) -> JunctionTree:
    """The junction tree of a clique set, built once per set (the 64 last used are kept).

    Raises LimitError where its tables would not fit into memory. Cost when new: under 1 ms.
    """
    wanted = {check_clique(domain, c) for c in cliques}
    return _build(domain, tuple(sorted(c for c in wanted if len(c) > 1)))


def ragged(lists: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Several lists one after the other: where each begins (and the last one ends), and all of them."""
    starts = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)), out=starts[1:])
    return starts, np.fromiter(chain.from_iterable(lists), np.int64, int(starts[-1]))


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

    order, later, cells = elimination.best_elimination(_graph(domain, cliques), _float_sizes(domain))
    if cells > MAX_CELLS:
        raise LimitError(
            f"the junction tree of {len(cliques)} cliques has {cells:.3g} cells",
            where="graphical model",
            allowed=f"at most {MAX_CELLS}: fewer or smaller cliques",
        )
    listing, ends = _clique_tree(order.tolist(), [frozenset(np.flatnonzero(row).tolist()) for row in later])
    sizes = np.array(domain.sizes, dtype=np.int64)
    nodes = tuple(separator + residual for separator, residual, _ in listing)
    axis_off, axes = ragged(nodes)
    sep = np.array([domain.cells(s) for s, _, _ in listing], dtype=np.int64)
    res = np.array([domain.cells(r) for _, r, _ in listing], dtype=np.int64)
    parents = np.array([parent for _, _, parent in listing], dtype=np.int64)
    cell_off = offsets(sep * res)

    def maps_to(sources: Ints, targets: Sequence[Clique]) -> tuple[Ints, NDArray[np.int32]]:
        lengths = np.where(sources >= 0, (sep * res)[sources], 0)
        map_off = offsets(lengths)
        maps = np.empty(int(map_off[-1]), dtype=np.int32)
        target_off, flat = ragged(targets)
        index_maps(axis_off, axes, sizes, sources, target_off, flat, map_off, maps)
        return map_off, maps

    map_off, maps = maps_to(parents, [s for s, _, _ in listing])
    arrays = TreeArrays(
        parents, np.array(ends, dtype=np.int64), sep, res, cell_off, offsets(sep),
        axis_off, axes, np.array([len(s) for s, _, _ in listing], dtype=np.int64), map_off, maps, sizes,
        _EVERYWHERE,
    )  # fmt: skip
    if domain.impossible:
        arrays = arrays._replace(floor=_floor(domain, nodes, arrays, maps_to))
    owners: tuple[Clique, ...] = tuple((i,) for i in range(len(domain))) + cliques
    holders = _NodeIndex(len(domain), nodes, sep * res).find(clique_list(domain, owners))
    factor_map_off, factor_maps = maps_to(holders, owners)
    table_off = offsets(np.array([domain.cells(f) for f in owners], dtype=np.int64))
    starts, members = ragged(owners)
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


def _floor(
    domain: Domain,
    nodes: Sequence[Clique],
    arrays: TreeArrays,
    maps_to: Callable[[Ints, Sequence[Clique]], tuple[Ints, NDArray[np.int32]]],
) -> NDArray[np.float64]:
    """See ``TreeArrays.floor``: cells that are impossible, and those with which nothing further down is possible.

    So a record that is drawn from the root downwards always finds a possible cell, and never an impossible one.

    Raises ConfigError where no record is possible at all.
    """
    cells = arrays.cell_off.tolist()
    possible = np.ones(cells[-1], dtype=np.bool_)
    asked = tuple(one.clique for one in domain.impossible)
    homes = _NodeIndex(len(domain), nodes, np.diff(arrays.cell_off)).find(clique_list(domain, asked))
    offs, maps = maps_to(homes, asked)
    for k, (one, home) in enumerate(zip(domain.impossible, homes.tolist(), strict=True)):
        possible[cells[home] : cells[home + 1]] &= ~one.mask(domain)[maps[offs[k] : offs[k + 1]]]
    for c in range(len(nodes) - 1, -1, -1):
        rows = np.any(possible[cells[c] : cells[c + 1]].reshape(int(arrays.sep[c]), -1), axis=1)
        parent = int(arrays.parent[c])
        if parent >= 0:
            to_separator = arrays.maps[arrays.map_off[c] : arrays.map_off[c + 1]]
            possible[cells[parent] : cells[parent + 1]] &= rows[to_separator]
        elif not rows.all():
            raise ConfigError(
                "the constraints exclude every record",
                where="schema.constraints",
                allowed="constraints that some record satisfies",
            )
    return np.where(possible, 0.0, _NOWHERE)


def offsets(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of several blocks begins, one after the other, and where the last one ends."""
    out = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


# How large a junction tree is, and would be with one more clique: kept while cliques are added one by one.

_Indices = NDArray[np.int64]
_Floats = NDArray[np.float64]
#: The two rules of greedy elimination; a tree is the smaller of what they give (``compiled.elimination``).
_FILL, _CELLS = 0, 1
_WORD = 64


class TreeSizes:
    """``tree_cells`` of some cliques, and of them and one candidate more, for many candidates.

    The same numbers as ``tree_cells`` of the whole set, without eliminating the whole graph for every candidate: a
    clique changes only the connected parts that it touches, and what a candidate adds to them is remembered until one
    of them changes. Where a pair joins two parts of which at least one is chordal, it adds its own cells (less those
    of a column that was alone). A chordal part has no smaller tree than the one that adds no edge, if every column
    has two values or more.

    Args:
        candidates: what ``cells_with`` and ``within`` are asked about, by their positions.
        cliques: what is in the tree to begin with.

    Cost: microseconds for a candidate whose parts have changed, next to nothing for all others.

    >>> domain = Domain(("zip", "paid", "rent"), (29, 2, 4))
    >>> sizes = TreeSizes(domain, [(0, 1), (1, 2)], [(0, 2)])
    >>> sizes.cells, sizes.cells_with(np.array([0, 1])).tolist()
    (118, [174, 124])
    """

    def __init__(self, domain: Domain, candidates: Sequence[Clique], cliques: Iterable[Clique] = ()) -> None:
        many = len(domain)
        self._attributes = many
        self._sizes = np.array(domain.sizes, dtype=np.float64)
        own = clique_list(domain, candidates)
        self._starts, self._members, self._lengths = own.starts, own.members, own.lengths
        # Of a pair its columns; of a longer one the first and the last, by which they are put in order.
        several = self._lengths > 0
        self._first, self._last = np.zeros((2, len(candidates)), dtype=np.int64)
        self._first[several] = self._members[self._starts[:-1][several]]
        self._last[several] = self._members[self._starts[1:][several] - 1]
        self._graph = np.zeros((many, (many + _WORD - 1) // _WORD), dtype=np.uint64)
        #: A part has the number of its first column; the arrays below are 0 elsewhere.
        self._part = np.arange(many)
        self._totals = np.stack((self._sizes, self._sizes))
        self._chordal = np.ones(many, dtype=bool)
        self._more = np.zeros((2, len(candidates)))
        self._known = np.tile(self._lengths < 2, (2, 1))
        self._stays_chordal = np.ones(len(candidates), dtype=bool)
        for clique in (*(one.clique for one in domain.impossible), *cliques):
            self._join(check_clique(domain, clique))
        self._measure(np.unique(self._part))
        self._domain = domain

    @property
    def cells(self) -> int:
        """Cells of the tree now."""
        return int(min(self._totals.sum(axis=1).min(), MAX_COUNTED))

    def add(self, clique: Clique) -> None:
        """One clique more."""
        if self._join(check_clique(self._domain, clique)):
            part = self._part[clique[0]]
            self._measure(np.array([part]))
            inside = self._part == part
            touched = inside[self._first] | inside[self._last]
            wide = np.flatnonzero(self._lengths > 2)
            if len(wide):
                counted = np.concatenate(([0], np.cumsum(inside[self._members])))
                touched[wide] = counted[self._starts[wide + 1]] > counted[self._starts[wide]]
            self._known[:, touched & (self._lengths > 1)] = False

    def cells_with(self, candidates: _Indices) -> NDArray[np.int64]:
        """Cells of the tree with each of these candidates (one at a time). Capped at 2^53."""
        by_fill = self._grown(_FILL, candidates)
        open_ones = ~self._least(candidates)
        best = by_fill
        best[open_ones] = np.minimum(by_fill[open_ones], self._grown(_CELLS, candidates[open_ones]))
        return np.minimum(best, MAX_COUNTED).astype(np.int64)

    def within(self, candidates: _Indices, most: float) -> NDArray[np.bool_]:
        """With which of these candidates (one at a time) the tree has at most so many cells."""
        fits = np.minimum(self._grown(_FILL, candidates), MAX_COUNTED) <= most
        open_ones = np.flatnonzero(~fits & ~self._least(candidates))
        if len(open_ones):
            fits[open_ones] = self._grown(_CELLS, candidates[open_ones]) <= most
        return fits

    def _least(self, candidates: _Indices) -> NDArray[np.bool_]:
        """Of which candidates the rule by fill gives the smallest tree that there is."""
        if (self._sizes < 2.0).any() or (self._totals[_FILL] > self._totals[_CELLS]).any():
            return np.zeros(len(candidates), dtype=bool)
        return self._stays_chordal[candidates]

    def _grown(self, rule: int, candidates: _Indices) -> _Floats:
        """Cells with each candidate, by one rule."""
        missing = candidates[~self._known[rule, candidates]]
        if len(missing):
            self._look_up(rule, missing)
        return np.asarray(self._totals[rule].sum() + self._more[rule, candidates])

    def _look_up(self, rule: int, missing: _Indices) -> None:
        self._known[rule, missing] = True
        first, last = self._first[missing], self._last[missing]
        pairs = self._lengths[missing] == 2
        bits = self._graph[first, last // _WORD] >> (last % _WORD).astype(np.uint64) & np.uint64(1)
        present = pairs & (bits == 1)
        own = self._part[first], self._part[last]
        self._more[rule, missing[present]] = 0.0
        left = ~present
        if rule == _FILL:
            self._stays_chordal[missing[present]] = self._chordal[own[0][present]]
            chordal = self._chordal[own[0]], self._chordal[own[1]]
            joins = pairs & (own[0] != own[1]) & (chordal[0] | chordal[1])
            sizes, alone = self._sizes, self._alone
            more = sizes[first] * sizes[last] - alone[first] * sizes[first] - alone[last] * sizes[last]
            self._more[rule, missing[joins]] = more[joins]
            self._stays_chordal[missing[joins]] = (chordal[0] & chordal[1])[joins]
            left &= ~joins
        if left.any():
            # By the parts that they touch, as the compiled loop wants them.
            low, high = np.minimum(*own)[left], np.maximum(*own)[left]
            order = missing[left][np.lexsort((high, low))]
            more, kept = self._eliminate(rule, *_select(self._starts, self._members, order))
            self._more[rule, order] = more
            if rule == _FILL:
                self._stays_chordal[order] = kept

    def _eliminate(self, rule: int, starts: _Indices, members: _Indices) -> tuple[_Floats, NDArray[np.bool_]]:
        from dpstream.core.graphical.compiled import elimination

        more, kept = np.empty(len(starts) - 1), np.empty(len(starts) - 1, dtype=np.bool_)
        elimination.grown_parts(
            self._graph,
            self._sizes,
            self._part,
            self._totals[rule],
            starts,
            members,
            rule == _FILL,
            more,
            kept,
        )
        return more, kept

    @property
    def _alone(self) -> NDArray[np.bool_]:
        """Which columns are a part of their own."""
        return np.asarray(np.bincount(self._part, minlength=self._attributes)[self._part] == 1)

    def _join(self, clique: Clique) -> bool:
        """Put a clique into the graph; whether that changed anything."""
        new = False
        for i in clique:
            for j in clique:
                bit = np.uint64(1 << (j % _WORD))
                if i != j and not self._graph[i, j // _WORD] & bit:
                    self._graph[i, j // _WORD] |= bit
                    new = True
        if new:
            joined = self._part[list(clique)]
            together = np.isin(self._part, joined)
            self._totals[:, self._part[together]] = 0.0
            self._part[together] = joined.min()
        return new

    def _measure(self, parts: _Indices) -> None:
        """The cells of parts that have changed, by both rules, and whether they are chordal."""
        several = parts[~self._alone[parts]]
        self._totals[:, parts] = 0.0
        if len(several):
            # Their first column alone as a clique: it changes nothing, and all of the part is counted.
            for rule in (_FILL, _CELLS):
                own, kept = self._eliminate(rule, np.arange(len(several) + 1), several)
                self._totals[rule, several] = own
                if rule == _FILL:
                    self._chordal[several] = kept
        alone = np.setdiff1d(parts, several)
        self._totals[:, alone] = self._sizes[alone]


def _select(starts: _Indices, members: _Indices, order: _Indices) -> tuple[_Indices, _Indices]:
    """Some of several lists that stand one after the other."""
    lengths = (starts[1:] - starts[:-1])[order]
    own = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    places = np.repeat(starts[:-1][order] - own[:-1], lengths) + np.arange(own[-1])
    return own, members[places]
