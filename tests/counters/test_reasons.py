"""Every counter of the product is there for a reason: ``best`` picks it, or a paper names it (decision 0023)."""

from __future__ import annotations

from typing import Any

import pytest

from dpstream.core.counters import COUNTER_NAMES, best
from dpstream.core.privacy import ZCDP, Budget, PureDP

EPSILON, RHO = PureDP.of(1), ZCDP.of(1)
PICKED: dict[str, tuple[Budget, dict[str, Any]]] = {
    "simple": (EPSILON, {"expected_ticks": 8}),
    "block": (RHO, {"horizon": 100, "width": 10**7}),
    "unbounded-block": (RHO, {"width": 4 * 10**7}),
    "unbounded-block-closed": (EPSILON, {"width": 10**7}),
    "tree": (RHO, {"horizon": 1000, "width": 2 * 10**6}),
    "optimal-tree": (EPSILON, {"horizon": 100}),
    "optimal-epochs": (EPSILON, {}),
    "toeplitz": (RHO, {"horizon": 100}),
    "blt": (RHO, {}),
}
#: Kumar, Strohmer and Vershynin, and He, Vershynin and Zhu name the hybrid mechanism.
NAMED = {"hybrid"}


def test_every_counter_has_a_reason() -> None:
    assert set(COUNTER_NAMES) == set(PICKED) | NAMED


@pytest.mark.parametrize("name", PICKED)
def test_best_picks_it(name: str) -> None:
    budget, asked = PICKED[name]
    assert best(budget, **asked).name == name
