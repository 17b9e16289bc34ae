"""Classifiers as durable streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpstream import Batch, Publisher, read
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Boolean, Categorical, Integer, Schema
from dpstream.core.tables import EncodedBatch
from dpstream.families.growing import BBImprover, BBScheduler
from dpstream.families.growing.classifier_stream import ClassifierPlan
from dpstream.families.growing.erm import ERM
from dpstream.stream import open_stream

SCHEMA = Schema(
    (
        Categorical("zip", ["a", "b", "c"]),
        Boolean("late"),
        Integer("age", edges=[0, 20, 40, 60, 120], missing="missing"),
        Boolean("paid"),
    )
)
BOX = ERM(SCHEMA, "late", as_numbers=("age",))
SIZES = (600, 100, 50, 400, 850)


def batch(size: int, seed: int) -> dict[str, list[Any]]:
    g = np.random.default_rng(seed)
    paid = g.random(size) < 0.5
    late = g.random(size) < np.where(paid, 0.8, 0.2)
    ages = [None if age > 110 else int(age) for age in g.integers(0, 121, size)]
    return {
        "zip": g.choice(["a", "b", "c"], size).tolist(),
        "late": late.tolist(),
        "age": ages,
        "paid": paid.tolist(),
    }


def plan(rerun: str = "scheduler") -> ClassifierPlan:
    if rerun == "scheduler":
        made = BBScheduler(BOX, 600, gamma="1/4").calibrate(epsilon=8)
    else:
        made = BBImprover(BOX, 600).calibrate(rho=2)
    assert isinstance(made, ClassifierPlan)
    return made


def steps(which: ClassifierPlan, source: Randomness, *, through_pack: bool) -> list[Any]:
    """All releases; with the state packed and unpacked after every step."""
    state, found = which.start(), []
    for number, size in enumerate(SIZES):
        encoded = EncodedBatch(SCHEMA.domain, SCHEMA.encode(batch(size, number)))
        found.append(which.step(state, encoded, source))
        if through_pack:
            packed = which.pack_state(state)
            packed = type(packed)(json.loads(json.dumps(packed.meta)), packed.arrays)
            state = which.unpack_state(packed)
            made = found[-1].pack()
            again = which.unpack_synthesis(type(made)(json.loads(json.dumps(made.meta)), made.arrays))
            assert again.accuracy() == found[-1].accuracy()
            kept, told = again.classifier, found[-1].classifier
            assert np.array_equal(kept.measured, told.measured)
            assert np.array_equal(kept.coefficients, told.coefficients)
            facts = [(one.features, one.loss, one.standard_error, one.t, one.lam) for one in (kept, told)]
            assert facts[0] == facts[1]
    return found


@pytest.mark.parametrize("rerun", ["scheduler", "improver"])
def test_a_run_at_each_epoch_and_the_last_classifier_in_between(rerun: str) -> None:
    which = plan(rerun)
    plain = steps(which, Randomness.seeded(5), through_pack=False)
    packed = steps(which, Randomness.seeded(5), through_pack=True)
    assert [one.made.t for one in plain] == (
        [600, 600, 750, 1150, 2000] if rerun == "scheduler" else [600, 700, 750, 1150, 2000]
    )
    assert [one.t for one in plain] == [600, 700, 750, 1150, 2000]
    for one, two in zip(plain, packed, strict=True):
        assert (one.classifier.measured == two.classifier.measured).all()
        assert (one.made, one.t, one.next_run) == (two.made, two.t, two.next_run)
    # What a run spends is what the schedule says: the noise follows from it.
    run = which.schedule.run(0, 0, 600)
    assert plain[0].classifier.standard_error == BOX.plan(run.budget, 600).standard_error
    assert plain[0].made.cost == run.cost
    assert plain[-1].made.spent < which.budget.amount


def test_a_durable_stream_publishes_coefficients(tmp_path: Path) -> None:
    """Reopened between steps; a step that is repeated gives the stored release."""
    folder, state = tmp_path / "releases", tmp_path / "state"
    kept = None
    for number, size in enumerate((100, *SIZES[:2])):
        with open_stream(plan(), SCHEMA, state, publish_to=Publisher(folder)) as stream:
            table = batch(size, number)
            release = stream.step(Batch(inserts=table, deletes=None), name=str(number))
            again = stream.step(Batch(inserts=table, deletes=None), name=str(number))
            assert again.sample().equals(release.sample())
            if number == 0:
                assert set(release.sample()["coefficient"].to_pylist()) == {0.0}
                assert "Nothing yet" in release.manifest["accuracy"]["words"]
            if number == 1:
                kept = release.sample()
    assert kept is not None
    found = read(folder, step=2).table().to_pydict()
    assert found["feature"] == ["zip=a", "zip=b", "zip=c", "age", "age=missing", "paid"]
    assert found["coefficient"] == kept["coefficient"].to_pylist()
    assert found["measured"] == kept["measured"].to_pylist()
    manifest = json.loads((folder / "step-000002" / "manifest.json").read_text())
    assert manifest["rows_in_table"] == 6
    assert manifest["rows"] == 700
    assert manifest["accuracy"]["run"]["t"] == 700
    with open_stream(plan(), SCHEMA, state) as stream:
        release = stream.release(2)
        for wrong in (lambda: release.marginal(["feature"]), lambda: release.answer("feature = 'paid'")):
            with pytest.raises(ConfigError, match="classifier"):
                wrong()
        assert release.sample().num_rows == 6
