"""See README.md in this folder."""

from dpstream.tables.batch import EncodedBatch
from dpstream.tables.counting import MAX_CELLS, Backend, count_marginals
from dpstream.tables.people import EncodedReports
from dpstream.tables.workload import Workload

__all__ = ["MAX_CELLS", "Backend", "EncodedBatch", "EncodedReports", "Workload", "count_marginals"]
