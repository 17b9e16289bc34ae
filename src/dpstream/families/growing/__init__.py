"""Growing databases: schedulers around static mechanisms, and queries answered adaptively (Cummings et al. 2018)."""

from dpstream.families.growing.blackbox import (
    BlackBox,
    BoxRun,
    Counts,
    Database,
    LinearQuery,
    PowerLaw,
)
from dpstream.families.growing.boxes import MWEMPGMBox, OwnMechanism, SmallDB
from dpstream.families.growing.erm import ERM, FeatureMap, LinearClassifier
from dpstream.families.growing.erm_stream import ClassifierPlan
from dpstream.families.growing.growing_plan import GrowingPlan, GrowingSynthesis
from dpstream.families.growing.pmwg import PMWG
from dpstream.families.growing.pmwg_plan import PMWGPlan
from dpstream.families.growing.questions import QueryAnswer
from dpstream.families.growing.run_schedule import Schedule, ScheduledRun
from dpstream.families.growing.scheduler import BBImprover, BBScheduler

__all__ = [
    "ERM",
    "PMWG",
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
    "Schedule",
    "ScheduledRun",
    "SmallDB",
]
