"""Exact marginals of pairs of attributes that share no tree clique, for all pairs at once.

Attributes' values are numbered in the tree's preorder ("rows"), so that a subtree is a range of rows.
``up[c]`` holds P(separator of c, x) for all rows of c's subtree, ``down[c]`` the same for all rows before
c. A pair (earlier x, r in the residual of c) then is ``sum_s down[c][s, x] P(r | s)``.

Arguments: ``TreeArrays`` and ``FactorArrays`` of ``junction_tree``.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import numpy as np

from dpstream.core.compiling import njit
from dpstream.core.graphical.compiled.inference import index_map
from dpstream.core.graphical.compiled.inner import copy, inner


@inner()
def project(tree, tables, c, target, out):
    """The marginal of ``target`` (attributes of tree clique ``c``, any order), added into ``out``."""
    table = tables[tree.cell_off[c] : tree.cell_off[c + 1]]
    place = np.empty(len(table), dtype=np.int32)
    index_map(tree.axes[tree.axis_off[c] : tree.axis_off[c + 1]], tree.sizes, target, place)
    for j in range(len(table)):
        out[place[j]] += table[j]


@njit(cache=True)
def project_many(tree, tables, homes, target_off, targets, out_off, out):
    """``project`` for many targets."""
    for k in range(len(homes)):
        project(
            tree,
            tables,
            homes[k],
            targets[target_off[k] : target_off[k + 1]],
            out[out_off[k] : out_off[k + 1]],
        )


@inner()
def _own_rows(tree, tables, c, row_of, separator, out, first_row):
    """P(separator, x) for the residual attributes x of clique ``c``; ``separator`` lies in ``c``."""
    table = tables[tree.cell_off[c] : tree.cell_off[c + 1]]
    axes = tree.axes[tree.axis_off[c] : tree.axis_off[c + 1]]
    place = np.empty(len(table), dtype=np.int32)
    value = np.empty(len(table), dtype=np.int32)
    index_map(axes, tree.sizes, separator, place)
    for k in range(tree.sep_axes[c], len(axes)):
        row = row_of[axes[k]]
        if row < 0:
            continue
        index_map(axes, tree.sizes, axes[k : k + 1], value)
        for j in range(len(table)):
            out[place[j], row - first_row + value[j]] += table[j]


@inner()
def _carry(tree, tables, c, source, source_mass, block, target, out, column):
    """P(source, x) -> P(target, x), both separators in clique ``c``: added to ``out`` from ``column`` on.

    Valid for all x that the source separates from the clique. Cost: cells of the separators' union
    times the number of rows, in contiguous loops over rows.
    """
    union = np.empty(len(source) + len(target), dtype=np.int64)
    copy(source, union)
    n = len(source)
    for attribute in target:
        known = False
        for other in source:
            known = known or other == attribute
        if not known:
            union[n] = attribute
            n += 1
    union = union[:n]
    cells = 1
    for attribute in union:
        cells *= tree.sizes[attribute]
    mass = np.zeros(cells)
    project(tree, tables, c, union, mass)
    to_source = np.empty(cells, dtype=np.int32)
    to_target = np.empty(cells, dtype=np.int32)
    index_map(union, tree.sizes, source, to_source)
    index_map(union, tree.sizes, target, to_target)
    width = block.shape[1]
    for j in range(cells):
        below = source_mass[to_source[j]]
        if mass[j] <= 0.0 or below <= 0.0:
            continue
        factor = mass[j] / below
        a = to_source[j]
        b = to_target[j]
        for x in range(width):
            out[b, column + x] += factor * block[a, x]


@inner()
def _separator(tree, c):
    first = tree.axis_off[c]
    return tree.axes[first : first + tree.sep_axes[c]]


@inner()
def _up_blocks(tree, tables, separators, row_of, start):
    """Flat storage and offsets of ``up[c]``, only where a later sibling somewhere above needs it."""
    m = len(tree.parent)
    needed = np.zeros(m, dtype=np.bool_)
    for c in range(m):
        q = tree.parent[c]
        needed[c] = q >= 0 and (needed[q] or tree.last[c] < tree.last[q])
    off = np.zeros(m + 1, dtype=np.int64)
    for c in range(m):
        width = start[tree.last[c]] - start[c] if needed[c] else 0
        off[c + 1] = off[c] + tree.sep[c] * width
    up = np.zeros(off[m])
    for c in range(m - 1, -1, -1):
        if off[c + 1] == off[c]:
            continue
        out = up[off[c] : off[c + 1]].reshape(tree.sep[c], start[tree.last[c]] - start[c])
        _own_rows(tree, tables, c, row_of, _separator(tree, c), out, start[c])
        a = c + 1
        while a < tree.last[c]:
            width = start[tree.last[a]] - start[a]
            if width > 0:
                block = up[off[a] : off[a + 1]].reshape(tree.sep[a], width)
                first = start[a] - start[c]
                mass = separators[tree.sep_off[a] : tree.sep_off[a + 1]]
                _carry(
                    tree, tables, c, _separator(tree, a), mass, block, _separator(tree, c),
                    out, first,
                )  # fmt: skip
            a = tree.last[a]
    return up, off


@inner()
def _down_block(tree, tables, separators, row_of, start, c, above, up, up_off, out):
    """Fill ``down[c]`` (``above`` is ``down`` of its parent)."""
    q = tree.parent[c]
    target = _separator(tree, c)
    mass = separators[tree.sep_off[q] : tree.sep_off[q + 1]]
    before = start[q]
    if before > 0:
        _carry(tree, tables, q, _separator(tree, q), mass, above, target, out, np.int64(0))
    _own_rows(tree, tables, q, row_of, target, out, np.int64(0))
    b = q + 1
    while b < c:
        width = start[tree.last[b]] - start[b]
        if width > 0:
            block = up[up_off[b] : up_off[b + 1]].reshape(tree.sep[b], width)
            mass = separators[tree.sep_off[b] : tree.sep_off[b + 1]]
            _carry(
                tree, tables, q, _separator(tree, b), mass, block, target,
                out, start[b],
            )  # fmt: skip
        b = tree.last[b]


@njit(cache=True)
def pair_table(tree, tables, separators, row_of, start, out):
    """Fill the lower triangle of ``out[row, row]``: joint probabilities of values of two attributes.

    ``row_of[i]``: first row of attribute i, or -1 if it is not wanted. ``start[c]``: rows of attributes
    before the residual of tree clique c; ``start[m]`` all rows.
    """
    m = len(tree.parent)
    up, up_off = _up_blocks(tree, tables, separators, row_of, start)
    off = np.zeros(m + 1, dtype=np.int64)
    for c in range(m):
        off[c + 1] = off[c] + tree.sep[c] * start[c]
    down = np.zeros(off[m])
    out[:, :] = 0.0
    for c in range(m):
        axes = tree.axes[tree.axis_off[c] : tree.axis_off[c + 1]]
        block = down[off[c] : off[c + 1]].reshape(tree.sep[c], start[c])
        q = tree.parent[c]
        if start[c] > 0 and start[tree.last[c]] > start[c]:
            if q >= 0:
                above = down[off[q] : off[q + 1]].reshape(tree.sep[q], start[q])
                _down_block(tree, tables, separators, row_of, start, c, above, up, up_off, block)
            else:
                for x in range(start[c]):
                    block[0, x] = out[x, x]
        mass = separators[tree.sep_off[c] : tree.sep_off[c + 1]]
        columns = tree.res[c]
        table = tables[tree.cell_off[c] : tree.cell_off[c + 1]]
        value = np.empty(len(table), dtype=np.int32)
        other = np.empty(len(table), dtype=np.int32)
        for k in range(tree.sep_axes[c], len(axes)):
            row = row_of[axes[k]]
            if row < 0:
                continue
            size = tree.sizes[axes[k]]
            index_map(axes, tree.sizes, axes[k : k + 1], value)
            joint = np.zeros((tree.sep[c], size))
            for s in range(tree.sep[c]):
                for j in range(s * columns, (s + 1) * columns):
                    joint[s, value[j]] += table[j]
            for s in range(tree.sep[c]):
                for v in range(size):
                    out[row + v, row + v] += joint[s, v]
                    if joint[s, v] <= 0.0 or mass[s] <= 0.0:
                        continue
                    share = joint[s, v] / mass[s]
                    for x in range(start[c]):
                        out[row + v, x] += share * block[s, x]
            for k2 in range(tree.sep_axes[c], k):
                row2 = row_of[axes[k2]]
                if row2 < 0:
                    continue
                index_map(axes, tree.sizes, axes[k2 : k2 + 1], other)
                for j in range(len(table)):
                    out[row + value[j], row2 + other[j]] += table[j]


@njit(cache=True)
def read_pairs(pair_rows, rows, scale, out_off, out):
    """Copy blocks of the pair table: pair k is (first row, size, first row, size) in ``rows[k]``.

    A single attribute has its second size 0: its own probabilities are the diagonal.
    """
    for k in range(len(rows)):
        a, size_a, b, size_b = rows[k]
        j = out_off[k]
        if size_b == 0:
            for v in range(size_a):
                out[j + v] = scale * pair_rows[a + v, a + v]
        elif a > b:
            for v in range(size_a):
                for w in range(size_b):
                    out[j + v * size_b + w] = scale * pair_rows[a + v, b + w]
        else:
            for v in range(size_a):
                for w in range(size_b):
                    out[j + v * size_b + w] = scale * pair_rows[b + w, a + v]
