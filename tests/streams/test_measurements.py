"""Noisy counts are published beside each release, stay when its table goes, and are read from the public folder."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_stream import batch, run, start

from dpstream.core.contracts import NoisyCounts, marginal_query
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.privacy.budget import ZCDP, PureDP
from dpstream.core.privacy.cube import noise_for_bounded
from dpstream.core.privacy.law import NoiseSum, WeightedLaplace
from dpstream.core.privacy.noise import noise_for
from dpstream.io.sinks import read_measurements
from dpstream.stream.inspection import check_store

NAME = "measurements.ndjson"


def files(home: Path, step: int) -> set[str]:
    return {path.name for path in (home / "releases" / f"step-{step:06d}").iterdir()}


def test_they_stay_when_a_table_expires_or_is_withdrawn(tmp_path: Path) -> None:
    run(tmp_path, 4, keep=2)
    before = read_measurements(tmp_path / "releases")
    with start(tmp_path, keep=2) as stream:
        stream.withdraw(4, "a wrong file")
        stream.step(batch(5), "b5")
    assert files(tmp_path, 1) == {"manifest.json", NAME}
    assert files(tmp_path, 4) == {"manifest.json", "withdrawn.json", NAME}
    assert read_measurements(tmp_path / "releases", through=4) == before
    assert len(read_measurements(tmp_path / "releases")) == 5
    assert not check_store(tmp_path / "state", tmp_path / "releases").problems
    (tmp_path / "releases" / "step-000001" / NAME).unlink()
    assert "is missing" in check_store(tmp_path / "state", tmp_path / "releases").problems[0]


def test_a_lost_file_comes_back_from_the_store_and_a_changed_one_stops_the_reader(tmp_path: Path) -> None:
    run(tmp_path, 3)
    lost = tmp_path / "releases" / "step-000003" / NAME
    data = lost.read_bytes()
    lost.unlink()
    with pytest.raises(StoreDamagedError, match=NAME):
        read_measurements(tmp_path / "releases")
    with start(tmp_path) as stream:
        assert stream.publish_again() == [3]
    assert lost.read_bytes() == data
    lost.write_bytes(data.replace(b"[", b"[1, ", 1))
    with pytest.raises(StoreDamagedError, match=NAME):
        read_measurements(tmp_path / "releases")


NOISES = [
    noise_for(PureDP.of("0.3"), 1, 1),
    noise_for(ZCDP.of("0.02"), 1, 1),
    noise_for_bounded(PureDP.of(1), 4, 1),
    NoiseSum(((noise_for(PureDP.of(1), 1, 1), 3), (noise_for(PureDP.of("1/7"), 1, 1), 1))),
    WeightedLaplace(Fraction(100, 7)),
]


@given(st.sampled_from(NOISES), st.lists(st.integers(-(2**62), 2**62), min_size=4, max_size=4), st.booleans())
def test_a_line_holds_everything(noise, values, later) -> None:
    marginal = marginal_query(["stra\u00dfe", "b"])
    one = NoisyCounts(
        "d", "present", 2, 7, marginal, np.array(values), noise, 9 if later else None, None if later else "s"
    )
    back = NoisyCounts.from_line(one.line())
    assert back == one
    assert back.values.dtype == np.int64
    assert back.variance == one.variance
    assert back.law == one.law
    assert back.columns == ("stra\u00dfe", "b")


@pytest.mark.parametrize("line", ["", "{}", "[1]", '{"draw": 1, "counted": "scores"}', "null"])
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        NoisyCounts.from_line(line)
