"""What is particular to pooled streams: borders, estimates, one run, and the budget of an event wherever it falls."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_batches import drawn_codes

from dpstream import ZCDP, Event, PureDP, User, Workload
from dpstream.core.errors import StoreDamagedError
from dpstream.core.graphical import Model
from dpstream.core.privacy import CubeNoise, DiscreteGaussian, DiscreteLaplace, HistogramsNoise, Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch
from dpstream.families.tabular import Pooled
from dpstream.families.tabular.pooled_book import Epochs
from dpstream.families.tabular.pooled_estimates import Epoch, Estimates
from dpstream.families.tabular.pooled_run import Design, Runner, Signs
from dpstream.mechanisms import Cells
from dpstream.mechanisms.engine import Selector
from dpstream.mechanisms.followed_cells import MeasuredCells
from dpstream.mechanisms.workload_cells import MAX_RECORDS
from dpstream.stream.templates import words

DOMAIN = Domain(("a", "b", "c"), (2, 3, 4))
PAIRS = Workload.all_k_way(DOMAIN, 2)


@given(
    st.fractions(Fraction(1, 100), Fraction(1, 2), max_denominator=100),
    st.one_of(st.none(), st.integers(1, 2000)),
)
def test_borders_keep_to_the_staleness_and_are_as_rare_as_that_allows(
    staleness: Fraction, horizon: int | None
) -> None:
    epochs, border = Epochs(staleness, horizon), 0
    while border < (horizon or 2000):
        following = epochs.after(border)
        assert following > border
        for step in range(border + 1, following):  # releases before the next border
            assert step - border <= staleness * step
        if following != horizon and following > border + 1:
            assert following - border > staleness * following  # waiting any longer would pass it
        border = following
    assert border == horizon or horizon is None


def pair_cells() -> Cells:
    """A pair and its columns."""
    return MeasuredCells(Workload.parse(Domain(("a", "b"), (6, 8)), [["a", "b"]])).cells


def marginals_of(shape: np.ndarray) -> np.ndarray:
    """Both columns and the pair, as one vector."""
    table = shape.reshape(6, 8)
    return np.concatenate((table.sum(axis=1), table.sum(axis=0), shape))


def estimated(drift, generator, *, pair_from=0, deviation=20.0, records=3000, epochs=12):
    """Running sums estimated from noisy epochs, and the truth; the pair is measured in some epochs only."""
    cells = pair_cells()
    estimates, truth = Estimates.fresh(cells), np.zeros(cells.total)
    shape = generator.dirichlet(np.ones(48))
    answer = marginals_of(np.full(48, 1.0 / 48))
    for number in range(epochs):
        if drift:
            shape = generator.dirichlet(np.ones(48))
        one = marginals_of(generator.multinomial(records, shape).astype(np.float64))
        truth += one
        measured = np.array([True, True, number >= pair_from])
        noisy = one + generator.laplace(0.0, deviation / np.sqrt(2.0), cells.total)
        values = np.where(np.repeat(measured, cells.sizes), noisy, records * answer)
        variance = deviation**2 * np.where(measured, 1.0, 2.0)
        estimates.add(Epoch(values, variance, measured, float(records)), number + 1)
    return estimates, estimates.answer(answer), truth


def squared(found: np.ndarray, truth: np.ndarray) -> float:
    return float(((found - truth) ** 2)[14:].sum())


def test_a_pair_that_is_measured_late_tells_of_all_epochs_without_drift() -> None:
    generator = np.random.default_rng(3)
    for _ in range(10):
        estimates, (values, *_), truth = estimated(False, generator, pair_from=6)
        assert squared(values, truth) < 0.2 * squared(estimates.sums, truth)


def test_the_estimate_of_a_pair_is_the_sum_where_it_drifts() -> None:
    generator = np.random.default_rng(4)
    for _ in range(10):
        estimates, (values, variances, *_), _ = estimated(True, generator)
        np.testing.assert_array_equal(values[14:], estimates.sums[14:])
        assert variances[2] == estimates.variance[2]


@pytest.mark.parametrize("drift", [False, True])
def test_the_variances_of_columns_are_those_of_their_errors(drift: bool) -> None:
    """Without drift far less than the sum's noise would be; with it no more than that."""
    generator, found = np.random.default_rng(5), []
    for _ in range(40):
        estimates, (values, variances, *_), truth = estimated(drift, generator, deviation=60.0, records=1000)
        apart = [float(((values - truth)[estimates.cells.part(i)] ** 2).mean()) for i in (0, 1)]
        found.append([np.mean(apart), variances[:2].mean(), estimates.variance[:2].mean()])
    error, claimed, sums = np.mean(found, axis=0)
    assert error < 1.05 * sums
    assert 0.5 < error / claimed < 2.0


