"""What a stream spent, on what and when: read, compared with the plan and with what is released, and exported.

Read without the stream's lock and without changing anything, in one consistent view of the store.

Trusted base: owner (reads what was spent).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreFormatError, unreadable
from dpstream.core.paths import sha256_hex
from dpstream.core.privacy.budget import Budget
from dpstream.io.sinks.catalogue import Catalogue
from dpstream.io.sinks.publisher import published_steps
from dpstream.io.sinks.table_files import file_sha256
from dpstream.io.sinks.target import MANIFEST, Comparison, step_name
from dpstream.stream.identity import canonical_json, plan_hash
from dpstream.stream.ledger.account import Pin
from dpstream.stream.ledger.chained_lines import as_file, chained, read_chain
from dpstream.stream.ledger.limit import budget_from_dict
from dpstream.stream.store.encryption import StateKey, unlock
from dpstream.stream.store.place import has_store, no_stream, viewed
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.sealed_history import POSITION, account_pin, read_history, read_latest, read_meta
from dpstream.stream.store.store import as_position, key_of_sources
from dpstream.stream.store.store_database import StoreDatabase, file_errors, require_folder

#: Publication states of steps whose manifest is among the releases.
KNOWN_TO_READERS = ("published", "expiring", "expired", "withdrawn")
UNREAD = "the releases could not be read"
UNREADABLE = "plan or ledger is unreadable"


@dataclass(frozen=True)
class Spend:
    """One step in the ledger. ``batch_id``, ``publication`` and ``time`` are the owner's, the rest is public.

    Attributes:
        definition, spent, parts: as the plan stated them; amounts exact. What one step costs a unit in it.
        unit_period: the public period of a user, whose loss this is, where users are protected in periods.
        time: by the owner's clock.
    """

    step: int
    period: str | None
    unit_period: str | None
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
        return [
            spend.step for spend in self.spends if spend.publication not in (*KNOWN_TO_READERS, "withdrawing")
        ]

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
        ConfigError: the stream is missing. StoreDamagedError: a seal does not hold (``verify_ledger`` says more).
    """
    with _view(path, server, key) as db:
        meta = read_meta(db)
        read_history(db, meta, db.where)
        return ledger_of(db, meta)


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


# Inside


@contextmanager
def _view(path: str | Path, server: PostgresServer | None, key: StateKey | None) -> Iterator[StoreDatabase]:
    """One consistent look at a store with its key."""
    with viewed(Path(path), server) as db:
        if db is None:
            raise no_stream(str(path))
        unlock(db, key)
        yield db


def ledger_of(db: StoreDatabase, meta: dict[str, bytes]) -> Ledger:
    """The ledger in a view of a store.

    Errors:
        StoreDamagedError: it cannot be read.
    """
    with unreadable(UNREADABLE, db.where):
        facts: dict[str, Any] = json.loads(meta["plan"])
        rows = db.execute(
            "SELECT step, manifest, definition, spent, parts, manifest_sha256, test_seed, batch_id, publication, "
            "committed FROM steps ORDER BY step"
        )
        spends = tuple(
            Spend(
                step,
                (known := json.loads(manifest))["period"],
                known["unit"].get("period"),
                definition,
                Fraction(spent),
                tuple(json.loads(parts)),
                digest,
                bool(test_seed),
                *texts,
            )
            for step, manifest, definition, spent, parts, digest, test_seed, *texts in rows
        )
    remembered = account_pin(meta, db.where)
    pin = None if remembered is None else Pin.from_bytes(remembered, db.where)
    return Ledger(meta["stream_id"].hex(), plan_hash(facts), facts, spends, pin)


