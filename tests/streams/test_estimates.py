"""Sums of published noisy counts: what they are, their law, and what least squares makes of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.contracts import NoisyCounts, marginal_query
from dpstream.core.errors import ConfigError, LimitError, SchemaError, StoreDamagedError
from dpstream.core.privacy import CubeNoise, Randomness
from dpstream.core.privacy.law import NoiseSum, WeightedLaplace, WeightedSum
from dpstream.core.privacy.noise import DiscreteGaussian, DiscreteLaplace
from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.stream.release.estimates import Estimate, Missing, Published

SCHEMA = Schema([Categorical("zip", ["a", "b", "c"]), Boolean("paid"), Boolean("late")])
SIZES = dict(zip(SCHEMA.names, SCHEMA.domain.sizes, strict=True))
SMALL, LARGE = DiscreteLaplace(Fraction(2)), DiscreteLaplace(Fraction(5))


def marginal(
    columns: Sequence[str], values: Any, first: int = 1, last: int = 1, noise: Any = SMALL, **more: Any
) -> NoisyCounts:
    query = {**marginal_query(columns), **({"chosen": True} if more.pop("chosen", False) else {})}
    counted = more.pop("counted", "inserts")
    name = f"{counted} {first}-{last} {columns} {noise} {more} {np.ravel(values)}"
    return NoisyCounts(name, counted, first, last, query, np.ravel(values).astype(np.int64), noise, **more)


def signs(
    terms: Sequence[Sequence[str]], values: Sequence[int], first: int = 1, last: int = 1, noise: Any = None
) -> NoisyCounts:
    query = {"kind": "signs", "terms": [list(term) for term in terms]}
    law = noise or CubeNoise(Fraction(3), len(terms))
    return NoisyCounts(f"signs {first} {terms}", "inserts", first, last, query, np.array(values), law)


def estimate(counts: Sequence[NoisyCounts], columns: Sequence[str], **more: Any) -> Estimate:
    found = Published(counts, SCHEMA).estimate(columns, **more)
    assert isinstance(found, Estimate), found
    return found


def missing(counts: Sequence[NoisyCounts], columns: Sequence[str], **more: Any) -> Missing:
    found = Published(counts, SCHEMA).estimate(columns, **more)
    assert isinstance(found, Missing), found
    return found


def test_epochs_are_added_and_wider_marginals_projected() -> None:
    table = np.arange(6).reshape(2, 3)  # paid x zip
    counts = [marginal(["zip"], [5, -1, 4]), marginal(["paid", "zip"], table, 2, 4, LARGE)]
    found = estimate(counts, ["zip"])
    assert found.values.tolist() == [8, 4, 11]
    assert (found.as_of, found.epochs, found.labels) == (4, ((1, 1), (2, 4)), (("a", "b", "c"),))
    assert found.law() == WeightedSum(((SMALL, 1.0, 1), (LARGE, 1.0, 2)))
    low, high = found.interval(0.9)
    assert set(((high - low) / 2).tolist()) == {NoiseSum(((SMALL, 1), (LARGE, 2))).half_width(0.9)}
    assert found.exact
    assert "as of step 4" in found.note
    assert found.to_table().column_names == ["zip", "measured", "standard_error", "low", "high"]
    number = estimate(counts, [])
    assert number.values == 23
    assert number.standard_error**2 == pytest.approx(3 * SMALL.variance + 6 * LARGE.variance)
    assert estimate(counts, ["zip"], as_of=1).values.tolist() == [5, -1, 4]


def test_deletes_are_taken_away() -> None:
    counts = [marginal(["zip"], [5, 6, 7]), marginal(["zip"], [1, 2, 3], counted="deletes", noise=LARGE)]
    found = estimate(counts, ["zip"])
    assert found.values.tolist() == [4, 4, 4]
    assert found.law().variance == SMALL.variance + LARGE.variance
    later = [*counts, marginal(["zip"], [1, 1, 1], 2, 2)]
    assert estimate(later, ["zip"]).as_of == 1, "what is added and taken away must be about the same steps"


def test_several_measurements_are_weighted_by_inverse_variance() -> None:
    exact, wide = marginal(["zip"], [6, 6, 6]), marginal(["zip", "paid"], np.ones((3, 2)), noise=LARGE)
    found = estimate([exact, wide], ["zip"])
    weight = (1 / SMALL.variance) / (1 / SMALL.variance + 1 / (2 * LARGE.variance))
    assert found.values == pytest.approx(np.full(3, 6 * weight + 2 * (1 - weight)))
    assert found.standard_error**2 == pytest.approx(1 / (1 / SMALL.variance + 1 / (2 * LARGE.variance)))
    chosen = marginal(["zip"], [0, 0, 0], chosen=True)
    assert estimate([exact, wide, chosen], ["zip"]).values.tolist() == found.values.tolist()
    assert not found.chosen
    # What is chosen every time has unusual noise: no interval.
    assert "chosen by earlier measurements" in missing([chosen], ["zip"]).reason
    squares = estimate([exact, chosen], ["zip"], combine="least squares")
    assert (squares.chosen, squares.interval(), squares.values.tolist()) == (True, None, [3, 3, 3])
    assert squares.to_table().column("low").null_count == 3
    assert "no interval holds" in squares.note
    terms = signs([["paid"], ["late"], ["paid", "late"], []], [10, 4, 6, 20])
    some = NoisyCounts(**{**vars(terms), "query": {**terms.query, "chosen": [["paid", "late"]]}})
    assert estimate([some], ["paid"]).values.tolist() == [5, 15]
    assert "chosen by earlier" in missing([some], ["late", "paid"]).reason
    assert estimate([some], ["late", "paid"], combine="least squares").chosen
    assert not estimate([some], ["paid"], combine="least squares").chosen


def test_sums_of_signs_are_decoded() -> None:
    # 20 records: 15 paid, 12 late, 10 of them both.
    counts = [signs([["paid"], ["late"], ["late", "paid"], []], [10, 4, 6, 20])]
    found = estimate(counts, ["late", "paid"])
    assert found.values.tolist() == [[3, 5], [2, 10]]
    assert found.standard_error == pytest.approx((4 * CubeNoise(Fraction(3), 4).variance) ** 0.5 / 4)
    assert estimate(counts, ["paid"]).values.tolist() == [5, 15]
    assert estimate(counts, []).values == 20
    assert missing(counts, ["zip"]).steps == ((1, 1),)
    known = Published([signs([["paid"]], [10])], SCHEMA, {1: 20}).estimate(["paid"])
    assert isinstance(known, Estimate)
    assert known.values.tolist() == [5, 15]
    assert known.standard_error == pytest.approx(CubeNoise(Fraction(3), 1).variance ** 0.5 / 2)


def test_what_is_missing_is_said() -> None:
    counts = [
        marginal(["zip"], [1, 1, 1]),
        marginal(["paid"], [1, 1], 2, 2),
        marginal(["zip"], [1, 1, 1], 3, 5),
        marginal(["paid"], [1, 1], 6, 8),
    ]
    gap = missing(counts, ["zip"])
    assert gap.steps == ((2, 2), (6, 8))
    assert gap.reason == "In steps 2, 6 to 8 the column zip was not measured."
    reason = missing(counts, ["zip", "paid"]).reason
    assert reason.endswith("the columns zip, paid were not measured together.")
    assert missing(counts, ["zip"], as_of=4).steps == ((2, 4),)
    assert estimate(counts, ["zip"], as_of=1).values.sum() == 3
    assert "No noisy counts" in missing([], ["zip"]).reason
    assert "counts of records" in missing([marginal(["zip"], [1, 1, 1], counted="people")], ["zip"]).reason


def test_of_running_sums_the_newest_one_counts() -> None:
    sums = [
        marginal(["zip"], [last] * 3, 1, last, NoiseSum(((SMALL, last),)), series="zip") for last in (1, 2, 3)
    ]
    found = estimate(sums, ["zip"])
    assert (found.values.tolist(), found.epochs) == ([3, 3, 3], ((1, 3),))
    assert found.law().variance == pytest.approx(3 * SMALL.variance)
    twice = [*sums, marginal(["zip", "paid"], np.full((3, 2), 9), 1, 3, series="zip")]
    # They share draws: one of them.
    assert estimate(twice, ["zip"]).law().variance == pytest.approx(2 * SMALL.variance)
    gains = [marginal(["zip"], [1, 1, 1], step, step, series="zip") for step in (1, 2, 3)]
    assert missing(gains, ["zip"]).steps == ((2, 3),), "what shares draws must not be added up"
    assert "Gains of steps" in missing(gains, ["zip"]).reason
    loose = [marginal(["zip"], [1, 1, 1], noise=WeightedLaplace(Fraction(50)))]
    assert estimate(loose, ["zip"]).law().half_width(0.9) == WeightedLaplace(Fraction(50)).half_width(0.9)
    mixed = estimate([*loose, marginal(["zip"], [1, 1, 1], 2, 2)], ["zip"])
    assert not mixed.exact
    assert "Chebyshev" in mixed.note
    assert mixed.law().half_width(0.99) == pytest.approx(10 * mixed.standard_error)


def test_of_present_records_only_one_census_counts() -> None:
    epochs = ((1, 1, 2, 2), (2, 3, 4, 4), (5, 1, 6, 6), (3, 1, 4, 8), (4, 5, 8, 8))
    census = [
        marginal(["zip"], [value] * 3, first, last, counted="present", as_of=as_of)
        for value, first, last, as_of in epochs
    ]
    assert estimate(census, ["zip"]).values.tolist() == [7, 7, 7]
    assert estimate(census, ["zip"], as_of=6).values.tolist() == [5, 5, 5]
    gap = missing(census, ["zip"], as_of=4)
    assert gap.steps == ((1, 2),)
    assert "lack it" in gap.reason
    later = marginal(["zip"], [9, 9, 9], 9, 9, counted="present", as_of=9)
    assert estimate([*census, later], ["zip"]).as_of == 8
    assert "No census" in missing(census, ["zip"], as_of=3).reason


def test_groups_of_steps_are_chosen_by_their_variance() -> None:
    nodes = [marginal(["zip"], [1, 1, 1], step, step) for step in range(1, 5)]
    nodes += [marginal(["zip"], [2, 2, 2], 1, 2), marginal(["zip"], [4, 4, 4], 1, 4, LARGE)]
    assert estimate(nodes, ["zip"]).epochs == ((1, 2), (3, 3), (4, 4))
    assert estimate(nodes[:-1], ["zip"], as_of=3).epochs == ((1, 2), (3, 3))


def test_bad_input() -> None:
    published = Published([marginal(["zip"], [1, 1, 1])], SCHEMA)
    with pytest.raises(SchemaError, match="rent"):
        published.estimate(["rent"])
    with pytest.raises(ConfigError, match="twice"):
        published.estimate(["zip", "zip"])
    with pytest.raises(ConfigError, match="least squares"):
        published.estimate(["zip"], combine="median")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="as_of = 0"):
        published.estimate(["zip"], as_of=0)
    with pytest.raises(StoreDamagedError, match="do not fit"):
        Published([marginal(["zip"], [1, 1])], SCHEMA).estimate(["zip"])
    many = Schema([Categorical(f"c{i}", [str(v) for v in range(20)]) for i in range(12)])
    with pytest.raises(LimitError):
        Published([marginal(["c0"], [1] * 20)], many).estimate(many.names)


# Least squares.

SUBSETS = [c for k in range(4) for c in itertools.combinations(SCHEMA.names, k)]
MEASURED = st.lists(
    st.tuples(st.sampled_from(SUBSETS), st.integers(1, 9), st.booleans()), min_size=1, max_size=5
)


def design(one: NoisyCounts) -> np.ndarray:
    """How each value depends on the cells of the whole table."""
    cells = np.indices(SCHEMA.domain.sizes).reshape(3, -1)
    where = {name: cells[i] for i, name in enumerate(SCHEMA.names)}
    if one.columns is None:
        sign = {name: 2.0 * where[name] - 1.0 for name in ("paid", "late")}
        whole = np.ones(cells.shape[1])
        return np.array([np.prod([whole, *(sign[n] for n in term)], axis=0) for term in one.query["terms"]])
    return projection(one.columns)


def projection(columns: Sequence[str]) -> np.ndarray:
    cells = np.indices(SCHEMA.domain.sizes).reshape(3, -1)
    where = [cells[SCHEMA.names.index(name)] for name in columns]
    shape = [SIZES[name] for name in columns]
    flat = np.ravel_multi_index(tuple(where), shape) if columns else np.zeros(cells.shape[1], int)
    return (np.arange(int(np.prod(shape)))[:, None] == flat).astype(float)


@settings(max_examples=60, deadline=None)
@given(MEASURED, st.sampled_from(SUBSETS), st.booleans(), st.randoms(use_true_random=False))
def test_least_squares_are_those_of_a_dense_solver(measured, asked, with_signs, random) -> None:  # type: ignore[no-untyped-def]
    counts = []
    for number, (columns, scale, turned) in enumerate(measured):
        columns = columns[::-1] if turned else columns
        values = [random.randint(-20, 20) for _ in range(int(np.prod([SIZES[c] for c in columns])))]
        one = marginal(columns, values, noise=DiscreteLaplace(Fraction(scale)))
        counts.append(NoisyCounts(**{**vars(one), "draw": str(number)}))
    if with_signs:
        counts.append(signs([["paid"], ["late"], []], [random.randint(-20, 20) for _ in range(3)]))
    found = Published(counts, SCHEMA).estimate(asked, combine="least squares")
    # Each row divided by its standard deviation; the answer must lie in what the rows span.
    rows = np.concatenate([design(one) / one.variance**0.5 for one in counts])
    seen = np.concatenate([one.values / one.variance**0.5 for one in counts])
    wanted = projection(asked)
    inverse = np.linalg.pinv(rows)
    known = np.allclose(wanted @ inverse @ rows, wanted, atol=1e-8)
    assert isinstance(found, Estimate) is known
    if isinstance(found, Estimate):
        np.testing.assert_allclose(found.values.ravel(), wanted @ inverse @ seen, atol=1e-6)
        covariance = wanted @ inverse @ inverse.T @ wanted.T
        assert found.standard_error**2 == pytest.approx(covariance[0, 0])
        mask = np.zeros(found.values.size, dtype=bool)
        mask[: 1 + found.values.size // 2] = True
        assert found.law(mask.reshape(found.values.shape)).variance == pytest.approx(mask @ covariance @ mask)
        plain = Published(counts, SCHEMA).estimate(asked)
        assert isinstance(plain, Missing) or plain.standard_error >= found.standard_error - 1e-9


# The law of a weighted sum.

LAWS = [
    WeightedSum(((SMALL, 0.7, 1), (LARGE, 0.3, 2))),
    WeightedSum(((DiscreteGaussian(Fraction(9)), 0.61, 3), (SMALL, 1.0, 1))),
    WeightedSum((), ((CubeNoise(Fraction(4), 6), (0.25, 0.25, 0.25, 0.25), 3),)),
    WeightedSum(((SMALL, 0.5, 2),), ((CubeNoise(Fraction(3), 3), (0.5, 1.0), 1),)),
    WeightedSum((), ((CubeNoise(Fraction(200), 40), (0.5, 0.5), 1),)),
    WeightedSum(((SMALL, 1.0, 3),)),
]


def drawn(law: WeightedSum, many: int, randomness: Randomness) -> np.ndarray:
    total = np.zeros(many)
    for noise, weight, count in law.parts:
        total += weight * randomness.draw(noise, many * count).reshape(count, many).sum(axis=0)
    for joint, weights, count in law.joint:
        for _ in range(count):
            vectors = np.array([randomness.draw(joint, joint.dimension)[: len(weights)] for _ in range(many)])
            total += vectors @ np.array(weights)
    return total


@pytest.mark.parametrize("law", LAWS, ids=range(len(LAWS)))
def test_widths_hold_their_probability_and_little_more(law: WeightedSum) -> None:
    """False alarms below 1e-6: five standard deviations of a share; the control is a width of half of the noise."""
    many = 4000
    sums = np.abs(drawn(law, many, Randomness.system()))
    for confidence in (0.5, 0.9, 0.99):
        width = law.half_width(confidence)
        inside = float((sums <= width + 1e-9).mean())
        margin = 5.0 * (confidence * (1.0 - confidence) / many) ** 0.5 + 1.0 / many
        assert inside >= confidence - margin
        halved = float((sums <= width / 2).mean())
        assert halved < confidence - margin
    # Not wider than it has to be: two lattice points, or 3 %, at most.
    assert float((sums <= law.half_width(0.9) * 0.97 - 2.0).mean()) < 0.9 + 5.0 * (0.09 / many) ** 0.5
