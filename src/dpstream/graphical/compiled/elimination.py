"""Triangulation of a clique set by greedy elimination."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import numpy as np

from dpstream.compiling import njit
from dpstream.graphical.compiled.inner import inner

#: Sizes above this are reported as this: no caller can hold such a table, and 2^53 is exact in a double.
CELLS_CAP = 2.0**53


@inner()
def _fill_in(adjacency, neighbours, count):
    missing = 0
    for a in range(count):
        for b in range(a + 1, count):
            if not adjacency[neighbours[a], neighbours[b]]:
                missing += 1
    return missing


@inner()
def eliminate(adjacency, sizes, by_fill, order, later):
    """Eliminate all vertices; ``order`` and ``later`` (neighbours at elimination) are outputs.

    ``adjacency`` is destroyed. Returns the number of cells of the maximal elimination cliques.
    ``by_fill``: fewest new edges first (ties: fewest cells); otherwise fewest cells first (ties: fill).
    """
    n = len(sizes)
    alive = np.ones(n, dtype=np.bool_)
    neighbours = np.empty(n, dtype=np.int64)
    for position in range(n):
        best = -1
        best_first = 0.0
        best_second = 0.0
        for v in range(n):
            if not alive[v]:
                continue
            count = 0
            cells = sizes[v]
            for u in range(n):
                if adjacency[v, u]:
                    neighbours[count] = u
                    count += 1
                    cells *= sizes[u]
            fill = float(_fill_in(adjacency, neighbours, count))
            first = fill if by_fill else cells
            second = cells if by_fill else fill
            if best < 0 or first < best_first or (first == best_first and second < best_second):
                best = v
                best_first = first
                best_second = second
        order[position] = best
        alive[best] = False
        for u in range(n):
            later[best, u] = adjacency[best, u]
        for u in range(n):
            if later[best, u]:
                adjacency[u, best] = False
                for w in range(n):
                    if later[best, w] and w != u:
                        adjacency[u, w] = True
    return _maximal_cells(order, later, sizes)


@inner()
def _maximal_cells(order, later, sizes):
    n = len(sizes)
    place = np.empty(n, dtype=np.int64)
    for position in range(n):
        place[order[position]] = position
    degree = np.zeros(n, dtype=np.int64)
    parent = np.full(n, -1, dtype=np.int64)
    for v in range(n):
        for u in range(n):
            if later[v, u]:
                degree[v] += 1
                if parent[v] < 0 or place[u] < place[parent[v]]:
                    parent[v] = u
    total = 0.0
    absorbed = np.zeros(n, dtype=np.bool_)
    for v in range(n):
        # The elimination clique of the parent lies inside this one exactly when the sizes say so.
        if parent[v] >= 0 and degree[v] == degree[parent[v]] + 1:
            absorbed[parent[v]] = True
    for v in range(n):
        if not absorbed[v]:
            cells = sizes[v]
            for u in range(n):
                if later[v, u]:
                    cells *= sizes[u]
            total += cells
    return min(total, CELLS_CAP)


@njit(cache=True)
def best_elimination(adjacency, sizes):
    """The better of the two rules: (order, later, cells)."""
    n = len(sizes)
    order = np.empty(n, dtype=np.int64)
    later = np.zeros((n, n), dtype=np.bool_)
    cells = eliminate(adjacency.copy(), sizes, True, order, later)
    other_order = np.empty(n, dtype=np.int64)
    other_later = np.zeros((n, n), dtype=np.bool_)
    other = eliminate(adjacency.copy(), sizes, False, other_order, other_later)
    if other < cells:
        return other_order, other_later, other
    return order, later, cells


@njit(cache=True)
def cells_with_each(adjacency, sizes, starts, members, out):
    """Cells of the tree when one candidate clique (of several) is added to the graph."""
    for k in range(len(starts) - 1):
        graph = adjacency.copy()
        for a in range(starts[k], starts[k + 1]):
            for b in range(starts[k], starts[k + 1]):
                if a != b:
                    graph[members[a], members[b]] = True
        out[k] = best_elimination(graph, sizes)[2]
