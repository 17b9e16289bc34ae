"""How large a junction tree is, and would be with one more clique: kept while cliques are added one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical.junction_tree import MAX_COUNTED, check_clique, clique_list
from dpstream.core.schema.domain import Clique, Domain

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
