"""What a stream spent, on what and when: read, verified against everything that knows of it, and exported.

Read without the stream's lock and without changing anything, in one consistent view of the store.

Trusted base: owner (reads what was spent).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreFormatError
from dpstream.core.paths import parse_json, read_bytes
from dpstream.core.privacy.budget import Budget
from dpstream.io.sinks.catalogue import Catalogue
from dpstream.io.sinks.publisher import noticed, published_steps
from dpstream.io.sinks.target import MANIFEST, step_name
from dpstream.stream.identity import canonical_json, plan_hash
from dpstream.stream.ledger.account import Account, Pin
from dpstream.stream.ledger.limit import budget_from_dict
from dpstream.stream.store.encryption import StateKey, unlock
from dpstream.stream.store.place import has_store, no_stream, questions_path, questions_server, viewed
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.sealed_history import (
    POSITION,
    Head,
    account_pin,
    history_problems,
    outside_heads,
    outside_heads_of_questions,
    read_history,
    read_latest,
    read_meta,
)
from dpstream.stream.store.store_database import StoreDatabase, file_errors
from dpstream.stream.store.stored import as_position, key_of_sources, rollback_problems

#: Publication states of steps whose manifest is among the releases.
_KNOWN_TO_READERS = ("published", "expiring", "expired", "withdrawing", "withdrawn")


@dataclass(frozen=True)
class Spend:
    """One step in the ledger. ``batch_id``, ``publication`` and ``time`` are the owner's, the rest is public.

    Attributes:
        definition, spent, parts: as the plan stated them; amounts exact. What one step costs a unit in it.
        time: by the owner's clock.
    """

    step: int
    period: str | None
    definition: str
    spent: Fraction
    parts: tuple[dict[str, Any], ...]
    manifest_sha256: str
    test_seed: bool
    batch_id: str
    publication: str
    time: str


@dataclass(frozen=True)
class Ledger:
    """What a stream is pinned to, and what it spent."""

    stream_id: str
    plan_hash: str
    facts: dict[str, Any]
    spends: tuple[Spend, ...]
    pin: Pin | None

    @property
    def planned(self) -> Budget:
        """What all releases together may cost one unit."""
        return budget_from_dict(self.facts["budget"])

    @property
    def total(self) -> Budget:
        """What the releases so far cost one unit: the largest step's cost, because every unit is in one step, or
        because the whole budget is charged at the first one."""
        return type(self.planned)(max((spend.spent for spend in self.spends), default=Fraction(0)))

    @property
    def inside(self) -> list[int]:
        """Steps whose manifest is not among the releases (yet): held for approval, or without a sink."""
        return [spend.step for spend in self.spends if spend.publication not in _KNOWN_TO_READERS]

    @property
    def steps_left(self) -> int | None:
        """How many steps the plan still pays for; None without a horizon."""
        horizon = self.facts["horizon"]
        return None if horizon is None else max(0, int(horizon) - len(self.spends))


def read_ledger(
    path: str | Path, *, server: PostgresServer | None = None, key: StateKey | None = None
) -> Ledger:
    """The ledger of the stream whose state is in ``path``, or on ``server``; its seals are checked.

    Errors:
        ConfigError: there is no stream. StoreDamagedError: a seal does not hold (``verify_ledger`` says more).
    """
    with _view(path, server, key) as db:
        meta = read_meta(db)
        read_history(db, meta, db.where)
        return _ledger(db, meta)


def read_identity(
    path: str | Path, *, server: PostgresServer | None = None, key: StateKey | None = None
) -> tuple[dict[str, bytes], int] | None:
    """What a store remembers of its plan and its account (secret), and its last step; None where there is none."""
    if not has_store(Path(path), server=server):
        return None
    with _view(path, server, key) as db:
        meta = read_meta(db)
        return meta, read_history(db, meta, db.where).last_step


def read_source_position(
    path: str | Path, *, server: PostgresServer | None = None, key: StateKey | None = None
) -> tuple[dict[str, int], bytes] | None:
    """How far the source was read for the last step, and the key for fingerprints of its files, as
    ``Stream.position`` and ``Stream.source_key``; None before the first step. Secret.

    Errors:
        StoreDamagedError: it cannot be read.
    """
    if not has_store(Path(path), server=server):
        return None
    with _view(path, server, key) as db:
        secret = read_meta(db)["key"]
        stored = read_latest(db, secret, POSITION)
        return None if stored is None else (as_position(stored[1]), key_of_sources(secret))


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
    questions. A run may be under way.

    Errors:
        ConfigError: there is no stream, or no account. StoreError: the disk or the server fails.
    """
    folder = None if releases is None else Path(releases)
    # Before the view of the store: what is written meanwhile is ahead of that view.
    before = set() if folder is None else published_steps(folder)
    try:
        head = Head(Path(path), outside_heads(folder)).read(str(path))
        with _view(path, server, key) as db:
            meta = read_meta(db)
            findings, sound = history_problems(db, meta, head)
            if not sound:
                return findings
            ledger = _ledger(db, meta)
            findings += _check_plan(ledger) + _check_manifests(db, ledger)
        findings += _check_questions(Path(path), folder, server, key)
    except StoreDamagedError as error:
        return [error.what]
    if folder is not None:
        findings += rollback_problems(
            before, noticed(folder), {spend.step: spend.publication for spend in ledger.spends}
        )
        known = {spend.step: spend.manifest_sha256 for spend in ledger.spends}
        outside = {step: digest for step, digest in known.items() if step not in ledger.inside}
        findings += verify_releases(folder, ledger.stream_id, known, outside)
    return findings + _check_account(ledger, account)


