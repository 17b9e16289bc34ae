"""A live stream: one durable, exactly-once step after another. See README.md for the protocol.

Trusted base: kernel (the step protocol).
"""

from __future__ import annotations

import datetime
import hmac
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dpstream.core.contracts import NoisyCounts, StreamPlan, Synthesis
from dpstream.core.errors import (
    ConfigError,
    HorizonError,
    InputError,
    StepError,
    StoreError,
)
from dpstream.core.paths import check_writable
from dpstream.core.privacy.randomness import Randomness, Relay
from dpstream.io.sinks.publisher import Publisher
from dpstream.io.sinks.release_reader import MeasuredStep
from dpstream.io.sinks.target import MEASUREMENTS
from dpstream.stream.admission import ROWS, Admission, Admitted, as_batch, grant_batch
from dpstream.stream.arguments import check_places, check_text, name_text, position_text
from dpstream.stream.cut_users import NONE_CUT, published_cut
from dpstream.stream.identity import canonical_json, plan_hash, spent_per_step
from dpstream.stream.ledger.account import Membership, check_account
from dpstream.stream.predecessor_cost import Base, Broken
from dpstream.stream.release.estimates import Published
from dpstream.stream.release.manifest import (
    StepFacts,
    accuracy_of,
    build_manifest,
    describe_tables,
    label_of,
    new_values,
)
from dpstream.stream.release.outlet import ReleasePublisher
from dpstream.stream.release.persistent_records import join_packed, split_packed
from dpstream.stream.release.publishing import Publishing
from dpstream.stream.release.release import Release
from dpstream.stream.release.render import Carried, RemadeFiles, Renderer
from dpstream.stream.step_log import StepEvent, log_step
from dpstream.stream.store import container
from dpstream.stream.store.encryption import StateKey
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.sealed_history import RESTORED, outside_heads
from dpstream.stream.store.step_rows import (
    STATE,
    Decision,
    Prepared,
    Reservation,
    Step,
    split_state,
)
from dpstream.stream.store.store import Store, key_of_sources
from dpstream.stream.store.summed_rows import ValueCounts

if TYPE_CHECKING:
    from dpstream.core.privacy.budget import Budget
    from dpstream.core.schema import Found, Schema

# Whether a step has drawn noise yet: decides what may happen after a failure.


class WatchedRandomness(Relay):
    """Hands every request on, and remembers that there was one.

    An exception after the first request may depend on what was drawn, so its occurrence is an output.
    """

    def __init__(self, inner: Randomness) -> None:
        #: Whether anything was asked for; set before the request is served.
        self.used = False
        super().__init__(inner)

    @property
    def _inner(self) -> Randomness:
        self.used = True
        return self._watched

    @_inner.setter
    def _inner(self, inner: Randomness) -> None:
        self._watched = inner


def shown_failure(error: BaseException, drawn: bool) -> str | None:
    """The kind of an exception that came after noise was drawn; None for others.

    Its occurrence may depend on what was drawn: it is an output, and drawing again would be a second one. So does a
    full disk: a table's size is its noisy number of records. An interrupt comes from outside, like a crash.
    """
    return type(error).__name__ if drawn and isinstance(error, Exception) else None


# Why a stream takes no step, or not before its owner has decided.


def broken_border(broken: Sequence[Broken], where: str) -> ConfigError:
    """What the earlier streams and this one cost together is more than their manifests say."""
    return ConfigError(
        f"{'; '.join(one.words for one in broken)}: records cost more than the manifests say",
        where=where,
        allowed="a new stream after the earlier stream's last step; dpstream withdraw here",
    )


def undecided(what: str, kind: str, where: str) -> StepError:
    """A step or question failed after noise was drawn for it, or the store that knew whether it did was lost."""
    discard = "run --discard-reserved (discard_reservation())"
    if kind == RESTORED:
        return StepError(
            "the store is a restored copy: this step's noise may be drawn already",
            where=where,
            allowed=f"{discard}, once",
        )
    return StepError(
        f"{what} stopped with {kind} after noise was drawn; the stop may depend on the noise",
        where=where,
        allowed=f"{discard}, after finding the cause; readers see repetitions",
    )


