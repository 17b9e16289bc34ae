"""Tabular streams: pooled, DP-STabS, its baseline. See README.md in this folder."""

from dpstream.families.tabular.aim import AIM, AIMPlan, AIMRun
from dpstream.families.tabular.baseline import Baseline, BaselinePlan
from dpstream.families.tabular.dpstabs import DPStabs, DPStabsPlan
from dpstream.families.tabular.mwem_pgm import MWEMPGM, OfflineMechanism, OfflinePlan
from dpstream.families.tabular.pooled import Pooled, PooledPlan
from dpstream.families.tabular.table_release import ModelSynthesis, TableSynthesis
from dpstream.families.tabular.workload_cells import Cells, Score

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
