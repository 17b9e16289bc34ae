"""Compiles ahead what a stream compiles at its first use: each kind of loop runs once, on invented data."""

from __future__ import annotations

import numpy as np

from dpstream.core.schema.domain import Domain

_DOMAIN = Domain(("a", "b", "c", "d"), (2, 3, 2, 3))
_PAIRS = ((0, 1), (1, 2), (2, 3))


def warm() -> None:
    """Compile all loops that kept code does not have yet.

    Cost: with nothing kept some 20 s of CPU, else one or two.
    """
    _tables()
    _graphical()


def _tables() -> None:
    from dpstream.core.tables import MultisetHash, count_marginals

    codes = np.zeros((1, len(_DOMAIN)), np.int32)
    count_marginals(codes, _DOMAIN, _PAIRS)
    MultisetHash.of(codes, None, bytes(32))


def _graphical() -> None:
    from dpstream.core.graphical import Measurement, Model, TreeSizes, draw_blocks, fit

    measured = [Measurement(pair, np.arange(1.0, 1 + _DOMAIN.cells(pair)), 1.0) for pair in _PAIRS]
    model = Model.uniform(_DOMAIN, 10.0)
    model = fit(_DOMAIN, measured, warm=model, iterations=3)
    # All pairs at once, a clique within one of the tree, and one that is spread over it.
    model.marginals([(0, 1), (0, 2), (0, 3), (1, 3), (1, 2), (2, 3)])
    model.marginals([(0,), (0, 1), (0, 1, 3)])
    model.sample(5, seed=1)
    for make in draw_blocks([model, model], np.array([3, 2]), 1, 4):
        make()
    TreeSizes(_DOMAIN, [(0, 3), (1, 3)], _PAIRS).cells_with(np.arange(2))
