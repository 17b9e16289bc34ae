"""One offline run of AIM on a whole private table: what a stream of the same budget is held against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dpstream.core.privacy import Event, Randomness
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Baseline
from dpstream.mechanisms import AIM
from dpstream.tools.evaluate.array_types import Codes
from dpstream.tools.evaluate.measures import OfflineCeiling
from dpstream.tools.evaluate.metrics import SEED

if TYPE_CHECKING:
    from dpstream.project import Config

#: Units that a run on a table of records knows; of other ones a record stands for itself.
_UNITS: Final = ("event", "event-replace", "user")


def _sample(config: Config, workload: Workload, table: Codes, rows: int) -> Codes:
    """Rows of a model that one run gave.

    Guarantee: none: the noise is that of a fixed seed, so that an evaluation can be repeated. For evaluation only.

    Errors:
        ConfigError, LimitError: a workload that one run cannot take.
    """
    unit = config.unit if config.unit.name in _UNITS else Event()
    plan = Baseline(workload, offline=AIM()).calibrate(config.budget.budget, unit, 1)
    batch = EncodedBatch(workload.domain, np.asfortranarray(table))
    return plan.offline.run(batch, "inserts", Randomness.seeded(SEED)).model.sample(rows, SEED)


OFFLINE_CEILING: Final = OfflineCeiling(_sample)
