"""Rows that come and go within a step: what may cancel, what it changes, and what is said of turnover."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Event, Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import DPStabs, Pooled
from dpstream.families.tabular.pooled_book import clear_part, growth_error
from dpstream.mechanisms import ModelSynthesis
from dpstream.stream.release.manifest import accuracy_of
from dpstream.stream.templates import words

DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
PAIRS = Workload.all_k_way(DOMAIN, 2)
#: All kinds of rows of a tiny table.
TINY = Domain(("a", "b"), (2, 2))
KINDS = np.array(list(itertools.product(range(2), range(2))), np.int32)


def tiny(came: tuple[int, ...], left: tuple[int, ...]) -> EncodedBatch:
    """So many rows of each of the first kinds."""
    parts = [np.repeat(KINDS[: len(some)], some, axis=0) for some in (came, left)]
    return EncodedBatch(TINY, parts[0], parts[1])


def sides(batch: EncodedBatch) -> list[np.ndarray]:
    return [batch.count([(0, 1)], part)[0] for part in ("inserts", "deletes")]


def moved(one: EncodedBatch, other: EncodedBatch) -> list[int]:
    """By how many rows each side differs."""
    return [int(np.abs(a - b).sum()) for a, b in zip(sides(one), sides(other), strict=True)]


def test_one_event_changes_one_row_of_one_side() -> None:
    for came in itertools.product(range(4), repeat=2):
        for left in itertools.product(range(4), repeat=2):
            batch = tiny(came, left).without_cancelled()
            inserts, deletes = sides(batch)
            assert not (inserts * deletes).any()
            assert (inserts - deletes == np.subtract(*sides(tiny(came, left)))).all()
            for kind in range(2):
                more = tuple(n + (i == kind) for i, n in enumerate(came))
                assert sorted(moved(batch, tiny(more, left).without_cancelled())) == [0, 1]
                more = tuple(n + (i == kind) for i, n in enumerate(left))
                assert sorted(moved(batch, tiny(came, more).without_cancelled())) == [0, 1]


def test_what_would_not_be_so() -> None:
    """Controls: another event in place of one moves both sides and sizes; so do marginals cancelled one by one."""
    before, after = tiny((1, 0), (0, 1)).without_cancelled(), tiny((0, 1), (0, 1)).without_cancelled()
    assert moved(before, after) == [1, 1]
    assert [int(side.sum()) for side in sides(after)] == [0, 0]

    def one_by_one(batch: EncodedBatch, clique: tuple[int, ...]) -> list[np.ndarray]:
        net = batch.count([clique])[0]
        return [np.maximum(net, 0), np.maximum(-net, 0)]

    # The insert of (0, 0) more: column a has a delete of its value too many, column b has none.
    base, more = tiny((0, 0, 0, 0), (0, 1, 0, 0)), tiny((1, 0, 0, 0), (0, 1, 0, 0))
    changed = {
        side
        for clique in ((0,), (1,))
        for side in range(2)
        if (one_by_one(base, clique)[side] != one_by_one(more, clique)[side]).any()
    }
    assert changed == {0, 1}


@pytest.mark.parametrize("recipe", [Pooled(PAIRS, deletions=True), DPStabs(PAIRS, k=2, deletions=True)])
def test_plans_say_whether_equal_rows_cancel(recipe) -> None:
    plan = recipe.calibrate(epsilon=1)
    counted = replace(recipe, cancels=False).calibrate(epsilon=1)
    public = recipe.calibrate(epsilon=1, unit=Event("replace"))
    without_deletes = replace(recipe, deletions=False).calibrate(epsilon=1)
    assert plan.options()["cancels"] is plan.cancels is True
    for other in (counted, public, without_deletes):
        assert other.options()["cancels"] is other.cancels is False
    assert counted.parts() == plan.parts()
    assert "count twice" in words(counted, "further", **counted.facts())
    told = words(plan, "further", **plan.facts())
    assert "Errors grow with all arrivals and departures" in told
    assert "left" not in words(without_deletes, "further", **without_deletes.facts())


def test_a_batch_that_cannot_cancel_is_refused() -> None:
    class Counts:
        declares_deletes = True

    plan = Pooled(PAIRS, deletions=True).calibrate(epsilon=1)
    with pytest.raises(ConfigError, match="cannot leave out equal rows"):
        plan.step(plan.start(), Counts(), Randomness.seeded(1))


def test_the_total_goes_on_between_borders_and_the_manifest_says_how_many_came_and_left() -> None:
    recipe = Pooled(PAIRS, staleness=Fraction(1, 2), deletions=True, iterations=5)
    rows = np.zeros((40, 3), np.int32)
    found = {}
    for turnover in ("counted", "cancelled"):
        plan = replace(recipe, cancels=turnover == "cancelled").calibrate(epsilon=1)
        state, randomness, totals = plan.start(), Randomness.seeded(3), []
        for step in range(1, 11):
            batch = EncodedBatch(DOMAIN, np.concatenate([rows, rows + 1]), rows)
            release = plan.step(state, batch, randomness)
            totals.append((step == state.closed, release.total))
        found[turnover] = totals
        again = plan.unpack_synthesis(release.pack())
        assert (again.total, again.passed) == (release.total, release.passed)
        words = accuracy_of(release, plan, 10)["words"]
        if turnover == "cancelled":
            came, left = release.passed
            # Of 80 that come and 40 that leave a step, 40 equal ones cancel.
            assert abs(came - 40 * state.closed) < 150
            assert abs(left) < 150
            assert "errors of counts grow with these numbers" in words
        else:
            assert release.passed is None
            assert release.pack().meta["passed"] is None
            assert "grow with these" not in words
    # 40 more a step, in noise of a few records: the total is near the truth in the middle of an epoch, too.
    for totals in found.values():
        inside = [(step, total) for step, (border, total) in enumerate(totals, start=1) if not border]
        assert len(inside) > 3
        assert all(abs(total - 40 * step) < 90 for step, total in inside)


def test_growth_is_expected_as_far_as_it_is_clear_of_its_noise() -> None:
    """Nothing below two standard errors, nearly all of it far above; without deletes the rate itself."""

    def growth(state: Any, since: int) -> float:
        state.step = since
        return float(state.expected_growth())

    state = Pooled(PAIRS, deletions=True).calibrate(epsilon=1).start()
    came, left = state.sides
    came.rate, came.rate_variance, left.rate, left.rate_variance = 50.0, 15.0, 30.0, 10.0
    # 20 a step, with the variance 25: 3 steps let expect 60 (1 - 4 * 225/3600).
    assert growth(state, 3) == pytest.approx(45.0)
    # Shrinking: 15 of 100 a step in an epoch of 4 steps that began with 160; later in proportion to what is left.
    left.rate, came.number.values[0] = 70.0, 100.0
    came.estimates.ends = left.estimates.ends = [2, 6]
    assert growth(state, 3) == pytest.approx(100 * ((100 / 160) ** (3 / 4) - 1))
    assert growth(state, 1000) >= -100.0
    came.number.values[0] = -5.0
    assert growth(state, 3) == 0.0
    left.rate = 41.0
    assert growth(state, 3) == 0.0
    assert growth(state, 0) == 0.0
    alone = Pooled(PAIRS).calibrate(epsilon=1).start()
    alone.sides[0].rate, alone.sides[0].rate_variance = 5.0, 100.0
    assert growth(alone, 2) == 10.0


def test_the_error_of_an_expected_growth_is_that_of_the_rule() -> None:
    """By simulation: 400,000 draws, within 2 % (5 deviations and more; the draws are fixed)."""
    noise, share = np.random.default_rng(1).normal(0.0, 10.0, 400_000), 0.5
    for growth in (0.0, 3.0, -8.0, 20.0, 200.0):
        kept = clear_part(growth + share * noise, (share * 10.0) ** 2)
        added, went_on = growth_error(growth, 100.0, share)
        assert added + 100.0 == pytest.approx(((noise + kept - growth) ** 2).mean(), rel=0.02)
        assert went_on == pytest.approx(kept.mean() / growth if growth else 0.0, abs=0.02)
    # Clear growth has all of its noise, and none has hardly any.
    assert growth_error(1e6, 100.0, share)[0] == pytest.approx(100 * (1.5**2 - 1), rel=1e-3)
    assert growth_error(0.0, 100.0, share)[0] < 25.0


def test_fewer_than_no_rows_are_never_published_silently() -> None:
    plan = Pooled(PAIRS, deletions=True).calibrate(epsilon=1)
    few = ModelSynthesis((plan.start().table,), -3.2, total_error=5.0)
    words = accuracy_of(few, plan, 1)["words"]
    assert "came out as -3.2, less than none" in words
    assert "though records may exist" in words
    one = ModelSynthesis((plan.start().table,), 0.4, total_error=5.0)
    assert "less than none" not in accuracy_of(one, plan, 1)["words"]
