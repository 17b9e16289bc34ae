"""The fit: optimality by certificate and against other solvers, warm starts, totals, awkward input."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.core.errors import InputError, LimitError
from dpstream.core.graphical import Measurement, Model, estimate_total, fit, junction_tree, tree_cells
from dpstream.core.graphical.compiled.inference import exp_nonpositive
from dpstream.core.schema.domain import Clique, Domain

NAMES = tuple("abcdefgh")


def loss(model: Model, measurements: list[Measurement]) -> float:
    return sum(
        float(((model.marginal(m.clique) - m.values) ** 2).sum()) / (2 * m.variance) for m in measurements
    )


def measure(
    domain: Domain, cliques: list[Clique], rng: np.random.Generator, sd: float, total: float = 1000.0
) -> list[Measurement]:
    """Noisy marginals of a random skewed table."""
    table = rng.gamma(0.3, size=domain.sizes) + 1e-9
    table *= total / table.sum()
    out = []
    for clique in cliques:
        axes = tuple(i for i in range(len(domain)) if i not in clique)
        true = table.sum(axis=axes).reshape(-1)
        out.append(Measurement(clique, true + rng.normal(0, sd, true.size), sd**2))
    return out


def linear_system(
    domain: Domain, measurements: list[Measurement]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``A`` and ``b`` with ``|A x - b|^2 / 2`` the loss of a table ``x`` of all cells."""
    codes = np.unravel_index(np.arange(math.prod(domain.sizes)), domain.sizes)
    rows, targets = [], []
    for m in measurements:
        place = np.ravel_multi_index([codes[i] for i in m.clique], domain.shape(m.clique))
        indicator = np.arange(len(m.values))[:, None] == place[None, :]
        rows.append(indicator / math.sqrt(m.variance))
        targets.append(m.values / math.sqrt(m.variance))
    return np.vstack(rows), np.concatenate(targets)


def regularised_optimum(
    domain: Domain, measurements: list[Measurement], total: float, penalty: float
) -> tuple[float, NDArray[np.float64]]:
    """The least ``loss + penalty KL(p | uniform)`` over all distributions, and the table: by a general solver."""
    from scipy.optimize import minimize

    matrix, target = linear_system(domain, measurements)
    cells = matrix.shape[1]

    def objective(logits: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        log_p = logits - np.logaddexp.reduce(logits)
        p = np.exp(log_p)
        residual = total * (matrix @ p) - target
        slope = total * (matrix.T @ residual) + penalty * (log_p + math.log(cells))
        value = residual @ residual / 2 + penalty * float(p @ (log_p + math.log(cells)))
        return value, p * (slope - p @ slope)

    found = minimize(
        objective, np.zeros(cells), jac=True, method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-14, "gtol": 1e-9},
    )  # fmt: skip
    return float(found.fun), total * np.exp(found.x - np.logaddexp.reduce(found.x))


def least_loss(domain: Domain, measurements: list[Measurement], total: float) -> float:
    """The least loss over *all* non-negative tables with this total: non-negative least squares."""
    from scipy.optimize import nnls

    rows, targets = linear_system(domain, measurements)
    cells = rows.shape[1]
    heavy = 1e4 * max(1 / math.sqrt(m.variance) for m in measurements)
    matrix = np.vstack([rows, np.full((1, cells), heavy)])
    target = np.concatenate([targets, [heavy * total]])
    table, _ = nnls(matrix, target, maxiter=100 * cells)
    table *= total / table.sum()
    return float(((matrix @ table - target) ** 2).sum()) / 2


@st.composite
def problems(draw: st.DrawFn) -> tuple[Domain, list[Clique], int, float]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5).filter(lambda s: math.prod(s) <= 256))
    domain = Domain(NAMES[: len(sizes)], tuple(sizes))
    subsets = [c for k in range(1, 4) for c in itertools.combinations(range(len(sizes)), k)]
    cliques = draw(st.lists(st.sampled_from(subsets), min_size=1, max_size=7))  # repetitions welcome
    return domain, cliques, draw(st.integers(0, 2**32)), draw(st.sampled_from([0.5, 10.0, 200.0]))


