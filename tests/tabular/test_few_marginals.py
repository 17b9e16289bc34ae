"""How many marginals a run measures where no column drifts, and the page of all constants of pooled streams."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest

from dpstream.core.privacy import ZCDP, Event, PureDP
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload
from dpstream.families.tabular import Pooled
from dpstream.families.tabular.pooled_run import Runner

ROOT = Path(__file__).resolve().parents[2]
DOMAIN = Domain(tuple("abcde"), (3, 4, 5, 6, 8))
RECIPE = Pooled(Workload.all_k_way(DOMAIN, 2))


def precision(runner: Runner, m: int, events: float) -> float:
    """Of all marginals together, from the noise itself."""
    noise = runner.noise_of([0], runner.budget.scaled(Fraction(1, m)))
    return m / (noise.variance + events / float(runner.followed.cells.sizes.mean()))


@pytest.mark.parametrize("budget", [PureDP.of("1/4"), PureDP.of(1), PureDP.of(4), ZCDP.of("1/8"), ZCDP.of(2)])
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_a_run_of_few_marginals_measures_the_number_that_says_most(budget, relation) -> None:
    """Against all numbers that leave three standard deviations of records for each."""
    runner = RECIPE.calibrate(budget, unit=Event(relation)).runner
    for events in (0.0, 50.0, 300.0, 2e3, 1e4, 1e6):
        design = runner.design(events, drifts=False)

        def affordable(m: int, events: float = events) -> bool:
            noise = runner.noise_of([0], runner.budget.scaled(Fraction(1, m)))
            return m == 1 or events >= 3.0 * m * math.sqrt(noise.variance)

        allowed = [m for m in range(1, 16) if affordable(m)]
        best = max(allowed, key=lambda m: precision(runner, m, events))
        assert (design.fixed, design.k) == (0, best)


def test_the_page_of_constants_names_all_of_them() -> None:
    """Numbers at the top of the modules of pooled streams, and the joint groups' largest histogram."""
    page = (ROOT / "docs" / "theory" / "pooled-constants.md").read_text(encoding="utf-8")
    found = set[str]()
    source = ROOT / "src" / "dpstream"
    for path in [
        *(source / "families" / "tabular").glob("pooled*.py"),
        source / "mechanisms" / "table_model.py",
    ]:
        for line in path.read_text(encoding="utf-8").splitlines():
            names, equals, value = line.partition(" = ")
            if equals and re.fullmatch(r"_?[A-Z_]+(, _?[A-Z_]+)*", names) and re.search(r"\d", value):
                found.update(names.split(", "))
    assert {"_RECORDS_PER_NOISE", "_MAX_FITS", "VOLATILE_DRIFT", "_DRIFTS"} <= found
    assert not [name for name in sorted(found) if f"`{name}`" not in page]
