"""What tortured streams promise, read from their files and servers, and what damage to a file may do."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import torture_life as lives
from fault_harness import faulty, in_child, outcome, published_steps
from torture_life import Settings

from dpstream.core.errors import StoreDamagedError
from dpstream.io.sinks import read_catalogue, read_manifest
from dpstream.stream import read_ledger, verify_ledger
from dpstream.stream.inspection import check_store
from dpstream.stream.ledger.account import Account


@dataclass(frozen=True)
class Seen:
    """What the files say: manifest hashes of committed and published steps, and the amounts booked."""

    committed: dict[int, str]
    published: dict[int, str]
    spends: list[str]
    charges: int


@cache
def undisturbed(settings: Settings) -> tuple[dict[str, str], int, int, float]:
    """What an undisturbed life leaves, how many durability calls and statements it makes, and how many seconds."""
    with scratch(settings) as home:
        lives.prepare(home, settings)
        with faulty(None, lives.kill_after) as calls, lives.cut(None, after=False) as statements:
            began = time.monotonic()
            lives.live(home, settings)
        return outcome(home), len(calls), len(statements), time.monotonic() - began


class scratch:
    """A folder in memory where possible: killed processes, unlike a lost power supply, lose no written byte."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings

    def __enter__(self) -> Path:
        memory = Path("/dev/shm")
        self._path = Path(tempfile.mkdtemp(prefix="torture-", dir=memory if memory.is_dir() else None))
        return self._path

    def __exit__(self, *_: object) -> None:
        server = None if self._settings is None else lives.server_of(self._path, self._settings)
        if server is not None:
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS {server.schema} CASCADE".encode())
        shutil.rmtree(self._path, ignore_errors=True)


def look(home: Path, settings: Settings) -> Seen:
    """Read a copy: opening a database would replay and remove the log that the next start has to cope with."""
    with scratch() as copy:
        rows = stored_rows(home, copy, settings)
        committed = {step: digest for step, digest, _ in rows}
        spends = [spent for _, _, spent in rows]
        charges = 0
        if settings.account:
            for side in home.glob("account.jsonl*"):
                shutil.copy(side, copy / side.name)
            charges = len(Account(copy / "account.jsonl").read().charges)
    return Seen(committed, published_steps(home), spends, charges)


def stored_rows(home: Path, copy: Path, settings: Settings) -> list[tuple[int, str, str]]:
    """Step, hash of the manifest and amount, past the program."""
    query = "SELECT step, manifest_sha256, spent FROM steps ORDER BY step"
    if not lives.has_store(home, settings):
        return []
    server = lives.server_of(home, settings)
    if server is not None:
        with psycopg.connect(server.url) as connection:
            connection.execute(f"SET search_path = {server.schema}".encode())
            return connection.execute(query).fetchall()
    shutil.copytree(home / "state", copy / "state")
    db = sqlite3.connect(copy / "state" / "stream.sqlite")
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


def judge(before: Seen, now: Seen, settings: Settings, floor: int) -> list[str]:
    """Promises that hold at every instant. ``floor``: up to this step commits were certain."""
    found = [
        f"step {step} is published and not committed like that"
        for step, digest in now.published.items()
        if now.committed.get(step) != digest
    ]
    for step, digest in before.published.items():
        if now.published.get(step) != digest:
            found.append(f"the published step {step} is missing or another one")
    for step, digest in before.committed.items():
        if step <= floor and now.committed.get(step) != digest:
            found.append(f"step {step} was drawn again after its commit")
    if sorted(now.committed) != list(range(1, len(now.committed) + 1)):
        found.append(f"the ledger holds the steps {sorted(now.committed)}")
    if len(now.committed) > settings.steps or set(now.spends) - {"1"}:
        found.append("more is spent than planned")
    if settings.account and not max(before.charges, bool(now.committed)) <= now.charges <= 1:
        found.append(f"the account holds {now.charges} charges")
    return found


