"""Growing databases: schedulers around static mechanisms, and queries answered adaptively (Cummings et al. 2018)."""

from dpstream.growing.blackbox import (
    BlackBox,
    Counts,
    Database,
    LinearQuery,
    PowerLaw,
    Records,
    Released,
    Table,
)
from dpstream.growing.boxes import MWEMPGMBox
from dpstream.growing.mwem import MWEM
from dpstream.growing.own import OwnMechanism
from dpstream.growing.schedule import Run, Schedule
from dpstream.growing.scheduler import BBImprover, BBScheduler
from dpstream.growing.smalldb import SmallDB
from dpstream.growing.streams import GrowingPlan
from dpstream.growing.synthesis import GrowingSynthesis

__all__ = [
    "MWEM",
    "BBImprover",
    "BBScheduler",
    "BlackBox",
    "Counts",
    "Database",
    "GrowingPlan",
    "GrowingSynthesis",
    "LinearQuery",
    "MWEMPGMBox",
    "OwnMechanism",
    "PowerLaw",
    "Records",
    "Released",
    "Run",
    "Schedule",
    "SmallDB",
    "Table",
]
