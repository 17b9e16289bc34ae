"""Triangulation of a clique set by greedy elimination.

Greedy elimination looks at one connected part at a time: which vertex goes next in a part depends on that part alone.
So the cells of a whole tree are the sum over the parts of its graph, and one more clique changes only the parts that it
touches (``grown_parts``).
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import numpy as np

from dpstream.core.compiling import njit
from dpstream.core.graphical.compiled.inner import copy, inner

#: Sizes above this are reported as this: no caller can hold such a table, and 2^53 is exact in a double.
CELLS_CAP = 2.0**53


#: A vertex's neighbours are bits of so many words; counting them is what most of the time goes to.
_WORD = 64
_ONE = np.uint64(1)


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
def _lowest(word):
    """The place of the lowest bit that is set."""
    return _bits((word & (~word + _ONE)) - _ONE)


@inner()
def _clear(graph, v, u):
    graph[v, u // _WORD] &= ~(_ONE << np.uint64(u % _WORD))


@inner()
def _next_vertex(alive, first, second):
    """The vertex with the least ``first``, then the least ``second``, then the least number."""
    best = -1
    for v in range(len(alive)):
        if alive[v] and (
            best < 0 or first[v] < first[best] or (first[v] == first[best] and second[v] < second[best])
        ):
            best = v
    return best


@inner()
def _eliminate(graph, sizes, by_fill, fill, cells, order, later):
    """Cells of the maximal elimination cliques of a graph, and the number of edges that were added.

    ``by_fill``: fewest new edges first (ties: fewest cells); otherwise fewest cells first (ties: fill).
    ``order`` and ``later`` (packed neighbours at elimination, by position) are outputs. ``graph`` (packed), ``fill``
    and ``cells`` (of every vertex, as ``_judge`` has them) are destroyed.
    """
    n, words = graph.shape
    alive = np.ones(n, dtype=np.bool_)
    place = np.empty(n, dtype=np.int64)
    own_cells = np.empty(n)
    added = 0
    for position in range(n):
        if by_fill:
            best = _next_vertex(alive, fill, cells)
        else:
            best = _next_vertex(alive, cells, fill)
        order[position] = best
        place[best] = position
        alive[best] = False
        own_cells[position] = cells[best]
        for w in range(words):
            later[position, w] = graph[best, w]
        new_edges = fill[best] > 0.0
        added += int(fill[best])
        for w in range(words):
            word = later[position, w]
            while word != 0:
                u = w * _WORD + _lowest(word)
                word &= word - _ONE
                if new_edges:
                    for x in range(words):
                        graph[u, x] |= later[position, x]
                    _clear(graph, u, u)
                    _clear(graph, u, best)
                    continue
                apart = -1  # ``best`` is none of its own neighbours
                for x in range(words):
                    apart += _bits(graph[u, x] & ~later[position, x])
                fill[u] -= apart
                _clear(graph, u, best)
                if cells[u] < CELLS_CAP:
                    cells[u] /= sizes[best]
                else:
                    _, cells[u] = _judge(graph, sizes, u)
        if new_edges:
            for u in range(n):
                if alive[u]:
                    common = 0
                    for x in range(words):
                        common += _bits(graph[u, x] & later[position, x])
                    if common > 1 or _has(later, position, u):
                        fill[u], cells[u] = _judge(graph, sizes, u)
    return _maximal(later, place, own_cells), added


@inner()
def _maximal(later, place, own_cells):
    """The sum over the elimination cliques that lie in no other one."""
    n, words = later.shape
    degree = np.zeros(n, dtype=np.int64)
    parent = np.full(n, -1, dtype=np.int64)
    for position in range(n):
        for w in range(words):
            word = later[position, w]
            while word != 0:
                u = w * _WORD + _lowest(word)
                word &= word - _ONE
                degree[position] += 1
                if parent[position] < 0 or place[u] < parent[position]:
                    parent[position] = place[u]
    absorbed = np.zeros(n, dtype=np.bool_)
    for position in range(n):
        # The elimination clique of the parent lies inside this one exactly when the sizes say so.
        if parent[position] >= 0 and degree[position] == degree[parent[position]] + 1:
            absorbed[parent[position]] = True
    total = 0.0
    for position in range(n):
        if not absorbed[position]:
            total += own_cells[position]
    return min(total, CELLS_CAP)


@inner()
def _whole(graph, sizes, by_fill):
    """The elimination of a whole graph by one rule: order, packed neighbours by position, cells."""
    n = len(sizes)
    own, fill, cells = graph.copy(), np.empty(n), np.empty(n)
    for v in range(n):
        fill[v], cells[v] = _judge(own, sizes, v)
    order, later = np.empty(n, dtype=np.int64), np.empty_like(own)
    total, _ = _eliminate(own, sizes, by_fill, fill, cells, order, later)
    return order, later, total


@njit(cache=True)
def best_elimination(adjacency, sizes):
    """The better of the two rules: order, neighbours at elimination (of each vertex a row), cells."""
    graph = _packed(adjacency)
    order, later, cells = _whole(graph, sizes, np.bool_(True))
    other_order, other_later, other = _whole(graph, sizes, np.bool_(False))
    if other < cells:
        order, later, cells = other_order, other_later, other
    rows = np.zeros(adjacency.shape, dtype=np.bool_)
    for position in range(len(order)):
        for u in range(len(order)):
            rows[order[position], u] = _has(later, position, u)
    return order, rows, cells


@inner()
def _cut_out(graph, sizes, part_of, wanted):
    """The subgraph of some parts: packed, sizes, and each vertex's number in it (-1: not there)."""
    n = len(sizes)
    number = np.full(n, -1, dtype=np.int64)
    count = 0
    for v in range(n):
        if wanted[part_of[v]]:
            number[v] = count
            count += 1
    own = np.zeros((count, (count + _WORD - 1) // _WORD), dtype=np.uint64)
    own_sizes = np.empty(count)
    for v in range(n):
        if number[v] < 0:
            continue
        own_sizes[number[v]] = sizes[v]
        for w in range(graph.shape[1]):
            word = graph[v, w]
            while word != 0:
                u = w * _WORD + _lowest(word)
                word &= word - _ONE
                _connect(own, number[v], number[u])
    return own, own_sizes, number


@njit(cache=True)
def grown_parts(graph, sizes, part_of, totals, starts, members, by_fill, out, kept):
    """How many cells more a tree has with each of several cliques (one at a time), by one rule.

    ``graph``: packed adjacency; ``part_of``: the number of each vertex's connected part; ``totals``: its cells by this
    rule. ``out``: cells more (fewer, if negative). ``kept``: whether the rule then adds no edge. Cliques that touch the
    same parts should follow one another: these parts are then cut out of the graph once.
    """
    n = len(sizes)
    wanted = np.zeros(n, dtype=np.bool_)
    touched = np.zeros(n, dtype=np.bool_)
    base, own_sizes, number = _cut_out(graph, sizes, part_of, wanted)
    base_fill, base_cells = np.empty(0), np.empty(0)
    before = 0.0
    for k in range(len(starts) - 1):
        same = True
        touched[:] = False
        for a in range(starts[k], starts[k + 1]):
            touched[part_of[members[a]]] = True
        for part in range(n):
            same = same and touched[part] == wanted[part]
        if not same:
            copy(touched, wanted)
            base, own_sizes, number = _cut_out(graph, sizes, part_of, wanted)
            base_fill, base_cells = np.empty(len(own_sizes)), np.empty(len(own_sizes))
            for v in range(len(own_sizes)):
                base_fill[v], base_cells[v] = _judge(base, own_sizes, v)
            before = 0.0
            for part in range(n):
                if wanted[part]:
                    before += totals[part]
        own, fill, cells = base.copy(), base_fill.copy(), base_cells.copy()
        clique = np.zeros(base.shape[1], dtype=np.uint64)
        for a in range(starts[k], starts[k + 1]):
            v = number[members[a]]
            clique[v // _WORD] |= _ONE << np.uint64(v % _WORD)
            for b in range(starts[k], starts[k + 1]):
                if a != b:
                    _connect(own, v, number[members[b]])
        for v in range(len(own_sizes)):
            common = 0
            for w in range(len(clique)):
                common += _bits(own[v, w] & clique[w])
            if common > 1 or (clique[v // _WORD] >> np.uint64(v % _WORD)) & _ONE != np.uint64(0):
                fill[v], cells[v] = _judge(own, own_sizes, v)
        order, later = np.empty(len(own), dtype=np.int64), np.empty_like(own)
        total, added = _eliminate(own, own_sizes, by_fill, fill, cells, order, later)
        out[k] = total - before
        kept[k] = added == 0
