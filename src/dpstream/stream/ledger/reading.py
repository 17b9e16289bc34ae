"""What a stream spent, on what and when: read, verified against everything that knows of it, and exported.

Read without the stream's lock and without changing anything, in one consistent view of the store.
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

from dpstream.core.errors import ConfigError, StoreDamagedError, StoreFormatError
from dpstream.core.paths import parse_json, read_bytes
from dpstream.core.privacy.budget import Budget
from dpstream.io.sinks.catalogue import Catalogue
from dpstream.io.sinks.publisher import MANIFEST, noticed, published_steps
from dpstream.stream.identity import canonical_json, plan_hash
from dpstream.stream.ledger.account_file import Account, Pin
from dpstream.stream.ledger.limit import budget_from_dict
from dpstream.stream.store.encryption import StateKey, unlock
from dpstream.stream.store.place import backend_for, has_store, questions_path, questions_server
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.sealed_history import (
    Head,
    Heads,
    account_pin,
    checked_steps,
    first_seal,
    head_problem,
    outside_heads,
    outside_heads_of_questions,
    read_history,
    read_log,
    read_meta,
    stored_seals,
    time_problems,
)
from dpstream.stream.store.store_database import StoreDatabase
from dpstream.stream.store.stored import as_position, is_forgotten, key_of_sources, unknown_notice

#: Publication states of steps whose manifest is among the releases.
_KNOWN_TO_READERS = ("published", "expiring", "expired", "withdrawing", "withdrawn")


@dataclass(frozen=True)
class Spend:
    """One step in the ledger. ``batch_id``, ``publication`` and ``time`` are the owner's, the rest is public.

    Attributes:
        definition, spent, parts: as the plan stated them; amounts exact. What one step costs a unit in it.
        time: by the owner's clock, None for steps of older versions.
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
    time: str | None


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
        return type(self.planned)(max((one.spent for one in self.spends), default=Fraction(0)))

    @property
    def inside(self) -> list[int]:
        """Steps whose manifest is not among the releases (yet): held for approval, or without a sink."""
        return [one.step for one in self.spends if one.publication not in _KNOWN_TO_READERS]

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
        row = db.execute("SELECT step, source FROM position").fetchone()
        if row is None:
            return None
        position = as_position(db.sealing.open_text(row[1], "position", row[0]))
        return position, key_of_sources(read_meta(db)["key"])


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
            findings, sound = _check_store(db, head)
            if not sound:
                return findings
            ledger = _ledger(db, read_meta(db))
            findings += _check_plan(ledger) + _check_manifests(db, ledger)
        findings += _check_questions(Path(path), folder, server, key)
    except StoreDamagedError as error:
        return [error.what]
    if folder is not None:
        states = {one.step: one.publication for one in ledger.spends}
        findings += [
            unknown_notice(step) for step in sorted(noticed(folder)) if is_forgotten(states.get(step))
        ]
        outside = {
            one.step: one.manifest_sha256 for one in ledger.spends if one.publication in _KNOWN_TO_READERS
        }
        known = {one.step: one.manifest_sha256 for one in ledger.spends}
        findings += verify_releases(folder, ledger.stream_id, known, required=outside, present=before)
    return findings + _check_account(ledger, account)


def verify_releases(
    folder: Path,
    stream_id: str,
    known: dict[int, str],
    *,
    required: dict[int, str] | None = None,
    present: set[int] | None = None,
    later: bool = False,
) -> list[str]:
    """Compare released manifests and the catalogue with a ledger's hashes.

    Args:
        known: SHA-256 of the manifest of every step in the ledger.
        required: those that have to be there; all of them by default.
        present: steps that were there before the ledger was read; looked up by default.
        later: whether steps after the ledger's end are fine (an export is older than the releases).
    """
    last = max(known, default=0)
    findings = [
        f"step {step} is among the releases, but not in the ledger"
        for step in sorted(published_steps(folder) if present is None else present)
        if step not in known and not (later and step > last)
    ]
    for step, digest in sorted((known if required is None else required).items()):
        path = folder / f"step-{step:06d}" / MANIFEST
        if not path.is_file():
            findings.append(f"the manifest of step {step} is missing among the releases")
        elif hashlib.sha256(read_bytes(path)).hexdigest() != digest:
            findings.append(f"the released manifest of step {step} is not the one in the ledger")
    return findings + _check_catalogue(folder, stream_id, known)


