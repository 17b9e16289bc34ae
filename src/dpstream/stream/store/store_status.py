"""A look at a stream's state without taking its lock: for ``status`` while a run goes on.

Trusted base: owner (looks at private state without its lock).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpstream.core.errors import StoreDamagedError
from dpstream.io.sinks.publisher import noticed, published_steps
from dpstream.stream.store.place import is_moved, no_stream, questions_path, questions_server, viewed
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.sealed_history import (
    RESERVATION,
    RESTORED,
    Head,
    head_problem,
    is_unspent,
    outside_heads,
    outside_heads_of_questions,
    stored_seals,
    undecided_failure,
)
from dpstream.stream.store.step_rows import Decision
from dpstream.stream.store.store_database import file_errors
from dpstream.stream.store.stored import (
    largest_cost,
    publication_states,
    read_decisions,
    rollback_problems,
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
    try:
        with viewed(Path(path), server) as db:
            if db is None:
                raise no_stream(str(path))
            states = publication_states(db)
            (plan,) = db.execute("SELECT value FROM meta WHERE key = 'plan'").fetchone()
            reserved = db.execute("SELECT step FROM latest WHERE name = ?", (RESERVATION,)).fetchone()
            (seeded,) = db.execute("SELECT coalesce(max(test_seed), 0) FROM steps").fetchone()
            facts, spent, failed = json.loads(plan), largest_cost(db), undecided_failure(db)
            unspent, decided = is_unspent(db), read_decisions(db)
    except (ValueError, TypeError):
        raise StoreDamagedError("the plan or the ledger cannot be read", where=str(path)) from None

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
        reserved=None if reserved is None else reserved[0],
        failed=None if failed == RESTORED else failed,
        restored=failed == RESTORED,
        made_with_test_seed=bool(seeded),
        unspent=unspent,
        decisions=tuple(decided),
    )


def wrong_state(path: str | Path, releases: Path, *, server: PostgresServer | None = None) -> str | None:
    """What the witnesses (``head.json``, that among the releases, and the releases) know and the state in ``path`` does
    not, or that it was moved away; None where it is the newest. Changes nothing, needs neither the lock nor the key.

    Errors:
        Those of ``read_status``. StoreError: a place of releases cannot be read.
    """
    state = Path(path)
    # Before the view of the store: what is written meanwhile is ahead of that view.
    with file_errors("the releases could not be read", releases):
        there, withdrawn = published_steps(releases), noticed(releases)
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
    problems = [] if wrong is None else [wrong]
    problems += rollback_problems(there, withdrawn, states)
    return problems[0] if problems else None


def _compare_heads(
    head: Head, path: Path, server: PostgresServer | None
) -> tuple[str | None, dict[int, str] | None]:
    """What is wrong with the store of ``path`` by its witnesses; its steps with their publication states, None where
    there is no store."""
    heads = head.read(str(path))
    with viewed(path, server) as db:
        if db is None:
            left = heads is not None or any(witness.exists() for witness in head.outside)
            return (f"the store of {path.name} is gone, and its witness is there" if left else None), None
        if is_moved(db):
            return "this stream was moved away, and goes on elsewhere", {}
        return head_problem(heads, *stored_seals(db)), publication_states(db)
