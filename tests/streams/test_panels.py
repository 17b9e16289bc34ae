"""Panels as durable streams: who is who, what is refused before anything is drawn, and what is published."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import (
    BudgetError,
    ConfigError,
    DataError,
    DpstreamError,
    HorizonError,
    StepError,
    UnitError,
)
from dpstream.core.privacy import Event, Individual, Randomness
from dpstream.core.schema import Boolean, Categorical, Integer, Schema
from dpstream.families.panel import AtLeast, PanelCumulative, PanelWindow
from dpstream.families.panel.people import seat
from dpstream.io.sinks import Publisher, read_changes, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.stream import Batch, Stream, open_stream
from dpstream.stream.release.publishing import Publishing

POOR = Schema((Boolean("poor"),))
LOOSE = Schema((Boolean("poor", missing="no report"),))
PEOPLE = 60
#: Noise of standard deviation about 0.1: counts are as they are.
QUIET = "500"


def plan(
    kind: str = "window",
    *,
    schema: Schema = POOR,
    relation: str = "add-remove",
    rho: str = "1/10",
    horizon: int = 6,
    **options: Any,
) -> Any:
    recipe = PanelWindow(schema, 3, **options) if kind == "window" else PanelCumulative(schema, **options)
    return recipe.calibrate(rho=rho, unit=Individual(relation), horizon=horizon)


def start(
    folder: Path, made: Any, *, publish: str = "full", form: str = "csv", seed: int | None = None
) -> Stream:
    sink = Publisher(folder / "releases", format=form)
    policy = Publishing(records="persistent", publish=publish)
    randomness = None if seed is None else Randomness.seeded(seed)
    schema = LOOSE if made.absent is not None else POOR
    return open_stream(
        made, schema, folder / "state", publish_to=sink, publishing=policy, randomness=randomness
    )


def history(periods: int = 6, people: int = PEOPLE, seed: int = 3) -> Any:
    return np.random.default_rng(seed).random((periods, people)) < 0.3


def period(reports: Any, *, order: Any = None, prefix: str = "p") -> Batch:
    where = np.arange(len(reports)) if order is None else order
    return Batch({"poor": reports[where].tolist()}, users=[f"{prefix}{i}" for i in where])


def columns(periods: Any, kind: str) -> list[str]:
    """A window's people have weights from the first full window on."""
    weighted = 3 if kind == "window" else 1
    return [name for t in periods for name in (f"poor_{t}", *([f"weight_{t}"] if t >= weighted else []))]


@pytest.mark.parametrize("publish", ["full", "changes", "both"])
@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("kind", ["window", "cumulative"])
def test_published_periods_are_only_added_to(tmp_path: Path, kind: str, form: str, publish: str) -> None:
    """Whatever is published of a step, readers get one table that holds the one before it, cell by cell."""
    truth, earlier = history(), None
    for step in range(1, 7):
        with start(tmp_path, plan(kind), publish=publish, form=form) as stream:
            release = stream.step(period(truth[step - 1]), f"b{step}")
        table, manifest = read(tmp_path / "releases", step), read_manifest(tmp_path / "releases", step)
        assert release.sample().equals(table)
        assert release.rows == table.num_rows == manifest["records"]["people"]
        if kind == "window" and step < 3:
            assert table.column_names == ["person"]
            assert table.num_rows == 0
            assert "no synthetic people yet" in manifest["accuracy"]["words"]
            continue
        assert table.column_names == ["person", *columns(range(1, step + 1), kind)]
        if earlier is not None:
            assert table.select(earlier.column_names).equals(earlier)
        if publish != "full":
            rows = read_changes(tmp_path / "releases", step)
            assert rows.column_names == ["person", "period", "poor", "weight"]
            new = {1, 2, 3} if kind == "window" and step == 3 else {step}
            assert set(rows.column("period").to_pylist()) == new
            newest = rows.filter(np.asarray(rows.column("period")) == step).column("poor")
            assert newest.to_pylist() == table.column(f"poor_{step}").to_pylist()
        earlier = table


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
    made = plan("cumulative", rho=QUIET, relation="replace")
    with start(tmp_path, made) as stream:
        for step in range(1, 7):
            release = stream.step(period(truth[step - 1]), f"b{step}")
    for times in (1, 2, 3):
        answer = release.answer(f"at least {times} so far")
        assert abs(answer.value - (truth.sum(axis=0) >= times).sum()) <= 2
        # The error is that of what was measured, which may fall; both have names, here and in the manifest.
        told = release.manifest["accuracy"]["panel"]["answers"][times - 1]
        assert (answer.measured_value, answer.measured_error) == (
            told["unbiased"],
            told["unbiased_standard_error"],
        )
        assert (answer.value, answer.as_of) == (told["count"], 6)
        assert "count_standard_error" not in told
    with pytest.raises(ConfigError, match="all periods so far"):
        release.answer("at least 2 of the last 3")


