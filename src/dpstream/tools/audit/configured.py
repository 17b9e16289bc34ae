"""Audits of one configuration file: what its plan draws, chooses, admits and publishes, and attacks on its releases.

Trusted base: invented (counts invented records).
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from dpstream.checks import certify
from dpstream.core.counters import CalibratedCounter
from dpstream.core.errors import DataError, SchemaError
from dpstream.core.privacy import PureDP, Randomness, User
from dpstream.core.tables.encoded_batch import EncodedBatch, batch_codes
from dpstream.families.census.census_plan import CensusPlan
from dpstream.families.panel.people import PeoplePlan
from dpstream.families.tabular import BaselinePlan, DPStabsPlan, PooledPlan
from dpstream.stream.admission import Batch, admitted, grant_batch
from dpstream.tools.audit.attack_families import NothingToAttackError, attacked_stream
from dpstream.tools.audit.attack_streams import steps_of
from dpstream.tools.audit.attacks import MINUTES, attacks_of
from dpstream.tools.audit.controls import quiet_counter
from dpstream.tools.audit.door import Door, Transcript, record, replay, stream_run, transcript_loss
from dpstream.tools.audit.finding import Audit, AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.tools.audit.samplers_audit import audit_samplers
from dpstream.tools.errors.invented_tables import correlated_columns
from dpstream.tools.evaluate.array_types import Codes

if TYPE_CHECKING:
    from dpstream.core.contracts import StartTable, StreamPlan
    from dpstream.project import Config
    from dpstream.stream.store.store import Store


#: Records that come and that leave at each step; those that come at each step of a stream that is far away.
_CAME, _LEFT, _FAR, _FAR_USERS = 60, 20, 30_000, 3_000
#: Different records. The first one is that of the unit by which neighbours differ: no other record is like it.
_POOL = 300
#: Changes at once in the control, which is charged for one: of a tree each change loses a part of the claim only, in
#: a short stream. And of planted rows.
_TOO_MANY, _TOO_MANY_PLANTED = 30, 4
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
        batches(np.concatenate([members[:_TOO_MANY_PLANTED], kept[_TOO_MANY_PLANTED:]])),
    )
    for number in range(min(_TOO_MANY_PLANTED, len(members))):
        own = members[number : number + 1]
        other = own if fillers is None else np.concatenate([kept[:number], own, kept[number + 1 :]])
        yield Pair(f"target {number + 1}", "near", base, batches(other))


#: The most ticks that are audited of a counter, also of longer streams: its claim holds for every prefix.
_TICKS: dict[AuditLength, int] = {"short": 48, "long": 200}
#: Seconds of CPU for pairs of streams. Two of each kind are compared in any case.
_SECONDS: dict[AuditLength, float] = {"short": 30.0, "long": 300.0}
_LEAST = 2

#: What each audit of a configuration looks at.
_EXAMINED = {
    "transcripts": "what whole streams of invented records measure, choose, publish and lose",
    "samplers": "the laws of noise and of choices",
    "exact": "the counter's certificate",
    "attacks": "attacks on the releases",
}
#: What none of them does.
_NEVER = "what the source reads; the store; how releases become files; timing"


def configured_audits(config: Config, minutes: float = MINUTES) -> dict[str, Audit]:
    """Audits of one plan, by name: whole streams, where all that they reveal passes the door (``transcripts``); the
    laws of what is drawn and chosen (``samplers``); the counter's certificate, where it has one (``exact``); attacks on
    its releases, where it publishes tables (``attacks``). No data are read: streams are invented.

    Args:
        minutes: the limit of CPU of the attacks.

    Errors:
        ConfigError: there is nothing of this mechanism that could be audited; or a wrong limit.
    """
    plan, audits = config.plan(), dict[str, Audit]()
    try:
        audits["attacks"] = attacks_of(config, minutes)
    except NothingToAttackError:
        if not _measures(plan) and not isinstance(plan, DPStabsPlan):
            raise
    else:
        audits["samplers"] = _samplers(config)
    if _measures(plan):
        audits["transcripts"] = _transcripts(config)
    if isinstance(plan, DPStabsPlan):
        audits["exact"] = _counter(plan)
    return audits


def _measures(plan: StreamPlan) -> bool:
    """Whether all noise of a plan is measured at the door, and no test has noise."""
    return isinstance(plan, BaselinePlan | CensusPlan | DPStabsPlan | PeoplePlan | PooledPlan)


def scope(config: Config, names: Sequence[str]) -> str:
    """What these audits of a configuration looked at, and what no audit looked at."""
    admission, plan, own = "how records are encoded and bounded", config.plan(), config.recipe
    seen = [words for name, words in _EXAMINED.items() if name in names]
    left = [words for name, words in _EXAMINED.items() if name not in names]
    if not isinstance(plan, DPStabsPlan):
        left.remove(_EXAMINED["exact"])
    (seen if "transcripts" in names and plan.reads == "counts" else left).insert(0, admission)
    if getattr(own, "deletions", False) and not getattr(plan, "cancels", True):
        left.append("the cancelling of equal rows, which this file does not use")
    return f"Examined: {'; '.join(seen)}. Not examined: {'; '.join([*left, _NEVER])}."


def _counter(plan: DPStabsPlan) -> Audit:
    def exact(length: AuditLength, randomness: Randomness, progress: AuditProgress) -> Iterator[AuditFinding]:
        progress("the configured counter")
        counter, most = plan.counter, _TICKS[length]
        ticks = most if counter.horizon is None else min(counter.horizon, most)
        yield exact_counter([(counter, ticks)], f"configured counter {counter.name}")
        quiet = quiet_counter(counter)
        yield exact_counter([(quiet, ticks)], "configured counter with 2/3 of its noise", control=True)

    return exact


def exact_counter(
    counters: Sequence[tuple[CalibratedCounter, int]], subject: str, *, control: bool = False
) -> AuditFinding:
    """The largest certified loss of some counters with the same claim, each over its number of ticks."""
    began = time.perf_counter()
    proofs = [certify(counter, ticks) for counter, ticks in counters]
    worst = max(proofs, key=lambda proof: proof.certified)
    horizons = _ranges([proof.ticks for proof in proofs])
    return AuditFinding.exact(
        began,
        subject=f"{subject}, certificate",
        claimed=worst.claimed,
        # A control must be caught by a loss that is proved, not by an upper bound that is too large.
        found=worst.lower if control else worst.certified,
        control=control,
        detail=f"ticks {horizons}; most at tick {worst.worst_step} of {worst.ticks}",
        unit="epsilon" if worst.definition == "pure" else "rho",
    )


def _ranges(numbers: Sequence[int]) -> str:
    """Rising numbers as a text, with three or more consecutive ones as a range.

    >>> _ranges([1, 2, 7, 8, 9, 33])
    '1, 2, 7 to 9, 33'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _samplers(config: Config) -> Audit:
    def samplers(
        length: AuditLength, randomness: Randomness, progress: AuditProgress
    ) -> Iterator[AuditFinding]:
        progress("one run, for the laws of what it draws")
        base = _start(config)
        pair = next(iter(invented_pairs(config)))
        drawn = record(stream_run(config.plan(), pair.base, base), randomness)
        yield from audit_samplers([drawn.door], randomness, progress)

    return samplers


