"""Growing databases: schedulers around static mechanisms, and queries answered adaptively (Cummings et al. 2018)."""

from dpstream.families.growing.answers import QueryAnswer
from dpstream.families.growing.asker import Asker
from dpstream.families.growing.blackbox import (
    BlackBox,
    BoxRun,
    Counts,
    Database,
    LinearQuery,
    PowerLaw,
    Records,
    Released,
    ReleasedTable,
)
from dpstream.families.growing.boxes import MWEMPGMBox
from dpstream.families.growing.erm import ERM
from dpstream.families.growing.erm_classifier import LinearClassifier
from dpstream.families.growing.erm_features import FeatureMap
from dpstream.families.growing.erm_stream import ClassifierPlan
from dpstream.families.growing.growing_plan import GrowingPlan
from dpstream.families.growing.growing_release import GrowingSynthesis
from dpstream.families.growing.mwem import MWEM
from dpstream.families.growing.own import OwnMechanism
from dpstream.families.growing.pmwg import PMWG
from dpstream.families.growing.pmwg_plan import PMWGPlan
from dpstream.families.growing.run_schedule import Schedule, ScheduledRun
from dpstream.families.growing.scheduler import BBImprover, BBScheduler
from dpstream.families.growing.smalldb import SmallDB

__all__ = [
    "ERM",
    "MWEM",
    "PMWG",
    "Asker",
    "BBImprover",
    "BBScheduler",
    "BlackBox",
    "BoxRun",
    "ClassifierPlan",
    "Counts",
    "Database",
    "FeatureMap",
    "GrowingPlan",
    "GrowingSynthesis",
    "LinearClassifier",
    "LinearQuery",
    "MWEMPGMBox",
    "OwnMechanism",
    "PMWGPlan",
    "PowerLaw",
    "QueryAnswer",
    "Records",
    "Released",
    "ReleasedTable",
    "Schedule",
    "ScheduledRun",
    "SmallDB",
]
