"""Triangulation of a clique set by greedy elimination."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import numpy as np

from dpstream.core.compiling import njit
from dpstream.core.graphical.compiled.inner import inner

#: Sizes above this are reported as this: no caller can hold such a table, and 2^53 is exact in a double.
CELLS_CAP = 2.0**53


#: A vertex's neighbours are bits of so many words; counting them is what most of the time goes to.
_WORD = 64


@inner()
def _bits(word):
    """Number of bits that are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@inner()
def _has(graph, v, u):
    return (graph[v, u // _WORD] >> np.uint64(u % _WORD)) & np.uint64(1) != np.uint64(0)


@inner()
def _connect(graph, v, u):
    graph[v, u // _WORD] |= np.uint64(1) << np.uint64(u % _WORD)


@inner()
def _packed(adjacency):
    n = len(adjacency)
    graph = np.zeros((n, (n + _WORD - 1) // _WORD), dtype=np.uint64)
    for v in range(n):
        for u in range(n):
            if adjacency[v, u]:
                _connect(graph, v, u)
    return graph


@inner()
def _judge(graph, sizes, v):
    """New edges that eliminating ``v`` would bring, and the cells of its clique."""
    cells = sizes[v]
    missing = 0
    for u in range(len(sizes)):
        if _has(graph, v, u):
            cells *= sizes[u]
            missing -= 1  # the neighbour itself, which is none of its own neighbours
            for w in range(graph.shape[1]):
                missing += _bits(graph[v, w] & ~graph[u, w])
    return float(missing // 2), cells


@inner()
def eliminate(graph, sizes, by_fill, order, later):
    """Eliminate all vertices; ``order`` and ``later`` (neighbours at elimination) are outputs.

    ``graph`` (packed) is destroyed. Returns the number of cells of the maximal elimination cliques.
    ``by_fill``: fewest new edges first (ties: fewest cells); otherwise fewest cells first (ties: fill).
    """
    n = len(sizes)
    alive = np.ones(n, dtype=np.bool_)
    stale = np.ones(n, dtype=np.bool_)
    fill = np.empty(n)
    cells = np.empty(n)
    for position in range(n):
        best = -1
        for v in range(n):
            if not alive[v]:
                continue
            if stale[v]:
                fill[v], cells[v] = _judge(graph, sizes, v)
                stale[v] = False
            if best < 0:
                best = v
                continue
            first, best_first = (fill[v], fill[best]) if by_fill else (cells[v], cells[best])
            second, best_second = (cells[v], cells[best]) if by_fill else (fill[v], fill[best])
            if first < best_first or (first == best_first and second < best_second):
                best = v
        order[position] = best
        alive[best] = False
        for u in range(n):
            later[best, u] = _has(graph, best, u)
        for u in range(n):
            common = 0
            for w in range(graph.shape[1]):
                common += _bits(graph[u, w] & graph[best, w])
            if later[best, u]:
                for w in range(graph.shape[1]):
                    graph[u, w] |= graph[best, w]
                graph[u, u // _WORD] &= ~(np.uint64(1) << np.uint64(u % _WORD))
                graph[u, best // _WORD] &= ~(np.uint64(1) << np.uint64(best % _WORD))
                stale[u] = True
            elif common > 1:
                stale[u] = True  # neighbours of it have become neighbours
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


@inner()
def _best(graph, sizes):
    n = len(sizes)
    order = np.empty(n, dtype=np.int64)
    later = np.zeros((n, n), dtype=np.bool_)
    cells = eliminate(graph.copy(), sizes, np.bool_(True), order, later)
    other_order = np.empty(n, dtype=np.int64)
    other_later = np.zeros((n, n), dtype=np.bool_)
    other = eliminate(graph.copy(), sizes, np.bool_(False), other_order, other_later)
    if other < cells:
        return other_order, other_later, other
    return order, later, cells


@njit(cache=True)
def best_elimination(adjacency, sizes):
    """The better of the two rules: (order, later, cells)."""
    return _best(_packed(adjacency), sizes)
