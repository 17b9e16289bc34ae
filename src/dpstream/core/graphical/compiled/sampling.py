"""Records from calibrated trees, with as little sampling error as rounding allows; at once, or block by block.

The numbers of records in all cells are dealt once, for the whole table: by systematic rounding, each is within one of
its expectation, given its separator. Records that have these cells are then matched at random. Every block gets its
share of the cells, within one of what is proportional, until none are left. So the counts of the cliques have one
law, whatever the size of a block; only a block's own records are in memory. A block is made from its counts and a seed
of its own, in any thread.

Public post-processing of a released model: an ordinary generator (splitmix64) is enough here.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dpstream.core.compiling import njit
from dpstream.core.graphical.compiled.inference import index_map
from dpstream.core.graphical.compiled.inner import inner
from dpstream.core.graphical.junction_tree import TreeArrays

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@inner()
def _next(state):
    state[0] += _GAMMA
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@inner()
def _uniform(state):
    return float(_next(state) >> np.uint64(11)) * 2.0**-53


@inner()
def _below(state, n):
    # 32 random bits times n < 2^31: the bias of at most n / 2^32 is far below sampling error.
    return np.int64(((_next(state) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


def draw(tree: TreeArrays, tables: NDArray[np.float64], rows: int, seed: np.uint64) -> NDArray[np.int32]:
    """All records of one calibrated tree, shape (rows, attributes), column-major."""
    state, cells = np.array([seed]), np.empty(len(tables), dtype=np.int64)
    _deal_cells(tree, tables, rows, state, cells)
    out = np.empty((len(tree.sizes), rows), dtype=np.int32)
    _make_records(tree, cells, state, out)
    return out.T


def deal_blocks(
    shapes: Sequence[tuple[TreeArrays, NDArray[np.float64]]], shares: NDArray[np.int64], seed: int, size: int
) -> DealtBlocks:
    """The records of each cell: of calibrated trees and their tables. See ``draw_blocks``."""
    state, decks = _state(seed), []
    for (tree, tables), share in zip(shapes, shares, strict=True):
        cells = np.empty(len(tables), dtype=np.int64)
        _deal_cells(tree, tables, int(share), state, cells)
        decks.append((tree, cells))
    return DealtBlocks(tuple(decks), shares, state, seed, size)


@dataclass(frozen=True, eq=False)
class DealtBlocks:
    """Makers of blocks, from the number of records in each cell of each clique. What is left to compute are whole
    numbers and random words, which are equal on every machine; so this may be sent to another one (models may not:
    the last digits of their probabilities differ).

    Attributes:
        decks: the tree of each model, and the records in its cells.
        shares: records of each model.
        state: of the generator, after the cells were dealt.
    """

    decks: tuple[tuple[TreeArrays, NDArray[np.int64]], ...]
    shares: NDArray[np.int64]
    state: NDArray[np.uint64]
    seed: int
    size: int

    def __iter__(self) -> Iterator[Callable[[], NDArray[np.int32]]]:
        left, state = self.shares.copy(), self.state.copy()
        decks = [(tree, cells.copy()) for tree, cells in self.decks]
        for number in range(-(-int(left.sum()) // self.size)):
            rows = np.empty_like(left)
            _share(left, 0, len(left), min(self.size, int(left.sum())), state, rows)
            parts = []
            for (tree, cells), some in zip(decks, rows, strict=True):
                own = np.empty_like(cells)
                _take_cells(tree, int(some), state, cells, own)
                parts.append((tree, own, int(some)))
            yield partial(_block, parts, self.seed, number)


def _block(parts, seed, number):
    state = _state(seed, number)
    made = []
    for tree, cells, rows in parts:
        out = np.empty((len(tree.sizes), rows), dtype=np.int32)
        _make_records(tree, cells, state, out)
        made.append(out)
    if len(made) == 1:
        return made[0].T  # its records are in random order already
    order = np.arange(sum(out.shape[1] for out in made))
    _shuffle(order, 0, len(order), state)
    return np.take(np.concatenate(made, axis=1), order, axis=1).T


def _state(seed, *block):
    # A spawn key: (seed, 0) would seed as the seed alone, and block 0 repeat the words that dealt the cells.
    return np.random.SeedSequence(seed, spawn_key=block).generate_state(1, np.uint64)


@njit(cache=True, nogil=True)
def _shuffle(hand, first, end, state):
    for k in range(end - first - 1, 0, -1):
        other = _below(state, k + 1)
        hand[first + k], hand[first + other] = hand[first + other], hand[first + k]


@inner()
def _of_separators(tree, c, rows, cells, of_sep):
    """Records by cell of the separator to the parent; a root's single cell has all of them."""
    of_sep[: tree.sep[c]] = 0
    parent = tree.parent[c]
    if parent < 0:
        of_sep[0] = rows
        return
    above = cells[tree.cell_off[parent] : tree.cell_off[parent + 1]]
    to_sep = tree.maps[tree.map_off[c] : tree.map_off[c + 1]]
    for j in range(len(above)):
        of_sep[to_sep[j]] += above[j]


