"""Panels as durable streams: who is who, what is refused before anything is drawn, what is published under which names,
and weights: weighted sums over the table are the release's own answers, without padding."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import toy_stream
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstream as dp
from dpstream import Boolean, Categorical, Integer, Schema, errors
from dpstream.core.privacy import Event, Individual, Randomness
from dpstream.families.panel import AtLeast, Consecutive, PanelCumulative, PanelWindow, Pattern
from dpstream.families.panel.people import seat
from dpstream.families.panel.people_release import Weights
from dpstream.io.sinks import read_changes, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.io.sinks.period_tables import add_periods
from dpstream.stream import Batch, Publishing, Release, Stream
from dpstream.stream.templates import words

POOR = Schema((Boolean("poor"),))
LOOSE = Schema((Boolean("poor", missing="no report"),))
JOBS = Schema((Categorical("poor", ("false", "part", "true")),))
PEOPLE, PERIODS = 60, 6
#: Noise of standard deviation about 0.1: counts are as they are.
QUIET = "500"
#: Not in the order of the alphabet, and one that looks like a number.
NAMES = ("nov", "dec", "01", "feb", "mar", "apr")


def plan(
    kind: str = "window",
    *,
    schema: Schema = POOR,
    width: int = 3,
    relation: str = "add-remove",
    rho: str = "1/10",
    horizon: int = PERIODS,
    **options: Any,
) -> Any:
    recipe = PanelWindow(schema, width, **options) if kind == "window" else PanelCumulative(schema, **options)
    return recipe.calibrate(rho=rho, unit=Individual(relation), horizon=horizon)


def start(
    folder: Path,
    made: Any,
    *,
    schema: Schema = POOR,
    publish: str = "full",
    form: Any = "csv",
    seed: int | None = None,
) -> Stream:
    return toy_stream.start(
        folder,
        plan=made,
        schema=LOOSE if made.absent is not None else schema,
        form=form,
        publishing=Publishing(records="persistent", publish=publish),
        randomness=None if seed is None else Randomness.seeded(seed),
    )


def history(periods: int = PERIODS, people: int = PEOPLE, seed: int = 3) -> Any:
    return np.random.default_rng(seed).random((periods, people)) < 0.3


def period(reports: Any, *, order: Any = None, prefix: str = "p") -> Batch:
    where = np.arange(len(reports)) if order is None else order
    return Batch({"poor": reports[where].tolist()}, users=[f"{prefix}{i}" for i in where])


def steps(stream: Stream, reports: Any) -> Iterator[tuple[int, Release]]:
    """Each period's number and release as it comes."""
    with stream:
        for number, column in enumerate(reports, start=1):
            yield number, stream.step(period(column), f"b{number}")


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_a_stream_is_its_synthesizer_on_matched_people(tmp_path_factory: Any, seed: int, loose: bool) -> None:
    """Oracle: with next to no noise, window counts are those of the true histories, however the rows come."""
    generator = np.random.default_rng(seed)
    truth = history(seed=seed)
    made = plan(rho=QUIET, relation="replace", schema=LOOSE if loose else POOR)
    symbols = truth.astype(int)
    folder = tmp_path_factory.mktemp("panel")
    with start(folder, made) as stream:
        for step in range(1, 7):
            there = generator.permutation(PEOPLE)
            if loose and step > 1:
                there = there[: int(generator.integers(1, PEOPLE + 1))]
                symbols[step - 1, np.setdiff1d(np.arange(PEOPLE), there)] = 2
            release = stream.step(period(truth[step - 1], order=there), f"b{step}")
        for times in (1, 2, 3):
            expected = ((symbols[-3:] == 1).sum(axis=0) >= times).sum()
            asked = f"poor = true in at least {times} of the last 3"
            answer = release.answer(asked)
            assert abs(answer.value - expected) <= 3
            assert answer.people.share == pytest.approx(answer.value / PEOPLE)
            assert release.answer(AtLeast(times, 3, (1,))).value == answer.value