def plan_problems(ledger: Ledger) -> list[str]:
    """Where a step did not spend what the plan says, part by part, or is beyond the horizon."""
    problems, planned = list[str](), ledger.planned
    for place, spend in enumerate(ledger.spends, start=1):
        if spend.step != place:
            problems.append(f"step {spend.step} stands where step {place} belongs")
        parts = sum((Fraction(part["total"]) for part in spend.parts), Fraction(0))
        if parts != spend.spent:
            problems.append(f"the parts of step {spend.step} add up to {parts}, and {spend.spent} is booked")
        if spend.definition != planned.as_dict()["definition"] or spend.spent != planned.amount:
            problems.append(
                f"step {spend.step} spent {spend.spent} ({spend.definition}), and the plan says {planned}"
            )
        if canonical_json(list(spend.parts)) != canonical_json(ledger.facts["parts"]):
            problems.append(f"the parts of step {spend.step} are not the plan's")
    if ledger.facts["horizon"] is not None and len(ledger.spends) > ledger.facts["horizon"]:
        problems.append(
            f"there are {len(ledger.spends)} steps, and the plan pays for {ledger.facts['horizon']}"
        )
    return problems


# What is released, against a ledger.

#: step -> file -> SHA-256.
Files = Mapping[int, Mapping[str, str]]


def released_files(releases: Path, *, everything: bool = False) -> dict[int, dict[str, str]]:
    """The SHA-256 of the released files, step by step; without ``everything`` those of the manifests, and of the others
    their names only."""
    folders = {step: releases / step_name(step) for step in sorted(published_steps(releases))}
    return {
        step: {
            file.name: file_sha256(file) or "" if everything or file.name == MANIFEST else ""
            for file in sorted(folder.iterdir())
        }
        for step, folder in folders.items()
        if folder.is_dir()
    }


def release_problems(there: Files, committed: Files, withdrawn: Collection[int] = ()) -> list[str]:
    """How released files differ from the committed ones."""
    differences = Comparison(committed, withdrawn, deep=True).of_files(
        lambda step: there.get(step, {}), lambda step, name: there[step][name]
    )
    return list(difference_words(differences))


def difference_words(differences: Mapping[tuple[int, str], str]) -> Iterator[str]:
    """In a sentence each."""
    words = {
        "missing": "{name} of step {step} is missing",
        "changed": "{name} of step {step} differs from the committed file",
        "withdrawn": "{name} of the withdrawn step {step} is there: move it away",
    }
    for (step, name), how in sorted(differences.items()):
        yield words[how].format(name=name, step=step)


def catalogue_problems(folder: Path, stream_id: str, known: Mapping[int, str]) -> list[str]:
    """How the catalogue differs from a ledger, of which ``known`` has the SHA-256 of the manifest of each step."""
    try:
        catalogue = Catalogue(folder)
        listed = {int(entry["step"]): str(entry["manifest_sha256"]) for entry in catalogue.entries()}
        owner = catalogue.stream_id
    except FileNotFoundError:
        return ["the releases have no catalogue"] if published_steps(folder) else []
    except (StoreDamagedError, StoreFormatError):
        return ["the releases' catalogue is unreadable"]
    if owner != stream_id:
        return ["releases of another stream"]
    return [
        f"the catalogue's hash of step {step} differs from the ledger's"
        for step, digest in sorted(listed.items())
        if step in known and known[step] != digest
    ]


# A ledger as a public file that checks itself: JSON lines, each with the SHA-256 of the line before.
#
# Public facts only: no hash of private records, no batch id and no time, unless the owner asks for them. Two exports of
# one stream agree line by line, up to the last line of the shorter one; whoever keeps that line's hash sees
# every later change of what came before it.

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


def export_ledger(ledger: Ledger) -> bytes:
    """The file's bytes: public facts, without batch ids and times."""
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
        "parts": facts["parts"],
        "total_is": "the largest step's cost",
    }
    lines, total = [chained(head, None)], Fraction(0)
    for one in ledger.spends:
        total = max(total, one.spent)
        line = {
            "step": one.step,
            "period": one.period,
            **({} if one.unit_period is None else {"unit_period": one.unit_period}),
            "definition": one.definition,
            "spent": str(one.spent),
            "parts": list(one.parts),
            "total": str(total),
            "manifest_sha256": one.manifest_sha256,
            "made_with_test_seed": one.test_seed,
        }
        lines.append(chained(line, lines[-1]))
    end = {"end": True, "steps": len(ledger.spends), "total": str(total), "not_released": ledger.inside}
    end["previous"] = sha256_hex(lines[-1])
    lines.append(canonical_json({**end, "sha256": sha256_hex(canonical_json(end))}))
    return as_file(lines)


