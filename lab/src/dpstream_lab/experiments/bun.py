"""The experiments of Bun, Gaboardi, Neunhoeffer and Zhang (2024), Section 5 and Appendix C."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError
from dpstream_lab.experiments.bun_tables import answers_csv, lines_of, markdown_page, method_of
from dpstream_lab.experiments.grid import Runnable, RunWatch, run_all
from dpstream_lab.experiments.kumar import data_folder
from dpstream_lab.experiments.outcome_summary import ExperimentSummary
from dpstream_lab.experiments.panel_data import KNOWN_PANELS, load_panel, panel_path
from dpstream_lab.experiments.panel_runs import CumulativeRun, WindowRun
from dpstream_lab.experiments.private_output import PrivateFolder
from dpstream_lab.experiments.settings import CHOICES, settings_page

BUN_RHOS = ("0.005", "0.001", "0.05")
#: The rho of experiments for which the paper gives no other.
_RHO = "0.005"
REPEATS = 1000
QUICK_REPEATS = 50
#: The default panels, besides the real ones that are in the data folder.
_INVENTED = ("sipp-simulated", "all-ones")


@dataclass(frozen=True)
class PanelOutcome:
    """The results of the experiments. Where a panel is real, ``runs`` and all files are private."""

    folder: Path
    files: tuple[str, ...]
    runs: tuple[Mapping[str, Any], ...]


def reproduce_bun(
    data: str | Path | None,
    out: str | Path,
    *,
    panels: Sequence[str] | None = None,
    repeats: int | None = None,
    quick: bool = False,
    jobs: int = 2,
    watch: RunWatch | None = None,
) -> PanelOutcome:
    """Run the paper's experiments on panels, and write ``runs/``, tables and ``settings.md``.

    The noise is real, from the operating system. Finished runs with equal settings are not repeated (see ``run_all``).

    Args:
        data: the folder with the real panels; None: ``DPSTREAM_DATA``, where it is set.
        out: an output folder; it is made private (0700).
        panels: names of ``KNOWN_PANELS``, or CSV files (a name, then 0 or 1 for each period); None: the invented
            panels, and the real ones that are in the folder.
        repeats: the number of repetitions; by default 1000, with ``quick`` 50.
        quick: by default only the invented panels, at rho 0.005.
        jobs: the number of processes.
        watch: is told about the progress.

    Errors:
        ConfigError: a panel is unknown, data are missing, ``out`` is a folder of releases, or it has runs with other
            settings. DataError: a file is not a panel.

    Cost: 1000 repetitions of a window take about 15 seconds of one core, all panels about 6 minutes.

    Guarantee: none; every number is computed from the panels' own truth.
    """
    times = repeats if repeats is not None else QUICK_REPEATS if quick else REPEATS
    if isinstance(times, bool) or not isinstance(times, int) or times < 2:
        raise ConfigError(
            f"repeats = {times!r} is not a number of repetitions", where="repeats", allowed="2 or more"
        )
    folder = data_folder(data) if data or os.environ.get("DPSTREAM_DATA") else None
    tasks: list[Runnable] = []
    for name in dict.fromkeys(panels or _default(folder, quick)):
        tasks += _tasks(name, panel_path(name, folder), times, quick)
    private = PrivateFolder(out)
    runs = run_all(tasks, private, jobs=jobs, watch=watch)
    private.write("table.csv", answers_csv(runs))
    private.write("table.md", markdown_page(runs, quick))
    private.write("settings.md", _settings(runs))
    names = ["table.csv", "table.md", "settings.md"]
    return PanelOutcome(private.path, tuple(names), tuple(runs))


def _default(folder: Path | None, quick: bool) -> list[str]:
    real = [name for name, below in KNOWN_PANELS.items() if below and folder and (folder / below).is_file()]
    return [*_INVENTED, *([] if quick else real)]


def _tasks(name: str, path: Path | None, repeats: int, quick: bool) -> list[Runnable]:
    # Refuses a file that is not a panel before anything is run.
    load_panel(name, path)
    if name == "all-ones":
        relations = ("replace",) if quick else ("replace", "add-remove")
        return [WindowRun(name, path, _RHO, relation, repeats) for relation in relations]  # type: ignore[arg-type]
    window = [WindowRun(name, path, rho, "replace", repeats) for rho in ((_RHO,) if quick else BUN_RHOS)]
    window += [] if quick else [WindowRun(name, path, rho, "add-remove", repeats) for rho in BUN_RHOS]
    return [
        *window,
        CumulativeRun(name, path, _RHO, "replace", repeats),
        CumulativeRun(name, path, _RHO, "replace", repeats, counter="tree", split="levels"),
        *([] if quick else [CumulativeRun(name, path, _RHO, "add-remove", repeats)]),
    ]


def _settings(runs: Sequence[Mapping[str, Any]]) -> str:
    """The page ``settings.md``."""
    lines = [
        "| panel | people, periods | repetitions | plan | seconds of CPU |",
        "|---|---|---|---|---|",
    ]
    for run in runs:
        facts = run["settings"]
        lines.append(
            f"| {facts['panel']}{'' if facts['real'] else ' (invented)'} | {facts['people']:,}, {facts['periods']} "
            f"| {facts['repetitions']} | {facts['options']['plan']} | {run['cpu_seconds']:.1f} |"
        )
    return settings_page("reproduction", CHOICES, "\n".join(lines) + "\n")


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