@settings(max_examples=80, deadline=None)
@given(problems())
def test_fit_is_optimal_over_all_tables(problem: tuple[Domain, list[Clique], int, float]) -> None:
    domain, cliques, seed, sd = problem
    measurements = measure(domain, cliques, np.random.default_rng(seed), sd)
    model = fit(domain, measurements, total=1000.0, iterations=3000, tolerance=1e-4)
    reached = loss(model, measurements)
    least = least_loss(domain, measurements, 1000.0)
    assert reached <= least * (1 + 1e-4) + 1e-2
    assert reached >= least * (1 - 1e-4) - 1e-2


@settings(max_examples=30, deadline=None)
@given(problems())
def test_the_regularised_optimum_is_that_of_a_general_solver(
    problem: tuple[Domain, list[Clique], int, float],
) -> None:
    # With a penalty the optimum is unique: the marginals must agree, not only the objective.
    domain, cliques, seed, sd = problem
    measurements = measure(domain, cliques, np.random.default_rng(seed), max(sd, 10.0))
    model = fit(domain, measurements, total=1000.0, iterations=6000, tolerance=1e-9, regularisation=0.05)
    shares = model.marginal(tuple(range(len(domain)))) / 1000.0
    divergence = float(np.sum(shares * np.log(np.maximum(shares * len(shares), 1e-300))))
    value = loss(model, measurements) + 0.05 * 1000.0 * divergence
    least, table = regularised_optimum(domain, measurements, 1000.0, 0.05 * 1000.0)
    assert value == pytest.approx(least, rel=1e-4, abs=1e-3)
    assert value <= least + 1e-6 * (1 + least)
    np.testing.assert_allclose(model.marginal(tuple(range(len(domain)))), table, atol=5.0)


