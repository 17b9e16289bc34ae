"""Means and quantiles: of numbers in bins their intervals hold wherever these lie; of measured sums, by their noise."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import dpstream as dp
from dpstream.cli.main import main
from dpstream.core.contracts import ExpectedTable, NoisyCounts, marginal_query
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import DiscreteLaplace, Event, Noise, Randomness
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled, PooledPlan
from dpstream.mechanisms.headlines import headline_folds
from dpstream.project.planning import headline_lines
from dpstream.project.schema_file import read_schema, write_schema
from dpstream.stream.measured_counts import published_counts, to_rows
from dpstream.stream.release.averages import Average, Numbers
from dpstream.stream.release.estimates import Published

DELAY = dp.Integer("delay", edges=[-10, 0, 10, 50, 200], outside="clip", missing="missing")
SCHEMA = dp.Schema([dp.Categorical("carrier", ["AA", "UA"]), DELAY], edges_from_data=True)
#: Records by carrier and bin; the last bin holds cells without a number.
COUNTS = np.array([[400, 250, 90, 30, 20], [20, 10, 5, 3, 0]])


def numbers_of(values: np.ndarray, noise: Noise, where: str | None) -> Numbers:
    query = marginal_query(["carrier", "delay"])
    published = Published([NoisyCounts("one", "inserts", 1, 1, query, values, noise)], SCHEMA)
    table = pa.table({"carrier": ["AA", "UA"], "delay": pa.array([5, None], pa.int64())})
    return Numbers.of(SCHEMA, "delay", where, lambda: table, published)


@pytest.mark.parametrize(("where", "rows"), [(None, [0, 1]), ("carrier = 'UA'", [1])])
def test_intervals_hold_wherever_numbers_lie_in_their_bins(where: str | None, rows: list[int]) -> None:
    """With coverage .95 and 400 draws, 365 or fewer of 400 have a probability of 1e-3. Noise alone at the middles of
    bins, the control, misses the means at the ends of the bins."""
    draw, noise = np.random.default_rng(1), DiscreteLaplace(Fraction(4))
    inside, middles = COUNTS[rows, : DELAY.bins].sum(axis=0), (DELAY.lower + DELAY.upper) / 2.0
    means = [float(inside @ ends) / inside.sum() for ends in (DELAY.lower, DELAY.upper)]
    middle = int(np.searchsorted(np.cumsum(inside), inside.sum() / 2.0))
    held, missed, share = np.zeros(3), 0, 1 - np.exp(-1 / 4)
    for _ in range(400):
        values = COUNTS.ravel() + draw.geometric(share, 10) - draw.geometric(share, 10)
        numbers = numbers_of(values, noise, where)
        sides = [[(DELAY.upper - mean, 0.95), (mean - DELAY.lower, 0.95)] for mean in means]
        held[:2] += [all(numbers._stands(*side) for side in pair) for pair in sides]
        low, high = numbers.quantile(0.5).interval() or (0.0, 0.0)
        held[2] += low <= DELAY.lower[middle] and DELAY.upper[middle] <= high
        missed += not all(numbers._stands(sign * (middles - means[1]), 0.95) for sign in (1.0, -1.0))
    assert (held > 365).all()
    assert where is not None or missed > 300
    low, high = numbers.mean().interval() or (0.0, 0.0)
    step = (DELAY.last - DELAY.lower[0]) / 4096
    assert numbers._stands(DELAY.upper - high + step, 0.95)
    assert not numbers._stands(DELAY.upper - high - step, 0.95)
    assert low < high


def test_a_release_says_means_as_of_its_table_and_of_what_was_measured_in_a_period(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The exact law is in the note; numbers beyond the ends count as the ends, in labels and codebook too."""
    draw = np.random.default_rng(2)
    accuracy = {"headline": [["delay", "carrier"]], "periods": "1 steps"}
    rows = [
        {"carrier": ["AA"] * 3000 + ["UA"] * 1000, "delay": draw.integers(-30, high, 4000)}
        for high in (50, 220)
    ]
    with dp.open(
        tmp_path, SCHEMA, epsilon=1, mechanism="pooled", randomness=Randomness.seeded(3), accuracy=accuracy
    ) as stream:
        for number, own in enumerate(rows):
            release = stream.step(own, name=f"s{number}")
    read = dp.read(tmp_path / "releases")
    clipped = [np.clip(own["delay"], -10, 200) for own in rows]

    def near(found: Average, truth: float) -> None:
        low, high = found.interval() or (np.nan, np.nan)
        assert low <= truth <= high
        assert found.value == pytest.approx(truth, rel=0.25)
        assert "counted up to 200" in found.note

    near(read.mean("delay"), float(np.concatenate(clipped).mean()))
    near(release.mean("delay"), float(np.concatenate(clipped).mean()))
    for step, own in enumerate(clipped, start=1):
        flow = read.flow(["delay", "carrier"], step, step)
        near(read.mean("delay", of=flow), float(own.mean()))
        near(read.mean("delay", "carrier = 'UA'", of=flow), float(own[3000:].mean()))
        median = read.quantile("delay", 0.5, of=flow)
        low, high = median.interval() or (np.nan, np.nan)
        assert low <= np.median(own) <= high
    assert any("edges of numbers were read off" in words for words in read.manifest()["declared_public"])
    assert read_schema(tomllib.loads(write_schema(SCHEMA))).edges_from_data
    assert DELAY.labels()[0] == "-10..-1 and less"
    assert DELAY.labels()[3] == "50..200 and more"
    for wrong, words in (
        (lambda: read.mean("carrier"), "expected a column of numbers"),
        (lambda: read.quantile("delay", 1.0), "above 0 and below 1"),
        (lambda: read.mean("delay", of=read.flow()), "the estimate is of the number of records"),
    ):
        with pytest.raises(ConfigError, match=words):
            wrong()