REFUSED: dict[str, tuple[Batch, str]] = {
    "nobody's reports": (Batch({"poor": [True]}), "does not say whose records"),
    "two reports": (Batch({"poor": [True, False]}, users=["p0", "p0"]), "two reports"),
    "a new person": (
        Batch({"poor": [True] * (PEOPLE + 1)}, users=[f"p{i}" for i in range(PEOPLE + 1)]),
        "not in the panel at its first period",
    ),
    "a missing person": (
        Batch({"poor": [True] * (PEOPLE - 1)}, users=[f"p{i}" for i in range(PEOPLE - 1)]),
        "has no report",
    ),
    "another number for one": (
        Batch({"poor": [True] * PEOPLE}, users=[f"p{i}" for i in range(1, PEOPLE + 1)]),
        "not in the panel",
    ),
    "no id": (Batch({"poor": [True]}, users=[None]), "user id"),
    "a value outside": (
        Batch({"poor": ["perhaps"] * PEOPLE}, users=[f"p{i}" for i in range(PEOPLE)]),
        "poor",
    ),
    "reports that leave": (Batch({"poor": [True]}, {"poor": [True]}, users=(["p0"], ["p0"])), "deletes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_people_who_do_not_fit_are_refused_before_anything_is_drawn(tmp_path: Path, name: str) -> None:
    batch, words = REFUSED[name]
    truth = history()
    with start(tmp_path, plan()) as stream:
        stream.step(period(truth[0]), "b1")
        with pytest.raises(DataError, match=words) as caught:
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
        with pytest.raises(StepError, match="other records"):
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
        public = " ".join(release.manifest["declared_public"])
    assert f"the panel has {PEOPLE} places" in public


def test_more_people_than_places(tmp_path: Path) -> None:
    made = plan(schema=LOOSE, relation="replace", people=PEOPLE)
    with start(tmp_path, made) as stream:
        stream.step(period(history()[0][:50]), "b1")
        with pytest.raises(
            DataError, match=f"more people report than the panel has places.*people = {PEOPLE}"
        ):
            stream.step(period(history()[1][:30], prefix="other"), "b2")


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
    made = PanelWindow(schema, 2).calibrate(rho=QUIET, unit=Individual(), horizon=3)
    generator = np.random.default_rng(1)
    jobs = generator.integers(0, 3, (3, 200))
    sink = Publisher(tmp_path / "releases")
    with open_stream(made, schema, tmp_path / "state", publish_to=sink) as stream:
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


WRONG: dict[str, tuple[Any, type[DpstreamError], str]] = {
    "pure epsilon": (lambda: PanelWindow(POOR, 2).calibrate(epsilon="1", horizon=3), BudgetError, "Gaussian"),
    "no horizon": (lambda: PanelWindow(POOR, 2).calibrate(rho="1"), HorizonError, "how many periods"),
    "an event": (
        lambda: PanelWindow(POOR, 2).calibrate(rho="1", horizon=3, unit=Event()),
        UnitError,
        "reports in every period",
    ),
    "places under add/remove": (lambda: plan(schema=LOOSE, people=9), ConfigError, "individual-replace"),
    "places without a missing value": (lambda: plan(relation="replace", people=9), ConfigError, "missing"),
    "a column named person": (lambda: plan(schema=Schema((Boolean("person"),))), ConfigError, "another name"),
    "two columns for cumulative": (
        lambda: plan("cumulative", schema=Schema((Boolean("a"), Boolean("b")))),
        ConfigError,
        "one column",
    ),
    "nothing is counted": (
        lambda: plan("cumulative", schema=Schema((Categorical("job", ["a", "b"]),))),
        ConfigError,
        "counted",
    ),
    "everything is counted": (lambda: plan("cumulative", counted=("true", "false")), ConfigError, "counted"),
    "no such value": (lambda: plan("cumulative", counted=("maybe",)), ConfigError, "'maybe'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_plans_that_cannot_be(name: str) -> None:
    make, kind, words = WRONG[name]
    with pytest.raises(kind) as caught:
        make()
    assert words in str(caught.value)


def test_facts_pin_the_counter_of_every_threshold(tmp_path: Path) -> None:
    made = plan("cumulative", counter="best")
    assert re.fullmatch(r"([0-9]+(-[0-9]+)? [a-z0-9-]+(, )?)+", made.options()["counters"])
    assert sum(part.total for part in made.parts()) == made.budget.rho
    with start(tmp_path, made) as stream:
        stream.step(period(history()[0]), "b1")
    with pytest.raises(ConfigError, match=r"belongs to another plan.*counters was"):
        start(tmp_path, plan("cumulative", counter="simple"))


def test_questions_that_cannot_be_answered(tmp_path: Path) -> None:
    with start(tmp_path, plan()) as stream:
        first = stream.step(period(history()[0]), "b1")
        with pytest.raises(ConfigError, match="no synthetic people yet"):
            first.answer("at least 1 of the last 2")
        for step in (2, 3):
            release = stream.step(period(history()[step - 1]), f"b{step}")
    for question in ("how many?", "at least 3 of the last 2", "at least 1 so far", 7):
        with pytest.raises(ConfigError):
            release.answer(question)
    assert plan().padding == release.manifest["accuracy"]["panel"]["padding_of_a_pattern"]
