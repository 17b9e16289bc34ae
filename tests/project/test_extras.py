"""What an extra installs may be missing: one sentence names the extra, and the rest works without."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.stats import t

import dpstream as dp
from dpstream.core.errors import ConfigError
from dpstream.io.sinks.simulated_errors import t_factor, t_within
from dpstream.tools.families.points.transport import grid_distance


@pytest.fixture
def without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "scipy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scipy", None)


@pytest.mark.usefixtures("without_scipy")
def test_without_scipy_the_extra_is_named() -> None:
    points = np.random.default_rng(1).random((4, 2))
    with pytest.raises(ConfigError, match=r"scipy is not installed.*dpstream\[evaluate\]"):
        grid_distance(points, 1 - points, 4)


@pytest.mark.usefixtures("without_scipy")
def test_without_scipy_counters_know_their_errors() -> None:
    counter = dp.counters.BLT().calibrate(dp.ZCDP.of("1/2"), dp.Event())
    assert counter.variance(2**14) > counter.variance(2**10) > 0


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 20, 999, 1000])
def test_students_t_is_that_of_scipy(runs: int) -> None:
    ratios = np.array([0.0, 0.1, 1.0, 3.0, 50.0])
    assert t_within(ratios, runs) == pytest.approx(2 * t.cdf(ratios, runs) - 1, abs=1e-12)
    for confidence in (0.5, 0.9, 0.95, 0.999):
        assert t_factor(runs, confidence) == pytest.approx(t.ppf((1 + confidence) / 2, runs), rel=1e-9)
