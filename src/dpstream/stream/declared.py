"""What a stream does not protect, in sentences: what its owner declared public, and what a halt shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts import StreamPlan
from dpstream.core.privacy.unit import Individual, InsertedRecord, Record, Unit, User
from dpstream.core.schema.fine import FineColumn
from dpstream.stream.templates import paragraphs, said

if TYPE_CHECKING:
    from dpstream.core.schema import Schema

_BAD_LINES = (
    "a line of a csv or NDJSON source that cannot be taken apart (more or fewer cells than columns, a quote that is "
    "not closed, no JSON object, one that names a key twice, one whose lists and objects lie more than 200 deep, or "
    "more than 64 MiB), bytes that are no UTF-8, and a key of a JSON object that nobody declared stop the stream, and "
    "that it stopped is visible, so whether there is such a record is not protected"
)
#: A stream that begins with another one's table reads the files of both.
_BEFORE_START = (
    "a record from before the start belongs to the stream that this one continues: it is left out whenever it comes, "
    "and is in no release of this stream"
)
#: Where each file is a step.
_CHANGED_FILE = (
    "the files of released steps are read again, and one that has changed stops the stream; that it stopped is "
    "visible, so whether a record in them was changed, came late or was taken out is not protected"
)
#: Of streams whose records have keys.
_KEYED = (
    "that a step was accepted, and when, is public",
    "an event or a snapshot that the declared rules for keys refuse (a null key, several rows of one key, a delete or "
    "update of a key that is not there, an insert of one that is) stops the stream, and that it stopped is visible, so "
    "whether there is one is not protected",
    "a snapshot of the whole table that is empty, or has less than a declared share of the records that are present, "
    "stops the stream until its owner has confirmed it, and that it stopped, and that it went on, is visible, so "
    "whether so many records left at once is not protected",
)
_RETURNED = (
    "a key that comes back after an absence stops the stream, and that it stopped is visible, so whether there is one "
    'is not protected (returns = "refuse")'
)


def read_public(source: Mapping[str, Any], *, begins: bool) -> list[str]:
    """What the way in which records are read leaves open to whoever watches.

    Args:
        source: the pinned facts about it.
        begins: whether the stream begins with another one's table.
    """
    files = "kind" not in source
    sentences = [_CHANGED_FILE] if files and source.get("every") == "files" else []
    sentences += [_BAD_LINES] if _has_lines(source) else []
    sentences += [_BEFORE_START] if files and source.get("late") is not None and begins else []
    if source.get("same_unit"):
        sentences.append(
            "the owner says why the unit is the same as in the streams that this one is added up with: "
            f"{source['same_unit']}"
        )
    return sentences


def named_source(unit: Unit, source: Mapping[str, Any]) -> dict[str, Any]:
    """The pinned facts of how records are cut into steps. In an insert-only table the column of a user is the key."""
    if not isinstance(unit, Record | InsertedRecord) or "key_column" in source:
        return dict(source)
    return {"key_column" if key == "user_column" else key: value for key, value in source.items()}


def _has_lines(source: Mapping[str, Any]) -> bool:
    """Whether records are lines of text: those of a file, or of standard input."""
    return "time_column" in source and source.get("kind", "stdin") == "stdin"


def declared_public(plan: StreamPlan, schema: Schema, given: Sequence[str] = ()) -> list[str]:
    """What plans, the plan's hash and manifests say about what is not protected, in sentences.

    Args:
        given: what the rule that cuts the source into steps declares public (``SourceOptions.declared_public``).

    A record without a code stops the stream before anything is drawn. Nothing is released, but who watches
    the releases sees that none comes, and learns that there is such a record. For
    coordinates the mechanism has sentences of its own.
    """
    facts = list(given)
    if isinstance(plan.unit, Individual):
        facts += ["the number of people is declared public"] if plan.unit.relation == "replace" else []
    elif isinstance(plan.unit, Record):
        public = ["which keys are present at the end of every step is declared public"]
        facts += [*(public if plan.unit.relation == "replace" else []), *_KEYED]
        facts += [_RETURNED] if plan.unit.returns == "refuse" else []
    elif plan.unit.relation == "replace":
        facts.append("the number of inserts and of deletes at every step is declared public")
    facts += said(paragraphs(plan, "declared", **plan.facts()))
    rules = schema.rules
    read = () if rules is None else rules.read
    if rules is not None and (read or rules.impossible) and not rules.constraints.repair:
        facts.append(
            "a record that violates a public constraint stops the stream, and that it stopped is visible, so whether "
            "there is one is not protected (violations = { COLUMN = its other or missing bin } in "
            "[schema.constraints] counts such records there instead)"
        )
    reading = plan.reading_schema(schema)
    for key, what, advice in (
        ("other", "a value that its declaration does not hold", "other"),
        ("missing", "a null", "missing"),
    ):
        columns = [
            column.name
            for column in (*reading.columns, *read)
            if getattr(column, key) is None and not isinstance(column, FineColumn)
        ]
        if columns:
            facts.append(
                f"{what} stops the stream in {_list(columns)}, and that it stopped is visible, so whether "
                f'there is one is not protected (a declared bin, {advice} = "...", takes such values instead)'
            )
    return facts


def counted_records(unit: Unit, schema: Schema) -> tuple[str, str]:
    """What the records that are counted are called, and in what they differ from those that the source has."""
    name, words = "records", ""
    if isinstance(unit, User) and not isinstance(unit, InsertedRecord):
        name = f"admitted {name}"
        words = f" Admitted are at most {unit.max_events} records of each user; the others are not counted."
    if schema.constraints is not None and schema.constraints.repair:
        name = f"repaired {name}"
        bins = ", ".join(f"{column} = {label!r}" for column, label in schema.constraints.repair)
        words += f" Repaired are records that violate a constraint: they are counted with {bins}."
    return name, words


def _list(names: Sequence[str]) -> str:
    quoted = ", ".join(repr(name) for name in names)
    return f"column {quoted}" if len(names) == 1 else f"columns {quoted}"
