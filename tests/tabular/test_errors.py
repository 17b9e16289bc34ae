"""What releases say about their own errors: against exact laws, matrices, and the truth of simulated streams."""

from __future__ import annotations

import csv
import gzip
import math
import os
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_batches import drawn_batches, run

from dpstream import Event, PureDP, Workload
from dpstream.core.contracts import ExpectedTable, Measured
from dpstream.core.contracts.expectations import VARIES
from dpstream.core.counters import PURE_COUNTER_NAMES, CalibratedCounter, counter_by_name
from dpstream.core.counters.intervals import CalibratedIntervalCounter
from dpstream.core.errors import ConfigError, HorizonError
from dpstream.core.graphical import Measurement, tree_cells
from dpstream.core.privacy import DiscreteGaussian, DiscreteLaplace, NoiseSum, Randomness, approximate_to_zcdp
from dpstream.core.schema import Domain
from dpstream.core.tables import count_marginals
from dpstream.families.tabular import Baseline, DPStabs, Pooled, dpstabs_facts
from dpstream.families.tabular.dpstabs_facts import TotalNoise, arrival_weights
from dpstream.mechanisms import AIM, MWEMPGM, OfflineMechanism, OfflinePlan
from dpstream.mechanisms.mwem_pgm import OfflineRun
from dpstream.tools.evaluate import workload_errors
from dpstream_lab.experiments import data_folder, kumar_stream

DOMAIN = Domain(("a", "b", "c", "d"), (2, 3, 4, 5))
PAIRS = Workload.all_k_way(DOMAIN, 2)
EVERY = len(PAIRS.cliques)
#: The probability that a correct program fails one of the statistical tests here, were they not seeded.
FALSE_ALARM = 1e-6
#: Counters whose noise is known draw by draw: whole noises are added up.
OF_INTERVALS = [
    name
    for name in PURE_COUNTER_NAMES
    if isinstance(
        counter_by_name(name, horizon=9).calibrate(PureDP.of(1), Event()), CalibratedIntervalCounter
    )
]


def convolved(law):
    """``Pr[|sum| <= h]`` for h = 0, 1, ..., by adding up probabilities: another way than the module's."""
    pmf = np.array([1.0])
    for noise, count in law.parts:
        reach = math.ceil(40 * noise.variance**0.5) + 40
        one = noise.pmf(np.arange(-reach, reach + 1))
        for _ in range(count):
            pmf = np.convolve(pmf, one / one.sum())
    middle = len(pmf) // 2
    return pmf[middle] + np.concatenate([[0.0], 2.0 * np.cumsum(pmf[middle + 1 :])])


noises = st.one_of(
    st.fractions(Fraction(1, 10), Fraction(12)).map(DiscreteLaplace),
    st.fractions(Fraction(1, 30), Fraction(60)).map(DiscreteGaussian),
)
laws = st.lists(st.tuples(noises, st.integers(1, 3)), min_size=1, max_size=3).map(
    lambda x: NoiseSum(tuple(x))
)


@settings(max_examples=60, deadline=None)
@given(laws, st.floats(0.01, 0.999))
def test_half_widths_are_the_smallest_that_hold_the_probability(law, confidence):
    inside, width = convolved(law), law.half_width(confidence)
    assert width == int(width)
    assert inside[int(width)] >= confidence - 1e-9
    if width:
        assert inside[int(width) - 1] < confidence + 1e-9
    assert NoiseSum.unpack(law.pack()) == law


def test_half_widths_on_the_coarse_grid():
    """Beyond a standard deviation of 1,024: Laplace noise has a quantile in closed form, many draws are normal."""
    from scipy import stats

    scale = 10**6
    for confidence in (0.5, 0.95, 0.999, 0.999999):
        exact = -scale * math.log(1 - confidence)
        width = NoiseSum(((DiscreteLaplace(Fraction(scale)), 1),)).half_width(confidence)
        assert exact <= width <= exact + 3 * scale * 2**0.5 / 1024
        many = NoiseSum(((DiscreteLaplace(Fraction(1)), 10**8), (DiscreteGaussian(Fraction(9)), 10**7)))
        normal = stats.norm.ppf(0.5 + confidence / 2) * many.variance**0.5
        assert normal * 0.9999 <= many.half_width(confidence) <= normal + 3 * many.variance**0.5 / 1024


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 1.5, 0.9999999, float("nan"), "0.9", True])
def test_a_confidence_is_between_0_and_1(confidence):
    for law in (None, NoiseSum(((DiscreteLaplace(Fraction(1)), 1),))):
        with pytest.raises(ConfigError, match=r"allowed: above 0 and up to 0.999999"):
            Measured(np.zeros(2), 1.0, law).half_width(1, confidence)


