"""The papers whose experiments and data sets dpstream can reproduce, by their names on the command line.

The module of a paper is imported when its experiments are run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpstream_lab.experiments import RunWatch
    from dpstream_lab.experiments.outcome_summary import ExperimentSummary


#: Papers, with the options by which their experiments can be selected.
PAPERS: dict[str, tuple[str, ...]] = {"kumar": ("streams", "epsilons", "methods"), "bun": ("panel",)}


def reproduce_paper(
    name: str,
    data: str | None,
    out: str,
    selected: Mapping[str, Sequence[str]],
    watch: RunWatch,
    *,
    repeats: int | None,
    quick: bool,
    jobs: int,
    figures: bool,
) -> ExperimentSummary:
    """Run the experiments of one of ``PAPERS``. Finished runs are kept. Errors: those of the paper's module.

    Args:
        data: the folder with the real data; None: the one that the environment variable names.
        out: the folder for results.
        selected: option -> the chosen streams, budgets, ...; all of them where an option is missing.
        repeats: number of repetitions; None: that of the paper.
        quick: run a small part only.
        jobs: number of processes.
        figures: whether to draw figures, where an experiment has some.
    """
    if name == "bun":
        from dpstream_lab.experiments import reproduce_bun
        from dpstream_lab.experiments.bun import panel_summary

        panels = selected.get("panel")
        outcome = reproduce_bun(
            data, out, panels=panels, repeats=repeats, quick=quick, jobs=jobs, watch=watch
        )
        return panel_summary(outcome)
    from dpstream_lab.experiments import reproduce_kumar
    from dpstream_lab.experiments.outcome_summary import summary_of

    times = 3 if repeats is None else repeats
    return summary_of(
        reproduce_kumar(
            data, out, **selected, repeats=times, quick=quick, jobs=jobs, figures=figures, watch=watch
        )
    )


@dataclass(frozen=True)
class BuiltDataSet:
    """The result of building a data set: ``facts`` for programs, ``sentences`` for people."""

    facts: dict[str, Any]
    sentences: tuple[str, ...]


def _sipp(file: str, out: Path) -> BuiltDataSet:
    from dpstream_lab.experiments.sipp import read_sipp, write_sipp_panel

    panel = read_sipp(file)
    write_sipp_panel(panel, out)
    facts = {
        "person_months": panel.rows,
        "households": panel.seen,
        "left_out_missing_month": panel.incomplete,
        "members_differ": panel.differing,
        "kept": len(panel.households),
        "rate": round(float(panel.poor.mean()), 6),
    }
    sentences = (
        f"{panel.rows:,} person-months of {panel.seen:,} households; {panel.incomplete:,} left out for a missing "
        f"month; in {panel.differing:,} the members' series differ (the member with the lowest number is kept)",
        f"wrote {out}: {len(panel.households):,} households x 12 months (the paper: 23,374)",
        f"next: dpstream lab reproduce bun --panel {out}",
    )
    return BuiltDataSet(facts, sentences)


#: name -> builds the data set from the publisher's file.
DATA_SETS: dict[str, Callable[[str, Path], BuiltDataSet]] = {"sipp": _sipp}
