"""Streams under public constraints: no released record violates one, and no mechanism leaves them out in silence."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cli_stream import dpstream as command
from door_runs import stream_loss
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstream
from dpstream.cli.check import DataCheck
from dpstream.cli.shared import ShownStream
from dpstream.core.contracts import StreamPlan
from dpstream.core.errors import ConfigError, DataError, LimitError
from dpstream.core.privacy import PureDP, Randomness
from dpstream.core.schema import Schema
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.census import Census
from dpstream.families.registry import families
from dpstream.families.tabular import DPStabs, Pooled
from dpstream.project.schema_file import read_schema
from dpstream.stream.identity import plan_facts, plan_hash, require_same_plan
from dpstream.tools.simulate import simulate

SCHEMA = """
[schema.columns]
zip = { type = "categorical", values = ["94102", "94103", "94104"], other = "other" }
district = { type = "categorical", values = ["5", "6"], other = "elsewhere", missing = "missing" }
kind = { type = "categorical", values = ["flat", "house", "ship"] }
age = { type = "integer", edges = [0, 15, 30, 100], missing = "missing" }
employed = { type = "boolean" }
[schema.constraints]
forbidden = ["age < 15 and employed", "kind = 'ship' and district = 5"]
allowed = [{ columns = ["zip", "kind"], file = "kinds.csv" }]
violations = { age = "missing", zip = "other" }
[schema.constraints.derived]
district = { from = "zip", file = "districts.csv" }
"""
CONFIG = """
format = 1
stream = { name = "homes" }
source = { path = "data.csv", time_column = "day", every = "day", start = "2026-01-01", end = "2026-01-02" }
mechanism = { name = "pooled" }
budget = { epsilon = 1 }
"""
UNREAD = ('"districts.csv" }', '"districts.csv", read = false }')
STOPS = ('violations = { age = "missing", zip = "other" }\n', "")
DISTRICTS = "zip,district\n94102,5\n94103,6\n94104,5\n"


@pytest.fixture
def schema(tmp_path: Path) -> Schema:
    return _files(tmp_path)


def _files(folder: Path, *changes: tuple[str, str]) -> Schema:
    """The files of the schema, with changes of its text."""
    (folder / "districts.csv").write_text(DISTRICTS)
    kinds = ("94102,flat", "94103,flat", "94103,ship", "94104,house", "94104,flat")
    (folder / "kinds.csv").write_text("\n".join(["zip,kind", *kinds, ""]))
    text = SCHEMA
    for old, new in changes:
        text = text.replace(old, new)
    (folder / "schema.toml").write_text(text)
    return read_schema(folder / "schema.toml")


def _records(rows: int, generator: np.random.Generator) -> dict[str, Any]:
    """Records of which many violate something."""
    return {
        "zip": generator.choice(["94102", "94103", "94104", "12"], rows),
        "district": generator.choice(["5", "6", "7"], rows),
        "kind": generator.choice(["flat", "house", "ship"], rows),
        "age": generator.integers(0, 101, rows),
        "employed": generator.random(rows) < 0.5,
    }


@pytest.mark.parametrize(
    ("mechanism", "records", "options"),
    [
        ("pooled", "fresh", {"workload": "all-3-way"}),
        ("pooled", "persistent", {}),
        ("dpstabs", "fresh", {}),
        ("dpstabs", "persistent", {}),
        ("baseline", "fresh", {}),
    ],
)
def test_no_released_record_violates_a_constraint(
    schema: Schema, tmp_path: Path, mechanism: str, records: Any, options: dict[str, Any]
) -> None:
    generator = np.random.default_rng(5)
    with dpstream.open(
        tmp_path / mechanism,
        schema,
        epsilon=1,
        mechanism={"name": mechanism, **options},
        output={"records": records},
        randomness=Randomness.seeded(3),
    ) as stream:
        for step in range(5):
            # At the first step there is nothing but noise.
            release = stream.step(_records(60 * step, generator), f"batch {step}")
            assert not schema.violated(release.table(), extra="ignore")
            assert not schema.violated(release.sample(3000, seed=step))
        own = release.marginal(["employed", "district"]).values
        joint = release.marginal(["zip", "employed"]).values
        np.testing.assert_allclose(own[:, 0], joint[0] + joint[2])
        assert release.answer("district = 5").value == pytest.approx(own[:, 0].sum())
        _is_exactly_none(release.answer("age < 15 and employed"))
        assert release.answer("age < 15 or not employed").value > 0
    public = dpstream.read(tmp_path / mechanism / "releases")
    assert {"zip", "kind", "age", "employed", "district"} == set(public.columns)
    _is_exactly_none(public.answer("kind = 'ship' and district = 5"))
    assert public.answer("kind = 'ship'").value > 0


_KEYS = st.integers(0, 25)
_ROW = st.tuples(
    st.sampled_from(["94102", "94103", "94104", "12", None]),
    st.sampled_from(["5", "6", "7", None]),
    st.sampled_from(["flat", "house", "ship", None]),
    st.sampled_from([3, 14, 20, 40, None]),
    st.sampled_from([True, False, None]),
)
_EVENTS = st.lists(
    st.tuples(_KEYS, st.sampled_from(["insert", "insert", "update", "delete"]), _ROW), max_size=60
)
#: Of a whole record: what a null stands for where a column declares no missing bin.
_WHOLE = {"zip": "94103", "kind": "flat", "employed": False}
CENSUS: dict[str, Any] = {"epsilon": 1, "unit": dpstream.Record(), "mechanism": {"turnover": 4}}
_NAMES = ("zip", "district", "kind", "age", "employed")


def _events(rows: list[Any], *, keeps: bool) -> dpstream.KeyedBatch:
    """Events by key; of an update a null keeps what is there (``keeps``)."""
    columns: dict[str, list[Any]] = {"id": [], "op": [], **{name: [] for name in _NAMES}}
    for key, operation, values in rows:
        columns["id"].append(key)
        columns["op"].append(operation)
        for name, value in zip(_NAMES, values, strict=True):
            plain = None if operation == "delete" or (keeps and operation == "update") else _WHOLE.get(name)
            columns[name].append(plain if value is None else value)
    return dpstream.KeyedBatch(
        columns, "id", "op", "null-keeps" if keeps else None, rules=dpstream.KeyRules(unknown="drop")
    )


@settings(max_examples=6, derandomize=True)
@given(steps=st.lists(_EVENTS, min_size=4, max_size=4), keeps=st.booleans(), persistent=st.booleans())
def test_no_release_of_a_census_violates_a_constraint(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], keeps: bool, persistent: bool
) -> None:
    """Whatever comes, changes and leaves; records that are put together from several events, too."""
    folder = tmp_path_factory.mktemp("census")
    schema = _files(folder, *[UNREAD] * keeps)
    options: Any = {"records": "persistent", "publish": "both"} if persistent else {"records": "fresh"}
    workload = Workload.all_k_way(schema.domain, 2)
    recipe = Census(workload, turnover=2, iterations=10, headline=(("zip", "kind"),))
    with dpstream.open(
        folder / "s", schema, epsilon=2, unit=dpstream.Record(), mechanism=recipe,
        randomness=Randomness.seeded(3), output=options,
    ) as stream:  # fmt: skip
        for number, rows in enumerate(steps):
            release = stream.step(_events(rows, keeps=keeps), f"batch {number}")
            present = stream._admission._table.codes
            assert not schema.rules.has_impossible(present)
            assert not schema.violated(release.table(), extra="ignore")
            assert not schema.violated(release.sample(2000, seed=number), extra="ignore")
            assert release.answer("age < 15 and employed").value == 0
            assert release.answer("kind = 'ship' and district = 5").value == 0
            synthesis = release._model
            for model in synthesis.models:
                for one in schema.domain.impossible:
                    assert not model.marginals([one.clique])[0][one.mask(schema.domain)].any()


def _is_exactly_none(answer: Any) -> None:
    """Nobody can satisfy the question, whatever was measured or simulated of it."""
    assert (answer.value, answer.standard_error, answer.error_kind) == (0.0, 0.0, "exact")
    assert answer.interval(0.999) == (0.0, 0.0)
    assert "public constraints exclude" in answer.note


def test_codes_in_an_impossible_cell_and_a_model_that_is_too_large_are_refused(
    schema: Schema, tmp_path: Path
) -> None:
    ship_in_94102 = np.array([[0, 2, 2, 0]], dtype=np.int32)
    with dpstream.open(tmp_path / "s", schema, epsilon=1) as stream:
        for refused in (lambda: stream.step(ship_in_94102, "batch"), lambda: schema.decode(ship_in_94102, 1)):
            with pytest.raises(DataError, match="the schema's constraints exclude a record of the codes"):
                refused()
        assert stream.last_step == 0
    with pytest.raises(LimitError, match="public constraints"):
        dpstream.open(tmp_path / "t", schema, epsilon=1, mechanism={"max_cells": 15})


def test_mechanisms_that_cannot_follow_constraints_refuse_them(schema: Schema) -> None:
    assert len(list(families())) > 3  # all are loaded
    able = {str(kind.name) for kind in _plans(StreamPlan) if kind.follows_constraints}
    assert able == {"pooled", "dpstabs", "baseline", "census"}
    plan = Pooled(Workload.all_k_way(schema.domain, 2)).calibrate(PureDP.of(1))
    unproved = SimpleNamespace(
        name="toy", domain=plan.domain, follows_constraints=StreamPlan.follows_constraints
    )
    with pytest.raises(ConfigError, match="'toy' cannot follow public constraints"):
        plan_facts(unproved, schema, "homes")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the first table may break the constraints"):
        plan_facts(plan, schema, "homes", base={"stream": "old"})


def _plans(kind: type[StreamPlan]) -> Iterator[type[StreamPlan]]:
    for one in kind.__subclasses__():
        yield one
        yield from _plans(one)


def _config(folder: Path, *changes: tuple[str, str]) -> dpstream.Config:
    """A file of two days with two records each, with changes of its text."""
    _files(folder)
    text = CONFIG + SCHEMA
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "dpstream.toml").write_text(text)
    first = ("94102,5,flat,40,true", "94102,6,flat,40,true", "94103,6,ship,5,true")
    rows = [*(f"2026-01-01,{row}" for row in first), "2026-01-02,94104,5,ship,5,false"]
    (folder / "data.csv").write_text("\n".join(["day,zip,district,kind,age,employed", *rows, ""]))
    return dpstream.Config.load(folder / "dpstream.toml")


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    began = _config(tmp_path).facts()

    def with_districts(text: str) -> dict[str, Any]:
        (tmp_path / "districts.csv").write_text(text)
        return dpstream.Config.load(tmp_path / "dpstream.toml").facts()

    # The order of the lines says nothing.
    turned = with_districts("zip,district\n94104,5\n94102,5\n\n94103,6\n94102,5\n")
    require_same_plan(began, turned, "state")
    assert plan_hash(turned) == plan_hash(began)
    changed = with_districts(DISTRICTS.replace("94104,5", "94104,6"))
    with pytest.raises(
        ConfigError, match=r"the file behind schema\.constraints\.files\.districts\.csv has changed"
    ):
        require_same_plan(began, changed, "state")


def test_a_file_runs_and_the_owner_learns_how_many_records_violate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config(tmp_path)
    checked = DataCheck(config)
    assert checked.read() == []
    assert checked.steps == 2
    assert checked.violated == {
        "district follows from zip": 1,
        "age < 15 and employed": 1,
        "kind = 'ship' and district = 5": 1,
        "zip x kind as in kinds.csv": 1,
    }
    command("run", config.path)
    shown = command("check", config.path).output
    assert "all rows fit the schema, once those that violate a constraint are repaired" in shown
    assert "violate the constraint" not in shown  # a private number, and no terminal
    with monkeypatch.context() as terminal:
        terminal.setattr(ShownStream, "isatty", lambda self: True, raising=False)
        shown = command("check", config.path).output
    assert "1 record violates the constraint 'age < 15 and employed' (private)" in shown
    # What a release says is repair changed some arrivals, and every sentence says so.
    release = dpstream.read(tmp_path / "releases")
    assert not config.schema().violated(release.table())
    accuracy = release.manifest()["accuracy"]
    assert "number of repaired records" in accuracy["verdicts"][0]["words"]
    assert "Repaired are records that violate a constraint: they are counted with" in accuracy["words"]
    impossible = release.answer("age < 15 and employed")
    assert (impossible.value, impossible.interval()) == (0.0, (0.0, 0.0))
    assert "repair changed some arrivals" in impossible.note
    number = release.measured([])
    assert number is None or "the repaired records as of step" in number.note
    # Without a bin such records are an error.
    config = _config(tmp_path, STOPS)
    public = config.facts()["declared_public"]
    assert any("violates a public constraint stops the stream" in fact for fact in public)
    problems = DataCheck(config).read()
    assert len(problems) == 4
    assert all("the constraint" in text and "records" in text for text in problems)


def test_updates_that_say_what_changes_leave_derived_columns_unread(schema: Schema, tmp_path: Path) -> None:
    """In Python and in a file; unread, they are computed."""
    rows = [(1, "insert", ("94102", "5", "flat", 40, True))]
    with dpstream.open(tmp_path / "s", schema, **CENSUS) as stream:
        with pytest.raises(ConfigError, match=r"derived columns \(district\) cannot be checked"):
            stream.step(_events(rows, keeps=True), "batch 1")
        assert stream.step(_events(rows, keeps=False), "batch 1").step == 1
    keyed = (
        (
            'time_column = "day"',
            'key_column = "id", op_column = "op", updates = "changed", time_column = "day"',
        ),
        ('name = "homes"', 'name = "homes", unit = "record"'),
        ('name = "pooled"', 'name = "census", turnover = 4'),
    )
    with pytest.raises(ConfigError, match=r"\[source\] updates: 'changed' leaves out .* so district"):
        _config(tmp_path, *keyed)
    assert _config(tmp_path, *keyed, UNREAD).plan().name == "census"


@pytest.mark.parametrize("rule", ["missing", "error"])
def test_a_record_is_held_against_constraints_once_it_is_put_together(tmp_path: Path, rule: str) -> None:
    """No row violates anything: an age comes first, a job later."""
    schema = _files(tmp_path, UNREAD, *[STOPS] * (rule == "error"))
    none = (None,) * 3
    with dpstream.open(tmp_path / "s", schema, **CENSUS) as stream:
        stream.step(_events([(1, "insert", ("94102", None, "flat", 3, False))], keeps=True), "batch 1")
        works = _events([(1, "update", (*none, None, True))], keeps=True)
        if rule == "error":
            with pytest.raises(DataError, match="'age < 15 and employed' excludes"):
                stream.step(works, "batch 2")
            assert stream.last_step == 1
            return
        stream.step(works, "batch 2")
        age = schema.domain.index("age")
        assert stream._admission._table.codes[:, age].tolist() == [schema.columns[age].missing_code]
        stream.step(_events([(1, "update", (*none, 40, None))], keeps=True), "batch 3")
        assert stream._admission._table.codes[:, age].tolist() == [2]


def test_neighbours_lose_no_more_than_the_budget(schema: Schema) -> None:
    """Exact losses of whole transcripts: one record more, which may violate anything. And the negative control."""
    recipe = DPStabs(Workload.all_k_way(schema.domain, 2), k=2, select_share=Fraction(1, 2), iterations=5)
    plan = recipe.calibrate(PureDP.of(1))
    generator, most = np.random.default_rng(11), 0.0

    def loss(steps: list[dict[str, Any]], second: dict[str, Any]) -> float:
        base, other = (
            [EncodedBatch(schema.domain, schema.encode(step)) for step in given]
            for given in (steps, [steps[0], second, steps[2]])
        )
        return stream_loss(plan, base, other, Randomness.seeded(7))

    for _ in range(6):
        steps = [_records(9, generator) for _ in range(3)]
        more = {name: [*values, *_records(1, generator)[name]] for name, values in steps[1].items()}
        most = max(most, loss(steps, more))
    assert 0.0 < most <= 1.0 + 1e-9
    # A rule that looks at the other records, too: as if one violation put every record of the step into a bin.
    assert loss(steps, {**steps[1], "zip": ["12"] * 9, "age": [None] * 9}) > 1.0


def test_a_column_that_follows_from_others_was_not_measured_and_its_reader_learns_why(tmp_path: Path) -> None:
    config = simulate("evictions", 2, tmp_path / "z", rows_per_step=60)
    rule = '[schema.constraints.derived]\ndistrict = { from = "zip", file = "districts.csv", read = false }\n'
    config.write_text(config.read_text().replace("[mechanism]", f"{rule}\n[mechanism]"))
    with (tmp_path / "z" / "districts.csv").open("a") as districts:
        districts.write("other,missing\n")
    list(dpstream.run(config))
    release = dpstream.read(tmp_path / "z/releases")
    assert release.measured(["district"]) is None
    missing = release.missing(["district"])
    assert missing is not None
    assert "district follows from zip" in missing.reason
    assert "follows from zip" in " ".join(command("measured", tmp_path / "z/releases").output.split())
