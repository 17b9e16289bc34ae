"""What the tests of faults stop: a stream of each family, since every durable stream has the same promises."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fault_harness
import numpy as np
from discovering import OPEN, discovering
from discovering import batch as opened_values
from fault_harness import STEPS, Subject
from small_streams import small_frame, small_schema
from toy_keyed import KeyedPlan, frame, values
from toy_keyed import batch as keyed_batch
from toy_stream import SCHEMA, ToyPlan

from dpstream import Batch, Boolean, Event, Individual, Schema, Snapshot, User, Workload
from dpstream.core.privacy import StepPeriods
from dpstream.families.growing import ERM, BBScheduler, MWEMPGMBox
from dpstream.families.panel import PanelCumulative, PanelWindow
from dpstream.families.points import Points
from dpstream.families.tabular import Pooled
from dpstream.io.sinks import read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.mechanisms import MWEMPGM
from dpstream.stream import Publishing, StateKey
from dpstream.stream.inspection import check_store

KEY = StateKey(b"k" * 32)
CROWDS = [[0, 1, 1, 4, 7, 7, 7, 7], [0, 0, 0, 2, 4, 5, 7], [1, 1, 3, 4, 4, 6]]


def grown(step: int) -> Batch:
    """Nothing is run yet, then several epochs are, then the last release stands."""
    size = {1: 30, 2: 40, 3: 2}[step]
    return Batch(np.random.default_rng(step).integers(0, 2, (size, 2)).astype(np.int32))


def ran_once(home: Path) -> None:
    """No mechanism was run twice."""
    runs = [read_manifest(home / "releases", step)["accuracy"]["run"] for step in range(1, STEPS + 1)]
    assert [None if run is None else run["number"] for run in runs] == [None, 1, 1]


def reports(step: int) -> Batch:
    """Thirty people in another order at every step; ten of them come later, one stays away."""
    generator = np.random.default_rng(step)
    people = generator.permutation(20 if step == 1 else 30)[: -1 if step == 3 else None]
    return Batch({"poor": (generator.random(len(people)) < 0.3).tolist()}, users=people)


def only_extended(home: Path) -> None:
    """Each kept release of a panel holds the one before it, cell by cell."""
    earlier = None
    for step in range(1, STEPS + 1):
        if not any((home / "releases" / f"step-{step:06d}").glob("[tc]*.csv")):
            continue
        table = read(home / "releases", step)
        if earlier is not None and earlier.num_columns > 1:
            assert table.select(earlier.column_names).equals(earlier)
        earlier = table
    assert earlier is not None
    periods = [name for name in earlier.column_names if name.startswith("poor")]
    assert periods == ["poor_1", "poor_2", "poor_3"]


def scattered(*columns: str) -> Callable[[int], Batch]:
    """Points whose levels end within steps and between them."""
    return lambda step: Batch(small_frame(columns, step, (3, 40, 0, 25)[step % 4]))


def updated(step: int) -> Batch:
    """Inserts and deletes."""
    return Batch(small_frame(("paid", "zip"), step, 30), small_frame(("paid", "zip"), step, 4))


def events_and_a_snapshot(step: int) -> Any:
    if step != 2:
        return keyed_batch(step)
    rng = np.random.default_rng(step)
    return Snapshot(frame({f"key-{key}": values(rng) for key in range(20, 50)}), "id")


def crowd(step: int) -> Batch:
    """Users who come again, beyond the bound; each has records of one kind."""
    users = CROWDS[step - 1]
    frame = {"zip": [("94102", "94103", "94110")[u % 3] for u in users], "paid": [True] * len(users)}
    return Batch({**frame, "rent": [1] * len(users)}, users=[f"user {u}" for u in users])


def counted_once(home: Path, crowds: list[list[int]] = CROWDS) -> None:
    """The counters of users are a brute-force count."""
    asked = Counter(user for users in crowds for user in users)
    with contextlib.closing(fault_harness.open_database(home)) as db:
        counts = sorted(int.from_bytes(value, "little") for (value,) in db.execute("SELECT value FROM users"))
    assert counts == sorted(min(count, 4) for count in asked.values()), "one beyond the bound"


def counted_anew(home: Path) -> None:
    """Those of the last period's users: the border before it deleted all others."""
    counted_once(home, CROWDS[2:])


