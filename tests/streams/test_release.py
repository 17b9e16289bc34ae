"""Releases: marginals, answers and the question grammar, against brute force over all cells."""

from __future__ import annotations

import datetime as dt
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from toy_stream import SCHEMA, ToyPlan, batch

from dpstream.core.contracts import CellEstimate, Measured, Packed, SyntheticTable
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy import DiscreteLaplace, Event, NoiseSum
from dpstream.core.schema import Boolean, Categorical, Clique, Date, DateTime, Domain, Integer, Real, Schema
from dpstream.core.schema.predicate import parse_predicate
from dpstream.core.tables import Workload
from dpstream.families.tabular import DPStabs, Pooled
from dpstream.stream import Release, open_stream
from dpstream.stream.release import answers, release
from dpstream.stream.release.manifest import accuracy_of

WIDE = Schema(
    [
        Categorical("zip", ["94102", "94103"], other="other"),
        Boolean("paid", missing="n/a"),
        Categorical("rooms", [1, 2, 3], missing="missing"),
        Integer("age", edges=[0, 18, 65, 120]),
        Integer("floor", min=-1, max=2),
        Real("rent", [0, 500, 1000.5], missing="missing"),
        Date("filed", start=dt.date(2024, 1, 1), end=dt.date(2024, 3, 15), every="month"),
        DateTime("seen", edges=["2024-01-01T00:00", "2024-01-01T12:00", "2024-01-02T00:00"], timezone="UTC"),
    ]
)


def truth(question: str) -> dict[str, list[bool]]:
    """A question over one column, by label."""
    predicate = parse_predicate(question, WIDE)
    (column,) = predicate.columns
    labels = WIDE.columns[column].labels()
    return [label for label, hit in zip(labels, predicate.mask(), strict=True) if hit]


@pytest.mark.parametrize(
    ("question", "labels"),
    [
        ("zip = 94103", ["94103"]),
        ("not zip in ('94103', 'other')", ["94102"]),
        ("zip not in ('94103', 'other')", ["94102"]),
        ("\"paid\" = 1 or paid = 'n/a'", ["true", "n/a"]),
        ("not paid = FALSE", ["true", "n/a"]),
        ("rooms < 2.5", ["1", "2"]),
        ("rooms = 2.0", ["2"]),
        ("age <= 17", ["0..17"]),
        ("age >= 65", ["65..120"]),
        ("age > 300", []),
        ("age <= 120", ["0..17", "18..64", "65..120"]),
        ("age = '18..64'", ["18..64"]),
        ("rent < 500", ["[0, 500)"]),
        ("rent >= 5e2", ["[500, 1000.5]"]),
        ("rent <= 1000.5", ["[0, 500)", "[500, 1000.5]"]),
        ("rent = 'missing'", ["missing"]),
        ("filed < '2024-02-01'", ["2024-01-01..2024-01-31"]),
        ("filed > '2024-02-29'", ["2024-03-01..2024-03-15"]),
        ("seen >= '2024-01-01T13:00+01:00'", ["[2024-01-01T12:00:00+00:00, 2024-01-02T00:00:00+00:00]"]),
    ],
)
def test_comparisons_by_bin(question: str, labels: list[str]) -> None:
    assert truth(question) == labels


