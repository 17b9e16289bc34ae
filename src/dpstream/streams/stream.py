"""A live stream: one durable, exactly-once step after another. See README.md for the protocol."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from dpstream.errors import HorizonError, StepError, StoreDamagedError, StoreError
from dpstream.mechanism import StreamPlan, Synthesis
from dpstream.privacy.randomness import Randomness
from dpstream.schema.codebook import codebook
from dpstream.streams import container
from dpstream.streams.arguments import check_options, check_places, check_text, position_text
from dpstream.streams.batch import Batch, canonical_bytes, encode_batch
from dpstream.streams.database import file_errors
from dpstream.streams.identity import canonical_json, plan_facts, plan_hash, spent_per_step
from dpstream.streams.manifest import Facts, accuracy_of, build_manifest, catalogue_bytes, pretty_json
from dpstream.streams.release import Release, draw_table
from dpstream.streams.sink import Sink
from dpstream.streams.store import Prepared, Reservation, Step, Store
from dpstream.streams.watched import WatchedRandomness

if TYPE_CHECKING:
    from dpstream.privacy.budget import Budget
    from dpstream.schema import Schema
    from dpstream.tables import EncodedBatch

__all__ = ["LedgerEntry", "Stream", "open_stream"]

_log = logging.getLogger("dpstream.streams")
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class LedgerEntry:
    """What one step cost each unit in it; ``parts`` as the plan stated them, amounts exact."""

    step: int
    definition: str
    spent: Fraction
    parts: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class _Policy:
    keep: int | None
    max_rows: int


def open_stream(
    plan: StreamPlan,
    schema: Schema,
    path: str | Path,
    *,
    name: str = "stream",
    randomness: Randomness | None = None,
    publish_to: Sink | None = None,
    keep: Literal["all"] | int = "all",
    max_rows: int = 10_000_000,
    source: Mapping[str, Any] | None = None,
    declared_public: Sequence[str] = (),
) -> Stream:
    """Open the stream whose secret state lives in ``path``, or start it there.

    Guarantee: what ``plan`` states, for everything that ever leaves the stream, crashes and repetitions
    included, as long as nobody restores an old copy of the whole state directory.

    Args:
        plan: the calibrated mechanism. An existing state has to belong to the same plan.
        schema: the public declaration behind ``plan.domain``.
        path: a directory of its own (0700); never inside the releases.
        name: of the stream, in manifests.
        randomness: entropy of the operating system by default; a seeded one marks every manifest.
        publish_to: where releases go; None keeps them in the state only (and they stay unpublished).
        keep: how many of the last steps keep table and model; ``"all"`` by default.
        max_rows: a released table is cut at this many rows (a public rule on a noisy number; the manifest
            gives both).
        source: public facts about how records are cut into steps (``SourceOptions.pinned``), JSON-able. Like
            the plan they may not change while the stream lives.
        declared_public: what the cut treats as public knowledge, in sentences, for every manifest.

    Errors:
        ConfigError: another plan or a bad argument. StoreLockedError: somebody has it open.
        StoreDamagedError: the state contradicts itself or the published catalogue.
        StoreFormatError: written by a newer version.
    """
    check_options(keep, max_rows, name)
    schema.require_confirmed(name)
    policy = _Policy(None if keep == "all" else keep, max_rows)
    facts = plan_facts(plan, schema, name, source, declared_public)
    return Stream(plan, schema, Path(path), facts, randomness or Randomness.system(), publish_to, policy)


class Stream:
    """A live stream; made by ``open_stream`` or ``plan.open``. Close it, or use ``with``.

    One process, one thread. A forked child cannot use it.
    """

    def __init__(
        self,
        plan: StreamPlan,
        schema: Schema,
        path: Path,
        facts: dict[str, Any],
        randomness: Randomness,
        sink: Sink | None,
        policy: _Policy,
    ) -> None:
        self._plan = plan
        self._schema = schema
        self._randomness = randomness
        self._sink = sink
        self._policy = policy
        self._process = os.getpid()
        #: The exception of a failed attempt at the next step, until its owner decides.
        self._undecided: str | None = None
        #: The committed state; None while a step is under way, and after one that failed.
        self._state: Any = None
        self._facts = facts
        self._plan_hash = plan_hash(self._facts)
        if sink is not None:
            check_places(path, sink.directory)
        self._store = Store(path, self._facts, self._genesis)
        try:
            self._stream_id = self._store.meta["stream_id"].hex()
            self._state = self._stored_state()
            self._undecided = self._store.undecided_failure()
            self._check_sink()
            self._publish_pending()
        except BaseException:
            self._store.close()
            raise

    # Public facts

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
        """How far the source was read for the last step, as ``step`` was told. Private.

        Errors:
            StoreDamagedError: the last step was made without one.
        """
        return self._store.position()

    @property
    def source_key(self) -> bytes:
        """A secret key of this stream's own for fingerprints of source files."""
        return self._store.derived_key(b"source files")

    @property
    def plan(self) -> StreamPlan:
        """The calibrated mechanism."""
        return self._plan

    @property
    def spent(self) -> Budget:
        """What the releases so far cost one unit: every unit is in one step (parallel composition), so this
        is the largest step's cost, the whole budget after the first step."""
        amount = max((entry.spent for entry in self.ledger()), default=Fraction(0))
        return type(self._plan.budget)(amount)

    def ledger(self) -> tuple[LedgerEntry, ...]:
        """What every step cost."""
        return tuple(
            LedgerEntry(step, definition, Fraction(spent), tuple(json.loads(parts)))
            for step, definition, spent, parts in self._store.ledger()
        )

    def release(self, step: int | None = None) -> Release:
        """A committed release; the last one by default.

        Errors:
            StepError: there is no such step.
        """
        wanted = self.last_step if step is None else step
        found = self._store.find(step=wanted)
        if found is None:
            raise StepError(f"there is no step {wanted}", where="release", allowed=f"1 to {self.last_step}")
        return self._release(found)

    # The step

    def step(
        self,
        batch: Batch,
        batch_id: str,
        period: str | None = None,
        *,
        position: Mapping[str, int] | None = None,
    ) -> Release:
        """Spend once, advance by one batch, and publish.

        Args:
            batch: the private records that arrive and leave. An empty batch is a step like any other.
            batch_id: the owner's name for it. The same id with the same records (in any order) gives the
                stored release again: nothing is drawn and nothing is spent.
            period: what the step stands for, such as ``"2026-W01"``; public, goes into the manifest.
            position: how far the source was read (``FileSource.position``), kept with the step in its own
                transaction, in the secret state. A repetition keeps the one that is there.

        Errors:
            ConfigError: a bad argument. DataError, SchemaError: the records do not fit. Nothing was spent.
            StepError: the id was used for other records; or a step was reserved before a crash for another
                batch, or failed after it had drawn noise (see ``discard_reservation``).
            HorizonError: the plan pays for no further step.
            StoreError: the disk failed. If the step was committed, it is published on the next call or open.

        Cost: the plan's step, two commits, and the files' fsyncs.
        """
        self._check_process()
        check_text(batch_id, "batch_id")
        if period is not None:
            check_text(period, "period")
        place = None if position is None else position_text(position)
        encoded, inserts, deletes = encode_batch(batch, self._schema, where=f"step {batch_id!r}")
        content = self._store.fingerprint(canonical_bytes(self._schema.domain, inserts, deletes))
        self._publish_pending()
        known = self._store.find(batch_id=batch_id)
        if known is not None:
            return self._repeated(known, content)
        reservation, held = self._reserve(batch_id, content)
        # The state is in the object only while it is the committed one: whatever stops the step, at whatever
        # point, the next one reads the store again.
        state, self._state = self._state, None
        if state is None:
            state = self._stored_state()
        prepared = self._compute(reservation, held, state, encoded, period)
        self._commit_and_publish(replace(prepared, position=place), state)
        committed = self._store.find(step=reservation.step)
        if committed is None:
            raise StoreDamagedError("a committed step cannot be read", where=str(self.path))
        return self._release(committed)

    def discard_reservation(self) -> None:
        """Give up a step that was reserved but never committed, so that another batch can take its place.

        Nothing of it left the process (releases leave only after the commit), so nothing was spent. It is
        not done silently, because a batch that reads differently after a crash is usually a source that
        is not stable, and that is the owner's to decide.

        The same call allows another attempt at a step whose mechanism failed after it had drawn noise. That
        it failed may depend on the noise and the records: who saw it has seen an output that no
        guarantee accounts for (docs/guide/durability.md).
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

    def _reserve(self, batch_id: str, content: bytes) -> tuple[Reservation, bool]:
        """The intent, committed; and whether an earlier attempt had left it (which may have drawn noise)."""
        step = self.last_step + 1
        horizon = self._plan.horizon
        if horizon is not None and step > horizon:
            raise HorizonError(f"the plan pays for {horizon} steps and all are done", where=f"step {step}")
        if self._undecided is not None:
            raise StepError(
                f"step {step} stopped with {self._undecided} after noise was drawn for it; whether it stops "
                "may depend on that noise, so it is not drawn again before you decide",
                where=f"batch {batch_id!r}",
                allowed="discard_reservation() or run --discard-reserved, once the cause is found; each "
                "repetition shows readers that the one before stopped",
            )
        wanted = Reservation(step, batch_id, content)
        held = self._store.reservation()
        if held is None:
            self._store.reserve(wanted)
            _log.info("step %d: reserved", step)
        elif held != wanted:
            same = held.batch_id == batch_id
            what = "other records under this id" if same else f"the batch {held.batch_id!r}"
            raise StepError(
                f"step {step} was reserved for {what} when the process stopped",
                where=f"batch {batch_id!r}",
                allowed="the reserved batch, or discard_reservation() first (nothing was released or spent)",
            )
        return wanted, held is not None

    def _compute(
        self, reservation: Reservation, held: bool, state: Any, encoded: EncodedBatch, period: str | None
    ) -> Prepared:
        """The whole result in memory; ``state`` is advanced."""
        randomness = WatchedRandomness(self._randomness)
        try:
            synthesis = self._plan.step(state, encoded, randomness)
            return self._prepare(reservation, state, synthesis, period, randomness)
        except BaseException as error:
            self._settle(reservation, held, randomness.used, error)
            raise

    def _settle(self, reservation: Reservation, held: bool, drawn: bool, error: BaseException) -> None:
        """What an attempt that stopped before its commit leaves behind; adds to ``error`` what it cannot."""
        try:
            if drawn and isinstance(error, Exception):
                # Its occurrence may depend on what was drawn: it is an output, and drawing again would be a
                # second one. An interrupt comes from outside, like a crash.
                self._undecided = type(error).__name__
                self._store.record_failure(reservation, self._undecided)
            elif not drawn and not held:
                # An intent of an earlier attempt, which may have drawn noise, binds the records still.
                self._store.release_reservation()
        except StoreError as second:
            what = "failed attempt could not be recorded" if drawn else "reservation could not be withdrawn"
            error.add_note(f"the {what} ({second}): see docs/guide/durability.md")

    def _prepare(
        self,
        reservation: Reservation,
        state: Any,
        synthesis: Synthesis,
        period: str | None,
        randomness: Randomness,
    ) -> Prepared:
        seed = int(randomness.words(1)[0]) >> 1  # public: it is printed in the manifest
        rows = min(max(0, round(synthesis.total)), self._policy.max_rows)
        files: dict[str, bytes] = {}
        if self._sink is not None:
            files = self._sink.render(draw_table(synthesis, self._schema, rows, seed))
        test_seed = not randomness.secure or self._store.used_test_seed
        names, relation = self._schema.domain.names, self._plan.unit.relation
        accuracy = accuracy_of(synthesis, names, relation=relation)
        facts = Facts(reservation.step, period, synthesis.total, rows, seed, files, test_seed, accuracy)
        return Prepared(
            reservation=reservation,
            definition=str(self._plan.budget.as_dict()["definition"]),
            spent=str(spent_per_step(self._plan)),
            parts=canonical_json(self._facts["parts"]),
            state=container.dump(self._plan.pack_state(state)),
            synthesis=container.dump(synthesis.pack()),
            manifest=build_manifest(self._plan, self._facts, self._plan_hash, self._stream_id, facts),
            files=files,
            test_seed=test_seed,
            publication="unpublished" if self._sink is None else "pending",
            keep=self._policy.keep,
        )

    def _commit_and_publish(self, prepared: Prepared, state: Any) -> None:
        """The order that the guarantee rests on: nothing leaves before it is durable."""
        self._store.commit_step(prepared)
        self._state = state
        self._store.write_head()
        _log.info("step %d: committed", prepared.reservation.step)
        self._publish_pending()

    def _publish_pending(self) -> None:
        """Publish from committed rows; repeatable at every point."""
        if self._sink is None:
            return
        pending = self._store.in_publication("pending")
        expiring = self._store.in_publication("expiring")
        if not pending and not expiring:
            return
        with file_errors(
            "the release could not be written and will be on the next try", self._sink.directory
        ):
            for step in pending:
                found = self._store.find(step=step)
                if found is not None:
                    self._sink.publish(step, {**self._store.files(step), _MANIFEST: found.manifest})
            self._write_catalogue(self._sink)
            for step in expiring:
                self._sink.expire(step, self._store.file_names(step))
        self._store.mark_published(pending, expiring)
        for step in pending:
            _log.info("step %d: published", step)

    def _write_catalogue(self, sink: Sink) -> None:
        rows = [row for row in self._store.publications() if row[1] not in ("unpublished", "dropped")]
        descriptor = codebook(self._schema, self._facts["stream"], sink.table_name)
        sink.write_public("codebook.json", pretty_json(descriptor))
        sink.write_public(
            "catalogue.json", catalogue_bytes(self._facts, self._plan_hash, self._stream_id, rows)
        )

    def _check_sink(self) -> None:
        """A published step that the ledger does not know means that the state was rolled back."""
        if self._sink is None:
            return
        with file_errors("the releases could not be read", self._sink.directory):
            for step, digest in sorted(self._sink.published(self._stream_id).items()):
                found = self._store.find(step=step)
                if found is None:
                    raise StoreDamagedError(
                        f"step {step} is published, but the ledger ends at step {self.last_step}: "
                        "the state was rolled back, and continuing would spend the budget twice",
                        where=str(self._sink.directory),
                        allowed="the newest state, or a new stream with its own releases directory",
                    )
                if hashlib.sha256(found.manifest).hexdigest() != digest:
                    raise StoreDamagedError(
                        f"the published manifest of step {step} is not the committed one",
                        where=str(self._sink.directory),
                    )

    def _genesis(self) -> tuple[bytes, bytes]:
        stream_id = b"".join(word.to_bytes(8, "little") for word in self._randomness.words(2).tolist())
        return stream_id, container.dump(self._plan.pack_state(self._plan.start()))

    def _stored_state(self) -> Any:
        packed = container.load(self._store.state(), where=f"{self.path} (state)")
        return self._plan.unpack_state(packed)

    def _repeated(self, known: Step, content: bytes) -> Release:
        if known.content != content:
            raise StepError(
                f"this id was used at step {known.step} for other records",
                where=f"batch {known.batch_id!r}",
                allowed="a new id for new records",
            )
        _log.info("step %d: repeated, the stored release is given", known.step)
        return self._release(known)

    def _release(self, found: Step) -> Release:
        packed = self._store.synthesis(found.step)
        synthesis = None
        if packed is not None:
            where = f"{self.path} (release {found.step})"
            synthesis = self._plan.unpack_synthesis(container.load(packed, where=where))
        return Release(found.step, found.batch_id, json.loads(found.manifest), synthesis, self._schema)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise StoreError(
                "the stream was opened by the parent process", where=str(self.path), allowed="opening it here"
            )
