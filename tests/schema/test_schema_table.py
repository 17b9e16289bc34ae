"""Whole tables: frames in, frames out, and messages that never name a private value."""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
import traceback
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError, DataError, SchemaError
from dpstream.core.schema import Boolean, Categorical, Date, DateTime, Integer, Problem, Real, Schema
from dpstream.stream.release.manifest import descriptor

SCHEMA = Schema(
    [
        Categorical("zip", ["02139", "94102"], other="other", missing="missing"),
        Boolean("paid", missing="missing"),
        Integer("rooms", min=0, max=5, outside="clip", missing="missing"),
        Real("rent", [0, 500, 1000, 5000], missing="missing"),
        Date("filed", start="2024-01-01", end="2024-12-31", every="month", missing="missing"),
        DateTime("seen", edges=["2024-01-01", "2024-07-01", "2025-01-01"], missing="missing"),
    ]
)
ROWS = {
    "zip": ["02139", "94102", "10001", None],
    "paid": [True, False, None, True],
    "rooms": [0, 5, 9, None],
    "rent": [0.0, 499.99, 5000.0, None],
    "filed": [dt.date(2024, 1, 31), dt.date(2024, 2, 1), dt.date(2024, 12, 31), None],
    "seen": [dt.datetime(2024, 6, 30, 23, 59), dt.datetime(2024, 7, 1), dt.datetime(2025, 1, 1), None],
}
CODES = [[0, 1, 0, 0, 0, 0], [1, 0, 5, 0, 1, 1], [2, 2, 5, 2, 11, 1], [3, 1, 6, 3, 12, 2]]
TABLE = pa.table(ROWS)


def frames() -> dict[str, object]:
    import pandas as pd
    import polars as pl

    encoded = {
        n: TABLE[n].dictionary_encode() if n in ("zip", "rooms") else TABLE[n] for n in TABLE.column_names
    }
    dated = TABLE.cast(TABLE.schema.set(4, pa.field("filed", pa.timestamp("us"))))
    return {
        "arrow": TABLE,
        "record batch": TABLE.combine_chunks().to_batches()[0],
        "two chunks": pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
        "dictionaries": pa.table(encoded),
        "large text": TABLE.cast(TABLE.schema.set(0, pa.field("zip", pa.large_string()))),
        "views": TABLE.cast(TABLE.schema.set(0, pa.field("zip", pa.string_view()))),
        "dict of lists": ROWS,
        "dict of arrays": {n: np.array(v, dtype=object) for n, v in ROWS.items()},
        "dict of series": {n: pl.Series(v) for n, v in ROWS.items()},
        "pandas": pd.DataFrame(ROWS),
        "pandas, own index": pd.DataFrame(ROWS, index=[7, 3, 5, 1]),
        "pandas categories": pd.DataFrame(ROWS).astype({"zip": "category"}),
        "polars": pl.DataFrame(ROWS),
        "polars categories": pl.DataFrame(ROWS).with_columns(pl.col("zip").cast(pl.Categorical)),
        "only the Arrow capsule": SimpleNamespace(__arrow_c_stream__=TABLE.__arrow_c_stream__),
        # The older protocol, which knows no dates, only timestamps.
        "only the interchange protocol": SimpleNamespace(__dataframe__=dated.__dataframe__),
        "as text": pl.DataFrame(ROWS).with_columns(pl.all().exclude("paid").cast(pl.String)),
        "other order": TABLE.select(TABLE.column_names[::-1]),
    }


def test_frames_of_every_kind() -> None:
    for kind, frame in frames().items():
        codes = SCHEMA.encode(frame)
        assert codes.dtype == np.int32, kind
        assert codes.flags.f_contiguous, kind
        assert codes.tolist() == CODES, kind


def test_a_duckdb_relation() -> None:
    with duckdb.connect() as connection:
        relation = connection.sql(
            "select * from (values ('02139', true, 1::hugeint, 12.5::decimal(9, 2), date '2024-02-29',"
            " timestamp '2024-07-01 00:00:00')) t(zip, paid, rooms, rent, filed, seen)"
        )
        assert SCHEMA.encode(relation).tolist() == [[0, 1, 1, 0, 1, 1]]


