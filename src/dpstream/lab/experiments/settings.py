"""The settings of a reproduction, and the choices that the paper leaves open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dpstream.lab.experiments.grid import Result
from dpstream.lab.experiments.runs import EVALUATE_EVERY, EVALUATE_LAST
from dpstream.tools.evaluate.private_folder import LABEL

#: (what the paper leaves open, what was chosen). The options of each method follow from the runs themselves.
LEFT_OPEN_BY_KUMAR = (
    (
        "How many marginals are measured at a step (`k`)",
        "4 in all three methods, of 78 (Adult) and 231 (Eviction) pairs.",
    ),
    (
        "How long a fit runs",
        "20 iterations after each measurement (proposed), 50 (baseline), 200 when the table's structure is chosen "
        "anew.",
    ),
    (
        "The table before the first step",
        "Nothing is counted, and the model is uniform. The listing starts from one record in every cell of the "
        "whole domain, which no stream of this size recovers from.",
    ),
    (
        "What a fit remembers",
        "The proposed method fits a model of the current batches, which starts at every step from the last one "
        "(`prior_weight` 0.1), and a model of the table, whose structure is kept between steps. What is booked for "
        "a marginal at a step that did not measure it is the batch model's answer (`past = predicted`); the listing's "
        "own rule (`past = literal`) learns far more slowly. The baseline's runs start from the previous run's model "
        "(`prior = previous`).",
    ),
    (
        "How the budget is split between selecting and measuring",
        "A quarter for selecting (proposed); a half (baseline, as printed).",
    ),
    (
        "What a selection judges by",
        "The L1 distance of a marginal, less the noise that measuring it would add, one record a cell "
        "(`score = sum-cells`).",
    ),
    (
        "Where totals come from",
        "From the noisy measurements (inverse variance); sizes of batches are never read. The proposed method's "
        "synthetic table is its model with the noisy total, without rounding to records; the baseline's is a table of "
        "records.",
    ),
    (
        "Which block counter",
        "The unbounded one of the paper's Algorithm 4 (`counter = unbounded-block`); its clock ticks only at steps "
        "that measure its marginal.",
    ),
    (
        "Noise",
        "Discrete Laplace from the operating system's randomness, sampled exactly; permute-and-flip for selecting "
        "(the paper: Laplace, exponential mechanism).",
    ),
    (
        "The division in WE",
        "The formula in print has no division by the table's size; its tables need it. WE is divided by the number of "
        "true records.",
    ),
    (
        "What the relative error is",
        "The formula in print divides every cell's error by its true count, which is undefined where that is 0 and "
        "far above the printed values where it is small. Given are: RelWE over cells that are not empty, the same over "
        "all cells with a floor of 1 (RelWEFloor), and the L1 error per workload, which is of the printed size.",
    ),
    (
        "The Eviction file",
        "A download of April 2016: 1,000 weeks from 2 January 1997 (500 fortnights). The paper's, of January 2024, "
        "has 1,409 weeks; ours is its first 71 % and has about 30 % fewer records.",
    ),
    (
        "The order of Adult",
        "48,813 records with 13 columns. Ordered: the projected records in lexicographic order of the columns (the "
        "paper sorts the data set; whether before or after the projection is not said). Randomized: another "
        "permutation at every repetition. The last batch is smaller.",
    ),
    (
        "How often the experiment is repeated",
        "Three times here; the paper does not say.",
    ),
)  # fmt: skip


def kumar_settings(results: Sequence[Result], *, quick: bool) -> str:
    """The page ``settings.md`` of a reproduction."""
    lines = [
        f"**{LABEL}**",
        "",
        "# Settings of the reproduction",
        "",
        f"Every batch is cut beforehand. Errors are taken at every {EVALUATE_EVERY}th step and at each of the last "
        f"{EVALUATE_LAST}, over which the tables average. The guarantee of every run is pure differential privacy for "
        "one record added or removed, with the printed epsilon for the whole stream; the errors themselves are "
        "computed from the private tables.",
        "",
        "| The paper leaves open | Chosen here |",
        "|---|---|",
        *(f"| {what} | {chosen} |" for what, chosen in LEFT_OPEN_BY_KUMAR),
        "",
    ]
    if quick:
        lines += ["This was a quick run: the first steps only, so no printed number applies.", ""]
    return "\n".join(lines) + settings_table(results)


def settings_table(results: Sequence[Result]) -> str:
    """The options of every method on every stream, from the runs themselves."""
    groups: dict[str, dict[str, Any]] = {}
    epsilons: dict[str, dict[str, None]] = {}
    for result in results:
        facts = result.values["settings"]
        key = json.dumps([facts["stream"], facts["method"]])
        groups.setdefault(key, facts)
        epsilons.setdefault(key, {})[facts["epsilon"]] = None
    lines = [
        "## What each method was told",
        "",
        "Counters are described as they are at the first epsilon.",
        "",
        "| stream | method | steps run, of | epsilons | mechanism and options |",
        "|---|---|---|---|---|",
    ]
    for key, facts in groups.items():
        options = ", ".join(f"{name} = {_text(value)}" for name, value in facts["options"].items())
        lines.append(
            f"| {facts['stream']} | {facts['method']} | {facts['steps']}, {facts['horizon']} "
            f"| {', '.join(epsilons[key])} | {facts['mechanism']}: {options} |"
        )
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    text = text.replace("|", "/")
    return text if len(text) <= 160 else text[:157] + "..."
