"""Published weights of a panel: weighted sums over the table are the release's own answers, without padding."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Individual, Randomness
from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.families.panel import AtLeast, Consecutive, PanelCumulative, PanelWindow, Pattern
from dpstream.families.panel.people_release import Weights
from dpstream.io.sinks import Publisher, read_changes, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.io.sinks.period_tables import add_periods
from dpstream.stream import Batch, open_stream
from dpstream.stream.release.publishing import Publishing
from dpstream.stream.templates import words

DATA = Path(__file__).parent / "data"
JOBS = ("none", "part", "full")
PERIODS = 6


def made(kind: str, labels: tuple[str, ...], rho: str, relation: str, **options: Any) -> tuple[Any, Schema]:
    schema = Schema((Boolean("job") if len(labels) == 2 else Categorical("job", labels),))
    recipe = PanelWindow(schema, 2, **options) if kind == "window" else PanelCumulative(schema, **options)
    return recipe.calibrate(rho=rho, unit=Individual(relation), horizon=PERIODS), schema


def published(
    folder: Path, plan: Any, schema: Schema, reports: Any, seed: int, form: str, publish: str
) -> Any:
    """Run the stream; each step's number and release as it comes."""
    labels = (False, True) if isinstance(schema.columns[0], Boolean) else JOBS
    sink = Publisher(folder / "releases", format=form)
    policy = Publishing(records="persistent", publish=publish)
    with open_stream(
        plan, schema, folder / "state", publish_to=sink, publishing=policy, randomness=Randomness.seeded(seed)
    ) as stream:
        for step, column in enumerate(reports, start=1):
            batch = Batch({"job": [labels[one] for one in column]}, users=np.arange(len(column)))
            yield step, stream.step(batch, f"b{step}")


def questions(symbols: int, width: int) -> list[Any]:
    asked: list[Any] = []
    for wide in range(1, width + 1):
        asked += [Pattern(one) for one in itertools.product((None, *range(symbols)), repeat=wide)]
        asked += [AtLeast(times, wide) for times in range(1, wide + 1)]
        asked += [Consecutive(times, wide) for times in range(1, wide + 1)]
    return asked


@settings(max_examples=12)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 3]),
    st.sampled_from(["1/10", "3", "500"]),
    st.sampled_from(["add-remove", "replace"]),
    st.sampled_from([("csv", "changes"), ("csv", "both"), ("parquet", "full"), ("parquet", "changes")]),
)
def test_weighted_sums_are_the_answers_of_the_window(
    tmp_path_factory: Any, seed: int, symbols: int, rho: str, relation: str, published_as: tuple[str, str]
) -> None:
    generator = np.random.default_rng(seed)
    reports = generator.integers(0, symbols, (PERIODS, int(generator.integers(1, 40))))
    plan, schema = made("window", JOBS[:symbols], rho, relation)
    folder = tmp_path_factory.mktemp("panel")
    people = reports.shape[1] if relation == "replace" else None
    wide = pa.table({"person": pa.array([], pa.int64())})
    for step, release in published(folder, plan, schema, reports, seed, *published_as):
        table = read(folder / "releases", step)
        if published_as[1] != "full":
            wide = add_periods(wide, read_changes(folder / "releases", step), "weight")
            assert wide.equals(table)
        if step < 2 or not table.num_rows:
            continue
        drawn = {f"job_{t}" for t in range(1, step + 1)} | {f"weight_{t}" for t in range(2, step + 1)}
        assert set(table.column_names) == {"person"} | drawn
        labels = schema.columns[0].labels()
        seen = np.column_stack(
            [
                [labels.index(str(one).lower()) for one in table.column(f"job_{t}").to_pylist()]
                for t in range(1, step + 1)
            ]
        )
        weights = table.column(f"weight_{step}").to_numpy()
        told = read_manifest(folder / "releases", step)["accuracy"]
        padding, facts = told["panel"]["padding_of_a_pattern"], told["panel"]["weights"]
        assert told["words"].startswith("The rows hold padding")
        assert facts["negative"] == (weights < 0).sum()
        here = set(map(tuple, seen[:, -2:].tolist()))
        empty = [one for one in itertools.product(range(symbols), repeat=2) if one not in here]
        assert facts["padding_left"] == padding * len(empty)
        for question in questions(symbols, 2):
            told_count = release.answer(question).value
            counted = question.of(seen[:, -question.width :])
            # Nobody carries the padding of a pattern that no synthetic person has.
            left = padding * sum(question.of(np.array([one[2 - question.width :]]))[0] for one in empty)
            assert float(counted @ weights) == pytest.approx(told_count + left, abs=1e-9 * len(seen))
        if people is None:
            assert weights.sum() == pytest.approx(release.total + facts["padding_left"], abs=1e-6)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_weighted_sums_are_the_answers_of_cumulative_counts(tmp_path: Path, form: str) -> None:
    reports = (np.random.default_rng(4).random((PERIODS, 80)) < 0.3).astype(int)
    plan, schema = made("cumulative", JOBS[:2], "1/2", "add-remove")
    for step, release in published(tmp_path, plan, schema, reports, 3, form, "both"):
        table = read(tmp_path / "releases", step)
        seen = np.column_stack([table.column(f"job_{t}").to_numpy() for t in range(1, step + 1)])
        weights = table.column(f"weight_{step}").to_numpy()
        assert weights.sum() == pytest.approx(release.total, abs=1e-9)
        assert table.num_rows > release.total + 1  # without weights the padding is counted
        assert weights @ seen[:, -1] == pytest.approx(release.marginal(["job"]).values[1], abs=1e-9)
        for times in range(1, step + 1):
            told = release.answer(f"at least {times} so far").value
            assert float(weights @ (seen.sum(axis=1) >= times)) == pytest.approx(told, abs=1e-9)