def test_columns_are_steady_only_if_many_epochs_say_so() -> None:
    generator, found = np.random.default_rng(7), {}
    for drift, epochs in ((False, 30), (True, 30), (False, 1), (True, 3)):
        runs = [estimated(drift, generator, epochs=epochs)[1].steady for _ in range(20)]
        found[drift, epochs] = np.mean(runs)
    assert found.pop((False, 30)) > 0.9
    assert not any(found.values())
    late = estimated(False, generator, epochs=30)[0]  # a stream that changes when all has seemed steady
    moved = marginals_of(generator.multinomial(3000, generator.dirichlet(np.ones(48))).astype(np.float64))
    moved += generator.laplace(0.0, 14.0, len(moved))
    late.add(Epoch(moved, np.full(3, 400.0), np.array([True, True, False]), 3000.0), 31)
    assert not late.answer(marginals_of(np.full(48, 1.0 / 48))).steady


def test_what_was_never_measured_is_said_not_to_be_known() -> None:
    estimates, _, _ = estimated(False, np.random.default_rng(8), pair_from=12)
    np.testing.assert_array_equal(estimates.known, [True, True, False])
    assert not Estimates.fresh(pair_cells()).known.any()


def test_damaged_estimates_are_refused() -> None:
    """That sound ones come back to the last bit: ``test_plans.py``."""
    estimates = estimated(False, np.random.default_rng(6), pair_from=3)[0]
    estimates.check()
    for damaged in ({"sums": np.zeros(3)}, {"ends": [1, 2, 3]}, {"epochs": [0]}):
        with pytest.raises(StoreDamagedError):
            replace(estimates, **damaged).check()


class Tape(Randomness):
    """Counts what is drawn, and adds nothing."""

    def __init__(self) -> None:
        super().__init__(lambda n: bytes(n))
        self.noises = []

    def draw(self, law, size):
        self.noises.append(law)
        return np.zeros(size, dtype=np.int64)


def histograms_in(noise) -> int:
    return len(noise.sizes) if isinstance(noise, HistogramsNoise) else 1


def epsilon_of(noise, unit: Event) -> Fraction:
    """What a draw costs; the scale of joint noise on histograms has the relation in it."""
    return (1 if isinstance(noise, HistogramsNoise) else unit.changed_cells) / Fraction(noise.scale)


SIGNS = Domain(("a", "b", "c", "d", "e"), (2, 3, 2, 2, 4))
SIGN_PAIRS = Workload.all_k_way(SIGNS, 2)


def histograms(workload: Workload, rows: np.ndarray) -> np.ndarray:
    """Counts of all followed marginals."""
    cells = MeasuredCells(workload).cells
    return np.concatenate(
        EncodedBatch(workload.domain, rows.astype(np.int32)).count(cells.cliques, "inserts")
    )


@pytest.mark.parametrize("replaced", [False, True])
def test_a_record_moves_every_sum_of_signs_by_at_most_what_is_declared(replaced: bool) -> None:
    """And reaches it in each of them: there is no slack."""
    generator, followed = np.random.default_rng(12), MeasuredCells(SIGN_PAIRS)
    signs = Signs(followed.cells, followed.columns)
    assert len(signs.singles) == len(signs.pairs) == 3
    wanted, reached = [*signs.singles, *signs.pairs], np.zeros(6)
    for _ in range(100):
        rows = drawn_codes(SIGNS, 30, generator)
        other = np.concatenate((rows[1:], drawn_codes(SIGNS, 1, generator))) if replaced else rows[1:]
        flat = [histograms(SIGN_PAIRS, r) for r in (rows, other)]
        by_clique = [
            {c: own[followed.cells.part(i)] for i, c in enumerate(followed.cells.cliques)} for own in flat
        ]
        one, two = (np.array(signs.read(counts, wanted)) for counts in by_clique)
        reached = np.maximum(reached, np.abs(one - two))
    np.testing.assert_array_equal(
        reached, np.full(6, Event("replace" if replaced else "add-remove").changed_cells)
    )


