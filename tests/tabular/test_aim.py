"""AIM: exact costs, exact sensitivities, scores, what a run starts from, and that it learns."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from door_runs import run_loss
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy import ZCDP, Event, PureDP, Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.mechanisms import AIM
from dpstream.mechanisms.aim import AIMPlan, Candidates
from dpstream.mechanisms.workload_cells import GRID_BITS, SCORES, Cells, Score
from dpstream_lab.audits.aim_audit import aim_run

SMALL = Domain(("a", "b", "c", "d"), (2, 3, 4, 2))
WIDE = Domain(tuple("abcdefgh"), (2, 2, 3, 5, 7, 4, 2, 12))
BUDGETS = {"pure": PureDP.of("3/2"), "zCDP": ZCDP.of("1/10")}
UNITS = [Event(), Event("replace")]


def related(domain, rows, seed=0):
    """Records whose columns follow each other along a chain."""
    generator = np.random.default_rng(seed)
    codes = np.zeros((rows, len(domain)), dtype=np.int32)
    codes[:, 0] = generator.integers(0, domain.sizes[0], rows)
    for i in range(1, len(domain)):
        follow = codes[:, i - 1] * domain.sizes[i] // domain.sizes[i - 1]
        other = generator.integers(0, domain.sizes[i], rows)
        codes[:, i] = np.where(generator.random(rows) < 0.7, follow, other)
    return codes


def counts_of(plan, codes):
    return EncodedBatch(plan.workload.domain, codes).count(plan.counted, "inserts")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.relation)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_no_score_moves_by_more_than_the_sensitivity(unit, data):
    """All changes of one record, on drawn tables, models, noise and weights; with sharp cases by hand below."""
    pairs = list(itertools.combinations(range(4), 2))
    weights = [Fraction(data.draw(st.integers(1, 9)), data.draw(st.integers(1, 5))) for _ in pairs]
    workload = Workload(SMALL, (*pairs, (1,)), (*weights, Fraction(1)))
    own = Candidates(workload, unit, unions=True)
    codes = np.array(
        data.draw(st.lists(st.tuples(*[st.integers(0, s - 1) for s in SMALL.sizes]), max_size=9))
    )
    codes = codes.reshape(-1, 4).astype(np.int32)
    record = np.array([data.draw(st.tuples(*[st.integers(0, s - 1) for s in SMALL.sizes]))], dtype=np.int32)
    kept = codes[1:] if unit.relation == "replace" and len(codes) else codes
    sides = [
        np.concatenate(EncodedBatch(SMALL, rows).count(workload.cliques))
        for rows in (codes, np.vstack([kept, record]))
    ]
    if unit.relation == "replace" and not len(codes):
        return
    expected = np.array(
        data.draw(st.lists(st.floats(-20, 20), min_size=own.cells.total, max_size=own.cells.total))
    )
    variance = data.draw(st.floats(1e-9, 100.0))
    precision = np.array(
        data.draw(st.lists(st.floats(0, 10), min_size=len(workload), max_size=len(workload)))
    )
    before, after = (own.scores(side, expected, variance, precision) for side in sides)
    assert np.abs(before - after).max() <= own.sensitivity


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.relation)
def test_the_sensitivity_is_reached(unit):
    workload = Workload.all_k_way(SMALL, 2)
    own = Candidates(workload, unit, unions=True)
    assert any(len(clique) == 3 for clique in own.cliques)
    one, other = np.zeros((1, 4), np.int32), np.ones((1, 4), np.int32)
    first = EncodedBatch(SMALL, one).count(workload.cliques)
    more = np.vstack([one, other]) if unit.relation == "add-remove" else other
    second = EncodedBatch(SMALL, more).count(workload.cliques)
    expected = np.concatenate(first).astype(np.float64)  # a model that is right about the first table
    sure = np.full(len(workload), 1e12)
    before, after = (own.scores(np.concatenate(c), expected, 1.0, sure) for c in (first, second))
    assert np.abs(before - after).max() == own.sensitivity


def test_scores_are_exact_up_to_the_largest_batch():
    domain = Domain(("a", "b"), (2, 2))
    own = Candidates(Workload.all_k_way(domain, 2), Event(), unions=False)
    largest = np.array([1 << 32, 0, 0, 0])
    found = own.scores(largest, np.zeros(4), 1.0, np.full(1, 1e30))
    assert found[0] == int(own.coefficients[0]) << 40
    with pytest.raises(LimitError, match="too many events"):
        own.scores(largest + 1, np.zeros(4), 1.0, np.zeros(1))


def test_unions_are_candidates_where_they_pay():
    own = Candidates(Workload.all_k_way(WIDE, 2), Event(), unions=True)
    unions = set(own.cliques[len(own.workload) :])
    for triple in itertools.combinations(range(len(WIDE)), 3):
        cells = WIDE.cells(triple)
        louder = np.mean([math.sqrt(cells / WIDE.cells(pair)) for pair in itertools.combinations(triple, 2)])
        assert (triple in unions) == (louder <= 3.0)
    covered = {pair for i in own.cover for pair in itertools.combinations(own.cliques[i], 2)}
    assert covered == set(own.workload.cliques)
    assert own.counted[len(own.cliques) :] == own.columns


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.relation)
@pytest.mark.parametrize("domain", [SMALL, WIDE], ids=["small", "wide"])
@pytest.mark.parametrize("rows", [0, 30, 20_000])
def test_every_run_spends_the_budget_and_no_more(budget, unit, domain, rows):
    plan = AIM().calibrate(Workload.all_k_way(domain, 2), budget, unit)
    run = plan.run_on(counts_of(plan, related(domain, rows)), Randomness.seeded(rows))
    assert run.spent == budget.amount == sum(part.total for part in plan.parts())
    assert np.isfinite(np.concatenate(run.model.marginals(plan.counted))).all()
    told = plan.run_on(counts_of(plan, related(domain, rows)), Randomness.seeded(rows), expected=1000.0)
    assert told.spent == budget.amount
    assert () not in {m.clique for m in told.measurements}
    if unit.relation == "replace":
        assert run.total == run.model.total == rows
        assert run.total_variance == 0.0
    else:
        # 12 standard deviations of a sum of many noises: below 1e-9.
        assert abs(run.total - rows) < 12 * math.sqrt(run.total_variance)


def test_the_noise_of_measurements_is_that_of_their_amounts():
    """From the amounts alone: every variance is that of a histogram's noise, and the amounts add up."""
    plan = AIM(rounds=5).calibrate(Workload.all_k_way(WIDE, 2), ZCDP.of(1), Event("replace"))
    run = plan.run_on(counts_of(plan, related(WIDE, 500)), Randomness.seeded(3))
    paid = sum(1.0 / m.variance for m in run.measurements)  # squared L2 sensitivity 2 over 2 sigma^2
    select = (1 - 8 / 25) * 0.1  # eight columns and five rounds
    assert run.rounds == 5
    assert paid + select == pytest.approx(1.0)


