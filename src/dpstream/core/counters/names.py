"""Counters by their names in configuration files."""

from __future__ import annotations

from dpstream.core.contracts.recipe_options import Option
from dpstream.core.counters.binary_tree import HybridCounter, TreeCounter
from dpstream.core.counters.block import BlockCounter, UnboundedBlockCounter
from dpstream.core.counters.blt import CONSTANTS, BLTCounter
from dpstream.core.counters.counter import Counter
from dpstream.core.counters.optimal import OptimalEpochsCounter, OptimalTreeCounter
from dpstream.core.counters.simple import SimpleCounter
from dpstream.core.counters.sparse_counter import SparseCounter
from dpstream.core.counters.subtract import KaryTreeCounter, SubtractBlocksCounter
from dpstream.core.counters.toeplitz import ToeplitzCounter
from dpstream.core.errors import ConfigError

_INTERVALS = ("simple", "block", "unbounded-block", "unbounded-block-closed", "tree", "hybrid")
#: Counters that take a pure budget; noise drawn ahead is for these only.
PURE_COUNTER_NAMES = (*_INTERVALS, "subtract-blocks", "k-ary", "optimal-tree", "optimal-epochs")
#: Counters that take a zCDP budget.
ZCDP_COUNTER_NAMES = (*_INTERVALS, "toeplitz", "blt")
#: All of them.
COUNTER_NAMES = tuple(dict.fromkeys(PURE_COUNTER_NAMES + ZCDP_COUNTER_NAMES))

#: Of the recipes that keep running sums.
COUNTER_OPTION = Option(
    meaning="How noisy running sums are kept. `best`: where every marginal is measured at every step, the counter "
    "whose running sums have the smallest predicted error; where marginals take turns, the one whose single gains "
    "have (which is `simple`). `dpstream plan` shows the figures. A stream keeps the counter that it began with.",
    reason="the counter with the smallest predicted error for the measurements that a marginal can expect",
    words=("best", *COUNTER_NAMES),
)


def counter_by_name(name: str, *, horizon: int | None = None, block_size: int | None = None) -> Counter:
    """The counter of that name.

    Args:
        name: one of ``COUNTER_NAMES``, or "sparse", which is not linear and has no variance.
        horizon: the number of ticks; needed by "block", "tree", "k-ary", "optimal-tree", "toeplitz" and "sparse". The
            others do not use it, except that "blt" takes the constants for about as many ticks (10,000 without).
        block_size: for "block" only; by default the square root of the horizon, rounded up.

    Errors:
        ConfigError: unknown name, a missing or unusable horizon, a block size where there are no blocks.

    >>> counter_by_name("tree", horizon=8).describe()
    'binary tree counter: 4 levels, horizon 8'
    """
    if block_size is not None and name != "block":
        raise ConfigError(
            f"a block size is given for the counter {name!r}", where="counter", allowed="only with 'block'"
        )
    match name:
        case "simple":
            return SimpleCounter()
        case "block":
            return BlockCounter(_needed(name, horizon), block_size)
        case "unbounded-block":
            return UnboundedBlockCounter()
        case "unbounded-block-closed":
            return UnboundedBlockCounter(close_partitions=True)
        case "tree":
            return TreeCounter(_needed(name, horizon))
        case "hybrid":
            return HybridCounter()
        case "subtract-blocks":
            return SubtractBlocksCounter()
        case "k-ary":
            return KaryTreeCounter(_needed(name, horizon))
        case "optimal-tree":
            return OptimalTreeCounter(_needed(name, horizon))
        case "optimal-epochs":
            return OptimalEpochsCounter()
        case "toeplitz":
            return ToeplitzCounter(_needed(name, horizon))
        case "blt":
            return BLTCounter() if horizon is None else BLTCounter(_constants_for(horizon))
        case "sparse":
            return SparseCounter(_needed(name, horizon))
    raise ConfigError(f"unknown counter {name!r}", where="counter", allowed=", ".join(COUNTER_NAMES))


def _needed(name: str, horizon: int | None) -> int:
    if horizon is None:
        raise ConfigError(
            f"the counter {name!r} needs a horizon",
            where="horizon",
            allowed="a number of steps, or one of the counters without a horizon: "
            "simple, unbounded-block, unbounded-block-closed, hybrid, subtract-blocks, optimal-epochs, blt",
        )
    return horizon


def _constants_for(horizon: int) -> int:
    """The smallest number of ticks with constants that is no less; else the largest."""
    return min((ticks for ticks in CONSTANTS if ticks >= horizon), default=max(CONSTANTS))