FARE = dp.Real("fare", [0, 90, 1500.5], outside="clip")
SPAN = dp.Integer("span", edges=[0, 7, 50, 5001], other="other")
NUMBERS = dp.Schema([*SCHEMA.columns, FARE, SPAN])
MEANS = (("mean(delay)",), ("mean(fare)", "carrier"), ("span", "mean(delay)"), ("mean(span)",))


def means_plan(**more) -> PooledPlan:  # type: ignore[no-untyped-def]
    recipe = Pooled(Workload.all_k_way(NUMBERS.domain, 2), headline=MEANS, schema=NUMBERS, iterations=3)
    return recipe.calibrate(**{"epsilon": 2, **more})


def test_a_record_moves_the_sums_of_a_mean_by_their_sensitivity() -> None:
    """All sums of all records, as a matrix: what one record more, or another one, changes, and what noise is for it."""
    draw, most = np.random.default_rng(4), 400
    rows = {
        "carrier": draw.choice(["AA", "UA"], most),
        "delay": pa.array(draw.integers(-40, 300, most), mask=draw.random(most) < 0.2),
        "fare": np.append(draw.uniform(-5, 1600, most - 3), [0.0, 90.0, 1500.5]),
        "span": np.append(draw.integers(-9, 6000, most - 5), [0, 7, 49, 50, 5001]),
    }
    for plan in (means_plan(), means_plan(unit=Event("replace")), means_plan(epsilon=None, rho="1/8")):
        sums = plan.sums
        assert sums is not None
        assert sum(part.total for part in plan.parts()) == plan.budget.amount
        codes = plan.reading_schema(NUMBERS).encode(rows)
        assert (sums.codes(codes) == NUMBERS.encode(rows)).all()
        asked, declared = plan.asked_cliques(), EncodedBatch(NUMBERS.domain, NUMBERS.encode(rows))
        counts = dict(zip(asked, EncodedBatch(sums.read_domain, codes).count(asked), strict=True))
        wanted = zip(asked, declared.count(asked), strict=True)
        assert all((sums.declared(counts)[clique] == own).all() for clique, own in wanted)
        each = [np.array([sums.of(mean.names, row) for row in codes]) for mean in sums.means]
        assert (np.concatenate([own.sum(axis=0) for own in each]) == sums.read(counts)).all()
        for mean, moved, noise in zip(sums.means, each, sums.noises, strict=True):
            steps, own = mean.scale.steps, NUMBERS[mean.column]
            values = pa.chunked_array([rows[mean.column]]).to_pylist()
            numbers = [np.nan if value is None else np.clip(value, *own.limits()) for value in values]
            gone = own.encode(values) >= own.bins
            assert (moved[gone] == 0).all()
            assert (moved[~gone].sum(axis=1) == steps).all()
            places = mean.scale.low + moved[:, 1::2].sum(axis=1) * mean.scale.unit
            assert np.nanmax(np.abs(places - numbers)[~gone]) <= mean.scale.error + 1e-9
            between = moved[:, None] - moved[None]
            change = moved if plan.unit.relation == "add-remove" else between.reshape(-1, moved.shape[1])
            times, most_moved = plan.unit.changed_cells, int(np.abs(change).sum(axis=1).max())
            assert 0.99 * times * steps <= most_moved <= times * steps
            assert (change**2).sum(axis=1).max() <= times * steps**2
            if isinstance(noise, DiscreteLaplace):
                assert noise.scale == times * steps / Fraction(2, 20 * len(MEANS))
            else:
                assert noise.sigma_squared == times * steps**2 / Fraction(2, 8 * 20 * len(MEANS))