def foreign(inner):
    """A counter of somebody else's making: only the contract, no intervals to look into."""

    def passed_on(name):
        return lambda self, *arguments: getattr(inner, name)(*arguments)

    methods = ("describe", "init", "step", "variance", "materialize", "check_state")
    facts = {"name": "foreign", "horizon": inner.horizon, "budget": inner.budget, "unit": inner.unit}
    return type("Foreign", (CalibratedCounter,), facts | {name: passed_on(name) for name in methods})()


@pytest.mark.parametrize("name", OF_INTERVALS)
@pytest.mark.parametrize("horizon", [37, 64])
def test_the_totals_variance_is_that_of_the_matrix(name, horizon):
    """Two counters under random weights: noise of the weighted gains, coordinate by coordinate."""
    counter = counter_by_name(name, horizon=horizon).calibrate(PureDP.of("1/3"), Event())
    sizes = np.array([3, 7])
    noise = TotalNoise.fresh(counter, sizes)
    generator = np.random.default_rng(horizon)
    weights = generator.random((2, horizon))
    matrix = counter.materialize(horizon)
    each = np.array([one.variance for one in matrix.scales])
    gains = np.diff(matrix.decoder, axis=0, prepend=0)
    ticks = [0, 0]
    while min(ticks) < horizon:
        chosen = [i for i in (0, 1) if ticks[i] < horizon and generator.random() < 0.7]
        for i in chosen:
            ticks[i] += 1
        noise.add([(i, ticks[i], weights[i, ticks[i] - 1]) for i in chosen])
        left = [weights[i, : ticks[i]] @ gains[: ticks[i]] for i in (0, 1)]
        assert noise.variance == pytest.approx(sum(sizes[i] * (left[i] ** 2 @ each) for i in (0, 1)))


