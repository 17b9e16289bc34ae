"""Headlines and the number of records by public periods: which events a measurement reads, what tables make of it, and
borders of epochs that follow."""

from __future__ import annotations

import datetime
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpstream.core.contracts import ExpectedTable, StepPeriods, ends
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import ZCDP, Event, PureDP, Randomness, User
from dpstream.core.schema import Categorical, Domain, Schema
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled
from dpstream.families.tabular.pooled_book import EPOCHS, Epochs, Number
from dpstream.families.tabular.pooled_estimates import expected_rate
from dpstream.io.sources.calendar import CALENDAR_PERIODS, CalendarPeriods, DayPeriods, MonthPeriods
from dpstream.project.planning import headline_lines
from dpstream.stream.release.estimates import Published
from dpstream.stream.release.manifest import accuracy_of
from dpstream.stream.release.released_verdicts import number_of_records

DOMAIN = Domain(("zip", "cause", "paid"), (8, 5, 2))
START = datetime.date(1990, 1, 1)
SCHEMA = Schema(
    [
        Categorical(name, [f"{name} {value}" for value in range(size)])
        for name, size in zip(DOMAIN.names, DOMAIN.sizes, strict=True)
    ]
)
RECIPE = Pooled(
    Workload.all_k_way(DOMAIN, 2),
    headline=(("zip",), ("zip", "cause")),
    periods=StepPeriods(3),
    number=StepPeriods(2),
    iterations=10,
)