def write_export(path: Path, data: bytes) -> None:
    """Write the file whole; an old one is replaced."""
    require_folder(path.absolute().parent)
    with file_errors("the ledger could not be written", path):
        durable.replace_file(path, data, mode=0o644)


def is_export(path: str | Path) -> bool:
    """Whether a file looks like an exported ledger (and not like a configuration)."""
    with file_errors("the file cannot be read", Path(path)), Path(path).open("rb") as file:
        return file.read(1) == b"{"


def check_export(data: bytes, releases: str | Path | None = None) -> CheckedExport:
    """Check an exported ledger by itself, and against a folder of releases.

    Later steps among the releases are fine: an export is older than what was released after it.
    """
    findings, lines = read_chain(data)
    if not lines or lines[0].get("kind") != _KIND:
        return CheckedExport(("is not an exported ledger", *findings), None, 0, None, None, None)
    if lines[0].get("format") != EXPORT_FORMAT:
        return CheckedExport(
            (f"format {lines[0].get('format')!r} is unknown here", *findings), None, 0, None, None, None
        )
    head, end, spends, totals = lines[0], lines[-1], list[Spend](), list[Fraction]()
    try:
        for line in lines[1:]:
            if "step" in line:
                spends.append(_spend_of(line))
                totals.append(Fraction(line["total"]))
        ledger = Ledger(str(head["stream_id"]), str(head["plan_hash"]), head, tuple(spends), None)
        findings += plan_problems(ledger)
        largest = accumulate((spend.spent for spend in spends), max)
        findings += [
            f"the total at step {spend.step} is not the largest cost so far"
            for spend, total, wanted in zip(spends, totals, largest, strict=True)
            if total != wanted
        ]
        if end.get("end") is not True:
            findings.append("the last line is missing")
        elif (end["steps"], Fraction(end["total"]), len(lines)) != (
            len(spends),
            ledger.total.amount,
            len(spends) + 2,
        ):
            findings.append("the last line contradicts earlier lines")
        elif end["sha256"] != sha256_hex(canonical_json({key: end[key] for key in end if key != "sha256"})):
            findings.append("the last line was changed")
        name, inside = str(head["stream"]), set(end.get("not_released", ()))
        symbol = "epsilon" if ledger.planned.as_dict()["definition"] == "pure" else "rho"
        total, planned = (f"{symbol} = {budget.amount}" for budget in (ledger.total, ledger.planned))
    except (KeyError, ValueError, TypeError, AttributeError, ZeroDivisionError):
        findings.append("a line lacks a field")
        return CheckedExport(tuple(findings), str(head.get("stream")), len(spends), None, None, None)
    if releases is not None:
        folder = Path(releases)
        if not folder.is_dir():
            raise ConfigError(
                "releases are missing", where=str(folder), allowed="the folder of a stream's releases"
            )
        known, there = {spend.step: spend.manifest_sha256 for spend in spends}, released_files(folder)
        findings += [
            f"step {step} is released, but not in the ledger"
            for step in there
            if step not in known and step <= max(known, default=0)
        ]
        required = {step: {MANIFEST: digest} for step, digest in known.items() if step not in inside}
        findings += release_problems(there, required)
        findings += catalogue_problems(folder, ledger.stream_id, known)
    return CheckedExport(tuple(findings), name, len(spends), total, planned, end.get("previous"))


def _spend_of(line: dict[str, Any]) -> Spend:
    """The step in an exported line."""
    return Spend(
        step=int(line["step"]),
        period=line["period"],
        unit_period=line.get("unit_period"),
        definition=line["definition"],
        spent=Fraction(line["spent"]),
        parts=tuple(line["parts"]),
        manifest_sha256=str(line["manifest_sha256"]),
        test_seed=line["made_with_test_seed"],
        batch_id=line.get("batch_id", ""),
        publication="",
        time=line.get("time", ""),
    )
