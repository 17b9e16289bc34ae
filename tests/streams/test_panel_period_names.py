"""Published periods of a panel by their names: the tables are those with numbers, under other names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Individual, Randomness
from dpstream.core.schema import Boolean, Schema
from dpstream.families.panel import PanelCumulative, PanelWindow
from dpstream.io.sinks import Publisher, read_changes, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.stream import Batch, Stream, open_stream
from dpstream.stream.release.publishing import Publishing

POOR = Schema((Boolean("poor"),))
#: Not in the order of the alphabet, and one that looks like a number.
NAMES = ("nov", "dec", "01", "feb", "mar", "apr")
TRUTH = np.random.default_rng(3).random((6, 60)) < 0.3
TERMS: dict[str, Any] = {"rho": "1/10", "unit": Individual(), "horizon": 6}


def plan(kind: str, **options: Any) -> Any:
    recipe = PanelWindow(POOR, 3, **options) if kind == "window" else PanelCumulative(POOR, **options)
    return recipe.calibrate(**TERMS)


def start(folder: Path, made: Any, *, publish: str = "both", form: str = "csv") -> Stream:
    return open_stream(
        made,
        POOR,
        folder / "state",
        publish_to=Publisher(folder / "releases", format=form),
        publishing=Publishing(records="persistent", publish=publish),
        randomness=Randomness.seeded(5),
    )


def run(folder: Path, made: Any, steps: int, **published: str) -> None:
    with start(folder, made, **published) as stream:
        for step in range(1, steps + 1):
            users = [f"p{i}" for i in range(60)]
            stream.step(Batch({"poor": TRUTH[step - 1].tolist()}, users=users), f"b{step}")


def renamed(column: str) -> str:
    name, _, period = column.rpartition("_")
    return f"{name}_{NAMES[int(period) - 1]}" if name else column


@pytest.mark.parametrize(("form", "publish"), [("csv", "changes"), ("parquet", "both"), ("csv", "full")])
@pytest.mark.parametrize("kind", ["window", "cumulative"])
def test_tables_are_the_same_under_the_names_of_the_periods(
    tmp_path: Path, kind: str, form: str, publish: str
) -> None:
    named, numbered = plan(kind, period_names=NAMES), plan(kind)
    run(tmp_path / "named", named, 5, form=form, publish=publish)
    run(tmp_path / "numbered", numbered, 5, form=form, publish=publish)
    for step in range(1, 6):
        here, there = (read(tmp_path / name / "releases", step) for name in ("named", "numbered"))
        assert here.column_names == [renamed(column) for column in there.column_names]
        assert here.rename_columns(there.column_names).equals(there)
        if publish != "full":
            here, there = (read_changes(tmp_path / name / "releases", step) for name in ("named", "numbered"))
            periods = [NAMES[number - 1] for number in there.column("period").to_pylist()]
            assert here.column("period").to_pylist() == periods
            assert here.drop_columns(["period"]).equals(there.drop_columns(["period"]))
    told = read_manifest(tmp_path / "named" / "releases", 5)
    assert told["accuracy"]["panel"]["weights"]["column"] == "weight_mar"
    assert "Those of this period are in weight_mar" in told["accuracy"]["words"]
    book = json.loads((tmp_path / "named" / "releases" / "codebook.json").read_text())
    assert "names of the periods, which are nov, dec, ..., apr" in book["description"]
    columns = [field["name"] for field in book["resources"][0]["schema"]["fields"]]
    assert set(read(tmp_path / "named" / "releases", 5).column_names) < set(columns)
    period = book["dpstream"]["panel"]["fields"][1]
    assert (period["type"], period["constraints"]["enum"]) == ("string", list(NAMES))


@pytest.mark.parametrize("publish", ["changes", "both"])
def test_lost_files_come_back_with_the_names_and_the_bytes(tmp_path: Path, publish: str) -> None:
    made = plan("window", period_names=NAMES)
    run(tmp_path, made, 5, publish=publish)
    files = {path: path.read_bytes() for path in (tmp_path / "releases").glob("step-*/*")}
    shutil.rmtree(tmp_path / "releases" / "step-000004")
    with start(tmp_path, made, publish=publish) as stream:
        assert stream.publish_again() == [4]
        assert stream.release().sample().column_names[-2:] == ["poor_mar", "weight_mar"]
    assert {path: path.read_bytes() for path in files} == files


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (NAMES[:5], "5 names, and 6 periods"),
        ((*NAMES[:5], ""), "a name cannot be used"),
        ((*NAMES[:5], "a\nb"), "a name cannot be used"),
        ((*NAMES[:5], 6), "a name cannot be used"),
        ("abcdef", "a name cannot be used"),
        ((*NAMES[:5], "nov"), "have the same name"),
    ],
)
def test_names_that_cannot_be_used_are_refused(names: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan("window", period_names=names)


def test_columns_that_would_have_one_name_are_refused() -> None:
    schema = Schema((Boolean("a"), Boolean("a_b")))
    with pytest.raises(ConfigError, match="have the same name"):
        PanelWindow(schema, 1, period_names=("c", "b_c")).calibrate(rho="1", unit=Individual(), horizon=2)
