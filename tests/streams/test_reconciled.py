"""Answers of all levels of a tree agree, are the best that measurements allow, and have exact errors."""

from __future__ import annotations

import datetime
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstream as dp
from dpstream.core.contracts import NoisyCounts, marginal_query
from dpstream.core.privacy import DiscreteLaplace, Randomness
from dpstream.core.schema.trees import Fitted, Tree
from dpstream.stream.release.combined import OfTop, TreeCells
from dpstream.stream.release.estimates import Estimate, Published

VARIANCES = st.sampled_from([0.25, 1.0, 7.0, 100.0])


@st.composite
def trees(draw: st.DrawFn) -> Fitted:
    """Up to four levels, of which all but the finest may be unmeasured."""
    widths, size, parents = draw(st.lists(st.integers(1, 4), min_size=2, max_size=3)), 1, []
    for width in widths:
        children = draw(st.lists(st.integers(1, width), min_size=size, max_size=size))
        parents.append(np.repeat(np.arange(size), children))
        size = sum(children)
    tree = Tree(tuple("abc"[: len(parents)]), tuple(parents))
    coarse = [draw(st.one_of(VARIANCES, st.just(np.inf))) for _ in parents]
    return Fitted(tree, (*coarse, draw(VARIANCES)))


def _dense(fitted: Fitted) -> tuple[np.ndarray, np.ndarray, list[slice]]:
    """Generalised least squares with matrices: all estimates from all measured values, their covariance, and where
    levels stand."""
    below, rows = np.eye(fitted.tree.sizes[-1]), list[np.ndarray]()
    for level in range(len(fitted.tree.parents), -1, -1):
        rows.insert(0, below)
        if level:
            up = np.zeros((fitted.tree.sizes[level - 1], fitted.tree.sizes[level]))
            up[fitted.tree.parents[level - 1], np.arange(up.shape[1])] = 1.0
            below = up @ below
    design, ends = np.concatenate(rows), np.cumsum(fitted.tree.sizes).tolist()
    precision = np.repeat([0.0 if np.isinf(v) else 1.0 / v for v in fitted.variances], fitted.tree.sizes)
    covariance = design @ np.linalg.inv(design.T * precision @ design) @ design.T
    levels = [slice(end - size, end) for end, size in zip(ends, fitted.tree.sizes, strict=True)]
    return covariance * precision, covariance, levels


@settings(deadline=None)
@given(fitted=trees(), seed=st.integers(0, 1000))
def test_the_tree_is_the_least_squares_of_matrices(fitted: Fitted, seed: int) -> None:
    weights, covariance, levels = _dense(fitted)
    measured = np.random.default_rng(seed).normal(0.0, 50.0, len(weights)).round()
    found = fitted.estimate([measured[part] for part in levels])
    np.testing.assert_allclose(np.concatenate(found), weights @ measured, atol=1e-6)
    for level, parents in enumerate(fitted.tree.parents):
        np.testing.assert_allclose(np.bincount(parents, found[level + 1]), found[level], atol=1e-6)
        kinds = fitted.tree.kinds[level + 1]
        for place in range(len(parents)):
            row = levels[level + 1].start + place
            cells = np.arange(len(parents)) == place
            np.testing.assert_allclose(
                np.concatenate(fitted.weights(level + 1, cells)), weights[row], atol=1e-9
            )
            alike = covariance.diagonal()[levels[level + 1]][kinds == kinds[place]]
            np.testing.assert_allclose(alike, covariance[row, row])


@settings(deadline=None)
@given(fitted=trees(), seed=st.integers(0, 1000))
def test_counts_from_the_top_down_are_the_nearest(fitted: Fitted, seed: int) -> None:
    """Of each family: by the conditions of Karush, Kuhn and Tucker."""
    generator, tree = np.random.default_rng(seed), fitted.tree
    values = [generator.normal(2.0, 10.0, size).round() for size in tree.sizes]
    found = tree.top_down(values)
    for parents, own, wanted, above in zip(tree.parents, found[1:], values[1:], found, strict=False):
        assert own.min() >= 0.0
        np.testing.assert_allclose(np.bincount(parents, own, len(above)), above, atol=1e-9)
        for family in np.unique(parents[above[parents] > 0.0]):
            moved, left = (wanted - own)[parents == family], own[parents == family] > 0.0
            np.testing.assert_allclose(moved[left], moved[left][0], atol=1e-9)
            assert (moved[~left] <= moved[left][0] + 1e-9).all()


