"""What is particular to pooled streams: borders, estimates, one run, and the budget of an event wherever it falls."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpstream.errors import ConfigError, HorizonError, LimitError
from dpstream.evaluate.audits.pooled import audit_pooled
from dpstream.graphical import Model
from dpstream.privacy import Event, PureDP, Randomness
from dpstream.schema.domain import Domain
from dpstream.tables import EncodedBatch, Workload
from dpstream.tabular import Pooled
from dpstream.tabular.pooled_epochs import Epochs
from dpstream.tabular.pooled_estimates import Epoch, Estimates
from dpstream.tabular.pooled_run import Followed, Runner

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


def epochs_of(cells, count, drift, generator, deviation=20.0, records=5000):
    """Noisy marginals of samples from one distribution, or from changing ones."""
    shape = generator.dirichlet(np.ones(cells.total))
    for _ in range(count):
        if drift:
            shape = generator.dirichlet(np.ones(cells.total))
        truth = generator.multinomial(records, shape).astype(np.float64)
        noise = generator.laplace(0.0, deviation / np.sqrt(2.0), cells.total)
        yield truth, Epoch(truth + noise, np.array([deviation**2]), np.array([True]), float(records))


@pytest.mark.parametrize("drift", [False, True])
def test_the_estimate_is_the_pooled_one_without_drift_and_the_sum_with_it(drift: bool) -> None:
    domain = Domain(("a", "b"), (6, 8))
    cells = Followed(Workload.parse(domain, [["a", "b"]])).cells
    pair = type(cells)(Workload.parse(domain, [["a", "b"]]))
    generator, errors = np.random.default_rng(3), []
    for _ in range(40):
        estimates, truth = Estimates.fresh(pair), np.zeros(pair.total)
        for one, epoch in epochs_of(pair, 8, drift, generator):
            truth += one
            estimates.add(epoch)
        values, _ = estimates.answer(8 * 5000.0, np.array([False]))
        errors.append([
            np.sqrt(np.mean((values - truth) ** 2)), np.sqrt(np.mean((estimates.sums - truth) ** 2)),
        ])  # fmt: skip
    found, plain = np.mean(errors, axis=0)
    if drift:
        assert found == pytest.approx(plain, rel=0.02)
    else:
        # Equal epochs: pooled and summed noise are the same, and nothing may be lost by choosing.
        assert found <= plain * 1.02


def test_growing_epochs_without_drift_have_the_noise_of_a_few() -> None:
    domain = Domain(("a", "b"), (6, 8))
    pair = Estimates.fresh(Followed(Workload.parse(domain, [["a", "b"]])).cells).cells
    cells = type(pair)(Workload.parse(domain, [["a", "b"]]))
    generator, errors = np.random.default_rng(4), []
    shape = generator.dirichlet(np.ones(cells.total))
    sizes = [int(100 * 1.5**i) for i in range(14)]
    for _ in range(60):
        estimates, truth = Estimates.fresh(cells), np.zeros(cells.total)
        for size in sizes:
            counts = generator.multinomial(size, shape).astype(np.float64)
            truth += counts
            noisy = counts + generator.laplace(0.0, 20.0, cells.total)
            estimates.add(Epoch(noisy, np.array([800.0]), np.array([True]), float(size)))
        values, _ = estimates.answer(float(sum(sizes)), np.array([False]))
        errors.append([np.mean((values - truth) ** 2), np.mean((estimates.sums - truth) ** 2)])
    found, plain = np.mean(errors, axis=0)
    assert found < 0.5 * plain


class Tape(Randomness):
    """Counts what is drawn, and adds nothing."""

    def __init__(self) -> None:
        super().__init__(lambda n: bytes(n))
        self.scales: list[Fraction] = []

    def draw(self, noise, size):
        self.scales.append(noise.scale)
        return np.zeros(size, dtype=np.int64)


@pytest.mark.parametrize("unit", [Event(), Event("replace")])
@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_a_run_spends_its_budget_and_no_more(unit: Event, k: int) -> None:
    tape = Tape()
    runner = Runner(Followed(PAIRS), PureDP.of("2"), unit, Fraction(1, 4), 10, 1000)
    counts = np.arange(runner.followed.cells.total, dtype=np.int64)
    outcome = runner.run(counts, Model.uniform(DOMAIN, 1.0), k, tape, None)
    assert int(outcome.epoch.measured.sum()) == 3 + k == len(tape.scales)
    measuring = sum((Fraction(unit.changed_cells) / scale for scale in tape.scales), Fraction(0))
    assert measuring == (Fraction(2) if k == 0 else Fraction(3, 2))


def test_private_counts_are_gone_after_a_border_and_unread_before() -> None:
    plan = Pooled(PAIRS).calibrate(epsilon="1")
    generator = np.random.default_rng(5)
    codes = np.column_stack([generator.integers(0, n, 40) for n in DOMAIN.sizes]).astype(np.int32)
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


def test_a_base_is_in_the_table_from_the_first_step() -> None:
    class Base:
        domain, total, total_error = DOMAIN, 1000.0, 0.0

        def marginals(self, cliques):
            return [np.full(DOMAIN.cells(c), 1000.0 / DOMAIN.cells(c)) for c in cliques]

    plan = Pooled(PAIRS).calibrate(epsilon="100")
    state = plan.start_from(Base())
    nothing = EncodedBatch(DOMAIN, np.empty((0, 3), dtype=np.int32))
    release = plan.step(state, nothing, Randomness.seeded(1))
    assert release.total == pytest.approx(1000.0, abs=2.0)
    again = plan.unpack_state(plan.pack_state(state))
    assert again.total == state.total


def test_options_that_cannot_be_used() -> None:
    with pytest.raises(ConfigError, match="staleness"):
        Pooled(PAIRS, staleness=Fraction(2, 3))
    with pytest.raises(LimitError):
        Pooled(PAIRS, max_cells=5)
    with pytest.raises(HorizonError):
        Pooled(PAIRS).calibrate(epsilon="1", horizon=0)


def test_no_transcript_of_a_stream_costs_more_than_the_budget() -> None:
    """Exact, so no false alarms; broken streams are caught by the same audit."""
    for finding in audit_pooled("short", Randomness.seeded(3), lambda _: None):
        if finding.control:
            assert finding.found > 1.4 * finding.claimed, finding.subject
        else:
            assert finding.found <= finding.claimed * (1 + 1e-9), finding.subject
