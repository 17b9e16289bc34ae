"""The options of streams of tables, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from typing import Any

from dpstream.core import counters
from dpstream.core.contracts import Option, PublicPrior, RecipeContext, SectionReader, located, shown
from dpstream.core.contracts.recipe_options import COUNT, NUMBER, TEXTS
from dpstream.core.tables import Workload
from dpstream.core.tables.workload import WORKLOADS
from dpstream.mechanisms.discovery_plan import Discovery
from dpstream.mechanisms.headlines import HEADLINE_OPTIONS, headline_options
from dpstream.mechanisms.limits import DEFAULT_ROUNDS, default_rounds


def _workload(section: SectionReader, given: RecipeContext, earlier: Mapping[str, Any]) -> Workload:
    if section.has("workload"):
        spec = section.raw("workload")
        with located(section.place("workload")):
            workload = Workload.parse(given.domain, spec)
        chosen = f"{len(workload)} chosen marginals" if isinstance(spec, list) else str(spec)
        section.note("workload", chosen, default=False)
        return workload
    single = len(given.domain) == 1
    spec = "all-1-way" if single else "all-2-way"
    section.note("workload", spec, default=True, reason="a single column" if single else None)
    with located(section.place("workload")):
        return Workload.parse(given.domain, spec)


def _k(section: SectionReader, given: RecipeContext, earlier: Mapping[str, Any]) -> int:
    """How many marginals are measured at a step; the default depends on the workload."""
    workload: Workload = earlier["workload"]
    most = len(workload)
    value = section.raw("k") if section.has("k") else default_rounds(workload)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        what = f"{shown(value)} exceeds the workload's {most} marginals"
        raise section.wrong("k", what, f"1 to {most}")
    section.note("k", f"{value} marginals of {most}", default=not section.has("k"))
    return value


def as_json(recipe: Any, **known: Any) -> dict[str, Any]:
    """The options of a recipe for manifests, exact and in the order of its fields; ``known`` replaces some."""
    values = {
        item.name: getattr(recipe, item.name) for item in fields(recipe) if item.name != "schema"
    } | known
    if isinstance(values.get("prior"), PublicPrior):
        values["prior"] = dict(values["prior"].facts)
    if "headline" in values:
        values |= headline_options(*(values.pop(name, None) for name in HEADLINE_OPTIONS))
    if values.get("discovery", 0) is None:
        del values["discovery"]
    return {
        name: value.as_option()
        if isinstance(value, Workload | Discovery)
        else str(value)
        if isinstance(value, Fraction)
        else value
        for name, value in values.items()
    }


WORKLOAD = Option(
    WORKLOADS,
    "The marginals to preserve. A marginal listed by itself keeps its weight.",
    "readers look mostly at pairs",
    "all-2-way",
    read=_workload,
    fragment={
        "anyOf": [
            {"type": "string", "pattern": "^all-[1-9][0-9]*-way$"},
            {
                "type": "array",
                "items": {
                    "anyOf": [
                        TEXTS,
                        {
                            "type": "object",
                            "properties": {"columns": TEXTS, "weight": NUMBER},
                            "required": ["columns"],
                            "additionalProperties": False,
                        },
                        {
                            "type": "object",
                            "properties": {"pairs_with": {**TEXTS, "minItems": 1}, "weight": NUMBER},
                            "required": ["pairs_with"],
                            "additionalProperties": False,
                        },
                        {"type": "string", "pattern": "^all-[1-9][0-9]*-way$"},
                    ]
                },
            },
        ]
    },
)
K = Option(
    "1 to the number of marginals",
    "Marginals measured at every step, or in every black-box run.",
    "each marginal shares the noise budget",
    f"{DEFAULT_ROUNDS}, or all marginals if fewer",
    read=_k,
    fragment=COUNT,
)
COUNTER = Option(
    meaning="How running sums are kept; `best`: the smallest predicted error, or `simple` where marginals take turns.",
    reason="the smallest predicted error for a marginal's measurements",
    words=("best", *counters.COUNTER_NAMES),
)
PRIOR = Option(
    meaning="Where runs start: at the previous model, or at the uniform distribution.",
    reason="a batch looks about like the one before",
)
STALENESS = Option(
    "an exact number above 0, up to 1/2",
    "How far a release may lag: this share of the steps so far, or one step; sets epochs.",
    "shorter epochs lag less, longer ones have less noise",
)
ITERATIONS = Option(
    "1 or more",
    "Iterations of each fit; costs time only.",
    "enough for a fit from little (dpstabs and aim need fewer)",
)
TREE_CELLS = Option(
    "1 or more",
    "Most cells of the model's junction tree, and of a marginal.",
    "larger trees cost time, and pay with large budgets only",
)
#: ``baseline.py`` names the recipes that it may be.
OFFLINE = Option(
    meaning="What runs on every batch: MWEM+PGM, or AIM, which chooses how many marginals to measure.",
    reason="batches are small",
)