def test_run_ends_and_slices_of_large_dictionaries() -> None:
    schema = Schema([Categorical("x", ["a", "b"])])
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", "b"]))
    assert schema.encode(pa.table({"x": runs})).tolist() == [[0], [0], [1]]
    # Values of the dictionary that no row of the slice uses are nobody's problem.
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3], pa.int8()), pa.array(["a", "b", "z", None]))
    assert schema.encode(pa.table({"x": words.slice(0, 2)})).tolist() == [[0], [1]]
    assert [p.kind for p in schema.problems(pa.table({"x": words}))] == ["null", "outside"]


def test_empty_tables() -> None:
    for data in ({name: [] for name in SCHEMA.names}, TABLE.slice(0, 0), TABLE.schema.empty_table()):
        assert SCHEMA.encode(data).shape == (0, 6)
    empty = SCHEMA.decode(np.empty((0, 6), dtype=np.int32), 0)
    assert empty.num_rows == 0
    assert empty.schema == SCHEMA.arrow_schema()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["value", "label"]), st.integers(0, 40))
def test_tables_survive_the_round_trip(seed: int, style, rows: int) -> None:
    generator = np.random.default_rng(seed)
    codes = np.column_stack([generator.integers(0, size, rows) for size in SCHEMA.domain.sizes])
    table = SCHEMA.decode(codes, seed, style)
    assert table.schema == SCHEMA.arrow_schema(style)
    assert table == SCHEMA.decode(codes, seed, style)
    assert SCHEMA.encode(table).tolist() == codes.tolist()


def test_decoded_types_are_those_of_the_source() -> None:
    types = [pa.string(), pa.bool_(), pa.int64(), pa.float64(), pa.date32(), pa.timestamp("us")]
    assert SCHEMA.decode(np.array(CODES), 1).schema.types == types
    assert Schema([Categorical("x", [3, 4])]).arrow_schema().types == [pa.int64()]
    assert Schema([Categorical("x", [3, 4], other="o")]).arrow_schema().types == [pa.string()]


SECRET = {
    "zip": ["hush-zip", None],
    "paid": ["hush-paid", "true"],
    "rooms": ["hush-rooms", "77.125"],
    "rent": ["hush-rent", "98765.25"],
    "filed": ["hush-filed", "1912-06-23"],
    "seen": ["hush-seen", "1954-06-07T08:09:10"],
    "kind": [dt.timedelta(seconds=4711), dt.timedelta(seconds=4712)],
}
HIDDEN = ["hush", "77.125", "98765", "1912", "1954", "4711"]
STRICT = Schema(
    [
        Categorical("zip", ["a"]),
        Boolean("paid"),
        Integer("rooms", min=0, max=5),
        Real("rent", [0, 1]),
        Date("filed", edges=["2024-01-01", "2024-01-02"]),
        DateTime("seen", edges=["2024-01-01", "2024-01-02"]),
        Categorical("kind", ["a"]),
    ]
)


def test_messages_name_columns_and_never_a_value() -> None:
    with pytest.raises(DataError) as caught:
        STRICT.encode(SECRET, where="step 2024-W07")
    text = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(vars(caught.value))
    message = str(caught.value)
    assert message.startswith("step 2024-W07: ")
    problems = STRICT.problems(SECRET)
    assert {problem.column for problem in problems} == set(STRICT.names)
    assert problems[0].sentence() in message
    assert f"{len(problems) - 1} more problem" in message
    # The test's own source lines name no value either.
    assert not [word for word in HIDDEN if word in text]
    assert "2 " not in caught.value.what
    found = STRICT.problems(SECRET)
    assert not any(problem.values for problem in found)
    assert {problem.kind for problem in found} == {"null", "outside", "unreadable", "type"}


