"""Every tabular stream goes through the same list; then what is particular to each."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from small_batches import run, stored
from small_streams import small_schema

from dpstream.core.contracts import PublicPrior
from dpstream.core.counters import TreeCounter, best
from dpstream.core.errors import BudgetError, ConfigError, HorizonError, LimitError, UnitError
from dpstream.core.graphical import Model
from dpstream.core.privacy import Event, Individual, PureDP, Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch, Workload, count_marginals
from dpstream.families.tabular import Baseline, DPStabs, Pooled
from dpstream.families.tabular.baseline import remove_nearest
from dpstream.mechanisms import MWEMPGM

DOMAIN = Domain(("a", "b", "c", "d"), (2, 3, 4, 1))
PAIRS = Workload.all_k_way(DOMAIN, 2)
PRIOR = PublicPrior(
    DOMAIN, (0, 1, 2), np.array([[0, 0, 0], [1, 1, 3]], np.int32), np.array([9.0, 8.0]), {"sha256": "0"}
)
RECIPES = {
    "dpstabs": DPStabs(PAIRS, k=3),
    "dpstabs-deletions": DPStabs(PAIRS, k=2, deletions=True),
    "dpstabs-all": DPStabs(PAIRS, k=6),
    "dpstabs-literal": DPStabs(PAIRS, k=2, past="literal", aggregate="average", score="mean-cells"),
    "dpstabs-block": DPStabs(PAIRS, k=2, counter="block", score="sum-noise"),
    "dpstabs-unbounded": DPStabs(
        PAIRS, k=2, counter="unbounded-block", score="mean-cells", aggregate="average"
    ),
    "baseline": Baseline(PAIRS, MWEMPGM(k=3)),
    "baseline-deletions": Baseline(PAIRS, MWEMPGM(k=4), deletions=True, prior="uniform"),
    "pooled": Pooled(PAIRS),
    "pooled-deletions": Pooled(PAIRS, deletions=True, staleness=Fraction(1, 3)),
    "pooled-season": Pooled(PAIRS, staleness=Fraction(1, 2), season=Fraction(4)),
    "pooled-headline": Pooled(PAIRS, headline=(("a",), ("a", "b"))),
    "pooled-prior": Pooled(PAIRS, prior=PRIOR),
}
BUDGETS = ({"epsilon": "1"}, {"rho": "1/2"}, {"epsilon": "1", "unit": Event("replace")})


def batches(steps, rows=30, seed=0, deletes=True):
    generator = np.random.default_rng(seed)

    def draw(n):
        a = generator.integers(0, 2, size=n)
        b = np.where(generator.random(n) < 0.7, a, generator.integers(0, 3, size=n))
        c = generator.integers(0, 4, size=n)
        return np.column_stack([a, b, c, np.zeros(n)]).astype(np.int32)

    return [EncodedBatch(DOMAIN, draw(rows), draw(3) if deletes else None) for _ in range(steps)]


#: Each pair alone has 4,900 cells, but the other columns' own cells come on top.
MANY = Workload.all_k_way(Domain(tuple(f"c{i}" for i in range(90)), (70,) * 90), 2)


@pytest.fixture(params=list(RECIPES))
def recipe(request):
    return RECIPES[request.param]


@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "zcdp", "replace"])
class TestEveryPlan:
    def test_a_release_is_a_table_of_the_domain_and_is_packed_whole(self, recipe, budget):
        plan = recipe.calibrate(**budget, horizon=20)
        _, synthesis = run(plan, batches(3, deletes=recipe.deletions), 7)
        rows = synthesis.sample(50, 1)
        assert rows.shape == (50, 4)
        assert (rows >= 0).all()
        assert (rows < np.array(DOMAIN.sizes)).all()
        assert synthesis.sample(0, 1).shape == (0, 4)
        back = plan.unpack_synthesis(stored(synthesis.pack()))
        np.testing.assert_array_equal(back.sample(50, 1), rows)
        for x, y in zip(back.marginals(PAIRS.cliques), synthesis.marginals(PAIRS.cliques), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
        assert (back.total, back.total_error) == (synthesis.total, synthesis.total_error)
        assert list(back.measured) == list(synthesis.measured)
        for clique, measured in synthesis.measured.items():
            np.testing.assert_array_equal(back.measured[clique].values, measured.values)
            assert back.measured[clique].half_width(3, 0.9) == measured.half_width(3, 0.9)
        assert np.isfinite(back.total)

    def test_empty_batches_and_deletes_of_nothing_are_ordinary_steps(self, recipe, budget):
        plan = recipe.calibrate(**budget, horizon=20)
        never = np.zeros((20, 4), dtype=np.int32)
        deletes = (None, never) if recipe.deletions else (None,)
        _, synthesis = run(plan, [EncodedBatch(DOMAIN, never[:0], gone) for gone in deletes], 7)
        assert np.isfinite(np.concatenate(synthesis.marginals(PAIRS.cliques))).all()
        assert len(synthesis.sample(10, 0)) == 10

    def test_state_does_not_grow_with_steps(self, recipe, budget):
        if isinstance(recipe, Baseline) or recipe is RECIPES["pooled-season"]:
            return  # the table, which grows with the data; what is expected at each step until a border
        plan = recipe.calibrate(**budget, horizon=60)
        state, sizes = plan.start(), []
        for batch in batches(40, rows=5, deletes=recipe.deletions):
            plan.step(state, batch, Randomness.seeded(7))
            sizes.append(sum(array.nbytes for array in plan.pack_state(state).arrays.values()))
        assert max(sizes[20:]) <= max(sizes[:20]) * 1.5


def test_a_generous_budget_finds_the_truth(recipe):
    """At epsilon 1000 what is left is the model's own error; all pairs of three columns fit."""
    data = batches(25, rows=400, deletes=recipe.deletions)
    if isinstance(recipe, DPStabs):
        recipe = replace(recipe, k=6, aggregate="last", iterations=60)
    _, synthesis = run(recipe.calibrate(epsilon="1000", horizon=25), data, 7)
    truth = [sum(b.count([q])[0] for b in data) for q in PAIRS.cliques]
    records = truth[0].sum()
    assert synthesis.total == pytest.approx(records, rel=0.01)
    for real, made in zip(truth, synthesis.marginals(PAIRS.cliques), strict=True):
        assert np.abs(real - made).sum() / records < 0.1