# Inside


@contextmanager
def _view(path: str | Path, server: PostgresServer | None, key: StateKey | None) -> Iterator[StoreDatabase]:
    """One consistent look at a store."""
    db = backend_for(Path(path), server).look()
    if db is None:
        raise ConfigError(
            "there is no stream", where=str(path), allowed="a state directory that dpstream run made"
        )
    try:
        with db.errors():
            db.begin(read_only=True)
            db.verify_structure()
            unlock(db, key)
            yield db
    finally:
        db.close()


def _check_store(db: StoreDatabase, head: Heads | None) -> tuple[list[str], bool]:
    """What is wrong with seals, witnesses and rows, and whether the seals of the steps are right."""
    meta = read_meta(db)
    findings = _check_chain(db, meta)
    wrong = head_problem(head, *stored_seals(db, first_seal(meta)))
    about_head = [] if wrong is None else [wrong]
    if findings:
        return findings + about_head, False
    findings = about_head + _check_rows(db)
    read_log(db, meta["key"])
    return findings + time_problems(db, meta), True


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
        return [f"the questions: {finding}" for finding in _check_store(db, heads)[0]]


def _ledger(db: StoreDatabase, meta: dict[str, bytes]) -> Ledger:
    times = {int(step): str(text) for step, text in db.execute("SELECT step, committed FROM times")}
    try:
        facts: dict[str, Any] = json.loads(meta["plan"])
        rows = db.execute(
            "SELECT l.step, definition, spent, parts, manifest, manifest_sha256, test_seed, batch_id, publication "
            "FROM ledger l JOIN steps s ON s.step = l.step ORDER BY l.step"
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
                time=times.get(step),
            )
            for step, definition, spent, parts, manifest, digest, test_seed, batch_id, publication in rows
        )
    except (ValueError, KeyError, TypeError, ZeroDivisionError):
        raise StoreDamagedError("the plan or the ledger cannot be read", where=db.where) from None
    remembered = account_pin(meta, db.where)
    pin = None if remembered is None else Pin.from_bytes(remembered, db.where)
    return Ledger(meta["stream_id"].hex(), plan_hash(facts), facts, spends, pin)


def _check_chain(db: StoreDatabase, meta: dict[str, bytes]) -> list[str]:
    """Check every row against the stored seal before it, so that one changed row does not hide the others."""
    if len(meta.get("key", b"")) != 32 or not {"plan", "stream_id"} <= set(meta):
        return ["what the stream is pinned to, or its key, is missing"]
    findings, expected = [], 1
    for step, _, _, fits in checked_steps(db, meta):
        findings += [f"step {lost} is missing in the store" for lost in range(expected, step)]
        expected = step + 1
        if not fits:
            what = "or what the stream is pinned to " if step == 1 else ""
            findings.append(f"the record of step {step} {what}was changed")
    return findings


def _check_rows(db: StoreDatabase) -> list[str]:
    findings = []
    steps = {step for (step,) in db.execute("SELECT step FROM steps")}
    spends = {step for (step,) in db.execute("SELECT step FROM ledger")}
    findings += [f"step {step} is in the ledger only" for step in sorted(spends - steps)]
    state = [step for (step,) in db.execute("SELECT step FROM state")]
    last = max(steps, default=0)
    if state != [last]:
        findings.append(f"the state does not stand at step {last}, where the ledger ends")
    reserved = db.execute("SELECT step FROM reservation").fetchone()
    if reserved is not None and reserved[0] != last + 1:
        findings.append("a reservation does not follow the last step")
    return findings


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
