"""Invented streams of a configuration: pairs of them that a transcript compares, and records to look for in releases.

All records are invented from public facts, and pass the same admission as real ones: they are encoded, bounded, and
followed by their keys. A stream is small, so that one record shows, or large, so that it crosses what counts are
compared with; both come in every audit.

Trusted base: invented (counts invented records).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import ends
from dpstream.core.errors import DataError, SchemaError
from dpstream.core.privacy import User
from dpstream.core.schema import Categorical, Domain, Schema
from dpstream.core.schema.pattern import Pattern
from dpstream.core.tables import (
    EncodedBatch,
    KeyedBatch,
    PresentBatch,
    PresentTable,
    PresentView,
)
from dpstream.core.tables.encoded_batch import batch_codes
from dpstream.core.tables.undiscovered import DiscoveringBatch, PresentTexts
from dpstream.stream.admission import Admission, Batch, grant_batch
from dpstream.tools.audit.door import Batches
from dpstream.tools.errors.invented_tables import correlated_columns
from dpstream.tools.evaluate.array_types import Codes

if TYPE_CHECKING:
    from dpstream.project import Config
    from dpstream.stream.store.store import Store

#: Steps that are run where the stream has more: what is claimed for all of them holds for the first ones.
_MAX_STEPS = 16
#: Records that come and that leave at each step; those that come at each step of a large stream, and of one whose
#: records have owners or keys.
_CAME, _LEFT, _MANY, _MANY_OWNERS = 60, 20, 30_000, 2_000
#: Different records. The first one is that of the unit by which neighbours differ: where there are enough of them, no
#: other record is like it.
_POOL, _FEW = 300, 8
#: The pair whose second stream is empty.
NOBODY = "no record at all"
#: Texts that records of all streams have where values are discovered.
_COMMON = 3
#: Classes into which the codes of a long column are cut.
_CLASSES = 64
#: Changes at once in the control, which is charged for one: of a tree each change loses a part of the claim only, in
#: a short stream.
_TOO_MANY = 30
#: Columns of the keys and of what happened to them.
_KEY, _EVENT = "dpstream audit key", "dpstream audit event"


@dataclass
class Step:
    """The events of one step: rows that come and that leave, and whose they are."""

    came: Codes
    left: Codes
    owners: list[str] = field(default_factory=list)
    leavers: list[str] = field(default_factory=list)

    def more(self, other: Step) -> Step:
        """The step with more events."""
        return Step(
            np.concatenate([self.came, other.came]),
            np.concatenate([self.left, other.left]),
            [*self.owners, *other.owners],
            [*self.leavers, *other.leavers],
        )


@dataclass(frozen=True)
class StreamPair:
    """Two streams as batches.

    Attributes:
        kind: ``far``: nothing but the public facts is the same. ``near``: neighbours. ``control``: several changes.
        base, other: the batches, by step.
        excess: of neighbours: by how many admitted events they differ beyond what the unit allows.
    """

    name: str
    kind: str
    base: Sequence[Any]
    other: Sequence[Any]
    excess: int = 0


@dataclass(frozen=True)
class _Scene:
    """What is there in both streams, what one unit brings to the other one, and what it brings a step later: each as
    numbers of inserts and of deletes of one row."""

    name: str
    common: tuple[int, int] = (0, 0)
    more: tuple[int, int] = (0, 0)
    late: tuple[int, int] = (0, 0)


class InventedStream:
    """Streams of one configuration.

    Attributes:
        plan: the configured plan. steps: how many are run. pool: the records that there are.
        base: the public table that the stream begins with.
    """

    def __init__(self, config: Config) -> None:
        self.config, self.plan, self.schema = config, config.plan(), config.schema()
        ends = (config.budget.horizon, config.source_options.final_step())
        self.steps = min([_MAX_STEPS, *(end for end in ends if end is not None)])
        start = config.base()
        self.base = None if start is None else start.table()
        self.unit = self.plan.unit
        self.keyed, self.panel = self.plan.reads == "present", self.plan.reads == "reports"
        self.deletes = self.keyed or config.source_options.deletions
        self.replaces = getattr(self.unit, "relation", "add-remove") == "replace"
        self.owned = self.keyed or self.panel or isinstance(self.unit, User)
        self.reading = self.plan.reading_schema(self.schema)
        self.generator = np.random.default_rng(17)
        rows = _invented_rows(self.reading.domain, 4 * _POOL, self.generator)
        rules = self.schema.rules
        if rules is not None:
            rows = rows[[not rules.has_impossible(row[None]) for row in rows]]
        rows = self.generator.permutation(np.unique(rows, axis=0))
        #: Of each column whose values are discovered, the code of ``other``.
        self.others = {
            self.reading.names.index(name): self.plan.discovery.other_code(name)  # type: ignore[attr-defined]
            for name in self.plan.open_columns
        }
        # The unit's row is first: none of its values is known.
        open_first = np.argsort(
            [any(row[i] != code for i, code in self.others.items()) for row in rows], kind="stable"
        )
        self.pool = np.asfortranarray(rows[open_first[:_POOL]] if self.others else rows[:_POOL])

    # Events.

    def usual(self, many: int = _CAME) -> list[Step]:
        """A stream without the row of the unit; of a panel, with as many people."""
        if self.panel:
            people = [f"person {number}" for number in range(many)]
            return [Step(self._rows(many), self.pool[:0], people) for _ in range(self.steps)]
        steps, there, owners = [], self._rows(0), list[str]()
        for number in range(self.steps):
            came, leaving = self._rows(many), min(_LEFT, len(there)) if self.deletes else 0
            left, leavers = there[:leaving], owners[:leaving]
            again = 10 * many if isinstance(self.unit, User) else self.steps * many
            owners = [f"owner {i % again}" for i in range(number * many, (number + 1) * many)]
            steps.append(Step(came, left, owners, leavers))
            there = came
        return steps

    def _rows(self, many: int) -> Codes:
        first = 1 if len(self.pool) > _FEW else 0
        return self.pool[self.generator.integers(first, len(self.pool), size=many)]

    def with_rows(self, steps: list[Step], at: int, rows: Codes, copies: int = 1) -> list[Step]:
        """The stream with these rows from a step on, each with an owner of its own, and as often as one owner may."""
        owners = [f"new {i // copies}" for i in range(copies * len(rows))]
        more = Step(np.repeat(rows, copies, axis=0), rows[:0], owners)
        if self.panel:
            return [step.more(more) for step in steps]
        return [*steps[: at - 1], steps[at - 1].more(more), *steps[at:]]

    def _with(self, steps: list[Step], at: int, events: tuple[int, int], units: int) -> list[Step]:
        """The stream with inserts and deletes of the unit's row at a step."""
        place = min(at, self.steps) - 1
        came, left = (np.repeat(self.pool[:1], units * many, axis=0) for many in events)
        owners, leavers = ([f"unit {i % units}" for i in range(units * many)] for many in events)
        return [*steps[:place], steps[place].more(Step(came, left, owners, leavers)), *steps[place + 1 :]]

    # What a mechanism sees of them.

    def admit(self, steps: Sequence[Step]) -> Batches:
        """The batches of these events, encoded and bounded as those of real ones."""
        texts = PresentTexts.stored(self.reading, [()] * len(self.others)) if self.others else None
        counters, present = _Counters(), PresentTable.empty(self.reading.domain, texts)
        batches, cut = Batches(), list[int]()
        for number, step in enumerate(steps, start=1):
            granted = grant_batch(self._batch(step), self.plan, self.schema, cast("Store", counters), "audit")
            if granted.keyed is not None:
                present, departed = present.after(granted.keyed.changes(present), number)
                view = PresentView(present, departed)
                batches.append(PresentBatch(view, view if self.others else None))
                continue
            admission = Admission(self.reading, self.unit, cast("Store", counters))
            taken = admission.admit(granted, "audit")
            if taken.users is not None:
                cut.append(taken.users.cut)
                counters.events |= dict(zip(taken.users.ids, taken.users.after.tolist(), strict=True))  # type: ignore[union-attr]
            if admission.forgets(number, None):
                counters.events.clear()
            batches.append(taken.view)
        batches.cut = cut
        return batches

    def _batch(self, step: Step) -> Batch | KeyedBatch:
        if self.keyed:
            rows = self._texts(np.concatenate([step.came, step.left]), self.schema)
            events = ["insert"] * len(step.came) + ["delete"] * len(step.left)
            table = rows.append_column(_KEY, [[*step.owners, *step.leavers]]).append_column(_EVENT, [events])
            return KeyedBatch(table, _KEY, _EVENT)
        raw = bool(self.others) or (self.encodes and len(step.came) <= _MANY_OWNERS)
        came, left = (
            self._texts(rows, self.reading) if raw else np.asfortranarray(rows)
            for rows in (step.came, step.left)
        )
        owners = (step.owners, step.leavers if self.deletes else None) if self.owned else None
        return Batch(came, left if self.deletes else None, owners)

    def _texts(self, rows: Codes, schema: Schema) -> Any:
        """Records with their values. Where values are discovered, a pattern gives the unit's row a text of its own."""
        table = schema.decode(rows, 1)
        for place, other in self.others.items():
            column = self.reading.columns[place]
            assert isinstance(column, Categorical)
            pattern = Pattern(column.pattern) if column.pattern else None
            made = (
                pattern.value(n) if pattern else f"audit {n}" for n in range(pattern.size if pattern else 9)
            )
            texts = list(islice((text for text in made if text not in column.bin_labels()), 1 + _COMMON))
            # Without a pattern what one unit alone holds is a matter of delta.
            own = 0 if pattern else 1
            chosen = np.where((rows == self.pool[0]).all(axis=1), own, 1 + rows.sum(axis=1) % _COMMON)
            values = table.column(column.name).to_pylist()
            for row in np.flatnonzero(rows[:, place] == other).tolist():
                values[row] = texts[min(int(chosen[row]), len(texts) - 1)]
            table = table.set_column(table.column_names.index(column.name), column.name, [values])
        return table

    @cached_property
    def encodes(self) -> bool:
        """Whether values of all these rows are encoded to the same codes again."""
        try:
            return np.array_equal(self.reading.encode(self.reading.decode(self.pool, 1)), self.pool)
        except (DataError, SchemaError):
            return False

    # Pairs.

    def bases(self) -> tuple[list[Step], list[Step]]:
        """A small stream and a large one."""
        return self.usual(), self.usual(_MANY_OWNERS if self.owned else _MANY)

    def pairs(self) -> Iterator[StreamPair]:
        """Pairs in the order of their importance; the control comes early."""
        bases = [(steps, self.admit(steps)) for steps in self.bases()]
        if self.replaces:
            for (steps, batches), size in zip(bases, ("few", "many"), strict=True):
                yield StreamPair(f"other records, {size}", "far", batches, self.admit(self._others(steps)))
        else:
            for one, other, words in ((0, 1, "many more records"), (1, 0, "many records less")):
                yield StreamPair(words, "far", bases[one][1], bases[other][1])
            if not getattr(
                self.plan, "delta", 0
            ):  # else a text that nobody else has is not published in all streams
                yield StreamPair(NOBODY, "far", bases[1][1], self.admit(self.usual(0)))
        first = True
        for (steps, batches), size in zip(bases, ("few", "many"), strict=True):
            for name, before, after, too_many in self._neighbours(steps, all_steps=size == "few"):
                base = batches if before is steps else self.admit(before)
                if first:
                    yield StreamPair(f"{_TOO_MANY} at once", "control", base, self.admit(too_many))
                neighbour, first = self.admit(after), False
                yield StreamPair(f"{name}, {size}", "near", base, neighbour, self._excess(base, neighbour))

    def _others(self, steps: list[Step]) -> list[Step]:
        return [replace(one, came=self._rows(len(one.came)), left=self._rows(len(one.left))) for one in steps]

    def _neighbours(
        self, steps: list[Step], *, all_steps: bool
    ) -> Iterator[tuple[str, list[Step], list[Step], list[Step]]]:
        """Streams, those with one unit more (or replaced), and those with too many; at the first and the last step, or
        also between them."""
        if self.panel:
            yield from self._histories(steps)
            return
        places = [1, self.steps, *([max(1, self.steps // 2), min(2, self.steps)] if all_steps else [])]
        for at in dict.fromkeys(places):
            for scene in self._scenes():
                if self.replaces:
                    one, many = (self._replaced(steps, at, units) for units in (1, _TOO_MANY))
                    yield f"a record replaced at step {at}", steps, one, many
                    continue
                before = self._with(steps, at, scene.common, 1) if scene.common != (0, 0) else steps
                per = self.unit.per if isinstance(self.unit, User) else None
                later = (
                    at if per is not None and ends(per, at) else at + 1
                )  # all of one unit is in one period
                one, many = (
                    self._with(self._with(before, at, scene.more, units), later, scene.late, units)
                    for units in (1, _TOO_MANY)
                )
                yield f"{scene.name}, step {at}", before, one, many

    def _scenes(self) -> list[_Scene]:
        alone = _Scene("an insert alone", more=(1, 0))
        if self.replaces:
            return [alone]
        if self.keyed:
            return [alone, _Scene("a longer stay", more=(1, 0), late=(0, 1))]
        if isinstance(self.unit, User):
            most = self.unit.max_events
            scenes = [
                _Scene("too many records", more=(2 * most + 1, 0)),
                _Scene("two steps over the limit", more=(most + 1, 0), late=(most + 1, 0)),
            ]
            return (
                [*scenes, _Scene("a user who comes and goes", more=(most, most))] if self.deletes else scenes
            )
        if not self.deletes:
            return [alone]
        return [
            _Scene("an insert of a delete", common=(0, 1), more=(1, 0)),
            _Scene("a delete of an insert", common=(1, 0), more=(0, 1)),
            alone,
        ]

    def _replaced(self, steps: list[Step], at: int, units: int) -> list[Step]:
        step = steps[at - 1]
        came = np.concatenate([np.repeat(self.pool[:1], units, axis=0), step.came[units:]])
        return [*steps[: at - 1], replace(step, came=came), *steps[at:]]

    def _histories(self, steps: list[Step]) -> Iterator[tuple[str, list[Step], list[Step], list[Step]]]:
        """People who report one thing all the time, and people who report anything."""
        always = [(f"always {row + 1}", [row] * self.steps) for row in range(min(4, len(self.pool)))]
        drawn = [
            (f"history {number}", self.generator.integers(len(self.pool), size=self.steps).tolist())
            for number in (1, 2)
        ]
        for name, history in [*always, *drawn]:
            made = [
                [self._person(step, row, units) for step, row in zip(steps, history, strict=True)]
                for units in (1, _TOO_MANY)
            ]
            yield f"a person, {name}", steps, made[0], made[1]

    def _person(self, step: Step, row: int, units: int) -> Step:
        rows = np.repeat(self.pool[row : row + 1], units, axis=0)
        if self.replaces:
            return replace(step, came=np.concatenate([rows, step.came[units:]]))
        return step.more(Step(rows, rows[:0], [f"unit {number}" for number in range(units)]))

    def _excess(self, base: Sequence[Any], other: Sequence[Any]) -> int:
        """In how many admitted events more than the unit allows two neighbours differ."""
        if self.keyed or self.panel:
            return 0
        unit = self.unit
        allowed = unit.max_events if isinstance(unit, User) else 1
        return max(0, changed_records(base, other) - allowed * (2 if self.replaces else 1))


def _invented_rows(domain: Domain, many: int, generator: np.random.Generator) -> Codes:
    """Rows of skewed columns that depend on each other; in long columns any code of a class of codes."""
    sizes = np.array(domain.sizes, np.int64)
    classes = np.minimum(sizes, _CLASSES)
    drawn = correlated_columns(Domain(domain.names, tuple(classes.tolist())), generator)(many, generator)
    first, behind = drawn * sizes // classes, (drawn + 1) * sizes // classes
    rows: Codes = generator.integers(first, behind).astype(np.int32)
    return rows


def changed_records(base: Sequence[Any], other: Sequence[Any]) -> int:
    """In how many admitted inserts and deletes two streams of rows differ."""
    changed = 0
    for pair in zip(base, other, strict=True):
        one, two = (batch._batch if isinstance(batch, DiscoveringBatch) else batch for batch in pair)
        assert isinstance(one, EncodedBatch)
        assert isinstance(two, EncodedBatch)
        for here, there in zip(batch_codes(one), batch_codes(two), strict=True):
            if here is None or there is None:
                assert here is there
                continue
            rows, kinds = np.unique(np.concatenate([here, there]), axis=0, return_inverse=True)
            signs = np.repeat([1, -1], [len(here), len(there)])
            changed += int(np.abs(np.bincount(kinds.reshape(-1), signs, len(rows))).sum())
    return changed


@dataclass
class _Counters:
    """What admission asks a store for: a key, and the users' counters."""

    events: dict[bytes, int] = field(default_factory=dict)
    #: What was counted before, of values that are discovered: a run adds that up.
    undiscovered: Any = None

    def derived_key(self, purpose: bytes) -> bytes:
        """A public key: all records are invented."""
        return hashlib.blake2b(purpose, digest_size=32).digest()

    def user_events(self, ids: list[bytes]) -> NDArray[np.int64]:
        """How many events of each were admitted."""
        return np.array([self.events.get(one, 0) for one in ids], np.int64)