@pytest.mark.parametrize(
    "recipe", [DPStabs(PAIRS, k=1), DPStabs(PAIRS, k=1, past="literal"), Baseline(PAIRS, MWEMPGM(k=1))]
)
def test_the_largest_budget_has_noise_too_small_to_weigh(recipe):
    plan = recipe.calibrate(epsilon=1000)
    for steps in (1, 3):
        assert run(plan, batches(steps, deletes=False), 7)[1].total == pytest.approx(30 * steps, abs=1)


def test_a_window_that_slides_at_constant_size():
    """As many records leave as come, and they look different: net counts would hide the change."""
    domain = Domain(("a", "b", "c"), (4, 3, 3))
    workload = Workload.all_k_way(domain, 2)
    plan = DPStabs(workload, k=2, deletions=True).calibrate(epsilon="4")
    generator, window, data = np.random.default_rng(6), [], []
    for step in range(60):
        likely = 0 if step < 30 else 3
        a = np.where(generator.random(200) < 0.8, likely, generator.integers(0, 4, size=200))
        b, c = (a + generator.integers(0, 2, size=200)) % 3, generator.integers(0, 3, size=200)
        window.append(np.column_stack([a, b, c]).astype(np.int32))
        leaving = window.pop(0) if len(window) > 20 else window[0][:0]
        data.append(EncodedBatch(domain, window[-1], leaving))
    _, synthesis = run(plan, data, 7)
    truth = count_marginals(np.concatenate(window), domain, workload.cliques)
    assert synthesis.total == pytest.approx(4000, abs=600)
    for real, made in zip(truth, synthesis.marginals(workload.cliques), strict=True):
        assert np.abs(real - made).sum() / 4000 < 0.35  # a table that never forgot is off by about 1.5


def test_a_value_that_was_absent_for_very_long_comes_back():
    """A prior that gives a value probability e^-400 must not be believed more than the batches."""
    domain = Domain(("a", "b", "c"), (2, 3, 3))
    workload, generator = Workload.all_k_way(domain, 2), np.random.default_rng(2)
    certain = Model.uniform(domain, 50.0)
    certain = Model(certain.tree, np.array([0.0, -400.0, 0, 0, 0, 0, 0, 0]), 50.0)
    for recipe in (DPStabs(workload, k=2), Baseline(workload, MWEMPGM(k=2))):
        plan = recipe.calibrate(epsilon="1")
        state, randomness = plan.start(), Randomness.seeded(7)
        if isinstance(recipe, DPStabs):
            state.sides[0].batch = certain
        else:
            state.models["inserts"] = certain
        for _ in range(60):
            codes = np.column_stack([np.ones(50), *generator.integers(0, 3, size=(2, 50))]).astype(np.int32)
            synthesis = plan.step(state, EncodedBatch(domain, codes), randomness)
        assert synthesis.marginals([(0,)])[0][1] > 2000


