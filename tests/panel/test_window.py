"""Panels: windows and cumulative counts of the people, exact where they must be, as wrong as they say."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import BudgetError, ConfigError, DataError, HorizonError, LimitError
from dpstream.core.privacy import DiscreteGaussian, Individual, Randomness
from dpstream.families.panel import AtLeast, Consecutive, Pattern
from dpstream.families.panel.cumulative import proxies
from dpstream.families.panel.extension import extend, split_whole
from dpstream.families.panel.panel_options import MAX_PEOPLE
from dpstream.families.panel.queries import digits
from dpstream.stream.templates import words
from dpstream_lab.audits.panel_audit import cumulative_plan, window_plan

REPLACE = Individual("replace")


def run(plan, panel, randomness):
    """All releases of a panel (people, periods)."""
    state = plan.start(len(panel))
    releases = [plan.advance(state, column, randomness) for column in panel.T]
    return [release for release in releases if release.new]


# Splitting and extending: every outcome, by brute force.


def test_the_rest_of_a_division_goes_to_every_set_of_symbols_alike():
    from scipy.stats import chi2

    wanted, available = np.array([[5, 1, 2, 4]]), np.array([14])  # two are left of a division by four
    seen = Counter()
    generator = np.random.default_rng(1)
    runs = 9_000
    for _ in range(runs):
        numbers, clipped = split_whole(wanted, available, generator)
        assert clipped == 0
        seen[tuple((numbers - wanted)[0].tolist())] += 1
    every = {tuple(1 if i in pair else 0 for i in range(4)) for pair in itertools.combinations(range(4), 2)}
    assert set(seen) == every
    statistic = sum((count - runs / 6) ** 2 / (runs / 6) for count in seen.values())
    assert statistic < chi2.isf(1e-8, 5)
    # Control: the first symbols always, as a plain division would have it.
    assert (runs - runs / 6) ** 2 / (runs / 6) > chi2.isf(1e-8, 5)


@given(st.data())
def test_splits_keep_sums_and_are_the_nearest(data):
    symbols = data.draw(st.integers(2, 5))
    wanted = np.array([data.draw(st.lists(st.integers(-30, 30), min_size=symbols, max_size=symbols))])
    total = data.draw(st.integers(0, 40))
    numbers, clipped = split_whole(
        wanted, np.array([total]), np.random.default_rng(data.draw(st.integers(0, 99)))
    )
    assert numbers.sum() == total
    assert numbers.min() >= 0
    # The nearest point with this sum: by bisection for what is taken from all (the projection onto a simplex).
    low, high = wanted.min() - total - 1.0, float(wanted.max() + total)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(wanted - middle, 0).sum() > total else (low, middle)
    assert np.abs(numbers - np.maximum(wanted - low, 0)).max() < 2.0
    even = wanted + (total - wanted.sum()) / symbols
    if even.min() >= 1:
        assert clipped == 0
        assert np.abs(numbers - even).max() < 1
    if even.min() <= -1:
        assert clipped == 1


def test_extending_takes_every_assignment_alike():
    from scipy.stats import chi2

    groups, numbers = np.array([0, 1, 0, 0, 0], np.int32), np.array([[1, 2, 1], [0, 0, 1]])
    generator, runs = np.random.default_rng(2), 9_000
    seen = Counter(tuple(extend(groups, numbers, generator).tolist()) for _ in range(runs))
    every = set(itertools.permutations([0, 1, 1, 2]))
    assert {(a, 2, b, c, d) for a, b, c, d in every} == set(seen)
    statistic = sum((count - runs / 12) ** 2 / (runs / 12) for count in seen.values())
    assert statistic < chi2.isf(1e-8, 11)


# Counts, errors and bounds.


class Fixed(Randomness):
    """Seeded words, and noise that a test gives."""

    def __init__(self, noise, seed=0):
        super().__init__(Randomness.seeded(seed)._source)
        self.given = list(noise)

    def draw(self, noise, size):
        return np.asarray(self.given.pop(0), np.int64)


@pytest.mark.parametrize(
    ("symbols", "window", "periods"), [(2, 1, 4), (2, 3, 8), (3, 2, 6), (4, 1, 3), (3, 3, 5)]
)
def test_the_covariance_of_the_noise_is_the_same_at_every_period(symbols, window, periods):
    """The error's map of the noise, by the recursion on whole matrices: M M' is the identity, and so is the formula."""
    patterns = symbols**window
    groups = patterns // symbols
    plan = window_plan(periods, window, symbols, rho="0.01")
    within = np.kron(np.eye(groups), np.eye(symbols) - np.full((symbols, symbols), 1 / symbols))
    # e_{zc} gains an even share of what group z lacks: the errors of all patterns c'z before.
    share = np.zeros((patterns, patterns))
    for code in range(patterns):
        for first in range(symbols):
            share[code, first * groups + code // symbols] = 1 / symbols
    covariance, rounded = np.eye(patterns), np.zeros((patterns, patterns))
    generator = np.random.default_rng(3)
    state = plan.start(0)
    for period in range(1, periods + 1):
        plan.advance(state, np.zeros(0, np.int64), Randomness.seeded(period))
        if period < window:
            continue
        if period > window:
            covariance = within + share @ covariance @ share.T
            rounded = within + share @ rounded @ share.T
        assert covariance == pytest.approx(np.eye(patterns))
        for weights in (generator.normal(size=patterns), np.eye(patterns)[0], np.ones(patterns)):
            exact = plan.noise.variance * weights @ covariance @ weights
            stated = plan.error_variance(weights, period)
            assert stated == pytest.approx(exact + plan.rounding * weights @ rounded @ weights)
        # All rounding in one pattern stays below its proxy, however long.
        assert rounded.diagonal().max() <= 1.0 + 1e-12


def errors_of(plan, panel, query, runs, scale=1):
    """Errors of the debiased count at the last period (runs,), with noise times ``scale``."""
    truth = query.of(panel[:, -query.width :]).sum()

    result = []
    for seed in range(runs):
        last = run(plan, panel, Scaled(f"{seed}", scale))[-1]
        assert last.clipped == 0
        result.append(last.answer(query).count - truth)
    return np.array(result)


@pytest.mark.parametrize(
    ("unit", "query"),
    [(REPLACE, Consecutive(2, width=3)), (Individual(), Pattern((1,))), (REPLACE, Pattern((1, None, 0)))],
)
def test_answers_are_unbiased_with_the_stated_error(unit, query):
    from scipy.stats import chi2

    generator = np.random.default_rng(4)
    panel = generator.integers(0, 2, (60, 7))
    plan = window_plan(7, 3, rho="0.05", unit=unit, failure="1e-6")
    runs = 300
    errors = errors_of(plan, panel, query, runs)
    variance = plan.error_variance(query.weights(2)[np.arange(8) % 2**query.width], 7)
    # Rounding adds less than its bound of 1/2 a pattern: sigma^2 is 50 or 100 here.
    statistic = (errors**2).sum() / variance
    assert chi2.ppf(1e-9, runs) * 0.98 < statistic < chi2.isf(1e-9, runs)
    assert abs(errors.mean()) < 6 * math.sqrt(variance / runs)
    quiet = errors_of(plan, panel, query, runs, Fraction(2, 3))
    assert (quiet**2).sum() / variance < chi2.ppf(1e-9, runs) * 0.98


def test_nothing_is_clipped_and_no_count_passes_the_bound():
    """The bound holds for all periods and patterns at once; at 1/2 of the noise budgeted it must be near to failing."""
    panel = np.zeros((30, 6), np.int64)  # all but one pattern empty: clipping is nearest there
    plan = window_plan(6, 2, rho="0.05", failure="0.3")
    runs, failed, doubled = 200, 0, 0
    for seed in range(runs):
        releases = run(plan, panel, Randomness.seeded(seed))
        worst = 0.0
        for release in releases:
            truth = np.bincount(np.zeros(30, np.int64), minlength=4)
            worst = max(worst, float(np.abs(release.counts - plan.padding - truth).max()))
        failed += worst > plan.bound or releases[-1].clipped > 0
        doubled += 2 * worst > plan.bound
    # P(Binomial(200, 0.3) > 96) < 1e-7.
    assert failed <= 96
    assert doubled > 96  # control: twice the noise does not keep the bound


# What holds in every run.


@settings(max_examples=60)
@given(st.data())
def test_people_are_only_extended_and_their_histogram_is_the_counts(data):
    symbols = data.draw(st.integers(2, 5))
    window = data.draw(st.integers(1, 3))
    periods = data.draw(st.integers(window, window + 4))
    people = data.draw(st.integers(0, 12))
    unit = data.draw(st.sampled_from([Individual(), REPLACE]))
    # A large failure probability clips often.
    failure = data.draw(st.sampled_from(["0.05", "0.99"]))
    plan = window_plan(periods, window, symbols, rho="0.3", unit=unit, failure=failure)
    panel = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, symbols, (people, periods))
    before = np.zeros((0, 0), np.uint8)
    for release in run(plan, panel, Randomness.seeded(data.draw(st.integers(0, 99)))):
        table = release.history
        assert table.shape == (release.counts.sum(), release.period)
        if before.size:
            assert np.array_equal(table[:, :-1], before)
        before = table
        codes = table[:, -window:] @ symbols ** np.arange(window - 1, -1, -1)
        assert np.array_equal(np.bincount(codes, minlength=symbols**window), release.counts)
        assert release.people == (people if unit is REPLACE else None)
        assert ("lipped" in words(plan, "accuracy", **release.accuracy())) == (release.clipped > 0)


def test_clipping_keeps_the_past_and_is_counted():
    plan = window_plan(3, 2, rho="1", failure="0.5")
    low = -plan.padding - 5
    randomness = Fixed([[0, low, 0, low], [0, 0, 2, low]])
    state = plan.start(4)
    first = [plan.advance(state, np.zeros(4, np.int64), randomness) for _ in range(2)][1]
    assert first.clipped == 2
    assert first.counts[[1, 3]].tolist() == [0, 0]
    second = plan.advance(state, np.zeros(4, np.int64), randomness)
    assert second.clipped == 3  # nobody is there to be split between 10 and 11
    assert second.counts[[2, 3]].tolist() == [0, 0]
    assert second.counts.min() >= 0
    assert second.counts.sum() == first.counts.sum()
    assert "lipped" in words(plan, "accuracy", **second.accuracy())


def test_wider_questions_are_answered_with_a_note_and_without_errors():
    panel = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]])
    plan = window_plan(4, 2, rho="1000", unit=REPLACE)
    release = run(plan, panel, Randomness.seeded(1))[-1]
    wide = release.answer(Consecutive(3, width=4))
    table = release.history
    expected = (table[:, :3].all(axis=1) | table[:, 1:].all(axis=1)).sum()
    assert wide.count == expected
    assert wide.share == wide.raw_share == expected / len(table)
    assert wide.share_error is wide.count_error is wide.bound is None
    assert "looks back on more periods" in wide.words
    # The same in words.
    assert release.own_answer("at least 3 in a row of the last 4", lambda condition: (1,)) == wide
    assert release.own_answer(Pattern((1,)), lambda condition: (1,)).count_error is not None
    with pytest.raises(ConfigError, match="5 periods"):
        release.answer(AtLeast(1, width=5))
    with pytest.raises(ConfigError, match="unknown symbol 2"):
        release.answer(Pattern((2, 0, 0)))


@pytest.mark.parametrize("symbols", [2, 3, 255])
def test_questions_by_enumeration(symbols):
    width = 2 if symbols == 255 else 4
    patterns = list(itertools.product(range(symbols), repeat=width))
    assert digits(width, symbols).tolist() == [list(one) for one in patterns]
    hit = {1, symbols - 1}
    values = tuple(sorted(hit))

    def longest(pattern):
        return max(
            (len(list(run)) for same, run in itertools.groupby(p in hit for p in pattern) if same), default=0
        )

    expected = {
        AtLeast(2, width, values): [sum(p in hit for p in one) >= 2 for one in patterns],
        Consecutive(2, width, values): [longest(one) >= 2 for one in patterns],
        Pattern((None, 1) + (None,) * (width - 2)): [one[1] == 1 for one in patterns],
    }
    for query, weights in expected.items():
        assert query.weights(symbols).tolist() == [float(one) for one in weights], query


# Refusals.


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (ConfigError, lambda: window_plan(3, 4)),
        (HorizonError, lambda: window_plan(0, 1)),
        (ConfigError, lambda: window_plan(10_001, 1)),
        (ConfigError, lambda: window_plan(3, 1.0)),
        (ConfigError, lambda: window_plan(3, 1, 1)),
        (ConfigError, lambda: window_plan(3, 1, failure=1)),
        (BudgetError, lambda: window_plan(3, 1, failure=0)),
        (LimitError, lambda: window_plan(np.int64(64), np.int64(64))),  # 2^64 is 0 in NumPy's integers
        (BudgetError, lambda: window_plan(3, 1, rho=0)),
        (LimitError, lambda: window_plan(3, 1, rho="1e-20")),
        (ConfigError, lambda: cumulative_plan(4097)),
        (ConfigError, lambda: cumulative_plan(3, thresholds=4)),
        (ConfigError, lambda: cumulative_plan(3, counter="sparse")),
        (ConfigError, lambda: cumulative_plan(3, counter="none")),
        (ConfigError, lambda: cumulative_plan(3, split="even")),
        (LimitError, lambda: cumulative_plan(3, rho="1e-16")),
        (LimitError, lambda: cumulative_plan(3, rho="1e-16", unit=REPLACE)),
        (ConfigError, lambda: AtLeast(0, 1)),
        (ConfigError, lambda: AtLeast(1, 1, ())),
        (ConfigError, lambda: AtLeast(1, 1, 1)),
        (ConfigError, lambda: AtLeast(1.5, 2)),
        (ConfigError, lambda: Consecutive(3, 2)),
        (ConfigError, lambda: Pattern(())),
        (ConfigError, lambda: AtLeast(1, 1, (2,)).weights(2)),
    ],
)
def test_options_that_cannot_be_used(error, make):
    with pytest.raises(error) as caught:
        make()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("people", [-1, MAX_PEOPLE + 1, 1.5, True])
def test_a_wrong_number_of_people_is_not_repeated(people):
    """It may be private."""
    with pytest.raises(ConfigError) as caught:
        window_plan(3, 1).start(people)
    assert str(people) not in str(caught.value).split("(allowed")[0]


class Untouched(Randomness):
    """Fails the test where anything is drawn."""

    def __init__(self):
        def never(n):
            raise AssertionError("randomness was drawn before the refusal")

        super().__init__(never)


@pytest.mark.parametrize(
    "reports",
    [
        np.array([0, 1, 5]),
        np.array([0, 1]),
        np.array([0.0, 1.0, 0.0]),
        np.array([True, False, True]),
        np.array([[0, 1, 0]]),
        np.array([0, 1, 2**63], np.uint64),
        np.ma.MaskedArray([0, 1, 0], mask=[0, 1, 0]),
    ],
)
def test_reports_that_are_refused_change_nothing(reports):
    plan = window_plan(4, 2, rho=1, unit=REPLACE)
    state = plan.start(3)
    plan.advance(state, np.array([1, 0, 1]), Randomness.seeded(1))
    before = state.private.copy()
    with pytest.raises(DataError) as caught:
        plan.advance(state, reports, Untouched())
    assert not any(number in str(caught.value) for number in ("5", "-1", "3", "4", "9223"))
    assert state.period == 1
    assert np.array_equal(state.private, before)
    plan.advance(state, np.array([0, 0, 1]), Randomness.seeded(1))
    assert state.private.tolist() == [2, 0, 3]


@pytest.mark.parametrize("made", [lambda: window_plan(1, 1, rho=1), lambda: cumulative_plan(1, rho=1)])
def test_a_panel_ends_at_its_horizon(made):
    """Before anything is drawn: the budget is of so many periods."""
    plan = made()
    state = plan.start(2)
    plan.advance(state, np.array([1, 0]), Randomness.seeded(1))
    with pytest.raises(HorizonError, match="period 2"):
        plan.advance(state, np.array([1, 0]), Untouched())


def test_a_small_public_number_is_drowned_but_means_what_it_says():
    """n below the padding: the debiased answer says how noisy it is."""
    plan = window_plan(2, 2, rho="0.01", unit=REPLACE)
    assert plan.padding > 3
    last = run(plan, np.ones((3, 2), np.int64), Randomness.seeded(5))[-1]
    answer = last.answer(Pattern((1, 1)))
    assert answer.share_error == pytest.approx(math.sqrt(plan.noise.variance) / 3)
    empty = run(plan, np.ones((0, 2), np.int64), Randomness.seeded(5))[-1]
    assert math.isnan(empty.answer(Pattern((1,))).share)


# The cumulative synthesizer: exact counts without noise, stated errors, bounds, and what holds in every run


class Scaled(Randomness):
    """Seeded; noise times a factor."""

    def __init__(self, seed, scale=1):
        super().__init__(Randomness.seeded(seed)._source)
        self.scale = Fraction(scale) ** 2

    def draw(self, noise, size):
        if not self.scale:
            return np.zeros(size, np.int64)
        return super().draw(DiscreteGaussian(noise.sigma_squared * self.scale), size)


def truth(panel, ones=(1,)):
    """People with at least b ones after t, shape (t, b) from 0."""
    so_far = np.cumsum(np.isin(panel, ones), axis=1)
    return np.array([[(column >= b).sum() for b in range(panel.shape[1] + 1)] for column in so_far.T])


@pytest.mark.parametrize("largest", [1, 3, 6])
@pytest.mark.parametrize("unit", [Individual(), REPLACE], ids=lambda u: u.relation)
def test_without_noise_the_people_are_as_the_panel(unit, largest):
    panel = np.random.default_rng(1).integers(0, 4, (40, 6))
    options = {"thresholds": largest, "counter": "tree", "counted": ("0", "3")}
    plan = cumulative_plan(6, 4, rho="0.1", unit=unit, **options)
    for release, counts in zip(run(plan, panel, Scaled(1, 0)), truth(panel, (0, 3)), strict=True):
        expected = [40 + plan.padding, *counts[1 : largest + 1]]
        assert release.counts.tolist() == release.estimates.tolist() == expected
        answer = release.answer(largest)
        assert answer.share == answer.count / 40
    ones = release.history.sum(axis=1)
    assert [(ones >= b).sum() for b in range(1, largest + 1)] == expected[1:]


@settings(max_examples=60)
@given(st.data())
def test_what_holds_in_every_run(data):
    periods = data.draw(st.integers(1, 7))
    largest = data.draw(st.integers(1, periods))
    people = data.draw(st.integers(0, 10))
    unit = data.draw(st.sampled_from([Individual(), REPLACE]))
    split = data.draw(st.sampled_from(["error", "levels"]))
    counter = data.draw(st.sampled_from(["best", "tree", "hybrid", "toeplitz"]))
    options = {"thresholds": largest, "counter": counter, "split": split}
    plan = cumulative_plan(periods, rho=data.draw(st.sampled_from(["0.02", "3"])), unit=unit, **options)
    panel = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 2, (people, periods))
    before, table_before = None, None
    for release in run(plan, panel, Randomness.seeded(data.draw(st.integers(0, 99)))):
        table = release.history
        if before is not None:
            assert np.array_equal(table[:, :-1], table_before)
            assert (release.counts >= before).all()  # never falls
            assert (release.counts[1:] <= before[:-1]).all()  # S_b <= S_{b-1} of the period before
        else:
            assert (release.counts[2:] == 0).all()
        assert (np.diff(release.counts) <= 0).all()
        ones = table.sum(axis=1)
        assert [(ones >= b).sum() for b in range(largest + 1)] == release.counts.tolist()
        assert ones.max(initial=0) <= largest
        if unit is REPLACE:
            assert release.people == len(table) == people
        before, table_before = release.counts, table
        # What is published of it: the estimates, with the law of their noise.
        measured = {one.query.get("times", 0): one for one in release.noisy_counts}
        private = unit is not REPLACE and release.period == 1
        assert sorted(measured) == [0] * private + list(range(1, min(release.period, largest) + 1))
        assert len(release.noisy_counts) == len(measured)
        for times, one in measured.items():
            if times:  # a decoded number is rounded
                stated = pytest.approx(plan.variance(times, release.period), rel=1e-3, abs=1 / 12 + 1e-3)
                assert (one.values.tolist(), one.variance) == ([release.estimates[times]], stated)
            else:
                assert one.noise == plan.total_noise
                assert max(0, one.values[0] + plan.padding) == release.estimates[0]
    assert release.answer(1).count == before[1]
    assert (one.first, one.last, one.series) == (1, periods, f"at least {largest}")
    assert one.query == {"kind": "at least", "columns": ["report"], "codes": [1], "times": largest}


@pytest.mark.parametrize(("counter", "unit"), [("tree", REPLACE), ("toeplitz", Individual())])
def test_estimates_are_unbiased_with_the_stated_error(counter, unit):
    from scipy.stats import chi2

    panel = np.random.default_rng(3).integers(0, 2, (50, 6))
    plan = cumulative_plan(6, rho="0.02", unit=unit, thresholds=3, counter=counter, split="levels")
    runs = 250
    for scale, control in ((1, False), (Fraction(2, 3), True)):
        errors = np.array(
            [
                [
                    r.estimates[b] - counts[b]
                    for r, counts in zip(made, truth(panel), strict=True)
                    for b in (1, 2, 3)
                ]
                for made in (run(plan, panel, Scaled(seed, scale)) for seed in range(runs))
            ]
        )
        stated = np.array([plan.variance(b, t) for t in range(1, 7) for b in (1, 2, 3)])
        assert (errors[:, stated == 0] == 0).all()  # nobody can have b ones before period b
        errors, stated = errors[:, stated > 0], stated[stated > 0]
        ratio = (errors**2).sum(axis=0) / stated
        if control:
            assert (ratio < chi2.ppf(1e-9, runs)).all()
        else:
            assert (ratio > chi2.ppf(1e-9, runs)).all()
            assert (ratio < chi2.isf(1e-9, runs)).all()
            assert (np.abs(errors.mean(axis=0)) < 6.5 * np.sqrt(stated / runs)).all()


@pytest.mark.parametrize(("unit", "rho"), [(Individual(), "1.5"), (REPLACE, "0.01")])
def test_counts_stay_within_their_bounds(unit, rho):
    panel = (np.random.default_rng(4).random((200, 5)) < 0.4).astype(np.int64)
    plan = cumulative_plan(5, rho=rho, unit=unit, failure="0.2")
    runs, failed, control = 200, 0, 0
    exact = truth(panel)

    def worst(randomness):
        return max(
            abs(release.counts[b] - counts[b]) / plan.bound(b, release.period)
            for release, counts in zip(run(plan, panel, randomness), exact, strict=True)
            for b in range(1, 6)
        )

    for seed in range(runs):
        failed += worst(Scaled(seed)) > 1
        control += worst(Scaled(seed, 4)) > 1
    assert failed <= 72  # P(Binomial(200, 0.2) > 72) < 1e-7
    assert control > 72
    # One number a period, no smaller than any threshold's.
    assert plan.bounds == tuple(max(plan.bound(b, t) for b in range(1, 6)) for t in range(1, 6))
    assert all(plan.bound(b, t) <= plan.bound(b, t + 1) for b in range(1, 6) for t in range(1, 5))


def test_bounds_of_very_little_noise_have_the_tails_of_sigma():
    """A narrow discrete Gaussian's variance is far below sigma^2, its tails are not."""
    plan = cumulative_plan(1, rho=8, unit=REPLACE)
    counter = plan.counters[0]
    sigma_squared = counter.materialize(1).scales[0].sigma_squared
    assert counter.variance(1) < float(sigma_squared) / 2
    assert proxies(counter, plan.shares[0], 1) == pytest.approx([float(sigma_squared)])
    wide = cumulative_plan(4, rho="0.1", unit=REPLACE)
    for share, counter in zip(wide.shares, wide.counters, strict=True):
        ticks = wide.horizon - wide.counters.index(counter)
        linear = counter.materialize(ticks)
        squares = np.array([float(noise.sigma_squared) for noise in linear.scales])
        assert proxies(counter, share, ticks) == pytest.approx(linear.decoder.astype(float) ** 2 @ squares)


