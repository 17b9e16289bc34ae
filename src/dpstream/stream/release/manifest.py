"""Manifests: what a release says about itself. Every field is public.

No input hash, no clock, no size of anything private: only the plan, the step, and the released files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dpstream
from dpstream.core.contracts import StreamPlan, Synthesis
from dpstream.core.privacy.budget import PureDP
from dpstream.core.privacy.unit import Event, User
from dpstream.families.tabular import BaselinePlan, PooledPlan
from dpstream.stream.declared import shown_public
from dpstream.stream.predecessor_cost import base_words

__all__ = ["MANIFEST_FORMAT", "Facts", "accuracy_of", "build_manifest", "pretty_json"]

MANIFEST_FORMAT = 1


@dataclass(frozen=True)
class Facts:
    """What changes from one manifest of a stream to the next."""

    step: int
    period: str | None
    total: float
    rows: int
    sampling_seed: int
    files: dict[str, bytes]
    made_with_test_seed: bool
    accuracy: dict[str, Any]
    #: About persistent records; None where every table is drawn anew.
    records: dict[str, Any] | None = None


def pretty_json(value: Any) -> bytes:
    """JSON for people and programs: stable order, one key a line."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def build_manifest(
    plan: StreamPlan, pinned: dict[str, Any], plan_hash: str, stream_id: str, facts: Facts
) -> bytes:
    """The manifest of one step; ``pinned`` are the facts the whole stream is pinned to."""
    manifest: dict[str, Any] = {
        "format": MANIFEST_FORMAT,
        "stream": pinned["stream"],
        "stream_id": stream_id,
        "step": facts.step,
        "period": facts.period,
        "guarantee": {**plan.budget.as_dict(), "words": _words(plan, facts, pinned)},
        "unit": _unit(plan),
        "relation": plan.unit.relation,
        "declared_public": shown_public(pinned),
        "source": pinned["source"],
        "spent": _spent(plan),
        "mechanism": {"name": plan.name, "options": pinned["options"], "parts": pinned["parts"]},
        "horizon": plan.horizon,
        "schema": pinned["schema"]["fingerprint"],
        "plan_hash": plan_hash,
        "program": {"name": "dpstream", "version": dpstream.__version__},
        "rows": _rows(facts.total),
        "rows_in_table": facts.rows,
        "sampling_seed": facts.sampling_seed,
        "accuracy": facts.accuracy,
        "files": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            for name, data in sorted(facts.files.items())
        },
        "made_with_test_seed": facts.made_with_test_seed,
    }
    if "base" in pinned:
        manifest["base"] = {**pinned["base"], "words": base_words(pinned["base"])}
    if facts.records is not None:
        manifest["records"] = facts.records
    return pretty_json(manifest)


def _unit(plan: StreamPlan) -> dict[str, Any]:
    unit: dict[str, Any] = {"name": plan.unit.name, "words": plan.unit.describe()}
    if isinstance(plan.unit, User):
        unit["max_events"] = plan.unit.max_events
        unit["each_event"] = str(plan.unit.per_event(plan.budget).amount)
    return unit


def accuracy_of(
    synthesis: Synthesis, names: Sequence[str], plan: StreamPlan, step: int, *, with_base: bool = False
) -> dict[str, Any]:
    """What the release says about its own errors; public scales and released choices only.

    Args:
        names: the columns, in the domain's order.
        plan: under the relation ``replace`` the total is no estimate; of a pooled one, which steps are measured.
        with_base: whether the stream began with another one's table.
    """
    own_words = synthesis.accuracy()
    if own_words is not None:
        return own_words
    measured = {} if synthesis.answers is None else synthesis.answers.measured
    errors = [one.standard_error for one in measured.values()]
    total, counts = (
        _total_words(synthesis.total_error, plan.unit.relation),
        _count_words(len(measured), plan, with_base),
    )
    own = {}
    if isinstance(plan, PooledPlan):
        last, following = plan.epochs.around(step)
        own = {"measured_up_to_step": last}
        counts = f"{_epoch_words(step, last, following)} {_COUNTS_OF_EPOCHS}"
    return {
        **own,
        "total_standard_error": synthesis.total_error,
        "measured_every_step": {
            "standard_error": max(errors, default=None),
            "marginals": [[names[i] for i in clique] for clique in measured],
        },
        "words": f"{total} {counts}",
    }


def _epoch_words(step: int, last: int, following: int) -> str:
    if step == last:
        return "All steps so far are measured."
    expected = "counts of the last step" if step == last + 1 else f"counts of the last {step - last} steps"
    return f"The {expected} are expected from those before, not measured; they will be with step {following}."


_COUNTS_OF_EPOCHS = (
    "No other count has an error bar: it joins measurements of whole groups of steps and answers of models, by a rule "
    "that follows what was measured, and no public noise scale tells how wrong it is."
)


def _total_words(error: float | None, relation: str) -> str:
    if relation == "replace":
        return "The number of records is declared public and has no noise."
    if error is None:
        return "The number of records is noisy, and its standard error is not known."
    return f"The number of records is noisy, with a standard error of {error:.3g}."


def _count_words(marginals: int, plan: StreamPlan, with_base: bool) -> str:
    if with_base:
        return "No other count has an error bar: part of every count comes from the table that the stream began with."
    if isinstance(plan, BaselinePlan):
        return (
            "No other count has an error bar: tables are drawn from models that are fitted to each step's "
            "measurements, and no public noise scale tells how wrong a model is."
        )
    if not marginals:
        return (
            "No other count has an error bar: the plan measures no marginal at every step, so part of every count "
            "is what the model expects, and no public noise scale tells how wrong it is."
        )
    which = "The listed marginal is" if marginals == 1 else f"The {marginals} listed marginals are"
    return (
        f"{which} measured at every step: counts over the columns of one of them, or of some of its columns, "
        "have error bars; all other counts have none, because part of them is what the model expects."
    )


def _rows(total: float) -> int:
    return max(0, round(total))


def _spent(plan: StreamPlan) -> dict[str, Any]:
    """Every step costs each unit in it the whole budget; a unit of an event relation is mostly in one step only."""
    amount = str(plan.budget.amount)
    own = plan.composition()
    if own is not None:
        composition = own
    elif isinstance(plan.unit, Event):
        composition = (
            "parallel over steps: every event is in one step, so the total is that of any single step"
        )
    elif isinstance(plan.unit, User):
        composition = (
            f"group privacy: each of a user's {plan.unit.max_events} events, in whichever steps, costs "
            f"{plan.unit.per_event(plan.budget)}, and the total is that of all of them; charged in full at the first "
            "step"
        )
    else:
        composition = "the budget of a person's whole history, charged in full at the first step"
    return {"step": amount, "total": amount, "planned": amount, "composition": composition}


def _words(plan: StreamPlan, facts: Facts, pinned: Mapping[str, Any]) -> str:
    definition = "pure differential privacy" if isinstance(plan.budget, PureDP) else "zero-concentrated DP"
    words = (
        f"All releases of this stream up to and including step {facts.step}, taken together, satisfy "
        f"{definition} with {plan.budget}; what is protected is {plan.unit.describe()}."
    )
    if "base" in pinned:
        words += f" {base_words(pinned['base'])}"
    if facts.made_with_test_seed:
        return (
            "NO GUARANTEE: this stream was made with a test seed, whose noise can be predicted. "
            "With real entropy it would read: " + words
        )
    return words