def test_the_loss_never_rises_with_more_iterations_even_around_a_hub() -> None:
    domain = Domain(NAMES, (20, 5, 5, 5, 5, 5, 5, 5))
    cliques = [(0, i) for i in range(1, 8)]
    measurements = measure(domain, cliques, np.random.default_rng(1), sd=0.1, total=1e6)
    losses = [
        loss(fit(domain, measurements, iterations=n, tolerance=0.0), measurements)
        for n in (1, 2, 5, 10, 30, 100)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.01 * losses[0]


def test_weights_are_inverse_variances() -> None:
    domain = Domain(("a",), (2,))
    both = [Measurement((0,), np.array([70.0, 30.0]), 1.0), Measurement((0,), np.array([10.0, 90.0]), 9.0)]
    model = fit(domain, both, total=100.0, iterations=500, tolerance=1e-8)
    np.testing.assert_allclose(model.marginal((0,)), [64.0, 36.0], atol=1e-3)


def test_totals() -> None:
    domain = Domain(("a", "b"), (2, 3))
    first = Measurement((0,), np.array([60.0, 40.0]), 4.0)
    second = Measurement((0, 1), np.full(6, 20.0), 4.0)
    total, variance = estimate_total([first, second])
    assert total == pytest.approx((100 / 8 + 120 / 24) / (1 / 8 + 1 / 24))
    assert variance == pytest.approx(1 / (1 / 8 + 1 / 24))
    assert fit(domain, [first, second]).total == pytest.approx(total)
    assert estimate_total([]) == (0.0, math.inf)
    only_total = Measurement((), np.array([77.0]), 2.0)
    assert fit(domain, [only_total]).total == 77.0
    np.testing.assert_allclose(fit(domain, [only_total]).marginal((0,)), [38.5, 38.5])


@pytest.mark.parametrize("total", [None, 0.0, -50.0, 1e-9])
def test_empty_and_negative_tables_still_have_a_shape(total: float | None) -> None:
    domain = Domain(("a", "b"), (4, 3))
    rng = np.random.default_rng(2)
    noise = [Measurement((0, 1), rng.normal(-20, 50, 12), 2500.0)]
    model = fit(domain, noise, total=total)
    assert model.total == (noise[0].values.sum() if total is None else total)
    shape = model.with_total(1.0).marginal((0, 1))
    assert (shape >= 0).all()
    assert shape.sum() == pytest.approx(1.0)
    assert model.sample(100, 1).shape == (100, 2)


class TestWarmStart:
    domain = Domain(("a", "b", "c", "d"), (3, 3, 3, 3))

    def test_what_earlier_steps_learned_is_kept(self) -> None:
        rng = np.random.default_rng(5)
        ab, cd = measure(self.domain, [(0, 1), (2, 3)], rng, sd=1.0)
        earlier = fit(self.domain, [ab], total=1000.0)
        later = fit(self.domain, [cd], total=1000.0, warm=earlier)
        assert later.cliques == ((2, 3), (0, 1))
        np.testing.assert_allclose(later.marginal((0, 1)), earlier.marginal((0, 1)), atol=1e-8)

    def test_no_measurement_keeps_the_model(self) -> None:
        (ab,) = measure(self.domain, [(0, 1)], np.random.default_rng(6), sd=1.0)
        warm = fit(self.domain, [ab])
        again = fit(self.domain, [], warm=warm)
        assert again.total == warm.total
        assert (again.marginal((0, 1)) == warm.marginal((0, 1))).all()
        assert fit(self.domain, []).total == 0.0

    def test_a_converged_warm_start_needs_few_iterations_and_stays(self) -> None:
        measurements = measure(self.domain, [(0, 1), (1, 2), (2, 3)], np.random.default_rng(7), sd=5.0)
        converged = fit(self.domain, measurements, iterations=2000, tolerance=1e-3)
        cold = fit(self.domain, measurements, iterations=3, tolerance=1e-3)
        warm = fit(self.domain, measurements, iterations=3, tolerance=1e-3, warm=converged)
        assert loss(warm, measurements) <= loss(converged, measurements) + 1e-6 < loss(cold, measurements)

    def test_the_tree_stays_within_its_limit_most_recent_first(self) -> None:
        pairs = list(itertools.combinations(range(4), 2))
        model = Model.uniform(self.domain, 1000.0)
        rng = np.random.default_rng(8)
        for clique in [*pairs, *pairs]:
            (m,) = measure(self.domain, [clique], rng, sd=5.0)
            model = fit(self.domain, [m], total=1000.0, warm=model, max_cells=60)
            assert model.cliques[0] == clique
            assert model.tree.cells == tree_cells(self.domain, model.cliques) <= 60
        assert len(model.cliques) < len(pairs)
        with pytest.raises(LimitError):
            fit(self.domain, [Measurement((0, 1, 2), np.ones(27), 1.0)], max_cells=26)

    def test_thousands_of_contradicting_refits_do_not_drift(self) -> None:
        # Two measurements that disagree about attribute b pull at each other for ever.
        rng = np.random.default_rng(9)
        fixed = measure(self.domain, [(0, 1), (1, 2)], rng, sd=20.0)
        model = Model.uniform(self.domain, 1000.0)
        sizes = []
        for _ in range(300):
            model = fit(self.domain, fixed, total=1000.0, warm=model, iterations=20)
            sizes.append(np.abs(model.potentials).max())
        assert sizes[-1] < 2 * sizes[20] + 10
        assert np.isfinite(model.marginal((0, 2))).all()

    def test_a_dead_cell_can_come_back(self) -> None:
        domain = Domain(("a", "b"), (2, 2))
        dead = Measurement((0, 1), np.array([500.0, 500.0, -30.0, 0.0]), 1.0)
        alive = Measurement((0, 1), np.array([250.0, 250.0, 250.0, 250.0]), 1.0)
        model = Model.uniform(domain, 1000.0)
        for _ in range(50):
            model = fit(domain, [dead], total=1000.0, warm=model, iterations=50)
        back = fit(domain, [alive], total=1000.0, warm=model, iterations=100)
        np.testing.assert_allclose(back.marginal((0, 1)), alive.values, atol=2.0)


def test_extreme_noise_stays_finite() -> None:
    domain = Domain(NAMES[:5], (7, 1, 9, 4, 3))
    rng = np.random.default_rng(11)
    cliques = [(0, 2), (2, 3), (3, 4), (0, 4), (1, 2, 4)]
    for scale in (1e-3, 1.0, 1e9):
        noisy = [Measurement(c, rng.normal(0, scale, domain.cells(c)), scale**2) for c in cliques]
        model = fit(domain, noisy, total=100.0)
        for clique in itertools.combinations(range(5), 2):
            marginal = model.marginal(clique)
            assert np.isfinite(marginal).all()
            assert marginal.sum() == pytest.approx(100.0)


def test_potentials_far_apart_neither_overflow_nor_vanish() -> None:
    domain = Domain(("a", "b", "c"), (3, 3, 3))
    tree = junction_tree(domain, [(0, 1), (1, 2)])
    potentials = np.random.default_rng(1).normal(0, 1e5, tree.parameters)
    model = Model(tree, potentials, 1.0)
    for clique in itertools.combinations(range(3), 2):
        assert model.marginal(clique).sum() == pytest.approx(1.0)


def test_exp() -> None:
    x = -np.concatenate([np.linspace(0, 50, 20_001), np.linspace(50, 400, 101)])
    out: NDArray[np.float64] = x.copy()
    exp_nonpositive(out, np.empty_like(x))
    np.testing.assert_allclose(out, np.exp(np.maximum(x, -230)), rtol=1e-15)


@pytest.mark.parametrize(
    ("clique", "values", "variance"),
    [
        ((0,), [1.0, 2.0, 3.0], 1.0),
        ((0, 1), [[1.0, 2.0], [3.0, 4.0]], 1.0),
        ((1, 0), [1.0] * 4, 1.0),
        ((0, 2), [1.0] * 4, 1.0),
        ((0,), [1.0, math.nan], 1.0),
        ((0,), [1.0, 2.0], 0.0),
        ((0,), [1.0, 2.0], -1.0),
        ((0,), [1.0, 2.0], math.inf),
    ],
)
def test_measurements_that_do_not_fit_are_refused(
    clique: Clique, values: list[float], variance: float
) -> None:
    domain = Domain(("a", "b"), (2, 2))
    with pytest.raises(InputError):
        fit(domain, [Measurement(clique, np.array(values), variance)])


def test_options_out_of_range_are_refused() -> None:
    domain = Domain(("a",), (2,))
    other = Model.uniform(Domain(("b",), (2,)), 1.0)
    measurement = Measurement((0,), np.array([1.0, 2.0]), 1.0)
    for options in (
        {"iterations": 0},
        {"regularisation": -1.0},
        {"tolerance": math.nan},
        {"total": math.nan},
        {"warm": other},
    ):
        with pytest.raises(InputError):
            fit(domain, [measurement], **options)  # type: ignore[arg-type]


def test_bounded_keeps_the_moderate_and_lifts_the_impossible() -> None:
    domain = Domain(("a", "b"), (2, 3))
    moderate = fit(domain, [Measurement((0, 1), np.array([30.0, 20, 10, 5, 15, 20]), 1.0)], total=100)
    np.testing.assert_allclose(moderate.bounded(8.0).marginal((0, 1)), moderate.marginal((0, 1)), rtol=1e-9)
    dead, noisy = moderate, [Measurement((0,), np.array([100.0, -50.0]), 1.0)]
    for _ in range(40):
        dead = fit(domain, noisy, total=100, warm=dead, regularisation=0.1)
    assert dead.marginal((0,))[1] < 1e-6
    lifted = dead.bounded(8.0)
    assert 1e-3 < lifted.marginal((0,))[1] < 1.0
    assert lifted.total == dead.total
    np.testing.assert_allclose(lifted.bounded(8.0).marginal((0, 1)), lifted.marginal((0, 1)))
