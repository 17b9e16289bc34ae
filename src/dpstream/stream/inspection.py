"""A look at a stream without its lock: where it stands, and whether state, witnesses, releases, plan and account agree.

Changes nothing; a run may be under way. What is not written in one transaction is read before the view of the store, so
that a step that is committed meanwhile does not look like a store that was rolled back.

Trusted base: owner (checks private state without its lock).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpstream.core.errors import StoreDamagedError, unreadable
from dpstream.core.paths import parse_json, sha256_hex
from dpstream.io.sinks.publisher import Publisher, noticed, published_steps
from dpstream.io.sinks.target import MANIFEST, MEASUREMENTS, NOTICE, Differences, step_name
from dpstream.stream.ledger.account import Account
from dpstream.stream.ledger.reading import (
    KNOWN_TO_READERS,
    UNREAD,
    UNREADABLE,
    Ledger,
    catalogue_problems,
    ledger_of,
    plan_problems,
    release_problems,
    released_files,
)
from dpstream.stream.store.encryption import StateKey, unlock
from dpstream.stream.store.place import (
    MOVED_AWAY,
    backend_for,
    is_moved,
    no_stream,
    questions_path,
    questions_server,
    viewed,
)
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.sealed_history import (
    RESERVATION,
    RESTORED,
    Head,
    Heads,
    head_problem,
    is_unspent,
    look_at_history,
    outside_heads,
    outside_heads_of_questions,
    read_meta,
    step_of,
    stored_plan,
    stored_seals,
    undecided_failure,
)
from dpstream.stream.store.step_rows import Decision
from dpstream.stream.store.store import (
    largest_cost,
    publication_states,
    published_files,
    read_decisions,
    rollback_problems,
)
from dpstream.stream.store.store_database import STORE_FORMAT, StoreDatabase, file_errors
from dpstream.stream.store.summed_rows import user_folder
from dpstream.stream.store.upkeep import stored_problems

#: Publication states in which a step's table is gone, and what it measured is still published.
_STAYED = ("expired", "withdrawn")


@dataclass(frozen=True)
class StreamStatus:
    """Where a stream stands. Everything but ``reserved``, ``failed`` and ``decisions`` is public.

    Attributes:
        plan: the facts that the stream is pinned to (mechanism, options, budget, unit, schema).
        last_step: number of committed steps.
        spent: the largest step's cost, exact: what all releases together cost one unit.
        unpublished: committed steps whose files are not in place yet.
        held: committed steps that wait for approval.
        withdrawn: steps that were taken back after readers had them. rejected: before.
        reserved: a step that was begun and not committed (running now, or stopped).
        failed: the exception that stopped the reserved step after it had drawn noise; it waits for the
            owner's decision (``Stream.discard_reservation``).
        restored: the store was lost and a copy of it taken in; the next step waits for the same decision.
        made_with_test_seed: some step used predictable noise.
        decisions: who approved or withdrew which step. Not public.
        unspent: no step was ever begun, and no account charged: another plan may take this one's place.
    """

    plan: dict[str, Any]
    last_step: int
    spent: Fraction
    unpublished: tuple[int, ...]
    held: tuple[int, ...]
    withdrawn: tuple[int, ...]
    rejected: tuple[int, ...]
    reserved: int | None
    failed: str | None
    restored: bool
    made_with_test_seed: bool
    unspent: bool
    decisions: tuple[Decision, ...]


def read_status(path: str | Path, *, server: PostgresServer | None = None) -> StreamStatus:
    """Read the state in ``path``, or on ``server``; changes nothing and needs no lock.

    Errors:
        ConfigError: the stream is missing. StoreDamagedError, StoreFormatError: the store cannot be read.
        StoreError: the server cannot be reached.
    """
    with unreadable(UNREADABLE, str(path)), viewed(Path(path), server) as db:
        if db is None:
            raise no_stream(str(path))
        states = publication_states(db)
        facts, reserved = stored_plan(read_meta(db), str(path)), step_of(db, RESERVATION)
        (seeded,) = db.execute("SELECT coalesce(max(test_seed), 0) FROM steps").fetchone()
        spent, failed = largest_cost(db), undecided_failure(db)
        unspent, decided = is_unspent(db), read_decisions(db)

    def in_state(*publications: str) -> tuple[int, ...]:
        return tuple(step for step, state in states.items() if state in publications)

    return StreamStatus(
        plan=facts,
        last_step=max(states, default=0),
        spent=spent,
        unpublished=in_state("pending"),
        held=in_state("held"),
        withdrawn=in_state("withdrawing", "withdrawn"),
        rejected=in_state("rejected"),
        reserved=reserved,
        failed=None if failed == RESTORED else failed,
        restored=failed == RESTORED,
        made_with_test_seed=bool(seeded),
        unspent=unspent,
        decisions=tuple(decided),
    )


@dataclass(frozen=True)
class _StoreAt:
    """A store of the stream: that of its steps, or that of its questions, which may not be there."""

    path: Path
    server: PostgresServer | None
    head: Head
    of_questions: bool

    @property
    def gone(self) -> bool:
        """Whether a witness is there; of a store that is not."""
        return any(witness.exists() for witness in (self.head.path, *self.head.outside))

    def say(self, problem: str) -> str:
        return f"the questions: {problem}" if self.of_questions else problem


_GONE = "the store is gone; its witness remains"


def _stores(path: Path, releases: Path | None, server: PostgresServer | None) -> tuple[_StoreAt, _StoreAt]:
    asked, outside = questions_path(path), outside_heads_of_questions(path, releases)
    return (
        _StoreAt(path, server, Head(path, outside_heads(releases)), of_questions=False),
        _StoreAt(asked, questions_server(server), Head(asked, outside), of_questions=True),
    )


def wrong_state(path: str | Path, releases: Path, *, server: PostgresServer | None = None) -> str | None:
    """What the witnesses (``head.json``, that among the releases, and the releases) know and the state in ``path`` does
    not, or that it was moved away; None where it is the newest. Changes nothing, needs neither the lock nor the key.

    Errors:
        Those of ``read_status``. StoreError: a place of releases cannot be read.
    """
    with file_errors(UNREAD, releases):
        there, withdrawn = published_steps(releases), noticed(releases)
    states = dict[int, str]()
    try:
        for store in _stores(Path(path), releases, server):
            heads = store.head.read(str(store.path))
            with viewed(store.path, store.server) as db:
                if db is None:
                    if store.gone:
                        return store.say(_GONE)
                    continue
                if is_moved(db):
                    return MOVED_AWAY
                wrong = head_problem(heads, stored_seals(db))
                if wrong is not None:
                    return store.say(wrong)
                states = states if store.of_questions else publication_states(db)
    except StoreDamagedError as error:
        return error.what
    problems = rollback_problems(there, withdrawn, states)
    return problems[0] if problems else None


@dataclass(frozen=True)
class CheckedStore:
    """What a check of a store found; it holds no value and no number of records.

    Attributes:
        format: of the store; None where it is broken.
        steps: committed steps that hold together.
        moved: whether the stream goes on elsewhere.
        key: the name of the key that it is encrypted with; None where it is not.
        problems: one sentence each; none if all is well.
    """

    format: int | None
    steps: int | None
    moved: bool
    key: str | None
    problems: tuple[str, ...]


def check_store(
    path: Path,
    releases: Path | None,
    *,
    server: PostgresServer | None = None,
    key: StateKey | None = None,
) -> CheckedStore:
    """Read everything: what ``verify_ledger`` looks at but the account, every stored byte, what is published, and the
    store of questions.

    Errors:
        ConfigError: the stream is missing. StoreError: the database cannot be reached.
    """
    check = _Check(path, releases, server, key, everything=True)
    problems = tuple(dict.fromkeys(f"{where}: {what}" for where, what in check.problems))
    name = None if key is None else key.name
    return CheckedStore(check.format, check.steps, check.moved, name, problems)


def verify_ledger(
    path: str | Path,
    *,
    releases: str | Path | None = None,
    account: str | Path | None = None,
    server: PostgresServer | None = None,
    key: StateKey | None = None,
) -> list[str]:
    """Recompute everything that is known of a ledger, and say what is wrong, in one sentence each.

    Looks at the store's structure and seals, the head file, sums against the plan, the manifests in the store and
    among the ``releases``, their catalogue, and the stream's charge in its ``account``; and at the store of its
    questions.

    Errors:
        ConfigError: stream or account is missing. StoreError: the disk or the server fails.
    """
    folder = None if releases is None else Path(releases)
    check = _Check(Path(path), folder, server, key, everything=False)
    findings = [what for _, what in check.problems]
    return findings if check.ledger is None else findings + _account_problems(check.ledger, account)


class _Check:
    """A look at both stores of a stream, and at its releases.

    Attributes:
        problems: where something is wrong, and what.
    """

    def __init__(
        self,
        path: Path,
        releases: Path | None,
        server: PostgresServer | None,
        key: StateKey | None,
        *,
        everything: bool,
    ) -> None:
        self.format: int | None = None
        self.steps: int | None = None
        self.moved = False
        self.ledger: Ledger | None = None
        self.problems: list[tuple[str, str]] = []
        self._releases, self._key, self._everything = releases, key, everything
        self._published = {} if releases is None else released_files(releases, everything=everything)
        for store in _stores(path, releases, server):
            heads: Heads | None = None
            try:
                heads = store.head.read(str(store.head.path))
                self._look(store, heads)
            except StoreDamagedError as error:
                self.problems.append((error.where or str(store.path), store.say(error.what)))

    def _look(self, store: _StoreAt, heads: Heads | None) -> None:
        with viewed(store.path, store.server) as db:
            if db is None:
                if store.gone:
                    raise StoreDamagedError(_GONE, where=str(store.path))
                if not store.of_questions:
                    raise no_stream(backend_for(store.path, store.server).where)
                return
            unlock(db, self._key)
            meta = read_meta(db)
            history = look_at_history(db, meta)
            wrong = [head_problem(heads, history), *history.problems]
            if self._everything:
                wrong.append(db.verify_all())
                if history.sound:
                    users = user_folder(store.path, meta)
                    wrong += stored_problems(db, meta["key"], history.last_step, users)
            if not store.of_questions:
                self.format, self.moved = STORE_FORMAT, is_moved(db)
                if history.sound:
                    self.steps = history.last_step
                    self.ledger = ledger_of(db, meta)
                    wrong += plan_problems(self.ledger)
                    wrong += _manifest_problems(db, self.ledger)
            self.problems += [(db.where, store.say(problem)) for problem in wrong if problem is not None]
            if self.ledger is not None and not store.of_questions:
                self._look_at_releases(db, self.ledger)

    def _look_at_releases(self, db: StoreDatabase, ledger: Ledger) -> None:
        """How the released files differ from the committed ones."""
        if self._releases is None:
            return
        known = {spend.step: spend.manifest_sha256 for spend in ledger.spends}
        states, committed = publication_states(db), dict[int, dict[str, str]]()
        for step, state in states.items():
            folder, files = self._releases / step_name(step), self._published.get(step)
            if files is None and folder.is_dir():
                continue  # it was published meanwhile
            committed[step] = {MANIFEST: known[step]}
            if self._everything:
                rows = db.execute("SELECT name, sha256 FROM files WHERE step = ?", (step,))
                committed[step].update(rows.fetchall())
            if state != "published":
                kept = {*(files or ())} | ({MEASUREMENTS} if state in _STAYED else set())
                kept |= {MANIFEST} if state in KNOWN_TO_READERS else set()
                committed[step] = {name: digest for name, digest in committed[step].items() if name in kept}
            if state == "withdrawn" and files is not None:  # it may have been withdrawn meanwhile
                self._published[step] = {name: files[name] for name in files if (folder / name).exists()}
        noticed_steps = [step for step, files in self._published.items() if NOTICE in files]
        problems = rollback_problems(self._published, noticed_steps, states)
        withdrawn = [step for step, state in states.items() if state == "withdrawn"]
        problems += release_problems(self._published, committed, withdrawn)
        problems += catalogue_problems(self._releases, ledger.stream_id, known)
        self.problems += [(str(self._releases), problem) for problem in problems]


def _manifest_problems(db: StoreDatabase, ledger: Ledger) -> list[str]:
    """The manifests in the store say what the ledger says."""
    problems = []
    for spend in ledger.spends:
        (data,) = db.execute("SELECT manifest FROM steps WHERE step = ?", (spend.step,)).fetchone()
        if sha256_hex(data) != spend.manifest_sha256:
            problems.append(f"the stored manifest of step {spend.step} differs from its hash")
        manifest = parse_json(data)
        facts = (
            manifest["step"],
            manifest["stream_id"],
            Fraction(manifest["spent"]["step"]),
            manifest["mechanism"]["parts"],
        )
        if facts != (spend.step, ledger.stream_id, spend.spent, list(spend.parts)):
            problems.append(f"the manifest of step {spend.step} differs from the ledger")
    return problems


def _account_problems(ledger: Ledger, account: str | Path | None) -> list[str]:
    if account is None:
        return [] if ledger.pin is None else ["the stream's account is not given"]
    try:
        state = Account(account).read()
    except StoreDamagedError as error:
        return [f"the account: {error.what}"]
    charge = state.find(ledger.stream_id)
    if charge is None or (ledger.pin is not None and not state.knows(ledger.pin)):
        return ["the account lacks the stream's charge"]
    if charge.budget != ledger.planned:
        return [f"the account charged {charge.budget}, and the plan says {ledger.planned}"]
    return []


def compare_releases(
    path: str | Path, sink: Publisher, *, server: PostgresServer | None = None, deep: bool = False
) -> tuple[dict[int, dict[str, str]], Differences]:
    """Every published step with the SHA-256 of its files as the store knows them, and what of them is missing or
    changed, or is there although it was withdrawn. Changes nothing and needs no lock.

    Args:
        deep: read everything, and not only the last few steps.

    Errors:
        StoreDamagedError, StoreFormatError: the store cannot be read. StoreError: a place of releases cannot be read.
    """
    before: Differences = {}
    for _ in range(2):  # a run may publish, drop or withdraw a step between two looks: what stays is told
        with viewed(Path(path), server) as db:
            committed = {} if db is None else published_files(db)
            states = {} if db is None else publication_states(db)
        withdrawn = [step for step, state in states.items() if state == "withdrawn"]
        with file_errors(UNREAD, sink.directory):
            differences = sink.compared(committed, deep=deep, withdrawn=withdrawn)
        if not differences or differences == before:
            break
        before = differences
    return committed, differences
