"""The papers whose experiments and data sets can be made again, by the names that the command line takes.

A module is loaded when its paper is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpstream.lab.experiments import Watch
    from dpstream.lab.experiments.outcome_summary import ExperimentSummary

__all__ = ["DATA_SETS", "PAPERS", "BuiltDataSet", "Paper", "RunSettings"]


@dataclass(frozen=True)
class RunSettings:
    """What every paper's experiments are run with.

    Attributes:
        data: the folder with the real data; None: as the environment says.
        out: where results go.
        selected: option -> which of the paper's streams, budgets, ... are run; all where there is none.
        repeats: repetitions; None: as the paper has it.
        quick: a small part only.
        jobs: processes.
        figures: whether figures are drawn.
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
        options: what can be selected.
        run: runs them; finished runs are kept. Errors are those of the paper's own module.
    """

    options: tuple[str, ...]
    run: Callable[[RunSettings, Watch], ExperimentSummary]


@dataclass(frozen=True)
class BuiltDataSet:
    """What came of a data set: ``facts`` for programs, and sentences for people."""

    facts: dict[str, Any]
    says: tuple[str, ...]


def _kumar(settings: RunSettings, watch: Watch) -> ExperimentSummary:
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


def _bun(settings: RunSettings, watch: Watch) -> ExperimentSummary:
    from dpstream.lab.panels import reproduce_bun
    from dpstream.lab.panels.panel_summary import panel_summary

    outcome = reproduce_bun(
        settings.data,
        settings.out,
        panels=settings.selected.get("panel", ()),
        repeats=settings.repeats,
        quick=settings.quick,
        jobs=settings.jobs,
        figures=settings.figures,
        watch=watch,
    )
    return panel_summary(outcome)


def _sipp(file: str, out: Path) -> BuiltDataSet:
    from dpstream.lab.panels.sipp import read_sipp, write_panel

    panel = read_sipp(file)
    write_panel(panel, out)
    facts = {
        "person_months": panel.rows,
        "households": panel.seen,
        "left_out_missing_month": panel.incomplete,
        "members_differ": panel.differing,
        "kept": len(panel.households),
        "rate": round(float(panel.poor.mean()), 6),
    }
    says = (
        f"{panel.rows:,} person-months of {panel.seen:,} households; {panel.incomplete:,} left out for a missing "
        f"month; in {panel.differing:,} the members' series differ (the lowest person number is kept)",
        f"wrote {out}: {len(panel.households):,} households x 12 months (the paper: 23,374)",
        f"next: dpstream reproduce bun --panel {out}",
    )
    return BuiltDataSet(facts, says)


PAPERS = {"kumar": Paper(("streams", "epsilons", "methods"), _kumar), "bun": Paper(("panel",), _bun)}
#: Builds a data set from its keeper's file.
DATA_SETS: dict[str, Callable[[str, Path], BuiltDataSet]] = {"sipp": _sipp}
