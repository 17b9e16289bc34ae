"""The decisions' log: append-only lines, each with the hash of the line before.

What the chain shows: a line that was changed, put in, taken out or moved, since every later hash depends on it. What it
cannot show by itself: that lines are missing at its end, or that the whole log was written anew. Against that stand
the tasks, which name their decision, and the head, a file that the worker writes with the last line it has seen (the
pages may have no rights to it). Whoever can write the database and that file can cut both; then only a hash that was
kept elsewhere shows it (``ledger verify`` prints the last one).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dpstream.core import durable
from dpstream.core.errors import StoreError, counted, unreadable
from dpstream.core.paths import parse_json, sha256_hex
from dpstream.service.desk.facts import Decision, canonical, now
from dpstream.service.desk.roles import ROLES
from dpstream.stream.store.store_database import StoreDatabase

#: The worker's witness, in the service's folder.
HEAD = "decisions-head.json"
_ADDED = re.compile("added (.+) as (?:{0})(?:, (?:{0}))*".format("|".join(ROLES)))
_FIELDS = {one.name for one in fields(Decision)}


class LogChangedError(StoreError):
    """The log differs from what the worker saw."""


def decision_hash(line: str) -> str:
    """What the next line holds of this one."""
    return sha256_hex(line.encode())


def append(db: StoreDatabase, decision: Decision) -> Decision:
    """Write a line, in the caller's transaction; number, time and hash are filled in here."""
    number, before = _last(db) or (0, "")
    made = replace(decision, number=number + 1, time=now(), before=before)
    line = made.line()
    db.execute("INSERT INTO decisions VALUES (?, ?, ?)", (made.number, line, decision_hash(line)))
    return made


def _last(db: StoreDatabase) -> tuple[int, str] | None:
    """Number and hash of the last line."""
    row = db.execute("SELECT number, hash FROM decisions ORDER BY number DESC LIMIT 1").fetchone()
    return None if row is None else (int(row[0]), str(row[1]))


def read_decisions(db: StoreDatabase, after: int = 0) -> list[Decision]:
    """The lines after line ``after``, in order.

    Errors:
        StoreDamagedError: one cannot be read.
    """
    rows = db.execute("SELECT line FROM decisions WHERE number > ? ORDER BY number", (after,)).fetchall()
    with unreadable("a decision cannot be read", db.where):
        return [_decision(json.loads(line)) for (line,) in rows]


def approvals(db: StoreDatabase, stream: str, step: int, manifest: str) -> list[Decision]:
    """The approvals of a step whose manifest has that hash, one for each person: the first since they were added."""
    first: dict[str, Decision] = {}
    for one in since_added(read_decisions(db)):
        if one.kind == "approve" and one.stream == stream and one.manifests.get(str(step)) == manifest:
            first.setdefault(one.person, one)
    return list(first.values())


def since_added(decisions: Iterable[Decision]) -> list[Decision]:
    """Without what people decided before they were added last: who was removed and comes back begins anew."""
    kept: list[Decision] = []
    for one in decisions:
        added = _ADDED.fullmatch(one.reason) if one.kind == "people" else None
        if added is not None:
            kept = [other for other in kept if other.person != added[1]]
        kept.append(one)
    return kept


def write_head(folder: Path, db: StoreDatabase) -> None:
    """Write the witness: the last line's number and hash. For the worker, before it does what decisions say.

    Errors:
        LogChangedError: the log has no such line as the witness names; the witness stays as it is.
    """
    path = folder / HEAD
    before = path.read_bytes() if path.is_file() else None
    if before is not None and not _has_line(db, before):
        raise LogChangedError(
            "the decisions were changed",
            where=str(path),
            allowed="dpstream ledger verify, and repairs",
        )
    last = _last(db)
    if last is None:
        return
    data = canonical({"format": 1, "number": last[0], "hash": last[1]}).encode() + b"\n"
    if before != data:
        durable.replace_file(path, data, mode=0o600)


def _has_line(db: StoreDatabase, witness: bytes) -> bool:
    try:
        number, digest = _head(witness)
    except (ValueError, KeyError, TypeError):
        return False
    row = db.execute("SELECT line FROM decisions WHERE number = ?", (number,)).fetchone()
    return row is not None and decision_hash(str(row[0])) == digest


def _head(witness: bytes) -> tuple[int, str]:
    """The number and the hash in it."""
    head = parse_json(witness)
    return int(head["number"]), str(head["hash"])


def check_log(db: StoreDatabase, folder: Path) -> tuple[list[str], int, str]:
    """What is wrong with the log, how many lines it has, and the hash of the last one."""
    findings: list[str] = []
    rows = db.execute("SELECT number, line, hash FROM decisions ORDER BY number").fetchall()
    before, hashes, lines = "", {}, {}
    for place, (number, line, stored) in enumerate(rows, start=1):
        digest = decision_hash(line)
        hashes[int(number)] = digest
        if number != place and int(number) - 1 not in hashes:
            findings.append(f"decision {number} lacks the line before")
        try:
            entry = _decision(json.loads(line))
        except (ValueError, TypeError, KeyError):
            findings.append(f"decision {number} cannot be read")
        else:
            lines[int(number)] = entry
            if entry.number != number or entry.line() != line or digest != stored:
                findings.append(f"decision {number} was changed")
            if entry.before != before:
                findings.append(f"decision {number} contradicts the line before")
        before = str(stored)
    for row in db.execute("SELECT number, decision, stream, kind, person, what FROM tasks ORDER BY number"):
        task, decision = row[:2]
        if decision not in hashes:
            findings.append(f"task {task} lacks its decision {decision}")
        elif decision in lines and not _follows(lines, lines[decision], *row[2:]):
            findings.append(f"task {task} contradicts decision {decision}")
    findings += _against_head(folder / HEAD, hashes)
    return findings, len(rows), before


def _follows(
    lines: dict[int, Decision], decision: Decision, stream: str, kind: str, person: str, what: str
) -> bool:
    """Whether a task says what its decision says; an approval, that everybody in it has approved that table."""
    if (decision.stream, decision.kind, decision.person) != (stream, kind, person):
        return False
    try:
        facts = parse_json(what)
        if kind == "run":
            return not facts
        if kind == "ask":
            return bool(facts["question"] == decision.reason)
        step, digest = int(facts["step"]), facts.get("manifest_sha256")
        if step not in decision.steps or digest != decision.manifests.get(str(step)):
            return False
        if kind != "approve":
            return bool(facts["reason"] == decision.reason)
        given = [line for line in lines.values() if line.number <= decision.number and line.kind == kind]
        approved = {
            line.person for line in given if line.stream == stream and line.manifests.get(str(step)) == digest
        }
        return bool(facts["by"]) and approved.issuperset(facts["by"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _against_head(path: Path, hashes: dict[int, str]) -> list[str]:
    if not path.is_file():
        return []
    try:
        number, digest = _head(path.read_bytes())
    except (ValueError, KeyError, TypeError):
        return [f"{path.name} cannot be read"]
    if number not in hashes:
        return [
            f"the log ends before decision {number}, seen by the worker: {counted(number, 'line')} expected"
        ]
    return [] if hashes[number] == digest else [f"decision {number} differs from what the worker saw"]


def _decision(given: dict[str, Any]) -> Decision:
    if set(given) != _FIELDS:
        raise ValueError("other keys than a decision's")
    return Decision(**{**given, "steps": tuple(given["steps"])})