def test_the_owner_may_see_the_values() -> None:
    with pytest.raises(DataError) as caught:
        STRICT.encode(SECRET, reveal=True)
    problems = STRICT.problems(SECRET, reveal=True)
    assert problems[0].sentence() in str(caught.value)
    shown = " ".join(problem.sentence() for problem in problems)
    assert all(f"'hush-{name}'" in shown for name in STRICT.names[:-1])
    many = Schema([Integer("x", min=0, max=1)]).problems({"x": [*range(2, 40), 5, 5]}, reveal=True)
    assert many == [
        Problem("x", "outside", many[0].what, many[0].allowed, (*(str(i) for i in range(2, 12)), "..."))
    ]
    assert many[0].sentence().endswith(": 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...")


@pytest.mark.parametrize(
    "data",
    [
        {"x": ["hush", 5]},
        {"x": [2**70]},
        {"x": object()},
        "pandas",
        {"x": [1], "y": [1, 2]},
        "hush",
        None,
    ],
)
def test_unreadable_frames_have_one_clear_error(data) -> None:
    import pandas as pd

    if isinstance(data, str) and data == "pandas":
        data = pd.DataFrame({"x": ["hush", 5]})
    with pytest.raises(DataError, match="allowed: a pyarrow Table") as caught:
        Schema([Categorical("x", ["a"])]).encode(data)
    assert "hush" not in "".join(traceback.format_exception(caught.value)).split("DataError")[-1]
    assert caught.value.__context__ is None


def test_columns_that_are_absent_unknown_or_double() -> None:
    schema = Schema([Boolean("a"), Boolean("b"), Boolean("c")], ignore=["note"])
    full = {"a": [1], "b": [0], "c": [1], "note": ["x"]}
    for encode in (schema.encode, schema.encode_blocks):
        with pytest.raises(
            SchemaError, match=r"batch: the data lack columns 'b', 'c' \(allowed: all of a, b, c\)"
        ):
            encode({"a": [1]})
        with pytest.raises(DataError, match="hold 1 undeclared column"):
            encode({**full, "d": [1]})
        with pytest.raises(DataError, match="a column name occurs twice"):
            encode(pa.table([[1], [1]], names=["a", "a"]))
    assert schema.encode(full).tolist() == schema.encode_blocks(full).whole().tolist() == [[1, 0, 1]]
    assert schema.encode({**full, "d": [1]}, extra="ignore").tolist() == [[1, 0, 1]]
    with pytest.raises(ConfigError, match="error, ignore"):
        schema.encode(full, extra="drop")  # type: ignore[arg-type]


