"""Calibration: potentials to the marginals of all tree cliques.

Upwards in the log domain (a sum of potentials never under- or overflows), downwards with normalised
conditionals (no further exponentials, and every table sums to one whatever was rounded).

Arguments: ``TreeArrays`` and ``FactorArrays`` of ``junction_tree``.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import math

import numpy as np

from dpstream.core.compiling import njit
from dpstream.core.graphical.compiled.inner import inner

_LOG2E = 1.4426950408889634
_LN2_HIGH = 0.693147180369123816490
_LN2_LOW = 1.90821492927058770002e-10
# Adding 1.5 * 2^52 leaves the nearest integer in the low bits of a double.
_ROUND = 6755399441055744.0
# exp(-230) is 1e-100: far below every probability that matters, far above denormal numbers, which
# processors multiply a hundred times more slowly.
_LOWEST = -230.0


@inner()
def index_map(axes, sizes, target, out):
    """For each cell of a table over ``axes``, the cell of a table over ``target`` (a subset, any order)."""
    n_axes = len(axes)
    stride = np.zeros(n_axes, dtype=np.int64)
    step = 1
    for k in range(len(target) - 1, -1, -1):
        for a in range(n_axes):
            if axes[a] == target[k]:
                stride[a] = step
        step *= sizes[target[k]]
    out[0] = 0
    filled = 1
    for a in range(n_axes - 1, -1, -1):
        block = filled
        for value in range(1, sizes[axes[a]]):
            shift = value * stride[a]
            for j in range(block):
                out[filled] = out[j] + shift
                filled += 1


@njit(cache=True)
def index_maps(axis_off, axes, sizes, source, target_off, targets, map_off, maps):
    """Many ``index_map`` at once: map ``k`` goes from tree clique ``source[k]`` to its target."""
    for k in range(len(source)):
        c = source[k]
        if c >= 0:
            index_map(
                axes[axis_off[c] : axis_off[c + 1]],
                sizes,
                targets[target_off[k] : target_off[k + 1]],
                maps[map_off[k] : map_off[k + 1]],
            )


@njit(cache=True, fastmath={"contract"})
def exp_nonpositive(x, scratch):
    """``x = exp(max(x, -230))`` in place, for x <= 0, relative error about 1e-16.

    Written so that the compiler vectorises it: a scalar ``exp`` would be most of the whole fit.
    """
    bits = scratch.view(np.int64)
    for j in range(len(x)):
        value = x[j]
        if value < _LOWEST:
            value = _LOWEST
        x[j] = value
        scratch[j] = value * _LOG2E + _ROUND
    for j in range(len(x)):
        power = scratch[j] - _ROUND
        r = (x[j] - power * _LN2_HIGH) - power * _LN2_LOW
        poly = 1.0 / 6227020800.0
        poly = poly * r + 1.0 / 479001600.0
        poly = poly * r + 1.0 / 39916800.0
        poly = poly * r + 1.0 / 3628800.0
        poly = poly * r + 1.0 / 362880.0
        poly = poly * r + 1.0 / 40320.0
        poly = poly * r + 1.0 / 5040.0
        poly = poly * r + 1.0 / 720.0
        poly = poly * r + 1.0 / 120.0
        poly = poly * r + 1.0 / 24.0
        poly = poly * r + 1.0 / 6.0
        poly = poly * r + 0.5
        poly = poly * r + 1.0
        x[j] = poly * r + 1.0
    out = x.view(np.int64)
    for j in range(len(x)):
        out[j] += bits[j] << 52


@inner()
def begin(tables, tree):
    """The logarithms before any potential is added."""
    tables[:] = 0.0
    for j in range(len(tree.floor)):
        tables[j] = tree.floor[j]


@inner()
def add_factor(tables, tree, factors, f, potentials):
    """Add one potential to its tree clique's table of logarithms."""
    c = factors.clique[f]
    start = tree.cell_off[c]
    first = factors.table_off[f]
    first_map = factors.map_off[f]
    for j in range(factors.map_off[f + 1] - first_map):
        tables[start + j] += potentials[first + factors.maps[first_map + j]]


@inner()
def project_factor(tables, tree, factors, f, out):
    """The marginal of one potential's clique out of its tree clique's table, into ``out``."""
    c = factors.clique[f]
    start = tree.cell_off[c]
    first = factors.table_off[f]
    first_map = factors.map_off[f]
    out[first : factors.table_off[f + 1]] = 0.0
    for j in range(factors.map_off[f + 1] - first_map):
        out[first + factors.maps[first_map + j]] += tables[start + j]


@inner(fastmath={"contract", "reassoc", "nsz", "nnan", "ninf"})
def _shift_rows(table, rows, columns, peak):
    for s in range(rows):
        a = s * columns
        top = table[a]
        for j in range(a + 1, a + columns):
            top = max(top, table[j])
        peak[s] = top
        for j in range(a, a + columns):
            table[j] -= top


@inner(fastmath={"contract", "reassoc"})
def _normalise_rows(table, rows, columns, peak):
    for s in range(rows):
        a = s * columns
        mass = 0.0
        for j in range(a, a + columns):
            mass += table[j]
        scale = 1.0 / mass
        for j in range(a, a + columns):
            table[j] *= scale
        peak[s] += math.log(mass)


@inner()
def upward(tables, messages, scratch, tree):
    """Logarithms of unnormalised tables -> conditionals P(residual | separator); returns log Z."""
    log_z = 0.0
    for c in range(len(tree.parent) - 1, -1, -1):
        start = tree.cell_off[c]
        table = tables[start : tree.cell_off[c + 1]]
        message = messages[tree.sep_off[c] : tree.sep_off[c + 1]]
        _shift_rows(table, tree.sep[c], tree.res[c], message)
        exp_nonpositive(table, scratch)
        _normalise_rows(table, tree.sep[c], tree.res[c], message)
        parent = tree.parent[c]
        if parent < 0:
            log_z += message[0]
        else:
            above = tables[tree.cell_off[parent] : tree.cell_off[parent + 1]]
            first_map = tree.map_off[c]
            for j in range(len(above)):
                above[j] += message[tree.maps[first_map + j]]
    return log_z


@inner()
def downward(tables, separators, tree):
    """Conditionals -> probabilities of the cliques' tables and of the separators."""
    for c in range(len(tree.parent)):
        separator = separators[tree.sep_off[c] : tree.sep_off[c + 1]]
        parent = tree.parent[c]
        if parent < 0:
            separator[0] = 1.0
            continue
        separator[:] = 0.0
        above = tables[tree.cell_off[parent] : tree.cell_off[parent + 1]]
        first_map = tree.map_off[c]
        for j in range(len(above)):
            separator[tree.maps[first_map + j]] += above[j]
        table = tables[tree.cell_off[c] : tree.cell_off[c + 1]]
        columns = tree.res[c]
        for s in range(tree.sep[c]):
            weight = separator[s]
            for j in range(s * columns, (s + 1) * columns):
                table[j] *= weight


@njit(cache=True)
def calibrate(tree, factors, potentials, tables, separators):
    """All of it, from potentials: fills ``tables`` and ``separators``; returns log Z."""
    begin(tables, tree)
    for f in range(len(factors.clique)):
        add_factor(tables, tree, factors, f, potentials)
    scratch = np.empty(len(tables))
    messages = np.empty(len(separators))
    log_z = upward(tables, messages, scratch, tree)
    # No record is there: not one in 10^100, as the exponential would have it.
    for j in range(len(tree.floor)):
        if tree.floor[j] < 0.0:
            tables[j] = 0.0
    downward(tables, separators, tree)
    return log_z
