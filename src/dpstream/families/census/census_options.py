"""What may be chosen of a census, as files give it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

from dpstream.core.contracts import Option, RecipeContext, SectionReader, shown
from dpstream.core.contracts.recipe_options import NUMBER
from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy.budget import Amount, exact_amount

T = TypeVar("T")
Turnover = Amount | None
_TURNOVERS = 'steps such as 3, 10 or 30, or "none"'
_RATIO = "size / records_per_step of [expect]"


def check_turnover(value: Turnover) -> Fraction | None:
    """Steps in which as many records come as the table holds; None: hardly any leave.

    Errors:
        ConfigError: neither a positive number nor "none".
    """
    if value is None or value == "none":
        return None
    try:
        return exact_amount(value, where="turnover")
    except BudgetError:
        raise ConfigError(f"turnover = {shown(value)}", where="mechanism", allowed=_TURNOVERS) from None


def _turnover(section: SectionReader, given: RecipeContext, found: Mapping[str, Any]) -> Turnover:
    if section.has("turnover"):
        steps = _checked(section, "turnover", check_turnover, "turnover", _TURNOVERS)
        section.note("turnover", "none" if steps is None else f"{steps} steps", default=False)
        return steps
    if given.turnover is None:
        section.required("turnover")
        return None
    section.note("turnover", f"{given.turnover} steps", default=True, reason=_RATIO)
    return given.turnover


def _checked(section: SectionReader, key: str, check: Callable[[Any], T], what: str, allowed: str) -> T:
    """The value of a key, as ``check`` reads it."""
    try:
        return check(section.raw(key))
    except ConfigError:
        raise section.wrong(key, f"{shown(section.raw(key))}: expected a {what}", allowed) from None


TURNOVER = Option(
    _TURNOVERS,
    "Steps in which as many records come as are present, by a public guess: sets the censuses.",
    "never compute it from the private table",
    _RATIO,
    read=_turnover,
    fragment={"anyOf": [NUMBER, {"enum": ["none"]}]},
)