def test_texts_that_mean_null() -> None:
    columns = [Categorical("x", ["NA", "a"], missing="m"), Integer("y", min=0, max=1, missing="m")]
    schema = Schema(columns, null_values=["", "NA"])
    # A declared value is a value, whatever else it may mean elsewhere.
    assert schema.encode({"x": ["NA", ""], "y": ["NA", "1"]}).tolist() == [[0, 2], [2, 1]]
    with pytest.raises(DataError, match="'y' holds values that are not whole numbers"):
        Schema(columns).encode({"x": ["NA", ""], "y": ["NA", "1"]})


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ([], {}, "columns are missing"),
        ([Boolean("a"), Boolean("a")], {}, "occurs twice"),
        ([Boolean("a")], {"ignore": ["a"]}, "declared and ignored"),
        (["a"], {}, "expected"),
        ([Boolean("a")], {"ignore": "note"}, "expected a list"),
    ],
)
def test_schemas_that_contradict_themselves(columns: Any, options: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        Schema(columns, **options)


@pytest.mark.parametrize("codes", [[[2]], [[-1]], [[0, 0]], [0], [[0.0]]])
def test_codes_that_do_not_fit(codes) -> None:
    with pytest.raises(DataError):
        Schema([Boolean("a")]).decode(codes, 0)


FINGERPRINT = "380a46f7e6f9f8e6eefaa57a4a27bd24e639e258f41a755b05103a7121c1f4c4"


def test_fingerprints_follow_the_declaration_only() -> None:
    base = Schema([Integer("a", edges=[0, 1, 2], missing="m"), Boolean("b")])
    assert base.fingerprint() == Schema(base.columns, confirmed=False).fingerprint()
    others = [
        Schema([Boolean("b"), Integer("a", edges=[0, 1, 2], missing="m")]),
        Schema([Integer("a", edges=[0, 1, 3], missing="m"), Boolean("b")]),
        Schema([Integer("a", edges=[0, 1, 2], missing="n"), Boolean("b")]),
        Schema([Real("a", [0, 1, 2], missing="m"), Boolean("b")]),
        Schema(base.columns, ignore=["c"]),
    ]
    assert len({base.fingerprint(), *(other.fingerprint() for other in others)}) == 6
    # Recorded once: a change would make every stored stream refuse its own schema.
    assert Schema([Boolean("b")]).fingerprint() == FINGERPRINT


#: Of the table schema: type -> the constraints that it may have.
ANY = {"required", "unique", "enum"}
TYPES = {
    "string": ANY | {"minLength", "maxLength", "pattern"},
    "boolean": ANY,
    **dict.fromkeys(("integer", "number", "date", "datetime"), ANY | {"minimum", "maximum"}),
}


def check_package(package: dict[str, Any]) -> None:
    """The rules of the profiles ``tabular-data-package`` and ``tabular-data-resource``, and of a table schema."""
    assert package["profile"] == "tabular-data-package"
    assert re.fullmatch(r"[-a-z0-9._/]+", package["name"])
    assert isinstance(package["title"], str)
    (resource,) = package["resources"]
    assert resource["profile"] == "tabular-data-resource"
    assert re.fullmatch(r"[-a-z0-9._/]+", resource["name"])
    assert not resource["path"].startswith(("/", "~"))
    assert ".." not in resource["path"]
    assert all(isinstance(text, str) for text in resource["schema"]["missingValues"])
    names = [field["name"] for field in resource["schema"]["fields"]]
    assert len(names) == len(set(names)) > 0
    for field in resource["schema"]["fields"]:
        rules = field["constraints"]
        assert set(rules) <= TYPES[field["type"]], field["name"]
        assert isinstance(rules.get("required", False), bool)
        kinds = {"integer": int, "number": (int, float)}.get(field["type"], (str, bool))
        values = [rules[key] for key in ("minimum", "maximum") if key in rules] + rules.get("enum", [])
        assert all(isinstance(value, kinds) for value in values if value is not None), field["name"]


@pytest.mark.parametrize("name", ["Eviction notices 2024", 'A "Shop" of / ü', "---"])
def test_the_codebook_is_a_data_package(name: str) -> None:
    """Of Frictionless (specs.frictionlessdata.io), whatever the columns are."""
    odd = [
        Categorical("zip 'code\"", ["07001", "é"], missing="none", other="other"),
        Categorical("n", [1, 2]),
    ]
    for schema in (SCHEMA, Schema([*odd, Integer("age", min=0, max=9, missing="none"), Boolean("paid")])):
        book = descriptor(schema, name, "step-000017/table.parquet")
        check_package(json.loads(json.dumps(book, allow_nan=False)))
    package = descriptor(SCHEMA)
    package["resources"][0]["schema"]["fields"][3]["type"] = "real"
    with pytest.raises(KeyError):
        check_package(package)


def test_the_codebook_says_what_the_schema_does() -> None:
    book = descriptor(SCHEMA, "Eviction notices 2024", "step-000017/table.parquet")
    assert book["name"] == "eviction-notices-2024"
    resource = book["resources"][0]
    assert (resource["path"], resource["schema"]["missingValues"]) == ("step-000017/table.parquet", [""])
    fields = {field["name"]: field for field in resource["schema"]["fields"]}
    types = ["string", "boolean", "integer", "number", "date", "datetime"]
    assert [field["type"] for field in fields.values()] == types
    assert fields["zip"]["constraints"] == {"enum": ["02139", "94102", "other"], "required": False}
    assert fields["rent"]["constraints"] == {"minimum": 0.0, "maximum": 5000.0, "required": False}
    assert fields["filed"]["constraints"]["maximum"] == "2024-12-31"
    assert fields["rent"]["dpstream"]["edges"] == [0, 500, 1000, 5000]
    for column in SCHEMA.columns:
        assert [code["label"] for code in fields[column.name]["dpstream"]["codes"]] == list(column.labels())


def test_importing_the_schema_stays_light() -> None:
    code = (
        "import sys, dpstream.core.schema; print(sorted({'pyarrow', 'pandas', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
