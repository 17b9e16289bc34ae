"""Counters: differentially private running sums of histograms."""

from dpstream.counters.bank import BankState, CounterBank
from dpstream.counters.base import CalibratedCounter, Counter, CounterState, LinearMap
from dpstream.counters.block import BlockCounter, UnboundedBlockCounter
from dpstream.counters.blt import BLTCounter
from dpstream.counters.choose import Candidate, Choice, best
from dpstream.counters.factored import FactoredCounter
from dpstream.counters.names import COUNTER_NAMES, PURE_COUNTER_NAMES, ZCDP_COUNTER_NAMES, counter_by_name
from dpstream.counters.optimal import OptimalEpochsCounter, OptimalTreeCounter
from dpstream.counters.simple import SimpleCounter
from dpstream.counters.sparse import SparseCounter
from dpstream.counters.subtract import KaryTreeCounter, SubtractBlocksCounter
from dpstream.counters.toeplitz import ToeplitzCounter
from dpstream.counters.tree import HybridCounter, TreeCounter

__all__ = [
    "COUNTER_NAMES",
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
