"""A look at a stream's state without taking its lock: for ``status`` while a run goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.io.sinks.publisher import Differences, noticed, published_steps
from dpstream.stream.release.sink import Sink
from dpstream.stream.store.place import backend_for, is_moved, questions_path, questions_server
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.sealed_history import (
    Head,
    head_problem,
    is_unspent,
    outside_heads,
    outside_heads_of_questions,
    stored_seals,
    undecided_failure,
)
from dpstream.stream.store.step_rows import RESTORED, Decision
from dpstream.stream.store.store_database import StoreDatabase, file_errors
from dpstream.stream.store.stored import (
    is_forgotten,
    largest_cost,
    published_files,
    read_decisions,
    unknown_notice,
)


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
        ConfigError: there is no stream. StoreDamagedError, StoreFormatError: the store cannot be read.
        StoreError: the server cannot be reached.
    """
    backend = backend_for(Path(path), server)
    db = backend.look()
    if db is None:
        raise ConfigError(
            "there is no stream", where=str(path), allowed="a state directory that dpstream run made"
        )
    try:
        with db.errors():
            db.begin(read_only=True)  # one consistent view, whatever a running stream commits meanwhile
            db.verify_structure()
            plan = db.execute("SELECT value FROM meta WHERE key = 'plan'").fetchone()
            spent = largest_cost(db)
            (last,) = db.execute("SELECT coalesce(max(step), 0) FROM ledger").fetchone()
            unpublished, held, withdrawing, withdrawn, rejected = (
                _in_publication(db, state)
                for state in ("pending", "held", "withdrawing", "withdrawn", "rejected")
            )
            reserved = db.execute("SELECT step FROM reservation").fetchone()
            failed = undecided_failure(db)
            (seeded,) = db.execute("SELECT coalesce(max(test_seed), 0) FROM steps").fetchone()
            unspent, decided = is_unspent(db), read_decisions(db)
            facts = json.loads(plan[0])
    except (ValueError, TypeError):
        raise StoreDamagedError("the plan or the ledger cannot be read", where=backend.where) from None
    finally:
        db.close()
    return StreamStatus(
        plan=facts,
        last_step=last,
        spent=spent,
        unpublished=unpublished,
        held=held,
        withdrawn=tuple(sorted({*withdrawing, *withdrawn})),
        rejected=rejected,
        reserved=None if reserved is None else reserved[0],
        failed=None if failed == RESTORED else failed,
        restored=failed == RESTORED,
        made_with_test_seed=bool(seeded),
        unspent=unspent,
        decisions=tuple(decided),
    )


def compare_releases(
    path: str | Path, sink: Sink, *, server: PostgresServer | None = None, deep: bool = False
) -> tuple[dict[int, dict[str, str]], Differences]:
    """Every published step with the SHA-256 of its files as the store knows them, and what of them is missing or
    changed, or is there although it was withdrawn. Changes nothing and needs no lock.

    Args:
        deep: read everything, and not only the last few steps.

    Errors:
        Those of ``read_status``. StoreError: a place of releases cannot be read.
    """
    before: Differences = {}
    for _ in range(2):  # a run may publish, drop or withdraw a step between two looks: what stays is told
        committed, withdrawn = _published(Path(path), server)
        with file_errors("the releases could not be read", sink.directory):
            differences = sink.compare(committed, deep=deep, withdrawn=withdrawn)
        if not differences or differences == before:
            break
        before = differences
    return committed, differences


def wrong_state(path: str | Path, sink: Sink, *, server: PostgresServer | None = None) -> str | None:
    """What the witnesses (``head.json``, that among the releases, and the releases) know and the state in ``path`` does
    not, or that it was moved away; None where it is the newest. Changes nothing, needs neither the lock nor the key.

    Errors:
        Those of ``read_status``. StoreError: a place of releases cannot be read.
    """
    state, releases = Path(path), sink.directory
    # Before the view of the store: what is written meanwhile is ahead of that view.
    with file_errors("the releases could not be read", releases):
        there, told = published_steps(releases), noticed(releases)
    try:
        wrong, states = _compare_heads(Head(state, outside_heads(releases)), state, server)
        if states is None:
            left = there or wrong is not None
            return "the state is gone, and its releases or their witness are there" if left else None
        if wrong is None:
            outside = outside_heads_of_questions(state, releases)
            asked = questions_path(state)
            wrong, _ = _compare_heads(Head(asked, outside), asked, questions_server(server))
    except StoreDamagedError as error:
        return error.what
    last = max(states, default=0)
    findings = [] if wrong is None else [wrong]
    findings += [
        f"step {step} is published, but the ledger ends at step {last}: the state was rolled back"
        for step in sorted(there - states.keys())
    ]
    findings += [unknown_notice(step) for step in sorted(told) if is_forgotten(states.get(step))]
    return findings[0] if findings else None


def _compare_heads(
    head: Head, path: Path, server: PostgresServer | None
) -> tuple[str | None, dict[int, str] | None]:
    """What is wrong with the store of ``path`` by its witnesses; its steps with their publication states, None where
    there is no store."""
    heads = head.read(str(path))
    db = backend_for(path, server).look()
    if db is None:
        left = heads is not None or any(witness.exists() for witness in head.outside)
        return (f"the store of {path.name} is gone, and its witness is there" if left else None), None
    try:
        with db.errors():
            db.begin(read_only=True)
            db.verify_structure()
            if is_moved(db):
                return "this stream was moved away, and goes on elsewhere", {}
            wrong = head_problem(heads, *stored_seals(db))
            return wrong, dict(db.execute("SELECT step, publication FROM steps").fetchall())
    finally:
        db.close()


def _published(
    path: Path, server: PostgresServer | None
) -> tuple[dict[int, dict[str, str]], tuple[int, ...]]:
    """The files of published steps, and the steps that were withdrawn."""
    db = backend_for(path, server).look()
    if db is None:
        return {}, ()
    try:
        with db.errors():
            db.begin(read_only=True)
            db.verify_structure()
            return published_files(db), _in_publication(db, "withdrawn")
    finally:
        db.close()


def _in_publication(db: StoreDatabase, state: str) -> tuple[int, ...]:
    rows = db.execute(f"SELECT step FROM steps WHERE publication = '{state}' ORDER BY step")
    return tuple(step for (step,) in rows)
