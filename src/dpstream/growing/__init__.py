"""Growing databases: schedulers around static mechanisms, and queries answered adaptively (Cummings et al. 2018)."""

from dpstream.growing.asking import Answer, Asker
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
from dpstream.growing.erm import ERM
from dpstream.growing.erm_classifier import LinearClassifier
from dpstream.growing.erm_features import FeatureMap
from dpstream.growing.erm_stream import ClassifierPlan
from dpstream.growing.mwem import MWEM
from dpstream.growing.own import OwnMechanism
from dpstream.growing.pmwg import PMWG, PMWGPlan
from dpstream.growing.schedule import Run, Schedule
from dpstream.growing.scheduler import BBImprover, BBScheduler
from dpstream.growing.smalldb import SmallDB
from dpstream.growing.streams import GrowingPlan
from dpstream.growing.synthesis import GrowingSynthesis

__all__ = [
    "ERM",
    "MWEM",
    "PMWG",
    "Answer",
    "Asker",
    "BBImprover",
    "BBScheduler",
    "BlackBox",
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
    "Records",
    "Released",
    "Run",
    "Schedule",
    "SmallDB",
    "Table",
]
