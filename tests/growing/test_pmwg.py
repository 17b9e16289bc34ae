"""PMWG: against the text's listing, its sensitivity, and a budget that nobody can pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pmwg_cases import CELLS, DOMAIN, Arrived, Asker, Drawing, asker, plan, query, silent

from dpstream.core.errors import BudgetError, ConfigError, DpstreamError, LimitError, UnitError
from dpstream.core.privacy import AnyNoise, DiscreteLaplace, Event, PureDP, Randomness
from dpstream.core.schema import Domain
from dpstream.families.growing import PMWG, LinearQuery, PMWGPlan
from dpstream.families.growing.pmwg_facts import WEIGHT_BITS, hard_limit, matched
from dpstream.families.growing.pmwg_noise import XI_BITS, RootNoise, published_noise
from dpstream.families.growing.pmwg_plan import GRID, NumericSparse, SparseRun, SpentAmounts, grid_values

# The noise rule.


@given(
    st.fractions(min_value=Fraction(1, 1000), max_value=1000, max_denominator=10**6), st.integers(2, 10**9)
)
@settings(max_examples=100, deadline=None)
def test_xi_is_the_largest_whole_number_below_its_root(c: Fraction, t: int) -> None:
    units = RootNoise(c).units(t)
    # units <= 2^XI_BITS c t^(1/2) < units + 1, in integers.
    assert units**2 <= (2**XI_BITS * c) ** 2 * t < (units + 1) ** 2


def test_published_constants_are_the_texts() -> None:
    n, cells, alpha = 1000, 50, Fraction(1, 10)
    log = math.log(n * cells)
    half = published_noise(PureDP.of(1), alpha, n, cells)
    assert float(half.c) == pytest.approx(0.01 * n**0.5 / (162 * log), rel=1e-9)
    assert float(half.c) <= 0.01 * n**0.5 / (162 * log)
    # (eps, delta) with sqrt(2 rho) = eps / (2 log^(1/2)(1/delta)) is the text's approximate rule.
    epsilon, delta = 0.5, 1e-6
    domain = Domain(("cell",), (cells,))
    whole = PMWG(domain, alpha, n).calibrate(epsilon=epsilon, delta=delta)
    approximate = whole.noise
    wanted = 0.1 * n**0.5 * epsilon / (48 * log**0.5 * math.log(1 / delta) ** 0.5)
    assert float(approximate.c) == pytest.approx(wanted, rel=1e-9)
    assert float(approximate.c) <= wanted


@pytest.mark.parametrize("n", [30, 1000])
def test_the_limit_of_hard_questions_is_the_texts_sum(n: int) -> None:
    for t in (n, n + 1, n + 1000):
        tau = np.arange(n + 1, t + 1, dtype=float)
        b = float((math.log(50) / tau + np.log(tau - 1) / tau + np.log(tau / (tau - 1))).sum())
        assert abs(hard_limit(0.1, n, 50, t) - 3600 * (math.log(50) + b)) <= 1.001


# Numeric sparse.


@given(st.integers(2, 10**6), st.integers(0, 10**6), st.integers(0, 2**20), st.integers(0, 2**20), st.data())
@settings(max_examples=200, deadline=None)
def test_replacing_a_record_moves_what_is_tested_by_no_more_than_is_charged(
    t: int, later: int, old: int, new: int, data: st.DataObject
) -> None:
    """One record's weight goes from ``old`` to ``new``, early or late: the tested integer moves by at most D."""
    c = data.draw(st.fractions(min_value=Fraction(1, 10**6), max_value=100, max_denominator=10**6))
    sparse = NumericSparse(PureDP.of(1000), RootNoise(c), Fraction(1, 15))
    run = sparse.start(SpentAmounts(), t, silent).run
    assert run is not None
    now, charged = t + later, sparse._moved(sparse.noise.units(t), t)
    share = data.draw(st.integers(-(2**20) * now, 2**20 * (now - 1)))
    units = sparse._units(run, now)
    moved = abs(
        sparse._scaled(units, now, share + new - old, WEIGHT_BITS)
        - sparse._scaled(units, now, share, WEIGHT_BITS)
    )
    assert moved <= sparse._moved(units, now) <= charged
    # Within a unit of the text's xi_t/t.
    assert charged <= GRID * Fraction(sparse.noise.units(t), 2**XI_BITS * t) + 1


