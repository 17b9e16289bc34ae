"""A census publishes what it drew, about the records that it names; headlines are measured within their share."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from census_stays import scheduled
from door_runs import drawn_and_published, only_drawn

from dpstream.core.contracts import NoisyCounts
from dpstream.core.privacy import ZCDP, Budget, HistogramsNoise, PureDP, Randomness, Record
from dpstream.core.schema import Domain
from dpstream.core.tables import Workload, count_marginals
from dpstream.families.census import Census
from dpstream.stream.templates import words
from dpstream_lab.audits.census_audit import ChosenTimes, KeyedStay, keyed_ends, rare_times, transcript_plan

DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
HEADLINE = (("a",), ("b", "c"))
STEPS = 12


def stays(many: int, *, drift: bool) -> list[KeyedStay]:
    generator, found = np.random.default_rng(5), []
    shapes = generator.dirichlet(np.full(12, 0.5), STEPS + 1)
    for _ in range(many):
        comes = 1 if generator.random() < 0.3 else int(generator.integers(1, STEPS))
        cell = generator.choice(12, p=shapes[comes if drift else 0])
        values = tuple(int(code) for code in np.unravel_index(cell, DOMAIN.sizes))
        leaves = comes + 1 + int(generator.integers(0, STEPS))
        found.append(KeyedStay(comes, leaves if leaves <= STEPS else None, {comes: values}))
    return found


def exact(one: NoisyCounts, known: list[KeyedStay], since: int) -> np.ndarray:
    """What a query says of the records themselves; ``since``: the census before."""
    assert one.as_of is not None
    own = [stay for stay in known if one.first <= stay.comes <= one.last]
    if one.counted == "left":
        gone = [stay for stay in own if stay.leaves is not None and since < stay.leaves <= one.as_of]
        return np.array([len(gone)])
    held = [values for stay in own if (values := stay.at(one.as_of)) is not None]
    rows = np.array(held, np.int32).reshape(-1, len(DOMAIN))
    joint = one.query["kind"] == "marginals"
    cliques = [DOMAIN.clique(names) for names in (one.query["columns"] if joint else [one.columns])]
    return np.concatenate(count_marginals(rows, DOMAIN, cliques))


@pytest.mark.parametrize("times", [None, rare_times(STEPS)])
def test_windows_and_steps_are_those_of_the_records_that_were_counted(times: ChosenTimes | None) -> None:
    """Nearly without noise, so that a wrong window shows; with counts of departures between censuses, too."""
    known = stays(300, drift=False)
    plan = transcript_plan(PureDP.of(900), Record(), times)
    _, counts = drawn_and_published(plan, keyed_ends(known, STEPS, DOMAIN), Randomness.seeded(1))
    censuses = sorted({one.as_of for one in counts if one.as_of is not None})
    assert len(censuses) > 3
    for one in counts:
        before = max((step for step in censuses if step < (one.as_of or 0)), default=0)
        assert np.abs(one.values - exact(one, known, before)).max() <= 2, one.draw
    assert len({one.draw.split(", ")[1] for one in counts}) == 4  # censuses and departures of two levels


@pytest.mark.parametrize("budget", [PureDP.of(2), ZCDP.of("1/2")])
@pytest.mark.parametrize("unit", [Record(), Record("replace")])
def test_every_census_of_level_0_measures_the_headlines_with_its_share(budget: Budget, unit: Record) -> None:
    plan = transcript_plan(budget, unit, headline=HEADLINE, max_cells=13, headline_share="1/4")
    drawn, counts = drawn_and_published(
        plan, keyed_ends(stays(80, drift=False), STEPS, DOMAIN), Randomness.seeded(1)
    )
    assert only_drawn(drawn, counts)
    assert ({one.counted for one in counts} == {"present"}) == (unit.relation == "replace")
    runs = {one.draw.rsplit(", ", 1)[0] for one in counts if one.counted == "present"}
    assert {int(run[-1]) for run in runs} == {0, 1}
    whole = plan.amounts.of_level(0).scaled(Fraction(1, 4))
    assert plan.run.budget == plan.amounts.of_level(0).scaled(Fraction(3, 4))
    for run in runs:
        own = [one for one in counts if one.draw.startswith(f"{run}, headline")]
        if run.endswith("1"):
            assert not own
            continue
        if any(isinstance(one.noise, HistogramsNoise) for one in own):
            (one,) = own
            assert one.query["columns"] == [list(columns) for columns in HEADLINE]
            assert one.noise.scale == 1 / whole.amount
        else:
            noise = plan.run.noise(whole.scaled(Fraction(1, 2)))
            assert {one.columns: one.noise for one in own} == dict.fromkeys(HEADLINE, noise)


def test_cohorts_keep_to_the_headlines_as_far_as_noise_allows() -> None:
    """Seeded, so that it cannot fail by chance: within two standard errors in 95 % of the cells, of two streams."""
    within = []
    for drift in (False, True):
        recipe = Census(Workload.all_k_way(DOMAIN, 2), turnover=4, iterations=25, headline=HEADLINE)
        plan = scheduled(recipe.calibrate(epsilon=2, unit=Record()), ratio=2)
        state = plan.start()
        for batch in keyed_ends(stays(4000, drift=drift), STEPS, DOMAIN):
            counts = plan.step(state, batch, Randomness.seeded(state.step)).noisy_counts
            own = [one for one in counts if "headline" in one.draw]
            cohort = next((cohort for cohort in state.cohorts if cohort.high == state.step), None)
            if cohort is None or not own or cohort.low + 1 != own[0].first:
                continue  # of the last level: one cohort of several censuses
            for one in own:
                table = cohort.model.with_total(cohort.size).marginals([DOMAIN.clique(one.columns or ())])[0]
                within.append(np.abs(table - one.values) <= 2.0 * one.variance**0.5)
    assert len(within) > 20
    assert np.concatenate(within).mean() >= 0.95


def test_the_plan_shows_share_and_noise() -> None:
    own = Census(Workload.all_k_way(DOMAIN, 2), turnover=4, headline=HEADLINE).calibrate(epsilon=1)
    (noise,) = {noise for _, noise in own.noises_of(0)}
    assert noise.describe() in own.parts()[0].detail
    assert own.facts()["headline"]["standard_deviation"] == pytest.approx(noise.variance**0.5, rel=1e-5)
    assert "1/5 of the cost of a census of level 0" in words(own, "further", **own.facts())