@pytest.mark.parametrize("edge", [40.8, 0.1, 1 / 3, 1e-9, 73.85])
def test_borders_that_have_no_short_binary_form(edge: float) -> None:
    """A border is compared as the float that it is, however many digits that has."""
    column = Real("x", [-1.0, edge, 100.0])
    for sign, expected in (("<", [True, False]), (">=", [False, True])):
        assert parse_predicate(f"x {sign} {edge!r}", Schema((column,))).mask().tolist() == expected


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("", "empty"),
        ("zip", "unexpected 'the end'"),
        ("zip = ", "allowed: a number"),
        ("zip = '94103' and", "column name"),
        ("zip = '94103' paid = 1", "unexpected 'paid'"),
        ("(zip = '94103'", r"allowed: \)"),
        ("zip = '94103'; drop table x", "cannot read"),
        ("zip = '94199'", "'94199' is outside its values"),
        ("zip < '94103'", "needs an order"),
        ("age < 20", "cuts through the bin '18..64'"),
        ("age = 20", "is part of a bin"),
        ("age = 130", "outside its bins"),
        ("age < 'old'", "expected a label or a number"),
        ("filed < 'spring'", "expected a label or a date"),
        ("seen < '2024-01-01T12:00'", "offset"),
        ("zip not = '94103'", "allowed: in"),
        ("(" * 60 + "paid = 1" + ")" * 60, "too deep nesting in the question"),
        ("not " * 60 + "paid = 1", "too deep nesting in the question"),
        ("paid = 1 or " * 2000 + "paid = 1", "too long"),
    ],
)
def test_questions_that_cannot_be_answered(question: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_predicate(question, WIDE)


Question = tuple[str, Callable[[dict[str, object]], bool]]
SIGNS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: Column -> the signs and the values that it is compared with.
COMPARED = {
    "zip": (["=", "!="], WIDE["zip"].labels()),
    "paid": (["=", "!="], WIDE["paid"].labels()),
    "floor": (list(SIGNS), (-1, 0, 1, 2)),
}


def questions() -> st.SearchStrategy[Question]:
    """A question and the same as a function of a row of labels."""

    def comparison(name: str, sign: str, value: object) -> Question:
        return f"{name} {sign} {value!r}", lambda row: SIGNS[sign](row[name], value)

    def both(one: Question, word: str, other: Question) -> Question:
        joined = all if word == "and" else any
        return f"({one[0]}) {word} ({other[0]})", lambda row: joined((one[1](row), other[1](row)))

    leaves = [
        st.builds(comparison, st.just(name), st.sampled_from(signs), st.sampled_from(values))
        for name, (signs, values) in COMPARED.items()
    ]
    return st.recursive(
        st.one_of(leaves),
        lambda inner: st.one_of(
            inner.map(lambda one: (f"not ({one[0]})", lambda row: not one[1](row))),
            st.builds(both, inner, st.sampled_from(["and", "or"]), inner),
        ),
        max_leaves=8,
    )


@settings(max_examples=150)
@given(questions())
def test_logic_agrees_with_python_on_every_cell(question: Question) -> None:
    text, function = question
    predicate = parse_predicate(text, WIDE)
    names = [WIDE.names[i] for i in predicate.columns]
    values = [[int(x) if name == "floor" else x for x in WIDE[name].labels()] for name in names]
    rows = [dict(zip(names, row, strict=True)) for row in itertools.product(*values)]
    assert predicate.mask().ravel().tolist() == [bool(function(row)) for row in rows]


def test_and_binds_closer_than_or() -> None:
    loose = parse_predicate("zip = '94102' or zip = '94103' and paid = 1", WIDE).mask()
    tight = parse_predicate("zip = '94102' or (zip = '94103' and paid = 1)", WIDE).mask()
    assert (loose == tight).all()


@pytest.fixture
def released(tmp_path: Path) -> Iterator[Release]:
    with open_stream(ToyPlan(), SCHEMA, tmp_path / "state") as stream:
        yield stream.step(batch(1), "a")


def test_marginals_and_answers(released: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    zips = released.marginal(["zip"])
    assert zips.labels == (("94102", "94103", "94110", "other"),)
    assert zips.values.sum() == pytest.approx(released.total)
    pair = released.marginal(["paid", "zip"])
    assert pair.values.shape == (2, 4), "the order asked for"
    np.testing.assert_allclose(pair.values, released.marginal(["zip", "paid"]).values.T)
    table = pair.to_table()
    assert table.column_names == ["paid", "zip", "estimate"]
    assert table.to_pylist()[1]["zip"] == "94103"
    assert table.to_pylist()[1]["estimate"] == pair.values[0, 1]
    one = released.answer("zip = '94103'")
    assert (one.value, one.standard_error) == (zips.values[1], zips.standard_error)
    two = released.answer("zip in ('94103', 'other')")
    assert two.value == pytest.approx(zips.values[1] + zips.values[3])
    assert two.standard_error == pytest.approx(2**0.5 * zips.standard_error)
    assert two.note == "standard deviation of the noise in the sum of 2 cells of the measured marginal zip"
    none = released.answer("zip = '94103' and zip = '94102'")
    assert (none.value, none.standard_error) == (0.0, 0.0)
    mixed = released.answer("zip = '94103' and paid = 1")
    assert mixed.value == pytest.approx(zips.values[1] / 2)
    assert (mixed.standard_error, mixed.note, mixed.interval()) == (None, release.NO_INTERVAL, None)
    assert released.marginal(["zip", "paid"]).interval() is None
    monkeypatch.setattr(answers, "MAX_ANSWER_CELLS", 7)
    for ask in (
        lambda: released.answer("zip = '94103' and paid = 1"),
        lambda: released.marginal(["zip", "paid"]),
    ):
        with pytest.raises(LimitError, match="zip x paid has 8 cells"):
            ask()
    for columns in ([], ["zip", "zip"]):
        with pytest.raises(ConfigError, match="each column once"):
            released.marginal(columns)


def test_samples(released: Release) -> None:
    assert released.sample().equals(released.sample())
    assert released.sample(500, seed=7).equals(released.sample(500, seed=7))
    assert not released.sample(500, seed=7).equals(released.sample(500, seed=8))
    assert not released.sample(500).equals(released.sample(500))
    assert released.sample(0).num_rows == 0
    assert released.sample(10).schema == SCHEMA.arrow_schema()
    for arguments in ({"rows": -1}, {"rows": 1.5}, {"rows": True}, {"seed": -1}, {"rows": 3, "seed": 2**63}):
        with pytest.raises(ConfigError):
            released.sample(**arguments)


@dataclass(frozen=True)
class Fixed(SyntheticTable):
    """A synthesis that says what it is told: measured marginals beside a model that differs from them."""

    domain: Domain
    told: dict[Clique, Measured]
    known: dict[Clique, float] = field(default_factory=dict)
    total: float = 12.0
    total_error: float | None = None
    measured_up_to: int | None = None

    @property
    def measured(self) -> dict[Clique, Measured]:
        return self.told

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        return [np.full(self.domain.cells(c), self.total / self.domain.cells(c)) for c in cliques]

    def marginal(self, clique: Clique) -> CellEstimate:
        values = self.marginals([clique])[0].reshape(self.domain.shape(clique))
        return CellEstimate(values, self.known.get(clique))

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        return np.zeros((rows, len(self.domain)), np.int32)

    def pack(self) -> Packed:
        return Packed({})


LAW = NoiseSum(((DiscreteLaplace(Fraction(2)), 3),))
FIXED = Fixed(
    SCHEMA.domain,
    {
        (0, 2): Measured(np.arange(16.0).reshape(4, 4), LAW.variance**0.5, LAW),
        (0, 1): Measured(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [-7.0, 8.0]]), LAW.variance**0.5, LAW),
        (0, 1, 2): Measured(np.ones((4, 2, 4)), LAW.variance**0.5, LAW),
    },
    known={(0, 2): LAW.variance**0.5},
)