@pytest.mark.parametrize("budget", [PureDP.of(1), ZCDP.of("1/8")], ids=["pure", "zCDP"])
def test_it_learns_what_columns_do_not_tell(budget):
    """A chain of columns: far better than independence, and better with more budget."""
    codes = related(WIDE, 20_000)
    workload = Workload.all_k_way(WIDE, 2)
    truth = EncodedBatch(WIDE, codes).count(workload.cliques)

    def error(plan_budget):
        plan = AIM().calibrate(workload, plan_budget, Event())
        run = plan.run_on(counts_of(plan, codes), Randomness.seeded(5))
        answers = run.model.marginals(workload.cliques)
        return np.mean([np.abs(a - b).sum() / len(codes) for a, b in zip(answers, truth, strict=True)])

    alone = [np.bincount(column, minlength=size) for column, size in zip(codes.T, WIDE.sizes, strict=True)]
    independent = np.mean(
        [
            np.abs(np.outer(alone[i], alone[j]).ravel() / len(codes) - t).sum() / len(codes)
            for (i, j), t in zip(workload.cliques, truth, strict=True)
        ]
    )
    assert error(budget) < 0.25 * independent
    assert error(budget.scaled(100)) < 0.5 * error(budget)


def test_the_number_of_rounds_follows_the_budget_and_the_size():
    for budget in BUDGETS.values():
        plan = AIM().calibrate(Workload.all_k_way(WIDE, 2), budget, Event())
        found = [plan.rounds_for(n) for n in (-50.0, 0.0, 100.0, 1e4, 1e6)]
        assert found == sorted(found)
        assert found[0] >= 1
        assert plan.columns_for(found[0]) > plan.columns_for(found[-1]) == Fraction(3, 20)
        assert plan.rounds_for(1e300) == 100
    with pytest.raises(ConfigError, match="rounds = 0"):
        AIM(rounds=0)
    with pytest.raises(ConfigError, match="columns_share"):
        AIM(columns_share=Fraction(1))


