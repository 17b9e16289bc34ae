"""Keys of the mechanism that is asked; part of the table in ``keys.py``."""

from __future__ import annotations

from dataclasses import fields

from dpstream.families.growing.pmwg import PMWG
from dpstream.project.output_keys import Key

__all__ = ["ASKING", "ASKING_KEYS"]

#: Mechanisms that answer questions (``dpstream ask``).
ASKING = ("pmwg",)
_DEFAULT = {field.name: str(field.default) for field in fields(PMWG)}

ASKING_KEYS: tuple[Key, ...] = (
    Key(
        "mechanism",
        "alpha",
        'an exact number between 0 and 1, such as "0.1"',
        None,
        "",
        "The accuracy aimed at, as a share of the records: a question is hard where the public histogram is further "
        "from the truth than two thirds of it, as far as noise lets it be seen.",
        ASKING,
    ),
    Key(
        "mechanism",
        "start",
        "a number of records from 2",
        None,
        "",
        "How many records there are before the first question. Public; the noise is made for it.",
        ASKING,
    ),
    Key(
        "mechanism",
        "hard_questions",
        "a number from 1",
        "not set",
        "theory's own noise pays for 36 log(cells)/alpha^2 hard questions and more, and is rarely of use",
        "Noise for which at least so many hard questions can be paid; theory then promises nothing, and every answer "
        "tells how far the noise can carry it.",
        ASKING,
    ),
    Key(
        "mechanism",
        "learning",
        "text, matching",
        _DEFAULT["learning"],
        "theory is about the published step",
        "What the histogram learns from a hard question: a step of alpha/6, or as little as makes it give the number.",
        ASKING,
    ),
    Key(
        "mechanism",
        "arrivals",
        "uniform, alike",
        _DEFAULT["arrivals"],
        "theory is about the published rule",
        "What the histogram takes new records to be: spread evenly over all cells, or like those before. With "
        "`uniform` it forgets what it learned as the table grows.",
        ASKING,
    ),
    Key(
        "mechanism",
        "exponent",
        'an exact number from 1/4 to below 1, such as "1/2"',
        _DEFAULT["exponent"],
        "the published one",
        "How fast the noise falls with the number t of records: numbers have noise of scale 8/xi, xi = c t^exponent, "
        "as shares of the records.",
        ASKING,
    ),
    Key(
        "mechanism",
        "noise",
        "largest, published",
        _DEFAULT["noise"],
        "the published constants leave a part of the budget that theory can never spend",
        "Which c, where neither hard_questions nor coefficient says it.",
        ASKING,
    ),
    Key(
        "mechanism",
        "coefficient",
        "an exact positive number",
        "not set",
        "the largest one that fits is known",
        "c itself; refused where all questions that theory may need could pass the budget.",
        ASKING,
    ),
)