def stream(steps: int, *, deletes: bool = False, rows: int = 60) -> list[EncodedBatch]:
    generator, batches = np.random.default_rng(5), []
    for _ in range(steps):
        codes = generator.integers(0, DOMAIN.sizes, (generator.poisson(rows), 3)).astype(np.int32)
        batches.append(EncodedBatch(DOMAIN, codes, codes[: len(codes) // 4] if deletes else None))
    return batches


def released(recipe: Pooled, steps: int, *, epsilon: str = "1", deletes: bool = False, seed: int = 1):
    plan = replace(recipe, deletions=deletes, cancels=False).calibrate(epsilon=epsilon, horizon=steps)
    state, found = plan.start(), []
    for step, batch in enumerate(stream(steps, deletes=deletes), start=1):
        found.append(plan.step(state, batch, Randomness.seeded(f"{seed} {step}")))
    return found


@given(
    staleness=st.fractions(Fraction(1, 50), Fraction(1, 2)),
    periods=st.one_of(
        st.integers(1, 40).map(StepPeriods),
        st.builds(
            CalendarPeriods,
            st.sampled_from(list(CALENDAR_PERIODS)[1:]),
            st.builds(
                DayPeriods,
                st.dates(datetime.date(1990, 1, 1), datetime.date(2030, 1, 1)),
                st.sampled_from([1, 7]),
            ),
            st.integers(1, 12),
        ),
    ),
    horizon=st.one_of(st.none(), st.integers(1, 300)),
)
def test_every_period_is_made_of_whole_epochs_or_every_epoch_of_whole_periods(
    staleness, periods, horizon
) -> None:
    aligned, plain = Epochs(staleness, horizon, None, periods), Epochs(staleness, horizon)
    border = 0
    while border < (horizon or 300):
        following = aligned.after(border)
        assert border < following <= border + 1 + 1.5 * (plain.after(border) - border)
        inside = [step for step in range(border + 1, following) if ends(periods, step)]
        begins = border == 0 or ends(periods, border)
        # With a period's end inside, the epoch begins and ends with periods; the last step ends both.
        assert not inside or (begins and (ends(periods, following) or following == horizon))
        border = following


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("steps", [9, 11])
def test_a_period_counts_each_of_its_events_once(steps: int, deletes: bool) -> None:
    """At an epsilon without noise, measurements are the counts of their steps."""
    batches = stream(steps, deletes=deletes)
    seen: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for release in released(RECIPE, steps, epsilon="1000", deletes=deletes):
        for one in release.noisy_counts:
            if "period" not in one.query:
                continue
            part = {"net": "net", "inserts": "inserts", "deletes": "deletes"}[one.counted]
            clique = DOMAIN.clique(one.columns)
            true = sum(batch.count([clique or (0,)], part)[0] for batch in batches[one.first - 1 : one.last])
            np.testing.assert_array_equal(one.values, true if clique else [true.sum()])
            seen.setdefault((one.query["period"], one.counted), []).append((one.first, one.last))
    sides = {"inserts", "deletes"} if deletes else {"net"}
    assert {counted for _, counted in seen} == sides
    for side in sides:
        three = sorted(set(seen["3 steps", side]))
        assert three == [(first, min(first + 2, steps)) for first in range(1, steps + 1, 3)]
        two = seen["2 steps", side]
        assert two == [(first, min(first + 1, steps)) for first in range(1, steps + 1, 2)]


@pytest.mark.parametrize("budget", [PureDP.of(1), ZCDP.of("1/8")])
@pytest.mark.parametrize("unit", [Event(), Event("replace"), User(3)])
def test_shares_add_up_and_a_public_number_gets_none(budget, unit) -> None:
    plan = RECIPE.calibrate(budget, unit, horizon=12)
    parts = plan.all_parts()
    assert sum(part.total for part in parts) == budget.amount
    assert ("number" in {part.name for part in parts}) == (unit.relation != "replace")
    alone = replace(RECIPE, headline=()).calibrate(budget, unit, horizon=12)
    assert sum(part.total for part in alone.all_parts()) == budget.amount
    if unit.relation != "replace":
        number = next(part for part in alone.parts() if part.name == "number")
        assert number.total == budget.amount * (1 - getattr(unit, "cut_share", 0)) / 20


def test_the_number_of_records_is_measured_and_its_error_is_that_of_the_noise() -> None:
    """Seeded. With half of the noise's size as its error, the same check fails."""
    apart = []
    for seed in range(30):
        true, at = 0, 0
        for release, batch in zip(released(RECIPE, 12, seed=seed), stream(12), strict=True):
            at, true = at + 1, true + int(batch.count([(2,)])[0].sum())
            if at % 2 == 0:
                assert release.total_error is not None
                apart.append((release.total - true) / release.total_error)
    spread = float(np.std(apart))
    assert 0.8 < spread < 1.2
    assert not 0.8 < 2 * spread < 1.2


def test_two_series_of_one_number_are_joined_where_both_end() -> None:
    number = Number.fresh(1)
    for value, end in ((10.0, 1), (20.0, 2)):
        number.add(EPOCHS, value, 4.0, end)
    assert number.known == (30.0, 8.0, 2)
    number.add(1, 36.0, 4.0, 2)
    value, variance, upto = number.known
    assert (value, variance, upto) == (pytest.approx(34.0), pytest.approx(8 / 3), 2)
    number.add(1, 7.0, 4.0, 4)
    number.add(EPOCHS, 5.0, 1.0, 3)
    assert number.known == (pytest.approx(41.0), pytest.approx(8 / 3 + 4.0), 4)


@given(
    ends=st.lists(
        st.lists(st.integers(1, 12), min_size=1, max_size=6, unique=True).map(sorted), min_size=1, max_size=3
    ),
    seed=st.integers(0, 2**32),
)
def test_the_number_is_the_least_squares_of_all_spans(ends: list[list[int]], seed: int) -> None:
    """Whatever the borders; as the control, the longest series alone has a larger error where another one helps."""
    generator, number = np.random.default_rng(seed), Number.fresh(len(ends) - 1)
    spans = [(last, series, first) for series, own in enumerate(ends) for first, last in pairwise([0, *own])]
    design, values, noise = [], [], []
    for last, series, first in sorted(spans):
        value, variance = float(generator.normal(0, 50)), float(generator.uniform(1, 9))
        number.add(series, value, variance, last)
        design.append([first < step <= last for step in range(1, 13)])
        values.append(value)
        noise.append(variance)
    found, variance, upto = number.known
    assert upto == max(own[-1] for own in ends)
    scale = 1.0 / np.sqrt(noise)
    weights = np.linalg.pinv(scale[:, None] * np.array(design, dtype=float)) * scale
    asked = (np.arange(1, 13) <= upto) @ weights
    assert found == pytest.approx(asked @ values, abs=1e-6)
    assert variance == pytest.approx(asked**2 @ noise, rel=1e-6)
    alone = [sum(n for n, (_, s, _) in zip(noise, sorted(spans), strict=True) if s == series)
             for series, own in enumerate(ends) if own[-1] == upto]  # fmt: skip
    assert variance <= min(alone) * (1 + 1e-9)
    shared = any(set(one) & set(other) for one, other in combinations(ends, 2))
    assert shared or variance == pytest.approx(min(alone))


def test_a_rate_follows_what_lasts_and_not_what_is_noise() -> None:
    steps = list(range(4, 81, 4))
    steady = expected_rate(0, steps, [400.0 + (-1) ** i * 20 for i in range(20)], [400.0] * 20)
    assert steady[0] == pytest.approx(100.0, abs=2.0)
    assert steady[1] < 400.0 / 16 / 5  # far less noise than one period has
    jumped = expected_rate(0, steps, [400.0] * 10 + [1200.0] * 10, [400.0] * 20)
    assert jumped[0] == pytest.approx(300.0, rel=0.05)


def test_a_column_of_a_table_follows_its_headline() -> None:
    """Between borders of epochs the table has the headline's last period: the burst of one value is seen."""
    recipe = replace(RECIPE, headline=(("zip",),), periods=StepPeriods(2), number=StepPeriods(2))
    plan = recipe.calibrate(epsilon=20, horizon=70)
    state = plan.start()
    generator = np.random.default_rng(0)
    for step in range(1, 63):
        codes = generator.integers(0, DOMAIN.sizes, (60, 3)).astype(np.int32)
        if step > 60:
            codes = np.repeat(np.array([[7, 0, 0]], np.int32), 600, axis=0)
        release = plan.step(state, EncodedBatch(DOMAIN, codes), Randomness.seeded(step))
    assert state.closed < 62  # no epoch ended with the burst
    assert release.marginal((0,)).values[7] == pytest.approx(60 * 60 / 8 + 1200, rel=0.15)
    assert release.total == pytest.approx(60 * 60 + 1200, rel=0.02)


@pytest.mark.parametrize(
    ("grid", "name", "fits"),
    [
        (DayPeriods(datetime.date(2020, 1, 6), 7), "month", True),
        (DayPeriods(datetime.date(2020, 1, 6), 7), "week", True),
        (DayPeriods(datetime.date(2020, 1, 6), 14), "week", False),
        (MonthPeriods(datetime.date(2020, 2, 1), 3), "quarter", True),
        (MonthPeriods(datetime.date(2020, 2, 1), 3), "month", False),
        (MonthPeriods(datetime.date(2020, 1, 1), 12), "year", True),
    ],
)
def test_no_period_is_shorter_than_a_step(grid, name: str, fits: bool) -> None:
    assert CalendarPeriods(name, grid).fits is fits


def test_years_may_begin_in_any_month() -> None:
    fiscal = CalendarPeriods("year", MonthPeriods(datetime.date(2020, 1, 1), 1), 4)
    assert [step for step in range(1, 30) if ends(fiscal, step)] == [3, 15, 27]
    with pytest.raises(ConfigError, match="a period of 0 steps"):
        StepPeriods(0)


def test_a_period_enters_the_estimates_with_its_steps_and_its_noise() -> None:
    plan = RECIPE.calibrate(epsilon=1, horizon=12)
    state, clock = plan.start(), plan.clocks[0]
    for step, batch in enumerate(stream(6), start=1):
        release = plan.step(state, batch, Randomness.seeded(step))
    known = state.sides[0].estimates
    mine = [j for j, span in enumerate(known.spans) if span == 3]
    assert [known.epochs[j] for j in mine] == [2, 2, 5, 5]
    assert [known.variances[j] for j in mine] == clock.variances * 2
    zips = next(one for one in release.noisy_counts if one.columns == ("zip",) and "period" in one.query)
    np.testing.assert_array_equal(known.measured[mine[2]], zips.values)


def test_a_number_that_is_told_has_a_date_of_its_own() -> None:
    """Inside an epoch: where a period ends the error is that of this step; between, none is told."""
    plan, known = RECIPE.calibrate(epsilon=1, horizon=60), []
    state = plan.start()
    for step, batch in enumerate(stream(36), start=1):
        release = plan.step(state, batch, Randomness.seeded(step))
        said = accuracy_of(release, plan, step, period_of=lambda step: f"day {step}")
        number = number_of_records({"step": step, "rows": 0, "accuracy": said})
        known.append((state.closed == step, number.measured_up_to == step))
        assert (number.error is not None) == (number.measured_up_to == step)
        assert state.closed <= number.measured_up_to
        verdicts = {one["use"]: one for one in said["verdicts"]}
        assert verdicts["totals"]["as_of"] == (None if known[-1][1] else number.measured_up_to)
        assert verdicts["columns"]["as_of"] == (None if known[-1][0] else state.closed)
        if not known[-1][1]:
            assert (
                f"measured up to step {number.measured_up_to} (day {number.measured_up_to})" in said["words"]
            )
    assert {(False, True), (False, False), (True, True)} <= set(known)


@pytest.mark.parametrize("headline", [(), (("zip",),), (("zip",), ("paid",), ("cause",))])
def test_a_plan_says_what_readers_will_get(headline) -> None:
    """The half width of a flow's interval, of the number and of each headline (some are drawn together)."""
    plan = replace(RECIPE, headline=headline, periods=StepPeriods(3), number=StepPeriods(3)).calibrate(
        epsilon=1, horizon=12
    )
    state, schema = plan.start(), SCHEMA
    releases = [plan.step(state, batch, Randomness.seeded(step)) for step, batch in enumerate(stream(3), 1)]
    counts = [one for release in releases for one in release.noisy_counts if "period" in one.query]
    published = Published(counts, schema)
    for facts in plan.facts()["periods"]:
        names = [tuple(label.split(" x ")) for label in facts["headlines"]] or [()]
        for columns, width in zip(names, facts["half_widths"], strict=True):
            flow = published.flow(columns, 0, 3)
            assert flow.law().half_width(0.95) == pytest.approx(width, rel=1e-5)
    lines = headline_lines(plan.facts()["periods"], ExpectedTable(720, 60.0, "grows"))
    assert lines[0].startswith("the number in 3 steps of records: ± ")
    assert lines[0].endswith(" of about 180")
    assert len(lines) == 1 + len(headline)