def test_against_the_listing_without_noise() -> None:
    """Algorithm 3 with all noise 0, in floating point, on queries with values between 0 and 1."""
    rng = np.random.default_rng(5)
    which = plan(start=50, alpha="0.2")
    state, y, last = which.start(), np.full(CELLS, 1 / CELLS), 50
    counts = rng.multinomial(50, rng.dirichlet(np.full(CELLS, 0.1)))
    which.arrive(state, Arrived(counts))
    hard = 0
    for _ in range(60):
        if rng.random() < 0.4:
            more = rng.multinomial(7, rng.dirichlet(np.full(CELLS, 0.1)))
            which.arrive(state, Arrived(more))
            counts = counts + more
        t = int(counts.sum())
        y, last = last / t * y + (t - last) / t / CELLS, t
        f = rng.random(CELLS) ** 0.2 * (rng.random(CELLS) < 0.4)
        f = np.rint(f * 2**WEIGHT_BITS) / 2**WEIGHT_BITS
        truth, public = float(f @ counts) / t, float(f @ y)
        answer = which.ask(state, LinearQuery((0, 1, 2), f), silent)
        if abs(truth - public) < 0.2 * 2 / 3:
            assert (answer.kind, answer.value) == ("easy", pytest.approx(public, abs=1e-6))
        else:
            assert (answer.kind, answer.value) == ("hard", pytest.approx(truth, abs=1e-5))
            y = y * np.exp(-0.2 / 6 * (f if truth < public else 1 - f))
            y, hard = y / y.sum(), hard + 1
        assert state.y == pytest.approx(y, rel=1e-5)
    assert state.hard == hard > 5