@njit(cache=True)
def _deal_cells(tree, tables, rows, state, cells):
    """How many of ``rows`` records have which cell of each clique: systematic rounding."""
    of_sep = np.empty(tree.sep.max(), dtype=np.int64)
    for c in range(len(tree.parent)):
        _of_separators(tree, c, rows, cells, of_sep)
        columns = tree.res[c]
        for s in range(tree.sep[c]):
            first = tree.cell_off[c] + s * columns
            cells[first : first + columns] = 0
            if of_sep[s] == 0:
                continue
            mass = 0.0
            for v in range(columns):
                mass += tables[first + v]
            scale = of_sep[s] / mass
            shift = _uniform(state)
            passed = 0.0
            given = 0
            last = 0
            for v in range(columns):
                if tables[first + v] > 0.0:
                    last = v
                    passed += tables[first + v] * scale
                    until = max(given, min(np.int64(np.floor(passed + shift)), of_sep[s]))
                    cells[first + v] = until - given
                    given = until
            cells[first + last] += of_sep[s] - given


@njit(cache=True)
def _share(left, first, end, count, state, own):
    """Move ``count`` of the records ``left[first:end]`` to ``own``, of each its part, within one. In whole numbers."""
    whole = 0
    for v in range(first, end):
        whole += left[v]
    shift = np.int64(_uniform(state) * whole)
    passed = 0
    given = 0
    for v in range(first, end):
        passed += left[v]
        until = (passed * count + shift) // whole
        own[v] = until - given
        left[v] -= until - given
        given = until


@njit(cache=True)
def _take_cells(tree, rows, state, left, own):
    """Move the cells of a block of ``rows`` records from ``left`` to ``own``."""
    of_sep = np.empty(tree.sep.max(), dtype=np.int64)
    for c in range(len(tree.parent)):
        _of_separators(tree, c, rows, own, of_sep)
        columns = tree.res[c]
        for s in range(tree.sep[c]):
            first = tree.cell_off[c] + s * columns
            if of_sep[s] == 0:
                own[first : first + columns] = 0
            else:
                _share(left, first, first + columns, of_sep[s], state, own)


@njit(cache=True, nogil=True)
def _make_records(tree, cells, state, out):
    """Fill ``out[attribute, record]`` with records that have these cells, matched at random."""
    n = out.shape[1]
    hand = np.empty(n, dtype=np.int32)
    group = np.empty(n, dtype=np.int32)  # the cell of the separator, then that of the residual
    place = np.empty(tree.sep.max(), dtype=np.int64)
    for c in range(len(tree.parent)):
        axes = tree.axes[tree.axis_off[c] : tree.axis_off[c + 1]]
        n_sep = tree.sep_axes[c]
        columns = tree.res[c]
        given = 0
        for s in range(tree.sep[c]):
            place[s] = given
            first = tree.cell_off[c] + s * columns
            for v in range(columns):
                for _ in range(cells[first + v]):
                    hand[given] = v
                    given += 1
            _shuffle(hand, place[s], given, state)
        digit = np.empty((len(axes) - n_sep, columns), dtype=np.int32)
        for k in range(n_sep, len(axes)):
            index_map(axes[n_sep:], tree.sizes, axes[k : k + 1], digit[k - n_sep])
        group[:] = 0
        for k in range(n_sep):
            column = out[axes[k]]
            size = np.int32(tree.sizes[axes[k]])
            for r in range(n):
                group[r] = group[r] * size + column[r]
        for r in range(n):
            at = place[group[r]]
            place[group[r]] += 1
            group[r] = hand[at]
        for k in range(n_sep, len(axes)):
            column = out[axes[k]]
            codes = digit[k - n_sep]
            for r in range(n):
                column[r] = codes[group[r]]
