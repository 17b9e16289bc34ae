"""Records from a calibrated tree, with as little sampling error as rounding allows.

Public post-processing of a released model: an ordinary generator (splitmix64) is enough here.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import numpy as np

from dpstream.core.compiling import njit
from dpstream.core.graphical.compiled.inference import index_map
from dpstream.core.graphical.compiled.inner import inner

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


@inner()
def _deal(weights, mass, count, hand, state):
    """``count`` cells drawn so that each is drawn within one of its expectation, in random order.

    Systematic sampling: one uniform shift for the whole row of cumulative weights. The shuffle makes
    each single draw follow the weights exactly, whatever its record's other values.
    """
    shift = _uniform(state)
    scale = count / mass
    passed = 0.0
    given = 0
    last = 0
    for v in range(len(weights)):
        if weights[v] > 0.0:
            last = v
            passed += weights[v] * scale
            until = min(np.int64(np.floor(passed + shift)), count)
            for k in range(given, until):
                hand[k] = v
            given = max(given, until)
    for k in range(given, count):
        hand[k] = last
    for k in range(count - 1, 0, -1):
        other = _below(state, k + 1)
        hand[k], hand[other] = hand[other], hand[k]


@njit(cache=True)
def sample(tree, tables, seed, out):
    """Fill ``out[attribute, record]``."""
    n = out.shape[1]
    state = np.empty(1, dtype=np.uint64)
    state[0] = seed
    hand = np.empty(n, dtype=np.int32)
    group = np.zeros(n, dtype=np.int32)
    by_group = np.empty(n, dtype=np.int32)
    for c in range(len(tree.parent)):
        axes = tree.axes[tree.axis_off[c] : tree.axis_off[c + 1]]
        n_sep = tree.sep_axes[c]
        group[:] = 0
        for k in range(n_sep):
            column = out[axes[k]]
            size = tree.sizes[axes[k]]
            for r in range(n):
                group[r] = group[r] * size + column[r]
        first = np.zeros(tree.sep[c] + 1, dtype=np.int64)
        for r in range(n):
            first[group[r] + 1] += 1
        for s in range(tree.sep[c]):
            first[s + 1] += first[s]
        place = first[:-1].copy()
        for r in range(n):
            by_group[place[group[r]]] = r
            place[group[r]] += 1
        columns = tree.res[c]
        table = tables[tree.cell_off[c] : tree.cell_off[c + 1]]
        digit = np.empty((len(axes) - n_sep, columns), dtype=np.int32)
        for k in range(n_sep, len(axes)):
            index_map(axes[n_sep:], tree.sizes, axes[k : k + 1], digit[k - n_sep])
        for s in range(tree.sep[c]):
            count = first[s + 1] - first[s]
            if count == 0:
                continue
            weights = table[s * columns : (s + 1) * columns]
            mass = 0.0
            for w in weights:
                mass += w
            _deal(weights, mass, count, hand, state)
            for k in range(n_sep, len(axes)):
                column = out[axes[k]]
                codes = digit[k - n_sep]
                for j in range(count):
                    column[by_group[first[s] + j]] = codes[hand[j]]
