"""Evaluation against private truth: never releasable. See README.md in this folder."""

from dpstream.tools.evaluate.evaluation import Evaluation, StepEvaluation, evaluate_run
from dpstream.tools.evaluate.judgement import (
    Judgement,
    TableComparison,
    compare_tables,
    k_marginal_score,
    propensity,
)
from dpstream.tools.evaluate.measures import Measure
from dpstream.tools.evaluate.metrics import (
    METRICS,
    WorkloadErrors,
    churn,
    cramers_v,
    total_variation,
    workload_errors,
)
from dpstream.tools.evaluate.private_folder import LABEL, open_private_folder
from dpstream.tools.evaluate.true_table import TrueStep, TrueTable, true_steps