def test_the_literal_remainder_books_the_models_answer():
    """Where a workload was not measured, C_i + r_i is the release's own answer; where it was, r_i stays."""
    plan = DPStabs(PAIRS, k=2, past="literal").calibrate(epsilon="2")
    state, randomness = plan.start(), Randomness.seeded(7)
    (side,) = state.sides
    for batch in batches(4, deletes=False):
        before, ticks = side.remainder.copy(), side.ticks.copy()
        synthesis = plan.step(state, batch, randomness)
        answers = np.concatenate(synthesis.marginals(PAIRS.cliques))
        for i in range(len(PAIRS.cliques)):
            part = plan.cells.part(i)
            if side.ticks[i] > ticks[i]:
                np.testing.assert_array_equal(side.remainder[part], before[part])
            else:
                np.testing.assert_allclose(side.booked[part], answers[part], atol=1e-6)


def test_what_selecting_and_measuring_cost():
    (measure,) = DPStabs(PAIRS, k=6).calibrate(epsilon="1").parts()
    assert (measure.name, measure.times, measure.total) == ("measure", 6, 1)
    # Two of three pairs fit into the model at once: which two is a choice, and it is paid for.
    wide = Workload.all_k_way(Domain(("a", "b", "c"), (6, 7, 8)), 2)
    assert len(DPStabs(wide, k=3, max_cells=110).calibrate(epsilon="1").parts()) == 2
    plan = DPStabs(PAIRS, k=3, select_share="1/2").calibrate(epsilon="1")
    assert [(part.times, part.budget.epsilon) for part in plan.parts()] == [(3, Fraction(1, 6))] * 2
    doubled = DPStabs(PAIRS, k=3, select_share="1/2").calibrate(epsilon="1", unit=Event("replace"))
    assert doubled.counter.variance(1) > 3.9 * plan.counter.variance(1)


def test_one_column_and_a_column_of_one_value():
    domain = Domain(("only", "constant"), (3, 1))
    for workload in (Workload.all_k_way(domain, 1), Workload.all_k_way(domain, 2)):
        for recipe in (DPStabs(workload, k=1), Baseline(workload, MWEMPGM(k=1))):
            codes = np.array([[0, 0]] * 60 + [[2, 0]] * 30, dtype=np.int32)
            _, synthesis = run(recipe.calibrate(epsilon="50"), [EncodedBatch(domain, codes)] * 6, 7)
            counts = count_marginals(synthesis.sample(900, 0), domain, [(1,)])
            assert counts[0].tolist() == [900]
            assert synthesis.total == pytest.approx(540, abs=60)


