"""``[schema]`` in files: strict reading, exact writing; public constraints, a function of each record by itself."""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError, DataError, InputError, SchemaError
from dpstream.core.schema import Boolean, Categorical, Date, DateTime, Integer, Real, Schema, parse_predicate
from dpstream.project.schema_file import read_schema, write_schema
from dpstream.stream.release.manifest import descriptor

CONFIG = """
format = 1
[stream]
name = "evictions"
[schema]
ignore = ["address"]
null_values = ["", "NA"]
[schema.columns.zip]
type = "categorical"
values = ["94102", "94103"]
other = "other"
missing = "missing"
[schema.columns.rent]
type = "real"
edges = [0, 500, 1000, 2000, 5000]
outside = "clip"
[schema.columns.paid]
type = "boolean"
[schema.columns.rooms]
type = "integer"
min = 1
max = 9
[schema.columns.filed]
type = "date"
start = 2024-01-01
end = 2024-12-31
every = "14 days"
[schema.columns."first seen"]
type = "datetime"
edges = [2024-01-01T00:00:00, "2024-06-01T12:30:00", 2025-01-01]
timezone = "Europe/Zurich"
"""
SCHEMA = Schema(
    [
        Categorical("zip", ["94102", "94103"], other="other", missing="missing"),
        Real("rent", [0, 500, 1000, 2000, 5000], outside="clip"),
        Boolean("paid"),
        Integer("rooms", 1, 9),
        Date("filed", start=dt.date(2024, 1, 1), end=dt.date(2024, 12, 31), every="14 days"),
        DateTime(
            "first seen",
            [dt.datetime(2024, 1, 1), dt.datetime(2024, 6, 1, 12, 30), dt.datetime(2025, 1, 1)],
            timezone="Europe/Zurich",
        ),
    ],
    ignore=["address"],
    null_values=["", "NA"],
)


def test_reads_the_schema_of_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "dpstream.toml"
    path.write_text(CONFIG, encoding="utf-8")
    assert read_schema(path) == read_schema(str(path)) == SCHEMA
    assert read_schema(tomllib.loads(CONFIG)) == SCHEMA
    assert read_schema(tomllib.loads(CONFIG)["schema"]) == SCHEMA
    assert read_schema(tomllib.loads(write_schema(SCHEMA))) == SCHEMA


@pytest.mark.parametrize("inside", [True, False])
def test_follows_a_schema_file(tmp_path: Path, inside: bool) -> None:
    (tmp_path / "public").mkdir()
    text = write_schema(SCHEMA)
    alone = text if inside else text.replace("[schema]\n", "").replace("[schema.", "[")
    (tmp_path / "public" / "schema.toml").write_text(alone, encoding="utf-8")
    path = tmp_path / "dpstream.toml"
    path.write_text('format = 1\n[schema]\nfile = "public/schema.toml"\n', encoding="utf-8")
    assert read_schema(path) == SCHEMA
    assert read_schema({"file": "public/schema.toml"}, base=tmp_path) == SCHEMA
    (tmp_path / "public" / "schema.toml").write_text('[schema]\nfile = "dpstream.toml"\n', encoding="utf-8")
    with pytest.raises(SchemaError, match=r"schema\.toml.*leads on to another file"):
        read_schema(path)


awkward = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(awkward, min_size=1, max_size=5, unique=True),
    st.lists(awkward, min_size=1, max_size=3, unique=True),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=5, unique=True),
    st.booleans(),
)
def test_any_text_and_number_survives_the_file(values, names, edges, confirmed) -> None:
    columns = [Categorical(name, values) for name in names]
    columns.append(Real("".join(names) + "!", sorted(edges)))
    schema = Schema(columns, confirmed=confirmed)
    again = read_schema(tomllib.loads(write_schema(schema)))
    assert again == schema
    assert again.confirmed is confirmed


def test_a_draft_must_be_confirmed() -> None:
    draft = Schema([Boolean("a")], confirmed=False)
    with pytest.raises(ConfigError, match=r"my\.toml \[schema\]: the schema is a draft.*confirmed = true"):
        draft.require_confirmed("my.toml")
    Schema([Boolean("a")]).require_confirmed()
    assert read_schema({"confirmed": False, "columns": {"a": {"type": "boolean"}}}) == draft


