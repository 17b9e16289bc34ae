"""Black boxes hold their budget under replace-one with t public: sensitivities by brute force, exact laws."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.graphical import Measurement, Model
from dpstream.core.privacy import ZCDP, Budget, DiscreteLaplace, Event, PureDP, Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload, count_marginals
from dpstream.families.growing.blackbox import BlackBox, Counts, Database, LinearQuery
from dpstream.families.growing.boxes import MWEMPGMBox, OwnMechanism, SmallDB, _Counted
from dpstream.families.growing.tables import ModelTable, PowerLaw, RowsTable, WeightsTable
from dpstream.mechanisms import MWEMPGM
from dpstream_lab.conformance import check_black_box

DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
PAIRS = Workload.all_k_way(DOMAIN, 2)
ONE = Workload.all_k_way(Domain(("a",), (3,)), 1)
BUDGETS: list[Budget] = [PureDP(Fraction(3, 2)), ZCDP(Fraction(1, 4))]


def database(codes: NDArray[np.int32], reads: Workload | Counts) -> Database:
    return Database(len(codes), tuple(count_marginals(codes, reads.domain, reads.cliques)))


def records(t: int, seed: int = 0) -> NDArray[np.int32]:
    generator = np.random.default_rng(seed)
    a = generator.integers(0, 2, t)
    b = np.where(a == 1, 2, generator.integers(0, 3, t))
    return np.column_stack([a, b, (a + b) % 2]).astype(np.int32)


BOXES: list[BlackBox[Any]] = [MWEMPGMBox(PAIRS), SmallDB(PAIRS, size=3)]


@pytest.mark.parametrize("box", BOXES, ids=lambda box: box.name)
@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "zcdp"])
def test_a_release_answers_and_is_drawn_from(box: BlackBox[Any], budget: Budget) -> None:
    report = check_black_box(box, runs=100)
    assert report.passed, str(report)
    codes = records(4000)
    released = box.run(budget, database(codes, box.reads), Randomness.seeded(1)).released
    query = LinearQuery((0, 1), np.array([0, 0, 0, 0, 0, 1.0]))
    truth = np.mean((codes[:, 0] == 1) & (codes[:, 1] == 2))
    answer = float(query.weights @ released.shares([query.clique])[0])
    assert answer == pytest.approx(truth, abs=0.2 if box.name == "smalldb" else 0.06)
    drawn = released.sample(3000, 5)
    assert np.array_equal(drawn, released.sample(3000, 5))
    assert np.mean((drawn[:, 0] == 1) & (drawn[:, 1] == 2)) == pytest.approx(answer, abs=0.05)


@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "zcdp"])
def test_where_nothing_is_left_to_select_all_of_the_budget_measures(budget: Budget) -> None:
    """A model that is too small for all of them still selects."""
    plan = MWEMPGM(k=3).calibrate(PAIRS, budget, Event("replace"))
    (measure,) = plan.parts()
    assert measure.total == budget.amount
    # Under zCDP each of them by itself.
    assert measure.times == (1 if isinstance(budget, PureDP) else 3)
    full = MWEMPGM(k=3, max_cells=8).calibrate(PAIRS, budget, Event("replace"))
    assert [part.name for part in full.parts()] == ["select", "measure"]
    run = MWEMPGMBox(PAIRS, MWEMPGM(k=3)).run(budget, database(records(500), PAIRS), Randomness.seeded("all"))
    assert not any("chosen" in output.query for output in run.outputs)
    assert [output.noise for output in run.outputs] == [noise for _, noise in plan._noises]


def test_few_cells_are_measured_together_where_answers_have_less_noise() -> None:
    """360 cells, 20 times those of a pair: under pure DP four pairs with half of the budget have 64 times the variance
    of the whole as a histogram, under zCDP 8 times. The mean error halves. Control: with ``k``, all is as before."""
    domain, generator, far = Domain(tuple("abcd"), (3, 4, 5, 6)), np.random.default_rng(4), list[float]()
    pairs = Workload.all_k_way(domain, 2)
    cells = generator.choice(360, 1000, p=generator.dirichlet(np.full(360, 0.1)))
    codes = np.column_stack(np.unravel_index(cells, domain.sizes)).astype(np.int32)
    for recipe in (MWEMPGM(), MWEMPGM(k=4)):
        box, errors = MWEMPGMBox(pairs, recipe), list[float]()
        for seed, budget in itertools.product(range(5), (PureDP.of("1/2"), ZCDP(Fraction(1, 100)))):
            made = box.run(budget, database(codes, box.reads), Randomness.seeded(f"{seed}"))
            together = [one.clique for one in made.measured] == [(0, 1, 2, 3)]
            assert together == (isinstance(budget, PureDP) and recipe.k is None)
            if isinstance(budget, PureDP):
                moved = box.following(made, ModelTable(Model.uniform(domain, 1.0))).shares(pairs.cliques)
                true = count_marginals(codes, domain, pairs.cliques)
                errors += [float(np.abs(x - y / 1000).sum()) for x, y in zip(moved, true, strict=True)]
        far.append(float(np.mean(errors)))
    assert far[0] < 0.6 * far[1]


@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "zcdp"])
def test_a_release_moves_by_what_is_signal(budget: Budget) -> None:
    """Noise moves hardly anything: what a run gives by itself is far worse than the uniform table, the control. What a
    run does not measure stays. (No chance: the noise is seeded.)"""
    data, box = database(records(1000), PAIRS), MWEMPGMBox(PAIRS, MWEMPGM(k=3))
    uniform = ModelTable(Model.uniform(DOMAIN, 1.0))

    def far(table: ModelTable) -> float:
        pairs = zip(table.shares(PAIRS.cliques), data.counts, strict=True)
        return sum(float(np.abs(made - true / 1000).sum()) for made, true in pairs)

    noisy, alone = list[float](), list[float]()
    small = Fraction(1, 10**4) if isinstance(budget, PureDP) else Fraction(1, 10**8)
    for seed in range(20):
        made = box.run(budget.scaled(small), data, Randomness.seeded(f"small {seed}"))
        noisy.append(far(box.following(made, uniform)))
        alone.append(far(made.released))
    assert np.mean(noisy) < 1.02 * far(uniform) < 0.9 * np.mean(alone)
    made = box.run(budget, data, Randomness.seeded("large"))
    known = box.following(made, uniform)
    assert far(known) < 0.2
    column = replace(made, measured=(Measurement((0,), data.counts[0].reshape(2, 3).sum(1), 1.0),))
    assert far(box.following(column, known)) < 0.2


def _all_of(box: SmallDB) -> NDArray[np.int64]:
    assert box.size is not None
    return box.databases(box.size)


@pytest.mark.parametrize(("universe", "size"), [(2, 1), (2, 7), (3, 3), (4, 2), (5, 5), (9, 1)])
def test_smalldb_looks_at_every_database_once(universe: int, size: int) -> None:
    box = SmallDB(Workload.all_k_way(Domain(("a",), (universe,)), 1), size=size)
    found = {tuple(one) for one in _all_of(box).tolist()}
    wanted = {
        tuple(np.bincount(kinds, minlength=universe).tolist())
        for kinds in itertools.combinations_with_replacement(range(universe), size)
    }
    assert found == wanted
    assert len(_all_of(box)) == box.candidates(size)
    counts = np.arange(universe)
    by_hand = [
        max(abs(size * int(c) - 10 * have) for c, have in zip(counts, one, strict=True))
        for one in _all_of(box)
    ]
    assert box._distances(_all_of(box), counts, 10, size).tolist() == by_hand


@pytest.mark.parametrize(("universe", "size"), [(2, 1), (2, 3), (3, 2), (4, 3), (5, 2)])
def test_some_table_holds_what_is_promised_of_the_best_one(universe: int, size: int) -> None:
    """All databases of 12 records, however much is paid."""
    workload, t = Workload.all_k_way(Domain(("a",), (universe,)), 1), 12
    box = SmallDB(workload, size=size)
    bound, tables = box.law.alpha(1.0, math.inf), _all_of(box)
    for base in itertools.combinations_with_replacement(range(universe), t):
        counts = np.bincount(base, minlength=universe)
        best = box._distances(tables, counts, t, size).min() / (size * t)
        assert best <= bound


def test_smalldb_says_how_large_it_would_be() -> None:
    with pytest.raises(LimitError, match=r"would compare 293930 databases.*up to 200000"):
        SmallDB(Workload.all_k_way(Domain(("a",), (10,)), 1), size=12)
    with pytest.raises(LimitError, match=r"at least 10201 databases of 1 records.*up to 1960"):
        SmallDB(Workload.all_k_way(Domain(("a", "b"), (101, 101)), 1), size=1)
    with pytest.raises(LimitError, match="at least 1000000000 databases"):
        SmallDB(ONE, size=10**9)
    with pytest.raises(ConfigError, match=r"size = '3'.*a whole number"):
        SmallDB(ONE, size="3")  # type: ignore[arg-type]
    with pytest.raises(LimitError, match="entries"):
        SmallDB(Workload.all_k_way(Domain(("a",), (3000,)), 1))
    fitted = SmallDB(ONE).fitted(0.5)
    assert fitted.size == math.ceil(math.log(3) / 0.25)
    assert SmallDB(ONE).fitted(None).size == SmallDB(ONE).fitted(7.0).size == 2


# A user's own function.


def histogram(budget: Budget, data: Database, randomness: Randomness) -> NDArray[np.float64]:
    assert isinstance(budget, PureDP)
    noisy = data.counts[0] + randomness.draw(DiscreteLaplace(2 / budget.epsilon), len(data.counts[0]))
    positive: NDArray[np.float64] = np.maximum(noisy, 0) + 1e-9
    return positive


def own(function: Any = histogram, **more: Any) -> OwnMechanism:
    return OwnMechanism(function, Counts(ONE.domain, ONE.cliques), "histogram 1", **more)


def test_an_own_function_gives_weights_or_records() -> None:
    data = database(np.array([[0], [1], [1], [2]], np.int32), ONE)
    weights = own().run(PureDP(Fraction(100)), data, Randomness.seeded(1)).released
    assert isinstance(weights, WeightsTable)
    assert weights.shares([(0,)])[0].tolist() == pytest.approx([0.25, 0.5, 0.25])
    rows = own(lambda *_: np.array([[0], [2]])).run(PureDP(Fraction(1)), data, Randomness.seeded(1)).released
    assert isinstance(rows, RowsTable)
    assert rows.shares([(0,)])[0].tolist() == [0.5, 0.0, 0.5]
    assert sorted(rows.sample(5, 1).ravel().tolist()) in ([0, 0, 0, 2, 2], [0, 0, 2, 2, 2])
    assert own(accuracy=PowerLaw(1.0, 3.0)).options()["version"] == "histogram 1"


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (np.array([[0], [3]]), "the function's codes leave the domain"),
        (np.array([1.0, 2.0]), "must return a table"),
        (np.array([1.0, -2.0, 4.0]), "must return a table"),
        (np.zeros(3), "must return a table"),
        (np.array([1.0, math.nan, 4.0]), "must return a table"),
        (np.zeros((0, 1), int), "must return a table"),
        (np.array(["a"]), "must return a table"),
    ],
    ids=["codes", "too few", "negative", "nothing", "not a number", "no records", "text"],
)
def test_what_is_no_table_is_refused(wrong: NDArray[Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        own(lambda *_: wrong).run(PureDP(Fraction(1)), Database(0, ()), Randomness.seeded(1))


def test_a_database_of_another_size_than_it_says_is_refused() -> None:
    """Twice the t would halve the noise of a classifier."""
    with pytest.raises(ConfigError, match="differs from the number of records"):
        Database(3, (np.array([3, 0]), np.array([1, 1])))


def test_declarations_are_checked() -> None:
    counts = _Counted(Counts(PAIRS.domain, PAIRS.cliques), database(records(3), PAIRS))
    plan = MWEMPGM().calibrate(PAIRS, PureDP(Fraction(1)), Event("replace"))
    for make, words in (
        (lambda: OwnMechanism(histogram, Counts(ONE.domain, ONE.cliques), ""), "no version"),
        (lambda: own(definitions=("zcdp",)), "zCDP budgets only"),
        (lambda: PowerLaw(0.0, 1.0), "p = 0"),
        (lambda: LinearQuery((0,), np.array([0.0, 1.5])), "outside"),
        (lambda: LinearQuery((0,), np.ones(2)).check(ONE.domain), "2 values for 3 cells"),
        (lambda: plan.run(counts, "inserts", Randomness.seeded(1)), "must be declared"),
    ):
        with pytest.raises(ConfigError, match=words):
            make()
