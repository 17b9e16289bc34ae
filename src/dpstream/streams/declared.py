"""What a stream does not protect, in sentences: what its owner declared public, and what a halt shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpstream.mechanism import StreamPlan
from dpstream.privacy.unit import Individual
from dpstream.schema.fine import FineColumn

if TYPE_CHECKING:
    from dpstream.schema import Schema

__all__ = ["declared_public"]


def declared_public(plan: StreamPlan, schema: Schema, given: Sequence[str] = ()) -> list[str]:
    """For plans, the plan's hash and manifests.

    Args:
        given: what the source's cut declares public (``SourceOptions.declared_public``).

    A record without a code stops the stream before anything is drawn. Nothing is released, but who watches
    the releases sees that none comes, and learns that there is such a record. Of coordinates the mechanism tells.
    """
    facts = list(given)
    if isinstance(plan.unit, Individual):
        facts += ["the number of people is declared public"] if plan.unit.relation == "replace" else []
    elif plan.unit.relation == "replace":
        facts.append("the number of inserts and of deletes at every step is declared public")
    facts += plan.declared_public()
    reading = plan.reading_schema(schema)
    for key, what, advice in (
        ("other", "a value that its declaration does not hold", "other"),
        ("missing", "a null", "missing"),
    ):
        columns = [
            column.name
            for column in reading.columns
            if getattr(column, key) is None and not isinstance(column, FineColumn)
        ]
        if columns:
            facts.append(
                f"{what} stops the stream in {_list(columns)}, and that it stopped is visible, so whether "
                f'there is one is not protected (a declared bin, {advice} = "...", takes such values instead)'
            )
    return facts


def _list(names: Sequence[str]) -> str:
    quoted = ", ".join(repr(name) for name in names)
    return f"column {quoted}" if len(names) == 1 else f"columns {quoted}"
