"""A stream that begins with the last release of another: what it is pinned to, and what both cost together.

Guarantee: the base is public, so starting from it costs nothing (post-processing); the successor's own releases have
their own guarantee for the events of its own steps. Where a public border in time puts every event into exactly one
of the streams, all of them together cost the largest of their budgets (parallel composition); otherwise, and
always where a user's events may lie on both sides, the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dpstream.core.contracts import StartTable
from dpstream.core.privacy.budget import ZCDP, Budget, PureDP
from dpstream.core.privacy.convert import pure_to_zcdp
from dpstream.stream.ledger.limit import budget_from_dict, compose

__all__ = ["Base", "Together", "base_words", "together"]

Together = Literal["parallel", "sum"]


@dataclass(frozen=True)
class Base:
    """The public release that a stream begins with.

    Attributes:
        facts: the public facts about it that the stream is pinned to, JSON-able.
        table: reads the table, once, when the stream is started; its state holds all that is needed afterwards.
        known: whether a stream that was started is pinned to these facts.
    """

    facts: dict[str, Any]
    table: Callable[[], StartTable]
    known: bool = False

    @property
    def seeded(self) -> bool:
        """Whether it was made with predictable noise."""
        return bool(self.facts["made_with_test_seed"])


def together(budgets: Sequence[Budget], rule: Together) -> Budget:
    """What some streams cost one unit together.

    >>> together([PureDP.of(1), PureDP.of(2)], "parallel"), together([PureDP.of(1), PureDP.of(2)], "sum")
    (PureDP(epsilon=Fraction(2, 1)), PureDP(epsilon=Fraction(3, 1)))
    >>> together([PureDP.of(1), ZCDP.of("1/8")], "parallel")
    ZCDP(rho=Fraction(1, 2))
    """
    if rule == "sum":
        total = compose(budgets)
        return ZCDP(total.rho) if total.epsilon is None else PureDP(total.epsilon)
    pure = [budget for budget in budgets if isinstance(budget, PureDP)]
    if len(pure) == len(budgets):
        return max(pure, key=lambda budget: budget.epsilon)
    rhos = [pure_to_zcdp(budget).rho if isinstance(budget, PureDP) else budget.rho for budget in budgets]
    return ZCDP(max(rhos))


def base_words(facts: Mapping[str, Any]) -> str:
    """The facts about a base in sentences, for manifests, plans and statements."""
    composition = facts["composition"]
    names = ", ".join(
        f"{one['stream']!r} ({budget_from_dict(one['budget'])})" for one in composition["periods"]
    )
    period = "" if facts["period"] is None else f" ({facts['period'].replace('/', ' to ')})"
    both = budget_from_dict(composition["together"])
    gone = facts["withdrawn_since"]
    steps = f"step {gone[0]} was" if len(gone) == 1 else f"steps {', '.join(map(str, gone))} were"
    lost = f" Its {steps} withdrawn, and what came in then is in no table." if gone else ""
    return (
        f"The stream began with the public release of step {facts['step']}{period} of the stream {facts['stream']!r}, "
        f"mapped to its own columns by a declared rule.{lost} All releases of {names} and of this stream together: "
        f"{both}, because {composition['why']}."
    )
