"""See README.md in this folder."""

from dpstream.core.tables.access import (
    BatchAccess,
    CounterFile,
    CounterShards,
    EngineBatch,
    FrameKind,
    ReadRequest,
    ShardedEvents,
)
from dpstream.core.tables.counting import MAX_COUNTED_CELLS, count_marginals
from dpstream.core.tables.encoded_batch import EncodedBatch, EncodedRecords, EncodedReports
from dpstream.core.tables.keyed_reading import KeyedBatch, KeyRules, Snapshot
from dpstream.core.tables.multiset_hash import HASH_KEY_BYTES, MultisetHash
from dpstream.core.tables.present_table import KeyedChanges, PresentBatch, PresentTable, PresentView
from dpstream.core.tables.workload import Workload
