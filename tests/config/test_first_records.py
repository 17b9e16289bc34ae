"""What a pooled stream measures first: it rests on a public guess, where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_configs import load

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled

DOMAIN = Domain(("a", "b", "c"), (3, 4, 5))
RECORDS = 3000


def first_release(guess: int | None) -> tuple[Any, Any]:
    """The first release of a table whose columns depend on each other, and its pairs."""
    codes = np.random.default_rng(1).integers(3, size=(RECORDS, 1)).repeat(3, axis=1).astype(np.int32)
    plan = Pooled(Workload.all_k_way(DOMAIN, 2), first_records=guess).calibrate(epsilon=1, horizon=20)
    found = plan.step(plan.start(), EncodedBatch(DOMAIN, codes, None), Randomness.seeded("first epoch"))
    return found, [np.bincount(codes[:, 0] * size + codes[:, 0], minlength=3 * size) for size in (4, 5)]


def test_a_guess_lets_the_first_step_measure_pairs() -> None:
    """The pairs of a table of 3000 equal values are a diagonal: single columns cannot tell."""
    wrong = {}
    for guess in (None, 1, 1000, RECORDS, 30 * RECORDS):
        release, truth = first_release(guess)
        pairs = release.marginals([(0, 1), (0, 2)])
        wrong[guess] = sum(np.abs(a - b).sum() for a, b in zip(pairs, truth, strict=True)) / RECORDS
    assert wrong[None] > 2.0  # of at most 4, with independent columns 8/3
    assert wrong[1] == wrong[None]
    # Right within noise of standard deviation 12 at most in each of 27 cells, or 30 times too large.
    assert max(wrong[1000], wrong[RECORDS], wrong[30 * RECORDS]) < 0.5


@pytest.mark.parametrize(("expect", "guess"), [("records_per_step = 300", 300), ("", None)])
def test_the_guess_of_the_file_counts(expect: str, guess: int | None, tmp_path: Path) -> None:
    config = load(tmp_path, rest=f"[expect]\n{expect}" if expect else "")
    assert config.recipe.first_records == guess
    assert config.plan().options()["first_records"] == guess


def test_no_record_is_no_guess() -> None:
    with pytest.raises(ConfigError, match="first_records = 0"):
        Pooled(Workload.all_k_way(DOMAIN, 2), first_records=0)


def test_the_order_of_records_is_a_guess_of_growing_tables(tmp_path: Path) -> None:
    written = '[expect]\nrecords_per_step = 300\norder = "{}"'
    mixed, ordered = (load(tmp_path, rest=written.format(word)) for word in ("mixed", "sorted"))
    assert ordered.expected is not None
    assert ordered.expected.ordered
    assert "the owner's guess order = sorted is published ([expect])" in ordered.declared_public()
    assert (
        mixed.declared_public() == load(tmp_path, rest="[expect]\nrecords_per_step = 300").declared_public()
    )
    with pytest.raises(ConfigError, match="is not a choice") as caught:
        load(tmp_path, rest=written.format("by place"))
    assert "[expect] order" in str(caught.value.where)
