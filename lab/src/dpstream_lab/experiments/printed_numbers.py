"""The numbers that the paper prints (Kumar, Strohmer, Vershynin 2024, Tables 1 to 3)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files

PRINTED_IN = (
    "Kumar, Strohmer, Vershynin, Differentially Private Synthetic High-dimensional Tabular Stream (2024), "
    "Tables 1 to 3"
)


@dataclass(frozen=True)
class PrintedNumber:
    """One printed number.

    Attributes:
        value: as printed: a mean over the last ten steps.
        target: False where the print is surely a slip (Adult-randomized-bs-200 has the same eight numbers at
            epsilon 2 and 4).
        table: where it stands.
    """

    value: float
    target: bool
    table: str


@cache
def published_kumar() -> dict[tuple[str, Fraction, str, str], PrintedNumber]:
    """(stream, epsilon, metric, method) -> what is printed; 240 numbers.

    Methods are ``baseline``, ``proposed-simple`` and ``proposed-block`` (three streams only).

    >>> published_kumar()["Adult-ordered-bs-50", Fraction(1), "AvgWE", "proposed-simple"].value
    0.008
    """
    text = files(__package__).joinpath("published_kumar.csv").read_text(encoding="utf-8")
    return {
        (row["stream"], Fraction(row["epsilon"]), row["metric"], row["method"]): PrintedNumber(
            float(row["value"]), row["target"] == "yes", row["source"]
        )
        for row in csv.DictReader(text.splitlines())
    }