def test_finer_codes_are_excluded_where_declared_ones_are() -> None:
    text = '[schema.constraints]\nforbidden = ["carrier = \'AA\' and fare >= 90", "span < 7 and fare < 90"]\n'
    declared = read_schema(tomllib.loads(write_schema(NUMBERS) + text))
    recipe = Pooled(Workload.all_k_way(declared.domain, 2), headline=MEANS, schema=declared)
    sums: Any = recipe.calibrate(epsilon=1).sums
    draw, sizes, fine, own = (
        np.random.default_rng(8),
        sums.read_domain.sizes,
        sums.reading(declared),
        declared,
    )
    rows = draw.integers(0, sizes, (300, len(sizes))).astype(np.int32)
    each = [fine.rules.has_impossible(row[None]) for row in rows]
    assert 0 < sum(each) < len(rows)
    assert each == [own.rules.has_impossible(row[None]) for row in sums.codes(rows)]  # type: ignore[union-attr]


def test_the_interval_of_a_measured_mean_holds_it() -> None:
    """Coverage .95 in 600 draws: 545 or fewer have a probability of 1e-5. Control: the law of 2/3 of the noise."""
    draw, held, ends = np.random.default_rng(5), {2100: 0, 1400: 0}, np.array([-10.0, 200.0])
    truth = draw.integers(0, 211, 300)
    exact, mean = np.array([(210 - truth).sum(), truth.sum()]), float(truth.mean()) - 10.0
    query = {
        "kind": "mean",
        "columns": ["mean(delay)"],
        "ends": ends.tolist(),
        "error": 0.0,
        "period": "1 step",
    }
    for _ in range(600):
        values = exact + np.round(draw.laplace(0.0, 2100.0, 2)).astype(int)
        for scale in held:
            one = NoisyCounts("one", "inserts", 1, 1, query, values, DiscreteLaplace(Fraction(scale)))
            numbers = Numbers.of(NUMBERS, "delay", None, pa.table, Published([one], NUMBERS), sums=True)
            held[scale] += all(numbers._stands(side * (ends - mean), 0.95) for side in (1.0, -1.0))
    assert held[2100] > 545
    assert held[1400] <= 545
    low, high = numbers.mean().interval() or (0.0, 0.0)
    assert -10.0 <= low < (numbers.mean().value or 0.0) < high <= 200.0


