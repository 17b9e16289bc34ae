"""The options of a classifier (``black_box = "erm"``), and the black box that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpstream.core.contracts import Given, SectionReader, located, option, read_fields
from dpstream.families.growing.erm import ERM
from dpstream.families.growing.erm_loss import LossName


def _predictors(section: SectionReader, given: Given, earlier: Mapping[str, Any]) -> tuple[str, ...] | None:
    return section.columns("predictors", "all others")


@dataclass(frozen=True)
class ErmOptions:
    """The options of a classifier; they mean what the arguments of ``ERM.of_schema`` mean."""

    target: str = option(
        allowed="a column of two or more values, with black_box = erm",
        shown="not set; needed with black_box = erm",
        reason="only the owner knows what is to be predicted",
        meaning="The column that a classifier predicts.",
    )
    positive: str | None = option(
        None,
        allowed="a label of the target, with black_box = erm",
        shown="its second label",
        reason="for a boolean target that is true",
        meaning="The value of the target that counts as positive; all others are negative.",
    )
    predictors: tuple[str, ...] | None = option(
        None,
        allowed="a list of columns, with black_box = erm",
        shown="all other columns",
        reason="a choice of columns needs knowledge; fewer features mean less noise",
        meaning="The columns to predict from. Together with the target they have at most 10^7 combinations of values.",
        read=_predictors,
    )
    numbers: tuple[str, ...] = option(
        (),
        allowed="a list of integer, real or date columns, with black_box = erm",
        reason="a feature for each bin can follow any shape",
        meaning="Predictors that are taken as one number each, by the position of the bin: far fewer features.",
    )
    loss: LossName = option(
        "logistic",
        allowed="logistic, svm, with black_box = erm",
        reason="it gives probabilities",
        meaning="Logistic regression, or a linear support vector machine with a rounded hinge.",
    )
    radius: float | None = option(
        None,
        allowed="a positive number, with black_box = erm",
        shown="sqrt(columns * features) / 2",
        reason="half a unit for each feature of each column",
        meaning="The norm of the coefficients that regularisation and noise are balanced for; a public guess.",
    )


def read_erm(section: SectionReader, given: Given, earlier: Mapping[str, Any]) -> ERM:
    """The black box that the options describe.

    Errors:
        ConfigError: an option that is unknown or unusable. SchemaError: an unknown column.
    """
    chosen = ErmOptions(**read_fields(section, ErmOptions, given))
    schema = given.schema
    if schema is None:
        raise section.wrong("target", "a classifier needs a schema: labels and bins", "a file with [schema]")
    with located(section.place()):
        box = ERM.of_schema(
            schema,
            chosen.target,
            positive=chosen.positive,
            columns=chosen.predictors,
            numbers=chosen.numbers,
            loss=chosen.loss,
            radius=chosen.radius,
        )
    if chosen.positive is None:
        section.note("positive", schema[chosen.target].labels()[box.features.positive], default=True)
    if chosen.radius is None:
        section.note("radius", f"{box.assumed_radius:.4g}", default=True)
    return box