def _transcripts(config: Config) -> Audit:
    def transcripts(
        length: AuditLength, randomness: Randomness, progress: AuditProgress
    ) -> Iterator[AuditFinding]:
        yield from _StreamAudit(config, randomness).findings(_SECONDS[length], progress)

    return transcripts


class _StreamAudit:
    """Compares pairs of streams under one plan."""

    def __init__(self, config: Config, randomness: Randomness) -> None:
        self.plan, self.start, self.config = config.plan(), _start(config), config
        self.randomness = randomness
        self._first: tuple[Any, Transcript] | None = None
        #: The largest losses of each kind, and how many pairs there were.
        self.worst = {kind: Largest() for kind in ("far", "near", "control", "leak", "admission")}
        self.compared = dict.fromkeys(self.worst, 0)

    def findings(self, seconds: float, progress: AuditProgress) -> Iterator[AuditFinding]:
        began, ends = time.perf_counter(), time.process_time() + seconds
        for pair in invented_pairs(self.config):
            if self.compared[pair.kind] >= _LEAST and time.process_time() > ends:
                continue
            progress(f"streams: {pair.name}")
            self._compare(pair)
        budget, name = self.plan.budget, self.plan.name
        for kind, subject, claimed, control in (
            (
                "far",
                f"configured {name}, other records behind the same measurements",
                0.0,
                False,
            ),
            ("near", f"configured {name}, neighbours", budget, False),
            ("admission", f"configured {name}, the bound on one user's records", budget, False),
            ("control", f"configured {name}, several changes for one", budget, True),
            ("leak", f"configured {name} with an exact count published", budget, True),
        ):
            if self.compared[kind]:
                yield AuditFinding.exact(
                    began,
                    subject=subject,
                    claimed=claimed,
                    unit="epsilon" if isinstance(budget, PureDP) else "rho",
                    found=self.worst[kind].loss,
                    control=control,
                    detail=f"{self.compared[kind]} pairs; most with {self.worst[kind].where}",
                )

    def _compare(self, pair: Pair) -> None:
        plan, start, pure = self.plan, self.start, isinstance(self.plan.budget, PureDP)
        if self._first is None or self._first[0] is not pair.base:
            self._first = (pair.base, record(stream_run(plan, pair.base, start), self.randomness))
        first = self._first[1]
        second, differs = replay(stream_run(plan, pair.other, start), first)
        if differs:
            self._see(pair.kind, math.inf, f"{pair.name}: {differs}")
            return
        if pair.kind == "far":
            self._see("far", 0.0, pair.name)
            if not self.compared["leak"]:
                leaking = _Leaking(plan)
                told = record(stream_run(leaking, pair.base, start), self.randomness)
                words = replay(stream_run(leaking, pair.other, start), told)[1]
                self._see("leak", math.inf if words else 0.0, words)
            return
        loss = transcript_loss(first, second, pure=pure).total
        self._see(pair.kind, loss, pair.name)
        unit = plan.unit
        if pair.kind == "near" and isinstance(unit, User) and plan.reads == "counts":
            # A bound that lets one of a hundred more through would drown in the loss of a transcript.
            share = changed_records(pair) / unit.max_events
            self._see("admission", float(plan.budget.amount) * share ** (1 if pure else 2), pair.name)

    def _see(self, kind: str, loss: float, where: str) -> None:
        self.compared[kind] += 1
        self.worst[kind].see(loss, where)


class _Leaking:
    """A control: publishes the exact values of a measurement beside its noisy ones."""

    def __init__(self, plan: StreamPlan) -> None:
        self._plan, self.budget = plan, plan.budget
        self.start, self.start_from = plan.start, plan.start_from

    def step(self, state: Any, batch: Any, randomness: Randomness, /) -> Any:
        """The plan's step."""
        made: Any = self._plan.step(state, batch, randomness)
        assert isinstance(randomness, Door)
        counts = made.noisy_counts
        if not counts:
            return made
        exact = next(
            one.exact for one in reversed(randomness.measured) if len(one.exact) == counts[-1].values.size
        )
        return replace(made, noisy_counts=(*counts[:-1], replace(counts[-1], values=exact)))


def _start(config: Config) -> StartTable | None:
    base = config.base()
    return None if base is None else base.table()