def test_cumulative_answers_count_people(tmp_path: Path) -> None:
    truth = history()
    *_, (_, release) = steps(start(tmp_path, plan("cumulative", rho=QUIET, relation="replace")), truth)
    for times in (1, 2, 3):
        answer = release.answer(f"at least {times} so far")
        assert abs(answer.value - (truth.sum(axis=0) >= times).sum()) <= 2
        # The error is that of what was measured, which may fall; both have names, here and in the manifest.
        told = release.manifest["accuracy"]["panel"]["answers"][times - 1]
        assert answer.measured_value == told["unbiased"]
        assert answer.measured_error == told["unbiased_standard_error"]
        assert (answer.value, answer.as_of) == (told["count"], 6)
        assert "count_standard_error" not in told
    with pytest.raises(errors.ConfigError, match="all periods so far"):
        release.answer("at least 2 of the last 3")
    public = dp.read(tmp_path / "releases")
    for times in (1, 2, 3):
        assert abs(public.people(times).values - (truth.sum(axis=0) >= times).sum()) <= 2
    everybody = public.people()
    assert (float(everybody.values), everybody.standard_error) == (PEOPLE, 0.0)
    assert everybody.note.startswith("exact: the number of people was declared public")


def of(people: range, value: Any = True) -> Batch:
    return Batch({"poor": [value] * len(people)}, users=[f"p{i}" for i in people])


