"""The summary of the experiments on panels."""

from __future__ import annotations

from dpstream_lab.experiments.bun import PanelOutcome
from dpstream_lab.experiments.bun_tables import lines_of, method_of
from dpstream_lab.experiments.outcome_summary import ExperimentSummary


def panel_summary(outcome: PanelOutcome) -> ExperimentSummary:
    """The summary of the answers of each run."""
    table, numbers = [], []
    for run in outcome.runs:
        facts, lines = run["settings"], lines_of(run)
        known = {key: facts[key] for key in ("panel", "rho", "relation", "repetitions")}
        method = method_of(facts)
        numbers.append({**known, "method": method, "answers": [line.as_dict() for line in lines]})
        # In units of its own standard error, chance alone makes a bias of about 2 in so many lines.
        bias = max(abs(line.bias) / line.bias_error if line.bias_error else 0.0 for line in lines)
        spread = max(line.deviation for line in lines)
        coverage = sum(line.coverage for line in lines) / len(lines)
        shares = [f"{spread:.5f}", f"{bias:.1f}", f"{coverage:.1%}"]
        table.append([facts["panel"], method, facts["rho"], facts["relation"], *shares])
    return ExperimentSummary(
        outcome.folder,
        outcome.files,
        {"runs": numbers},
        "Debiased answers against the truth",
        ["panel", "method", "rho", "relation", "largest sd", "largest bias / its error", "95 % covers"],
        table,
        right=(4, 5, 6),
    )
