"""Tabular streams: pooled, DP-STabS, its baseline. See README.md in this folder."""

from dpstream.families.tabular.baseline import Baseline, BaselinePlan
from dpstream.families.tabular.dpstabs import DPStabs, DPStabsPlan
from dpstream.families.tabular.pooled import Pooled, PooledPlan
