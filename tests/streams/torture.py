"""Random lives of small streams under random faults, thousands of them, judged by the promises of a stream.

    python tests/streams/torture.py --points 500 --seed 1 [--minutes 5] [--kinds kill damage] [--postgres 0.1]

A point is one life: settings, and up to five interruptions, all drawn from ``seed:number``. After each
interruption the files are looked at; then the stream is finished without faults and looked at again. Every
violation is printed with the command that repeats its point (two processes at once depend on the scheduler as well).
``--postgres``: the share of the points whose store is on a server, which is started for them; their connections are
cut at random statements.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import psycopg
import torture_life as lives
from fault_harness import faulty, in_child, outcome, published_steps, sql, strays
from postgres_server import Cluster, programs
from torture_borders import BORDERS
from torture_life import OWN, Settings
from torture_places import PLACES, places

from dpstream.io.sinks import catalogue
from dpstream.stream import Account, read_ledger, verify_ledger
from dpstream.stream.inspection import check_store
from dpstream.stream.release import table_blocks

#: What has a place of its own.
ELSEWHERE = {**{place: partial(places, place) for place in PLACES}, **BORDERS}
#: Kinds of interruption. ``damage`` follows a kill, so that logs and half-made files are there to be hit; what is done
#: to a store (``OWN``) comes after a kill where there was none yet.
KINDS = (
    "kill",
    "kill_after",
    "moment",
    "fail",
    "short_write",
    "lying",
    "damage",
    "clock",
    "race",
    *OWN,
    *ELSEWHERE,
)
#: With the store on a server: nobody flips bits there or exchanges its files, and the connection is cut.
SERVER_KINDS = (*(kind for kind in KINDS if kind not in ("damage", *ELSEWHERE)), "cut", "cut", "cut")
MOST = 5
#: How a life with a fault may end: failing calls are typed errors; whoever races may find the stream taken.
EXPECTED = {
    **dict.fromkeys(("fail", "short_write", "lying", "cut"), (0, lives.REFUSED)),
    "race": (0, lives.LOCKED, -signal.SIGKILL),
}


# What a life promises, read from its files and servers, and what damage to a file may do.


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


@contextlib.contextmanager
def scratch(settings: Settings | None = None) -> Iterator[Path]:
    """A folder in memory where possible: killed processes, unlike a lost power supply, lose no written byte."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="torture-", dir=memory if memory.is_dir() else None))
    try:
        yield path
    finally:
        server = None if settings is None else lives.server_of(path, settings)
        if server is not None:
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS {server.schema} CASCADE".encode())
        shutil.rmtree(path, ignore_errors=True)


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
    return sql(copy, query)


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
    found += strays(home)
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


def damaged_life(home: Path, settings: Settings, rng: random.Random, life: int) -> list[str]:
    """Start a stream one of whose files was damaged: it refuses, or goes on as if nothing was."""
    with scratch() as good:
        shutil.copytree(home, good, dirs_exist_ok=True)
        hit = damage(home, rng)
        if hit is None:
            return []
        known = look(good, settings)
        # What came after the head was committed, but not shown to anybody: a lost log may take it along.
        floor = max([lives.head_step(good), *known.published], default=0)
        code = in_child(lambda: lives.live(home, settings, life=life))
        name = hit.relative_to(home)
        if code == lives.REFUSED:
            shutil.rmtree(home)
            shutil.copytree(good, home)
            return []
        if code != 0:
            return [f"damage of {name} ended a start with code {code} instead of a clear error"]
        found = []
        if name.parts[0] == "releases" and hit.exists() and (good / name).read_bytes() != hit.read_bytes():
            # A table is not read again by the stream; whoever reads it is told.
            # A notice of a withdrawal is for people; what it says is in the catalogue too.
            told = bool(lives.unreadable(home))
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
        return found + [f"{text} (damaged: {name})" for text in judge(known, now, settings, floor)]