@pytest.mark.parametrize("amounts", [{}, {"rho": "0.05"}, {"delta": "1e-6"}], ids=["pure", "rho", "delta"])
@pytest.mark.parametrize("options", [{}, {"hard_questions": 7}], ids=["theory", "seven"])
def test_nobody_can_spend_more_than_the_budget(
    amounts: dict[str, str], options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Analysts who ask what was hard once more, ask after each arrival, or search for the threshold by bisection.
    No answer costs more than was told before."""
    dearest, real = [], PMWGPlan.ask

    def priced(plan: PMWGPlan, state: Any, *arguments: Any) -> Any:
        most, before = plan.most(state), state.books.spent
        answer = real(plan, state, *arguments)
        assert state.books.spent - before <= most
        dearest.append(0 < state.books.spent - before == most)
        return answer

    monkeypatch.setattr(PMWGPlan, "ask", priced)
    for seed, analyst in enumerate((_repeats, _after_each_arrival, _bisects)):
        which = plan(start=30, alpha="0.3", **amounts, **options)
        made = asker(which, [30] + [0] * (CELLS - 1), seed)
        analyst(made)
        assert made.standing.spent <= which.budget.amount
        assert made.standing.hard <= which.hard_limit(made.standing.t) + 1
        if options:
            assert made.standing.hard >= 7
    assert any(dearest), "the price is no larger than it has to be"


def _almost(i: int, value: float = 0.9) -> LinearQuery:
    """A share of the first cell that differs from the others by too little to matter: a new question."""
    return LinearQuery((0, 1, 2), (value + i * 2**-20) * (np.arange(CELLS) == 0))


def _repeats(made: Asker) -> None:
    for i in range(300):
        made.ask(_almost(i))


def _after_each_arrival(made: Asker) -> None:
    for _ in range(300):
        made.arrive([1] + [0] * (CELLS - 1))
        made.ask(query(0))


def _bisects(made: Asker) -> None:
    low, high = 0.0, 1.0
    for i in range(300):
        middle = (low + high) / 2
        answer = made.ask(_almost(i, 0.999 * middle))
        low, high = (low, middle) if answer.kind == "hard" else (middle, high)
        if high - low < 1e-6:
            low, high = 0.0, 1.0


def test_charges_are_exact() -> None:
    which = plan(start=1000, hard_questions=3)
    made = asker(which, [1000] + [0] * (CELLS - 1))
    first = made.ask(query(0))
    assert first.kind == "hard"
    moved = -(-GRID * which.noise.units(1000) // (2**XI_BITS * 1000))
    assert first.spent == Fraction(moved, GRID) * Fraction(9, 8)
    assert first.left == 1 - first.spent
    assert first.hard_left == 2


def test_after_exhaustion_nothing_is_drawn_and_the_data_does_not_matter() -> None:
    which = plan(start=1000, hard_questions=2)
    state = which.start()
    for arrived in (1000, 200):
        which.arrive(state, Arrived([arrived] + [0] * (CELLS - 1)))
        assert which.ask(state, query(0), silent).kind == "hard"

    def forbidden(noise: DiscreteLaplace) -> int:
        raise AssertionError

    class Unreadable:
        def __getattr__(self, name: str) -> object:
            raise AssertionError

    state.counts = Unreadable()  # type: ignore[assignment]
    answer = which.ask(state, query(1), forbidden)
    assert answer.kind == "unchecked"
    assert answer.half_width is None
    assert answer.promised is None
    assert answer.value == pytest.approx(float(state.y[1]), abs=2**-19)
    # Later records are cheaper to ask about, so questions begin again.
    state.counts, state.t = np.full(CELLS, 10**6, np.int64), 10**6 * CELLS
    assert which.ask(state, query(1), silent).kind in ("easy", "hard")


def test_threshold_noise_is_drawn_once_a_run_and_question_noise_at_each_test() -> None:
    sparse, drawn = plan(start=100, hard_questions=4).sparse, list[AnyNoise]()

    def draw(noise: AnyNoise) -> int:
        drawn.append(noise)
        return 0

    run = sparse.start(SpentAmounts(), 100, Drawing(draw)).run
    assert run is not None
    for share in (0, 1, 2):
        sparse.above(run, 100, share, WEIGHT_BITS, Drawing(draw))
    assert drawn == [sparse.threshold_noise, *[sparse.question_noise] * 3]


class Limited(PMWGPlan):
    """One hard question, and from a thousand records on another one."""

    def hard_limit(self, t: int) -> int:
        return 1 if t < 1000 else 2


def test_a_yes_beyond_the_limit_ends_its_run_and_gives_no_number() -> None:
    few = plan(start=100, alpha="0.3", hard_questions=4, epsilon=100)
    which = Limited(**{one.name: getattr(few, one.name) for one in fields(few)})
    state, drawn = which.start(), []

    def draw(noise: DiscreteLaplace) -> int:
        drawn.append(noise)
        return 0

    which.arrive(state, Arrived([100] + [0] * (CELLS - 1)))
    assert which.ask(state, query(0), Drawing(draw)).kind == "hard"
    before, y = which.standing(state), state.y.copy()
    drawn.clear()
    refused = which.ask(state, query(0), Drawing(draw))
    # The yes was paid when the run began; nothing else of it may follow, and nothing else is known.
    assert (refused.kind, refused.half_width, refused.hard_left) == ("refused", None, 0)
    assert refused.value == round(float(y[0]) * 2**WEIGHT_BITS) / 2**WEIGHT_BITS
    assert drawn == [which.sparse.threshold_noise, which.sparse.question_noise]
    assert refused.spent - before.spent == Fraction(
        which.sparse._moved(which.noise.units(100), 100), which.sparse.grid
    )
    assert state.books.run is None
    assert np.array_equal(state.y, y)
    drawn.clear()
    assert which.ask(state, query(0), Drawing(draw)).kind == "unchecked"
    assert which.standing(state).spent == refused.spent
    assert not drawn
    which.arrive(state, Arrived([900] + [0] * (CELLS - 1)))
    assert which.ask(state, query(0), Drawing(draw)).kind == "refused"
    assert drawn[0] == which.sparse.threshold_noise


def test_a_run_never_moves_by_more_than_was_charged_at_its_start() -> None:
    """Also where xi/t rises by rounding (with a grid that is finer than the one in use)."""
    sparse = NumericSparse(PureDP.of(1), RootNoise(Fraction(1, 2**38)), Fraction(1, 10), 2**50)
    rose = 0
    for start in range(2000, 2200):
        run, charged = SparseRun(start, 0), sparse._moved(sparse.noise.units(start), start)
        for t in range(start, start + 40):
            rose += sparse._moved(sparse.noise.units(t), t) > charged
            assert sparse._moved(sparse._units(run, t), t) <= charged
    assert rose > 0


# The histogram.


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 0.99))
@settings(max_examples=50, deadline=None)
def test_matching_gives_the_answer_and_moves_least(seed: int, answer: float) -> None:
    rng = np.random.default_rng(seed)
    y = rng.dirichlet(np.ones(6))
    f = np.rint(np.concatenate([[0, 1], rng.random(4)]) * 2**WEIGHT_BITS).astype(np.int64)
    before = y.copy()
    matched(y, f, answer, 1e-6)
    share = f / 2**WEIGHT_BITS
    assert y.sum() == pytest.approx(1)
    assert float(y @ share) == pytest.approx(answer, abs=1e-6)
    # y/before is an exponential of f: the condition of the smallest relative entropy.
    log = np.log(y / before)
    slope = (log[1] - log[0]) / (share[1] - share[0])
    assert log - log[0] == pytest.approx(slope * (share - share[0]), abs=1e-6 + 1e-9 * abs(slope))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_matching_never_loses_a_cell_for_good(seed: int) -> None:
    """However far the numbers are off, one after the other: the next can still be learned."""
    rng = np.random.default_rng(seed)
    y = np.full(6, 1 / 6)
    for _ in range(30):
        f = np.rint(rng.random(6).round(int(rng.integers(0, 7))) * 2**WEIGHT_BITS).astype(np.int64)
        matched(y, f, float(rng.normal(0.5, 5)), 10.0 ** -int(rng.integers(1, 12)))
        assert (y > 0).all()
        assert y.sum() == pytest.approx(1)


def test_records_that_are_taken_to_be_alike_leave_the_histogram_as_it_is() -> None:
    uniform, alike = (plan(start=100, hard_questions=5, learning=rule) for rule in ("text", "matching"))
    found = []
    for which in (uniform, alike):
        state = which.start()
        which.arrive(state, Arrived([200] + [0] * (CELLS - 1)))
        assert which.ask(state, query(0), silent).kind == "hard"
        learned = state.y.copy()
        which.arrive(state, Arrived([600] + [0] * (CELLS - 1)))
        which.ask(state, query(), silent)
        found.append((learned, state.y.copy()))
    assert found[0][1] == pytest.approx(0.25 * found[0][0] + 0.75 / CELLS)
    assert np.array_equal(*found[1])
    assert not alike.promise.holds


# What is refused.

BIG = Domain(tuple("abcd"), (100, 100, 100, 100))


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: plan(alpha="1"), ConfigError, "between 0 and 1"),
        (lambda: plan(alpha="1e-9"), BudgetError, "a larger alpha"),
        (lambda: plan(BIG), LimitError, "dpstabs"),
        (lambda: plan(start=1), ConfigError, "from 2"),
        (lambda: plan(start=20), BudgetError, "21 or more"),
        (lambda: LinearQuery((0,), np.array([1j, 0, 1])), ConfigError, "complex values"),
        (lambda: asker(plan(), [10] * CELLS).ask([0.5 + 0.1j] * CELLS), ConfigError, "complex values"),
        (lambda: plan(epsilon=2, delta="1e-6"), BudgetError, "epsilon up to 1"),
        (lambda: plan(epsilon=1, delta="0.5"), BudgetError, "1/e"),
        (lambda: plan(hard_questions=10**12), BudgetError, "fewer"),
        (lambda: plan(alpha="0.9", hard_questions=200, epsilon=100), ConfigError, "up to 128"),
        (lambda: PMWG(DOMAIN, "0.1", 100).calibrate(epsilon=1, unit=Event()), UnitError, "event-replace"),
    ],
)
def test_what_cannot_work_is_refused_with_what_would(
    make: Callable[[], object], kind: type[DpstreamError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        make()


def test_theory_promises_where_it_can() -> None:
    domain = Domain(("a",), (100,))
    large = PMWG(domain, "0.15", 10**8, learning="text").calibrate(epsilon=1, delta="1e-9")
    assert large.promise.holds
    assert "every answer is within 0.15" in large.promise.words
    small = plan(start=10**4)
    assert not small.promise.holds
    assert "above 1" in small.promise.words
    # The text's alpha: (8262 log(Nn) log(192 n/beta) / (n eps))^(1/3).
    text = PMWG(domain, "0.1", 10**6, learning="text").calibrate(epsilon=1).promise.alpha
    wanted = (8262 * math.log(10**8) * math.log(192 * 10**6 / 0.001) / 10**6) ** (1 / 3)
    assert text == pytest.approx(wanted, rel=1e-6)
    assert "no error bound is known" in plan(start=10**4, hard_questions=20).promise.words


@pytest.mark.parametrize("value", [0.0, 0.25, 1.0])
def test_a_question_with_one_value_in_all_cells_is_exact_and_free(value: float) -> None:
    """Nothing is drawn. Before it was a hard question: 808 +- 1066 records."""
    which = plan(start=100, hard_questions=3)
    state = which.start()
    which.arrive(state, Arrived([10] * CELLS))
    before = which.pack_books(state)

    def drawn(noise: DiscreteLaplace) -> int:
        raise AssertionError("nothing has to be drawn")

    answer = which.ask(state, LinearQuery((1,), np.full(2, value)), Drawing(drawn))
    assert (answer.value, answer.kind, answer.half_width, answer.spent) == (value, "exact", 0.0, 0)
    assert which.pack_books(state) == before
    assert "±" not in answer.describe()


@pytest.mark.parametrize("half_width", ["easy", "hard"])
def test_half_widths_hold(half_width: str) -> None:
    """With 95 % or more; 2,000 askers, false alarm below 1e-6 (5.3 standard deviations of 2,000 coins at 5 %)."""
    which, misses, seen = plan(start=1000, hard_questions=40), 0, 0
    # Just below the threshold, so that the test decides; or far above it.
    counts = [0] * CELLS
    counts[0] = 1000
    if half_width == "easy":
        counts = [round(1000 / CELLS)] * CELLS
        counts[0] += 100
    wanted, truth = query(0), counts[0] / sum(counts)
    draws = Randomness.seeded(3)
    for _ in range(2000):
        state = which.start()
        which.arrive(state, Arrived(counts))
        answer = which.ask(state, wanted, draws)
        assert answer.half_width is not None
        seen += answer.kind == half_width
        misses += answer.kind == half_width and abs(answer.value - truth) > answer.half_width
    assert seen > 500
    assert misses <= 100 + 5.3 * math.sqrt(2000 * 0.05 * 0.95)


# Questions.


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_questions_are_the_same_where_their_values_are(data: st.DataObject) -> None:
    """Against all cells, written out: whatever columns a question names and however it is put."""
    which = plan()

    def drawn() -> LinearQuery:
        clique = tuple(sorted(data.draw(st.sets(st.integers(0, 2)))))
        # Few values over few cells: equal ones are common, and many columns are named without need.
        shape = [size if data.draw(st.booleans()) else 1 for size in DOMAIN.shape(clique)]
        values = data.draw(
            st.lists(st.sampled_from([0.0, 1.0]), min_size=math.prod(shape), max_size=math.prod(shape))
        )
        spread = np.broadcast_to(np.array(values).reshape(shape), DOMAIN.shape(clique))
        return LinearQuery(clique, spread.reshape(-1))

    one, other = drawn(), drawn()
    weights = [grid_values(each, DOMAIN) for each in (one, other)]
    (own, complement), (theirs, their_complement) = which.question_bytes(one), which.question_bytes(other)
    assert (own == theirs) == np.array_equal(*weights)
    assert (complement == theirs) == np.array_equal(2**WEIGHT_BITS - weights[0], weights[1])
    assert (own == their_complement) == (complement == theirs)


def test_an_implied_answer_keeps_the_reason() -> None:
    """That the data was not asked, or the value is not corrected, holds for the complement too."""
    first = asker(plan(start=100, hard_questions=4), [1000] + [0] * (CELLS - 1)).ask("city = 'Bern'")
    assert first.of_complement().reason == "one minus the answer to the complement"
    refused = replace(first, kind="refused", reason="no hard question is left")
    assert refused.of_complement().reason.endswith("the complement; no hard question is left")
