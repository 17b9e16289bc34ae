"""The size of one connected part of a junction tree: what one more clique makes of the parts that it touches.

Greedy elimination looks at one connected part at a time: which vertex goes next in a part depends on that part alone.
So the cells of a whole tree are the sum over the parts of its graph, and one more clique changes only the parts that it
touches. The rules, the ties and the results are those of ``elimination``.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import numpy as np

from dpstream.core.compiling import njit
from dpstream.core.graphical.compiled.elimination import CELLS_CAP, _bits, _connect, _has, _judge
from dpstream.core.graphical.compiled.inner import copy, inner

_WORD = 64
_ONE = np.uint64(1)


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
def _eliminate(graph, sizes, by_fill, fill, cells):
    """Cells of the maximal elimination cliques of one part, and the number of edges that were added.

    ``graph`` (packed), ``fill`` and ``cells`` (of every vertex, as ``_judge`` has them) are destroyed.
    """
    n, words = graph.shape
    alive = np.ones(n, dtype=np.bool_)
    later = np.empty((n, words), dtype=np.uint64)
    place = np.empty(n, dtype=np.int64)
    own_cells = np.empty(n)
    order = np.empty(n, dtype=np.int64)
    # With ``by_fill`` those that bring no edge go first. In which order they go changes nothing: no edge is added.
    ready = np.empty(n, dtype=np.int64)
    waiting = 0
    listed = np.zeros(n, dtype=np.bool_)
    if by_fill:
        for v in range(n):
            if fill[v] == 0.0:
                listed[v] = True
                ready[waiting] = v
                waiting += 1
    added = 0
    for position in range(n):
        if waiting > 0:
            waiting -= 1
            best = ready[waiting]
        elif by_fill:
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
        if by_fill:
            for u in range(n):
                if alive[u] and not listed[u] and fill[u] == 0.0:
                    listed[u] = True
                    ready[waiting] = u
                    waiting += 1
    return _maximal(later, order, place, own_cells), added


@inner()
def _maximal(later, order, place, own_cells):
    """The sum over the elimination cliques that lie in no other one (as in ``elimination``)."""
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
        if parent[position] >= 0 and degree[position] == degree[parent[position]] + 1:
            absorbed[parent[position]] = True
    total = 0.0
    for position in range(n):
        if not absorbed[position]:
            total += own_cells[position]
    return min(total, CELLS_CAP)


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
        total, added = _eliminate(own, own_sizes, by_fill, fill, cells)
        out[k] = total - before
        kept[k] = added == 0