def _with(line: str, instead_of: str = 'outside = "clip"') -> str:
    assert instead_of in CONFIG
    return CONFIG.replace(instead_of, line)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            _with('outsid = "clip"'),
            ["[schema] column 'rent'", "'outsid' ('clip')", "did you mean 'outside'", "edges"],
        ),
        (
            _with('type = "reel"', 'type = "real"'),
            ["column 'rent'", "'reel'", "did you mean 'real'", "boolean"],
        ),
        (_with("", 'type = "real"'), ["column 'rent'", "type is missing"]),
        (_with("colums = 1", 'ignore = ["address"]'), ["[schema]", "'colums' (1)", "did you mean 'columns'"]),
        (_with('confirmed = "yes"', 'ignore = ["address"]'), ["[schema]", "'yes'", "true, false"]),
        (_with("format = 2", 'ignore = ["address"]'), ["[schema]", "unknown format 2"]),
        (_with('file = "x.toml"', 'ignore = ["address"]'), ["[schema]", "alone"]),
        ("schema = 5\n", ["has to be a table"]),
        ("[schema.columns]\na = 5\n", ["column 'a'", "5: expected a table"]),
        ("[schema\n", ["invalid TOML"]),
    ],
)
def test_errors_name_file_key_value_and_what_is_allowed(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_schema(path)
    assert str(caught.value).startswith(str(path))
    assert [part for part in parts if part not in str(caught.value)] == []


# Public constraints


COLUMNS = """
[schema.columns]
zip = { type = "categorical", values = ["94102", "94103", "94104"], other = "other", missing = "missing" }
district = { type = "categorical", values = ["5", "6"], other = "elsewhere", missing = "missing" }
age = { type = "integer", edges = [0, 15, 30, 100], missing = "missing" }
employed = { type = "boolean" }
"""
DISTRICTS = "zip,district\n94102,5\n94103,6\n94104,5\n"
DERIVED = '[schema.constraints.derived]\ndistrict = { from = "zip", file = "districts.csv" }\n'
YOUNG = '[schema.constraints]\nforbidden = ["age < 15 and employed"]\n'
INTO_BINS = 'violations = { age = "missing", zip = "other" }\n'


def schema(tmp_path: Path, constraints: str, districts: str = DISTRICTS, **files: str) -> Schema:
    (tmp_path / "districts.csv").write_text(districts)
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text)
    return read_schema(tomllib.loads(COLUMNS + constraints), base=tmp_path)


def rows(*records: tuple[Any, ...]) -> dict[str, list[Any]]:
    names = ("zip", "district", "age", "employed")
    return {name: [record[i] for record in records] for i, name in enumerate(names)}


def test_a_column_that_follows_is_not_measured_and_comes_back(tmp_path: Path) -> None:
    own = schema(tmp_path, DERIVED)
    assert own.names == ("zip", "age", "employed")
    codes = own.encode(rows(("94103", "6", 40, True), ("1", "5", 10, False), (None, None, None, True)))
    assert codes.tolist() == [[1, 2, 1], [3, 0, 0], [4, 3, 1]]
    shown = own.decode(codes, 1)
    assert shown.column("district").to_pylist() == ["6", "elsewhere", None]
    assert shown.schema == own.arrow_schema()
    assert own.decode(codes, 1, dictionaries=True).column_names == shown.column_names


