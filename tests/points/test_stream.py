"""Points as durable streams: what is refused, what is published, exact continuation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream import Boolean, Categorical, Integer, Real, Schema, errors
from dpstream.core.privacy import Event, Randomness
from dpstream.families.points import Points, PointsPlan
from dpstream.families.points.points_plan import shuffled
from dpstream.io.sinks import Publisher, read_changes, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.stream import Batch, Publishing, Stream, open_stream
from dpstream.stream.store import container
from dpstream.stream.templates import words

CITY = Schema(
    (
        Categorical("kind", ["cafe", "shop", "bar"]),
        Real("x", [0, 0.5, 1]),
        Real("price", [1, 10, 1000]),
        Integer("hour", min=0, max=23),
    )
)
LINE = Schema((Real("x", [0, 0.25, 0.5, 0.75, 1]),))
REPLACE = Event("replace")


def plan(schema: Schema = CITY, epsilon: str = "4", **options: Any) -> PointsPlan:
    more = {"log": ("price",), "periodic": ("hour",)} if schema is CITY else {}
    return Points(schema, **{"max_depth": 12, **more, **options}).calibrate(epsilon=epsilon, unit=REPLACE)


def start(folder: Path, made: PointsPlan, *, seed: int = 1, **publishing: Any) -> Stream:
    return open_stream(
        made,
        made.recipe.schema,
        folder / "state",
        publish_to=Publisher(folder / "releases"),
        publishing=Publishing(**publishing),
        randomness=Randomness.seeded(seed),
    )


def frame(count: int, seed: int, schema: Schema = CITY) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    columns = {
        "kind": generator.choice(["cafe", "shop", "bar"], count, p=[0.7, 0.2, 0.1]),
        "x": generator.random(count) ** 2,
        "price": np.exp(generator.random(count) * 6.0),
        "hour": generator.integers(0, 24, count),
    }
    return {name: columns[name] for name in schema.names}


# --- the stream ----------------------------------------------------------------------------------------------


def test_a_stream_is_its_synthesizer(tmp_path: Path) -> None:
    """Oracle: the core, fed with the same cells in the same order; and the same t gives the same points."""
    made = plan()
    with start(tmp_path, made, seed=5) as stream:
        stream._randomness = Randomness.seeded(6)
        for step in range(4):
            release = stream.step(Batch(frame(700, step)), f"b{step}")
        empty = stream.step(Batch(frame(0, 1)), "nothing")
        assert empty.rows == release.rows == 2800
        assert empty.sample().equals(release.sample())
        assert release.sample().equals(read(tmp_path / "releases", 4))
    state, source = made.start(), Randomness.seeded(6)
    for step in range(4):
        cells = made.space.cells_of(made.reading.encode(frame(700, step)))
        if not step:
            state.seed = int(source.coins("a seed")[0])
        made.read(state, cells[shuffled(len(cells), source)], source)
        source.coins("a seed")  # the step's own seed
    counts = made.counts(state)
    synthesis = release._model
    assert np.array_equal(synthesis.counts, counts)
    released = made.space.cells_of(made.reading.encode(release.sample()))
    found = np.bincount(released >> (made.space.depth - state.cells.depth), minlength=len(counts))
    # A value drawn at the very border of a cell may be rounded into the next one.
    assert np.abs(found - counts).sum() <= 4
    assert release.marginal(["kind"]).values.sum() == 2800
    asked = release.answer("kind = 'cafe'")
    assert asked.value > 1500
    assert "nearly empty regions have too many points" in asked.note


def test_the_order_of_records_plays_no_part(tmp_path: Path) -> None:
    """A repetition in another order is the same step; and orders are uniform: each of 6 of 3 records alike."""
    rows = frame(200, 1)
    order = np.random.default_rng(1).permutation(200)
    with start(tmp_path, plan()) as stream:
        first = stream.step(Batch(rows), "b")
        again = stream.step(Batch({name: values[order] for name, values in rows.items()}), "b")
        assert first.sample().equals(again.sample())
    source = Randomness.seeded(3)
    found = [tuple(shuffled(3, source).tolist()) for _ in range(6000)]
    _, counts = np.unique(found, axis=0, return_counts=True)
    assert len(counts) == 6
    # False alarm below 1e-8: six binomials within seven standard deviations of 1000.
    assert np.abs(counts - 1000).max() < 7 * np.sqrt(6000 * 5 / 36)


@settings(max_examples=40)
@given(st.integers(2, 60), st.integers(0, 99))
def test_neighbours_in_any_order_are_sequences_that_differ_at_one_tick(count: int, seed: int) -> None:
    """The coupling of the proof: the words of each record go with it, wherever it stands in the file."""
    generator = np.random.default_rng(seed)
    one = generator.permutation(4096)[: count + 1]
    other, changed = one[:count].copy(), int(generator.integers(count))
    other[changed] = one[count]
    words = generator.integers(0, 2**64, count, dtype=np.uint64)
    moved = generator.permutation(count)
    first = one[:count][shuffled(count, Tape(words))]
    second = other[moved][shuffled(count, Tape(words[moved]))]
    assert (first != second).sum() == 1


class Tape(Randomness):
    """Known words."""

    def __init__(self, words: Any) -> None:
        super().__init__(lambda _n: b"")
        self._words = [words]

    def words(self, n: int) -> Any:
        return self._words.pop()


def test_equal_words_are_drawn_anew() -> None:
    tape = Tape(np.array([3, 1, 2], np.uint64))
    tape._words.append(np.array([5, 5, 6], np.uint64))
    assert shuffled(3, tape).tolist() == [1, 2, 0]
    assert not tape._words


@pytest.mark.parametrize("publish", ["full", "changes", "both"])
def test_persistent_points_change_as_little_as_counts_do(tmp_path: Path, publish: str) -> None:
    """What readers put together holds the counts of each release, by the fewest changes."""
    made = plan()
    before: Any = None
    with start(tmp_path, made, records="persistent", publish=publish, full_every=3) as stream:
        for step in range(1, 6):
            release = stream.step(Batch(frame(900, step)), f"b{step}")
            table = read(tmp_path / "releases", step, ids=True)
            counts, depth = release._model.counts, release._model.depth
            cells = made.space.cells_of(made.reading.encode(table.drop_columns("record_id")))
            found = np.bincount(cells >> (made.space.depth - depth), minlength=len(counts))
            assert np.abs(found - counts).sum() <= 4
            facts = read_manifest(tmp_path / "releases", step)["records"]
            if before is not None:
                old = np.bincount(before >> (made.space.depth - depth), minlength=len(counts))
                assert abs(facts["deletes"] - np.maximum(old - counts, 0).sum()) <= 4
                assert facts["inserts"] - facts["deletes"] == 900
            if publish != "full" and step > 1:
                assert read_changes(tmp_path / "releases", step).num_rows == sum(
                    facts[key] for key in ("deletes", "inserts")
                )
            before = cells
    book = json.loads((tmp_path / "releases" / "codebook.json").read_text())
    assert "Points lie evenly within cells" in book["description"]
    assert [field["name"] for field in book["resources"][0]["schema"]["fields"]] == table.column_names


def test_a_table_that_is_cut_keeps_its_points(tmp_path: Path) -> None:
    with start(tmp_path, plan(), records="persistent", publish="both", max_rows=500) as stream:
        for step in range(1, 4):
            release = stream.step(Batch(frame(400, step)), f"b{step}")
            assert read(tmp_path / "releases").num_rows == release.rows == min(400 * step, 500)
            assert release.total == 400 * step


# --- bad input -----------------------------------------------------------------------------------------------

BAD: dict[str, tuple[str, Any, str]] = {
    "nan": ("x", float("nan"), "null"),
    "outside": ("x", 7.25, "outside"),
    "text": ("x", "somewhere", "not numbers"),
    "no category": ("kind", "zoo", "outside"),
}


@pytest.mark.parametrize("name", BAD)
def test_points_that_do_not_fit_stop_before_anything_is_drawn(tmp_path: Path, name: str) -> None:
    column, value, words = BAD[name]
    rows = {**frame(5, 1), column: [value] * 5}
    with start(tmp_path, plan()) as stream:
        with pytest.raises(errors.DataError, match=words) as caught:
            stream.step(Batch(rows), "b")
        assert column in str(caught.value)
        assert "7.25" not in str(caught.value)
        assert "zoo" not in str(caught.value)
        assert stream.last_step == 0
        stream.step(Batch(frame(5, 1)), "b")


def test_other_columns_and_deletes_are_refused(tmp_path: Path) -> None:
    with start(tmp_path, plan()) as stream:
        with pytest.raises(errors.SchemaError, match="lack"):
            stream.step(Batch({"x": [0.5]}), "b")
        with pytest.raises(errors.DataError, match="undeclared column"):
            stream.step(Batch({**frame(1, 1), "y": [0.5]}), "b")
        with pytest.raises(errors.DataError, match="deletes"):
            stream.step(Batch(frame(1, 1), frame(1, 1)), "b")
    wider = Schema((*CITY.columns[:-1], Integer("hour", min=1, max=24)))
    assert wider.domain == CITY.domain
    with pytest.raises(errors.ConfigError, match="another schema"):
        open_stream(plan(), wider, tmp_path / "wider")
    with pytest.raises(errors.ConfigError, match="another plan"):
        start(tmp_path, plan(max_depth=9))


TWO = Schema((Categorical("a", ["u", "v"]), Real("x", [0, 1])))
MANY = Categorical("a", [str(i) for i in range(40)])


def of(*columns: Any, **options: Any) -> Any:
    """What calibrates points of these columns."""
    return lambda: plan(Schema(columns), **options)


WRONG: dict[str, tuple[Any, type[errors.DpstreamError], str]] = {
    ": expected a coordinate": (of(Boolean("a")), errors.ConfigError, "points need a coordinate column"),
    "one value": (of(Integer("a", min=3, max=3)), errors.SchemaError, "a coordinate needs two values"),
    "nulls": (of(Real("a", [0, 1], missing="none")), errors.SchemaError, "has no place"),
    "strangers": (of(Real("a", [0, 1], other="far")), errors.SchemaError, "has no place"),
    "log of 0": (of(*LINE.columns, log=("x",)), errors.SchemaError, "positive numbers"),
    "log of a category": (of(*TWO.columns, log=("a",)), errors.ConfigError, ": expected a coordinate"),
    "clipped circle": (
        of(Real("a", [0, 1], outside="clip"), periodic=("a",)),
        errors.SchemaError,
        "lacks a border",
    ),
    "too deep": (of(*TWO.columns, max_depth=60), errors.ConfigError, "max_depth"),
    "categories only": (
        of(MANY, Real("x", [0, 1]), max_depth=6),
        errors.ConfigError,
        "depths before any coordinate",
    ),
    "rho": (lambda: Points(TWO).calibrate(rho="1", unit=REPLACE), errors.BudgetError, "pure"),
    "event": (
        lambda: Points(TWO).calibrate(epsilon="1", unit=Event()),
        errors.UnitError,
        "cannot protect the unit 'event'",
    ),
    "variant": (lambda: Points(TWO, "best"), errors.ConfigError, "variant"),
    "tiny": (of(*TWO.columns, epsilon="1e-30"), errors.LimitError, "larger epsilon"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_calibrated(name: str) -> None:
    make, kind, words = WRONG[name]
    with pytest.raises(kind, match=words) as caught:
        make()
    assert caught.value.allowed


def test_an_epsilon_that_opens_no_cell_gives_uniform_points(tmp_path: Path) -> None:
    made = plan(LINE, epsilon="1/1000")
    assert f"begin with point {made.schedule.start(1)} for j = 1" in words(made, "described", **made.facts())
    assert made.schedule.start(1) > 4000
    with start(tmp_path, made) as stream:
        release = stream.step(Batch({"x": np.full(4000, 0.9)}), "b")
    # Uniform: four bins of 1000 each, within seven standard deviations (false alarm below 1e-10).
    assert np.abs(release.marginal(["x"]).values - 1000).max() < 7 * np.sqrt(750)


def test_equal_points_are_points_like_others() -> None:
    """All at the border 1.0: one path of cells is busy, and the packed state stays small."""
    made = plan(LINE, max_depth=16)
    state, source = made.start(), Randomness.seeded(1)
    cells = made.space.cells_of(made.reading.encode({"x": np.ones(1)})).repeat(10**5)
    made.read(state, cells, source)
    assert len(container.dump(made.pack_state(state))) < 500_000
    counts = made.counts(state)
    assert counts[-1] > 0.9 * 10**5
