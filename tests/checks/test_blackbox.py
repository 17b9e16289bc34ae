"""The suite for black boxes passes honest ones and names what is wrong with others."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy import Budget, DiscreteLaplace, PureDP, Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import Workload
from dpstream.families.growing import Counts, Database, OwnMechanism, SmallDB
from dpstream_lab.conformance import check_black_box

DOMAIN = Domain(("a", "b"), (2, 3))
WORKLOAD = Workload.all_k_way(DOMAIN, 2)


Weights = NDArray[np.float64]


def honest(budget: Budget, data: Database, randomness: Randomness, scale: Fraction = Fraction(2)) -> Weights:
    assert isinstance(budget, PureDP)
    noise = randomness.draw(DiscreteLaplace(scale / budget.epsilon), 6)
    weights: Weights = np.maximum(data.counts[0] + noise, 0) + 1e-6
    return weights


quiet = partial(honest, scale=Fraction(1, 2))


def elsewhere(budget: Budget, data: Database, randomness: Randomness) -> Weights:
    weights: Weights = np.maximum(data.counts[0] + np.random.default_rng().laplace(0, 2, 6), 0) + 1e-6
    return weights


def silent(budget: Budget, data: Database, randomness: Randomness) -> Weights:
    weights: Weights = data.counts[0] / data.t
    return weights


def writes(budget: Budget, data: Database, randomness: Randomness) -> Weights:
    data.counts[0][0] += 1
    return honest(budget, data, randomness)


def stops(budget: Budget, data: Database, randomness: Randomness) -> Weights:
    if data.t < 5:
        raise DataError("too few records", where="stops")
    return honest(budget, data, randomness)


class Memory:
    def __init__(self) -> None:
        self.last = np.zeros(6)

    def __call__(self, budget: Budget, data: Database, randomness: Randomness) -> Weights:
        self.last = honest(budget, data, randomness) + 0.1 * self.last
        return self.last


def own(function: Any, reads: Any = None) -> OwnMechanism:
    return OwnMechanism(function, reads or Counts(DOMAIN, WORKLOAD.cliques), "under test 1")


@pytest.mark.parametrize("box", [own(honest), SmallDB(WORKLOAD, size=3)], ids=["own", "smalldb"])
def test_honest_boxes_pass(box: Any) -> None:
    report = check_black_box(box, runs=400)
    assert report.passed, str(report)
    assert str(report).startswith(f"black box {box.name}\nok")


@pytest.mark.parametrize(
    ("function", "failures"),
    [
        (quiet, ("loses no more than it may",)),
        (silent, ("loses no more than it may",)),
        (elsewhere, ("depends on data and randomness only",)),
        (Memory(), ("depends on data and randomness only",)),
        (stops, ("runs at every size, on read-only data",)),
        (writes, ("runs at every size, on read-only data",)),
        (lambda *_: None, ()),
    ],
    ids=[
        "a quarter of the noise",
        "no noise",
        "noise from elsewhere",
        "memory",
        "stops",
        "writes",
        "nothing",
    ],
)
def test_what_is_wrong_is_named(function: Any, failures: tuple[str, ...]) -> None:
    report = check_black_box(own(function), runs=1000)
    assert not report.passed
    assert set(failures) <= set(report.failures)


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(ConfigError, match="two values"):
        check_black_box(own(honest, Counts(Domain(("a",), (1,)), ((0,),))))
    with pytest.raises(ConfigError, match="too few runs"):
        check_black_box(own(honest), runs=10)
