"""Classifiers in a configuration file: a scheduler or an improver whose black box is ``erm``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast, get_args

from dpstream.core.schema import Schema
from dpstream.families.growing import BBImprover, BBScheduler
from dpstream.families.growing.erm import ERM
from dpstream.families.growing.erm_loss import LossName
from dpstream.families.growing.growing_plan import GrowingPlan
from dpstream.project.reader import Section, shown
from dpstream.project.sections import located

__all__ = ["ClassifierRecipe", "read_erm"]


@dataclass(frozen=True)
class ClassifierRecipe:
    """The recipe of a scheduler or an improver that releases classifiers."""

    rerun: BBScheduler | BBImprover

    def calibrate(self, **amounts: Any) -> GrowingPlan:
        """See ``BBScheduler.calibrate``."""
        return self.rerun.calibrate(**amounts)


def read_erm(section: Section, schema: Schema) -> ERM:
    """The black box.

    Errors:
        ConfigError: an option that is unknown or unusable. SchemaError: an unknown column.
    """
    if section.has("workload"):
        raise section.wrong("workload", "black_box = 'erm' preserves no marginals", "another black_box")
    target = section.text("target")
    positive = None
    if section.has("positive"):
        positive = section.text("positive")
    predictors, numbers = _columns(section, "predictors"), _columns(section, "numbers")
    loss = cast(LossName, section.choice("loss", get_args(LossName), "logistic"))
    radius = section.number("radius", 1.0) if section.has("radius") else None
    with located(section.place()):
        box = ERM.of_schema(
            schema,
            target,
            positive=positive,
            columns=predictors,
            numbers=numbers or (),
            loss=loss,
            radius=radius,
        )
    if positive is None:
        section.note("positive", schema[target].labels()[box.features.positive], default=True)
    if radius is None:
        section.note("radius", f"{box.assumed_radius:.4g}", default=True)
    return box


def _columns(section: Section, key: str) -> tuple[str, ...] | None:
    """A list of columns; None where the file has none."""
    if not section.has(key):
        section.note(key, "all others" if key == "predictors" else "none", default=True)
        return None
    given = section.raw(key)
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise section.wrong(key, f"{shown(given)} is no list of columns")
    section.note(key, ", ".join(given), default=False)
    return tuple(given)
