"""What holds of every plan: parts are its budget, a state is packed whole, noisy counts came out of the door.


A stream runs once; then, with its noisy values, answers and choices, on records that have nothing in common with the
first ones but public facts. It must publish the same. What it publishes of one draw is one measurement of the door.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from door_runs import published_beside
from small_batches import same, stored

from dpstream.core.contracts import NoisyCounts, Packed, PublicPrior, StepPeriods
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.privacy import ZCDP, Event, Individual, Noisy, PureDP, Randomness, Record
from dpstream.core.schema import Boolean, Domain, Integer, Real, Schema
from dpstream.core.tables import EncodedBatch, EncodedRecords, EncodedReports, Workload
from dpstream.families.points import Points
from dpstream.families.tabular import Baseline, DPStabs, Pooled
from dpstream.mechanisms import AIM, MWEMPGM
from dpstream.tools.audit.door import Door
from dpstream_lab.audits.census_audit import TRANSCRIPT_STEPS, KeyedStay, keyed_ends, transcript_plan
from dpstream_lab.audits.growing_audit import arrivals, growing_plans
from dpstream_lab.audits.panel_audit import cumulative_plan, window_plan

DOMAIN = Domain(("a", "b", "c"), (3, 2, 2))
PAIRS = Workload.all_k_way(DOMAIN, 2)
STEPS = 8


def rows(seed: int, many: int = 40) -> list[EncodedBatch]:
    """A stream of rows with deletes, of as many records whatever the seed."""
    generator = np.random.default_rng(seed)

    def drawn(number: int) -> np.ndarray:
        skew = [np.minimum(generator.integers(0, size, number), seed % size) for size in DOMAIN.sizes]
        return np.column_stack(skew).astype(np.int32)

    return [EncodedBatch(DOMAIN, drawn(many), drawn(many // 4)) for _ in range(STEPS)]


def inserts(seed: int) -> list[EncodedBatch]:
    """A stream of rows that stay."""
    return [EncodedBatch(DOMAIN, batch._came.whole()) for batch in rows(seed)]


def keyed(seed: int) -> list[Any]:
    """A keyed stream."""
    generator, domain = np.random.default_rng(seed), Domain(("a", "b", "c"), (2, 3, 2))
    stays = []
    for _ in range(40 + 30 * seed):
        comes = int(generator.integers(1, TRANSCRIPT_STEPS))
        values = tuple(int(generator.integers(0, size)) for size in domain.sizes)
        stays.append(KeyedStay(comes, comes + 1 + int(generator.integers(0, 5)), {comes: values}))
    return list(keyed_ends(stays, TRANSCRIPT_STEPS, domain))


def reports(plan: Any) -> Callable[[int], list[Any]]:
    """A panel of as many people whatever the seed."""

    def panel(seed: int) -> list[Any]:
        people = np.random.default_rng(seed).integers(0, 2, (30, plan.horizon))
        marks = np.zeros((30, 16), np.uint8)
        marks[:, 0] = np.arange(30)
        return [EncodedReports(plan.domain, column[:, None].astype(np.int32), marks) for column in people.T]

    return panel


def places(plan: Any) -> Callable[[int], list[Any]]:
    """Points in the same numbers whatever the seed."""

    def stream(seed: int) -> list[Any]:
        sizes, generator = np.array(plan.reading.domain.sizes), np.random.default_rng(seed)
        drawn = [generator.random((many, len(sizes))) ** (1 + seed) for many in (3, 0, 40, 200, 300)]
        domain = plan.reading.domain
        return [EncodedRecords(domain, np.asfortranarray((one * sizes).astype(np.int32))) for one in drawn]

    return stream


def growing(plan: Any) -> Callable[[int], list[Any]]:
    """Arrivals in the same numbers whatever the seed."""

    def stream(seed: int) -> list[Any]:
        width = np.array(plan.domain.sizes)
        return [
            EncodedBatch(plan.domain, ((codes * (1 + seed) + seed) % width).astype(np.int32))
            for codes in arrivals(plan.domain, [5, 4, 9, 20])
        ]

    return stream


def _cases() -> dict[str, tuple[Any, Callable[[int], list[Any]]]]:
    pooled = Pooled(PAIRS, iterations=5, deletions=True)
    stabs = DPStabs(PAIRS, k=2, iterations=5, deletions=True)
    window, cumulative = window_plan(5, 2, unit=Individual()), cumulative_plan(5, unit=Individual())
    growers = growing_plans()
    square = Schema((Boolean("car"), Real("x", [0, 1]), Real("y", [0, 1])))
    line = Schema((Real("x", [0, 1]),))
    points = {
        f"points of {len(schema)} columns, {variant}": Points(schema, variant, max_depth=6).calibrate(
            PureDP.of(8), unit=Event("replace")
        )
        for schema in (square, line)
        for variant in ("default", "paper")
    }
    trees = replace(stabs, k=3, counter="optimal-tree")
    prior = PublicPrior(DOMAIN, (0, 1), np.array([[0, 0], [1, 1]], np.int32), np.array([9.0, 8.0]), {})
    periods = {"headline": (("a",), ("a", "b")), "periods": StepPeriods(3), "number": StepPeriods(2)}
    whole = replace(pooled, prior=prior, season=Fraction(4), staleness=Fraction(1, 2), **periods)
    numbers = Schema((Integer("a", min=0, max=2), Boolean("b"), Boolean("c")))
    means = {"headline": (("mean(a)",), ("b", "mean(a)")), "schema": numbers, "periods": StepPeriods(3)}
    streams = {
        "pooled, pure": (pooled.calibrate(PureDP.of(2), horizon=STEPS), rows),
        "pooled, zCDP": (pooled.calibrate(ZCDP.of("1/4"), horizon=STEPS), rows),
        "pooled, replace": (pooled.calibrate(PureDP.of(4), unit=Event("replace"), horizon=STEPS), rows),
        "pooled, with a prior, a season and periods": (whole.calibrate(PureDP.of(2), horizon=STEPS), rows),
        "pooled, means": (replace(pooled, **means).calibrate(PureDP.of(2), horizon=STEPS), rows),
        "inserts, pooled": (replace(pooled, deletions=False).calibrate(PureDP.of(1), horizon=STEPS), inserts),
        "inserts, DP-STabS": (replace(stabs, deletions=False).calibrate(PureDP.of(2)), inserts),
        "DP-STabS": (stabs.calibrate(PureDP.of(2)), rows),
        "DP-STabS, least-squares trees": (trees.calibrate(PureDP.of(2), horizon=STEPS), rows),
        "net, DP-STabS, literal": (replace(stabs, past="literal").calibrate(PureDP.of(2)), rows),
        "DP-STabS, replace": (stabs.calibrate(PureDP.of(2), unit=Event("replace")), rows),
        "baseline": (Baseline(PAIRS, offline=MWEMPGM(k=3), deletions=True).calibrate(PureDP.of(2)), rows),
        "baseline, AIM": (Baseline(PAIRS, offline=AIM(), deletions=True).calibrate(ZCDP.of("1/8")), rows),
        "census, pure": (transcript_plan(PureDP.of(2), Record()), keyed),
        "census, zCDP": (transcript_plan(ZCDP.of("1/2"), Record()), keyed),
        "census, nothing selected": (transcript_plan(PureDP.of(2), Record(), max_cells=1000), keyed),
        "present, census without deletes, levels without end": (
            transcript_plan(PureDP.of(2), Record("replace")),
            keyed,
        ),
        "window": (window, reports(window)),
        "cumulative": (cumulative, reports(cumulative)),
    }
    streams |= {name: (plan, places(plan)) for name, plan in points.items()}
    return streams | {name: (plan, growing(plan)) for name, plan in list(growers.items())[:5]}


CASES = _cases()
#: What the noisy counts of a family are about.
COUNTED = {
    **{name: {"inserts", "deletes"} for name in ("pooled", "DP-STabS", "baseline")},
    **{name: {"people"} for name in ("window", "cumulative")},
    **{name: {"inserts"} for name in ("scheduler", "improver")},
    **{name: {"net"} for name in ("inserts", "net")},
    "census": {"present", "left"},
    "present": {"present"},
    "points": {"points"},
}


class Exact:
    """BROKEN: publishes the exact values of a measurement in place of its noisy ones."""

    def __init__(self, plan: Any) -> None:
        self._plan, self.budget, self.start = plan, plan.budget, plan.start
        self.selector = getattr(plan, "selector", None)

    def step(self, state: Any, batch: Any, randomness: Randomness, /) -> Any:
        made = self._plan.step(state, batch, randomness)
        assert isinstance(randomness, Door)
        if not made.noisy_counts:
            return made
        last = made.noisy_counts[-1]
        measured = [one.exact for one in reversed(randomness.measured) if len(one.exact) == last.values.size]
        leak = replace(last, values=Noisy(measured[0]))
        return replace(made, noisy_counts=(*made.noisy_counts[:-1], leak))


class Doubled:
    """BROKEN: publishes the last noisy counts of a step a second time, one higher."""

    def __init__(self, plan: Any) -> None:
        self._plan, self.budget, self.start = plan, plan.budget, plan.start
        self.selector = getattr(plan, "selector", None)

    def step(self, state: Any, batch: Any, randomness: Randomness, /) -> Any:
        made = self._plan.step(state, batch, randomness)
        more: list[NoisyCounts] = [
            replace(one, draw=f"{one.draw}, again", values=Noisy(one.values + 1))
            for one in made.noisy_counts[-1:]
        ]
        return replace(made, noisy_counts=(*made.noisy_counts, *more))


@pytest.mark.parametrize("name", CASES)
def test_noisy_counts_are_numbers_that_came_out_of_the_door(name: str) -> None:
    plan, stream = CASES[name]
    counted = set[str]()
    assert published_beside(plan, stream(0), stream(1), counted) == ""
    assert counted == COUNTED[name.split()[0].strip(",")]
    # An exact count in place of a noisy one; and, where draws are published one by one, a number more.
    assert published_beside(Exact(plan), stream(0), stream(1))
    if "DP-STabS" not in name and name != "cumulative":
        assert published_beside(Doubled(plan), stream(0), stream(1))


@pytest.mark.parametrize(
    "name", [name for name in CASES if name.startswith(("inserts", "scheduler", "improver"))]
)
def test_deletes_are_never_ignored_silently(name: str) -> None:
    plan, nothing = CASES[name][0], np.zeros((0, len(CASES[name][0].domain.sizes)), np.int32)
    with pytest.raises(ConfigError, match="deletes"):
        plan.step(plan.start(), EncodedBatch(plan.domain, nothing, nothing), Randomness.seeded(1))


@pytest.mark.parametrize("name", CASES)
def test_a_state_is_packed_whole_and_a_plan_says_what_it_spends_and_publishes(name: str) -> None:
    """What was packed goes on bit for bit, also after a step that was stopped before it was committed."""
    plan, stream = CASES[name]
    assert sum((part.total for part in plan.parts()), Fraction(0)) == plan.budget.amount
    state, broken = plan.start(), plan.start()
    for step, batch in enumerate(stream(0), start=1):
        packed = stored(plan.pack_state(broken))
        plan.step(plan.unpack_state(packed), batch, Randomness.seeded("stopped"))
        broken = plan.unpack_state(packed)
        one, two = (plan.step(each, batch, Randomness.seeded(step)) for each in (state, broken))
        assert same(one.pack(), two.pack())
        assert same(one.pack(), plan.unpack_synthesis(stored(one.pack())).pack())
        said, many = plan.facts().get("noisy_counts", {}), sum(len(own.values) for own in one.noisy_counts)
        assert many <= said.get("most", said.get("each", many))
        # What is measured by periods is measured between borders, too.
        assert many >= said.get("first", 0) or many == 0 or plan.facts().get("periods")
    packed = plan.pack_state(state)
    assert same(packed, plan.pack_state(broken))
    for lost in packed.arrays:
        left = {name: values for name, values in packed.arrays.items() if name != lost}
        with pytest.raises(StoreDamagedError):
            plan.unpack_state(Packed(packed.meta, left))