@pytest.mark.parametrize("unit", [Event(), Event("replace")])
@pytest.mark.parametrize("budget", [PureDP.of("2"), ZCDP.of("1/3")])
@pytest.mark.parametrize(("pairs", "k"), [(0, 0), (2, 0), (3, 4), (1, 10)])
@pytest.mark.parametrize("max_cells", [24, 1000])
def test_a_run_with_signs_spends_its_budget_and_no_more(unit, budget, pairs, k, max_cells) -> None:
    """Exact; and without noise it measures the true histograms, pairs that do not fit into its model included."""
    tape, public = Tape(), unit.relation == "replace"
    runner = Runner(MeasuredCells(SIGN_PAIRS), budget, unit, Fraction(1, 7), 5, max_cells)
    counts = histograms(SIGN_PAIRS, drawn_codes(SIGNS, 200, np.random.default_rng(13)))
    design = Design(5, k, 200.0, pairs)
    known = Model.uniform(SIGNS, 1.0)
    outcome = runner.run(counts, known, design, tape)
    cells, measured = runner.followed.cells, outcome.epoch.measured
    exact = np.repeat(measured, cells.sizes)
    np.testing.assert_allclose(outcome.epoch.values[exact], counts[exact], atol=1e-9)
    assert measured[:5].all()
    assert 5 + pairs <= int(measured.sum()) <= 5 + pairs + k
    spent = Fraction(0)
    for noise in tape.noises:
        if isinstance(noise, DiscreteGaussian):
            continue
        spent += epsilon_of(noise, unit)
    rest = Fraction(6, 7) if k else Fraction(1)
    if isinstance(budget, PureDP):
        assert spent <= budget.epsilon * rest
        assert spent == budget.epsilon * rest or int(measured.sum()) < 5 + pairs + k
        cube = next(noise for noise in tape.noises if isinstance(noise, CubeNoise))
        assert cube.dimension == 3 + pairs + (not public)
    division = runner.division
    parts = [division.joint_budget(design)]
    parts += [division.group_budget(design, group) for group in division.column_groups(design)]
    parts += [division.chosen_budget(design, k)] if k else []
    assert sum((part.amount for part in parts), Fraction(0)) == budget.amount * rest
    # What a plan says of a column's noise; with the number of events from histograms, or chosen pairs, it is less.
    said, found = runner.cell_variance(design), float(outcome.epoch.variance[:5].mean())
    assert said == pytest.approx(found) if public and not k else found <= said < 2.5 * found


def test_the_claimed_variances_of_signs_are_those_of_their_errors() -> None:
    """400 runs with a seed: the mean of squares within a third (six of its standard deviations)."""
    runner = Runner(MeasuredCells(SIGN_PAIRS), PureDP.of("1"), Event(), Fraction(1, 7), 2, 1000)
    counts = histograms(SIGN_PAIRS, drawn_codes(SIGNS, 500, np.random.default_rng(14)))
    cells, ratios = runner.followed.cells, []
    own = [*runner.signs.singles, *runner.signs.pairs]
    source = Randomness.seeded(14)
    for _ in range(400):
        outcome = runner.run(counts, Model.uniform(SIGNS, 1.0), Design(5, 0, 500.0, 3), source)
        error = (outcome.epoch.values - counts) ** 2
        ratios.append([error[cells.part(i)].mean() / outcome.epoch.variance[i] for i in own])
    assert np.all(np.abs(np.mean(ratios, axis=0) - 1.0) < 1 / 3)


def test_pairs_of_signs_are_measured_by_turns_and_where_noise_is_below_a_sample() -> None:
    runner = Runner(MeasuredCells(SIGN_PAIRS), PureDP.of("1"), Event(), Fraction(1, 10), 5, 1000)
    assert Pooled(PAIRS).calibrate(epsilon="1").runner.design(0.0, drifts=True) == Design(3, 0, 0.0)
    designs = [runner.design(n, drifts=False) for n in (0.0, 10.0, 1e3)]
    assert [d.pairs for d in designs] == [0, 0, 3]
    assert all(d.fixed == 5 for d in designs)  # three of five columns are signs: they are always measured
    for design in designs[2:]:
        draw, sums = runner.joint_draws(design)[0]
        assert draw.variance <= design.expected
        assert sums == 1 + 3 + 3
    seen = np.zeros(len(runner.followed.cells.cliques))
    first, second, third = runner.signs.pairs
    seen[[first, third]] = 100.0, 50.0
    assert runner.signs.order(Model.uniform(SIGNS, 1.0), seen) == [first, second, third]