def test_a_measured_mean_is_in_releases_files_and_commands(tmp_path) -> None:  # type: ignore[no-untyped-def]
    draw, options = np.random.default_rng(6), {"epsilon": 8, "mechanism": "pooled"}
    accuracy = {"headline": ["mean(delay)", ["mean(delay)", "carrier"]], "periods": "2 steps"}
    rows = [
        {"carrier": draw.choice(["AA", "UA"], 3000), "delay": draw.integers(-40, 90, 3000)} for _ in range(4)
    ]
    for step, own in enumerate(rows):  # each step in a stream that was closed before
        noise = Randomness.seeded(step)
        with dp.open(tmp_path, SCHEMA, accuracy=accuracy, randomness=noise, **options) as stream:
            release = stream.step(own, name=f"s{step}")
    read = dp.read(tmp_path / "releases")
    clipped, carriers = (np.concatenate([own[name] for own in rows]) for name in ("delay", "carrier"))
    clipped = np.clip(clipped, -10, 200)

    def near(found: Average, truth: float) -> None:
        low, high = found.interval() or (np.nan, np.nan)
        assert low <= truth <= high
        assert 0.0 < high - low < 3.0
        assert found.value == pytest.approx(truth, abs=1.5)

    for source in (read, release):
        near(source.mean("delay"), clipped.mean())
        near(source.mean("delay", "carrier = 'UA'"), clipped[carriers == "UA"].mean())
    late = read.flow(["carrier", "mean(delay)"], 3, 4)
    near(read.mean("delay", of=late), clipped[6000:].mean())
    near(read.mean("delay", "carrier = 'AA'", of=late), clipped[6000:][carriers[6000:] == "AA"].mean())
    series = read.series(["mean(delay)"], "2 steps").to_table().to_pylist()
    assert [(row["from"], row["to"], row["standard_error"]) for row in series] == [
        ("1", "2", None),
        ("3", "4", None),
    ]
    rows_of = [row for row in to_rows(published_counts(read)[0]).to_pylist() if "mean(" in row["column"]]
    assert [row["value"] for row in rows_of] == ["", "", "AA", "UA", "AA", "UA"]
    assert [row["count"] for row in rows_of[:2]] == pytest.approx([row["count"] for row in series], abs=1e-3)
    told = CliRunner().invoke(
        main, ["measured", str(tmp_path / "releases"), "--mean", "delay", "--every", "2 steps", "--json"]
    )
    assert [row["mean"] for row in json.loads(told.output)["rows"]] == [row["count"] for row in series]
    with pytest.raises(ConfigError, match="expected counts"):
        read.quantile("delay", 0.5, of=late)
    plan, columns = stream.plan, SCHEMA.domain
    lines = headline_lines((), ExpectedTable(9000, 3000.0, "grows"), plan.facts()["means"])
    assert lines[0].startswith("mean(delay) each 2 steps: ± 0.")
    for wrong, words in (
        ([["mean(carrier)"]], "a column of numbers"),
        ([["mean(delay)"], ["mean(delay)"]], "once"),
        ([["mean(delay)", "gate"]], "groups of listed"),
        ([["mean(delay)", "delay"]], "once"),
    ):
        with pytest.raises(ConfigError, match=words):
            Pooled(Workload.all_k_way(columns, 1), headline=wrong, schema=SCHEMA)
    with pytest.raises(ConfigError, match="does not measure"):
        headline_folds(columns, (("mean(delay)",),))
    with pytest.raises(ConfigError, match="leaves nothing"):
        replace(plan.recipe, headline=(("carrier",), ("mean(delay)",)), headline_share="24/25").calibrate(
            epsilon=1
        )
