"""What a stream's tables look like, for the codebook beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts import StreamPlan
from dpstream.core.privacy.unit import Individual
from dpstream.core.tables.change_tables import ID
from dpstream.core.tables.report_tables import PERIOD, PERSON, WEIGHT, called, wide_name

if TYPE_CHECKING:
    from dpstream.core.schema import Schema


def describe_tables(
    plan: StreamPlan, schema: Schema, name: str, path: str, *, with_ids: bool
) -> dict[str, Any]:
    """The codebook. That of a panel has a column for each period of the plan, and one of weights where it has them.

    Args:
        schema: the released columns.
        path: of the table, beside its manifest.
        with_ids: whether records persist, and have ids.
    """
    descriptor = schema.codebook(name, path)
    described = descriptor["resources"][0]["schema"]
    fields = described["fields"]
    explained = plan.explain()
    if explained.row:
        descriptor["description"] = explained.row
    if isinstance(plan.unit, Individual):
        periods = range(1, (plan.horizon or 0) + 1)
        told = explained.facts.get("panel", {})
        weighs, first = told.get("weight") is not None, told.get("first_release", 1)
        names = told.get("period_names")
        own = [_whole(PERSON), _whole(PERIOD) if names is None else _period(names)]
        wide = []
        for period in periods:
            weight = [_weight()] if weighs and period >= first else []
            wide += [
                {**field, "name": wide_name(field["name"], called(period, names))}
                for field in [*fields, *weight]
            ]
        described["fields"] = [own[0], *wide]
        descriptor["dpstream"]["panel"] = {"fields": [*own, *fields, *([_weight()] if weighs else [])]}
        return descriptor
    if with_ids:
        fields.insert(0, _whole(ID))
    return descriptor


def _whole(name: str) -> dict[str, Any]:
    return {"name": name, "type": "integer", "constraints": {"required": True}}


def _period(names: Sequence[str]) -> dict[str, Any]:
    return {
        "name": PERIOD,
        "type": "string",
        "description": "The name of the period, which the columns of a whole table end in. The allowed values are in "
        "the order of the periods.",
        "constraints": {"required": True, "enum": list(names)},
    }


def _weight() -> dict[str, Any]:
    return {
        "name": WEIGHT,
        "type": "number",
        "description": "Takes the padding out of sums over people, for questions that end with this period; may be "
        "negative.",
    }
