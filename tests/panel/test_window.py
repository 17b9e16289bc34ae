"""The fixed-window synthesizer against brute force, its stated errors, and what must never happen.

Statistical tests: seeds are fixed, so each fails always or never; the chance that a right program was given a failing
seed is below 1e-6 for the module.
"""

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
from dpstream.families.panel.panel_options import MAX_PEOPLE
from dpstream.families.panel.people import extend
from dpstream.families.panel.queries import digits
from dpstream.families.panel.window import split_whole
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

    class Scaled(Randomness):
        def draw(self, noise, size):
            return super().draw(DiscreteGaussian(noise.sigma_squared * Fraction(scale) ** 2), size)

    result = []
    for seed in range(runs):
        last = run(plan, panel, Scaled(Randomness.seeded(f"{seed}")._source))[-1]
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
        (ConfigError, lambda: window_plan(3, 1, 256)),
        (ConfigError, lambda: window_plan(3, 1, failure=1)),
        (BudgetError, lambda: window_plan(3, 1, failure=0)),
        (LimitError, lambda: window_plan(10_000, 10_000, 255)),
        (LimitError, lambda: window_plan(np.int64(64), np.int64(64))),  # 2^64 is 0 in NumPy's integers
        (BudgetError, lambda: window_plan(3, 1, rho=0)),
        (LimitError, lambda: window_plan(3, 1, rho="1e-20")),
        (ConfigError, lambda: cumulative_plan(4097)),
        (ConfigError, lambda: cumulative_plan(3, thresholds=4)),
        (ConfigError, lambda: cumulative_plan(3, thresholds=0)),
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
        np.array([0, 1, -1]),
        np.array([0, 1]),
        np.array([0, 1, 0, 1]),
        np.array([0.0, 1.0, 0.0]),
        np.array([True, False, True]),
        np.array([[0, 1, 0]]),
        np.array(["0", "1", "0"]),
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
    """n below the padding: the raw answer is nearly the padding's, the debiased one is unbiased and says how noisy."""
    plan = window_plan(2, 2, rho="0.01", unit=REPLACE)
    assert plan.padding > 3
    last = run(plan, np.ones((3, 2), np.int64), Randomness.seeded(5))[-1]
    answer = last.answer(Pattern((1, 1)))
    assert abs(answer.raw_share - 1 / 4) < 0.2
    assert answer.share_error == pytest.approx(math.sqrt(plan.noise.variance) / 3)
    assert answer.share_error > 1
    empty = run(plan, np.ones((0, 2), np.int64), Randomness.seeded(5))[-1]
    assert math.isnan(empty.answer(Pattern((1,))).share)
