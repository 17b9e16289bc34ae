"""Answers of all levels of a tree agree, are the best that measurements allow, and have exact errors."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstream as dp
from dpstream.core.privacy import Randomness
from dpstream.stream.release.trees import Fitted, Tree

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
        own = {
            name: release.flow(name, *span, combine="least squares") for name in ("region", "district", "zip")
        }
        zips = own["zip"].values
        np.testing.assert_allclose(own["region"].values, [zips[:4].sum(), zips[4:].sum()])
        np.testing.assert_allclose(own["district"].values, [zips[:3].sum(), zips[3], zips[4:].sum()])
        total = release.flow((), *span, combine="least squares")
        np.testing.assert_allclose(total.values, zips.sum())
        for name, flow in own.items():
            raw = release.flow(name, *span)
            # Of zips epochs tell something, too: what they say stays out of the tree.
            assert name == "zip" or (flow.standard_errors < raw.standard_errors).all()
            series = release.series(name, 2, combine="least squares")
            inside = [f.values for s, f in zip(series.spans, series.flows, strict=True) if span[0] <= s.first]
            np.testing.assert_allclose(sum(inside[: (span[1] - span[0] + 1) // 2]), flow.values)
    # A district of one zip is as well known as this zip, and differs from those of three.
    errors = {name: own[name].standard_errors for name in own}
    assert errors["district"][1] == pytest.approx(errors["zip"][3])
    assert len(np.unique(errors["zip"].round(9))) == 3
    change = release.change("region", earlier=(1, 4), later=(3, 6), combine="least squares")
    gone, added = (release.flow("region", *span, combine="least squares") for span in ((1, 2), (5, 6)))
    np.testing.assert_allclose(change.difference.values, added.values - gone.values)
    assert change.difference.standard_error == pytest.approx(2**0.5 * gone.standard_error)


def test_intervals_of_reconciled_levels_hold(release) -> None:
    """Noise drawn anew many times on one tree: 95 % within; with half the width too few. False alarms: 1e-6 (5.3
    standard deviations of 6,000 draws below nominal)."""
    flow = release.flow("zip", 1, 2, combine="least squares")
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
