"""A stream that begins with the last release of another: what it is pinned to, and what both cost together.

Guarantee: the base is public, so starting from it costs nothing (post-processing); the successor's own releases have
their own guarantee for the events of its own steps. Where a public border in time puts every event into exactly one
of the streams, all of them together cost the largest of their budgets (parallel composition); otherwise, and
always where a user's events may lie on both sides, the sum.

Trusted base: kernel (adds up what streams cost).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dpstream.core.contracts import StartTable
from dpstream.core.privacy import ZCDP, Budget, PureDP, pure_to_zcdp
from dpstream.stream.ledger.limit import budget_from_dict, compose

Together = Literal["parallel", "sum"]


@dataclass(frozen=True)
class Broken:
    """Why some streams cost more together than was pinned when the last of them was started.

    Attributes:
        words: what happened.
        again: the budget of a stream that has drawn a published step twice; None where a border was crossed.
    """

    words: str
    again: Budget | None = None


@dataclass(frozen=True)
class Base:
    """The public release that a stream begins with.

    Attributes:
        facts: the public facts about it that the stream is pinned to, JSON-able.
        table: reads the table, once, when the stream is started; its state holds all that is needed afterwards.
        known: whether a stream that was started is pinned to these facts.
        broken: why what they say of all streams together does not hold any more.
    """

    facts: dict[str, Any]
    table: Callable[[], StartTable]
    known: bool = False
    broken: tuple[Broken, ...] = ()

    def told(self, budget: Budget) -> dict[str, Any]:
        """The facts as they are now, where this stream has ``budget``: after a broken border all budgets add up."""
        composition = self.facts["composition"]
        budgets = [budget_from_dict(period["budget"]) for period in composition["periods"]]
        budgets += [one.again for one in self.broken if one.again is not None]
        rule: Together = "sum" if self.broken else composition["rule"]
        found = {**composition, "rule": rule, "together": together([*budgets, budget], rule).as_dict()}
        if not self.broken:
            return {**self.facts, "composition": found}
        broken = [one.words for one in self.broken]
        found |= {"border": None, "why": "each of them may have seen the same records"}
        return {**self.facts, "composition": found, "broken": broken}

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


def covered(budget: Budget, base: Mapping[str, Any] | None) -> Budget:
    """What the guarantee of all that a stream publishes is: its ``budget``, or with another stream's table in it, what
    both cost together. An old record has lost the old stream's budget, whatever this one has."""
    return budget if base is None else budget_from_dict(base["composition"]["together"])


def own_budget(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The budget of a manifest's stream without the one that it began with."""
    found: Mapping[str, Any] = (
        manifest.get("base", {}).get("composition", {}).get("own", manifest["guarantee"])
    )
    return {key: value for key, value in found.items() if key != "words"}


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
    lost = f" Its {steps} withdrawn; its records are in no table." if gone else ""
    least = "at least " if "broken" in facts else ""
    return (
        f"The stream began with the public release of step {facts['step']}{period} of the stream {facts['stream']!r}, "
        f"mapped to its own columns by a declared rule.{lost} All releases of {names} and of this stream together: "
        f"{least}{both}, because {composition['why']}."
    )


def broken_words(broken: Sequence[str]) -> str:
    """That a pinned sum does not hold, and why; nothing where it does."""
    return f"THE PUBLISHED GUARANTEE DOES NOT HOLD: {'; '.join(broken)}. " if broken else ""
