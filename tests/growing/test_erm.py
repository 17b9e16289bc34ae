"""Private empirical risk minimisation: sensitivity against exact minimisers, certificates, predictions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_batches import stored

from dpstream.checks import NoiseTape
from dpstream.core.contracts import pack_fields, unpack_fields
from dpstream.core.errors import ConfigError, LimitError, SchemaError
from dpstream.core.privacy import ZCDP, Budget, PureDP, Randomness
from dpstream.core.schema import Boolean, Categorical, Domain, Integer, Schema
from dpstream.core.tables import EncodedBatch, count_marginals
from dpstream.families.growing import ERM, BBImprover, BBScheduler, ClassifierPlan, Counts, Database
from dpstream.families.growing.erm_run import (
    LOSSES as KINDS,
)
from dpstream.families.growing.erm_run import (
    ErmRun,
    FeatureMap,
    LinearClassifier,
    Rows,
    _descend,
    minimise,
)

SCHEMA = Schema(
    (
        Categorical("zip", ["a", "b", "c"]),
        Boolean("late"),
        Integer("age", edges=[0, 20, 40, 60, 120], missing="missing"),
        Boolean("paid"),
    )
)
DOMAIN = SCHEMA.domain
FEATURES = FeatureMap(DOMAIN, "late", numbers=(("age", 4),))
LOSSES = ("logistic", "svm")
BUDGETS: dict[str, Budget] = {"pure": PureDP.of("1/2"), "zcdp": ZCDP.of("1/8")}
#: 64 bits of mantissa on the platforms of the tests: the oracle's steps are 2,000 times finer than the solver's.
Long = np.longdouble


def records(t: int, seed: int, domain: Domain = DOMAIN) -> np.ndarray:
    """The label leans on the first and last column."""
    g = np.random.default_rng(seed)
    codes = np.stack([g.integers(0, size, t) for size in domain.sizes], axis=1)
    codes[:, 1] = g.random(t) < 0.2 + 0.3 * (codes[:, 0] == 0) + 0.3 * codes[:, -1]
    return codes.astype(np.int32)


def erm(**options: Any) -> ERM:
    return ERM(SCHEMA, "late", as_numbers=("age",), **options)


def database(codes: np.ndarray) -> Database:
    return Database(len(codes), tuple(count_marginals(codes, DOMAIN, erm().reads.cliques)))


def rows_of(features: FeatureMap, codes: np.ndarray) -> Rows:
    (counts,) = count_marginals(codes, features.domain, [features.clique])
    return Rows(features, counts, len(codes))


def labels_of(features: FeatureMap, codes: np.ndarray) -> np.ndarray:
    """1 for the positive class, else -1."""
    return np.where(codes[:, features.domain.index(features.target)] == features.positive, 1.0, -1.0)


def margins_of(features: FeatureMap, codes: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    return features.margins([codes[:, position] for position in features.positions], coefficients)


def loss_of(name: str, margins: np.ndarray) -> np.ndarray:
    """The losses whose derivatives the package has."""
    if name == "logistic":
        return np.logaddexp(0.0, -margins)
    corner = (1.5 - margins) ** 2 / 2
    return np.where(margins > 1.5, 0.0, np.where(margins < 0.5, 1.0 - margins, corner))


def risk(name: str, codes: np.ndarray, coefficients: np.ndarray) -> float:
    margins = margins_of(FEATURES, codes, coefficients) * labels_of(FEATURES, codes)
    return float(loss_of(name, margins).mean())


def run_of(features: FeatureMap, loss: str, lam: float, t: int) -> ErmRun:
    return ErmRun(features, KINDS[loss], lam, PureDP.of(1), t)  # type: ignore[index]


def dense(features: FeatureMap, codes: np.ndarray) -> np.ndarray:
    """The features of every record, written down."""
    blocks = [block[codes[:, p]] for block, p in zip(features.blocks, features.positions, strict=True)]
    if features.has_constant:
        blocks.append(np.full((len(codes), 1), features.scale))
    return np.concatenate(blocks, axis=1)


def exact_minimiser(features: FeatureMap, name: str, lam: float, codes: np.ndarray) -> np.ndarray:
    """Newton's method in extended precision, with steps halved while the gradient does not shrink."""
    x = dense(features, codes).astype(Long) * labels_of(features, codes)[:, None]
    theta = np.zeros(x.shape[1], Long)

    def slopes(margins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if name == "logistic":
            share = 1 / (1 + np.exp(margins))
            return -share, share * (1 - share)
        return -np.clip(Long(1.5) - margins, 0, 1), ((margins > 0.5) & (margins < 1.5)).astype(Long)

    def gradient(point: np.ndarray) -> np.ndarray:
        return x.T @ slopes(x @ point)[0] / len(x) + lam * point

    for _ in range(200):
        now = gradient(theta)
        if np.sqrt((now * now).sum()) < 1e-17:
            break
        curvature = (x * slopes(x @ theta)[1][:, None]).T @ x / len(x) + lam * np.eye(x.shape[1])
        # The inverse in double precision is good enough for a direction; the gradient decides.
        step = np.linalg.solve(curvature.astype(float), now.astype(float)).astype(Long)
        length = Long(1)
        while length > 1e-9 and (gradient(theta - length * step) ** 2).sum() >= (now * now).sum():
            length /= 2
        theta = theta - length * step
    assert float(np.sqrt((gradient(theta) ** 2).sum())) < 1e-15
    return theta


@st.composite
def feature_maps(draw: st.DrawFn) -> FeatureMap:
    sizes = draw(st.lists(st.integers(1, 6), min_size=2, max_size=5))
    sizes[0] = max(sizes[0], 2)
    domain = Domain(tuple(f"c{i}" for i in range(len(sizes))), tuple(sizes))
    names = [name for name, size in zip(domain.names[1:], sizes[1:], strict=True) if size >= 3]
    numbers = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    bins = tuple((name, draw(st.integers(2, domain.sizes[domain.index(name)]))) for name in numbers)
    return FeatureMap(domain, "c0", numbers=bins)


@given(feature_maps())
@settings(max_examples=60, deadline=None)
def test_no_record_has_a_norm_above_one(features: FeatureMap) -> None:
    """Exactly, as rational numbers, for every record that the domain allows."""
    largest = sum(
        max(sum(Fraction(value) ** 2 for value in row) for row in block.tolist()) for block in features.blocks
    )
    largest += Fraction(features.scale) ** 2 * features.has_constant
    assert largest <= 1
    assert len(features.names()) == features.dimension == len(set(features.names()))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_minimiser_moves_by_two_over_lam_t_at_most(loss: str) -> None:
    """Every replacement of one record in many small databases, against exact minimisers; the bound is reached."""
    domain = Domain(("a", "y"), (3, 2))
    features = FeatureMap(domain, "y")
    every = [np.array(code, np.int32) for code in itertools.product(range(3), range(2))]
    worst = 0.0
    for lam in (1.0, 2.0**-5):
        for chosen in itertools.combinations_with_replacement(range(6), 2):
            points = [
                exact_minimiser(features, loss, lam, np.stack([every[i] for i in (*chosen, last)]))
                for last in range(6)
            ]
            for one, two in itertools.combinations(points, 2):
                worst = max(worst, float(np.sqrt(((one - two) ** 2).sum())) * lam * 3 / 2)
    assert worst <= 1.0 + 1e-9
    # The rounded hinge has slope -1 at 0: a changed label moves the minimiser by the whole bound.
    assert worst > (0.999 if loss == "svm" else 0.4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("budget", list(BUDGETS))
def test_rounded_points_of_neighbours_are_within_the_sensitivity(loss: str, budget: str) -> None:
    """What the noise is added to, for random databases and replacements chosen to move it far."""
    box = erm(loss=loss)
    for t, seed in ((20, 0), (300, 1)):
        codes = records(t, seed)
        run = box.plan(BUDGETS[budget], t)
        l1, l2_squared = run.sensitivity

        def rounded(changed: np.ndarray, run: ErmRun = run) -> np.ndarray:
            return np.rint(minimise(rows_of(FEATURES, changed), run) / run.step)

        base = rounded(codes)
        for other in itertools.product(range(3), range(2), (0, 4), range(2)):
            near = codes.copy()
            near[0] = other
            moved = np.abs(rounded(near) - base)
            assert moved.sum() <= l1
            assert Fraction(int((moved**2).sum())) <= l2_squared


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("lam", [0.5, 2.0**-8, 2.0**-13])
def test_the_solver_keeps_its_certificate(loss: str, lam: float) -> None:
    """Against the exact minimiser; also where only plain steps are allowed, as in the proof of termination."""
    codes = records(400, 7)
    certificate = run_of(FEATURES, loss, lam, len(codes))
    certificate.check()
    rows = rows_of(FEATURES, codes)
    exact = exact_minimiser(FEATURES, loss, lam, codes)
    allowed = certificate.share / (lam * len(codes))
    assert np.linalg.norm((minimise(rows, certificate) - exact).astype(float)) <= allowed
    assert float(np.linalg.norm(exact.astype(float))) <= certificate.ball / 2
    plain = math.ceil(4 * certificate.condition * math.log(8 * certificate.condition / certificate.gradient))
    slow = _descend(rows, certificate, plain, 0.0)
    assert slow is not None
    assert np.linalg.norm((slow - exact).astype(float)) <= allowed


@pytest.mark.parametrize("loss", LOSSES)
def test_computed_gradients_are_within_the_bound_on_rounding(loss: str) -> None:
    """Against extended precision, far from the origin and with several chunks of different records."""
    domain = Domain(("a", "y", "b", "c"), (50, 2, 40, 60))
    features, lam = FeatureMap(domain, "y"), 2.0**-12
    codes = records(9000, 3, domain)
    certificate = run_of(features, loss, lam, len(codes))
    g = np.random.default_rng(0)
    x = dense(features, codes).astype(Long) * labels_of(features, codes)[:, None]
    rows = rows_of(features, codes)
    assert len(rows.labels) > 8192
    for length in (0.0, 0.3, 1.0):
        theta = g.standard_normal(features.dimension)
        theta *= length * certificate.ball / np.linalg.norm(theta)
        margins = x @ theta.astype(Long)
        slope = -1 / (1 + np.exp(margins)) if loss == "logistic" else -np.clip(Long(1.5) - margins, 0, 1)
        exact = x.T @ slope / len(x) + Long(lam) * theta
        found = rows.gradient(KINDS[loss], lam, theta)
        assert np.linalg.norm((found - exact).astype(float)) <= certificate.rounding


def test_multiplicities_change_nothing() -> None:
    """Different records with weights give the gradient of all records, and so do counts of all combinations."""
    codes = records(500, 5)
    counts = np.zeros(DOMAIN.sizes, np.int64)
    np.add.at(counts, tuple(codes.T), 1)
    of_counts = Rows(FEATURES, counts.ravel(), len(codes))
    assert len(rows_of(FEATURES, codes).labels) <= 60
    theta = np.random.default_rng(1).standard_normal(FEATURES.dimension)
    loss = KINDS["logistic"]
    x = dense(FEATURES, codes) * labels_of(FEATURES, codes)[:, None]
    expected = x.T @ loss.slope(x @ theta) / len(x) + 0.1 * theta
    for rows in (rows_of(FEATURES, codes), of_counts):
        assert np.allclose(rows.gradient(loss, 0.1, theta), expected, atol=1e-13)
    assert erm().reads == Counts(DOMAIN, ((0, 1, 2, 3),))
    part = FeatureMap(DOMAIN, "late", columns=("paid", "zip"))
    assert ERM(SCHEMA, "late", predictors=("paid", "zip")).reads == Counts(DOMAIN, ((0, 1, 3),))
    assert part.positions == (3, 0)
    few = Rows(part, counts.sum(axis=2).ravel(), len(codes))
    whole, flat = rows_of(part, codes), np.linspace(-1, 1, part.dimension)
    assert np.allclose(few.gradient(loss, 0.1, flat), whole.gradient(loss, 0.1, flat), atol=1e-13)
    wide = Schema(tuple(Boolean(f"c{i}") for i in range(24)))
    with pytest.raises(ConfigError, match="too many combinations"):
        ERM(wide, "c0")


def test_slopes_are_derivatives() -> None:
    for name in LOSSES:
        loss, m = KINDS[name], np.linspace(-3, 3, 601)
        numeric = (loss_of(name, m + 1e-6) - loss_of(name, m - 1e-6)) / 2e-6
        assert np.allclose(loss.slope(m), numeric, atol=1e-6)
        assert (loss.slope(m) >= -1).all()
        assert (loss.slope(m) <= 0).all()
        bends = np.abs(np.diff(loss.slope(m))) / np.diff(m)
        assert bends.max() <= loss.smoothness * (1 + 1e-9)
        assert float(loss_of(name, np.zeros(1))[0]) <= loss.at_zero


@pytest.mark.parametrize("budget", list(BUDGETS))
def test_a_run_draws_one_noise_for_each_coefficient(budget: str) -> None:
    codes, tape = records(200, 2), NoiseTape()
    run = erm().plan(BUDGETS[budget], len(codes))
    made = erm().run(BUDGETS[budget], database(codes), tape).released
    assert tape.draws == [(run.noise, FEATURES.dimension)]
    point = minimise(rows_of(FEATURES, codes), run)
    assert np.abs(made.measured - point).max() <= run.step / 2
    assert made.standard_error == run.standard_error
    assert made.lam == run.lam
    # Scales from the definitions: D1/epsilon and D2^2/(2 rho), in steps of the grid.
    root = math.sqrt(FEATURES.dimension)
    moved = 2 / (run.lam * len(codes)) / run.step
    if budget == "pure":
        assert 1.0 <= float(run.noise.scale) / (root * moved / 0.5) <= 1.01  # type: ignore[union-attr]
    else:
        assert 1.0 <= float(run.noise.sigma_squared) / (moved**2 / 0.25) <= 1.01  # type: ignore[union-attr]


@pytest.mark.parametrize("loss", LOSSES)
def test_the_bound_on_excess_risk_holds(loss: str) -> None:
    """Mean over 40 runs against the best classifier within the radius; the bound is far from tight."""
    codes, budget = records(4000, 4), ZCDP.of("1/8")
    box = erm(loss=loss, radius=3.0)
    best = exact_minimiser(FEATURES, loss, 2.0**-13, codes).astype(float)
    best *= min(1.0, 3.0 / np.linalg.norm(best))
    source = Randomness.seeded(1)
    runs = [box.run(budget, database(codes), source).released for _ in range(40)]
    mean = np.mean([risk(loss, codes, made.coefficients) for made in runs])
    excess = float(mean) - risk(loss, codes, best)
    bound = box.predicted_excess(budget, len(codes))
    assert 0.0 < excess <= bound < KINDS[loss].at_zero  # type: ignore[index]


def test_regularisation_is_the_best_of_the_bound() -> None:
    box, t = erm(), 5000
    for budget in BUDGETS.values():
        lam = box.plan(budget, t).lam
        assert math.ldexp(lam, 60).is_integer()
        here = box.predicted_excess(budget, t)
        for factor in (0.8, 1.25):
            assert here <= erm(lam=lam * factor).predicted_excess(budget, t) + 1e-9
    # With little budget the noise in the mean loss is kept at 1/32, and nothing has to be shrunk.
    for loss in LOSSES:
        weak = erm(loss=loss).plan(PureDP.of("1/10"), 1000)
        assert 0.9 < 16 * weak.loss.smoothness * weak.standard_error**2 < 1.01
        assert weak.shrinkage == 1.0


def test_classifiers_tell_classes_apart_and_survive_packing() -> None:
    codes = records(20_000, 9)
    made = erm().run(ZCDP.of(2), database(codes), Randomness.seeded(3)).released
    assert made.shrinkage == 1.0
    scores = margins_of(FEATURES, codes, made.coefficients)
    correct = ((scores > 0) == (codes[:, 1] == 1)).mean()
    assert correct > 0.62
    chances = 1 / (1 + np.exp(-scores))
    assert abs(chances.mean() - codes[:, 1].mean()) < 0.05
    again = unpack_fields(LinearClassifier, stored(pack_fields(made)), features=FEATURES, loss=made.loss)
    assert (again.coefficients == made.coefficients).all()
    assert again.features == made.features
    assert (again.loss, again.t, again.lam) == (made.loss, made.t, made.lam)
    assert (again.standard_error, again.shrinkage) == (made.standard_error, made.shrinkage)


def test_noise_beyond_all_signal_gives_even_chances() -> None:
    """Shrinking depends on public numbers only, and caps what the noise can cost."""
    codes = records(30, 1)
    made = erm(lam=2.0**-10).run(PureDP.of("0.01"), database(codes), Randomness.seeded(3)).released
    assert made.shrinkage < 1e-6
    chances = 1 / (1 + np.exp(-margins_of(FEATURES, codes, made.coefficients)))
    assert np.abs(chances - 0.5).max() < 0.01
    assert erm().predicted_excess(PureDP.of("0.01"), 30) > math.log(2)


def test_a_classifier_of_a_schema() -> None:
    assert erm().features == FEATURES
    assert ERM(SCHEMA, "zip", positive="c").features.positive == 2
    options = ("as_numbers", ["zip"]), ("loss", "hinge"), ("lam", 0.0), ("lam", 2.0), ("lam", math.nan)
    wrong: list[dict[str, Any]] = [{"target": "zipp"}, {"target": "zip", "positive": "d"}]
    wrong += [{"target": "late", name: value} for name, value in (*options, ("radius", -1), ("radius", "x"))]
    for chosen in wrong:
        with pytest.raises((ConfigError, SchemaError)):
            ERM(SCHEMA, **chosen)


@pytest.mark.parametrize(
    "wrong",
    [
        {"target": "zip", "positive": 3},
        {"target": "late", "columns": ("late", "zip")},
        {"target": "late", "columns": ()},
        {"target": "late", "columns": ("zip", "zip")},
        {"target": "late", "numbers": (("late", 2),)},
        {"target": "late", "numbers": (("age", 6),)},
    ],
    ids=["code", "target-among", "none", "twice", "number-target", "bins"],
)
def test_wrong_features_are_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError):
        FeatureMap(DOMAIN, **wrong)


def test_sizes_that_cannot_be_certified_are_refused() -> None:
    with pytest.raises(LimitError, match="certified"):
        erm(lam=2.0**-24).plan(PureDP.of(1), 10**9).check()
    with pytest.raises(LimitError):
        erm().plan(PureDP(Fraction(1, 10**12)), 100).check()
    # With the automatic choice, many records are no obstacle.
    erm().plan(PureDP.of(1), 10**7).check()


# Classifiers as streams.


def batch(size: int, seed: int) -> dict[str, list[Any]]:
    g = np.random.default_rng(seed)
    paid = g.random(size) < 0.5
    late = g.random(size) < np.where(paid, 0.8, 0.2)
    ages = [None if age > 110 else int(age) for age in g.integers(0, 121, size)]
    return {
        "zip": g.choice(["a", "b", "c"], size).tolist(),
        "late": late.tolist(),
        "age": ages,
        "paid": paid.tolist(),
    }


def plan(rerun: str = "scheduler") -> ClassifierPlan:
    if rerun == "scheduler":
        made = BBScheduler(erm(), 600, gamma="1/4").calibrate(epsilon=8)
    else:
        made = BBImprover(erm(), 600).calibrate(rho=2)
    assert isinstance(made, ClassifierPlan)
    return made


@pytest.mark.parametrize(
    ("rerun", "made"),
    [("scheduler", [600, 600, 750, 1150, 2000]), ("improver", [600, 700, 750, 1150, 2000])],
)
def test_a_run_at_each_epoch_and_the_last_classifier_in_between(rerun: str, made: list[int]) -> None:
    which, source = plan(rerun), Randomness.seeded(5)
    state, found = which.start(), []
    for number, size in enumerate((600, 100, 50, 400, 850)):
        encoded = EncodedBatch(DOMAIN, SCHEMA.encode(batch(size, number)))
        found.append(which.step(state, encoded, source))
    assert [one.made.t for one in found] == made
    assert [one.t for one in found] == [600, 700, 750, 1150, 2000]
    # What a run spends is what the schedule says: the noise follows from it.
    run = which.schedule.run(0, 0, 600)
    assert found[0].classifier.standard_error == erm().plan(run.budget, 600).standard_error
    assert found[0].made.cost == run.cost
    assert found[-1].made.spent < which.budget.amount