def sound(key: StateKey | None = None) -> Callable[[Path], None]:
    """The present records in the file are those that their sums say."""

    def check(home: Path) -> None:
        if (home / "state" / "stream.sqlite").exists():
            assert check_store(home / "state", home / "releases", key=key).problems == ()

    return check


POOR = Schema((Boolean("poor", missing="absent"),))
TWO, RENT = small_schema("paid", "poor"), small_schema("paid", "zip")
PLANE, LINE = small_schema("kind", "x", "y"), small_schema("x")
PEOPLE: Mapping[str, Any] = {"rho": "1/2", "unit": Individual("replace"), "horizon": STEPS}
POINTS: Mapping[str, Any] = {"epsilon": "8", "unit": Event("replace")}
CHANGES, BOTH = (Publishing(records="persistent", publish=what) for what in ("changes", "both"))
EXPIRING: Mapping[str, Any] = {"keep": 1, "key": KEY}

SUBJECTS = {
    "toy": replace(fault_harness.TOY, stride=5),
    "users": Subject(ToyPlan(unit=User(3)), SCHEMA, crowd, judge=counted_once),  # type: ignore[arg-type]
    # Stopped, among others, between the border of a period and its commit.
    "users per 2 steps": Subject(
        ToyPlan(unit=User(3, StepPeriods(2))),  # type: ignore[arg-type]
        SCHEMA,
        crowd,
        judge=counted_anew,
        stride=5,
    ),
    "scheduler": Subject(
        BBScheduler(MWEMPGMBox(Workload.all_k_way(TWO.domain, 1), MWEMPGM(k=2)), 50, gamma="1/10").calibrate(
            epsilon=1
        ),
        TWO,
        grown,
        judge=ran_once,
        stride=7,
    ),
    "classifier": Subject(
        BBScheduler(ERM(TWO, "poor"), 50, gamma="1/10").calibrate(epsilon=1),
        TWO,
        grown,
        judge=ran_once,
        stride=13,
    ),
    "window": Subject(
        PanelWindow(POOR, window=2, people=40).calibrate(**PEOPLE),
        POOR,
        reports,
        CHANGES,
        judge=only_extended,
    ),
    "cumulative": Subject(
        PanelCumulative(POOR, people=40).calibrate(**PEOPLE),
        POOR,
        reports,
        BOTH,
        judge=only_extended,
        stride=9,
        **EXPIRING,
    ),
    "plane": Subject(
        Points(PLANE, max_depth=6).calibrate(**POINTS), PLANE, scattered("kind", "x", "y"), CHANGES, stride=7
    ),
    # With one coordinate earlier points are kept for ever.
    "line": Subject(
        Points(LINE, max_depth=6).calibrate(**POINTS), LINE, scattered("x"), BOTH, stride=11, **EXPIRING
    ),
    # Half of a stream may be extrapolated, so that there are steps inside epochs.
    "pooled": Subject(
        Pooled(Workload.all_k_way(RENT.domain, 2), staleness="1/2", deletions=True).calibrate(  # type: ignore[arg-type]
            epsilon="1", horizon=STEPS
        ),
        RENT,
        updated,
        stride=11,
    ),
    # A step before, at and after the border at which values are discovered.
    "discovering": Subject(discovering(2), OPEN, opened_values, judge=sound(), stride=7),
    "keyed": Subject(KeyedPlan(), SCHEMA, events_and_a_snapshot, judge=sound(), stride=9),
    "keyed, encrypted": Subject(
        KeyedPlan(), SCHEMA, events_and_a_snapshot, key=KEY, judge=sound(KEY), stride=11
    ),
}
