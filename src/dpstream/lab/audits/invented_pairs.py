"""Pairs of invented streams for the exact audit of one configuration, admitted as this configuration admits records.

Rows pass what real ones pass: they are decoded to values and encoded again, and of users only so many events are
counted. *Neighbours* differ in all that one protected unit may bring, at steps where epochs begin and end, also beside
the delete or the insert of an equal row. *Far* streams differ in everything that is private: numbers of records,
values, empty cells; so thresholds on exact counts fall on different sides.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError, SchemaError
from dpstream.core.privacy import User
from dpstream.core.tables.encoded_batch import EncodedBatch, batch_codes
from dpstream.lab.audits.attack_families import attacked_stream
from dpstream.lab.audits.attack_streams import steps_of
from dpstream.stream.admission import Batch, admitted, grant_batch
from dpstream.tools.errors.imagined_columns import correlated_columns
from dpstream.tools.evaluate.array_types import Codes

if TYPE_CHECKING:
    from dpstream.project import Config
    from dpstream.stream.store.store import Store

#: Records that come and that leave at each step; those that come at each step of a stream that is far away.
_CAME, _LEFT, _FAR, _FAR_USERS = 60, 20, 30_000, 3_000
#: Different records. The first one is that of the unit by which neighbours differ: no other record is like it.
_POOL = 300
#: Changes at once in the control, which is charged for one.
_TOO_MANY = 4
#: Rows of a stream of keys or of a panel that are planted to make it another one.
_PLANTED = 2_000


@dataclass(frozen=True)
class Pair:
    """Two streams as batches.

    Attributes:
        kind: ``far``: nothing but the public facts is the same. ``near``: neighbours. ``control``: several changes.
        base, other: the batches, by step.
    """

    name: str
    kind: str
    base: Sequence[Any]
    other: Sequence[Any]


def invented_pairs(config: Config) -> Iterator[Pair]:
    """Pairs in the order of their importance; all controls come early."""
    if config.plan().reads == "counts":
        yield from _Rows(config).pairs()
    else:
        yield from _planted_pairs(config)


@dataclass
class _Step:
    """The events of one step: rows that come and that leave, and whose they are."""

    came: Codes
    left: Codes
    owners: list[str] = field(default_factory=list)
    leavers: list[str] = field(default_factory=list)

    def more(self, came: Codes, left: Codes, owners: Sequence[str], leavers: Sequence[str]) -> _Step:
        """The step with more events."""
        return _Step(
            np.concatenate([self.came, came]),
            np.concatenate([self.left, left]),
            [*self.owners, *owners],
            [*self.leavers, *leavers],
        )


@dataclass(frozen=True)
class _Scene:
    """What is there in both streams, what one unit brings to the other one, and what it brings a step later: each as
    numbers of inserts and of deletes of one row."""

    name: str
    common: tuple[int, int] = (0, 0)
    more: tuple[int, int] = (0, 0)
    late: tuple[int, int] = (0, 0)


class _Rows:
    """Streams of rows: what reads counts."""

    def __init__(self, config: Config) -> None:
        self.config, self.plan, self.schema = config, config.plan(), config.schema()
        self.steps, self.unit = steps_of(config), self.plan.unit
        self.deletes = config.source_options.deletions
        self.domain = self.plan.reading_schema(self.schema).domain
        self.users = isinstance(self.unit, User)
        self.generator = np.random.default_rng(17)
        draw = correlated_columns(self.domain, self.generator)
        own = draw(4 * _POOL, self.generator)
        rules = self.schema.rules
        if rules is not None:
            own = own[[not rules.has_impossible(row[None]) for row in own]]
        self.pool = np.asfortranarray(self.generator.permutation(np.unique(own, axis=0))[:_POOL])

    @cached_property
    def encodes(self) -> bool:
        """Whether values of all these rows are encoded to the same codes again."""
        try:
            again = self.schema.encode(self.schema.decode(self.pool, 1))
        except (DataError, SchemaError):
            return False
        return np.array_equal(again, self.pool)

    def pairs(self) -> Iterator[Pair]:
        base = self.usual()
        batches, many = self.admit(base), _FAR_USERS if self.users else _FAR
        if getattr(self.unit, "relation", "add-remove") == "replace":
            other = [
                replace(one, came=self._rows(len(one.came)), left=self._rows(len(one.left))) for one in base
            ]
            yield Pair("other records in the same numbers", "far", batches, self.admit(other))
            yield from self._replaced(base, batches)
            return
        yield Pair("many more records", "far", batches, self.admit(self.usual(many)))
        places = dict.fromkeys([1, self.steps, max(1, self.steps // 2), min(2, self.steps)])
        scenes = [(at, scene) for at in places for scene in self._scenes()]
        for number, (at, scene) in enumerate(scenes):
            one = self._with(base, at, scene.common, 1, 0)
            before = batches if scene.common == (0, 0) else self.admit(one)
            if number == 0:
                yield Pair(f"{_TOO_MANY} at once", "control", before, self._after(one, at, scene, _TOO_MANY))
            yield Pair(f"{scene.name}, step {at}", "near", before, self._after(one, at, scene, 1))
            if number == 0:
                yield Pair("no record at all", "far", batches, self.admit(self.usual(0)))

    def _after(self, steps: list[_Step], at: int, scene: _Scene, units: int) -> list[Any]:
        """The admitted stream with so many units more."""
        return self.admit(self._with(self._with(steps, at, scene.more, units, 0), at, scene.late, units, 1))

    def _scenes(self) -> list[_Scene]:
        if isinstance(self.unit, User):
            most = self.unit.max_events
            found = [
                _Scene("a user with too many records", more=(2 * most + 1, 0)),
                _Scene("a user with too many records in two steps", more=(most, 0), late=(most + 1, 0)),
            ]
            return [*found, _Scene("a user who comes and goes", more=(most, most))] if self.deletes else found
        alone = _Scene("an insert alone", more=(1, 0))
        if not self.deletes:
            return [alone]
        return [
            _Scene("an insert whose delete is there", common=(0, 1), more=(1, 0)),
            _Scene("a delete whose insert is there", common=(1, 0), more=(0, 1)),
            alone,
        ]

    def _replaced(self, base: list[_Step], batches: Sequence[Any]) -> Iterator[Pair]:
        for at in dict.fromkeys([1, self.steps, max(1, self.steps // 2)]):
            for many, kind in ((1, "near"), (_TOO_MANY, "control")) if at == 1 else ((1, "near"),):
                step = base[at - 1]
                came = np.concatenate([np.repeat(self.pool[:1], many, axis=0), step.came[many:]])
                other = [*base[: at - 1], replace(step, came=came), *base[at:]]
                yield Pair(f"{many} replaced at step {at}", kind, batches, self.admit(other))

    def usual(self, many: int = _CAME) -> list[_Step]:
        """A stream without the row of the unit."""
        steps, there = [], self._rows(0)
        for number in range(self.steps):
            came = self._rows(many)
            left = there[: min(_LEFT, len(there)) if self.deletes else 0]
            owners = [
                f"user {i % (10 * many) if self.users else i}"
                for i in range(number * many, (number + 1) * many)
            ]
            steps.append(_Step(came, left, owners, owners[: len(left)]))
            there = came
        return steps

    def _rows(self, many: int) -> Codes:
        places = self.generator.integers(min(1, len(self.pool) - 1), len(self.pool), size=many)
        return self.pool[places]

    def _with(
        self, steps: list[_Step], at: int, events: tuple[int, int], times: int, late: int
    ) -> list[_Step]:
        """The stream with inserts and deletes of the unit's row at a step, or (``late``) at the next one."""
        place = min(at + late, self.steps) - 1
        came, left = (np.repeat(self.pool[:1], times * many, axis=0) for many in events)
        owners, leavers = ([f"one {i % times}" for i in range(times * many)] for many in events)
        return [*steps[:place], steps[place].more(came, left, owners, leavers), *steps[place + 1 :]]

    def admit(self, steps: Sequence[_Step]) -> list[Any]:
        """What the mechanism sees of these events."""
        counters = _Counters()
        return [self._admitted(step, counters) for step in steps]

    def _admitted(self, step: _Step, counters: _Counters) -> Any:
        small = self.encodes and len(step.came) < _FAR_USERS
        frames = [
            self.schema.decode(rows, 1) if small else np.asfortranarray(rows)
            for rows in (step.came, step.left)
        ]
        owners = (step.owners, step.leavers if self.deletes else None) if self.users else None
        batch = Batch(frames[0], frames[1] if self.deletes else None, owners)
        granted = grant_batch(batch, self.plan, self.schema, cast("Store", counters), "audit")
        view, changed = admitted(granted, cast("Store", counters))
        if changed is not None:
            counters.events |= dict(zip(changed.ids, changed.after.tolist(), strict=True))  # type: ignore[union-attr]
        return view