def verify_releases(
    folder: Path, stream_id: str, known: dict[int, str], required: dict[int, str]
) -> list[str]:
    """Compare released manifests and the catalogue with a ledger's hashes.

    Args:
        known: SHA-256 of the manifest of every step in the ledger.
        required: those that have to be there.
    """
    findings: list[str] = []
    for step, digest in sorted(required.items()):
        path = folder / step_name(step) / MANIFEST
        if not path.is_file():
            findings.append(f"the manifest of step {step} is missing among the releases")
        elif hashlib.sha256(read_bytes(path)).hexdigest() != digest:
            findings.append(f"the released manifest of step {step} is not the one in the ledger")
    return findings + _check_catalogue(folder, stream_id, known)


# Inside


@contextmanager
def _view(path: str | Path, server: PostgresServer | None, key: StateKey | None) -> Iterator[StoreDatabase]:
    """One consistent look at a store with its key."""
    with viewed(Path(path), server) as db:
        if db is None:
            raise no_stream(str(path))
        unlock(db, key)
        yield db


def _check_questions(
    state: Path, releases: Path | None, server: PostgresServer | None, key: StateKey | None
) -> list[str]:
    """What is wrong with the store of the stream's questions, where it has one or had one."""
    path = questions_path(state)
    head = Head(path, outside_heads_of_questions(state, releases))
    heads = head.read(str(path))
    if not has_store(path, server=questions_server(server)):
        left = heads is not None or any(witness.exists() for witness in head.outside)
        return ["the store of the questions is gone, and its witness is there"] if left else []
    with _view(path, questions_server(server), key) as db:
        return [f"the questions: {finding}" for finding in history_problems(db, read_meta(db), heads)[0]]


