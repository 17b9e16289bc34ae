"""``[accuracy]`` of a file: headline marginals, and what is found out about errors."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpstream.core.contracts import HEADLINE_SHARE, Headline, StreamRecipe, shown
from dpstream.core.errors import ConfigError
from dpstream.project.reader import Section

_SECONDS = 600


@dataclass(frozen=True)
class AccuracyOptions:
    """The section as values.

    Attributes:
        simulate: runs of a simulation at each border that doubles; None for none.
        simulate_seconds: CPU seconds after which such a simulation begins no further run.
    """

    simulate: int | None = None
    simulate_seconds: int = _SECONDS


def read_headline(section: Section) -> tuple[Headline, Fraction]:
    """``headline`` and ``headline_share``; whether the columns are there is for the recipe to say.

    Errors:
        ConfigError: no list of lists of columns; a share that is none, or without a headline.
    """
    if not section.has("headline"):
        if section.has("headline_share"):
            raise section.wrong(
                "headline_share",
                "a share is set for headlines, and there are none",
                "a headline, or no share",
            )
        return (), HEADLINE_SHARE
    given = section.raw("headline")
    if not isinstance(given, list) or not all(
        isinstance(one, list) and one and all(isinstance(name, str) for name in one) for one in given
    ):
        raise section.wrong("headline", f"{shown(given)} is no list of marginals")
    if not given:
        raise section.wrong("headline", "no marginal is named", "one marginal or more, or no headline")
    headline = tuple(tuple(one) for one in given)
    section.note("headline", ", ".join(" x ".join(one) for one in headline), default=False)
    return headline, section.share("headline_share", HEADLINE_SHARE)


def check_headline_taken(section: Section, recipe: StreamRecipe) -> None:
    """ConfigError where the mechanism measures no headlines."""
    if section.has("headline") and not hasattr(recipe, "headline"):
        raise ConfigError(
            "the mechanism of this file measures no headlines",
            where=section.place("headline"),
            allowed='[mechanism] name = "pooled" or "census"',
        )


def read_accuracy(section: Section) -> AccuracyOptions:
    """``[accuracy]``.

    Errors:
        ConfigError: a number that cannot be used, or a limit of nothing.
    """
    simulate = section.count_or_word("simulate", "none")
    if simulate is not None and not 2 <= simulate <= 1000:
        what = "one run tells no spread" if simulate < 2 else f"{simulate} runs are more than are ever needed"
        raise section.wrong("simulate", what)
    if simulate is None and section.has("simulate_seconds"):
        raise section.wrong(
            "simulate_seconds", "it limits simulations, and there are none", "only with simulate"
        )
    seconds = _SECONDS if simulate is None else section.count("simulate_seconds", _SECONDS)
    return AccuracyOptions(simulate, seconds or _SECONDS)