REFUSED: dict[str, tuple[Batch, str]] = {
    "nobody's reports": (Batch({"poor": [True]}), "the unit 'individual' needs users"),
    "two reports": (Batch({"poor": [True, False]}, users=["p0", "p0"]), "reports twice in one period"),
    "a new person": (of(range(PEOPLE + 1)), "a person reports who was absent in the first period"),
    "a missing person": (of(range(PEOPLE - 1)), "has no report"),
    "no id": (Batch({"poor": [True]}, users=[None]), "user id"),
    "a query's value lies outside": (of(range(PEOPLE), "perhaps"), "poor"),
    "reports that leave": (Batch({"poor": [True]}, {"poor": [True]}, users=(["p0"], ["p0"])), "deletes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_people_who_do_not_fit_are_refused_before_anything_is_drawn(tmp_path: Path, name: str) -> None:
    batch, words = REFUSED[name]
    truth = history()
    with start(tmp_path, plan()) as stream:
        stream.step(period(truth[0]), "b1")
        with pytest.raises(errors.DataError, match=words) as caught:
            stream.step(batch, "b2")
        # No name, and no number of people.
        assert not re.search(r"p[0-9]|59|60|61", str(caught.value))
        assert stream.last_step == 1
        # Nothing was reserved for the refused records: the right ones take the same place.
        stream.step(period(truth[1]), "b2")
        assert stream.last_step == 2


def test_the_same_reports_of_other_people_are_another_batch(tmp_path: Path) -> None:
    truth = history()[0]
    with start(tmp_path, plan()) as stream:
        first = stream.step(period(truth), "b1")
        backwards = np.arange(PEOPLE)[::-1]
        assert stream.step(period(truth, order=backwards), "b1").manifest == first.manifest
        others = Batch({"poor": truth.tolist()}, users=[f"p{i}" for i in backwards])
        with pytest.raises(errors.StepError, match="other records"):
            stream.step(others, "b1")


def test_a_panel_with_places_takes_people_who_come_later(tmp_path: Path) -> None:
    """Oracle: who has not come yet reports the declared missing value, in every period so far."""
    made = plan(schema=LOOSE, relation="replace", rho=QUIET, people=PEOPLE)
    truth, come = history(), np.random.default_rng(8).integers(1, 7, PEOPLE)
    come[0] = 1
    with start(tmp_path, made) as stream:
        for step in range(1, 7):
            there = np.flatnonzero(come <= step)
            release = stream.step(period(truth[step - 1], order=there), f"b{step}")
        assert release.total == PEOPLE
        present = np.where(come[None, :] <= np.arange(1, 7)[:, None], truth, False)
        expected = (present[-3:].sum(axis=0) >= 2).sum()
        assert abs(release.answer("poor = true in at least 2 of the last 3").value - expected) <= 3
        never = "poor = 'no report' in at least 3 of the last 3"
        assert abs(release.answer(never).value - (come > 6).sum()) <= 3
        assert f"the panel has {PEOPLE} places" in " ".join(release.manifest["declared_public"])
    with start(tmp_path / "fewer", plan(schema=LOOSE, relation="replace", people=PEOPLE - 1)) as stream:
        few = f"more people report than the panel has places.*people = {PEOPLE - 1}"
        with pytest.raises(errors.DataError, match=few):
            stream.step(period(truth[0]), "b1")


@settings(max_examples=60)
@given(st.lists(st.sets(st.integers(0, 30), min_size=1), min_size=1, max_size=6))
def test_seats_follow_people(periods: list[set[int]]) -> None:
    """Oracle: a dictionary. Whoever came keeps what is kept of them, in whatever order others join."""

    def marks(people: list[int]) -> Any:
        return np.array([[p] + [7] * 14 + [0] for p in people], np.uint8).reshape(-1, 16)

    known: Any = None
    kept: dict[int, int] = {}
    values: list[int] = []
    for number, people in enumerate(periods):
        given_people = sorted(people)
        known, seats = seat(known, marks(given_people), places=31, absent=True)
        values += [-1] * (len(known) - len(values))
        for person, place in zip(given_people, seats, strict=True):
            assert values[place] == kept.get(person, -1)
            assert known[place, 0] == person
            values[place] = kept[person] = number
        assert sorted(known[:, 0].tolist()) == sorted(kept)


def test_who_is_who_is_found_by_keyed_marks_only(tmp_path: Path) -> None:
    """Ids are in no file; the state has marks that no other stream has."""
    stored = []
    for name in ("one", "two"):
        with start(tmp_path / name, plan()) as stream:
            stream.step(period(history()[0], prefix="marked-person-"), "b1")
            stored.append(stream._state.marks.tobytes())
    assert stored[0] != stored[1]
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert all(b"marked-person" not in data for data in files)


@pytest.mark.parametrize("kind", ["window", "cumulative"])
def test_a_private_number_of_people_is_in_no_public_file(tmp_path: Path, kind: str) -> None:
    """Sizes and numbers of public files follow from noisy counts: equal ones for equal synthetic people.

    A noisy number can be the private one by chance: under 1 % here, in all three streams with less than 1e-6.
    """

    def shown(folder: Path) -> bool:
        with start(folder, plan(kind, rho="1/1000")) as stream:
            for step in range(1, 4):
                release = stream.step(period(history(people=7919)[step - 1]), f"b{step}")
        assert release.total_standard_error is not None
        assert release.total_standard_error > 50
        public = b"".join(path.read_bytes() for path in (folder / "releases").rglob("*.json"))
        return re.search(rb"\b7919\b", public) is not None

    assert not all(shown(tmp_path / str(number)) for number in range(3))


def test_several_variables_are_taken_together(tmp_path: Path) -> None:
    schema = Schema(
        (Boolean("poor"), Categorical("job", ["none", "part", "full"]), Integer("age", edges=[0, 20, 99]))
    )
    made = plan(schema=schema, width=2, rho=QUIET, horizon=3)
    generator = np.random.default_rng(1)
    jobs = generator.integers(0, 3, (3, 200))
    with start(tmp_path, made, schema=schema) as stream:
        for step in range(3):
            frame = {
                "poor": (jobs[step] == 0).tolist(),
                "job": np.array(["none", "part", "full"])[jobs[step]].tolist(),
                "age": [10] * 100 + [50] * 100,
            }
            release = stream.step(Batch(frame, users=np.arange(200)), f"b{step}")
    table = read(tmp_path / "releases")
    values = [name for name in table.column_names if not name.startswith("weight_")]
    assert values == ["person", *(f"{name}_{t}" for t in (1, 2, 3) for name in schema.names)]
    assert [name for name in table.column_names if name not in values] == ["weight_2", "weight_3"]
    assert set(table.column("age_3").to_pylist()) == set(schema["age"].labels())
    expected = ((jobs[1:] == 2).sum(axis=0) >= 1).sum()
    assert abs(release.answer("job = 'full' in at least 1 of the last 2").value - expected) <= 6
    counts = release.marginal(["job"])
    assert np.abs(counts.values - np.bincount(jobs[2], minlength=3)).max() <= 8
    # What a reader gets of it from the folder alone.
    public = dp.read(tmp_path / "releases")
    patterns, everybody = public.patterns(), public.people()
    assert patterns.columns == tuple(f"{name}, period {t}" for t in (2, 3) for name in schema.names)
    assert patterns.labels[1] == ("none", "part", "full")
    full = np.zeros((2, 3, 2) * 2, bool)
    full[:, 2, :, :, 2] = True
    assert abs(patterns.sum(full).values - (jobs[1:] == 2).all(axis=0).sum()) <= 3
    assert np.abs(patterns.values.sum(axis=(0, 2, 3, 4, 5)) - np.bincount(jobs[1], minlength=3)).max() <= 6
    assert abs(everybody.values - 200) <= 6
    assert public.patterns(step=2).epochs == ((1, 2),)
    assert (public.departures(), public.cells(1)) == (None, None)
    with pytest.raises(errors.ConfigError, match="the mask has the shape"):
        patterns.sum(np.ones(3, bool))


def flags(*names: str) -> Schema:
    return Schema(tuple(map(Boolean, names)))


LETTERS = Schema((Categorical("job", ["a", "b"]),))
SAME_NAME = {"schema": flags("a", "a_b"), "width": 1, "horizon": 2, "period_names": ("c", "b_c")}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("window", {"schema": LOOSE, "people": 9}, "individual-replace"),
    ("window", {"relation": "replace", "people": 9}, "missing"),
    ("window", {"schema": flags("person")}, "need the column name"),
    ("window", {"schema": flags("weight")}, "column name 'weight'"),
    ("cumulative", {"schema": flags("a", "a_b")}, "one column"),
    ("cumulative", {"schema": LETTERS}, "counted"),
    ("cumulative", {"counted": ("true", "false")}, "counted"),
    ("cumulative", {"counted": ("maybe",)}, "'maybe'"),
    ("window", SAME_NAME, "have the same name"),
    ("window", {"period_names": NAMES[:5]}, "5 names, and 6 periods"),
    ("window", {"period_names": (*NAMES[:5], "")}, "unusable name"),
    ("window", {"period_names": (*NAMES[:5], 6)}, "unusable name"),
]


@pytest.mark.parametrize(("kind", "options", "words"), WRONG)
def test_plans_that_cannot_be(kind: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.ConfigError, match=words):
        plan(kind, **options)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"epsilon": "1", "horizon": 3}, errors.BudgetError, "Gaussian"),
        ({"rho": "1"}, errors.HorizonError, "a panel needs a horizon"),
        ({"rho": "1", "horizon": 3, "unit": Event()}, errors.UnitError, "a panel cannot protect"),
    ],
)
def test_budgets_and_units_that_cannot_be(options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        PanelWindow(POOR, 2).calibrate(**options)


def test_facts_pin_the_counter_of_every_threshold(tmp_path: Path) -> None:
    made = plan("cumulative", counter="best")
    assert re.fullmatch(r"([0-9]+(-[0-9]+)? [a-z0-9-]+(, )?)+", made.options()["counters"])
    assert sum(part.total for part in made.parts()) == made.budget.rho
    with start(tmp_path, made) as stream:
        stream.step(period(history()[0]), "b1")
    with pytest.raises(errors.ConfigError, match=r"belongs to another plan.*counters was"):
        start(tmp_path, plan("cumulative", counter="simple"))


def test_questions_that_cannot_be_answered(tmp_path: Path) -> None:
    with start(tmp_path, plan()) as stream:
        first = stream.step(period(history()[0]), "b1")
        with pytest.raises(
            errors.ConfigError, match="period 1 precedes the first release with synthetic people"
        ):
            first.answer("at least 1 of the last 2")
        for step in (2, 3):
            release = stream.step(period(history()[step - 1]), f"b{step}")
    for question in ("how many?", "at least 3 of the last 2", "at least 1 so far", 7):
        with pytest.raises(errors.ConfigError):
            release.answer(question)
    assert plan().padding == release.manifest["accuracy"]["panel"]["padding_of_a_pattern"]


# Weights.


def questions(symbols: int, width: int) -> list[Any]:
    asked: list[Any] = []
    for wide in range(1, width + 1):
        asked += [Pattern(one) for one in itertools.product((None, *range(symbols)), repeat=wide)]
        asked += [AtLeast(times, wide) for times in range(1, wide + 1)]
        asked += [Consecutive(times, wide) for times in range(1, wide + 1)]
    return asked


def only_extended(release: Release, earlier: Any, table: Any) -> None:
    """Readers get the release's own people, and one table that holds the one before it, cell by cell."""
    assert release.sample().equals(table)
    assert release.rows == table.num_rows
    assert earlier is None or table.select(earlier.column_names).equals(earlier)


@settings(max_examples=12)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([POOR, JOBS]),
    st.sampled_from(["1/10", "3", QUIET]),
    st.sampled_from(["add-remove", "replace"]),
    st.sampled_from([("csv", "changes"), ("csv", "both"), ("parquet", "full"), ("parquet", "changes")]),
)
def test_weighted_sums_are_the_answers_of_the_window(
    tmp_path_factory: Any, seed: int, schema: Schema, rho: str, relation: str, published_as: tuple[str, str]
) -> None:
    generator, labels, (form, publish) = np.random.default_rng(seed), schema.columns[0].labels(), published_as
    symbols = len(labels)
    reports = generator.integers(0, symbols, (PERIODS, int(generator.integers(1, 40))))
    made, folder = plan(schema=schema, width=2, rho=rho, relation=relation), tmp_path_factory.mktemp("panel")
    stream = start(folder, made, schema=schema, publish=publish, form=form, seed=seed)
    wide, earlier = pa.table({"person": pa.array([], pa.int64())}), None
    for step, release in steps(stream, np.array(labels)[reports]):
        table, told = read(folder / "releases", step), read_manifest(folder / "releases", step)
        only_extended(release, earlier, table)
        assert table.num_rows == told["records"]["people"]
        if publish != "full":
            rows = read_changes(folder / "releases", step)
            assert set(rows.column("period").to_pylist()) <= ({1, 2} if step == 2 else {step})
            wide = add_periods(wide, rows, "weight")
            assert wide.equals(table)
        if step < 2:
            assert (table.column_names, table.num_rows) == (["person"], 0)
            assert "The first synthetic people come with the first full window" in told["accuracy"]["words"]
            continue
        earlier = table
        if not table.num_rows:
            continue
        drawn = {f"poor_{t}" for t in range(1, step + 1)} | {f"weight_{t}" for t in range(2, step + 1)}
        assert set(table.column_names) == {"person"} | drawn
        seen = np.array(
            [
                [labels.index(str(value).lower()) for value in table.column(f"poor_{t}").to_pylist()]
                for t in range(1, step + 1)
            ]
        ).T
        weights = table.column(f"weight_{step}").to_numpy()
        panel = told["accuracy"]["panel"]
        padding, facts = panel["padding_of_a_pattern"], panel["weights"]
        assert told["accuracy"]["words"].startswith("Weight the rows, as they hold padding")
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
        if relation != "replace":
            assert weights.sum() == pytest.approx(release.total + facts["padding_left"], abs=1e-6)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_weighted_sums_are_the_answers_of_cumulative_counts(tmp_path: Path, form: str) -> None:
    stream, earlier = start(tmp_path, plan("cumulative", rho="1/2"), publish="both", form=form, seed=3), None
    for step, release in steps(stream, history(people=80)):
        table = read(tmp_path / "releases", step)
        only_extended(release, earlier, table)
        earlier = table
        changes = read_changes(tmp_path / "releases", step)
        assert changes.column_names == ["person", "period", "poor", "weight"]
        assert set(changes.column("period").to_pylist()) == {step}
        assert changes.column("poor").to_pylist() == table.column(f"poor_{step}").to_pylist()
        seen = np.column_stack([table.column(f"poor_{t}").to_numpy() for t in range(1, step + 1)])
        weights = table.column(f"weight_{step}").to_numpy()
        assert weights.sum() == pytest.approx(release.total, abs=1e-9)
        assert table.num_rows > release.total + 1  # without weights the padding is counted
        assert weights @ seen[:, -1] == pytest.approx(release.marginal(["poor"]).values[1], abs=1e-9)
        for times in range(1, step + 1):
            told = release.answer(f"at least {times} so far").value
            assert float(weights @ (seen.sum(axis=1) >= times)) == pytest.approx(told, abs=1e-9)


