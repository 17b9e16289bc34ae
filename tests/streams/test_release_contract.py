"""What every family's release offers, asked without knowing which family it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpstream.core.contracts import StreamPlan
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Event, Individual
from dpstream.core.schema import Boolean, Categorical, Real, Schema
from dpstream.core.tables import Workload
from dpstream.families.growing import ERM, PMWG, BBScheduler, MWEMPGMBox
from dpstream.families.panel import PanelCumulative, PanelWindow
from dpstream.families.points import Points
from dpstream.families.tabular import Baseline, DPStabs, Pooled
from dpstream.io.sinks import Publisher
from dpstream.io.sinks import read_table as read
from dpstream.stream import Batch, Release, open_stream
from dpstream.stream.release.publishing import Publishing

FLAGS = Schema((Boolean("paid"), Boolean("late")))
ONE = Schema((Boolean("late"),))
PLANE = Schema((Categorical("kind", ["a", "b"]), Real("x", [0, 1])))
PAIRS, SINGLES = Workload.all_k_way(FLAGS.domain, 2), Workload.all_k_way(FLAGS.domain, 1)
ERM_BOX = ERM(FLAGS, "late")
CASES: dict[str, tuple[Callable[[], StreamPlan], Schema]] = {
    "dpstabs": (lambda: DPStabs(PAIRS).calibrate(epsilon=1), FLAGS),
    "pooled": (lambda: Pooled(PAIRS).calibrate(epsilon=1), FLAGS),
    "baseline": (lambda: Baseline(SINGLES).calibrate(epsilon=1), FLAGS),
    "scheduler": (lambda: BBScheduler(MWEMPGMBox(SINGLES), 50, gamma="1/10").calibrate(epsilon=1), FLAGS),
    "classifier": (lambda: BBScheduler(ERM_BOX, 50, gamma="1/10").calibrate(epsilon=1), FLAGS),
    "pmwg": (
        lambda: PMWG(FLAGS.domain, alpha="1/5", start=50, hard_questions=2).calibrate(epsilon=4),
        FLAGS,
    ),
    "window": (lambda: PanelWindow(ONE, 2).calibrate(rho=1, unit=Individual(), horizon=4), ONE),
    "cumulative": (lambda: PanelCumulative(ONE).calibrate(rho=1, unit=Individual(), horizon=4), ONE),
    "points": (lambda: Points(PLANE).calibrate(epsilon=4, unit=Event("replace")), PLANE),
}


def batch(schema: Schema, plan: StreamPlan, step: int) -> Batch:
    generator = np.random.default_rng(step)
    columns: dict[str, Any] = {name: generator.random(60) < 0.5 for name in schema.names}
    if "kind" in columns:
        columns = {"kind": np.where(columns["kind"], "a", "b").tolist(), "x": generator.random(60)}
    who = [f"p{i}" for i in range(60)] if isinstance(plan.unit, Individual) else None
    return Batch(columns, users=who)


@pytest.mark.parametrize("name", list(CASES))
def test_every_release_keeps_the_contract(name: str, tmp_path: Path) -> None:
    make, schema = CASES[name]
    plan, folder = make(), tmp_path / "releases"
    kept = Publishing(records="persistent")
    with open_stream(
        plan, schema, tmp_path / "state", publish_to=Publisher(folder), publishing=kept
    ) as stream:
        for step in (1, 2, 3):
            release = stream.step(batch(schema, plan, step), str(step))
    synthesis, released = release._synthesis, plan.released_schema(schema)
    assert synthesis is not None
    assert synthesis.domain.names == schema.names
    table = release.sample()
    assert table.num_rows == release.rows == synthesis.rows(released, 10**7) == read(folder, step=3).num_rows
    assert table.equals(release.sample())
    assert release.manifest["accuracy"]["words"]
    again = plan.unpack_synthesis(synthesis.pack())
    assert again.released(released, release.rows, 5).equals(synthesis.released(released, release.rows, 5))
    if synthesis.answers is None:
        refuses_questions(release)
    else:
        assert synthesis.answers.marginal((0,)).values.shape == synthesis.domain.shape((0,))
        assert synthesis.answers.sample(7, 1).shape == (7, len(schema))
        assert release.sample(7, 1).num_rows == 7
        assert release.marginal([schema.names[0]]).values.size == schema.domain.sizes[0]
    if synthesis.grows is not None:
        assert synthesis.grows.table(released).equals(table)
        assert set(synthesis.grows.additions(released).column_names) == {
            "person",
            "period",
            *schema.names,
            "weight",
        }


def refuses_questions(release: Release) -> None:
    """One error, whatever was asked."""
    asks: list[Callable[[], Any]] = [
        lambda: release.marginal(["late"]),
        lambda: release.answer("late = 1"),
        lambda: release.sample(3),
        lambda: release.sample(seed=3),
    ]
    for ask in asks:
        with pytest.raises(ConfigError, match="the release is a classifier: no records can be drawn"):
            ask()
