"""Counters: differentially private running sums of histograms."""

from dpstream.counters.bank import BankState, CounterBank
from dpstream.counters.base import CalibratedCounter, Counter, CounterState, LinearMap
from dpstream.counters.block import BlockCounter, UnboundedBlockCounter
from dpstream.counters.names import COUNTER_NAMES, counter_by_name
from dpstream.counters.simple import SimpleCounter
from dpstream.counters.tree import HybridCounter, TreeCounter

__all__ = [
    "COUNTER_NAMES",
    "BankState",
    "BlockCounter",
    "CalibratedCounter",
    "Counter",
    "CounterBank",
    "CounterState",
    "HybridCounter",
    "LinearMap",
    "SimpleCounter",
    "TreeCounter",
    "UnboundedBlockCounter",
    "counter_by_name",
]
