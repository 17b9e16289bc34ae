"""What a stream is pinned to: the public facts that may not change between steps, and their hash.

Trusted base: kernel (pins what the guarantee rests on).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts import StreamPlan
from dpstream.core.counters import COUNTER_NAMES, counter_by_name
from dpstream.core.errors import BudgetError, ConfigError, DpstreamError, UnitError
from dpstream.core.paths import sha256_hex
from dpstream.core.privacy.unit import Record, User
from dpstream.stream.declared import declared_public, named_source

if TYPE_CHECKING:
    from dpstream.core.schema import Schema

#: How a stream goes on under another plan.
_SUCCESSOR = "dpstream init --after, with the old file; or another state directory, which spends anew"


#: Of files that were read the facts hold hashes.
_FILES = ("schema.constraints.files.", "options.prior.sha256")
#: What follows from other facts is said where nothing else differs.
_FOLLOWS = ("parts ", "schema.fingerprint ")


def canonical_json(value: Any) -> bytes:
    """One spelling per value: sorted keys, no blanks, UTF-8, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def plan_facts(
    plan: StreamPlan,
    schema: Schema,
    name: str,
    source: Mapping[str, Any] | None = None,
    given: Sequence[str] = (),
    base: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything public that the guarantee rests on, JSON-able and exact.

    Args:
        source: how records are cut into steps; None where the caller cuts them.
        given: what that cut declares public, in sentences.
        base: the release that the stream begins with (``Base.facts``).

    Errors:
        BudgetError: the plan's parts do not add up to its budget.
        ConfigError: the plan was made for another domain than the schema's.
    """
    planned, declared = plan.domain, schema.domain
    derived = planned.derived, planned.trees
    if planned != declared or derived != (declared.derived, declared.trees):
        columns = zip(planned.released.names, planned.released.sizes, strict=True)
        raise ConfigError(
            "the plan was calibrated for other columns, or for other values of derived columns",
            where="stream",
            allowed=", ".join(f"{name} ({size})" for name, size in columns),
        )
    require_constraints(plan, schema, begins=base is not None)
    if plan.open_columns and base is not None:
        what = "a stream that discovers values cannot begin with another stream's table"
        raise ConfigError(what, where="[base]", allowed="an empty start")
    spent_per_step(plan)
    return {
        "stream": name,
        "mechanism": plan.name,
        "options": plan.options(),
        "budget": plan.budget.as_dict(),
        **exceptions_of(plan),
        "unit": plan.unit.name,
        **({"max_events": plan.unit.max_events} if isinstance(plan.unit, User) else {}),
        **(
            {"cut_share": str(plan.unit.cut_share)}
            if isinstance(plan.unit, User) and plan.unit.cut_share
            else {}
        ),
        **({"per": plan.unit.per.name} if isinstance(plan.unit, User) and plan.unit.per else {}),
        **({"returns": plan.unit.returns} if isinstance(plan.unit, Record) else {}),
        "horizon": plan.horizon,
        "parts": [
            {
                "name": part.name,
                "times": part.times,
                "amount": str(part.budget.amount),
                "total": str(part.total),
                "detail": part.detail,
            }
            for part in plan.all_parts()
        ],
        "source": None if source is None else named_source(plan.unit, source),
        **({} if base is None else {"base": dict(base)}),
        "declared_public": declared_public(plan, schema, given, source, begins=base is not None),
        "schema": {
            "fingerprint": schema.fingerprint(),
            "columns": json.loads(
                json.dumps({c.name: c.spec() for c in schema.released_columns}, default=str)
            ),
            **({} if schema.constraints is None else {"constraints": schema.constraints.facts()}),
        },
    }


def exceptions_of(plan: StreamPlan) -> dict[str, str]:
    """The probability with which the guarantee may fail, where it is not 0."""
    return {"exceptions": str(plan.delta)} if plan.delta else {}


def require_constraints(plan: StreamPlan, schema: Schema, *, begins: bool) -> None:
    """Refuse a stream whose releases could violate public constraints.

    Args:
        begins: whether the stream begins with another stream's table.

    Errors:
        ConfigError: the schema has constraints, and the mechanism cannot follow them, or the table need not.
    """
    if schema.constraints is None:
        return
    if begins:
        raise ConfigError(
            "the first table may break the constraints",
            where="schema.constraints",
            allowed="no [base], or no constraints",
        )
    if not plan.follows_constraints:
        raise ConfigError(
            f"the mechanism {plan.name!r} cannot follow public constraints",
            where="schema.constraints",
            allowed="pooled, dpstabs, baseline, census; or no constraints",
        )


def spent_per_step(plan: StreamPlan) -> Fraction:
    """What a step costs each unit in it: the sum of the parts, which has to be the budget, exactly.

    Errors:
        BudgetError: the parts add up to something else, use another definition of privacy, or one gives back.
    """
    total = Fraction(0)
    for part in plan.all_parts():
        if type(part.budget) is not type(plan.budget):
            raise BudgetError(f"part {part.name!r} is not accounted as {plan.budget}", where="plan")
        if part.total < 0:
            raise BudgetError(f"part {part.name!r} costs less than nothing", where="plan")
        total += part.total
    if total != plan.budget.amount:
        raise BudgetError(f"the parts add up to {total}", where="plan", allowed=f"exactly {plan.budget}")
    return total


def plan_hash(facts: dict[str, Any]) -> str:
    """SHA-256 of the canonical JSON; public."""
    return "sha256:" + sha256_hex(canonical_json(facts))


def require_same_plan(stored: dict[str, Any], given: dict[str, Any], where: str) -> None:
    """Refuse to go on with a stream under other facts than it began with.

    Errors:
        ConfigError: names every difference.
    """
    began, now = str(stored.get("mechanism")), str(given.get("mechanism"))
    remedy = mechanism_remedy(began, now)
    if remedy is not None:
        raise ConfigError(
            f"the state belongs to another plan: the mechanism was {began!r}, now {now!r}",
            where=where,
            allowed=f"{remedy}; or {_SUCCESSOR}",
        )
    # Through JSON, so that tuples and lists compare alike.
    differences = _differences(stored, json.loads(canonical_json(given)), "")
    differences = [one for one in differences if not one.startswith(_FOLLOWS)] or differences
    if differences:
        more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        shown = "; ".join(differences[:3]) + more
        raise ConfigError(
            f"the state belongs to another plan: {shown}",
            where=where,
            allowed=f"the plan of its start; or {_SUCCESSOR}" + _counter_remedy(stored, given),
        )


def mechanism_remedy(began: str, now: str) -> str | None:
    """How to go on with a stream that began with another mechanism than its file names; None for the same one."""
    if began == now:
        return None
    return f'name = "{began}" under [mechanism] (or its recipe in Python)'


def _counter_remedy(stored: dict[str, Any], given: dict[str, Any]) -> str:
    """How to go on where the plan chooses the counter, and would choose another one than the stream began with."""
    began, now = (str(facts.get("options", {}).get("counter", "")) for facts in (stored, given))
    for name in COUNTER_NAMES:
        try:
            recipe = counter_by_name(name, horizon=stored.get("horizon"))
        except DpstreamError:
            continue
        rule = recipe.describe() + ";"
        if began.startswith(rule) and not now.startswith(rule):
            return f'; counter = "{name}" under [mechanism], or as an option'
    return ""


def _differences(old: Any, new: Any, path: str) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        differences: list[str] = []
        for key in sorted(old.keys() | new.keys()):
            inner = f"{path}.{key}" if path else str(key)
            if key not in new:
                differences.append(f"{inner} is gone")
            elif key not in old:
                differences.append(f"{inner} is new")
            else:
                differences += _differences(old[key], new[key], inner)
        return differences
    if old == new:
        return []
    if path.startswith(_FILES):
        return [f"the file behind {path} has changed"]
    before, after = (json.dumps(value, ensure_ascii=False) for value in (old, new))
    if max(len(before), len(after)) > 40:
        return [f"{path} has changed"]
    return [f"{path} was {before} and is {after}"]


def whose_unit(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Whom a stream's unit is about, as far as public facts say it: what several streams cost one unit together adds up
    only where these are equal. A household is not a person, and one of many stays of a key is not its one insert. An
    event is one record, whatever identifies it.
    """
    if str(facts["unit"]).startswith("event"):
        return {}
    source = facts.get("source") or {}
    return {
        "column": source.get("key_column", source.get("user_column")),
        "returns": facts.get("returns"),
    }


def is_same_unit(facts: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the unit of a stream is that of another one by public facts, or by what the owner says (``same_unit``).

    A unit that no column tells, as where Python gives the records and whose they are, is not known to be that of any
    other stream, whose column may be another one.

    Args:
        other: ``whose_unit`` of the other stream.
    """
    mine = whose_unit(facts)
    known = "column" not in mine or mine["column"] is not None
    return bool((facts.get("source") or {}).get("same_unit")) or (known and mine == other)


def require_same_unit(facts: Mapping[str, Any], other: Mapping[str, Any], stream: str, where: str) -> None:
    """Refuse to add up streams whose units are not the same by public facts, unless the owner says why they are.

    Args:
        other: ``whose_unit`` of the ``stream``.

    Errors:
        UnitError: they differ, or nothing is known of one.
    """
    if is_same_unit(facts, other):
        return
    mine = whose_unit(facts)
    raise UnitError(
        f"one {str(facts['unit']).partition('-')[0]} is identified by {_told_by(mine)} here and by "
        f"{_told_by(other)} in {stream!r}: the total cost is unbounded",
        where=where,
        allowed='the same column and rule; or [stream] same_unit = "why both are the same" (published)',
    )


def _told_by(whose: Mapping[str, Any]) -> str:
    column = "no column" if whose.get("column") is None else f"the column {whose['column']!r}"
    return column if whose.get("returns") is None else f'{column} (returns = "{whose["returns"]}")'
