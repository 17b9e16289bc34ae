"""What streams of tables measure reaches the public folder, and a stream that is taken up again goes on publishing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from toy_stream import SCHEMA, batch, start

from dpstream.core.contracts import Recipe
from dpstream.core.tables import Workload
from dpstream.families.tabular import Baseline, DPStabs, Pooled
from dpstream.io.sinks import read_measurements

PAIRS = Workload.all_k_way(SCHEMA.domain, 2)
RECIPES = {
    "pooled": Pooled(PAIRS, deletions=True, headline=(("zip",),)),
    "dpstabs": DPStabs(PAIRS, deletions=True),
    "baseline": Baseline(PAIRS, deletions=True),
}


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_measured_is_read_from_the_public_folder(name: str, tmp_path: Path) -> None:
    recipe: Recipe = RECIPES[name]
    plan = recipe.calibrate(epsilon=2, horizon=12)
    for steps in (range(1, 6), range(6, 13)):  # taken up again inside an epoch's neighbours
        with start(tmp_path, plan=plan) as stream:
            for step in steps:
                stream.step(batch(step), f"b{step}")
    counts = read_measurements(tmp_path / "releases")
    assert len({one.draw for one in counts}) == len(counts)
    assert {one.last for one in counts} == {*range(1, 13)} - ({10} if name == "pooled" else set())
    assert {one.counted for one in counts} == {"inserts", "deletes"}
    if name == "pooled":
        sums = np.zeros(4)
        for one in counts:
            if one.columns == ("zip",) and "headline" in one.draw:
                sums += one.values * (1 if one.counted == "inserts" else -1)
        spread = sum(one.variance for one in counts if "headline" in one.draw) ** 0.5
        truth = sum(np.bincount(codes, minlength=4) for codes in (_zips(step) for step in range(1, 13)))
        assert np.abs(sums - truth).max() < 6 * spread


def _zips(step: int) -> np.ndarray:
    """Codes that came, less those that left: a stream's own reading of ``batch``."""
    columns = ["94102", "94103", "94110"]
    came, gone = batch(step).inserts["zip"], (batch(step).deletes or {"zip": []})["zip"]
    codes = [columns.index(one) if one in columns else 3 for one in [*came]]
    left = [columns.index(one) if one in columns else 3 for one in [*gone]]
    for code in left:
        codes.remove(code)
    return np.array(codes)
