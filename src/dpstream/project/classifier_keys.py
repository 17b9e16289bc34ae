"""Keys of classifiers in growing databases (``black_box = "erm"``); part of the table in ``keys.py``."""

from __future__ import annotations

from dpstream.project.growing_keys import GROWING
from dpstream.project.output_keys import Key

__all__ = ["CLASSIFIER_KEYS", "CLASSIFIER_WORDS"]

CLASSIFIER_KEYS: tuple[Key, ...] = (
    Key(
        "mechanism",
        "target",
        "a column of two or more values, with black_box = erm",
        "not set; needed with black_box = erm",
        "only the owner knows what is to be predicted",
        "The column that a classifier predicts.",
        GROWING,
    ),
    Key(
        "mechanism",
        "positive",
        "a label of the target, with black_box = erm",
        "its second label",
        "for a boolean target that is true",
        "The value of the target that counts as positive; all others are negative.",
        GROWING,
    ),
    Key(
        "mechanism",
        "predictors",
        "a list of columns, with black_box = erm",
        "all other columns",
        "a choice of columns needs knowledge; fewer features mean less noise",
        "The columns to predict from. Together with the target they have at most 10^7 combinations of values.",
        GROWING,
    ),
    Key(
        "mechanism",
        "numbers",
        "a list of integer, real or date columns, with black_box = erm",
        "none",
        "a feature for each bin can follow any shape",
        "Predictors that are taken as one number each, by the position of the bin: far fewer features.",
        GROWING,
    ),
    Key(
        "mechanism",
        "loss",
        "logistic, svm, with black_box = erm",
        "logistic",
        "it gives probabilities",
        "Logistic regression, or a linear support vector machine with a rounded hinge.",
        GROWING,
    ),
    Key(
        "mechanism",
        "radius",
        "a positive number, with black_box = erm",
        "sqrt(columns * features) / 2",
        "half a unit for each feature of each column",
        "The norm of the coefficients that regularisation and noise are balanced for; a public guess.",
        GROWING,
    ),
)
CLASSIFIER_WORDS = tuple(key.name for key in CLASSIFIER_KEYS)
