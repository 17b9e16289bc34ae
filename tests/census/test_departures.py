"""Departures counted between censuses, and jumps: when, what they say, and which numbers stay exact."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from census_stays import TINY, Stay, batches, crowd, releases, scheduled
from hypothesis import given
from hypothesis import strategies as st

from dpstream.core.privacy import DiscreteLaplace, HistogramsNoise, PureDP, Randomness, Record
from dpstream.core.schema import Domain
from dpstream.core.tables import PresentBatch, Workload
from dpstream.families.census import Census, CensusPlan, CensusSchedule, bookkeeping, totals_filter
from dpstream.families.census.census_report import accuracy_facts
from dpstream.families.census.schedule import last_of, with_census
from dpstream.families.census.shares import expected_wait
from dpstream.families.census.totals_filter import LevelTotal, NewcomersRate, is_jump
from dpstream.stream.identity import spent_per_step
from dpstream.stream.templates import paragraphs, said, words
from dpstream_lab.audits.census_audit import rare_times


@given(st.integers(1, 12), st.integers(2, 4), st.integers(1, 3), st.integers(1, 15), st.integers(1, 300))
def test_step_numbers_alone_say_when_departures_are_counted(
    gap: int, ratio: int, levels: int, every: int, until: int
) -> None:
    schedule = CensusSchedule(gap, levels, every, ratio=ratio)
    plain = CensusSchedule(gap, levels, ratio=ratio)
    assert schedule.censuses(1, until) == plain.censuses(1, until)  # censuses are where they were
    last: list[int] = []
    counted = 0
    for step in range(1, until + 1):
        level, before = schedule.level(step, last), schedule.last_count(step - 1, last)
        assert counted == before
        if level is not None or schedule.counts(step, last):
            assert level is not None or step - before == every
            counted = step
        else:
            assert step - before < every
        if level is not None:
            assert schedule.counts_between(last_of(last, 0), step) == math.ceil(
                (step - last_of(last, 0)) / every
            )
            last = with_census(last, level, step)


class Quiet(Randomness):
    """BROKEN: two thirds of the noise."""

    def draw(self, noise: Any, size: int) -> np.ndarray:
        assert isinstance(noise, DiscreteLaplace | HistogramsNoise)
        return super().draw(replace(noise, scale=noise.scale * Fraction(2, 3)), size)


@pytest.mark.parametrize("times", [None, rare_times(7)], ids=["at censuses", "between them, too"])
def test_the_counted_number_has_mean_zero_and_the_told_variance(times: CensusSchedule | None) -> None:
    """16 Laplace draws and more: squares have a variance below 2.5. 5 deviations: false alarms below 1e-6; control."""
    plan = Census(Workload.all_k_way(TINY, 1), turnover=4, iterations=1).calibrate(epsilon=1)
    plan, steps = (scheduled(plan, ratio=2), 8) if times is None else (replace(plan, schedule=times), 7)
    ends = list(batches(crowd(2, steps, domain=TINY), steps, TINY))
    true, most = len(ends[-1].present.table), 0.0

    def told(source: type[Randomness], streams: int) -> np.ndarray:
        """Errors of the counted number in its standard errors, at the last step of many streams."""
        nonlocal most
        found = []
        for number in range(streams):
            *_, release = releases(plan, ends, source.seeded(f"told/{number}"))
            counted = release.accuracy()["counted"]
            assert repr(counted["records"]) == repr(
                round(counted["records"], 6) + 0.0
            )  # no 991.9999999999999
            found.append((counted["records"] - true) / counted["standard_error"])
            most = max(most, counted["standard_error"])
        return np.array(found)

    errors = told(Randomness, 300)
    spread = 5.0 * math.sqrt(2.5 / len(errors))
    assert abs(errors.mean()) < 5.0 / math.sqrt(len(errors))
    assert abs((errors**2).mean() - 1.0) < spread
    predicted = plan.expected_errors([steps])
    assert predicted[0].total == pytest.approx(most)  # nothing is selected: the bound is attained
    if times is not None:
        # Three counts after the census of level 1, besides that census: nothing else is in the number.
        assert most**2 > 3 * plan.amounts.departure_noise.variance
    assert (told(Quiet, 300) ** 2).mean() < 1.0 - spread


def test_a_burst_between_two_censuses_shows_at_the_next_count() -> None:
    """600 of 1,000 leave at step 36, in the middle between censuses; counts have a standard deviation of 3.5."""
    crowd_now = [Stay(key, 1, 36 if key < 600 else None, {1: (key % 2, key // 2 % 2)}) for key in range(1000)]
    found = {}
    for every in (None, 1):
        recipe = Census(Workload.all_k_way(TINY, 2), turnover=60, iterations=2)
        plan = scheduled(recipe.calibrate(epsilon=4), departures=every)
        assert plan.schedule.censuses(33, 38) == [(35, 0), (38, 0)]
        for step, release in enumerate(releases(plan, batches(crowd_now, 38, TINY), "burst"), start=1):
            found[every, step] = release
            assert ("counted" in release.accuracy()) == (plan.schedule.censuses(1, step)[-1][0] == step)
    assert found[None, 35].total - found[None, 36].total < 60.0
    assert found[1, 35].total - found[1, 36].total == pytest.approx(600.0, abs=60.0)
    assert [(one.counted, one.as_of, one.draw) for one in found[1, 36].noisy_counts] == [
        ("left", 36, "step 36, left of level 0")
    ]
    assert not found[None, 36].noisy_counts


def test_counts_cost_nothing_more_and_plans_without_them_are_as_they_were() -> None:
    old = Census(Workload.all_k_way(TINY, 2), turnover=20)
    plain = old.calibrate(epsilon=1)
    more = scheduled(plain, departures=3)
    assert more.options() == {**plain.options(), "departures_every": 3}
    assert spent_per_step(plain) == spent_per_step(more) == 1
    assert [part.budget for part in plain.parts()] == [part.budget for part in more.parts()]
    assert plain.parts()[-1].detail.startswith("at a census, for each level: who left since")
    assert "every 3 steps between censuses" in more.parts()[-1].detail
    assert "every 3 steps" in said(paragraphs(more, "declared"))[-1]
    assert more.facts()["census"]["departures_every"] == 3
    lasts = {step: [more.schedule.censuses(1, step)[-1][0]] for step in (45, 60)}
    facts = {step: accuracy_facts(more, step, last, 1.0, None) for step, last in lasts.items()}
    at_45, at_60 = (words(more, "accuracy", step=step, **told) for step, told in facts.items())
    assert at_45.count("departures were counted at this step") == 1
    assert "last counted at step 59, with noise" in at_60
    # Where many leave, departures are counted between censuses; but not where presence is public.
    for unit, counted in ((Record(), True), (Record("replace"), False)):
        many = replace(old, records_per_step=5000).calibrate(epsilon=1, unit=unit)
        assert (many.options()["departures_every"] is not None) == counted


def test_between_counts_the_error_that_is_predicted_stays() -> None:
    plain = Census(Workload.all_k_way(TINY, 2), turnover=20).calibrate(epsilon=1)
    plan = scheduled(plain, departures=2)
    steps = list(range(1, 200))
    own, other = ([one.total for one in p.expected_errors(steps) or ()] for p in (plan, plain))
    assert own[:19] == other[:19]  # a census at every step
    assert all(a >= b for a, b in zip(own, other, strict=True))
    assert own[-1] > other[-1]


@given(st.sampled_from(["1/4", "1/2", "1", "2", "5"]), st.integers(1, 10**6), st.integers(1, 400))
def test_counts_expected_between_censuses_are_worth_their_noise(
    epsilon: str, leaving: int, turnover: int
) -> None:
    wait = expected_wait(PureDP.of(epsilon), Fraction(1, 10), leaving, Fraction(turnover))
    gap = math.ceil(turnover / 2)
    noise = math.sqrt(2) * 10 / float(Fraction(epsilon)) * math.sqrt(2)
    if wait is None:
        return
    assert 1 <= wait < gap
    counts = math.ceil(gap / wait)
    assert leaving * wait >= 9.9 * noise
    assert math.sqrt(counts) * noise <= 1.01 * turnover * leaving / 200
    more = expected_wait(PureDP.of(2 * Fraction(epsilon)), Fraction(1, 10), leaving, Fraction(turnover))
    assert more is not None
    assert more <= wait


def test_where_nobody_is_expected_to_leave_nothing_is_counted_between_censuses() -> None:
    assert expected_wait(PureDP.of(1), Fraction(1, 10), 0, Fraction(50)) is None


class Watched(Randomness):
    """Writes down the integers that are read."""

    read: ClassVar[list[int]] = []

    def measure(self, exact: np.ndarray, law: Any, drawn: Any = None) -> np.ndarray:
        self.read.extend(exact.tolist())
        return super().measure(exact, law, drawn)


def test_a_count_that_was_interrupted_reads_the_same_integers_again_and_no_later_one_does() -> None:
    recipe = Census(Workload.all_k_way(TINY, 2), turnover=60, iterations=2)
    plan = scheduled(recipe.calibrate(epsilon=1), departures=1)
    assert plan.schedule.censuses(33, 38) == [(35, 0), (38, 0)]
    randomness, found = Watched.seeded("stopped"), []
    state = plan.start()
    for step, batch in enumerate(batches(crowd(7, 37, domain=TINY), 37, TINY), start=1):
        before = plan.pack_state(state)
        for _ in range(2 if step in (36, 37) else 1):  # the first attempt is lost before it is stored
            state = plan.unpack_state(before)
            randomness.read.clear()
            release = plan.step(state, batch, randomness)
            found.append((step, list(randomness.read)))
        assert step < 36 or not any(state.left)
        if step >= 36:  # no census: nothing else is measured
            left = [one for one in release.noisy_counts if one.counted == "left"]
            assert len(left) == len(randomness.read) > 0
    own = {step: [read for s, read in found if s == step] for step in (36, 37)}
    assert own[36][0] == own[36][1]
    assert own[37][0] == own[37][1]
    gone = [stay for stay in crowd(7, 37, domain=TINY) if stay.leaves == 37 and stay.comes <= 35]
    assert sum(own[37][0]) == len(gone)


# Jumps


#: Noise of a census is about 36 records at epsilon = 1, with 3,000 there.
DOMAIN = Domain(tuple("abcdef"), (4, 5, 5, 6, 8, 3))

#: Who leaves at step 5, and when as many come: keys that are not divisible by the first number leave (1: all).
JUMPS = {"burst": (None, 5), "reload": (1, 5), "half export": (2, 7), "confirmed export": (15, 6)}


def jumping(name: str | None, steps: int) -> list[PresentBatch]:
    """3,000 records in balance; at a jump some of them leave, and as many come (at a burst 3,000 more)."""
    stays: list[Stay] = []

    def add(comes: int, leaves: int | None) -> None:
        values = {comes: tuple((len(stays) + len(stays) // size) % size for size in DOMAIN.sizes)}
        stays.append(Stay(len(stays), comes, leaves, values))

    for number in range(3000):
        divisor, back = JUMPS.get(name or "", (None, None))
        gone = divisor is not None and (divisor == 1 or number % divisor > 0)
        add(1, 5 if gone else None)
        if back is not None and (gone or divisor is None):
            add(back, None)
    return list(batches(stays, steps, DOMAIN))


def planned(workload: Workload | None = None) -> CensusPlan:
    own = Workload.all_k_way(DOMAIN, 1) if workload is None else workload
    return Census(own, turnover=10, iterations=1).calibrate(epsilon=1)


def released(plan: CensusPlan, ends: list[PresentBatch], seed: str) -> list[tuple[float, Mapping[str, Any]]]:
    return [(release.total, release.accuracy()) for release in releases(plan, ends, seed)]


@pytest.mark.parametrize("name", JUMPS)
def test_sudden_arrivals_are_believed_at_the_next_census(name: str) -> None:
    """Seeded noise. Before, there were 760 to 3,740 rows in place of 3,000 and 6,000: 30 standard errors and more."""
    ends = jumping(name, 9)
    for step, (batch, (total, told)) in enumerate(
        zip(ends, released(planned(), ends, "x1"), strict=True), start=1
    ):
        error = told["counted"]["standard_error"]
        assert abs(total - told["counted"]["records"]) < 3.1 * error, step
        if step >= JUMPS[name][1]:
            assert abs(total - len(batch.present.table)) < 3.0 * error, step
            assert abs(total - len(batch.present.table)) < 3.0 * told["total_model_standard_error"], step


def test_streams_without_jumps_are_released_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits as without the rule; a burst is the control."""
    small = Domain(("a", "b"), (2, 3))
    plan = planned(workload=Workload.all_k_way(small, 2))
    calm = list(batches(crowd(3, 40, size=400, stay=10.0, domain=small, each=40.0), 40, small))
    sudden = jumping("burst", 6)
    found = [released(plan, calm, "calm"), released(planned(), sudden, "burst")]
    monkeypatch.setattr(bookkeeping, "is_jump", lambda measured, predicted: False)
    monkeypatch.setattr(totals_filter, "_FARTHEST", math.inf)
    assert released(plan, calm, "calm") == found[0]
    assert released(planned(), sudden, "burst") != found[1]


