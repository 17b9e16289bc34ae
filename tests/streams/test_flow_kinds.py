"""Flows of censuses, running sums, panels and points: whose sums they are, what cancels, what their variances hold, and
what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from census_stays import SMALL, batches, crowd, scheduled
from small_streams import small_frame, small_schema, small_stream

import dpstream as dp
from dpstream.core.contracts import NoisyCounts
from dpstream.core.counters import counter_by_name
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Event, NoiseSum, Noisy, PureDP, Randomness, Record
from dpstream.core.tables import Workload
from dpstream.families.census import Census
from dpstream.stream.release.estimates import Estimate, Flowing, Missing, Published
from dpstream.stream.release.flow_kinds import BlockFlows, PresentFlows, RunningFlows, WindowFlows
from dpstream.stream.release.flows import Span, Timeline, change

SCHEMA = dp.Schema([dp.Boolean("a"), dp.Categorical("b", ["x", "y", "z"]), dp.Boolean("c")])
#: Kurtosis of a single draw of Laplace noise: sums of several draws have less.
KURTOSIS, RUNS = 6.5, 800


def redrawn(counts: Sequence[NoisyCounts], randomness: Randomness) -> list[NoisyCounts]:
    """The same measurements with the noise drawn once more, beside what they hold."""
    return [replace(one, values=randomness.measure(np.asarray(one.values), drawn(one))) for one in counts]


def drawn(one: NoisyCounts) -> Any:
    """The noise of each value: files have it as a sum of one draw."""
    return one.noise.parts[0][0] if isinstance(one.noise, NoiseSum) else one.noise


def variance_holds(errors: np.ndarray, stated: float) -> bool:
    """Whether the mean square of errors is the stated variance. False alarms: below 1e-6 (five standard deviations of
    a mean of squares, two-sided, for errors with at most the kurtosis of a single Laplace draw)."""
    ratio = float((errors**2).mean()) / stated
    return abs(ratio - 1.0) < 5.0 * math.sqrt((KURTOSIS - 1.0) / len(errors))


def checked(
    known: Callable[[Sequence[NoisyCounts]], Flowing],
    again: Callable[[int], Sequence[NoisyCounts]],
    base: Sequence[NoisyCounts],
    ask: Callable[[Timeline], Estimate],
    steps: int,
) -> tuple[float, bool, bool]:
    """The stated variance of an answer; whether it holds over runs with other noise; whether half the noise would."""

    def answer(counts: Sequence[NoisyCounts]) -> Estimate:
        return ask(Timeline(known(counts), {}, tuple(range(1, steps + 1))))

    exact = answer(base)
    stated = exact.law().variance
    errors = np.array([answer(again(run)).values.flat[0] - exact.values.flat[0] for run in range(RUNS)])
    return stated, variance_holds(errors, stated), variance_holds(errors, stated / 4.0)


# Censuses.


def censuses(**options: Any) -> tuple[list[Any], list[dict[str, Any]], list[NoisyCounts]]:
    """Stays; what manifests say of the number of records; counts of 18 steps, nearly without noise."""
    recipe = Census(Workload.all_k_way(SMALL, 2), turnover=4, iterations=3, **options)
    plan = scheduled(recipe.calibrate(PureDP.of(400), Record()), ratio=2, departures=2)
    stays, state, randomness = crowd(1, 18, size=80, each=12), plan.start(), Randomness.seeded(7)
    made = [plan.step(state, batch, randomness) for batch in batches(stays, 18)]
    counts = [own for step in made for one in step.noisy_counts for own in one.marginals]
    return stays, [one.told for one in made], counts


@pytest.fixture(scope="module")
def census() -> tuple[list[Any], list[dict[str, Any]], list[NoisyCounts]]:
    """Of level 1 the number of records alone."""
    return censuses()


def present(counts: Sequence[NoisyCounts]) -> PresentFlows:
    return PresentFlows(tuple(counts), {}, (), Published(counts, SCHEMA))


def test_flows_of_a_census_are_those_of_the_records(census: Any) -> None:
    """Nearly without noise, so that a wrong window or a departure taken twice shows; censuses of two levels."""
    stays, told, counts = census
    known, steps = present(counts), [number for number, one in enumerate(told, 1) if "counted" in one]
    kinds = {one.draw.split(", ")[1] for one in counts}
    assert {"census of level 1", "left of level 0", "left of level 1"} < kinds
    assert known.borders((), "net", "mean") == [0, *steps]

    def there(step: int) -> set[int]:
        return {stay.key for stay in stays if stay.at(step) is not None}

    for begin, end in [(0, steps[0]), *itertools.pairwise(steps), (steps[1], steps[-1])]:
        net, came = (known.flow((), begin, end, events) for events in ("net", "came"))
        assert net.values == pytest.approx(len(there(end)) - len(there(begin)), abs=3)
        seen = [step for step in steps if begin < step <= end]
        new = {key for step in seen for key in there(step)} - there(begin)
        arrived = {stay.key for stay in stays if begin < stay.comes <= end}
        assert came.values == pytest.approx(len(new & arrived), abs=3)
        if begin:
            left = known.flow((), begin, end, "left")
            assert left.values == came.values - net.values
    for step in steps:  # The number that the manifest has, with its error
        stock, own = known.flow((), 0, step), told[step - 1]["counted"]
        assert float(stock.values) == own["records"]
        assert stock.standard_error == pytest.approx(own["standard_error"], abs=2e-3)


def test_what_both_censuses_say_by_the_same_draws_cancels(census: Any) -> None:
    _, _told, counts = census
    known, timeline = present(counts), Timeline(present(counts), {}, tuple(range(1, 19)))
    departures = [one for one in counts if one.counted == "left"]
    first, second = departures[0].end, departures[1].end
    lines = [one for one in counts if first < one.end <= second]
    # New arrivals and departures since: what the first census counted is in both numbers.
    assert known.flow((), first, second).law().variance == pytest.approx(
        sum(one.values.size * one.variance for one in lines)
    )
    came = known.flow((), first, second, "came")
    arrived = [one for one in lines if one.counted == "present"]
    assert came.law().variance == pytest.approx(sum(one.values.size * one.variance for one in arrived))
    union = known.flow((), 0, first).values + known.flow((), first, second).values
    assert union == known.flow((), 0, second).values
    same = change(timeline, (), Span(1, first), Span(1, second), "net", "mean")
    assert same.difference.values == known.flow((), first, second).values
    assert same.difference.standard_error == known.flow((), first, second).standard_error


@pytest.mark.parametrize("events", ["net", "came"])
def test_variances_of_a_census_hold(events: Any, census: Any) -> None:
    _, told, counts = census
    steps, randomness = (
        [number for number, one in enumerate(told, 1) if "counted" in one],
        Randomness.seeded(2),
    )
    begin, middle, end = steps[1], steps[4], steps[-1]
    spans = Span(begin + 1, middle), Span(middle + 1, end)

    def ask(timeline: Timeline) -> Estimate:
        return change(timeline, (), *spans, events, "mean").difference

    loud = [replace(one, noise=replace(one.noise, scale=one.noise.scale * 100)) for one in counts]
    _, right, half = checked(present, lambda run: redrawn(loud, randomness), loud, ask, 18)
    assert right
    assert not half


def test_cells_of_a_census_are_known_between_censuses_of_the_whole_table() -> None:
    _, told, counts = censuses(records_per_step=10_000)
    known = present(counts)
    whole = sorted({one.end for one in counts if one.counted == "present" and one.first == 1})
    assert known.borders(("b",), "net", "mean") == [0, *whole]
    assert len(whole) > 1
    for step in whole:  # of several columns that were drawn together
        assert float(known.flow((), 0, step, combine="mean").values) == told[step - 1]["counted"]["records"]
    found = known.flow(("b",), whole[0], whole[1])
    parts = [known.published.estimate(("b",), step) for step in whole[:2]]
    np.testing.assert_array_equal(found.values, parts[1].values - parts[0].values)
    assert found.law().variance == pytest.approx(sum(one.law().variance for one in parts))
    for events in ("came", "left"):
        missing = known.flow(("b",), whole[0], whole[1], events)
        assert isinstance(missing, Missing)
        assert "departures are counted as one number" in missing.reason
        assert "events = net" in missing.instead


def test_departures_of_a_step_that_was_never_published_are_not_known(census: Any) -> None:
    _, told, counts = census
    steps = [number for number, one in enumerate(told, 1) if "counted" in one]
    gone = max(step for step in steps if step < 8)
    rest = [one for one in counts if one.end != gone]
    known = PresentFlows(tuple(rest), {}, (gone,), Published(rest, SCHEMA))
    found = known.flow((), steps[0], steps[steps.index(gone) + 1], "left")
    assert isinstance(found, Missing)
    assert f"step {gone} was never published" in found.reason
    assert isinstance(known.flow((), 0, gone), Missing)
    later = steps[steps.index(gone) + 1 :]
    assert isinstance(known.flow((), later[0], later[1], "left"), Estimate)


# Running sums.


def running(counter: Any, randomness: Randomness, ticks: int) -> list[NoisyCounts]:
    state, found = counter.init(3), list[NoisyCounts]()
    for tick in range(1, ticks + 1):
        values = counter.step(state, np.array([5, 0, 2], dtype=np.int64), randomness)
        query = {"kind": "marginal", "columns": ["b"]}
        law = counter.law(tick, 1)
        found.append(NoisyCounts(f"step {tick}", "net", 1, tick, query, values, law, series="net, b"))
    return found


@pytest.mark.parametrize("name", ["simple", "tree", "block", "hybrid"])
def test_flows_of_running_sums_hold_the_noise_that_is_not_shared(name: str) -> None:
    counter = counter_by_name(name, horizon=13).calibrate(PureDP.of(1), Event())
    randomness = Randomness.seeded(5)

    def known(counts: Sequence[NoisyCounts]) -> RunningFlows:
        return RunningFlows(tuple(counts), {}, (), Published(counts, SCHEMA), counter)

    decoder, scales = (lambda it: (it.decoder, it.scales))(counter.materialize(13))
    each = np.array([noise.variance for noise in scales])
    base = running(counter, Randomness.seeded(6), 13)
    for begin, end in ((0, 13), (3, 4), (4, 9), (7, 12)):
        row = decoder[end - 1] - (decoder[begin - 1] if begin else 0)
        assert known(base).flow(["b"], begin, end).law().variance == pytest.approx((row**2) @ each)
    spans = Span(3, 6), Span(7, 12)
    exact = [replace(one, values=Noisy(one.last * np.array([5, 0, 2]))) for one in base]

    def ask(timeline: Timeline) -> Estimate:
        return change(timeline, ["b"], *spans, "net", "mean").difference

    row = decoder[11] - 2 * decoder[5] + decoder[1]
    stated, right, half = checked(known, lambda run: running(counter, randomness, 13), exact, ask, 13)
    assert stated == pytest.approx((row**2) @ each)
    assert right
    assert not half


# Panels.


def test_transitions_are_sums_of_one_window(tmp_path: Path) -> None:
    with small_stream(tmp_path, "panel", 5):
        pass
    release = dp.read(tmp_path / "releases")
    windows = {one.last: one for one in release.measurements()}
    came = release.flow(["poor"], 4, 4, events="came")
    # Patterns: (no, no), (no, yes), (yes, no), (yes, yes), of periods 3 and 4.
    assert came.values.tolist() == [windows[4].values[2], windows[4].values[1]]
    assert came.law().variance == windows[4].variance
    left, net = (release.flow(["poor"], 4, 4, events=events) for events in ("left", "net"))
    np.testing.assert_array_equal(net.values, came.values - left.values)
    assert net.law().variance == pytest.approx(2 * windows[4].variance)
    with pytest.raises(
        ConfigError, match=r"no published window holds both period 2 and period 4.*less than 2"
    ):
        release.flow(["poor"], 3, 4)
    with pytest.raises(ConfigError, match="nobody joins or leaves a panel"):
        release.flow([], 3, 4)
    with pytest.raises(ConfigError, match="do not overlap"):
        release.change(["poor"], earlier=(3, 3), later=(3, 3), events="came")
    base, randomness = list(release.measurements()), Randomness.seeded(1)

    def known(counts: Sequence[NoisyCounts]) -> WindowFlows:
        return WindowFlows(tuple(counts), {}, (), {"poor": ("false", "true")})

    def ask(timeline: Timeline) -> Estimate:
        return change(timeline, ["poor"], Span(3, 3), Span(4, 4), "net", "mean").difference

    stated, right, half = checked(known, lambda run: redrawn(base, randomness), base, ask, 5)
    assert stated == pytest.approx(2 * (windows[3].variance + windows[4].variance))
    assert right
    assert not half


# Points, and what is not known.


def test_points_are_known_by_whole_blocks(tmp_path: Path) -> None:
    with small_stream(tmp_path, "points", 6):
        pass
    release = dp.read(tmp_path / "releases")
    assert release.flow([], 2, 4).values == 120  # public
    with pytest.raises(
        ConfigError, match=r"number 41 to 160, are not whole blocks.*number 32 to 191, with cover"
    ):
        release.flow(["depth 2"], 2, 4)
    found = release.flow("depth 2", 2, 4, cover=True)
    blocks = [one for one in release.measurements() if one.query["depth"] == 2 and one.last >= 32]
    np.testing.assert_array_equal(found.values, sum(one.values for one in blocks if one.last <= 191))
    assert found.about == "points number 32 to 191"
    ends = {1: 31, 2: 63, 3: 127, 4: 191}
    base, randomness = [one for one in release.measurements() if one.last <= 191], Randomness.seeded(3)

    def known(counts: Sequence[NoisyCounts]) -> BlockFlows:
        return BlockFlows(tuple(counts), ends, ())

    assert known(base).borders(["depth 2"], "net", "mean") == [1, 2, 3, 4]

    def ask(timeline: Timeline) -> Estimate:
        return change(timeline, ["depth 2"], Span(2, 2), Span(3, 4), "net", "mean").difference

    _, right, half = checked(known, lambda run: redrawn(base, randomness), base, ask, 4)
    assert right
    assert not half
    with pytest.raises(ConfigError, match="points do not leave"):
        release.flow([], 2, 4, events="left")


def test_a_growing_stream_says_that_its_flows_are_not_known(tmp_path: Path) -> None:
    with small_stream(tmp_path, "growing", 4):
        pass
    release = dp.read(tmp_path / "releases")
    assert release.flow([], 2, 3).values == 80  # public
    for ask in (lambda: release.flow(["zip"], 2, 3), lambda: release.series(["zip"])):
        with pytest.raises(ConfigError, match=r"counts all records again.*headlines"):
            ask()


def test_dpstabs_needs_a_counter_whose_draws_are_known(tmp_path: Path) -> None:
    schema = small_schema()
    for name, fits in (("tree", True), ("optimal-tree", False)):
        mechanism = {"name": "dpstabs", "k": 3, "counter": name}
        budget = {"epsilon": 2, "horizon": 8}
        with dp.open(tmp_path / name, schema, mechanism=mechanism, budget=budget) as stream:
            for step in range(1, 5):
                stream.step(small_frame(schema.names, step), str(step))
        release = dp.read(tmp_path / name / "releases")
        if fits:
            whole = release.flow(["zip"], 1, 4)
            np.testing.assert_allclose(whole.values, release.measured(["zip"]).values)
            assert whole.standard_error == pytest.approx(release.measured(["zip"]).standard_error)
            assert release.flow(["zip"], 3, 3).standard_error < whole.standard_error * 2
        else:
            with pytest.raises(ConfigError, match=r"share noise.*interval counter"):
                release.flow(["zip"], 2, 4)