@pytest.mark.parametrize(
    ("record", "fits"),
    [
        (("94103", "6", 40, True), True),
        (("94103", "5", 40, True), False),
        (("94103", "99", 40, True), False),
        (("94103", None, 40, True), True),  # what is missing contradicts nothing
        (("99999", "6", 40, True), True),  # nobody knows what follows from a zip that is not declared
        (("94102", "5", 3, True), False),
        (("94102", "5", 3, False), True),
        (("94102", "5", None, True), True),
    ],
)
def test_a_record_that_violates_is_an_error_or_goes_into_the_declared_bin(
    tmp_path: Path, record: tuple[Any, ...], fits: bool
) -> None:
    strict, mended = (schema(tmp_path, YOUNG + rule + DERIVED) for rule in ("", INTO_BINS))
    assert bool(strict.violated(rows(record))) is not fits
    if fits:
        assert strict.encode(rows(record)).tolist() == mended.encode(rows(record)).tolist()
        return
    for encode in (strict.encode, strict.encode_blocks):
        with pytest.raises(DataError, match="that the constraint") as caught:
            encode(rows(record, ("94102", "5", 40, True)))
        assert "94103" not in str(caught.value)
        assert "1 record" not in str(caught.value)
    codes = mended.encode(rows(record))
    assert not mended.rules.has_impossible(codes)  # type: ignore[union-attr]
    assert not mended.violated(mended.decode(codes, 1))


values = st.tuples(
    st.sampled_from(["94102", "94103", "94104", "7", None]),
    st.sampled_from(["5", "6", "7", None]),
    st.sampled_from([3, 20, 70, None]),
    st.booleans(),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(values, min_size=1, max_size=8))
def test_what_becomes_of_a_record_depends_on_that_record_alone(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[Any, ...]]
) -> None:
    own = schema(tmp_path_factory.mktemp("rules"), YOUNG + INTO_BINS + DERIVED)
    together = own.encode(rows(*records))
    alone = np.concatenate([own.encode(rows(record)) for record in records])
    assert together.tolist() == alone.tolist()
    assert own.encode_blocks(rows(*records)).whole().tolist() == alone.tolist()


def test_allowed_combinations_come_from_a_file(tmp_path: Path) -> None:
    text = '[schema.constraints]\nallowed = [{ columns = ["district", "zip"], file = "pairs.csv" }]\n'
    own = schema(tmp_path, text, pairs=DISTRICTS)
    excluded = parse_predicate(
        "not (zip = 94102 and district = 5 or zip = 94103 and district = 6 or zip = 94104 and district = 5) "
        "and zip not in ('other', 'missing') and district not in ('elsewhere', 'missing')",
        own,
    ).mask()
    (found,) = own.domain.impossible
    assert found.clique == (0, 1)
    assert (found.mask(own.domain).reshape(excluded.shape) == excluded).all()


def test_a_question_about_a_column_that_follows_is_one_about_its_sources(tmp_path: Path) -> None:
    own = schema(tmp_path, DERIVED)
    asked = parse_predicate("employed and district = 5", own)
    assert asked.columns == (0, 2)
    assert (asked.mask() == parse_predicate("zip in (94102, 94104) and employed", own).mask()).all()


def test_writing_and_reading_back_gives_an_equal_schema(tmp_path: Path) -> None:
    text = (
        YOUNG
        + 'allowed = [{ columns = ["zip", "age"], file = "pairs.csv" }]\n'
        + INTO_BINS
        + DERIVED.replace(" }", ", read = false }")
    )
    own = schema(tmp_path, text, pairs="zip,age\n94102,3\n94103,20\n94104,70\n")
    again = read_schema(tomllib.loads(write_schema(own)), base=tmp_path)
    assert again == own
    assert again.fingerprint() == own.fingerprint()
    book = descriptor(own)
    fields = book["resources"][0]["schema"]["fields"]
    columns = {
        f["name"]: {k: v for k, v in f["dpstream"].items() if k not in ("size", "codes")} for f in fields
    }
    public = Schema.from_codebook(columns, book["dpstream"]["constraints"])
    assert public.fingerprint() == own.fingerprint()
    assert public.domain == own.domain
    assert own.fingerprint() != schema(tmp_path, YOUNG + INTO_BINS + DERIVED).fingerprint()