@pytest.fixture
def taken(monkeypatch):
    """The budget and the scores of every selection of a run, which takes the last candidate."""
    found = []

    class Kept(Selector):
        def choose(self, numerators, denominators, allowed, sensitivity, randomness):
            scores = [Fraction(int(n), int(d)) for n, d in zip(numerators, denominators, strict=True)]
            found.append((self.budget.amount, sensitivity, scores))
            return max(allowed)

    monkeypatch.setattr("dpstream.mechanisms.engine.Selector", Kept)
    return found


WEIGHTED = Workload(DOMAIN, ((0, 1), (1, 2), (0, 1, 2)), (Fraction(3), Fraction(1, 2), Fraction(2)))


@pytest.mark.parametrize("budget", [PureDP.of("2"), ZCDP.of("1/3")])
@pytest.mark.parametrize("unit", [Event(), Event("replace")])
@pytest.mark.parametrize(("fixed", "k"), [(0, 6), (0, 2), (3, 3), (3, 0)])
@pytest.mark.parametrize("max_cells", [24, 1000])
def test_selections_and_measurements_stay_within_the_budget(budget, unit, fixed, k, max_cells, taken) -> None:
    """Also where the model is full before all selections are made. Exact."""
    tape = Tape()
    runner = Runner(MeasuredCells(WEIGHTED), budget, unit, Fraction(1, 7), 5, max_cells)
    counts = histograms(WEIGHTED, np.random.default_rng(3).integers(0, DOMAIN.sizes, (50, 3)))
    outcome = runner.run(counts, Model.uniform(DOMAIN, 1.0), Design(fixed, k, 50.0), tape)
    chosen = taken
    assert len(chosen) + fixed == sum(map(histograms_in, tape.noises)) <= int(outcome.epoch.measured.sum())
    spent = sum((amount for amount, _, _ in chosen), Fraction(0))
    for noise in tape.noises:
        if isinstance(noise, DiscreteLaplace | HistogramsNoise):
            spent += epsilon_of(noise, unit)
        else:
            spent += Fraction(unit.changed_cells) / (2 * noise.sigma_squared)
    assert spent <= budget.amount
    assert spent == budget.amount or len(chosen) < k


@pytest.mark.parametrize("unit", [Event(), Event("replace")])
@pytest.mark.parametrize("many", [0, MAX_RECORDS])
def test_one_record_moves_no_score_further_than_declared_whatever_the_epoch_holds(unit, many, taken) -> None:
    """Also of columns, with weights; and no private number of records is refused."""
    generator = np.random.default_rng(9)
    runner = Runner(MeasuredCells(WEIGHTED), PureDP.of("1"), unit, Fraction(1, 10), 3, 1000)
    cells = runner.followed.cells

    def counted(record, sign):
        found = np.zeros(cells.total, dtype=np.int64)
        for index, clique in enumerate(cells.cliques):
            codes = [record[i] for i in clique]
            found[cells.part(index)][np.ravel_multi_index(codes, DOMAIN.shape(clique))] = sign
        return found

    table = generator.integers(0, 30, DOMAIN.sizes)
    table[0, 0, 0] = many
    drawn = [table.sum(axis=tuple(set(range(3)) - set(c))).ravel() for c in cells.cliques]
    counts, largest = np.concatenate(drawn), Fraction(0)
    records = [tuple(int(generator.integers(n)) for n in DOMAIN.sizes) for _ in range(20)] + [(0, 0, 0)]
    for first, second in zip(records, records[1:] + records[:1], strict=True):
        other = counts + counted(first, 1)
        other += counted(second, -1) if unit.relation == "replace" else 0
        scores = []
        for one in (counts, other):
            taken.clear()
            runner.run(one, Model.uniform(DOMAIN, 1.0), Design(0, 1, 366.6), Tape())
            ((_, sensitivity, found),) = taken
            scores.append(found)
        largest = max(largest, *(abs(a - b) for a, b in zip(*scores, strict=True)))
        assert largest <= sensitivity
    assert many or largest == sensitivity  # no slack: the bound is reached


def test_private_counts_are_gone_after_a_border_and_unread_before() -> None:
    plan = Pooled(PAIRS).calibrate(epsilon="1")
    generator = np.random.default_rng(5)
    codes = drawn_codes(DOMAIN, 40, generator)
    states = plan.start(), plan.start()
    borders = set()
    for step in range(1, 40):
        inserts = (codes, np.concatenate([codes, codes[:1]]) if step == 29 else codes)
        releases = [
            plan.step(state, EncodedBatch(DOMAIN, rows), Randomness.seeded(step))
            for state, rows in zip(states, inserts, strict=True)
        ]
        if step == states[0].closed:
            borders.add(step)
            assert not any(side.counts.any() for state in states for side in state.sides)
        if step < 32:  # the event at 29 is in the epoch that ends at 32: nothing may tell of it earlier
            one, two = (np.concatenate(r.marginals(PAIRS.cliques)) for r in releases)
            np.testing.assert_array_equal(one, two)
            assert releases[0].total == releases[1].total
    assert {28, 32} <= borders


