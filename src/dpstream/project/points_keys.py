"""Keys of points; part of the table in ``keys.py``."""

from __future__ import annotations

from dataclasses import fields

from dpstream.families.points import PointsStream
from dpstream.project.output_keys import Key

__all__ = ["POINTS", "POINTS_KEYS"]

POINTS = ("points",)
_DEFAULT = {field.name: str(field.default) for field in fields(PointsStream)}

POINTS_KEYS: tuple[Key, ...] = (
    Key(
        "mechanism",
        "variant",
        "default, paper",
        _DEFAULT["variant"],
        "calibrated budgets and thresholds, the same guarantee, smaller errors",
        "The online synthesizer as it is here, or as published (`paper`).",
        POINTS,
    ),
    Key(
        "mechanism",
        "max_depth",
        "1 to 24",
        _DEFAULT["max_depth"],
        "about a million cells: finer ones would come after some ten million points at epsilon 1",
        "No cells of points are deeper: 2^max_depth cells are the most that memory must hold.",
        POINTS,
    ),
    Key(
        "mechanism",
        "log",
        'a list of columns such as ["price"]',
        "none",
        "halves of an interval are as wide as each other",
        "Coordinates that are cut on a logarithmic scale: halves have equal ratios. Bounds above 0.",
        POINTS,
    ),
    Key(
        "mechanism",
        "periodic",
        'a list of columns such as ["hour"]',
        "none",
        "a coordinate has two ends",
        "Coordinates on a circle: a real column's upper bound is its lower one again (hour 24 is hour 0). Whole "
        "numbers, say 0 to 23, stay what they are.",
        POINTS,
    ),
)
