"""What a plan says to a person: the guarantee, what each part costs, and how noisy it is. Public.

``plan`` is a ``StreamPlan``, whose module imports this one.
"""

from __future__ import annotations

from typing import Any

from dpstream.core.showing import notebook_page

__all__ = ["plan_html", "plan_text"]


def _promise(plan: Any) -> str:
    steps = "any number of steps" if plan.horizon is None else f"at most {plan.horizon} steps"
    return f"All releases together, of {steps}, satisfy {plan.budget}; what is protected is {plan.unit.describe()}."


def plan_text(plan: Any) -> str:
    """For ``print``."""
    lines = [f"Plan of {plan.name}", _promise(plan)]
    lines += [f"  {part.name}: {part.times} x {part.budget}; {part.detail}" for part in plan.parts()]
    return "\n".join(lines)


def plan_html(plan: Any) -> str:
    """For a notebook."""
    rows = [(part.name, part.times, part.budget, part.detail) for part in plan.parts()]
    facts = {"guarantee": _promise(plan), "columns": ", ".join(plan.domain.names)}
    return notebook_page(f"Plan of {plan.name}", facts, ("part", "times", "each costs", "how"), rows)
