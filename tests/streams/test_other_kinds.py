"""People, departures and cells of points as a reader gets them: with intervals that hold what they promise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from door_runs import drawn_and_published
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.core.errors import StoreDamagedError
from dpstream.core.privacy import DiscreteLaplace, PureDP, Randomness, Record
from dpstream.core.schema import Boolean, Schema
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedReports
from dpstream.families.panel import PanelCumulative, PanelWindow
from dpstream.stream.public_release import OtherKinds, kinds_there
from dpstream.stream.release.estimates import Estimate
from dpstream_lab.audits.census_audit import KeyedStay, keyed_ends, transcript_plan
from dpstream_lab.audits.points_audit import cube_plan

POOR = Schema((Boolean("poor"),))
LABELS = {"poor": ("false", "true")}
CONFIDENCE = 0.9
Numbers = NDArray[np.float64]


def known(counts: Iterable[NoisyCounts]) -> OtherKinds:
    return OtherKinds(tuple((one.as_of or one.last, one) for one in counts), LABELS)


def holds(found: list[tuple[Estimate, Any]], narrower: float = 1.0) -> bool:
    """Whether intervals of 90 % have the truth inside as often as they promise, over all independent cells.

    False alarms: below 1e-7 each, by Chernoff's bound for a share of 90 %.
    """
    inside = many = 0
    for estimate, truth in found:
        interval = estimate.interval(CONFIDENCE)
        width = (interval[1] - interval[0]) / 2 * narrower
        hits = np.abs(estimate.values - np.asarray(truth)) <= width
        inside, many = inside + int(hits.sum()), many + hits.size
    share = inside / many
    if share >= CONFIDENCE:
        return True
    far = share * math.log(share / CONFIDENCE) + (1 - share) * math.log((1 - share) / (1 - CONFIDENCE))
    return many * far < math.log(1e7)


def panel(people: int, periods: int, seed: int = 3) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, 2, (people, periods))


def panel_published(plan: Any, people: NDArray[np.int64], randomness: Randomness) -> list[Any]:
    marks = np.zeros((len(people), 16), np.uint8)
    marks[:, 0] = np.arange(len(people))
    reports = [EncodedReports(plan.domain, column[:, None].astype(np.int32), marks) for column in people.T]
    return drawn_and_published(plan, reports, randomness)[1]


def test_intervals_of_patterns_hold() -> None:
    plan, people = PanelWindow(POOR, 8).calibrate(rho="1/10", horizon=15), panel(100, 15)
    counts = panel_published(plan, people, Randomness.system())
    cells, sums = list[tuple[Estimate, Any]](), list[tuple[Estimate, Any]]()
    powers = 2 ** np.arange(7, -1, -1)
    for at in range(len(counts)):
        patterns = known(counts[: at + 1]).patterns()
        true = np.bincount(people[:, at : at + 8] @ powers, minlength=256).reshape([2] * 8)
        cells.append((patterns, true))
        for start in range(0, 256, 8):
            mask = np.zeros(256, bool)
            mask[start : start + 8] = True
            mask = mask.reshape([2] * 8)
            sums.append((patterns.sum(mask), true[mask].sum()))
    for found in (cells, sums):
        assert holds(found)
        assert not holds(found, 0.3)
    newest = cells[-1][0]
    assert newest.columns[0] == "poor, period 8"
    assert (newest.as_of, newest.epochs) == (15, ((8, 15),))
    whole = known(counts).people()
    assert float(whole.values) == newest.values.sum()
    assert whole.standard_error == pytest.approx(16 * newest.standard_error)


def test_intervals_of_people_who_reported_it_so_often_hold() -> None:
    plan, people = PanelCumulative(POOR, thresholds=3).calibrate(rho="1/20", horizon=4), panel(20, 4)
    found = list[tuple[Estimate, Any]]()
    often = people.sum(axis=1)
    for _ in range(150):
        own = known(panel_published(plan, people, Randomness.system()))
        for times in (1, 2, 3):
            estimate = own.people(times)
            found.append((estimate, (often >= times).sum()))
        everybody = own.people()
        found.append((everybody, 20))
    assert holds(found)
    assert not holds(found, 0.3)
    assert own.people(4) is None
    assert own.patterns() is None
    assert list(kinds_there(own)) == ["people", "at least 1", "at least 2", "at least 3"]
    assert "at least 2 times up to period 4" in found[1][0].note


def redrawn(counts: list[NoisyCounts], truths: list[Any], randomness: Randomness) -> list[NoisyCounts]:
    """The same measurements with other noise of the stated law."""
    return [
        replace(one, values=np.asarray(truth, np.int64) + randomness.draw(one.noise, one.values.size))
        for one, truth in zip(counts, truths, strict=True)
    ]


def test_intervals_of_cells_hold() -> None:
    depth = 6
    made, generator = cube_plan(2, depth=depth, epsilon=4), np.random.default_rng(1)
    points = generator.integers(0, 1 << depth, 3000)
    points[generator.random(3000) < 0.5] = 3
    state = made.start()
    made.read(state, points, Randomness.seeded(1))
    counts = made._measured(state)

    def true(at: int, first: int, last: int) -> NDArray[np.int64]:
        return np.bincount(points[first - 1 : last] >> (depth - at), minlength=1 << at)

    truths = [true(one.query["depth"], one.first, one.last) for one in counts]
    randomness, found = Randomness.system(), list[tuple[Estimate, Any]]()
    for _ in range(15):
        own = known(redrawn(counts, truths, randomness))
        for at in range(1, depth + 1):
            estimate = own.cells(at)
            assert len(estimate.epochs) > 1
            first, last = estimate.epochs[0][0], estimate.epochs[-1][1]
            assert estimate.note.endswith(f"points number {first} to {last}")
            found.append((estimate, true(at, first, last)))
    assert holds(found)
    assert not holds(found, 0.3)
    assert own.cells(depth + 1) is None
    # A block that is missing ends the sum: what came before it is about other points.
    (hole,) = [place for place, one in enumerate(counts) if one.draw == counts[-1].draw]
    deepest = [one for one in counts if one.query["depth"] == counts[hole].query["depth"]]
    kept = known([one for one in counts if one is not deepest[-2]]).cells(counts[hole].query["depth"])
    assert kept.epochs == ((deepest[-1].first, deepest[-1].last),)


def test_intervals_of_departures_hold() -> None:
    domain, generator, stays = Domain(("a", "b", "c"), (2, 3, 2)), np.random.default_rng(3), list[KeyedStay]()
    for _ in range(120):
        comes = int(generator.integers(1, 9))
        leaves = comes + 1 + int(generator.integers(0, 9))
        values = tuple(int(generator.integers(0, size)) for size in domain.sizes)
        stays.append(KeyedStay(comes, leaves if leaves <= 9 else None, {comes: values}))
    plan = transcript_plan(PureDP.of(2), Record())
    _, counts = drawn_and_published(plan, keyed_ends(stays, 9, domain), Randomness.seeded(1))
    left = [one for one in counts if one.counted == "left"]
    censuses = sorted({one.as_of for one in counts if one.as_of is not None})

    def gone(first: int, last: int, since: int, until: int) -> int:
        """Records of these first steps that were there at a census and left by another one."""
        return sum(
            stay.leaves is not None
            and first <= stay.comes <= last
            and since < stay.leaves <= until
            and any(stay.comes <= census < stay.leaves for census in censuses)
            for stay in stays
        )

    before = {step: max(one for one in censuses if one < step) for step in censuses[1:]}
    truths = [gone(one.first, one.last, before[one.as_of], one.as_of) for one in left]
    last = max(one.as_of or 0 for one in left)
    since = sorted({one.as_of or 0 for one in left})[0]
    randomness, found = Randomness.system(), list[tuple[Estimate, Any]]()
    for number in range(600):
        own = known(redrawn(left, truths, randomness))
        estimate = own.departures(since if number % 2 else 0)
        found.append((estimate, gone(1, 9, since if number % 2 else 0, last)))
    assert holds(found)
    assert not holds(found, 0.3)
    assert found[0][1] > found[1][1] > 0
    assert known(left).departures(last) is None
    assert estimate.as_of == last


def test_departures_that_a_step_counted_which_was_never_published_end_the_sum() -> None:
    noise = DiscreteLaplace(2)

    def line(step: int, found: int) -> NoisyCounts:
        query = {"kind": "marginal", "columns": list[str]()}
        return NoisyCounts(f"step {step}", "left", 1, 5, query, np.array([found]), noise, step)

    def left(*steps: int, since: int = 0) -> Estimate | None:
        counted = {10: 100, 20: 70, 30: 50}
        read = [
            ({"step": step}, [line(step, counted[step])] if step in counted else [])
            for step in range(1, 32)
            if step in steps or step not in counted
        ]
        return OtherKinds.of("nowhere", read).departures(since)

    whole = left(10, 20, 30)
    assert (whole.as_of, float(whole.values)) == (30, 220)
    assert "the law of noise in 3 measurements, added up" in whole.note
    assert "never published" not in whole.note
    # Step 20 was held, and rejected.
    first = left(10, 30)
    assert (first.as_of, float(first.values)) == (10, 100)
    assert "up to step 10 (step 20 was never published" in first.note
    assert "in one measurement" in first.note
    later = left(10, 30, since=20)
    assert (later.as_of, float(later.values)) == (30, 50)
    assert left(20, 30) is None
    assert left(10, 30, since=10) is None


def test_counts_that_do_not_fit_the_codebook_are_damage() -> None:
    query = {"kind": "patterns", "columns": ["poor"], "periods": 2}
    wrong = known([NoisyCounts("a", "people", 1, 2, query, np.arange(5), DiscreteLaplace(2))])
    for read in (wrong, replace(wrong, labels={})):
        with pytest.raises(StoreDamagedError, match="do not fit the codebook"):
            read.patterns()