def test_a_private_number_of_people_is_padded():
    from scipy.stats import chi2

    plan = cumulative_plan(2, rho="0.5", failure="0.02")
    assert plan.total.rho == Fraction(1, 40)
    assert plan.padding == math.ceil(math.sqrt(2 * 20 * math.log(100)))
    numbers = np.array(
        [
            len(run(plan, np.zeros((7, 1), np.int64), Randomness.seeded(seed))[0].history)
            for seed in range(600)
        ]
    )
    assert chi2.ppf(1e-8, 600) < ((numbers - 7 - plan.padding) ** 2).sum() / 20 < chi2.isf(1e-8, 600)
    assert (numbers < 7).mean() < 0.02


@pytest.mark.parametrize("unit", [Individual(), REPLACE], ids=lambda u: u.relation)
def test_shares_are_as_wrong_as_they_say(unit):
    """Where the number of people is private, a share hears its noise too; the counter's error alone is refused."""
    from scipy.stats import chi2

    people, runs = 2_000, 400
    # No count comes near its neighbours, so the order is never enforced.
    panel = (np.random.default_rng(5).random((people, 3)) < 0.6).astype(np.int64)
    plan = cumulative_plan(3, rho="0.05", unit=unit)
    # In units of the stated error, and of the error that leaves the number of people out.
    scores, controls = [], []
    last = truth(panel)[-1][1:]
    for seed in range(runs):
        made = run(plan, panel, Scaled(seed))[-1]
        found = [made.own_answer(f"at least {b} so far", lambda words: ()) for b in (1, 2, 3)]
        wrong = [one.share - count / people for count, one in zip(last, found, strict=True)]
        scores.append([x / one.share_error for x, one in zip(wrong, found, strict=True)])
        controls.append([x * made.total / one.count_error for x, one in zip(wrong, found, strict=True)])
    low, high = chi2.ppf(1e-8, runs), chi2.isf(1e-8, runs)
    squares = (np.array(scores) ** 2).sum(axis=0)
    assert (low < squares).all()
    assert (squares < high).all()
    within = (np.abs(scores) < 2).mean(axis=0)
    assert (within > 0.89).all()  # P(Binomial(400, 0.954) < 356) < 1e-7
    if unit is REPLACE:
        assert np.allclose(scores, controls)
    else:
        assert (np.array(controls) ** 2).sum(axis=0)[0] > high
        assert (np.abs(controls) < 2).mean(axis=0)[0] < 0.89