def _ledger(db: StoreDatabase, meta: dict[str, bytes]) -> Ledger:
    try:
        facts: dict[str, Any] = json.loads(meta["plan"])
        rows = db.execute(
            "SELECT step, definition, spent, parts, manifest, manifest_sha256, test_seed, batch_id, publication, "
            "committed FROM steps ORDER BY step"
        )
        spends = tuple(
            Spend(
                step=step,
                period=json.loads(manifest)["period"],
                definition=definition,
                spent=Fraction(spent),
                parts=tuple(json.loads(parts)),
                manifest_sha256=digest,
                test_seed=bool(test_seed),
                batch_id=batch_id,
                publication=publication,
                time=time,
            )
            for step, definition, spent, parts, manifest, digest, test_seed, batch_id, publication, time in rows
        )
    except (ValueError, KeyError, TypeError, ZeroDivisionError):
        raise StoreDamagedError("the plan or the ledger cannot be read", where=db.where) from None
    remembered = account_pin(meta, db.where)
    pin = None if remembered is None else Pin.from_bytes(remembered, db.where)
    return Ledger(meta["stream_id"].hex(), plan_hash(facts), facts, spends, pin)


def _check_plan(ledger: Ledger) -> list[str]:
    """Every step spent what the plan says, part by part, and no step is beyond the horizon."""
    findings, planned = [], ledger.planned
    for one in ledger.spends:
        parts = sum((Fraction(part["total"]) for part in one.parts), Fraction(0))
        if parts != one.spent:
            findings.append(f"the parts of step {one.step} add up to {parts}, and {one.spent} is booked")
        if one.definition != planned.as_dict()["definition"] or one.spent != planned.amount:
            findings.append(
                f"step {one.step} spent {one.spent} ({one.definition}), and the plan says {planned}"
            )
        if canonical_json(list(one.parts)) != canonical_json(ledger.facts["parts"]):
            findings.append(f"the parts of step {one.step} are not the plan's")
    horizon = ledger.facts["horizon"]
    if horizon is not None and len(ledger.spends) > horizon:
        findings.append(f"there are {len(ledger.spends)} steps, and the plan pays for {horizon}")
    return findings


def _check_manifests(db: StoreDatabase, ledger: Ledger) -> list[str]:
    """The manifests in the store say what the ledger says."""
    findings = []
    for one in ledger.spends:
        (data,) = db.execute("SELECT manifest FROM steps WHERE step = ?", (one.step,)).fetchone()
        if hashlib.sha256(data).hexdigest() != one.manifest_sha256:
            findings.append(f"the stored manifest of step {one.step} does not have the recorded hash")
        manifest = parse_json(data)
        facts = (
            manifest["step"],
            manifest["stream_id"],
            Fraction(manifest["spent"]["step"]),
            manifest["mechanism"]["parts"],
        )
        if facts != (one.step, ledger.stream_id, one.spent, list(one.parts)):
            findings.append(f"the manifest of step {one.step} does not say what the ledger says")
    return findings


def _check_catalogue(folder: Path, stream_id: str, known: dict[int, str]) -> list[str]:
    try:
        catalogue = Catalogue(folder)
        listed = {int(entry["step"]): str(entry["manifest_sha256"]) for entry in catalogue.entries()}
        owner = catalogue.stream_id
    except FileNotFoundError:
        return ["the releases have no catalogue"] if published_steps(folder) else []
    except (StoreDamagedError, StoreFormatError):
        return ["the catalogue of the releases cannot be read"]
    if owner != stream_id:
        return ["the releases belong to another stream"]
    return [
        f"the catalogue's hash of step {step} is not the one in the ledger"
        for step, digest in sorted(listed.items())
        if step in known and known[step] != digest
    ]


def _check_account(ledger: Ledger, account: str | Path | None) -> list[str]:
    if account is None:
        return [] if ledger.pin is None else ["the stream is charged in an account, and none is given"]
    try:
        state = Account(account).read()
    except StoreDamagedError as error:
        return [f"the account: {error.what}"]
    charge = state.find(ledger.stream_id)
    if charge is None or (ledger.pin is not None and not state.knows(ledger.pin)):
        return [
            "the account does not know the stream's charge: it was rolled back, changed, or is another one"
        ]
    if charge.budget != ledger.planned:
        return [f"the account charged {charge.budget}, and the plan says {ledger.planned}"]
    return []


