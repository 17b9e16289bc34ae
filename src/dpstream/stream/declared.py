"""What a stream does not protect, in sentences: what its owner declared public, and what a halt shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpstream.core.contracts import StreamPlan
from dpstream.core.errors import ConfigError, counted
from dpstream.core.privacy.unit import InsertedRecord, Record, Unit, User
from dpstream.core.schema import Schema
from dpstream.core.schema.fine import FineColumn
from dpstream.stream.templates import paragraphs, said


def named_source(unit: Unit, source: Mapping[str, Any]) -> dict[str, Any]:
    """The pinned facts of how records are cut into steps. In an insert-only table the column of a user is the key."""
    if not isinstance(unit, Record | InsertedRecord) or "key_column" in source:
        return dict(source)
    return {"key_column" if key == "user_column" else key: value for key, value in source.items()}


def declared_public(
    plan: StreamPlan,
    schema: Schema,
    given: Sequence[str] = (),
    source: Mapping[str, Any] | None = None,
    *,
    begins: bool = False,
    most: int | None = None,
) -> list[str]:
    """What plans, the plan's hash and manifests say about what is not protected, in sentences.

    Args:
        given: what the rule that cuts the source into steps declares public (``SourceOptions.declared_public``).
        source: the pinned facts about how records are read.
        begins: whether the stream begins with another one's table.
        most: lists of more columns are cut; None: none is.

    A record without a code stops the stream before anything is drawn. Nothing is released, but who watches
    the releases sees that none comes, and learns that there is such a record. For
    coordinates the mechanism has sentences of its own.
    """
    facts = _facts(plan, schema, source or {}, begins=begins, most=most)
    # The stream and its mechanism may declare the same sentence.
    return list(dict.fromkeys([*given, *said(paragraphs(plan, "not_protected", **plan.facts(), **facts))]))


def visible_stops(plan: StreamPlan, schema: Schema, source: Mapping[str, Any]) -> list[str]:
    """The most frequent causes that stop a stream visibly, in short; ``declared_public`` says all in sentences."""
    return said(
        paragraphs(plan, "halts", **plan.facts(), **_facts(plan, schema, source, begins=False, most=None))
    )


def _facts(
    plan: StreamPlan, schema: Schema, pinned: Mapping[str, Any], *, begins: bool, most: int | None
) -> dict[str, Any]:
    rules = schema.rules
    read = () if rules is None else rules.read
    columns = [
        column
        for column in (*plan.reading_schema(schema).columns, *read)
        if not isinstance(column, FineColumn)
    ]
    files = "kind" not in pinned
    return {
        "violations": rules is not None and bool(read or rules.impossible) and not rules.constraints.repair,
        "no_other": [column.name for column in columns if column.other is None],
        "no_missing": [column.name for column in columns if column.missing is None],
        "all_columns": len(schema.names),
        "most": most,
        "late": pinned.get("late") == "error",
        "steps_are_files": files and pinned.get("every") == "files",
        # Whether records are lines of text: those of a file, or of standard input.
        "lines": "time_column" in pinned and pinned.get("kind", "stdin") == "stdin",
        "left_out_before_start": files and pinned.get("late") is not None and begins,
        "same_unit": pinned.get("same_unit"),
    }


def bound_of(unit: Unit) -> int | None:
    """How many events of a user are counted at most, where further ones are left out of all counts and errors."""
    return unit.max_events if isinstance(unit, User) and not isinstance(unit, InsertedRecord) else None


def counted_records(unit: Unit, schema: Schema) -> tuple[str, str]:
    """What the records that are counted are called, and in what they differ from those that the source has."""
    name, words, bound = "records", "", bound_of(unit)
    if bound is not None:
        name = f"admitted {name}"
        words = (
            f" Errors are about admitted records, at most {counted(bound, 'event')} of a user; no count or error holds "
            "the others."
        )
        if isinstance(unit, User) and unit.per is not None:
            name_of = unit.per.length if unit.per.length[0].isdigit() else f"a {unit.per.length}"
            words += f" The first events of {name_of} count, so its late steps hold fewer records."
    if schema.constraints is not None and schema.constraints.repair:
        name = f"repaired {name}"
        bins = ", ".join(f"{column} = {label!r}" for column, label in schema.constraints.repair)
        words += f" Repaired are records that violate a constraint: they are counted with {bins}."
    return name, words


def cut_words(unit: Unit, cut: Mapping[str, Any], end: str) -> str:
    """How many users the bound cuts, for people, from what a manifest says.

    Args:
        end: what they were counted up to.

    >>> cut_words(User(15), {"users": 90, "half_width": 12}, "step 13")[:64]
    'About 90 ± 12 users (95 %) had more than 15 events up to step 13'
    """
    bound = counted(bound_of(unit) or 0, "event")
    if isinstance(unit, User) and unit.per is not None:
        bound += f" in one period ({unit.per.name}; who has in two is counted twice)"
    if cut["half_width"] is None:
        return f"How many users had more than {bound} is not published yet."
    users, width = cut["users"], round(cut["half_width"])
    number = f"About {users:,} ± {width:,}" if users > width else f"At most {max(users + width, 0):,}"
    return (
        f"{number} users (95 %) had more than {bound} up to {end}; what they had beyond is in no table or count. This "
        "counts users, not lost records."
    )


def kept_values(*, held: bool) -> str:
    """What is left of the values that a step discovered, once it is rejected (``held``) or withdrawn."""
    if held:
        return "later steps have the values that it discovered and cannot be published: the stream has to end"
    return "manifest and later tables keep the values that it discovered: to leave them out, end the stream"


def told_records(unit: Unit, schema: Schema) -> dict[str, str]:
    """The same for screens."""
    name, words = counted_records(unit, schema)
    return {"counted_records": name, "errors_are_about": words.strip()}


def require_open(plan: StreamPlan, schema: Schema) -> None:
    """Columns whose values are discovered need a mechanism that begins new cells at public steps.

    Errors:
        ConfigError: another mechanism, or columns of which the plan discovers nothing.
    """
    left = [name for name in schema.open_columns if name not in plan.open_columns]
    if left:
        raise ConfigError(
            f"the mechanism {plan.name!r} discovers no values of {left[0]!r}: its counts cannot begin new cells",
            where="stream",
            allowed="a mechanism and unit with a discovery; or a list of values",
        )
