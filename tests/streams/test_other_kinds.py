"""People, departures and cells of points as a reader gets them: with intervals that hold what they promise."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from door_runs import drawn_and_published
from numpy.typing import NDArray

import dpstream as dp
from dpstream.cli import main
from dpstream.core.contracts import NoisyCounts
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.privacy import DiscreteLaplace, Individual, PureDP, Randomness, Record
from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedReports
from dpstream.families.panel import PanelCumulative, PanelWindow
from dpstream.io.sinks import Publisher
from dpstream.stream import Batch, open_stream
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
        assert patterns is not None
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
            assert estimate is not None
            found.append((estimate, (often >= times).sum()))
        everybody = own.people()
        assert everybody is not None
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
    counts = [
        NoisyCounts(
            f"depth {one.depth}, points {one.first} to {one.last}",
            "points",
            one.first,
            one.last,
            {"kind": "cells", "columns": ["x", "y"], "depth": one.depth},
            one.values.astype(np.int64),
            one.noise,
        )
        for one in state.measured
    ]

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

    truths = []
    for one in left:
        assert one.as_of is not None
        truths.append(
            gone(one.first, one.last, max(step for step in censuses if step < one.as_of), one.as_of)
        )
    last = max(one.as_of or 0 for one in left)
    since = sorted({one.as_of or 0 for one in left})[0]
    randomness, found = Randomness.system(), list[tuple[Estimate, Any]]()
    for number in range(600):
        own = known(redrawn(left, truths, randomness))
        estimate = own.departures(since if number % 2 else 0)
        assert estimate is not None
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
    assert "the noise in 3 measurements, added up" in whole.note
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


# From the folder.


def released_panel(
    home: Path, recipe: Any, unit: Individual, schema: Schema = POOR
) -> tuple[Path, NDArray[np.int64]]:
    people = np.random.default_rng(2).integers(
        0, [len(one.labels()) for one in schema.columns], (4, 40, len(schema.names))
    )
    plan = recipe.calibrate(rho=40, unit=unit, horizon=4)
    with open_stream(
        plan, schema, home / "state", publish_to=Publisher(home / "releases"), randomness=Randomness.seeded(1)
    ) as stream:
        for step, codes in enumerate(people, start=1):
            users = [str(person) for person in range(40)]
            stream.step(Batch(codes.astype(np.int32), users=users), f"b{step}")
    return home / "releases", people


def test_a_reader_of_a_panel_of_windows(tmp_path: Path) -> None:
    schema = Schema((Boolean("poor"), Categorical("work", ("none", "part", "full"))))
    folder, people = released_panel(tmp_path, PanelWindow(schema, 2), Individual(), schema)
    release = dp.read(folder)
    patterns = release.patterns()
    assert patterns.columns == ("poor, period 3", "work, period 3", "poor, period 4", "work, period 4")
    assert patterns.labels[1] == ("none", "part", "full")
    true = np.zeros((2, 3, 2, 3))
    np.add.at(true, tuple(np.concatenate([people[2], people[3]], axis=1).T), 1)
    assert np.abs(patterns.values - true).max() <= 3  # nearly without noise
    poor_twice = np.zeros((2, 3, 2, 3), bool)
    poor_twice[1, :, 1, :] = True
    assert abs(patterns.sum(poor_twice).values - true[1, :, 1, :].sum()) <= 3
    everybody, earlier = release.people(), release.patterns(step=3)
    assert abs(everybody.values - 40) <= 6
    assert earlier.epochs == ((2, 3),)
    assert release.departures() is None
    assert release.cells(1) is None
    with pytest.raises(ConfigError, match="the mask has the shape"):
        patterns.sum(np.ones(3, bool))


def test_a_reader_of_a_panel_that_counts(tmp_path: Path) -> None:
    folder, people = released_panel(tmp_path, PanelCumulative(POOR), Individual("replace"))
    release, often = dp.read(folder), people[..., 0].sum(axis=0)
    for times in (1, 2, 3, 4):
        estimate = release.people(times)
        assert abs(estimate.values - (often >= times).sum()) <= 3
    everybody = release.people()
    assert (float(everybody.values), everybody.standard_error) == (40.0, 0.0)
    assert everybody.note.startswith("exact: the number of people was declared public")


def test_on_the_command_line(tmp_path: Path) -> None:
    folder, _ = released_panel(tmp_path, PanelWindow(POOR, 2), Individual())

    def said(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, ["measured", str(folder), *arguments])
        assert result.exit_code == code, result.output
        return " ".join((result.stdout if code == 0 else result.stderr).split())

    assert [one["kind"] for one in json.loads(said("--json"))] == ["people", "patterns"]
    assert "the people in periods 3 to 4" in said("--of", "people")
    cells = json.loads(said("--of", "patterns", "--json"))
    assert len(cells["cells"]) == 4
    assert said("--of", "patterns", "--csv").startswith('"poor, period 3","poor, period 4","measured"')
    assert "'depth 2' was not measured (allowed: people, patterns)" in said("--of", "depth 2", code=2)
    assert "no column of a table" in said("--of", "people", "--as-of", "2", code=2)


def test_counts_that_do_not_fit_the_codebook_are_damage() -> None:
    wrong = NoisyCounts(
        "a",
        "people",
        1,
        2,
        {"kind": "patterns", "columns": ["poor"], "periods": 2},
        np.arange(5),
        DiscreteLaplace(2),
    )
    with pytest.raises(StoreDamagedError, match="do not fit the codebook"):
        known([wrong]).patterns()
    with pytest.raises(StoreDamagedError, match="do not fit the codebook"):
        replace(known([wrong]), labels={}).patterns()
