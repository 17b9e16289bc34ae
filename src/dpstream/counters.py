"""Counters: differentially private running sums, calibrated with a budget and a unit.

``Tree(64).calibrate(PureDP(1), Event())`` is a counter of 64 ticks; ``dpstream.certify`` proves what it costs.
"""

from __future__ import annotations

from dpstream.core.counters import BlockCounter as Block
from dpstream.core.counters import BLTCounter as BLT
from dpstream.core.counters import CalibratedCounter, Counter, best
from dpstream.core.counters import HybridCounter as Hybrid
from dpstream.core.counters import OptimalEpochsCounter as OptimalEpochs
from dpstream.core.counters import OptimalTreeCounter as OptimalTree
from dpstream.core.counters import SimpleCounter as Simple
from dpstream.core.counters import ToeplitzCounter as Toeplitz
from dpstream.core.counters import TreeCounter as Tree
from dpstream.core.counters import UnboundedBlockCounter as UnboundedBlock
from dpstream.core.counters import counter_by_name as by_name

__all__ = [
    "BLT",
    "Block",
    "CalibratedCounter",
    "Counter",
    "Hybrid",
    "OptimalEpochs",
    "OptimalTree",
    "Simple",
    "Toeplitz",
    "Tree",
    "UnboundedBlock",
    "best",
    "by_name",
]
