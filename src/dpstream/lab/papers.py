"""The papers whose experiments and data sets dpstream can reproduce, by their names on the command line.

The module of a paper is imported when its experiments are run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpstream.lab.experiments import RunWatch
    from dpstream.lab.experiments.outcome_summary import ExperimentSummary


@dataclass(frozen=True)
class RunSettings:
    """The settings of a reproduction, the same for every paper.

    Attributes:
        data: the folder with the real data; None: the one that the environment variable names.
        out: the folder for results.
        selected: option -> the chosen streams, budgets, ...; all of them where an option is missing.
        repeats: number of repetitions; None: that of the paper.
        quick: run a small part only.
        jobs: number of processes.
        figures: whether to draw figures, where an experiment has some.
    """

    data: str | None
    out: str
    selected: Mapping[str, Sequence[str]]
    repeats: int | None
    quick: bool
    jobs: int
    figures: bool


@dataclass(frozen=True)
class Paper:
    """One paper's experiments.

    Attributes:
        options: the options by which experiments can be selected.
        run: runs them. Finished runs are kept. Its errors are those of the paper's module.
    """

    options: tuple[str, ...]
    run: Callable[[RunSettings, RunWatch], ExperimentSummary]


@dataclass(frozen=True)
class BuiltDataSet:
    """The result of building a data set: ``facts`` for programs, ``sentences`` for people."""

    facts: dict[str, Any]
    sentences: tuple[str, ...]


def _kumar(settings: RunSettings, watch: RunWatch) -> ExperimentSummary:
    from dpstream.lab.experiments import reproduce_kumar
    from dpstream.lab.experiments.outcome_summary import summary_of

    outcome = reproduce_kumar(
        settings.data,
        settings.out,
        streams=settings.selected.get("streams"),
        epsilons=settings.selected.get("epsilons"),
        methods=settings.selected.get("methods"),
        repeats=3 if settings.repeats is None else settings.repeats,
        quick=settings.quick,
        jobs=settings.jobs,
        figures=settings.figures,
        watch=watch,
    )
    return summary_of(outcome)


def _bun(settings: RunSettings, watch: RunWatch) -> ExperimentSummary:
    from dpstream.lab.experiments import reproduce_bun
    from dpstream.lab.experiments.panel_summary import panel_summary

    outcome = reproduce_bun(
        settings.data,
        settings.out,
        panels=settings.selected.get("panel", ()),
        repeats=settings.repeats,
        quick=settings.quick,
        jobs=settings.jobs,
        watch=watch,
    )
    return panel_summary(outcome)


def _sipp(file: str, out: Path) -> BuiltDataSet:
    from dpstream.lab.experiments.sipp import read_sipp, write_sipp_panel

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
        f"next: dpstream reproduce bun --panel {out}",
    )
    return BuiltDataSet(facts, sentences)


PAPERS = {"kumar": Paper(("streams", "epsilons", "methods"), _kumar), "bun": Paper(("panel",), _bun)}
#: name -> builds the data set from the publisher's file.
DATA_SETS: dict[str, Callable[[str, Path], BuiltDataSet]] = {"sipp": _sipp}
