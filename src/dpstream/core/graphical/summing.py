"""Marginals of attributes that are spread over several tree cliques: elimination along the tree."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical.junction_tree import JunctionTree
from dpstream.core.schema.domain import Clique

SpreadTable = tuple[NDArray[np.float64], tuple[int, ...]]


def spread_marginal(
    tree: JunctionTree, tables: NDArray[np.float64], separators: NDArray[np.float64], clique: Clique
) -> NDArray[np.float64]:
    """Probabilities of a clique's cells (C order), exact, for any clique.

    Every wanted attribute sits in the residual of one tree clique. From these upwards each tree clique
    multiplies its conditional P(residual | separator) with what its children send, and sums out what
    nobody above wants; cliques without wanted attributes below them send 1 and are skipped.
    """
    wanted = set(clique)
    pending: dict[int, list[SpreadTable]] = {}
    results: list[SpreadTable] = []
    parents = tree.arrays.parent
    for c in range(len(tree.nodes) - 1, -1, -1):
        own = wanted.intersection(tree.nodes[c][len(tree.separators[c]) :])
        received = pending.pop(c, [])
        if not own and not received:
            continue
        current = _conditional(tree, tables, separators, c)
        keep = wanted.union(tree.separators[c])
        for k, other in enumerate(received):
            later = keep.union(*(axes for _, axes in received[k + 1 :]))
            current = _multiply(tree, current, other, later)
        current = _multiply(tree, current, None, keep)
        if parents[c] >= 0:
            pending.setdefault(int(parents[c]), []).append(current)
        else:
            results.append(current)
    joint: SpreadTable = (np.ones(()), ())
    for part in results:
        joint = _multiply(tree, joint, part, wanted)
    table, axes = joint
    return np.ascontiguousarray(table.transpose([axes.index(i) for i in clique])).reshape(-1)


def _conditional(
    tree: JunctionTree, tables: NDArray[np.float64], separators: NDArray[np.float64], c: int
) -> SpreadTable:
    arrays = tree.arrays
    table = tables[arrays.cell_off[c] : arrays.cell_off[c + 1]].reshape(arrays.sep[c], arrays.res[c])
    mass = separators[arrays.sep_off[c] : arrays.sep_off[c + 1], None]
    conditional = np.divide(table, mass, out=np.zeros_like(table), where=mass > 0.0)
    axes = tree.nodes[c]
    return conditional.reshape(tree.domain.shape(axes)), axes


def _multiply(tree: JunctionTree, a: SpreadTable, b: SpreadTable | None, keep: set[int]) -> SpreadTable:
    """Product of two tables, summed over the axes that are not in ``keep``."""
    operands = [a] if b is None else [a, b]
    axes = tuple(dict.fromkeys(i for _, part in operands for i in part))
    label = {i: k for k, i in enumerate(axes)}
    out = tuple(i for i in axes if i in keep)
    arguments: list[Any] = []
    for table, part in operands:
        arguments += [table, [label[i] for i in part]]
    arguments.append([label[i] for i in out])
    return np.asarray(np.einsum(*arguments)), out
