"""Tables that agree with their levels, from the top down. Public: it reads estimates only.

A fit to noisy counts of a thousand places makes regions worse: counts below 0 are lifted to 0, so regions of many small
places grow. So the coarsest level is made non-negative first, then the children of each node, with the node's sum. The
finest level keeps the table's model inside each node: that knows other columns, too, and is nearer than its counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Model
from dpstream.core.schema.trees import Fitted, Tree
from dpstream.families.tabular.pooled_clock import Clock

_Floats = NDArray[np.float64]
#: Columns of several trees depend on each other: so often all are set.
_TREE_ROUNDS = 10


@dataclass(frozen=True, eq=False)
class TableTree:
    """The levels of one headline.

    Attributes:
        place, column: the finest level among the followed marginals, and among the columns.
        begin: where the cells of all trees begin among the clock's; ``parts``: where its levels stand among these, the
            coarsest first; ``variances``: of a period's cell.
        codes: of every value of the finest level, the code in each coarser one.
    """

    tree: Tree
    place: int
    column: int
    begin: int
    parts: tuple[slice, ...]
    variances: tuple[float, ...]
    codes: tuple[NDArray[np.int64], ...]

    def levels(self, cells: _Floats) -> list[_Floats]:
        """What the cells of all trees say of each level."""
        return [cells[part] for part in self.parts]

    def folded(self, finest: _Floats) -> list[_Floats]:
        """Exact counts of the finest level, at all levels."""
        sizes = self.tree.sizes[1:]
        above = [np.bincount(own, finest, size) for own, size in zip(self.codes, sizes, strict=False)]
        return [*(one.astype(np.float64) for one in above), finest]

    def shaped(
        self,
        levels: Sequence[_Floats],
        variances: Sequence[float],
        shape: _Floats,
        number: tuple[float, float] = (0.0, math.inf),
    ) -> _Floats:
        """Counts of the finest level, top-down from the least squares of all levels: not negative, with the sums of the
        nodes above; inside a node they keep a shape, which knows more than its measurements.

        Args:
            number: of records, and its variance.
        """
        found = Fitted(self.tree, (number[1], *variances)).estimate([np.array([number[0]]), *levels])
        top = [np.array([number[0]]) if math.isfinite(number[1]) else found[0]]
        wanted, parents = self.tree.top_down([*top, *found[1:-1]])[-1], self.tree.parents[-1]
        sums = np.bincount(parents, shape, len(wanted))
        return np.asarray(shape * (wanted / np.maximum(sums, 1e-9))[parents])


def trees_of(clocks: Sequence[Clock]) -> list[TableTree]:
    """The trees that the first clock measures."""
    found = list[TableTree]()
    for clock in clocks[:1]:
        at = sum(len(group) == 1 for group in clock.headlines)
        begin = clock.parts[at].start if at < len(clock.parts) else 0
        for group in clock.headlines:
            if len(group) == 1:
                continue
            own, at = slice(at, at + len(group)), at + len(group)
            finest, codes = group[-1], [fold.cells for fold in group[:-1] if fold.cells is not None]
            found.append(
                TableTree(
                    Tree.of_codes(
                        [clock.domain.names[fold.clique[0]] for fold in group],
                        [*codes, np.arange(finest.size, dtype=np.int64)],
                    ),
                    clock.cells.cliques.index(finest.clique),
                    finest.clique[0],
                    begin,
                    tuple(slice(part.start - begin, part.stop - begin) for part in clock.parts[own]),
                    tuple(clock.variances[own]),
                    tuple(codes),
                )
            )
    return found


def with_columns(model: Model, columns: Sequence[tuple[int, _Floats]]) -> Model:
    """A model whose columns have these counts."""
    for _ in range(_TREE_ROUNDS if len(columns) > 1 else 1):
        for column, counts in columns:
            model = model.with_column(column, counts) if counts.any() else model
    return model
