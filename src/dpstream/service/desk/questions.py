"""What a question may cost, from the plan and from what the worker told of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError
from dpstream.service.desk.facts import Price, rounded_up

if TYPE_CHECKING:
    from dpstream.project import Config


def price_of(config: Config, question: str, facts: Mapping[str, Any]) -> Price:
    """The price of a question.

    Args:
        facts: what the worker told of the stream; ``asked`` has ``most``, ``spent`` and ``planned``.

    Errors:
        ConfigError, SchemaError: the stream is not asked, has told nothing yet, or holds steps back; or the question
        cannot be read.
    """
    plan = config.plan()
    asks = plan.asks
    if asks is None:
        raise ConfigError(
            "the stream is not asked: its releases answer questions already",
            where="ask",
            allowed="another stream",
        )
    understood = asks.read_question(question, config.schema())[1]
    if facts.get("held"):
        raise ConfigError(
            "steps wait for approval, and an answer would tell of them",
            where="ask",
            allowed="after they are approved or rejected",
        )
    asked = facts.get("asked")
    if asked is None:
        raise ConfigError(
            "there are no records yet, or the worker has not looked",
            where="ask",
            allowed="after the first step",
        )
    name = str(plan.budget).partition(" = ")[0]
    most = f"{name} = {rounded_up(asked['most'])}" if Fraction(asked["most"]) else None
    words = (
        "An answer to a question that was asked at this step, or whose opposite was, costs nothing, and one that the "
        "public histogram gives costs nothing more than its test. "
    )
    words += "The budget pays for no further test." if most is None else f"No answer costs more than {most}."
    return Price(understood, str(asked["most"]), str(asked["spent"]), str(asked["planned"]), words)
