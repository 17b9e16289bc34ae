"""The options of the mechanism that is asked, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpstream.core.contracts import Given, Option, SectionReader
from dpstream.core.contracts.recipe_options import NUMBER


def _coefficient(section: SectionReader, given: Given, earlier: Mapping[str, Any]) -> Any:
    """The coefficient as it is written: it has no upper end, and the recipe reads it exactly."""
    if section.has("coefficient"):
        section.note("coefficient", str(section.raw("coefficient")), default=False)
    return section.raw("coefficient")


ALPHA = Option(
    'an exact number between 0 and 1, such as "0.1"',
    "The accuracy aimed at, as a share of the records: a question is hard where a noisy test finds the public "
    "histogram further from the truth than two thirds of it.",
)
START = Option(
    "a number of records from 2",
    "How many records there are before the first question. Public; the noise is made for it.",
)
HARD_QUESTIONS = Option(
    "a number from 1",
    "How many hard questions the budget has to pay at least; the noise is made for them. Theory then promises nothing, "
    "and every answer says how far its noise may carry it.",
    "theory's own noise pays for 36 log(cells)/alpha^2 hard questions and more, and is rarely of use",
    "not set",
)
LEARNING = Option(
    meaning="What the histogram learns from a hard question: a step of alpha/6, or as little as makes it give the "
    "number.",
    reason="theory is about the published step",
)
ARRIVALS = Option(
    meaning="What the histogram takes new records to be: spread evenly over all cells, or like those before. With "
    "`uniform` it forgets what it learned as the table grows.",
    reason="theory is about the published rule",
)
EXPONENT = Option(
    'an exact number from 1/4 to below 1, such as "1/2"',
    "How fast the noise falls with the number t of records: numbers have noise of scale 8/xi, xi = c t^exponent, "
    "as shares of the records.",
    "the published one",
)
NOISE = Option(
    meaning="Which c, where neither hard_questions nor coefficient says it.",
    reason="the published constants leave a part of the budget that theory can never spend",
)
COEFFICIENT = Option(
    "an exact positive number",
    "The c of xi itself. It is refused where the questions that theory may need could cost more than the budget.",
    "the largest one that fits is known",
    "not set",
    read=_coefficient,
    fragment=NUMBER,
)