@dataclass
class _Counters:
    """What admission asks a store for: a key, and the users' counters."""

    events: dict[bytes, int] = field(default_factory=dict)

    def derived_key(self, purpose: bytes) -> bytes:
        """A key that is no secret: all records are invented."""
        return hashlib.blake2b(purpose, digest_size=32).digest()

    def user_events(self, ids: list[bytes]) -> NDArray[np.int64]:
        """How many events of each were admitted."""
        return np.array([self.events.get(one, 0) for one in ids], np.int64)


def changed_records(pair: Pair) -> int:
    """In how many admitted inserts and deletes two streams of rows differ."""
    changed = 0
    for one, other in zip(pair.base, pair.other, strict=True):
        assert isinstance(one, EncodedBatch)
        assert isinstance(other, EncodedBatch)
        for rows in zip(batch_codes(one), batch_codes(other), strict=True):
            here, there = (
                Counter(map(tuple, [] if codes is None else np.asarray(codes).tolist())) for codes in rows
            )
            changed += sum(((here - there) + (there - here)).values())
    return changed


def _planted_pairs(config: Config) -> Iterator[Pair]:
    """Streams with planted rows: keyed records, records in their order, people of a panel."""
    stream = attacked_stream(config, 0)
    members, fillers = stream.targets.members, stream.targets.fillers
    nothing = members[:0]

    def batches(rows: Codes) -> list[Any]:
        return list(stream.batches(np.repeat(rows, stream.targets.copies, axis=0)))

    if fillers is not None:
        base = batches(fillers)
        yield Pair("other records in the same numbers", "far", base, batches(members))
    else:
        base = batches(nothing)
        yield Pair(
            "many more records", "far", base, batches(np.repeat(members, _PLANTED // len(members), axis=0))
        )
    kept = nothing if fillers is None else fillers
    yield Pair(
        "several changes at once",
        "control",
        base,
        batches(np.concatenate([members[:_TOO_MANY], kept[_TOO_MANY:]])),
    )
    for number in range(min(_TOO_MANY, len(members))):
        own = members[number : number + 1]
        other = own if fillers is None else np.concatenate([kept[:number], own, kept[number + 1 :]])
        yield Pair(f"target {number + 1}", "near", base, batches(other))