def test_a_number_that_went_wrong_before_is_set_right_at_the_next_census() -> None:
    """A running stream whose state lost a third of its records to a jump that nobody followed."""
    plan, ends = planned(), jumping(None, 6)
    state, randomness = plan.start(), Randomness.seeded("x1")
    for batch in ends[:5]:
        plan.step(state, batch, randomness)
    state.levels[0].total.sizes *= 2 / 3
    state.cohorts = [cohort.after(2 / 3, 0.0) for cohort in state.cohorts]
    release = plan.step(plan.unpack_state(plan.pack_state(state)), ends[5], randomness)
    told = release.accuracy()
    assert release.total == pytest.approx(told["counted"]["records"], rel=0.01)
    assert told["total_model_standard_error"] == pytest.approx(told["counted"]["standard_error"], rel=0.01)
    assert abs(release.total - 3000.0) < 3.0 * told["counted"]["standard_error"]


@pytest.mark.parametrize(("guess", "stay"), [(20, 20.0), (20, 2.0), (60, 6.0)])
def test_the_stated_error_covers_the_distance_from_what_was_counted(guess: int, stay: float) -> None:
    """Cohorts are what a level's number says, also where a census says anew how long records stay."""
    plan = Census(Workload.all_k_way(TINY, 1), turnover=guess, iterations=1).calibrate(epsilon=1, horizon=80)
    state, randomness, apart = plan.start(), Randomness.seeded("x"), []
    for batch in batches(crowd(1, 80, size=400, stay=stay, each=400 / stay, domain=TINY), 80, TINY):
        release = plan.step(state, batch, randomness)
        for level, book in enumerate(state.levels):
            assert sum(c.size for c in state.cohorts if c.level == level) == pytest.approx(book.total.size)
        facts = release.accuracy()
        if counted := facts.get("counted"):
            apart.append(release.total - counted["records"])
            least = math.hypot(counted["standard_error"], apart[-1])
            assert facts["total_model_standard_error"] >= least - 1e-6
    assert max(map(abs, apart)) > 10.0


def test_a_burst_leaves_the_rate_of_newcomers_until_the_next_census_says_more() -> None:
    """After a burst the rate is what it was if no more come, and the new one if as many go on coming."""
    for goes_on in (False, True):
        rate, bank = NewcomersRate(), LevelTotal.fresh(10.0)
        rate.guess((1000.0, 50.0), bank)
        for _ in range(20):
            rate.add((300.0, 50.0), bank, 1)
        usual, burst = rate.expected(bank, 1)[0], (3000.0, 50.0)
        assert is_jump(burst, rate.expected(bank, 1))
        rate.add(burst, bank, 1, burst=True)
        assert rate.expected(bank, 1)[0] == usual
        assert not is_jump(burst, rate.expected(bank, 1))
        rate.add(burst if goes_on else (300.0, 50.0), bank, 1)
        assert rate.expected(bank, 1)[0] == pytest.approx(10.0 * usual if goes_on else usual, rel=0.02)
