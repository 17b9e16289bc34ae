"""The mechanism that is asked, in a configuration file: the options, and what does not go with them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, cast, get_args

from dpstream.core.contracts import StreamPlan
from dpstream.core.privacy import Unit
from dpstream.core.privacy.unit import Event
from dpstream.core.schema.domain import Domain
from dpstream.families.growing.pmwg import PMWG, Arrivals, Learning, NoiseVariant, PMWGPlan
from dpstream.project.asking_keys import ASKING
from dpstream.project.keys import recipe_defaults
from dpstream.project.reader import Section
from dpstream.project.sections import located, mechanism_name, names_one_of

__all__ = ["check_asking_unit", "describe_asking", "is_asking", "read_asking"]


def is_asking(section: Section) -> bool:
    """Whether ``[mechanism]`` names one that is asked; ConfigError where it names no mechanism."""
    return names_one_of(section, ASKING)


def check_asking_unit(section: Section, unit: Unit) -> None:
    """Answers are shares of the number of records; said here, where the remedy can be.

    Errors:
        ConfigError: another unit than event-replace.
    """
    if unit != Event("replace"):
        raise section.wrong(
            "unit" if section.has("unit") else "total",
            f"questions cannot protect the unit {unit.name!r}: answers are shares of the number of records, so it is "
            "public",
            'total = "public" (the unit becomes event-replace)',
        )


def read_asking(section: Section, domain: Domain) -> PMWG:
    """The recipe.

    Errors:
        ConfigError: an option that is unknown or unusable. LimitError: too many cells.
    """
    mechanism_name(section)
    defaults = recipe_defaults(PMWG)
    section.required("alpha")
    section.required("start")
    start = section.count("start")
    assert start is not None  # required
    options: dict[str, Any] = {
        "alpha": section.share("alpha", Fraction(1, 10)),
        "exponent": section.share("exponent", Fraction(defaults["exponent"])),
        "noise": cast(NoiseVariant, section.choice("noise", get_args(NoiseVariant), defaults["noise"])),
        "hard_questions": section.count("hard_questions"),
        "coefficient": section.raw("coefficient") if section.has("coefficient") else None,
        "arrivals": cast(Arrivals, section.choice("arrivals", get_args(Arrivals), defaults["arrivals"])),
        "learning": cast(Learning, section.choice("learning", get_args(Learning), defaults["learning"])),
    }
    if options["coefficient"] is not None:
        section.note("coefficient", str(options["coefficient"]), default=False)
    with located(section.place()):
        return PMWG(domain, start=start, **options)


def describe_asking(plan: StreamPlan) -> dict[str, Any] | None:
    """Noise and promise at the start; None for other mechanisms."""
    if not isinstance(plan, PMWGPlan):
        return None
    xi = plan.noise.value(plan.first)
    return {
        "words": plan.describe(),
        "start": plan.first,
        "cells": plan.universe.cells,
        "threshold": float(plan.sparse.threshold),
        "noise_of_numbers": 8 / xi,
        "hard_questions": plan.hard_left(plan.start().books, 0, plan.first),
        "promise": plan.promise.words,
    }
