"""Random lives of small streams under random faults, thousands of them, judged by the promises of a stream.

    python tests/streams/torture.py --points 500 --seed 1 [--minutes 5] [--jobs 2] [--kinds kill damage]

A point is one life: settings, and up to five interruptions, all drawn from ``seed:number``. After each
interruption the files are looked at; then the stream is finished without faults and looked at again. Every
violation is printed with the command that repeats its point (two processes at once depend on the scheduler as well).
``--wrong-order`` publishes before the commit, as a negative control.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torture_life as lives
from fault_harness import faulty, in_child
from torture_life import Settings

from dpstream.errors import StoreDamagedError
from dpstream.sinks import read_catalogue, read_manifest
from dpstream.streams import read_ledger, verify_ledger
from dpstream.streams.account import Account

#: Kinds of interruption. ``damage`` follows a kill, so that logs and half-made files are there to be hit.
KINDS = ("kill", "kill_after", "fail", "short_write", "lying", "damage", "clock", "race")
MOST = 5
#: How a life with a fault may end: failing calls are typed errors; whoever races may find the stream taken.
EXPECTED = {
    **dict.fromkeys(("fail", "short_write", "lying"), (0, lives.REFUSED)),
    "race": (0, lives.LOCKED, -signal.SIGKILL),
}


@dataclass
class Point:
    """What one life did and what it broke."""

    number: int
    interruptions: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    violations: list[str] = field(default_factory=list)
    settings: str = ""


@dataclass(frozen=True)
class Seen:
    """What the files say: manifest hashes of committed and published steps, and the amounts booked."""

    committed: dict[int, str]
    published: dict[int, str]
    spends: list[str]
    charges: int


@cache
def undisturbed(settings: Settings) -> tuple[dict[str, str], int]:
    """What an undisturbed life leaves, and how many durability calls it makes."""
    with scratch() as home:
        lives.prepare(home, settings)
        with faulty(None, lives.kill_after) as calls:
            lives.live(home, settings)
        return lives.outcome(home), len(calls)


class scratch:
    """A folder in memory where possible: killed processes, unlike a lost power supply, lose no written byte."""

    def __enter__(self) -> Path:
        memory = Path("/dev/shm")
        self._path = Path(tempfile.mkdtemp(prefix="torture-", dir=memory if memory.is_dir() else None))
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def look(home: Path, settings: Settings) -> Seen:
    """Read a copy: opening a database would replay and remove the log that the next start has to cope with."""
    with scratch() as copy:
        spends: list[str] = []
        committed: dict[int, str] = {}
        if (home / "state").is_dir():
            shutil.copytree(home / "state", copy / "state")
        path = copy / "state" / "stream.sqlite"
        if path.exists():
            db = sqlite3.connect(path)
            rows = db.execute("SELECT step, manifest_sha256, spent FROM steps JOIN ledger USING (step)")
            for step, digest, spent in rows:
                committed[step] = digest
                spends.append(spent)
            db.close()
        charges = 0
        if settings.account:
            for side in home.glob("account.sqlite*"):
                shutil.copy(side, copy / side.name)
            charges = len(Account(copy / "account.sqlite").read().charges)
    return Seen(committed, lives.published(home), spends, charges)


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
    account = home / "account.sqlite" if settings.account else None
    found += verify_ledger(home / "state", releases=home / "releases", account=account)
    ledger = read_ledger(home / "state")
    if ledger.total.amount > ledger.planned.amount or len(ledger.spends) != settings.steps:
        found.append(f"{ledger.total} spent in {len(ledger.spends)} steps")
    if [one.batch_id for one in ledger.spends] != [f"b{step}" for step in steps]:
        found.append("steps and batches are not one to one")
    found += lives.unreadable(home)
    if compare and lives.outcome(home) != undisturbed(settings)[0]:
        found.append("the releases differ from those of an undisturbed life with the same entropy")
    # The account's own head is replaced at its next entry, and so is what a stop in that replacement left.
    strays = [p.name for p in home.rglob("*") if p.name.endswith(".tmp") or ".new" in p.name]
    strays = [name for name in strays if name != ".account.sqlite.head.tmp"]
    found += [f"{name} was left behind" for name in strays]
    # The plan pays for no further step.
    code = in_child(lambda: lives.beyond(home, settings))
    if code != lives.REFUSED or look(home, settings) != now:
        found.append("a step beyond the horizon was not refused")
    return found


def interrupt(
    home: Path, settings: Settings, kind: str, rng: random.Random, share: int, life: int
) -> tuple[bool, int]:
    """Run one life with one fault in it; whether it stopped early, and its exit code."""
    calls = undisturbed(settings)[1]
    at = rng.randrange(1, max(2, calls // share))
    moved = rng.choice([-1, 1]) * rng.randrange(60, 20 * 365 * 86_400)
    errors = rng.choice(["ENOSPC", "EIO"])
    retry = rng.random() < 0.3
    if kind == "race":
        codes = lives.race(home, settings, [10 * life + 1, 10 * life + 2], rng.choice([None, at]))
        return any(code < 0 for code in codes), max(codes)

    def disturbed() -> None:
        if kind == "clock":
            lives.move_clock(moved)
        fault = lives.fault(kind, errors)
        with faulty(at, fault):
            lives.live(home, settings, life=life, retry=retry)

    code = in_child(disturbed)
    return code != 0, code


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
            if not lives.unreadable(home) and not reads_catalogue_wrong(home):
                found.append(f"damage of {name} is noticed by nobody")
            shutil.copy(good / name, hit)
        now = look(home, settings)
        return False, found + [f"{text} (damaged: {name})" for text in judge(known, now, settings, floor)]


def reads_catalogue_wrong(home: Path) -> bool:
    """Whether a reader refuses the catalogue or a manifest."""
    try:
        for entry in read_catalogue(home / "releases")["steps"]:
            read_manifest(home / "releases", entry["step"])
    except StoreDamagedError:
        return True
    return False


def run_point(seed: int, number: int, kinds: tuple[str, ...] = KINDS, wrong_order: bool = False) -> Point:
    """One life: everything in it follows from ``seed`` and ``number``."""
    rng = random.Random(f"{seed}:{number}")
    settings = lives.draw_settings(rng, wrong_order)
    # The same noise in every life shows whether anything else differs; other noise, whether anything was drawn twice.
    fresh = wrong_order or rng.random() < 0.5
    point = Point(number, settings=str(settings))
    plan = [rng.choice(kinds) for _ in range(rng.choice([1, 1, 2, 3, 4, MOST]))]
    with scratch() as home:
        lives.prepare(home, settings)
        before = look(home, settings)
        for life, kind in enumerate(plan, start=1):
            own = life if fresh else 0
            fault = "kill" if kind == "damage" else kind
            stopped, code = interrupt(home, settings, fault, rng, len(plan) - life + 1, own)
            if stopped or kind in ("clock", "race", "damage"):
                point.interruptions[kind] += 1
            if code not in EXPECTED.get(kind, (0, -signal.SIGKILL)):
                point.violations.append(f"{kind}: exit {code}")
            now = look(home, settings)
            point.violations += [f"{kind}: {text}" for text in judge(before, now, settings, settings.steps)]
            if kind == "damage":
                refused, found = damaged_life(home, settings, rng, own + 100 if fresh else 0)
                point.refused += refused
                point.violations += found
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
        point.violations += judge_end(home, settings, now, compare=not fresh)
    return point


Job = tuple[int, int, tuple[str, ...], bool]


def _run(job: Job) -> Point:
    return run_point(*job)


def torture(
    seed: int,
    numbers: range,
    *,
    kinds: tuple[str, ...] = KINDS,
    wrong_order: bool = False,
    jobs: int = 1,
    deadline: float | None = None,
) -> Iterator[Point]:
    """The points as they end; stops after ``deadline`` (``time.monotonic``)."""
    work: list[Job] = [(seed, number, kinds, wrong_order) for number in numbers]
    if jobs == 1:
        results: Iterator[Point] = map(_run, work)
        yield from _until(results, deadline)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from _until(pool.imap_unordered(_run, work), deadline)


def _until(points: Iterator[Point], deadline: float | None) -> Iterator[Point]:
    for point in points:
        yield point
        if deadline is not None and time.monotonic() > deadline:
            return


def summary(points: int, interruptions: Counter[str], refused: int, violations: int) -> str:
    """The counts in one line per fact."""
    kinds = ", ".join(f"{kind} {interruptions[kind]}" for kind in KINDS if interruptions[kind])
    total = interruptions.total()
    return (
        f"{points} points, {total} interruptions ({kinds}); {refused} damaged stores were refused; "
        f"{violations} points with violations"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Random lives of small streams under random faults.",
        epilog="example: python tests/streams/torture.py --points 3000 --seed 7 --jobs 2",
    )
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--point", type=int, help="only this point, to repeat it")
    parser.add_argument("--minutes", type=float, help="stop then, however many points are done")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--wrong-order", action="store_true", help="negative control: has to find violations")
    options = parser.parse_args(arguments)
    numbers = range(1, options.points + 1)
    if options.point is not None:
        numbers = range(options.point, options.point + 1)
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    kinds = tuple(options.kinds)
    interruptions: Counter[str] = Counter()
    points = refused = broken = 0
    for point in torture(
        options.seed,
        numbers,
        kinds=kinds,
        wrong_order=options.wrong_order,
        jobs=options.jobs,
        deadline=deadline,
    ):
        points += 1
        interruptions += point.interruptions
        refused += point.refused
        broken += bool(point.violations)
        if point.violations:
            flags = " --wrong-order" if options.wrong_order else ""
            if kinds != KINDS:
                flags += " --kinds " + " ".join(kinds)
            print(f"VIOLATION at point {point.number}: {'; '.join(point.violations)}\n  {point.settings}")
            print(
                f"  python tests/streams/torture.py --seed {options.seed} --point {point.number}{flags}",
                flush=True,
            )
    print(summary(points, interruptions, refused, broken))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