def test_what_manifests_say_of_the_budget() -> None:
    for unit, times in ((Event(), 1), (User(4, cut_share=Fraction(0)), 4)):
        plan = Pooled(PAIRS).calibrate(epsilon="2", unit=unit)
        assert sum(part.total for part in plan.parts()) == 2
        assert {part.times for part in plan.parts()} == {times}
        assert ("parallel over epochs" in words(plan, "composition")) == (
            times == 1
        )  # a user's events may be in several epochs
        draws = plan.runner.column_draws(Design(3, 0, 0.0))
        assert all(noise.describe() in plan.parts()[-1].detail for _, noise in draws)
        assert sum(epsilon_of(noise, Event()) for _, noise in draws) == Fraction(2, times)


@pytest.mark.parametrize("budget", [{"epsilon": 1}, {"rho": Fraction(1, 2)}])
def test_more_pairs_of_signs_than_one_draw_holds_may_be_selected(budget) -> None:
    """34 columns of two values have 561 pairs; a large epoch affords them all, and a joint draw holds 512 sums."""
    workload = Workload.all_k_way(Domain(tuple(f"c{i}" for i in range(34)), (2,) * 34), 2)
    runner = Pooled(workload).calibrate(**budget).runner
    design = runner.design(1e8, drifts=True)
    assert design.k > 512
    assert design.k + design.pairs == 561
    assert max(sums for _, sums in runner.joint_draws(design)) == 512
    parts = [runner.division.joint_budget(design), runner.division.chosen_budget(design, design.k)]
    spent = sum(part.amount for part in parts) + runner.select_share * runner.budget.amount
    assert spent == runner.budget.amount


FIVE = Pooled(Workload.all_k_way(Domain(tuple("abcde"), (3, 4, 5, 6, 8)), 2))


def precision(runner: Runner, m: int, events: float) -> float:
    """Of all marginals together, from the noise itself."""
    noise = runner.noise_of([0], runner.budget.scaled(Fraction(1, m)))
    return m / (noise.variance + events / float(runner.followed.cells.sizes.mean()))


@pytest.mark.parametrize("budget", [PureDP.of("1/4"), PureDP.of(1), PureDP.of(4), ZCDP.of("1/8"), ZCDP.of(2)])
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_a_run_of_few_marginals_measures_the_number_that_says_most(budget, relation) -> None:
    """Against all numbers that leave three standard deviations of records for each."""
    runner = FIVE.calibrate(budget, unit=Event(relation)).runner
    for events in (-5.0, 0.0, 50.0, 300.0, 2e3, 1e4, 1e6):
        design = runner.design(events, drifts=False)

        def affordable(m: int, events: float = events) -> bool:
            noise = runner.noise_of([0], runner.budget.scaled(Fraction(1, m)))
            return m == 1 or events >= 3.0 * m * math.sqrt(noise.variance)

        allowed = [m for m in range(1, 16) if affordable(m)]
        best = max(allowed, key=lambda m: precision(runner, m, events))
        assert (design.fixed, design.k) == (0, best)


def test_the_page_of_constants_names_all_of_them() -> None:
    """Numbers at the top of the modules of pooled streams, and the joint groups' largest histogram."""
    page = (Path(__file__).parents[2] / "docs" / "theory" / "pooled.md").read_text(encoding="utf-8")
    found = set[str]()
    source = Path(__file__).parents[2] / "src" / "dpstream"
    for path in [
        *(source / "families" / "tabular").glob("pooled*.py"),
        source / "mechanisms" / "table_model.py",
    ]:
        for line in path.read_text(encoding="utf-8").splitlines():
            names, equals, value = line.partition(" = ")
            if equals and re.fullmatch(r"_?[A-Z_]+(, _?[A-Z_]+)*", names) and re.search(r"\d", value):
                found.update(names.split(", "))
    assert {"_RECORDS_PER_NOISE", "_MAX_FITS", "VOLATILE_DRIFT", "_DRIFTS"} <= found
    assert not [name for name in sorted(found) if f"`{name}`" not in page]