@pytest.mark.parametrize(("shape", "bars"), [((10, 100), (2.0, 2.0)), ((10, 10, 10), (2.86, 2.87, 2.87))])
def test_levels_with_equal_shares_are_as_good_as_promised(shape, bars) -> None:
    """In standard errors of the finest level alone: each of L levels has L times its noise (pure)."""
    sizes = np.cumprod(shape)
    parents = [np.zeros(shape[0], dtype=np.int64)]
    parents += [np.arange(size) // part for size, part in zip(sizes[1:], shape[1:], strict=True)]
    tree = Tree(tuple("abc"[: len(shape)]), tuple(parents))
    fitted = Fitted(tree, (np.inf, *[float(len(shape)) ** 2] * len(shape)))
    errors = [
        float(fitted.covariances(level, np.arange(size) == 0)[level][0]) ** 0.5
        for level, size in enumerate(tree.sizes)
    ][1:]
    assert all(error <= bar for error, bar in zip(errors, bars, strict=True))
    assert sizes[-1] ** 0.5 / shape[0] ** 0.5 > 3 * bars[0]  # the sum of a region's values


PLACES = {
    "region": ["n", "n", "n", "n", "s", "s"],
    "district": ["n1", "n1", "n1", "n2", "s1", "s1"],
    "zip": list("abcdef"),
}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> dp.PublicRelease:
    """Twelve weeks, by periods of two."""
    folder: Path = tmp_path_factory.mktemp("levels")
    columns = [dp.Categorical("zip", PLACES["zip"]), dp.Boolean("paid")]
    schema = dp.Schema(columns).with_levels("place", tuple(PLACES), PLACES)
    generator = np.random.default_rng(3)
    accuracy = {"headline": ["place.region"], "periods": "2 steps"}
    with dp.open(
        folder / "s", schema, epsilon=1, accuracy=accuracy, randomness=Randomness.seeded(5)
    ) as stream:
        for week in range(12):
            codes = generator.integers(0, 6, 300)
            day = datetime.date(2026, 1, 5) + datetime.timedelta(weeks=week)
            rows = {"zip": np.array(PLACES["zip"])[codes], "paid": generator.random(300) < 0.5}
            stream.step(rows, str(week), f"{day}/{day + datetime.timedelta(days=6)}")
    return dp.read(folder / "s" / "releases")


def test_reconciled_flows_agree_over_levels_and_over_time(release) -> None:
    spans = [(1, 4), (5, 6), (1, 12), (3, 12)]
    for span in spans:
        own = {name: release.flow(name, *span) for name in ("region", "district", "zip")}
        zips = own["zip"].values
        np.testing.assert_allclose(own["region"].values, [zips[:4].sum(), zips[4:].sum()])
        np.testing.assert_allclose(own["district"].values, [zips[:3].sum(), zips[3], zips[4:].sum()])
        total = release.flow((), *span)
        np.testing.assert_allclose(total.values, zips.sum())
        for name, flow in own.items():
            raw = release.flow(name, *span, combine="mean")
            assert (flow.standard_errors < raw.standard_errors).all()
            series = release.series(name, 2)
            inside = [f.values for s, f in zip(series.spans, series.flows, strict=True) if span[0] <= s.first]
            np.testing.assert_allclose(sum(inside[: (span[1] - span[0] + 1) // 2]), flow.values)
    # A district of one zip is as well known as this zip, and differs from those of three.
    errors = {name: own[name].standard_errors for name in own}
    assert errors["district"][1] == pytest.approx(errors["zip"][3])
    assert len(np.unique(errors["zip"].round(9))) == 3
    change = release.change("region", earlier=(1, 4), later=(3, 6))
    gone, added = (release.flow("region", *span) for span in ((1, 2), (5, 6)))
    np.testing.assert_allclose(change.difference.values, added.values - gone.values)
    errors = np.hypot(gone.standard_errors, added.standard_errors)
    np.testing.assert_allclose(change.difference.standard_errors, errors)


SCHEMA = (
    dp.Schema([dp.Categorical("zip", PLACES["zip"]), dp.Categorical("use", list("uvw")), dp.Boolean("paid")])
    .with_levels("place", tuple(PLACES), PLACES)
    .with_levels("aim", ("goal", "use"), {"goal": ["home", "home", "work"], "use": list("uvw")})
)
EPOCHS = [((1, 2), (3, 4), (5, 8)), ((1, 8),), ((1, 1), (2, 2), (3, 4), (5, 6), (7, 8))]


@st.composite
def streams(draw: st.DrawFn) -> list[NoisyCounts]:
    """Two trees by periods of two steps, the number of records by steps, and what epochs measured."""
    sizes = dict(zip(SCHEMA.domain.released.names, SCHEMA.domain.released.sizes, strict=True))
    scale = {key: draw(st.sampled_from([1, 3, 20])) for key in (*sizes, "number", "epoch")}
    generator, found = np.random.default_rng(draw(st.integers(0, 99))), list[NoisyCounts]()

    def measure(span: tuple[int, int], names: tuple[str, ...], key: str, **more: Any) -> None:
        values = generator.integers(0, 50, int(np.prod([sizes[name] for name in names])))
        query = {**marginal_query(names), **more}
        noise = DiscreteLaplace(Fraction(scale[key]))
        found.append(NoisyCounts(f"draw {len(found)}", "inserts", *span, query, values, noise))

    for first in range(1, 9):
        measure((first, first), (), "number", period="1 step")
    for first in (1, 3, 5, 7):
        for name in draw(
            st.sampled_from([("region", "district", "zip"), ("region", "district", "zip", "goal", "use")])
        ):
            measure((first, first + 1), (name,), name, period="2 steps")
    marginals = [("zip",), ("use", "paid"), ("zip", "use"), ("paid",)]
    for span in draw(st.sampled_from(EPOCHS)):
        for names in draw(st.lists(st.sampled_from(marginals), min_size=1, max_size=3, unique=True)):
            measure(span, names, "epoch", chosen=draw(st.booleans()))
    return found


def _is_tree(estimate: Estimate) -> bool:
    return all(isinstance(part, TreeCells | OfTop) for part in estimate._parts)


@settings(deadline=None, max_examples=40)
@given(counts=streams())
def test_no_answer_is_worse_than_its_measurements_and_reconciled_ones_agree(
    counts: list[NoisyCounts],
) -> None:
    published = Published(counts, SCHEMA)
    names = [(), *((name,) for name in ("region", "district", "zip", "goal", "use", "paid"))]
    for ask in (
        *(
            lambda name, how, b=b, e=e: published.flow(name, b, e, "came", how)
            for b, e in ((0, 2), (2, 6), (0, 8))
        ),
        *(lambda name, how, e=e: published.estimate(name, e, how) for e in (2, 5, 6, 8)),
    ):
        agreeing = dict[tuple[str, ...], Estimate]()
        for name in names:
            raw, found = ask(name, "mean"), ask(name, "reconciled")
            assert isinstance(raw, Estimate) == isinstance(found, Estimate)
            if isinstance(found, Estimate):
                assert (found.standard_errors <= raw.standard_errors * (1 + 1e-9)).all()
                assert found.exact >= raw.exact
                if _is_tree(found):
                    agreeing[name] = found
        for column in {("region",), ("district",), ("zip",), ("goal",), ("use",)} & agreeing.keys():
            tree = next(tree for tree in published._trees if column[0] in tree.columns)
            level = tree.columns.index(column[0])
            above = (tree.columns[level - 1],) if level else ()
            if above in agreeing:
                sums = np.bincount(tree.parents[level], agreeing[column].values)
                np.testing.assert_allclose(sums, agreeing[above].values.reshape(-1), atol=1e-6)


@settings(deadline=None, max_examples=5)
@given(counts=streams())
def test_stated_errors_are_those_of_all_measured_cells(counts: list[NoisyCounts]) -> None:
    """The weight of each measured cell is what a change of it does to the answer."""
    for name, begin in (((), 4), (("region",), 4), (("zip",), 0)):

        def answer(counts: list[NoisyCounts], name=name, begin=begin) -> Estimate:
            published = Published(counts, SCHEMA)
            found = published.flow(name, begin, 6, "came") if begin else published.estimate(name, 6)
            assert isinstance(found, Estimate)
            return found

        before, variance = answer(counts), 0.0
        for place, one in enumerate(counts):
            for cell in range(one.values.size):
                moved = one.values + 1000 * (np.arange(one.values.size) == cell)
                after = answer([*counts[:place], replace(one, values=moved), *counts[place + 1 :]])
                weight = float((after.values - before.values).flat[0]) / 1000
                variance += weight**2 * one.variance
        assert variance**0.5 == pytest.approx(before.standard_errors.flat[0])


def test_intervals_of_reconciled_levels_hold(release) -> None:
    """Noise drawn anew many times on one tree: 95 % within; with half the width too few. False alarms: 1e-6 (5.3
    standard deviations of 6,000 draws below nominal)."""
    flow = release.flow("zip", 1, 2)
    fitted = flow._parts[0].fitted
    generator, draws = np.random.default_rng(8), 6000
    low, high = flow.interval()
    inside = {1.0: np.zeros(6), 0.5: np.zeros(6)}
    scales = [0.0 if np.isinf(v) else (v / 2.0) ** 0.5 for v in fitted.variances]
    for _ in range(draws):
        noise = [
            generator.laplace(0.0, scale, size) if scale else np.zeros(size)
            for scale, size in zip(scales, fitted.tree.sizes, strict=True)
        ]
        error = np.abs(fitted.estimate(noise)[-1])
        for part in inside:
            inside[part] += error <= part * (high - low) / 2
    least = 0.95 - 5.3 * (0.95 * 0.05 / draws) ** 0.5
    assert (inside[1.0] / draws > least).all()
    assert not (inside[0.5] / draws > least).any()