def test_without_padding_there_are_no_weights(tmp_path: Path) -> None:
    plan, schema = made("cumulative", JOBS[:2], "1/2", "replace")
    reports = np.zeros((2, 9), int)
    for step, _ in published(tmp_path, plan, schema, reports, 3, "csv", "full"):
        assert "weight" not in str(read(tmp_path / "releases", step).column_names)
        text = read_manifest(tmp_path / "releases", step)["accuracy"]["words"]
        assert text.startswith("The rows hold no padding, and need no weights.")
    assert words(plan, "warning") == "The published rows hold no padding, and need no weights."


def test_weights_are_negative_where_counts_are_and_say_what_they_leave() -> None:
    weights = Weights.shared(np.array([1, 1, 3]), np.full(4, 5))
    assert weights.values.tolist() == [-1.5, -1.5, -4.0]
    assert weights.lost == 10
    assert weights.facts("weight_2") == {
        "column": "weight_2",
        "smallest": -4.0,
        "negative": 3,
        "padding_left": 10,
    }
    facts = {"weights": weights.facts("weight_2"), "bound": 1.0}
    plan = made("window", JOBS[:2], "1/2", "replace")[0]
    text = words(plan, "accuracy", total_standard_error=0.0, panel=facts)
    assert "Those of this period are in weight_2; 3 of them are negative" in text
    assert "weight of 10 of the invented people" in text
    assert Weights.shared(np.array([1, 1, 1]), np.array([5, 0])).lost == 5
    assert Weights.shared(np.array([0, 0, 1]), np.array([1, 0])).values.tolist() == [0.5, 0.5, 1.0]


def test_plan_and_codebook_warn_first(tmp_path: Path) -> None:
    plan, schema = made("window", JOBS[:2], "1/10", "replace")
    for _ in published(tmp_path, plan, schema, np.zeros((1, 9), int), 3, "csv", "both"):
        pass
    book = json.loads((tmp_path / "releases" / "codebook.json").read_text())
    assert book["description"].startswith("The rows hold padding")
    names = [field["name"] for field in book["resources"][0]["schema"]["fields"]]
    assert names[:5] == ["person", "job_1", "job_2", "weight_2", "job_3"]
    assert [field["name"] for field in book["dpstream"]["panel"]["fields"]][-1] == "weight"
    assert words(plan, "warning").startswith("The rows hold padding")
    label = json.loads((tmp_path / "releases" / "step-000001" / "table.csv-metadata.json").read_text())
    assert "The rows hold padding" in label["dc:description"]


def test_a_column_that_is_called_weight_is_refused() -> None:
    with pytest.raises(ConfigError, match="'weight' has a name that released panels need"):
        PanelWindow(Schema((Boolean("weight"),)), 2).calibrate(rho="1", unit=Individual("replace"), horizon=3)