def test_the_number_of_rounds_follows_noise_only(monkeypatch):
    """Every record would change the number; following exact counts, neighbours would tell themselves apart."""
    monkeypatch.setattr(AIMPlan, "rounds_for", lambda _, records: 2 + round(records) % 2)
    plan = AIM(unions=False).calibrate(Workload.all_k_way(WIDE, 2), PureDP.of(1), Event())
    codes = related(WIDE, 40)
    runs = [aim_run(plan, counts_of(plan, rows)) for rows in (codes, codes[1:])]
    assert run_loss(*runs, Randomness.seeded(1), pure=True).total <= 1.0


# Scores


DOMAIN = Domain(("a", "b", "c"), (2, 3, 1))
WORKLOADS = (
    Workload.all_k_way(DOMAIN, 2),
    Workload(DOMAIN, ((0, 1), (1, 2)), (Fraction(1, 3), Fraction(5, 2))),
    Workload(DOMAIN, ((0,), (1,), (0, 1)), (Fraction(1), Fraction(1, 2), Fraction(3))),
)


def scores(score: Score, codes: np.ndarray, expected: np.ndarray) -> list[Fraction]:
    batch = EncodedBatch(DOMAIN, codes.astype(np.int32))
    joined = np.concatenate(batch.count(score.cells.cliques))
    numerators, denominators = score.evaluate(joined, expected)
    return [Fraction(int(n), int(d)) / 2**GRID_BITS for n, d in zip(numerators, denominators, strict=True)]


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("workload", WORKLOADS, ids=["pairs", "weighted", "with columns"])
def test_the_claimed_sensitivity_is_the_true_one(name, workload):
    """All neighbours of several batches, several models: never above the claim, and the claim is reached."""
    generator = np.random.default_rng(5)
    cells = Cells(workload)
    records = np.array([[a, b, 0] for a in range(2) for b in range(3)])
    for unit in (Event(), Event("replace")):
        score = Score(cells, name, unit, 0.7)
        largest = Fraction(0)
        for _ in range(6):
            codes = records[generator.integers(0, 6, size=generator.integers(1, 5))]
            expected = generator.normal(0.5, 2.0, size=cells.total)
            before = scores(score, codes, expected)
            if unit.relation == "add-remove":
                neighbours = [np.vstack([codes, record]) for record in records]
            else:
                neighbours = [np.vstack([codes[1:], record]) for record in records]
            for neighbour in neighbours:
                after = scores(score, neighbour, expected)
                largest = max([largest, *(abs(x - y) for x, y in zip(before, after, strict=True))])
        assert largest == score.sensitivity, unit


def test_scores_are_what_the_formulas_say():
    cells = Cells(Workload(DOMAIN, ((0, 1),), (Fraction(3, 2),)))
    codes = np.array([[0, 0, 0], [1, 2, 0]])
    expected = np.array([0.25, 0.5, 0.0, 0.0, 0.0, 1.0])
    distance = Fraction(3, 4) + Fraction(1, 2)
    unit = Event()
    assert scores(Score(cells, "mean-cells", unit), codes, expected) == [Fraction(3, 2) * distance / 6 - 6]
    assert scores(Score(cells, "sum-noise", unit, 0.5), codes, expected) == [Fraction(3, 2) * (distance - 3)]
    assert scores(Score(cells, "sum-cells", unit), codes, expected) == [Fraction(3, 2) * (distance - 6)]


def test_bad_scores_are_refused():
    cells = Cells(WORKLOADS[0])
    with pytest.raises(ConfigError, match="unknown score 'median'"):
        Score(cells, "median", Event())  # type: ignore[arg-type]
    with pytest.raises(LimitError, match="too many events"):
        Score(cells, "mean-cells", Event()).evaluate(np.full(cells.total, 1 << 33), np.zeros(cells.total))


@pytest.mark.parametrize("name", SCORES)
def test_extreme_weights_and_large_domains_do_not_wrap_around(name):
    """One record more moves a score by its sensitivity at most, wherever 64-bit products would have overflowed."""
    domain = Domain(("a", "b"), (55, 55))
    for weight in (Fraction("123.000001"), Fraction("999999.999999"), Fraction(1, 10**6)):
        cells = Cells(Workload(domain, ((0, 1), (0,)), (weight, Fraction(1))))
        score = Score(cells, name, Event(), 500.0)
        expected = np.zeros(cells.total)
        for records in (2882, 10**6, 2**31):
            values = []
            for count in (records, records + 1):
                batch = np.zeros(cells.total, dtype=np.int64)
                batch[[0, 55 * 55]] = count
                numerators, denominators = score.evaluate(batch, expected)
                values.append(
                    [Fraction(int(n), int(d)) for n, d in zip(numerators, denominators, strict=True)]
                )
            for before, after in zip(*values, strict=True):
                assert 0 < abs(after - before) <= score.grid_sensitivity