# A ledger as a public file that checks itself: JSON lines, each with the SHA-256 of the line before.
#
# Public facts only: no hash of private records, no batch id and no time, unless the owner asks for them. Two exports of
# one stream agree line by line, up to the last line of the shorter one; whoever keeps that line's hash sees
# every later change of what came before it. The chain has no key: it shows edits to those who hold a copy or a
# hash, and proves nothing to others.

_KIND = "dpstream ledger"
EXPORT_FORMAT = 1


@dataclass(frozen=True)
class CheckedExport:
    """What a check of an exported ledger found.

    Attributes:
        findings: what is wrong; empty where all is well.
        stream, steps, total, planned: what it says, as far as it can be read.
        head: SHA-256 of its last line before the end line: the same in every later export that continues it.
    """

    findings: tuple[str, ...]
    stream: str | None
    steps: int
    total: str | None
    planned: str | None
    head: str | None


def export_ledger(ledger: Ledger, *, secret: bool = False, times: bool = False) -> bytes:
    """The file's bytes.

    Args:
        secret: batch ids too, which are the owner's names for private data.
        times: when each step was committed, by the owner's clock.
    """
    facts = ledger.facts
    head: dict[str, Any] = {
        "kind": _KIND,
        "format": EXPORT_FORMAT,
        "stream": facts["stream"],
        "stream_id": ledger.stream_id,
        "plan_hash": ledger.plan_hash,
        "mechanism": facts["mechanism"],
        "unit": facts["unit"],
        "budget": facts["budget"],
        "horizon": facts["horizon"],
        "total_is": "the largest step's cost: what all steps together cost one unit of protection",
    }
    lines, total = [_chained(head, None)], Fraction(0)
    for one in ledger.spends:
        total = max(total, one.spent)
        line: dict[str, Any] = {
            "step": one.step,
            "period": one.period,
            "definition": one.definition,
            "spent": str(one.spent),
            "parts": list(one.parts),
            "total": str(total),
            "manifest_sha256": one.manifest_sha256,
            "made_with_test_seed": one.test_seed,
        }
        if secret:
            line["batch_id"] = one.batch_id
        if times:
            line["time"] = one.time
        lines.append(_chained(line, lines[-1]))
    end = {"end": True, "steps": len(ledger.spends), "total": str(total), "not_released": ledger.inside}
    end["previous"] = _digest(lines[-1])
    lines.append(canonical_json({**end, "sha256": _digest(canonical_json(end))}))
    return b"".join(line + b"\n" for line in lines)


def write_export(path: Path, data: bytes, *, private: bool) -> None:
    """Write the file whole; an old one is replaced. A ``private`` one is readable by its owner only."""
    if not path.absolute().parent.is_dir():
        raise ConfigError("the folder does not exist", where=str(path.parent), allowed="a folder that exists")
    with file_errors("the ledger could not be written", path):
        durable.replace_file(path, data, mode=0o600 if private else 0o644)


def is_export(path: str | Path) -> bool:
    """Whether a file looks like an exported ledger (and not like a configuration)."""
    with file_errors("the file cannot be read", Path(path)), Path(path).open("rb") as file:
        return file.read(1) == b"{"


