"""Random lives of small streams under random faults, thousands of them, judged by the promises of a stream.

    python tests/streams/torture.py --points 500 --seed 1 [--minutes 5] [--kinds kill damage] [--postgres 0.1]

A point is one life: settings, and up to five interruptions, all drawn from ``seed:number``. After each
interruption the files are looked at; then the stream is finished without faults and looked at again. Every
violation is printed with the command that repeats its point (two processes at once depend on the scheduler as well).
``--postgres``: the share of the points whose store is on a server, which is started for them; their connections are
cut at random statements. ``--wrong-order`` publishes before the commit, as a negative control.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

import torture_life as lives
from fault_harness import faulty, in_child
from postgres_server import Cluster, programs
from torture_borders import BORDERS
from torture_judge import Seen, damaged_life, judge, judge_end, look, scratch, undisturbed
from torture_life import OWN, Settings
from torture_places import PLACES, places

from dpstream.io.sinks import catalogue

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


@dataclass
class Point:
    """What one life did and what it broke."""

    number: int
    interruptions: Counter[str] = field(default_factory=Counter)
    refused: int = 0
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


# Lives are short: parts of two steps, so that the catalogue has some.
@mock.patch.object(catalogue, "PART", 2)
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


Job = tuple[int, int, tuple[str, ...] | None, bool, float]


def _run(job: Job) -> Point:
    return run_point(*job)


def torture(
    seed: int,
    numbers: range,
    *,
    kinds: tuple[str, ...] | None = None,
    wrong_order: bool = False,
    share: float = 0,
    jobs: int = 1,
    deadline: float | None = None,
) -> Iterator[Point]:
    """The points as they end; stops after ``deadline`` (``time.monotonic``)."""
    work: list[Job] = [(seed, number, kinds, wrong_order, share) for number in numbers]
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


def summary(points: int, servers: int, interruptions: Counter[str], refused: int, violations: int) -> str:
    """The counts in one line."""
    kinds = ", ".join(
        f"{kind} {interruptions[kind]}" for kind in dict.fromkeys(KINDS + SERVER_KINDS) if interruptions[kind]
    )
    return (
        f"{points} points ({servers} on PostgreSQL), {interruptions.total()} interruptions ({kinds}); "
        f"{refused} damaged stores were refused; {violations} points with violations"
    )


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


def tell(point: Point, options: argparse.Namespace) -> None:
    """What a point broke, and how to see it again."""
    flags = f" --postgres {options.postgres}" if options.postgres else ""
    flags += " --wrong-order" if options.wrong_order else ""
    flags += f" --kinds {' '.join(options.kinds)}" if options.kinds else ""
    print(f"VIOLATION at point {point.number}: {'; '.join(point.violations)}\n  {point.settings}")
    print(
        f"  python tests/streams/torture.py --seed {options.seed} --point {point.number}{flags}", flush=True
    )


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Random lives of small streams under random faults.",
        epilog="example: python tests/streams/torture.py --points 3000 --seed 7 --jobs 2",
    )
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--point", type=int, help="only this point, to repeat it")
    parser.add_argument("--minutes", type=float, help="stop then, however many points are done")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=dict.fromkeys(KINDS + SERVER_KINDS))
    parser.add_argument(
        "--postgres", type=float, default=0, metavar="SHARE", help="of points on a server, 0 to 1"
    )
    parser.add_argument("--wrong-order", action="store_true", help="negative control: has to find violations")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    numbers = range(1, options.points + 1)
    if options.point is not None:
        numbers = range(options.point, options.point + 1)
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    interruptions: Counter[str] = Counter()
    points = refused = broken = servers = 0
    with server(options.postgres) as share:
        for point in torture(
            options.seed,
            numbers,
            kinds=tuple(options.kinds) if options.kinds else None,
            wrong_order=options.wrong_order,
            share=share,
            jobs=options.jobs,
            deadline=deadline,
        ):
            points += 1
            interruptions += point.interruptions
            refused += point.refused
            servers += point.on_server
            broken += bool(point.violations)
            if point.violations:
                tell(point, options)
    print(summary(points, servers, interruptions, refused, broken))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