def release_of(synthesis: Fixed) -> Release:
    accuracy = {"total_standard_error": synthesis.total_error}
    told = {"stream": "s", "step": 1, "rows": 1, "rows_in_table": 1, "accuracy": accuracy}
    return Release(1, "a", told, synthesis, 0, SCHEMA)


@pytest.mark.parametrize(
    ("question", "marginal", "cells", "value"),
    [
        ("zip = '94103' and paid = 1", "zip x paid", 1, 4.0),
        ("zip in ('94103', 'other')", "zip x paid", 4, 8.0),
        ("paid = 0", "zip x paid", 4, 2.0),
        ("rent = 'missing' or rent >= 1000", "zip x rent", 8, 68.0),
        ("zip = 'other' and rent < 500", "zip x rent", 1, 12.0),
        ("paid = 1 and rent < 500", "zip x paid x rent", 4, 4.0),
        ("paid = 1 or not paid = 1", "zip x paid", 8, 22.0),
    ],
)
def test_the_smallest_measured_marginal_answers(
    question: str, marginal: str, cells: int, value: float
) -> None:
    answer = release_of(FIXED).answer(question)
    assert answer.measured_value == value
    assert answer.measured_error == answer.standard_error == pytest.approx((cells * LAW.variance) ** 0.5)
    low, high = answer.interval(0.9)
    assert (low + high) / 2 == value
    assert (high - low) / 2 == LAW.times(cells).half_width(0.9)
    assert answer.note.endswith(f"of the measured marginal {marginal}")
    assert answer.value != value, "the model's answer stays the answer"


