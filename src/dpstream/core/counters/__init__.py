"""Counters: differentially private running sums of histograms."""

from dpstream.core.counters.choose import (
    COUNTER_NAMES,
    PURE_COUNTER_NAMES,
    ZCDP_COUNTER_NAMES,
    Candidate,
    Choice,
    best,
    counter_by_name,
)
from dpstream.core.counters.counter import (
    CalibratedCounter,
    Counter,
    CounterState,
    FactoredCounter,
    LinearMap,
)
from dpstream.core.counters.forest import OptimalEpochsCounter, OptimalTreeCounter
from dpstream.core.counters.intervals import (
    BlockCounter,
    HybridCounter,
    SimpleCounter,
    TreeCounter,
    UnboundedBlockCounter,
)
from dpstream.core.counters.toeplitz import BLTCounter, ToeplitzCounter