def judge_end(home: Path, settings: Settings, now: Seen, compare: bool) -> list[str]:
    """Promises about a finished life."""
    found = []
    steps = list(range(1, settings.steps + 1))
    if sorted(now.committed) != steps or now.published != now.committed:
        found.append(f"of {steps}, {sorted(now.committed)} are committed, {sorted(now.published)} published")
    account = home / "account.jsonl" if settings.account else None
    place: dict[str, Any] = {"server": lives.server_of(home, settings), "key": lives.key_of(settings)}
    found += verify_ledger(home / "state", releases=home / "releases", account=account, **place)
    found += check_store(home / "state", home / "releases", **place).problems
    ledger = read_ledger(home / "state", **place)
    if ledger.total.amount > ledger.planned.amount or len(ledger.spends) != settings.steps:
        found.append(f"{ledger.total} spent in {len(ledger.spends)} steps")
    if [one.batch_id for one in ledger.spends] != [f"b{step}" for step in steps]:
        found.append("steps and batches are not one to one")
    found += lives.unreadable(home)
    if compare and outcome(home) != undisturbed(settings)[0]:
        found.append("the releases differ from those of an undisturbed life with the same entropy")
    strays = [p.name for p in home.rglob("*") if p.name.endswith(".tmp") or ".new" in p.name]
    strays += [p.name for p in home.glob("state/staged/*")]
    found += [f"{name} was left behind" for name in strays]
    # The plan pays for no further step.
    code = in_child(lambda: lives.beyond(home, settings))
    if code != lives.REFUSED or look(home, settings) != now:
        found.append("a step beyond the horizon was not refused")
    return found


def damage(home: Path, rng: random.Random) -> Path | None:
    """Flip a bit of one stored or published file, or cut it short; gives its path."""
    files = [p for p in sorted(home.glob("state/*")) + sorted(home.glob("releases/**/*")) if p.is_file()]
    files = [p for p in files if p.stat().st_size and not p.name.endswith("-shm")]
    # The store, its log and the head decide most; every other file is hit as well.
    first = [p for p in files if p.parent.name == "state"]
    if not files:
        return None
    path = rng.choice(first if first and rng.random() < 0.7 else files)
    data = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    else:
        del data[rng.randrange(len(data)) :]
    path.write_bytes(data)
    return path


def damaged_life(home: Path, settings: Settings, rng: random.Random, life: int) -> tuple[bool, list[str]]:
    """Start a stream one of whose files was damaged: it refuses, or goes on as if nothing was."""
    with scratch() as good:
        shutil.copytree(home, good, dirs_exist_ok=True)
        hit = damage(home, rng)
        if hit is None:
            return False, []
        known = look(good, settings)
        # What came after the head was committed, but not shown to anybody: a lost log may take it along.
        floor = max([lives.head_step(good), *known.published], default=0)
        code = in_child(lambda: lives.live(home, settings, life=life))
        name = hit.relative_to(home)
        if code == lives.REFUSED:
            shutil.rmtree(home)
            shutil.copytree(good, home)
            return True, []
        if code != 0:
            return False, [f"damage of {name} ended a start with code {code} instead of a clear error"]
        found = []
        if name.parts[0] == "releases" and hit.exists() and (good / name).read_bytes() != hit.read_bytes():
            # A table is not read again by the stream; whoever reads it is told.
            # A notice of a withdrawal is for people; what it says is in the catalogue too.
            told = lives.unreadable(home) or reads_catalogue_wrong(home)
            if name.name == "codebook.json":
                # The next publication writes it anew, with the path of a newer table.
                told = told or _without_path(hit) == _without_path(good / name)
            if name.name == "withdrawn.json":
                told = bool(
                    check_store(home / "state", home / "releases", key=lives.key_of(settings)).problems
                )
            if not told:
                found.append(f"damage of {name} is noticed by nobody")
            shutil.copy(good / name, hit)
        now = look(home, settings)
        return False, found + [f"{text} (damaged: {name})" for text in judge(known, now, settings, floor)]


def _without_path(codebook: Path) -> Any:
    """A codebook but for the path of its table; None where it cannot be read."""
    try:
        book = json.loads(codebook.read_bytes())
        del book["resources"][0]["path"]
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    return book


def reads_catalogue_wrong(home: Path) -> bool:
    """Whether a reader refuses the catalogue or a manifest."""
    try:
        for entry in read_catalogue(home / "releases")["steps"]:
            read_manifest(home / "releases", entry["step"])
    except StoreDamagedError:
        return True
    return False