def batches(steps, rows=60, seed=0, deletes=False):
    return drawn_batches(DOMAIN, steps, rows, seed=seed, deletes=rows // 4 if deletes else None)


@pytest.mark.parametrize("deletions", [False, True])
@pytest.mark.parametrize("counter", PURE_COUNTER_NAMES)
def test_where_all_are_measured_everything_is_predicted(counter, deletions):
    """Prediction, release and formula agree; so do the gains' bookkeeping and the counters' outputs."""
    plan = DPStabs(PAIRS, k=EVERY, counter=counter, deletions=deletions, iterations=1)
    plan = plan.calibrate(epsilon="2", horizon=9)
    state, randomness = plan.start(), Randomness.seeded(1)
    predicted = plan.expected_errors(range(1, 10))
    precision = sum(1 / DOMAIN.cells(clique) for clique in PAIRS.cliques)
    sides = 1 + deletions
    for one, batch in zip(predicted, batches(9, deletes=deletions), strict=True):
        synthesis = plan.step(state, batch, randomness)
        variance = plan.counter.variance(one.step) * sides
        assert one.every_step == pytest.approx(variance**0.5)
        assert one.total == pytest.approx((variance / precision) ** 0.5)
        assert synthesis.total_error == pytest.approx(one.total)
        assert list(synthesis.measured) == list(PAIRS.cliques)
        for clique, measured in synthesis.measured.items():
            assert measured.standard_error == pytest.approx(one.every_step)
            if counter in OF_INTERVALS:
                assert measured.law.variance == pytest.approx(variance)
            else:
                assert variance < measured.law.variance < variance + 0.2 * sides  # with what rounding adds
            assert measured.values.shape == DOMAIN.shape(clique)


def hits_of_cells(plan, steps, runs, seed, shrink=1.0):
    """Of all cells at the last step (independent of each other): inside or not."""
    randomness, deletes = Randomness.seeded(seed), plan.recipe.deletions
    found = []
    for number in range(runs):
        data = batches(steps, seed=number, deletes=deletes)
        _, synthesis = run(plan, data, randomness)
        for clique, measured in synthesis.measured.items():
            truth = sum(batch.count([clique])[0] for batch in data).reshape(measured.values.shape)
            width = measured.half_width(1, 0.95) * shrink
            found.append((np.abs(measured.values - truth) <= width).ravel())
    return np.concatenate(found)


@pytest.mark.parametrize(
    ("options", "budget", "steps"),
    [
        ({"counter": "simple"}, {"epsilon": "2"}, 1),
        ({"counter": "block"}, {"epsilon": "2"}, 5),
        ({"counter": "tree"}, {"rho": "1/2"}, 3),
        ({"counter": "hybrid", "deletions": True}, {"epsilon": "2"}, 3),
        ({"counter": "unbounded-block", "past": "literal"}, {"rho": "1/2"}, 5),
        ({"counter": "optimal-tree"}, {"epsilon": "2"}, 5),
        ({"counter": "toeplitz"}, {"rho": "1/2"}, 5),
    ],
)
def test_intervals_cover_what_they_promise(options, budget, steps):
    """Hits are a binomial number with the probability that the convolved law gives to the interval.

    A counter that decodes has a law of at least its variance: no fewer hits than promised, and not many more.
    """
    from scipy import stats

    plan = DPStabs(PAIRS, k=EVERY, iterations=1, **options).calibrate(**budget, horizon=max(steps, 5))
    share = 0.95
    if plan.counter.name in OF_INTERVALS:
        law = run(plan, batches(steps, deletes=plan.recipe.deletions))[1].noise
        share = convolved(law)[int(law.half_width(0.95))]
        assert 0.95 <= share < 0.965
    hits = hits_of_cells(plan, steps, 25, seed=11)
    low, high = (stats.binom.ppf(q, len(hits), share) for q in (FALSE_ALARM / 2, 1 - FALSE_ALARM / 2))
    assert low <= hits.sum() <= (high if share > 0.95 else 0.98 * len(hits))
    assert hits_of_cells(plan, steps, 25, seed=12, shrink=2 / 3).sum() < low, "the control must fail"


@pytest.mark.parametrize("recipe", [
    DPStabs(PAIRS, k=2, counter="hybrid", iterations=1),
    DPStabs(PAIRS, k=3, iterations=1, deletions=True),
    Baseline(PAIRS, MWEMPGM(k=2, iterations=1)),
    Baseline(PAIRS, MWEMPGM(k=1, iterations=1), deletions=True),
])  # fmt: skip
def test_the_totals_error_is_the_error_of_the_total(recipe):
    """Mean square of error over stated error is 1 (kurtosis at most 6, as one Laplace draw: it adds up to less)."""
    from scipy import stats

    plan, randomness, found = recipe.calibrate(epsilon="2"), Randomness.seeded(8), []
    for number in range(300):
        data = batches(3, rows=20, seed=number, deletes=recipe.deletions)
        _, synthesis = run(plan, data, randomness)
        found.append((synthesis.total - 3 * (20 - 5 * recipe.deletions)) / synthesis.total_error)
    # The normal limit of a mean of 300 squares of variance at most 5.
    bound = stats.norm.isf(FALSE_ALARM / 2) * (5 / 300) ** 0.5
    squares = np.mean(np.square(found))
    assert abs(squares - 1) < bound
    assert abs(squares * 1.5**2 - 1) > bound, "two thirds of the stated error must fail"


def test_a_public_total_has_no_error():
    unit = Event("replace")
    for recipe in (DPStabs(PAIRS, k=2), Baseline(PAIRS, MWEMPGM(k=2))):
        plan = recipe.calibrate(epsilon="1", unit=unit)
        _, synthesis = run(plan, batches(2))
        assert synthesis.total == 120
        assert synthesis.total_error == 0.0
        assert [one.total for one in plan.expected_errors([1, 5])] == [0.0, 0.0]


def test_measurements_are_passed_on_only_where_nothing_is_selected():
    """Being selected again is evidence of large noise: intervals of such marginals would miss too often."""
    plan = DPStabs(PAIRS, k=EVERY).calibrate(epsilon="1")
    state, synthesis = run(plan, batches(1))
    assert tuple(synthesis.measured) == tuple(synthesis.errors) == PAIRS.cliques
    for i, measured in enumerate(synthesis.measured.values()):
        np.testing.assert_array_equal(measured.values.ravel(), state.sides[0].estimates[plan.cells.part(i)])
    for recipe in (DPStabs(PAIRS, k=2), DPStabs(PAIRS, k=EVERY - 1), Baseline(PAIRS)):
        _, synthesis = run(recipe.calibrate(epsilon="1"), batches(1))
        assert synthesis.measured == {}
        assert synthesis.marginal(PAIRS.cliques[0]).standard_error is None


def test_no_total_is_predicted_where_steps_may_end_early():
    """Marginals of one turn that do not fit into one model: how many a step measures follows from the data."""
    size = tree_cells(PAIRS.domain, PAIRS.cliques)
    for k in (2, EVERY):
        roomy = DPStabs(PAIRS, k=k, max_cells=size).calibrate(epsilon="1")
        tight = DPStabs(PAIRS, k=k, max_cells=max(PAIRS.domain.cells(c) for c in PAIRS.cliques) + 12)
        assert roomy.expected_errors([3])[0].total is not None
        assert tight.calibrate(epsilon="1").expected_errors([3])[0].total is None


def test_a_counter_of_somebody_else():
    """Its variance is known and nothing else: wider intervals, and a total's error only where all are measured."""
    plans = []
    for k in (EVERY, 2):
        plan = DPStabs(PAIRS, k=k, counter="tree").calibrate(epsilon="1", horizon=9)
        plans.append((plan, replace(plan, counter=foreign(plan.counter))))
    own, other = (run(plan, batches(2))[1] for plan in plans[0])
    assert other.total_error == pytest.approx(own.total_error)
    assert other.noise is None
    clique = PAIRS.cliques[0]
    exact, wide = (s.measured[clique].half_width(1, 0.95) for s in (own, other))
    assert exact < wide == pytest.approx(own.measured[clique].standard_error * 20**0.5)
    selected = plans[1][1]
    assert run(selected, batches(2))[1].total_error is None
    assert [one.total for one in selected.expected_errors([1, 7])] == [None, None]


def test_predictions_where_marginals_are_selected(monkeypatch):
    plan = DPStabs(PAIRS, k=2).calibrate(epsilon="1", horizon=50)
    _, synthesis = run(plan, batches(50, rows=30), Randomness.seeded(2))
    (one,) = plan.expected_errors([50])
    assert synthesis.total_error / 2 < one.total < synthesis.total_error * 2
    monkeypatch.setattr(dpstabs_facts, "MAX_PREDICTED", 20)
    assert [one.total is None for one in plan.expected_errors([10, 11])] == [False, True]
    for step in (0, -1, 1.5, True, "1"):
        for recipe in (plan, Baseline(PAIRS).calibrate(epsilon="1")):
            with pytest.raises(ConfigError, match="allowed: 1, 2"):
                recipe.expected_errors([step])
    with pytest.raises(HorizonError, match="step 51 lies beyond the horizon"):
        plan.expected_errors([51])


def test_predictions_of_the_baseline():
    """One marginal a run, the smallest: nothing is left to the data, so the prediction is exact."""
    for deletions in (False, True):
        recipe = Baseline(PAIRS, MWEMPGM(k=1), deletions=deletions)
        plan = recipe.calibrate(epsilon="1")
        predicted = plan.expected_errors([3])[0]
        _, synthesis = run(plan, batches(3, deletes=deletions))
        assert synthesis.total_error == pytest.approx(predicted.total)
        runs = 3 * (1 + deletions)
        assert predicted.every_step == pytest.approx((plan.offline.noise.variance * runs) ** 0.5)
    three = Baseline(PAIRS, MWEMPGM(k=3)).calibrate(epsilon="1")
    _, synthesis = run(three, batches(20))
    (predicted,) = three.expected_errors([20])
    assert synthesis.total_error / 2 < predicted.total < synthesis.total_error * 2


class Silent(OfflineMechanism):
    """An offline mechanism that does not tell its noise."""

    def calibrate(self, workload, budget, unit):
        return SilentPlan(MWEMPGM(k=1).calibrate(workload, budget, unit))


class SilentPlan(OfflinePlan):
    def __init__(self, inner):
        self.inner, self.budget, self.unit, self.workload = inner, inner.budget, inner.unit, inner.workload

    def parts(self):
        return self.inner.parts()

    def options(self):
        return self.inner.options()

    def run(self, batch, part, randomness, prior=None):
        return OfflineRun(self.inner.run(batch, part, randomness, prior).model)


def test_an_offline_mechanism_that_does_not_tell_its_noise():
    plan = Baseline(PAIRS, Silent()).calibrate(epsilon="1")
    state, synthesis = run(plan, batches(2))
    assert synthesis.total_error is None
    assert plan.expected_errors([1]) is None
    assert plan.unpack_state(plan.pack_state(state)).variance is None


def test_weights_of_arrivals_are_those_of_the_mean():
    plan = DPStabs(PAIRS, k=EVERY).calibrate(epsilon="1")
    _, synthesis = run(plan, batches(1))
    sums = np.array([synthesis.counts[clique].sum() for clique in PAIRS.cliques])
    precision = np.array([1 / DOMAIN.cells(clique) for clique in PAIRS.cliques])
    assert synthesis.total == pytest.approx(sums @ precision / precision.sum())
    increments = [Measurement(clique, np.zeros(DOMAIN.cells(clique)), 2.0) for clique in PAIRS.cliques]
    np.testing.assert_allclose(arrival_weights(increments), precision / precision.sum())


# Real streams


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("DPSTREAM_DATA"), reason="DPSTREAM_DATA is not set")
@pytest.mark.parametrize(
    ("budget", "avg_we", "max_we"),
    [(approximate_to_zcdp(1, "1e-9"), 0.00068, 0.0030), (PureDP.of(1), 0.00085, 0.0060)],
    ids=["approximate", "pure"],
)
def test_aim_on_all_of_adult(budget, avg_we, max_we):
    """Within 1.3 of the AIM of its authors (AvgWE 0.00052), and better than MWEM+PGM at any budget (0.0010, 0.0063)."""
    stream = kumar_stream("Adult-ordered-bs-200", data_folder(None))
    workload = Workload.all_k_way(stream.domain, 2)
    plan = AIM().calibrate(workload, budget, Event())
    counts = count_marginals(stream.codes, stream.domain, plan.counted)
    model = plan.run_on(counts, Randomness.seeded(1)).model
    truth = count_marginals(stream.codes, stream.domain, workload.cliques)
    found = workload_errors(truth, model.marginals(workload.cliques), len(stream.codes))
    assert found.as_dict()["AvgWE"] < avg_we
    assert found.as_dict()["MaxWE"] < max_we


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("DPSTREAM_DATA"), reason="DPSTREAM_DATA is not set")
def test_predicted_errors_of_the_number_of_records_hold_what_is_not_measured():
    """230 months of evictions, without noise: what a table that goes on as the last epoch went is off by, as a root
    mean square over the steps from 10 on that end no epoch, beside the prediction (with noise that does not matter).
    """
    file = data_folder(None) / "eviction" / "eviction.csv.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        months = [row["file_date"][:7].split("-") for row in csv.DictReader(lines)]
    first = min(int(year) * 12 + int(month) for year, month in months)
    numbers = np.bincount([int(year) * 12 + int(month) - first for year, month in months]).astype(float)
    plan = Pooled(Workload.all_k_way(Domain(("a",), (2,)), 1)).calibrate(epsilon=10)
    until, off, steps, last = np.concatenate([[0.0], np.cumsum(numbers)]), [], [], 0
    while last < len(numbers):
        border = plan.epochs.after(last)
        following = range(border + 1, min(plan.epochs.after(border), len(numbers) + 1))
        rate = (until[min(border, len(numbers))] - until[last]) / (border - last)
        for step in following if border >= 10 else ():
            off.append(until[step] - until[border] - rate * (step - border))
            steps.append(step)
        last = border
    truth, mean = float(np.sqrt(np.mean(np.square(off)))), float(numbers.mean())
    declared = float(np.sqrt(np.mean(np.diff(numbers) ** 2)) / mean)
    for varies in (VARIES, declared):
        table = ExpectedTable(int(until[-1]), mean, "grows", varies=varies)
        found = np.array([one.total for one in plan.expected_errors(steps, table)])
        assert 0.8 < float(np.sqrt(np.mean(found**2))) / truth < 1.25, varies
    still = ExpectedTable(int(until[-1]), mean, "grows", varies=0.0)
    assert max(one.total for one in plan.expected_errors(steps, still)) < 0.05 * truth, (
        "noise alone, as before"
    )