def test_a_full_model_ends_the_rounds_early():
    """Three columns of 6, 7 and 8 values: two pairs of them make a tree of 98 cells, three one of 336."""
    domain = Domain(("a", "b", "c"), (6, 7, 8))
    workload = Workload.all_k_way(domain, 2)
    codes = np.random.default_rng(1).integers(0, 6, size=(200, 3)).astype(np.int32)
    for past in ("predicted", "literal"):
        plan = DPStabs(workload, k=3, past=past, max_cells=110).calibrate(epsilon="1")
        state, _ = run(plan, [EncodedBatch(domain, codes)] * 4, 7)
        assert state.sides[0].ticks.sum() == 8
    offline = MWEMPGM(k=3, max_cells=110).calibrate(workload, plan.budget, Event())
    model = offline.run(EncodedBatch(domain, codes), "net", Randomness.seeded(7)).model
    assert len(model.cliques) == 2


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: DPStabs(PAIRS, k=7), ConfigError, r"k = 7 exceeds the workload's 6 marginals \(allowed: 1 to 6\)"),
        (lambda: DPStabs(PAIRS, k=0), ConfigError, "allowed: 1 to 6"),
        (lambda: DPStabs(PAIRS, max_cells=5), LimitError, 'a model with the marginal a x b exceeds its cells'),
        (lambda: DPStabs(MANY), LimitError, 'c0 x c1 exceeds its cells'),
        (lambda: Baseline(MANY).calibrate(epsilon=1), LimitError, 'c0 x c1 exceeds its cells'),
        (lambda: DPStabs(PAIRS, past="guess"), ConfigError, "past = 'guess'.*predicted, literal"),
        (lambda: DPStabs(PAIRS, aggregate="median"), ConfigError, "aggregate = 'median'"),
        (lambda: DPStabs(PAIRS, score="best"), ConfigError, "score = 'best'"),
        (lambda: DPStabs(PAIRS, select_share=Fraction(1)), ConfigError, "between 0 and 1"),
        (lambda: DPStabs(PAIRS, counter="magic").calibrate(epsilon=1), ConfigError, "magic"),
        (lambda: DPStabs(PAIRS, counter="block").calibrate(epsilon=1), ConfigError, "horizon"),
        (lambda: DPStabs(PAIRS, counter=TreeCounter(2)).calibrate(epsilon=1), HorizonError, "2 ticks.*unknown number"),
        (lambda: DPStabs(PAIRS, counter=TreeCounter(2)).calibrate(epsilon=1, horizon=3), HorizonError, "3 steps"),
        (lambda: Baseline(PAIRS, prior="best"), ConfigError, "prior = 'best'.*previous, uniform"),
        (lambda: DPStabs(PAIRS, prior_weight=-1), ConfigError, "prior_weight = -1"),
        (lambda: Baseline(PAIRS, MWEMPGM(k=9)).calibrate(epsilon=1), ConfigError, "k = 9 exceeds"),
        (lambda: DPStabs(PAIRS).calibrate(epsilon=1, rho=1), BudgetError, "give either epsilon or rho"),
        (lambda: DPStabs(PAIRS).calibrate(epsilon=0), BudgetError, "epsilon: 0 is not positive"),
        (lambda: DPStabs(PAIRS).calibrate(epsilon=-1), BudgetError, "not positive"),
        (lambda: DPStabs(PAIRS).calibrate(epsilon=float("nan")), BudgetError, ": expected an amount"),
        (lambda: DPStabs(PAIRS).calibrate(epsilon=1e9), BudgetError, "too large to protect anybody"),
        (lambda: DPStabs(PAIRS).calibrate(epsilon=1, unit=Individual()), UnitError, "allowed: event, event-replace"),
        (lambda: Pooled(PAIRS, staleness=Fraction(2, 3)), ConfigError, "staleness"),
        (lambda: Pooled(PAIRS, max_cells=5), LimitError, "exceeds its cells"),
        (lambda: Pooled(PAIRS, season=Fraction(3, 2)), ConfigError, "season"),
    ],
)  # fmt: skip
def test_bad_options_are_refused_in_one_sentence(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_remove_nearest_never_takes_more_than_it_has():
    table = np.array([[0, 0], [0, 1], [1, 1]], dtype=np.int32)
    assert len(remove_nearest(table, table)) == 0
    assert remove_nearest(table, table[:0]).tolist() == table.tolist()


# The counter that DP-STabS takes by itself, and streams that began with another one.

SINGLE_COLUMNS = Workload.all_k_way(small_schema().domain, 1)


def test_where_all_is_measured_running_sums_are_judged():
    plan = DPStabs(SINGLE_COLUMNS).calibrate(epsilon=1, horizon=1000)
    assert plan.choice is not None
    assert plan.choice.ticks == 1000
    assert (
        plan.choice.name == best(PureDP.of("1/3"), Event(), horizon=1000, width=7).name == plan.counter.name
    )
    simple = DPStabs(SINGLE_COLUMNS, counter="simple").calibrate(epsilon=1, horizon=1000)
    assert plan.counter.variance(1000) < simple.counter.variance(1000) / 3
    assert simple.choice is None


@pytest.mark.parametrize("budget", [{"epsilon": 1}, {"rho": 1}])
def test_where_marginals_take_turns_the_counter_is_simple(budget):
    """As the figures of benchmarks/results/counters_in_dpstabs.txt have it: simple, however long the stream."""
    for horizon in (None, 10, 5000):
        plan = DPStabs(SINGLE_COLUMNS, k=2).calibrate(**budget, horizon=horizon)
        assert (plan.choice, plan.counter.name) == (None, "simple")
        named = DPStabs(SINGLE_COLUMNS, k=2, counter="simple").calibrate(**budget, horizon=horizon)
        assert plan.options() == named.options()
        assert plan.parts() == named.parts()