@pytest.mark.parametrize(
    ("constraints", "districts", "words"),
    [
        (DERIVED, "zip,district\n94102,5\n", "a line is missing for zip = '94103'"),
        (DERIVED, DISTRICTS + "94102,6\n", "line 5 gives a second district"),
        (DERIVED, DISTRICTS + "1,6\n", "line 5: zip = '1' is not declared"),
        (DERIVED, "zip\n94102\n", "does not name each column once"),
        (DERIVED, "zip,district\n94102\n", "line 2 has 1 cells"),
        (DERIVED.replace('from = "zip"', 'from = "area"'), DISTRICTS, "'area' is not measured"),
        (DERIVED.replace("district =", "area ="), DISTRICTS, "'area' under derived is unknown"),
        (
            YOUNG + 'violations = { employed = "other" }\n',
            DISTRICTS,
            ", neither its other nor its missing bin",
        ),
        (YOUNG + 'violations = { zip = "other" }\n', DISTRICTS, "violations names no column"),
        (
            '[schema.constraints]\nforbidden = ["age < 15 and age >= 30"]\n',
            DISTRICTS,
            "other and missing contradict nothing",
        ),
        (
            '[schema.constraints]\nforbidden = ["age < 15 or not age < 15"]\n',
            DISTRICTS,
            "excludes all values of",
        ),
        ('[schema.constraints]\nforbidden = ["age < 17"]\n', DISTRICTS, "cuts through the bin"),
        (
            "[schema.constraints]\nforbidden = ['not age >= 30 and employed']\nviolations = { age = 'missing' }\n",
            DISTRICTS,
            "excludes records in the bin",
        ),
        ("[schema.constraints]\nforbiden = []\n", DISTRICTS, "unknown key 'forbiden'"),
        ("[schema.constraints]\n", DISTRICTS, "constraints are missing"),
    ],
)
def test_what_cannot_hold_is_refused_in_a_sentence(
    tmp_path: Path, constraints: str, districts: str, words: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        schema(tmp_path, constraints, districts)
    assert words in str(caught.value)
    assert "constraints" in str(caught.value)


ORDERED = """
[schema.columns]
from_year = { type = "integer", min = 2001, max = 2003, missing = "missing" }
to_year = { type = "categorical", values = [2001, 2002, 2003] }
rent = { type = "real", edges = [0, 10, 20] }
deposit = { type = "real", edges = [20, 30, 40] }
came = { type = "date", edges = ["2026-01-01", "2026-01-02", "2026-01-03"] }
"""


@pytest.mark.parametrize(
    ("operator", "compare"),
    [("<", np.less), ("<=", np.less_equal), (">", np.greater), (">=", np.greater_equal)],
)
def test_an_order_of_two_columns_is_one_of_their_bins(operator: str, compare: Any) -> None:
    own = read_schema(tomllib.loads(ORDERED))
    found = parse_predicate(f"from_year {operator} to_year", own).mask()
    years = np.arange(3)
    assert (found[:3] == compare(years[:, None], years)).all()
    assert not found[3].any()  # nobody knows
    turned = parse_predicate(f"to_year {operator} from_year", own).mask()
    assert (turned[:3] == compare(years, years[:, None])).all()
    # Real bins do not hold their right edge, the last one excepted, which meets the other's first.
    with_last = operator in ("<", ">=")
    if with_last:
        with pytest.raises(ConfigError, match="values in its bin"):
            parse_predicate(f"rent {operator} deposit", own)
    else:
        assert parse_predicate(f"rent {operator} deposit", own).mask().all() == (operator == "<=")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rent > to_year", "values in its bin"),
        ("rent > came", "no order with 'came'"),
        ("rent < rent", "are one column"),
        ("rent = deposit", "unexpected 'deposit'"),
    ],
)
def test_an_order_that_the_bins_do_not_tell_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_predicate(
            text,
            read_schema(tomllib.loads(ORDERED.replace("edges = [0, 10, 20]", "edges = [0, 2001.5, 3000]"))),
        )


def test_an_order_may_be_forbidden() -> None:
    text = (
        ORDERED
        + '[schema.constraints]\nforbidden = ["from_year > to_year"]\nviolations = { from_year = "missing" }\n'
    )
    own = read_schema(tomllib.loads(text))
    codes = own.encode(
        {
            "from_year": [2003, 2001],
            "to_year": [2002, 2001],
            "rent": [1.0, 2.0],
            "deposit": [30.0, 30.0],
            "came": ["2026-01-01"] * 2,
        }
    )
    assert codes[:, :2].tolist() == [[3, 1], [0, 0]]
