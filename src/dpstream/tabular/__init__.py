"""Tabular streams: pooled, DP-STabS, its baseline. See README.md in this folder."""

from dpstream.tabular.aim import AIM, AIMPlan, AIMRun
from dpstream.tabular.baseline import Baseline, BaselinePlan
from dpstream.tabular.cells import Cells, Score
from dpstream.tabular.dpstabs import DPStabs, DPStabsPlan
from dpstream.tabular.offline import MWEMPGM, OfflineMechanism, OfflinePlan
from dpstream.tabular.pooled import Pooled, PooledPlan
from dpstream.tabular.synthesis import ModelSynthesis, TableSynthesis

__all__ = [
    "AIM",
    "MWEMPGM",
    "AIMPlan",
    "AIMRun",
    "Baseline",
    "BaselinePlan",
    "Cells",
    "DPStabs",
    "DPStabsPlan",
    "ModelSynthesis",
    "OfflineMechanism",
    "OfflinePlan",
    "Pooled",
    "PooledPlan",
    "Score",
    "TableSynthesis",
]