def test_intervals_of_marginals_and_of_nothing() -> None:
    made = release_of(FIXED)
    one = made.marginal(["rent", "zip"])
    np.testing.assert_array_equal(one.measured, np.arange(16.0).reshape(4, 4).T)
    low, high = one.interval(0.8)
    np.testing.assert_array_equal(high - low, np.full((4, 4), 2 * LAW.half_width(0.8)))
    np.testing.assert_array_equal((high + low) / 2, one.measured)
    alone = made.marginal(["zip"])
    assert (alone.measured, alone.interval()) == (None, None)
    nobody = made.answer("paid = 1 and paid = 0")
    assert (nobody.measured_value, nobody.measured_error, nobody.interval()) == (0.0, 0.0, (0.0, 0.0))
    for ask in (nobody, made.answer("paid = 1"), one, alone):
        with pytest.raises(ConfigError, match="confidence = 1"):
            ask.interval(1.0)
    assert made.total_standard_error is None
    assert release_of(replace(FIXED, total_error=2.5)).total_standard_error == 2.5


def test_the_manifest_says_which_counts_have_error_bars(released: Release) -> None:
    said = released.manifest["accuracy"]
    assert said["total_standard_error"] == released.total_standard_error
    assert said["measured_every_step"]["marginals"] == [["zip"]]
    assert said["measured_every_step"]["standard_error"] == released.marginal(["zip"]).standard_error
    assert "The listed marginal is measured at every step" in said["words"]
    recipe = Pooled(Workload.all_k_way(SCHEMA.domain, 2))
    other = DPStabs(recipe.workload)
    three = accuracy_of(FIXED, other.calibrate(epsilon=1), 10)
    assert three["measured_every_step"]["marginals"] == [
        ["zip", "rent"],
        ["zip", "paid"],
        ["zip", "paid", "rent"],
    ]
    assert three["words"].startswith(
        "The number of records is noisy, and its standard error is not known. The 3"
    )
    blank = replace(FIXED, told={}, total_error=0.0)
    none = accuracy_of(blank, other.calibrate(epsilon=1, unit=Event("replace")), 10)
    assert none["measured_every_step"] == {"standard_error": None, "marginals": []}
    assert none["words"].startswith(
        "The number of records is declared public and has no noise. No other released count"
    )
    # A pooled one says what is measured so far: a rule of step numbers, up to the horizon.
    plan = recipe.calibrate(epsilon=1, unit=Event("replace"), horizon=20)
    for step, last in ((1, 1), (9, 9), (10, 9), (18, 17), (19, 19), (20, 20)):
        said = accuracy_of(replace(blank, measured_up_to=last), plan, step)
        assert said["measured_up_to_step"] == last
        assert ("All steps so far are measured." in said["words"]) is (step == last)
    endless = recipe.calibrate(epsilon=1)
    words = accuracy_of(replace(blank, measured_up_to=36), endless, 40)["words"]
    assert "Counts of the last 4 steps are expected, not measured, until step 41" in words
