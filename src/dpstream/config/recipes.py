"""``[mechanism]`` as a recipe: options checked, defaults taken from the mechanisms themselves."""

from __future__ import annotations

import dataclasses
from typing import Any

from dpstream.config.keys import keys_of
from dpstream.config.reader import Section
from dpstream.config.sections import located, mechanism_name
from dpstream.counters import COUNTER_NAMES
from dpstream.schema.domain import Domain
from dpstream.tables import Workload
from dpstream.tabular import MWEMPGM, Baseline, DPStabs
from dpstream.tabular.cells import SCORES

__all__ = ["Recipe", "read_recipe", "recipe_defaults"]

Recipe = DPStabs | Baseline


def recipe_defaults(kind: type[Any]) -> dict[str, Any]:
    """Field name -> default of a recipe, so that files and Python have the same ones."""
    fields = dataclasses.fields(kind)
    return {item.name: item.default for item in fields if item.default is not dataclasses.MISSING}


def read_recipe(section: Section, domain: Domain, *, deletions: bool) -> Recipe:
    """The recipe that ``[mechanism]`` names.

    Args:
        deletions: whether the source declares an operation column (a public fact); the baseline then runs its
            offline mechanism on inserts and on deletes at every step.

    Errors:
        ConfigError: an option that is unknown, unusable, or of another mechanism.
    """
    name = mechanism_name(section)
    workload = _workload(section, domain)
    if name == "dpstabs":
        return _dpstabs(section, workload)
    return _baseline(section, workload, deletions)


def _workload(section: Section, domain: Domain) -> Workload:
    if section.has("workload"):
        spec = section.raw("workload")
        chosen = f"{len(spec)} chosen marginals" if isinstance(spec, list) else str(spec)
        section.note("workload", chosen, default=False)
    else:
        single = len(domain) == 1
        spec = "all-1-way" if single else "all-2-way"
        section.note("workload", spec, default=True, reason="there is one column" if single else None)
    with located(section.place("workload")):
        return Workload.parse(domain, spec)


def _dpstabs(section: Section, workload: Workload) -> DPStabs:
    defaults = recipe_defaults(DPStabs)
    most = len(workload)
    k = section.raw("k") if section.has("k") else min(int(defaults["k"]), most)
    _note_k(section, k, f"marginals of {most}")
    with located(section.place()):
        return DPStabs(
            workload,
            k=_whole(section, "k", k),
            counter=section.choice("counter", COUNTER_NAMES, defaults["counter"]),
            score=section.choice("score", SCORES, defaults["score"]),  # type: ignore[arg-type]  # one of SCORES
            aggregate=section.choice("aggregate", _choices("aggregate"), defaults["aggregate"]),  # type: ignore[arg-type]
            past=section.choice("past", _choices("past"), defaults["past"]),  # type: ignore[arg-type]
            select_share=section.share("select_share", defaults["select_share"]),
            iterations=section.count("iterations", defaults["iterations"]) or 1,
            max_cells=section.count("max_cells", defaults["max_cells"]) or 1,
        )


def _baseline(section: Section, workload: Workload, deletions: bool) -> Baseline:
    defaults = recipe_defaults(MWEMPGM)
    k = section.raw("k") if section.has("k") else min(len(workload.domain), len(workload))
    _note_k(section, k, f"marginals of {len(workload)}")
    with located(section.place()):
        offline = MWEMPGM(
            k=_whole(section, "k", k),
            measure_share=section.share("measure_share", defaults["measure_share"]),
            score=section.choice("score", SCORES, defaults["score"]),  # type: ignore[arg-type]  # one of SCORES
            iterations=section.count("iterations", defaults["iterations"]) or 1,
            max_cells=section.count("max_cells", defaults["max_cells"]) or 1,
        )
    most = len(workload)
    if k > most:
        raise section.wrong("k", f"{k} is more than the workload's {most} marginals", f"1 to {most}")
    return Baseline(workload, offline=offline, deletions=deletions)


def _note_k(section: Section, k: Any, unit: str) -> None:
    section.note("k", f"{k} {unit}", default=not section.has("k"))


def _whole(section: Section, key: str, default: int) -> int:
    """A whole number from 1 as written, or ``default``; already noted."""
    value = section.raw(key) if section.has(key) else default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise section.wrong(key, f"{value!r} is not a whole number from 1")
    return value


def _choices(key: str) -> tuple[str, ...]:
    return tuple(keys_of("mechanism")[key].allowed.split(", "))