def other_batch(held: Reservation, batch_id: str) -> StepError:
    """The process stopped while it worked on another batch, or on other records."""
    what = "other records under this id" if held.batch_id == batch_id else f"the batch {held.batch_id!r}"
    return StepError(
        f"step {held.step} is reserved for {what}",
        where=f"batch {batch_id!r}",
        allowed="the reserved batch, or discard_reservation() (nothing is spent)",
    )


def other_records(known: Step) -> StepError:
    """The id of a committed step came again, with other records."""
    return StepError(
        f"the id belongs to other records, of step {known.step}",
        where=f"batch {known.batch_id!r}",
        allowed="a new id",
    )


_TAKEN_BACK = ("withdrawing", "withdrawn", "rejected")


class Stream:
    """A live stream; made by ``open_stream``. Close it, or use ``with``.

    One process, one thread. A forked child cannot use it.
    """

    def __init__(
        self,
        plan: StreamPlan,
        schema: Schema,
        path: Path,
        facts: dict[str, Any],
        randomness: Randomness,
        sink: Publisher | None,
        policy: Publishing,
        server: PostgresServer | None = None,
        membership: Membership | None = None,
        key: StateKey | None = None,
        base: Base | None = None,
    ) -> None:
        self._plan = plan
        self._schema = schema
        #: The plan and the schema before anything was discovered, and what was.
        self._root = plan, schema
        self._found: Mapping[str, Sequence[Found]] = {}
        self._randomness = randomness
        self._sink = sink
        self._policy = policy
        self._base = base
        self._server, self._key = server, key
        self._process = os.getpid()
        #: The exception of a failed attempt at the next step, until its owner decides.
        self._undecided: str | None = None
        #: The committed state; None while a step is under way, and after one that failed.
        self._state: Any = None
        #: What the last release hands on to the next one, and what the one that is being made will.
        self._carried = self._coming = Carried()
        self._facts = facts
        self._plan_hash = plan_hash(self._facts)
        if sink is not None:
            check_places(path, sink.directory)
        self._membership = membership
        # A charge in an account stays with its plan.
        self._store = Store(
            path,
            self._facts,
            self._genesis,
            server=server,
            key=key,
            renew=membership is None,
            published=None if sink is None else sink.published,
            outside=outside_heads(None if sink is None else sink.directory),
        )
        keyed = plan.reads == "present"
        self._renderer = Renderer(policy, self._store, sink, self._released_at, self._drawn, keyed=keyed)
        self._admission = Admission(plan.reading_schema(schema), plan.unit, self._store)
        try:
            pin = check_account(membership, self._store.meta, str(self.path))
            if pin is not None:
                self._store.remember_account(pin.to_bytes(), closed=pin.closed)
                if pin.closed:
                    self._erase(self._store.last_step)
            self._stream_id = self._store.meta["stream_id"].hex()
            self._outlet: ReleasePublisher | None = None
            if sink is not None:
                book = partial(self._codebook, with_ids=policy.records == "persistent")
                self._outlet = ReleasePublisher(
                    self._store,
                    sink,
                    facts,
                    book,
                    lambda: RemadeFiles(self._renderer, self._carried.records),
                    self.discovered,
                )
            self._state = self._stored_state()
            self._undecided = self._store.undecided_failure()
            if self._outlet is not None:
                self._outlet.begin()
        except BaseException:
            self._store.close()
            raise

    def __repr__(self) -> str:
        """What a person wants to know of it; no private value, and no number of records."""
        name, how, where = self._facts["stream"], self._plan.name, str(self.path)
        try:
            done = f"{self.last_step} steps, spent {self.spent if self.last_step else 'nothing'}"
        except StoreError:
            done = "closed"
        return f"<Stream {name!r} in {where!r}: {how}, {done}; the budget is {self._plan.budget}>"

    # Columns whose values are discovered

    def _schema_at(self, step: int) -> Schema:
        """The columns with the codes that records of a step have."""
        return self._root[1].grown(self._found, step)

    def _released_at(self, step: int) -> Schema:
        """The columns of the released table of a step."""
        return self._root[0].released_schema(self._schema_at(step))

    def _codebook(self, path: str, step: int, *, with_ids: bool) -> dict[str, Any]:
        """What readers may know who know the steps up to one."""
        released = self._released_at(step + 1)
        return describe_tables(self._root[0], released, self._facts["stream"], path, with_ids=with_ids)

    def _follow(self, state: Any) -> None:
        """Go on with the columns that a state has."""
        found = self._plan.found(state)
        if found != self._found:
            plan, schema = self._root
            self._found = {name: tuple(values) for name, values in found.items()}
            self._plan, self._schema = plan.grown(self._found), schema.grown(self._found)
            self._admission.schema = self._plan.reading_schema(self._schema)

    # Public facts

    def discovered(self) -> set[int]:
        """The steps that discovered values, which all steps after them have."""
        return {one.first - 1 for values in self._found.values() for one in values}

    @property
    def path(self) -> Path:
        """The state directory."""
        return self._store.path

    @property
    def last_step(self) -> int:
        """Number of committed steps."""
        return self._store.last_step

    @property
    def position(self) -> dict[str, int] | None:
        """How far the source was read for the last step, as the caller of ``step`` said. Private.

        Errors:
            StoreDamagedError: the last step was made without one.
        """
        return self._store.position()

    @property
    def begun(self) -> tuple[int, dict[str, int]] | None:
        """The step that is reserved, and how far the source was read for it (``Source.resume``). Private."""
        return self._store.reserved_position()

    @property
    def source_key(self) -> bytes:
        """A secret key of this stream's own for fingerprints of source files."""
        return key_of_sources(self._store.meta["key"])

    @property
    def plan(self) -> StreamPlan:
        """The calibrated mechanism."""
        return self._plan

    @property
    def spent(self) -> Budget:
        """What the releases so far cost one unit: an event is in one step (parallel composition), a user's events may
        all be in one, and a stay is charged in full, so this is the largest cost: the budget, after the first step."""
        return type(self._plan.budget)(self._store.largest_cost())

    @property
    def dropped_events(self) -> int:
        """Events left out because their users had reached ``max_events``. Private: for the owner's eyes only."""
        return self._store.dropped_events()

    def release(self, step: int | None = None) -> Release:
        """A committed release; the last one by default.

        Errors:
            StepError: the step does not exist or was withdrawn.
        """
        wanted = self.last_step if step is None else step
        committed = self._store.committed(wanted)
        if committed.publication in _TAKEN_BACK:
            done = "rejected" if committed.publication == "rejected" else "withdrawn"
            raise StepError(f"step {wanted} was {done}", where="release", allowed="another step")
        return self._release(committed)

    def is_given(self, step: int) -> bool:
        """Whether ``release`` gives this step: it is committed, and was not withdrawn or rejected."""
        committed = self._store.find(step=step)
        return committed is not None and committed.publication not in _TAKEN_BACK

    def held(self) -> list[int]:
        """Committed steps that wait for approval, in order."""
        return self._store.in_publication("held")

    def column_errors(self, step: int) -> dict[str, float]:
        """As ``Published.column_errors``, of a step that may be held: with what the held steps before it measured, too.
        Empty where noisy counts are not published.

        Cost: reads what each step up to this one measured.
        """
        steps: list[MeasuredStep] = []
        for number in range(1, step + 1):
            committed = self._store.find(step=number)
            if committed is not None and committed.publication != "rejected":
                lines = (self._store.stored_file(number, MEASUREMENTS) or b"").splitlines()
                steps.append((json.loads(committed.manifest), [NoisyCounts.from_line(one) for one in lines]))
        if not steps or "base" in steps[-1][0]:
            return {}  # a count holds records of another stream's table, which were not measured
        return Published.of(self._released_at(step), steps).column_errors(step)

    def publish_again(self) -> list[int]:
        """Put back from the store what is missing of published releases; gives those steps. Costs no budget.

        Only what is in the state *published*: never what was withdrawn, rejected, held, or dropped by the keep policy.
        The bytes are those that were published. Nothing that is there is replaced.

        Errors:
            StoreDamagedError: a release was changed. StoreError: a file cannot be made again with the bytes that were
            published, or the disk failed.
        """
        self._check_process()
        return self._require_outlet("publish again").restore()

    def decisions(self) -> list[Decision]:
        """Who approved or withdrew which step, and when. Not public: it is in no release."""
        return self._store.decisions()

    def approve(self, step: int | Collection[int] | None = None, *, by: str = "the Python API") -> list[int]:
        """Publish one or some held steps, or all; gives those that were held until now. Costs no budget.

        Args:
            by: who decided it; kept in the store, and published nowhere.

        Errors:
            StepError: a step that does not exist or cannot be approved, such as one with values that a step discovered
                that is held or rejected; then none is. StoreError: the disk failed.
        """
        self._check_process()
        return self._require_outlet("approve").approve([step] if isinstance(step, int) else step, by)

    def withdraw(self, step: int, reason: str, *, by: str = "the Python API") -> bool:
        """Take a released table back; its manifest stays, and readers are told ``reason``, which is public.

        A step that is held is rejected: nothing of it is ever published, the reason neither. Nothing is refunded. Where
        it discovered values, the stream ends with it. Values that a published step discovered stay.
        Gives False where it was withdrawn already. The next step loses its changes, from which the table could be put
        together again, and has its full table instead. ``by`` as in ``approve``. What explains the folder
        (``index.html``, ``counts.csv``, ...) still counts the table until the next ``dpstream run``.

        Errors:
            StepError: the step is not published. ConfigError: a reason that cannot be used, or another
            one than before. StoreError: the disk failed, or a place beside the folder does not answer; the step is
            withdrawing, the other places have done so, and the same call goes on.
        """
        self._check_process()
        return self._require_outlet("withdraw").withdraw(step, reason, by)

    # The step

    def step(
        self,
        batch: Any,
        name: str | int | datetime.date,
        period: str | None = None,
        *,
        deletes: Any = None,
        users: Any = None,
        position: Mapping[str, int] | None = None,
    ) -> Release:
        """Spend once, advance by one batch, and publish.

        Args:
            batch: the private records that arrive: a frame of pandas, Polars, pyarrow, DuckDB or Spark, a dict, a
                ``Batch``; with keys a ``KeyedBatch`` or ``Snapshot``. None or no rows: a step like any other.
            name: the owner's name for the batch, never published. The same name with the same records gives the stored
                release again: nothing is drawn, nothing spent.
            deletes: records that leave. users: whose the records are. period: what the step stands for; public.
            position: how far the source was read, kept in the secret state.

        Errors: ConfigError, DataError, SchemaError (UnconfirmedError: a snapshot waits): nothing was spent.
            StepError: the name has other records, or another batch is reserved. HorizonError: the plan is used up.
            StoreError: the disk failed; a committed step is published by the next call.
        Cost: the plan's step, two commits, and the files' fsyncs.
        """
        self._check_process()
        batch_id, batch = name_text(name), as_batch(batch, deletes, users)
        if period is not None:
            check_text(period, "period")
        place = None if position is None else position_text(position)
        known = self._store.find(batch_id=batch_id)
        # What comes again is compared in the codes of its step.
        schema = self._schema if known is None or not self._found else self._schema_at(known.step)
        granted = grant_batch(batch, self._plan, schema, self._store, f"step {batch_id!r}")
        content = granted.rows.fingerprint(self._store.derived_key(ROWS))
        self._publish_pending()
        if known is not None:
            return self._repeated(known, content)
        if self._sink is not None:
            check_writable(self._sink.directory)  # before anything is spent
        self._store.sweep_staged()  # of an attempt that stopped; after drawing, an error would be an output
        self._require_step(self.last_step + 1)
        # Before the reservation: what the rules for keys refuse leaves no trace.
        admitted = self._admission.admit(granted, f"step {batch_id!r}")
        del granted  # with what the fingerprint was made of
        reservation, held = self._reserve(batch_id, content, place)
        # The state is in the object only while it is the committed one: whatever stops the step, at whatever
        # point, the next one reads the store again.
        state, self._state = self._state, None
        if state is None:
            state = self._stored_state()
        made = self._compute(reservation, held, state, admitted, period)
        self._commit_and_publish(replace(made, position=place), state)
        return self.release(reservation.step)

    def discard_reservation(self) -> None:
        """Give up a step that was reserved but never committed, so that another batch can take its place.

        Nothing of it left the process, so nothing was spent. It is not done silently: a batch that reads differently
        after a crash is usually a source that is not stable. The same call allows another attempt at a step whose
        mechanism failed after it had drawn noise. Whoever saw that has seen an output that no guarantee accounts for
        (docs/guide/durability.md).
        """
        self._check_process()
        self._store.release_reservation()
        self._undecided = None

    def close(self) -> None:
        """Give up the state directory. Leaves nothing half done."""
        self._store.close()
        self._state = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inside

    def _require_step(self, step: int) -> None:
        """Refuse a step that the plan, its account, or a step that is held does not allow. After a stream's last step
        the present records are gone, so this comes before what rules for keys say."""
        horizon = self._plan.horizon
        if horizon is not None and step > horizon:
            raise HorizonError(
                f"the plan pays for {horizon} steps and is used up",
                where=f"step {step}",
                allowed="a successor (dpstream init --after)",
            )
        if self._outlet is not None:
            self._outlet.require_values([step], self.held() if self._policy.approve else (), f"step {step}")
        if self._membership is not None:
            self._membership.allow_step(self._store.meta, step)

    def _reserve(self, batch_id: str, content: bytes, place: str | None = None) -> tuple[Reservation, bool]:
        """Commit the intent, and give whether an earlier attempt, which may have drawn noise, had left it already."""
        step = self.last_step + 1
        if self._undecided is not None:
            raise undecided(f"step {step}", self._undecided, f"batch {batch_id!r}")
        if self._base is not None and self._base.broken:
            raise broken_border(self._base.broken, f"step {step}")
        wanted = Reservation(step, batch_id, content)
        held = self._store.reservation()
        if held is None:
            self._store.reserve(wanted, place)
            log_step(StepEvent.RESERVED, step, ": reserved")
        elif (held.step, held.batch_id) != (step, batch_id) or not hmac.compare_digest(content, held.content):
            raise other_batch(held, batch_id)
        return wanted, held is not None

    def _compute(
        self, reservation: Reservation, held: bool, state: Any, admitted: Admitted, period: str | None
    ) -> Prepared:
        """Compute the whole result in memory; advances ``state``."""
        randomness = WatchedRandomness(self._randomness)
        try:
            synthesis = self._plan.step(state, admitted.view, randomness)
            cut = before = NONE_CUT
            if admitted.users is not None:
                before = self._store.cut_users()
                cut = before.after(self._plan, reservation.step, admitted.users.cut, randomness)
            told = published_cut(self._plan, before, cut, reservation.step)
            made = self._prepare(reservation, state, synthesis, period, randomness, told)
            if admitted.undiscovered is not None:
                # Texts of records that have keys stay as long as the records do.
                ended = self._plan.discovers(state) and admitted.keyed is None
                ended |= reservation.step == self._plan.horizon
                made = replace(made, values=ValueCounts(admitted.undiscovered.added, ended))
            forgets = admitted.remembered and self._admission.forgets(reservation.step, self._plan.horizon)
            return replace(made, users=admitted.users, cut=cut, keyed=admitted.keyed, forgets=forgets)
        except BaseException as error:
            self._undecided = shown_failure(error, randomness.used)
            self._settle(self._store, reservation, held, randomness.used, error)
            raise

    def _settle(
        self, store: Store, place: Reservation, held: bool, drawn: bool, error: BaseException
    ) -> None:
        """Record what an attempt that stopped before its commit leaves; a note on ``error`` says where that fails."""
        kind = shown_failure(error, drawn)
        try:
            if kind is not None:
                store.record_failure(place, kind)
            elif not drawn and not held:
                # An intent of an earlier attempt, which may have drawn noise, binds the records still.
                store.release_reservation()
        except StoreError as second:
            what = "failed attempt could not be recorded" if drawn else "reservation could not be withdrawn"
            error.add_note(f"the {what} ({second}): see docs/guide/durability.md")

    def _period_of(self, step: int) -> str | None:
        """What an earlier step stands for, as its manifest says."""
        earlier = self._store.find(step=step)
        period = None if earlier is None else json.loads(earlier.manifest)["period"]
        return None if period is None else str(period)

    def _prepare(
        self,
        reservation: Reservation,
        state: Any,
        synthesis: Synthesis,
        period: str | None,
        randomness: Randomness,
        cut: dict[str, Any] | None,
    ) -> Prepared:
        seed = int(randomness.coins("the seed of the synthetic records")[0]) >> 1
        seeded = self._store.used_test_seed or (self._base is not None and self._base.seeded)
        test_seed = seeded or not randomness.secure
        label = label_of(self._plan, self._facts, self._stream_id, reservation.step, period, test_seed)
        made = self._renderer.files(synthesis, self._carried, reservation.step, seed, label)
        self._coming, files = made.carried, made.files
        packed = join_packed(self._plan.pack_state(state), made.carried.records, made.carried.next_id)
        step, told = reservation.step, label if files else None
        accuracy = accuracy_of(
            synthesis,
            self._plan,
            step,
            files,
            with_base=self._base is not None,
            period_of=lambda at: period if at == step else self._period_of(at),
            schema=self._released_at(step),
            cut=cut,
        )
        new, model = new_values(self._plan.found(state), step) or None, synthesis.pack()
        sizes = (synthesis.total, made.rows)
        facts = StepFacts(step, period, *sizes, files, test_seed, accuracy, made.facts, told, made.block, new)
        return Prepared(
            reservation=reservation,
            definition=str(self._plan.budget.as_dict()["definition"]),
            spent=str(spent_per_step(self._plan)),
            parts=canonical_json(self._facts["parts"]),
            state=split_state(packed, self._store.derived_key(STATE)),
            synthesis=container.dump(replace(model, meta={"model": model.meta, "seed": seed})),
            manifest=build_manifest(self._plan, self._facts, self._plan_hash, self._stream_id, facts),
            files=files,
            test_seed=test_seed,
            publication=self._policy.first_state(self._sink is not None),
            keep=made.keep,
        )

    def _commit_and_publish(self, prepared: Prepared, state: Any) -> None:
        """Commit, then publish. The guarantee rests on this order: nothing leaves before it is durable."""
        self._store.commit_step(prepared)
        self._state, self._carried = state, self._coming
        self._follow(state)
        self._admission.committed(prepared.keyed)
        # A step that is published is witnessed by its release; of one that is held only the heads know.
        self._store.write_head(lasting=prepared.publication == "held")
        step = prepared.reservation.step
        log_step(StepEvent.COMMITTED, step, ": committed")
        if prepared.forgets or (prepared.values is not None and prepared.values.ended):
            self._erase(step)
        try:
            self._publish_pending()
        except InputError as error:  # it would say that nothing was spent
            what = f"step {step} is committed, and could not be published: {error.what}"
            raise StoreError(what, where=error.where, allowed=error.allowed) from error

    def _erase(self, step: int) -> None:
        """Leave no trace of deleted counters and values in the store's files. The step is committed, whatever fails."""
        try:
            self._store.compact()
        except StoreError as error:
            log_step(StepEvent.KEPT, step, ": deleted counters remain until dpstream store compact", error)

    def _publish_pending(self) -> None:
        """Publish from committed rows; repeatable at every point."""
        if self._outlet is not None:
            self._outlet.publish()

    def _require_outlet(self, verb: str) -> ReleasePublisher:
        if self._outlet is None:
            raise StepError(
                "the stream has no place for releases", where=verb, allowed="publish_to, or [output]"
            )
        return self._outlet

    def _genesis(self) -> tuple[dict[str, bytes], bytes]:
        stream_id = self._randomness.coins("the name of the stream", 2).astype("<u8").tobytes()
        base = self._base
        fresh = self._plan.start() if base is None else self._plan.start_from(base.table())
        state = container.dump(self._plan.pack_state(fresh))
        # Charged last: only the making of the store comes after it (and a start that stops there is taken up).
        member = self._membership
        return ({"stream_id": stream_id} if member is None else member.begin(stream_id)), state

    def _stored_state(self) -> Any:
        own, records, next_id = split_packed(self._store.state())
        self._carried = Carried(records, next_id)
        state = self._root[0].unpack_state(own)
        self._follow(state)
        return state

    def _repeated(self, known: Step, content: bytes) -> Release:
        if not hmac.compare_digest(content, known.content):
            raise other_records(known)
        log_step(StepEvent.REPEATED, known.step, ": repeated")
        return self._release(known)

    def _release(self, committed: Step) -> Release:
        manifest = json.loads(committed.manifest)
        folder = None if self._sink is None else self._sink.directory
        synthesis, seed = self._drawn(committed.step) or (None, 0)
        released = self._released_at(committed.step)
        return Release(committed.step, committed.batch_id, manifest, synthesis, seed, released, folder)

    def _drawn(self, step: int) -> tuple[Synthesis, int] | None:
        """What the table of a step is drawn from, and the seed; None where they were dropped."""
        stored = self._store.synthesis(step) if step else None
        if stored is None:
            return None
        packed = container.load(stored, where=f"{self.path} (release {step})")
        return self._plan.unpack_synthesis(replace(packed, meta=packed.meta["model"])), packed.meta["seed"]

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise StoreError(
                "the parent process opened the stream", where=str(self.path), allowed="opening it here"
            )