def _without_path(codebook: Path) -> Any:
    """A codebook but for the path of its table; None where it cannot be read."""
    try:
        book = json.loads(codebook.read_bytes())
        del book["resources"][0]["path"]
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    return book


# One life.


@dataclass
class Point:
    """What one life did and what it broke."""

    number: int
    interruptions: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    settings: str = ""
    on_server: bool = False


def interrupt(
    home: Path, settings: Settings, kind: str, rng: random.Random, share: int, life: int
) -> tuple[bool, int]:
    """Run one life with one fault in it; whether it stopped early, and its exit code."""
    calls = undisturbed(settings)[1]
    at = rng.randrange(1, max(2, calls // share))
    moved = rng.choice([-1, 1]) * rng.randrange(60, 20 * 365 * 86_400)
    errors = rng.choice(["ENOSPC", "EIO"])
    statement, after = rng.randrange(1, max(2, undisturbed(settings)[2] // share)), rng.random() < 0.5
    retry = rng.random() < 0.3
    if kind == "moment":
        # Within a call, too, such as a commit of the database. No seed repeats where it falls.
        code = lives.killed_after(undisturbed(settings)[3] * rng.random() / share, home, settings, life)
        return code != 0, code
    if kind == "race":
        codes = lives.race(home, settings, [10 * life + 1, 10 * life + 2], rng.choice([None, at]))
        return any(code < 0 for code in codes), max(codes)

    def disturbed() -> None:
        if kind == "clock":
            lives.move_clock(moved)
        cutting = lives.cut(statement if kind == "cut" else None, after=after)
        fault = lives.fault(kind, errors)
        with faulty(None if kind == "cut" else at, fault), cutting:
            lives.live(home, settings, life=life, retry=retry)

    code = in_child(disturbed)
    return code != 0, code


# Lives are short: parts of two steps, so that the catalogue has some. What lives set goes back.
@mock.patch.object(catalogue, "PART", 2)
@mock.patch.object(table_blocks, "BLOCK", table_blocks.BLOCK)
def run_point(
    seed: int, number: int, kinds: tuple[str, ...] | None = None, wrong_order: bool = False, share: float = 0
) -> Point:
    """One life: everything in it follows from ``seed``, ``number`` and the ``share`` of lives on a server."""
    rng = random.Random(f"{seed}:{number}")
    postgres = random.Random(f"server:{seed}:{number}").random() < share
    kinds = kinds or (SERVER_KINDS if postgres else KINDS)
    settings = lives.draw_settings(rng, wrong_order, postgres)
    # The same noise in every life shows whether anything else differs; other noise, whether anything was drawn twice.
    fresh = wrong_order or rng.random() < 0.5
    point = Point(number, settings=str(settings), on_server=postgres)
    plan = [rng.choice(kinds) for _ in range(rng.choice([1, 1, 2, 3, 4, MOST]))]
    with scratch(settings) as home:
        lives.prepare(home, settings)
        before = look(home, settings)
        for life, kind in enumerate(plan, start=1):
            own = life if fresh else 0
            if kind in OWN and not lives.has_store(home, settings):
                interrupt(home, settings, "kill", rng, 2, own)
                before = look(home, settings)
            if kind in (*OWN, *ELSEWHERE):
                before = upkeep(point, kind, home, settings, before, rng)
                if point.violations:
                    return point
                continue
            fault = "kill" if kind == "damage" else kind
            stopped, code = interrupt(home, settings, fault, rng, len(plan) - life + 1, own)
            if stopped or kind in ("clock", "race", "damage"):
                point.interruptions[kind] += 1
            if code not in EXPECTED.get(kind, (0, -signal.SIGKILL)):
                point.violations.append(f"{kind}: exit {code}")
            now = look(home, settings)
            point.violations += [f"{kind}: {text}" for text in judge(before, now, settings, settings.steps)]
            if kind == "damage":
                point.violations += damaged_life(home, settings, rng, own + 100 if fresh else 0)
                now = look(home, settings)
            before = now
            if point.violations:
                return point
        code = in_child(lambda: lives.live(home, settings, life=99 if fresh else 0))
        if code != 0:
            point.violations.append(f"the stream cannot be finished: exit {code}")
            return point
        now = look(home, settings)
        point.violations += judge(before, now, settings, settings.steps)
        # A step that was held while newer ones came outlives ``keep`` until the next step, or until compacting.
        sooner = "compact" in plan and settings.hold and settings.keep != "all"
        point.violations += judge_end(home, settings, now, compare=not fresh and not sooner)
    return point


def upkeep(point: Point, kind: str, home: Path, settings: Settings, before: Seen, rng: random.Random) -> Seen:
    """A verb that is stopped and repeated; what is there then."""
    if kind in ELSEWHERE:
        with scratch() as apart:
            hit, found = ELSEWHERE[kind](apart, rng)
        now = before
    else:
        hit, found = lives.tend(kind, home, settings, rng)
        now = look(home, settings)
        found += [f"{kind}: {text}" for text in judge(before, now, settings, settings.steps)]
    point.interruptions[kind] += hit
    point.violations += found
    return now


def torture(
    seed: int,
    numbers: range,
    *,
    kinds: tuple[str, ...] | None = None,
    wrong_order: bool = False,
    share: float = 0,
    jobs: int = 1,
    deadline: float = math.inf,
) -> Iterator[Point]:
    """The points as they end; stops after ``deadline`` (``time.monotonic``)."""
    run = partial(run_point, seed, kinds=kinds, wrong_order=wrong_order, share=share)
    with contextlib.ExitStack() as stack:
        several = map
        if jobs > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(jobs))
            several = pool.imap_unordered
        for point in several(run, numbers):
            yield point
            if time.monotonic() > deadline:
                return


@contextlib.contextmanager
def server(share: float) -> Iterator[float]:
    """A PostgreSQL server of this run's own, where all its processes find it; the share that is possible."""
    tools = programs() if share else None
    if tools is None:
        if share:
            print("SKIPPED: there is no PostgreSQL server (make postgres installs one); all stores are files")
        yield 0
        return
    cluster = Cluster(tools)
    os.environ[lives.URL] = cluster.url
    try:
        yield share
    finally:
        cluster.remove()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Random lives of small streams under random faults.",
        epilog="example: python tests/streams/torture.py --points 3000 --seed 7 --jobs 2",
    )
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--point", type=int, help="only this point, to repeat it")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop then, however many are done")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--postgres", type=float, default=0, metavar="SHARE", help="of points on a server, 0 to 1"
    )
    options = parser.parse_args(arguments)
    first, last = (1, options.points) if options.point is None else (options.point, options.point)
    deadline = time.monotonic() + 60 * options.minutes
    interruptions: Counter[str] = Counter()
    points = broken = servers = 0
    flags = f" --postgres {options.postgres}" if options.postgres else ""
    with server(options.postgres) as share:
        numbers = range(first, last + 1)
        for point in torture(options.seed, numbers, share=share, jobs=options.jobs, deadline=deadline):
            points += 1
            interruptions += point.interruptions
            servers += point.on_server
            broken += bool(point.violations)
            if point.violations:
                print(f"VIOLATION at point {point.number}: {'; '.join(point.violations)}\n  {point.settings}")
                again = f"python tests/streams/torture.py --seed {options.seed} --point {point.number}{flags}"
                print(f"  {again}", flush=True)
    by_kind = ", ".join(f"{kind} {interruptions[kind]}" for kind in (*KINDS, "cut") if interruptions[kind])
    print(
        f"{points} points ({servers} on PostgreSQL), {interruptions.total()} interruptions ({by_kind}); "
        f"{broken} points with violations"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
