"""What a decision about steps is about, and which tasks follow from it; within the transaction that writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpstream.core.errors import ConfigError
from dpstream.service.desk import people as persons
from dpstream.service.desk.board import held_row, read_facts
from dpstream.service.desk.decisions import approvals
from dpstream.service.desk.facts import Decision
from dpstream.service.desk.tasks import add_task, cancel_tasks, read_tasks
from dpstream.stream.store.store_database import StoreDatabase


class OtherStepError(ConfigError):
    """Another table is held at the step now."""


def looked_at(
    db: StoreDatabase,
    stream: str,
    steps: tuple[int, ...],
    kind: str,
    seen: Mapping[int, str] | None,
) -> dict[str, str]:
    """The manifests of held steps; what was looked at is what is decided about.

    Errors:
        ConfigError: a step that is not held (or, to be withdrawn, not released).
        OtherStepError: one whose manifest is not the one in ``seen``.
    """
    rows = {step: held_row(db, stream, step) for step in steps}
    if kind != "withdraw":
        for step, row in rows.items():
            if row is None:
                raise not_held(step)
            if seen is not None and seen.get(step) != row.sha256:
                raise OtherStepError(
                    f"step {step} is not the one that was looked at any more",
                    where=kind,
                    allowed="a decision after another look",
                )
        return {str(step): row.sha256 for step, row in rows.items() if row is not None}
    done = int(read_facts(db, stream)[1].get("steps", 0))
    for step, row in rows.items():
        if row is not None or step > done:
            raise ConfigError(
                f"step {step} is not released",
                where="withdraw",
                allowed="a released step; one that is held is rejected",
            )
    return {}


def follow(db: StoreDatabase, decision: Decision, step: int, needed: int) -> None:
    """Put into the queue what follows from a decision about one step, unless it is there (or was done) already.

    Errors:
        ConfigError: an approval of a step that was rejected.
    """
    stream, kind = decision.stream, decision.kind
    what: dict[str, Any] = {"step": step}
    if kind == "withdraw":
        what |= {"reason": decision.reason}
    else:
        digest = what["manifest_sha256"] = decision.manifests[str(step)]
    # A held step may have been decided about before: its state was restored. What was done to it then does not stand.
    standing = [
        one
        for one in read_tasks(db, stream, only_open=kind != "withdraw")
        if what.items() <= one.what.items() and one.state not in ("failed", "cancelled")
    ]
    if kind != "withdraw" and any(one.kind == "reject" for one in standing):
        if kind == "approve":
            raise ConfigError(f"step {step} was rejected", where="approve", allowed="a step that is held")
        return
    if any(one.kind == kind for one in standing):
        return
    if kind == "reject":
        cancel_tasks(db, stream, "approve", step, "the step was rejected before the worker came to it")
        what |= {"reason": decision.reason}
    if kind == "approve":
        # Somebody who may not decide any more does not count.
        what["by"] = sorted(
            one.person
            for one in approvals(db, stream, step, digest)
            if one.number == decision.number or persons.may_decide(db, one.person)
        )
        if len(what["by"]) < needed:
            return
    add_task(db, stream, kind, what, decision.person, decision.number)


def not_held(step: int) -> ConfigError:
    """The error."""
    return ConfigError(f"step {step} is not held", where="desk", allowed="a step that waits for approval")
