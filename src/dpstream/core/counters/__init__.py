"""Counters: differentially private running sums of histograms."""

from dpstream.core.counters.bank import BankState, CounterBank
from dpstream.core.counters.binary_tree import HybridCounter, TreeCounter
from dpstream.core.counters.block import BlockCounter, UnboundedBlockCounter
from dpstream.core.counters.blt import BLTCounter
from dpstream.core.counters.choose import Candidate, Choice, best
from dpstream.core.counters.counter import CalibratedCounter, Counter, CounterState, LinearMap
from dpstream.core.counters.factored import FactoredCounter
from dpstream.core.counters.names import (
    COUNTER_NAMES,
    COUNTER_OPTION,
    PURE_COUNTER_NAMES,
    ZCDP_COUNTER_NAMES,
    counter_by_name,
)
from dpstream.core.counters.optimal import OptimalEpochsCounter, OptimalTreeCounter
from dpstream.core.counters.simple import SimpleCounter
from dpstream.core.counters.sparse_counter import SparseCounter
from dpstream.core.counters.subtract import KaryTreeCounter, SubtractBlocksCounter
from dpstream.core.counters.toeplitz import ToeplitzCounter

__all__ = [
    "COUNTER_NAMES",
    "COUNTER_OPTION",
    "PURE_COUNTER_NAMES",
    "ZCDP_COUNTER_NAMES",
    "BLTCounter",
    "BankState",
    "BlockCounter",
    "CalibratedCounter",
    "Candidate",
    "Choice",
    "Counter",
    "CounterBank",
    "CounterState",
    "FactoredCounter",
    "HybridCounter",
    "KaryTreeCounter",
    "LinearMap",
    "OptimalEpochsCounter",
    "OptimalTreeCounter",
    "SimpleCounter",
    "SparseCounter",
    "SubtractBlocksCounter",
    "ToeplitzCounter",
    "TreeCounter",
    "UnboundedBlockCounter",
    "best",
    "counter_by_name",
]
