"""Random lives whose steps are held, approved, rejected and withdrawn, with changes, and with a second place that comes
and goes: no file that readers have gives a table away that was taken back, and a withdrawal waits for no place."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torture_life as lives
from fault_harness import sql
from second_place import contents, mirrored
from toy_stream import SCHEMA, ToyPlan, batch

from dpstream.core.errors import DpstreamError, StepError, StoreError
from dpstream.core.privacy import Randomness
from dpstream.io.sinks import Publisher
from dpstream.io.sinks.table_files import Format
from dpstream.io.sinks.target import STAYING
from dpstream.stream import Publishing, Stream, open_stream
from dpstream.stream.inspection import check_store

#: Kinds of lives: with one place, and with a second one that is away now and then.
PLACES = ("taken", "away")
STEPS = 5
_SECRET = ("held", "rejected", "withdrawing", "withdrawn")
Act = tuple[str, int]


@dataclass(frozen=True)
class Plan:
    """What the owner does, in order."""

    acts: tuple[Act, ...]
    publish: str
    keep: int | str
    form: Format
    second: bool
    seed: int


def draw(kind: str, rng: random.Random) -> Plan:
    """A random life; every act may be repeated."""
    acts, made = list[Act](), 0
    kinds = ["step", "step", "step", "approve", "withdraw", "reopen"] + 2 * ["away"] * (kind == "away")
    while made < STEPS or rng.random() < 0.5:
        act = rng.choice(kinds) if made < STEPS else rng.choice(kinds[3:])
        made += act == "step"
        if made:
            acts.append((act, made if act == "step" else rng.randrange(1, made + 1)))
    return Plan(
        tuple(acts),
        rng.choice(["changes", "both"]),
        rng.choice([2, 3, "all"]),
        rng.choice(["csv", "parquet"]),
        kind == "away",
        rng.randrange(2**30),
    )


def opened(home: Path, plan: Plan, approve: bool) -> Stream:
    """The stream; whether new steps are held may be another way at each opening."""
    sink: Any = mirrored(home, plan.form) if plan.second else Publisher(home / "releases", format=plan.form)
    policy = Publishing(records="persistent", publish=plan.publish, full_every=4, approve=approve)
    return open_stream(
        ToyPlan(),
        SCHEMA,
        home / "state",
        publish_to=sink,
        publishing=policy,
        randomness=Randomness.seeded(plan.seed),
    )


def live(home: Path, plan: Plan) -> list[str]:
    """The whole life, those steps too that are there already; what was seen to be wrong on the way."""
    found, drawn = list[str](), random.Random(plan.seed)
    away = home / "away"
    away.unlink(missing_ok=True)
    stream = opened(home, plan, drawn.random() < 0.5)
    try:
        for act, step in plan.acts:
            try:
                if act == "step":
                    stream._randomness = Randomness.seeded(plan.seed + step)
                    stream.step(batch(step), f"b{step}")
                elif act == "approve":
                    stream.approve(step)
                elif act == "away":
                    away.unlink() if away.exists() else away.touch()
                elif act == "reopen":
                    stream.close()
                    stream = opened(home, plan, drawn.random() < 0.5)
                elif stream.last_step >= step:
                    stream.withdraw(step, "a test")
            except StepError:
                pass  # it changes a step that is held, or is not there because a place was away
            except StoreError as error:
                if not away.exists():
                    raise
                if act == "reopen":
                    return [*found, f"the stream does not open while a place is away: {error}"]
            if act in ("withdraw", "approve", "step"):
                found += [f"after {act} {step}: {text}" for text in given_away(home)]
                if act == "withdraw" and states(home).get(step) in ("published", "pending", "held"):
                    found.append(f"step {step} is not withdrawn, because a place is away")
        away.unlink(missing_ok=True)
        stream.close()
        stream = opened(home, plan, False)
        for step in range(1, STEPS + 1):
            stream._randomness = Randomness.seeded(plan.seed + step)
            stream.step(batch(step), f"b{step}")
        if again := stream.publish_again():
            found.append(f"steps {again} were missing")
    finally:
        stream.close()
        away.unlink(missing_ok=True)
    return found


def states(home: Path) -> dict[int, str]:
    """The publication state of each step, past the program."""
    return dict(sql(home, "SELECT step, publication FROM steps"))


def given_away(home: Path) -> Iterator[str]:
    """Tables that were taken back, or wait for approval, and can be put together from the folder."""
    root, now = home / "releases", states(home)
    for step, publication in now.items():
        folder = root / f"step-{step:06d}"
        there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        if publication in ("held", "rejected") and there:
            yield f"step {step} is {publication} and has {sorted(there)}"
        if publication in ("withdrawing", "withdrawn") and there - STAYING:
            yield f"step {step} is {publication} and has {sorted(there - STAYING)}"
        if now.get(step - 1) in _SECRET and any(name.startswith("changes.") for name in there):
            yield f"step {step} has the changes since step {step - 1}, which is {now[step - 1]}"


def places(kind: str, home: Path, rng: random.Random) -> tuple[bool, list[str]]:
    """One such life, stopped once, then lived again to its end; whether it was stopped, and what is wrong."""
    plan = draw(kind, rng)
    hit, code = lives.stopped(lambda: live(home, plan) and None, rng, 120)
    found = [] if code in (0, lives.REFUSED, -9) else [f"{kind}: exit {code}"]
    (home / "away").unlink(missing_ok=True)
    try:
        found += live(home, plan)
    except DpstreamError as error:
        return hit, [*found, f"{kind}: the life cannot be finished: {error}", str(plan)]
    found += check_store(home / "state", home / "releases").problems
    if (home / "releases" / "catalogue.json").exists():
        found += lives.unreadable(home)
    if plan.second:
        one, other = contents(home / "releases"), contents(home / "second")
        found += [
            f"{path} differs between the places"
            for path in one.keys() | other.keys()
            if one.get(path) != other.get(path)
        ]
    return hit, [*(f"{kind}: {text}" for text in found), *([str(plan)] if found else [])]
