"""Compiled: who of the synthetic people gets which symbol. Loaded on use: most commands extend nobody."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import numpy as np

from dpstream.core.compiling import njit


@njit(cache=True)
def deal(groups, left, waiting, words):
    """Let one person after the other take a symbol with the share that is left of it in the group."""
    given = np.empty(len(groups), np.uint8)
    for person in range(len(groups)):
        group = groups[person]
        # 32 random bits: each choice is within 2^-32 of its share.
        place = np.int64((np.uint64(words[person]) * np.uint64(waiting[group])) >> np.uint64(32))
        symbol = 0
        while place >= left[group, symbol]:
            place -= left[group, symbol]
            symbol += 1
        left[group, symbol] -= 1
        waiting[group] -= 1
        given[person] = symbol
    return given
