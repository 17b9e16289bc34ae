"""Points in a configuration file: the options, and what does not go with them."""

from __future__ import annotations

from typing import Any, cast, get_args

from dpstream.core.contracts import StreamPlan
from dpstream.core.privacy import Unit
from dpstream.core.schema import Schema
from dpstream.families.points import PointsStream, PointsStreamPlan, Variant
from dpstream.project.keys import recipe_defaults
from dpstream.project.points_keys import POINTS
from dpstream.project.reader import Section, shown
from dpstream.project.sections import located, mechanism_name, names_one_of

__all__ = ["check_points_unit", "describe_points", "is_points", "read_points"]


def is_points(section: Section) -> bool:
    """Whether ``[mechanism]`` names points; ConfigError where it names no mechanism."""
    return names_one_of(section, POINTS)


def check_points_unit(section: Section, unit: Unit) -> None:
    """Points need public sizes of steps; said here, where the remedy can be.

    Errors:
        ConfigError: another unit than event-replace.
    """
    if unit.name != "event-replace":
        raise section.wrong(
            "unit" if section.has("unit") else "total",
            f"points cannot protect the unit {unit.name!r}: their clock counts points, so their number is public",
            'total = "public" (the unit becomes event-replace)',
        )


def read_points(section: Section, schema: Schema) -> PointsStream:
    """The recipe.

    Errors:
        ConfigError: an option that is unknown, unusable, or of another mechanism.
    """
    mechanism_name(section)
    defaults = recipe_defaults(PointsStream)
    variant = section.choice("variant", get_args(Variant), defaults["variant"])
    depth = section.count("max_depth", defaults["max_depth"])
    assert depth is not None  # it has a default
    log, periodic = _columns(section, "log"), _columns(section, "periodic")
    with located(section.place()):
        return PointsStream(schema, cast(Variant, variant), depth, log, periodic)


def _columns(section: Section, key: str) -> tuple[str, ...]:
    if not section.has(key):
        section.note(key, "none", default=True)
        return ()
    given = section.raw(key)
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise section.wrong(key, f"{shown(given)} is no list of columns")
    section.note(key, ", ".join(given), default=False)
    return tuple(given)


def describe_points(plan: StreamPlan) -> dict[str, Any] | None:
    """From which point on there are cells of which depth; None for other mechanisms."""
    if not isinstance(plan, PointsStreamPlan):
        return None
    schedule = plan.core.schedule
    return {
        "words": plan.describe(),
        "coordinates": plan.coordinates,
        "categories": plan.space.categories,
        "first_cells": schedule.start(1),
        "most_points": plan.core.horizon,
        "depths": [
            {"depth": depth, "cells": 2**depth, "from_point": schedule.start(depth)}
            for depth in range(1, plan.space.depth + 1)
            if schedule.start(depth) <= plan.core.horizon
        ],
    }