def check_export(data: bytes, releases: str | Path | None = None) -> CheckedExport:
    """Check an exported ledger by itself, and against a folder of releases.

    Later steps among the releases are fine: an export is older than what was released after it.
    """
    findings, lines = _check_lines(data)
    if not lines or lines[0].get("kind") != _KIND:
        return CheckedExport(("is not an exported ledger", *findings), None, 0, None, None, None)
    if lines[0].get("format") != EXPORT_FORMAT:
        return CheckedExport(
            (f"format {lines[0].get('format')!r} is unknown here", *findings), None, 0, None, None, None
        )
    head, spends, end = lines[0], [line for line in lines[1:] if "step" in line], lines[-1]
    known: dict[int, str] = {}
    try:
        planned = {key: value for key, value in head["budget"].items() if key != "definition"}
        amount, definition = Fraction(next(iter(planned.values()))), head["budget"]["definition"]
        total = Fraction(0)
        for expected, line in enumerate(spends, start=1):
            total = max(total, Fraction(line["spent"]))
            findings += _check_spend(line, expected, amount, definition, total)
            known[int(line["step"])] = str(line["manifest_sha256"])
        if end.get("end") is not True:
            findings.append("the last line is missing: the file was cut short")
        elif end["steps"] != len(spends) or Fraction(end["total"]) != total or len(lines) != len(spends) + 2:
            findings.append("the last line does not fit the lines before it")
        elif end["sha256"] != _digest(canonical_json({key: end[key] for key in end if key != "sha256"})):
            findings.append("the last line was changed")
        if head["horizon"] is not None and len(spends) > head["horizon"]:
            findings.append(f"there are {len(spends)} steps, and the plan pays for {head['horizon']}")
        name, stream_id = str(head["stream"]), str(head["stream_id"])
        inside = set(end.get("not_released", ()))
    except (KeyError, ValueError, TypeError, AttributeError, StopIteration, ZeroDivisionError):
        findings.append("a line lacks what it has to say")
        return CheckedExport(tuple(findings), str(head.get("stream")), len(spends), None, None, None)
    if releases is not None:
        folder = Path(releases)
        if not folder.is_dir():
            raise ConfigError(
                "there are no releases", where=str(folder), allowed="the folder of a stream's releases"
            )
        required = {step: digest for step, digest in known.items() if step not in inside}
        last = max(known, default=0)
        findings += [
            f"step {step} is among the releases, but not in the ledger"
            for step in sorted(published_steps(folder))
            if step not in known and step <= last
        ]
        findings += verify_releases(folder, stream_id, known, required)
    symbol = "epsilon" if definition == "pure" else "rho"
    return CheckedExport(
        tuple(findings), name, len(spends), f"{symbol} = {total}", f"{symbol} = {amount}", end.get("previous")
    )


def _chained(content: dict[str, Any], previous: bytes | None) -> bytes:
    return canonical_json({**content, "previous": None if previous is None else _digest(previous)})


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _check_lines(data: bytes) -> tuple[list[str], list[dict[str, Any]]]:
    """Check the chain line by line, up to the first line that cannot be read."""
    findings, lines = [], []
    previous: bytes | None = None
    if data and not data.endswith(b"\n"):
        findings.append("the file ends in the middle of a line")
    for number, raw in enumerate(data.splitlines(), start=1):
        try:
            line = parse_json(raw)
            linked = line["previous"]
        except (ValueError, KeyError, TypeError):
            findings.append(f"line {number} cannot be read")
            break
        if linked != (None if previous is None else _digest(previous)):
            findings.append(
                f"line {number} does not follow line {number - 1}: one of them was changed, or one is missing"
            )
        lines.append(line)
        previous = raw
    return findings, lines


def _check_spend(
    line: dict[str, Any], expected: int, amount: Fraction, definition: str, total: Fraction
) -> list[str]:
    findings, step = [], line["step"]
    spent = Fraction(line["spent"])
    if step != expected:
        findings.append(f"step {step} stands where step {expected} belongs")
    if sum((Fraction(part["total"]) for part in line["parts"]), Fraction(0)) != spent:
        findings.append(f"the parts of step {step} do not add up to {spent}")
    if line["definition"] != definition or spent > amount:
        findings.append(
            f"step {step} spent {spent} ({line['definition']}), and the plan says {amount} ({definition})"
        )
    if Fraction(line["total"]) != total:
        findings.append(f"the total at step {step} is not the largest cost so far")
    return findings
