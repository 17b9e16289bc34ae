"""How releases are published: fresh or persistent records, full tables or changes, at once or on approval.

All of it is about released tables, so it may change while a stream lives: no part of the guarantee rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, get_args

from dpstream.core.errors import ConfigError
from dpstream.io.sinks.change_tables import ID, OP, content_sha256
from dpstream.stream.release.persistent_records import Succession

RecordKind = Literal["fresh", "persistent"]
TableKind = Literal["full", "changes", "both"]

#: A full table at least this often, where changes are published.
FULL_EVERY = 10

#: A released table is cut at so many rows where nothing else is said: one that is made in blocks, and one that is
#: whole in memory.
MAX_ROWS, MAX_ROWS_WHOLE = 1_000_000_000, 10_000_000


@dataclass(frozen=True)
class Publishing:
    """What is published of a step, and when.

    Attributes:
        keep: how many of the last steps keep table and model; None for all.
        max_rows: a released table is cut at this many rows, for the disk of whoever reads it (a public rule on a noisy
            number; the manifest gives both). None: 10^9 where tables are made in blocks, and else 10^7.
        records: ``fresh`` draws every table anew; ``persistent`` carries records from table to table, each with
            an id, and changes as few as the law allows.
        publish: ``full`` tables, only the ``changes`` between full ones, or ``both``.
        full_every: with ``changes``: a full table at the first step and again after at most this many steps.
        approve: committed steps are held until somebody approves them.
        measurements: noisy counts are published beside each release, as they were measured.
        model: so is what its records are drawn from.
        may_change: columns in which a synthetic record may change and keep its id (an ``update`` among the changes);
            ``any`` of them, or none: records only leave and come. None: as the step before has it; where records begin
            to persist, ``any`` with the unit ``record``, and else none.

    Errors:
        ConfigError: changes or ``may_change`` without persistent records, or a word or number that is not allowed.
    """

    keep: int | None = None
    max_rows: int | None = None
    records: RecordKind = "fresh"
    publish: TableKind = "full"
    full_every: int = FULL_EVERY
    approve: bool = False
    measurements: bool = True
    model: bool = True
    may_change: Literal["any"] | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name, kind in (("records", RecordKind), ("publish", TableKind)):
            if getattr(self, name) not in get_args(kind):
                raise ConfigError(
                    f"unknown choice {getattr(self, name)!r}", where=name, allowed=", ".join(get_args(kind))
                )
        for name in ("keep", "max_rows", "full_every"):
            number = getattr(self, name)
            is_count = isinstance(number, int) and not isinstance(number, bool) and number >= 1
            if not is_count and (number is not None or name == "full_every"):
                raise ConfigError(f"{number!r} cannot be used", where=name, allowed="a number from 1")
        given = {"publish": self.publish != "full", "may_change": self.may_change is not None}
        for name in given:
            if given[name] and self.records != "persistent":
                raise ConfigError(
                    f"{name} needs persistent records",
                    where=name,
                    allowed=f'records = "persistent", or no {name}',
                )

    def check_columns(self, names: tuple[str, ...]) -> None:
        """ConfigError where a column of the table has a name that ids or operations need, or one that may change is
        not there."""
        unknown = [name for name in self.may_change or () if self.may_change != "any" and name not in names]
        if unknown:
            raise ConfigError(
                f"may_change names the unknown column {unknown[0]!r}",
                where="may_change",
                allowed=", ".join(names),
            )
        taken = [name for name in (ID, OP) if name in names]
        if self.records == "persistent" and taken:
            raise ConfigError(
                f"column {taken[0]!r} has a name of persistent records",
                where="records",
                allowed=f'another name than {ID} and {OP}, or records = "fresh"',
            )

    def first_state(self, has_sink: bool) -> str:
        """The publication state of a step when it is committed."""
        if not has_sink:
            return "unpublished"
        return "held" if self.approve else "pending"

    def full_table(self, step: int, names: Mapping[int, Set[str]]) -> bool:
        """Whether a step publishes its full table: always, or where no unbroken, short enough chain of changes
        leads to it from the last full one. A public rule: it looks at what was published only.

        Args:
            names: files of the last ``full_every`` steps.
        """
        if self.publish != "changes":
            return True
        for before in range(step - 1, step - self.full_every, -1):
            files = names.get(before, set())
            if _has_table(files):
                return False
            if not any(name.startswith("changes.") for name in files):
                return True
        return True


def keep_for_changes(step: int, keep: int, names: Mapping[int, Set[str]]) -> int:
    """How many steps to keep so that the oldest of the last ``keep`` can still be put together.

    >>> keep_for_changes(9, 2, {5: {"table.csv"}, 6: {"changes.csv"}, 7: {"changes.csv"}})
    5
    """
    oldest = max(step - keep + 1, 1)
    full = [one for one, files in names.items() if one <= oldest and _has_table(files)]
    return step - max(full) + 1 if full else keep


def _has_table(names: Set[str]) -> bool:
    return any(name.startswith("table.") for name in names)


def record_facts(succession: Succession, step: int, may_change: Sequence[str]) -> dict[str, Any]:
    """What the manifest says about persistent records; all of it follows from released tables.

    Args:
        may_change: see ``Publishing``.
    """
    updates = {"updates": succession.updates, "may_change": list(may_change)} if may_change else {}
    return {
        "kind": "persistent",
        "content_sha256": content_sha256(succession.records.with_ids),
        "change_from_step": None if succession.changes is None else step - 1,
        "deletes": succession.deletes,
        "inserts": succession.inserts,
        **updates,
    }