def test_without_padding_there_are_no_weights(tmp_path: Path) -> None:
    made = plan("cumulative", rho="1/2", relation="replace")
    for step, _ in steps(start(tmp_path, made), np.zeros((2, 9), bool)):
        assert "weight" not in str(read(tmp_path / "releases", step).column_names)
        text = read_manifest(tmp_path / "releases", step)["accuracy"]["words"]
        assert text.startswith("The rows hold no padding and need no weights.")
    assert words(made, "warning") == "The rows hold no padding and need no weights."


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
    made = plan(width=2, rho="1/2", relation="replace")
    text = words(made, "accuracy", total_standard_error=0.0, panel=facts)
    assert "This period's are in weight_2; 3 of them are negative" in text
    assert "10 invented people find nobody to carry their weight" in text
    assert Weights.shared(np.array([1, 1, 1]), np.array([5, 0])).lost == 5
    assert Weights.shared(np.array([0, 0, 1]), np.array([1, 0])).values.tolist() == [0.5, 0.5, 1.0]


# Names of periods.


def renamed(column: str) -> str:
    name, _, period = column.rpartition("_")
    return f"{name}_{NAMES[int(period) - 1]}" if name else column


@pytest.mark.parametrize(("form", "publish"), [("csv", "changes"), ("parquet", "both"), ("csv", "full")])
@pytest.mark.parametrize("kind", ["window", "cumulative"])
def test_tables_are_the_same_under_the_names_of_the_periods(
    tmp_path: Path, kind: str, form: str, publish: str
) -> None:
    for name, options in (("named", {"period_names": NAMES}), ("numbered", {})):
        made = plan(kind, **options)
        list(steps(start(tmp_path / name, made, publish=publish, form=form, seed=5), history(5)))
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
    assert "This period's are in weight_mar" in told["accuracy"]["words"]
    book = json.loads((tmp_path / "named" / "releases" / "codebook.json").read_text())
    assert "Columns end in the periods' names: nov, dec, ..., apr" in book["description"]
    columns = [field["name"] for field in book["resources"][0]["schema"]["fields"]]
    assert set(read(tmp_path / "named" / "releases", 5).column_names) < set(columns)
    period = book["dpstream"]["panel"]["fields"][1]
    assert (period["type"], period["constraints"]["enum"]) == ("string", list(NAMES))
    # The first words are a warning, also beside a file; and a lost file comes back with the names and the bytes.
    assert book["description"].startswith("Weight the rows")
    files = {path: path.read_bytes() for path in (tmp_path / "named" / "releases").glob("step-*/*")}
    assert all(b"as they hold padding" in data for path, data in files.items() if "metadata" in path.name)
    shutil.rmtree(tmp_path / "named" / "releases" / "step-000004")
    with start(tmp_path / "named", plan(kind, period_names=NAMES), publish=publish, form=form) as stream:
        assert stream.publish_again() == [4]
    assert {path: path.read_bytes() for path in files} == files
