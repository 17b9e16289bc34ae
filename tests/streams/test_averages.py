"""Means and quantiles of numbers in bins: their intervals hold wherever the numbers lie in their bins."""

from __future__ import annotations

import json
import tomllib
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import dpstream as dp
from dpstream.cli.main import main
from dpstream.core.contracts import NoisyCounts, marginal_query
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import DiscreteLaplace, Noise, Randomness
from dpstream.project.schema_file import read_schema, write_schema
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
    return Numbers.of(SCHEMA, "delay", where, lambda: table, published.estimate)


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
    arguments = ["measured", str(tmp_path / "releases"), "--mean", "delay", "--question", "carrier = 'UA'"]
    told = CliRunner().invoke(main, [*arguments, "--every", "1 steps", "--json"])
    shown = json.loads(told.output)["rows"]
    assert [(row["from"], row["to"]) for row in shown] == [("1", "1"), ("2", "2")]
    assert [row["mean"] for row in shown] == [
        read.mean("delay", "carrier = 'UA'", of=read.flow(["delay", "carrier"], step, step)).value
        for step in (1, 2)
    ]
    for wrong, words in (
        (lambda: read.mean("carrier"), "expected a column of numbers"),
        (lambda: read.quantile("delay", 1.0), "above 0 and below 1"),
        (lambda: read.mean("delay", of=read.flow()), "the estimate is of the number of records"),
    ):
        with pytest.raises(ConfigError, match=words):
            wrong()
