"""Drafts: every line that was read off the data is marked, and the draft encodes what it was drafted from."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_files import write_rows

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.schema import Boolean, Categorical, Integer
from dpstream.io.sources.formats import read_sample
from dpstream.project.column_draft import coordinates, followers, guess_column, nice_edges
from dpstream.project.config_draft import draft_config
from dpstream.project.drafted_tables import periods_of
from dpstream.project.keys import section_of
from dpstream.project.schema_file import read_schema

GOLDEN = Path(__file__).with_name("golden_draft.toml")
#: Drafts with what the data hold, as for an owner who calls all columns public.
text_of = partial(draft_config, public="*")


def example() -> dict[str, list[object]]:
    """A small table with a column of every kind, made without any generator."""
    day = dt.date(2024, 1, 1)
    return {
        "file_date": [day + dt.timedelta(days=i) for i in range(240)],
        "zip": [["02139", "94102", "941", None][i % 4] for i in range(240)],
        "paid": [i % 3 == 0 for i in range(240)],
        "rooms": [i % 7 if i % 50 else None for i in range(240)],
        "income": [(i * i) % 97 * 100 for i in range(240)],
        "rent": [((i * 37) % 240) * 12.5 + 0.25 for i in range(240)],
        "lat": [40.5 + ((i * 53) % 240) / 600 for i in range(240)],
        "born": [day - dt.timedelta(days=(i * 97) % 20_000) for i in range(240)],
        "seen at": [dt.datetime(2024, 5, 1, i % 24, 30) + dt.timedelta(days=i % 9) for i in range(240)],
        "id": [10_000 + i for i in range(240)],
        "note": [f"private words {i}" for i in range(240)],
        "empty": [None] * 240,
    }


def test_the_draft_is_the_golden_file() -> None:
    text = draft_config(pa.table(example()), "file_date", name="evictions", path="data/*.parquet")
    assert text == GOLDEN.read_text(encoding="utf-8")


def secret(kind: str, n: int) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Tables whose columns have the same names and kinds: those of 0 and 1 share no value, length or bound."""
    many, day, draw = [1200, 2000][n], dt.date(1987 + 30 * n, 3, 17), np.random.default_rng(n)
    codes, days = draw.integers(0, 4 + 80 * n, many).tolist(), [day + dt.timedelta(i) for i in range(many)]
    rows: dict[str, list[Any]] = {
        "zip": [f"{7351 + 880 * n + code}x" for code in codes],
        "kind": draw.choice([["kind-a", "kind-b"], ["other", "missing"]][n], many).tolist(),
        "note": [f"{n} words {i}" for i in range(many)],
        "rooms": (713 * n + draw.integers(0, 7 + n, many)).tolist(),
        "cost": (913 * n + draw.integers(0, 97, many) * (100 + 17 * n)).tolist(),
        "text": [str(4000 * n + one) if i else "?!"[n] for i, one in enumerate(draw.permutation(many) // 20)],
        "lat": ([40.5, -11.25][n] + draw.random(many)).tolist(),
        "seen": [dt.datetime(1990 + 9 * n, 5, 1) + dt.timedelta(hours=7 * code) for code in codes],
        "born": [day - dt.timedelta(days=(900 - 800 * n) * code) for code in codes],
    }
    keys, dated = [4711 + 90_000 * n + i for i in range(many)], {"day": days}
    kinds: dict[str, tuple[dict[str, list[Any]], dict[str, Any]]] = {
        "events": (rows | dated, {"time_column": "day"}),
        "numbers": (rows | {"step": [1 + 95 * n + i // 9 for i in range(many)]}, {"time_column": "step"}),
        "persons": (rows | dated | {"who": [key // 3 for key in keys]}, {"person_column": "who"}),
        "panel": ({"id": keys} | {f"m{i}": rows["zip"] for i in range(1, 4)}, {"person_column": "id"}),
        "points": ({"lat": rows["lat"], "cost": rows["cost"]} | dated, {"mechanism": "points"}),
        "feed": (rows | {"id": [key // 2 for key in keys], "op": ["c", "d"] * (many // 2), "at": days}, {}),
        "stays": (rows | {"id": keys, "start": days, "end": [None, *days[1:]]}, {}),
    }
    made, how = kinds[kind]
    return made, ({"time_column": "day"} if kind in ("persons", "points") else {}) | how


@pytest.mark.parametrize("kind", ["events", "numbers", "persons", "panel", "points", "feed", "stays"])
def test_a_draft_depends_on_no_value(kind: str) -> None:
    """Whatever a private table holds: no value, bound or length is in the draft. What public columns hold is marked."""
    tables = [secret(kind, n) for n in (0, 1)]
    drafts = [draft_config(pa.table(rows), path="p", **how) for rows, how in tables]
    assert tomllib.loads(drafts[0]) == tomllib.loads(drafts[1])
    said = [{line for line in text.splitlines() if "seems to follow from" not in line} for text in drafts]
    assert said[0] == said[1], "comments only name columns"
    public = [text_of(pa.table(rows), path="p", **how) for rows, how in tables]
    assert tomllib.loads(public[0]) != tomllib.loads(public[1])
    marked = [
        {line for line in text.splitlines() if not re.search(r'# CONFIRM|= "\(', line)} for text in public
    ]
    assert marked[0] == marked[1]


def test_edges_are_shown_to_the_owner_alone_and_numbers_beyond_them_are_clipped() -> None:
    """One number in a hundred lies far away: no bin reaches there, and the screen says what the draft does not."""
    rows = {"day": DAYS * 100, "delay": [*range(-50, 5_920), *[10**6] * 30], "zip": ["a", "b"] * 3000}
    said = list[str]()
    text = draft_config(pa.table(rows), "day", name="n", path="p", tell=said.append)
    (shown,) = tomllib.loads(said[0].removeprefix("delay: ")).values()
    assert shown == drafted(rows, "day")["schema"]["columns"]["delay"]["edges"], "a public column has them"
    assert said[0] not in text
    assert said[1].endswith('keep edges_from = "data"')
    assert (shown[0], shown[-1]) == (0, 5900)
    assert len([edge for edge in shown if 5000 < edge < 5900]) == 2, "90 and 95 %"
    found = tomllib.loads(text)["schema"]
    assert found["edges_from"] == "data"
    assert found["columns"]["delay"] == {
        "type": "integer",
        "edges": "FILL IN",
        "outside": "clip",
        "missing": "missing",
    }


def test_a_word_that_stands_for_a_bin_is_that_bin() -> None:
    """The labels of the bins mean them in the data, so that they are no values besides."""
    words = pa.chunked_array([["94102", "missing", "other", "94103"] * 9])
    column = guess_column("zip", words).column
    assert column == Categorical("zip", ["94102", "94103"], other="other", missing="missing")
    only = guess_column("x", pa.chunked_array([["missing", "other"]])).column
    assert only == Categorical("x", ["missing", "other"], other="(other)", missing="(missing)")


@pytest.mark.parametrize("values", [[0, 1, 1], ["0", "1", "1"], [0.0, 1.0, None], ["0", None, "0"]])
def test_zero_and_one_are_a_boolean(values: list[object]) -> None:
    column = guess_column("x", pa.chunked_array([pa.array(values)])).column
    assert column == Boolean("x", other="other", missing="missing")
    assert guess_column("x", pa.chunked_array([pa.array([0, 1, 2])])).column == Integer(
        "x", 0, 2, other="other", missing="missing"
    )


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".ndjson"])
def test_files_of_every_kind_give_the_same_draft(tmp_path: Path, ending: str) -> None:
    table = pa.table({k: v for k, v in example().items() if k not in ("seen at", "empty", "born")})
    path = write_rows(tmp_path / f"data{ending}", table.to_pylist(), table.column_names)
    schema = read_schema(tomllib.loads(text_of(path, "file_date")))
    typed = read_schema(tomllib.loads(text_of(table, "file_date")))
    assert schema == typed
    rows = read_sample(path, 10**6).drop_columns(["file_date"])
    codes = schema.encode(rows)
    assert codes.tolist() == typed.encode(table.drop_columns(["file_date"])).tolist()
    # A folder and a pattern name the same file.
    for source in (tmp_path, tmp_path / "*.*"):
        assert read_sample(source, 7).num_rows == 7
        assert read_schema(tomllib.loads(text_of(source, "file_date"))) == schema


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.lists(st.none() | st.floats(-1e300, 1e300), min_size=1, max_size=30),
        st.lists(st.none() | st.integers(-(2**60), 2**60), min_size=1, max_size=30),
        st.lists(st.none() | st.booleans(), min_size=1),
        st.lists(st.none() | st.text(max_size=4), min_size=1, max_size=30),
        st.lists(st.none() | st.dates(), min_size=1, max_size=30),
        st.lists(st.none() | st.datetimes(), min_size=1, max_size=30),
        st.lists(st.none() | st.integers(-999, 999).map(str), min_size=1, max_size=30),
        st.lists(st.none() | st.dates().map(str), min_size=1, max_size=30),
    )
)
def test_a_draft_encodes_what_it_was_drafted_from(values) -> None:
    guess = guess_column("x", pa.chunked_array([pa.array(values)]))
    if guess.column is None:
        assert guess.reason
        return
    schema = read_schema(tomllib.loads(text_of({"x": values})))
    assert schema.columns == (guess.column,)
    assert schema.problems({"x": values}) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=50), st.sampled_from([-300, 0]))
def test_nice_edges_hold_every_value(values: list[float], finest: int) -> None:
    edges = nice_edges(np.array(values), finest)
    assert (np.diff(edges) > 0).all()
    assert edges[0] <= min(values)
    assert max(values) <= edges[-1]
    assert len(edges) <= 12


def test_drafts_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"unknown column 'when' \(allowed: one of the 1 column of the data\)"
    ):
        text_of({"x": [1]}, "when")
    with pytest.raises(ConfigError, match="no data file"):
        text_of(tmp_path / "absent.csv")
    for name, content, words in (
        ("a.xls", b"x", "unknown file ending"),
        ("b.csv", b"x,y\n1,2\nhush,3,4\n", r"b\.csv: a line has other columns"),
        ("c.parquet", b"PAR1 half a file", r"c\.parquet: the file cannot be read"),
        ("d.csv", b"", r"d\.csv: empty file"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError if name == "a.xls" else DataError, match=words) as caught:
            text_of(tmp_path / name)
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\nnull\n{"a": 2}\n', "expected JSON objects"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "expected JSON objects"),
        (b'{"a": 1}\xff\n', "expected UTF-8, found"),
        (b"\n\n", "empty file"),
        (b"{}\n", "empty file"),
    ],
    ids=range(5),
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_line_that_ended_arrows_reader_is_told(
    tmp_path: Path, content: bytes, message: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / ("a.ndjson" if pack is bytes else "a.ndjson.gz")
    path.write_bytes(pack(content))
    with pytest.raises(DataError, match=message) as caught:
        text_of(path)
    assert "[[" not in str(caught.value)
    path.write_bytes(path.read_bytes()[:-9])
    if pack is not bytes:
        with pytest.raises(DataError, match=r"cannot be read|expected JSON objects"):
            text_of(path)


def test_records_of_several_kinds_make_a_draft(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [
        '{"a": 1, "b": [1]}',
        '{"a": "x", "c": "\\ud800"}',
        "",
        '{"a": 1.5, "d": true}',
        '{"a": 1' + "0" * 5000 + "}",
    ]
    path.write_text("\n".join(lines))
    text = text_of(path)
    assert 'values = ["1", "1.5", "Infinity", "x"]' in text
    assert "of type list" in text
    assert 'type = "boolean"' in text


# What is recognised


DAYS = [dt.date(2026, 1, 5) + dt.timedelta(days=n // 10) for n in range(60)]


def drafted(rows: dict[str, list[Any]], time_column: str | None = None, **said: Any) -> dict[str, Any]:
    return tomllib.loads(text_of(pa.table(rows), time_column, name="n", path="p", **said))


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["insert", "delete"], None),
        (["I", "D"], {"insert": ["I"], "delete": ["D"]}),
        (["c", "d", "r"], {"insert": ["c", "r"], "delete": ["d"]}),
        (["INSERT", "DELETE"], {"insert": ["INSERT"], "delete": ["DELETE"]}),
        # Nothing has left yet, and the column's name says what it is.
        (["insert"], None),
        (["c"], {"insert": ["c"], "delete": ["d"]}),
    ],
)
def test_operations_are_no_attribute(words: list[str], values: dict[str, list[str]] | None) -> None:
    rows = {"day": DAYS, "__op": [words[n % len(words)] for n in range(60)], "zip": ["a", "b"] * 30}
    found = drafted(rows, "day")
    assert found["source"]["op_column"] == "__op"
    assert found["source"].get("op_values") == values
    assert set(found["schema"]["columns"]) == {"zip"}


def test_updates_without_the_old_row_are_no_attribute_either_and_a_flag_is_no_column_of_operations() -> None:
    rows: dict[str, list[Any]] = {"day": DAYS, "op": ["I", "U", "D"] * 20, "zip": ["a", "b"] * 30}
    text = text_of(pa.table(rows), "day", name="n", path="p")
    assert 'op_column = "op"  # FILL IN: rows with U lack the old row' in text
    assert "op" not in tomllib.loads(text)["schema"]["columns"]
    flags = {"day": DAYS, "kind": ["i"] * 60, "grade": ["a", "b", "d"] * 20}
    assert set(drafted(flags, "day")["schema"]["columns"]) == {"kind", "grade"}


def test_words_of_a_known_feed_are_all_declared_though_the_sample_lacks_some() -> None:
    rows = {"id": [1, 2, 1], "op": ["c", "c", "d"], "at": DAYS[:3], "zip": ["a", "b", "a"]}
    found = drafted(rows, "at")["source"]
    assert found["op_values"] == {"insert": ["c", "r"], "update": ["u"], "delete": ["d"]}
    assert drafted(rows | {"op": ["I", "I", "D"]}, "at")["source"]["op_values"]["update"] == ["U"]
    mixed = drafted(rows | {"op": ["create", "create", "remove"]}, "at")["source"]["op_values"]
    assert mixed == {"insert": ["create"], "delete": ["remove"]}


@pytest.mark.parametrize("inside", [None, "payload"])
def test_envelopes_are_told_how_to_become_rows(tmp_path: Path, inside: str | None) -> None:
    row: dict[str, Any] = {"before": None, "after": {"id": 1, "zip": "a"}, "op": "c", "ts_ms": 1}
    row = row if inside is None else {"schema": {}, inside: row}
    (tmp_path / "feed.ndjson").write_text(json.dumps(row) + "\n")
    with pytest.raises(ConfigError, match=r"envelopes of a change feed.*jq -c") as caught:
        text_of(tmp_path / "feed.ndjson")
    if shutil.which("jq") is None:
        return
    command = (
        str(caught.value).partition("this makes them: ")[2].removesuffix(")").replace("FILE", "feed.ndjson")
    )
    subprocess.run(command, shell=True, cwd=tmp_path, check=True, timeout=60)
    made = json.loads((tmp_path / "changes.ndjson").read_text())
    assert made == {"id": 1, "zip": "a", "op": "c", "at": "1970-01-01T00:00:00Z"}


def test_a_pair_of_dates_is_a_stay_and_the_owner_may_name_it() -> None:
    starts = [dt.date(2026, 1, 5) + dt.timedelta(days=n) for n in range(40)]
    rows = {
        "id": list(range(40)),
        "start": starts,
        "seen": [None if n % 3 else day for n, day in enumerate(starts)],
        "end": [None if n % 2 else day + dt.timedelta(days=9) for n, day in enumerate(starts)],
        "zip": ["a", "b"] * 20,
    }
    found = drafted(rows)["source"]
    assert (found["shape"], found["time_column"], found["delete_time_column"]) == ("stays", "start", "end")
    named = drafted(rows, delete_time_column="seen")["source"]
    assert named["delete_time_column"] == "seen"
    with pytest.raises(ConfigError, match="no stays fit the ends in 'zip'"):
        drafted(rows, delete_time_column="zip")
    with pytest.raises(ConfigError, match="unknown column 'gone'"):
        drafted(rows, delete_time_column="gone")
    with pytest.raises(ConfigError, match="are for tables that change"):
        drafted(rows, delete_time_column="end", mechanism="pooled")


@pytest.mark.parametrize(
    ("columns", "template", "variable"),
    [
        (["2005-04", "2005-05", "2005-10"], None, "value"),
        (["200511", "200512", "200601"], None, "value"),
        (["status_2005Q3", "status_2005Q4", "status_2006Q1"], None, "status"),
        (["2000", "2001", "2002"], None, "value"),
        (["PAY_0", "PAY_2", "PAY_3"], None, "PAY"),
        (["m1", "m2", "m3"], "m{period}", "m"),
        (["poor_08", "poor_09", "poor_10"], None, "poor"),
        (["poor_01", "poor_02", "poor_03"], "poor_{period:02}", "poor"),
    ],
)
def test_periods_may_be_called_after_dates_or_numbered_oddly(
    columns: list[str], template: str | None, variable: str
) -> None:
    shuffled = [columns[2], "who", *columns[:2]]
    table = pa.table({name: [1, 0, 1] if name != "who" else ["a", "b", "c"] for name in shuffled})
    found = periods_of(table, "who")
    assert found.columns == tuple(columns)
    assert found.template == (tuple(columns) if template is None else template)
    assert found.variable == variable
    assert found.values(table).to_pylist() == [1, 0, 1] * 3


def test_a_table_of_dated_columns_is_a_panel_without_anybody_saying_so() -> None:
    rows = {"client": ["x", "y", "z"], "2005-04": [0, 1, 0], "2005-05": [1, 1, 0], "2005-06": [0, 0, 0]}
    found = drafted(rows)
    assert found["stream"]["unit"] == "individual"
    assert found["source"]["user_column"] == "client"
    assert found["source"]["period_columns"] == ["2005-04", "2005-05", "2005-06"]
    assert found["schema"]["columns"] == {"value": {"type": "boolean"}}
    assert found["budget"]["horizon"] == 3
    # Not where another column says something, or no column names a row.
    assert "user_column" not in drafted(rows | {"zip": ["a", "b", "c"]})["source"]
    assert "user_column" not in drafted(rows | {"client": ["x", "x", "z"]})["source"]


def test_coordinates_are_suggested_and_not_taken() -> None:
    rows = {
        "day": DAYS,
        "lat": [40.5 + n / 300 for n in range(60)],
        "lon": [-74 + n / 300 for n in range(60)],
    }
    text = " ".join(text_of(pa.table(rows), "day", name="n", path="p").replace("\n#", "").split())
    assert "suggested: --mechanism points, because 'lat' and 'lon' look like coordinates" in text
    assert 'total = "private"' in text, "only the owner may declare numbers of records public"
    points = drafted(rows, "day", mechanism="points")
    assert set(points["schema"]["columns"]["lat"]) == {"type", "edges"}, "points take no bins for strangers"
    assert coordinates(pa.table(rows | {"lat": [100.5] * 60}), ["lat", "lon"]) is None
    assert coordinates(pa.table({"late": [0.5], "long": [0.5]}), ["late", "long"]) is None


def test_points_are_asked_for_their_bounds_alone() -> None:
    """Where most of the private coordinates lie is nothing that they need, so none of it is drafted."""
    draw = np.random.default_rng(1)
    rows = {
        "day": DAYS,
        "lat": (40.5 + draw.random(60) ** 3 / 2).tolist(),
        "price": (draw.integers(1, 40, 60) * 997).tolist(),
    }
    text = text_of(pa.table(rows), "day", name="n", path="p", mechanism="points")
    columns = tomllib.loads(text)["schema"]["columns"]
    for name in ("lat", "price"):
        low, high = columns[name]["edges"]
        assert low <= min(rows[name]) < max(rows[name]) <= high, name
    assert text.count("]  # CONFIRM") == 2
    assert "Edges between them" in text
    assert "is proposed because" not in text, "it was chosen"
    tables = drafted(rows, "day", mechanism="pooled")["schema"]["columns"]
    assert len(tables["lat"]["edges"]) > 5, "tables have bins"


def test_what_a_draft_offers_as_comments_is_read_once_the_marks_are_gone(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    zips = draw.integers(0, 12, 2000)
    rows = {
        "day": [DAYS[n % 60] for n in range(2000)],
        "zip": [f"941{n:02}" for n in zips],
        "district": [f"D{n // 2}" for n in zips],
        "side": [f"S{n // 6}" for n in zips],
        "fare": draw.random(2000).tolist(),
        "note": [f"n{n}" for n in range(2000)],
    }
    columns = [name for name in rows if name not in ("day", "note")]
    follow = {("zip", "district"), ("zip", "side")}
    with_rare = pa.table({**rows, "rare": [n == 0 for n in range(2000)]})
    assert set(followers(with_rare, [*columns, "rare"])) == follow
    # One row in ten that breaks the rule, and there is none.
    broken = [word if n % 10 else "D0" for n, word in enumerate(rows["district"])]
    assert followers(pa.table({**rows, "district": broken}), ["zip", "district"]) == []
    text = text_of(pa.table(rows), "day", name="n", path="p")
    assert '# district = { from = "zip", file = "zip-district.csv" }' in text
    assert "constraints" not in tomllib.loads(text)["schema"], "a comment: the list must be a public file"
    offered = re.compile(r'^# (?=\[[\w."]+\]$|[\w"]+ = )', re.MULTILINE)
    lines = offered.sub("", text).replace("= ...", '= "..."').replace('["...", "..."]', '["n0"]').splitlines()
    # `outside` is offered in the place of `other`, and a column that is used is ignored no longer.
    lines = [line for line in lines if not line.startswith(("outside =", "ignore =", 'values = "discover"'))]
    read = tomllib.loads("\n".join(lines))
    assert set(read["schema"]["constraints"]["derived"]) == {"district", "side"}
    assert {"expect", "mechanism"} <= set(read)
    for name, table in read.items():
        if name not in ("format", "schema"):
            section_of("d.toml", name, table, mechanism=read["mechanism"]["name"])
    for part, spec in read["schema"]["constraints"]["derived"].items():
        pairs = sorted(set(zip(rows[spec["from"]], rows[part], strict=True)))
        named = read["schema"]["columns"][spec["from"]]
        pairs += [(named[one], read["schema"]["columns"][part][one]) for one in ("other", "missing")]
        words = [f"{spec['from']},{part}", *(",".join(pair) for pair in pairs)]
        (tmp_path / spec["file"]).write_text("\n".join(words) + "\n")
    schema = read_schema(read["schema"], base=tmp_path)
    assert schema.constraints is not None
    assert {one.column.name for one in schema.constraints.derived} == {"district", "side"}


@pytest.mark.parametrize("name", ["person_id", "code"])
def test_values_that_come_again_over_time_are_asked_about(name: str) -> None:
    """721 persons with 15 records each: who follows the draft promises it to a person, and not to a record."""
    days = [dt.date(2020 + month // 12, month % 12 + 1, 10) for month in range(15) for _ in range(721)]
    rows = {"day": days, name: [*range(1000, 1721)] * 15, "region": ["a", "b", "c"] * 3605}
    text = text_of(pa.table(rows), "day", name="n", path="p")
    assert "nothing looks like" not in text
    assert f'user_column = "{name}"  # CONFIRM: its values repeat' in text
    found = tomllib.loads(text)
    assert (found["stream"]["unit"], found["stream"]["max_events"]) == ("user", "FILL IN")
    assert set(found["schema"]["columns"]) == {"region"}
    # Columns of few values, and of numbers that are equal by chance, say nothing of persons.
    rows[name] = [n * 7919 % 700 for n in range(len(days))]
    rows |= {"user_type": ["new", "old", "gone"] * 3605, "day": [days[0]] * 5000 + days[5000:]}
    if name == "code":
        assert drafted(rows, "day")["stream"]["unit"] == "event"


def test_a_panel_is_drafted_only_where_all_columns_fit_together() -> None:
    days = [dt.date(2020, month, 10) for month in range(1, 7) for _ in range(50)]
    rows: dict[str, list[Any]] = {"day": days, "id": [*range(50)] * 6, "poor": [True, False] * 150}
    found = drafted(rows, "day", person_column="id")
    assert (found["mechanism"]["name"], found["stream"]["unit"]) == ("panel-window", "individual")
    rows |= {"age": [n % 73 for n in range(300)], "state": ["u", "v", "w"] * 100}
    text = text_of(pa.table(rows), "day", person_column="id", name="n", path="p")
    found = tomllib.loads(text)
    assert (found["mechanism"]["name"], found["stream"]["unit"]) == ("pooled", "user")
    assert found["source"]["user_column"] == "id"
    assert "fewer columns would make a panel" in " ".join(text.replace("\n#", "").split())


@pytest.mark.parametrize(
    ("first", "offsets"),
    [
        ("2026-01-05", None),
        ("2026-01-05 12:00:00", None),
        ("2026-01-05T12:00:00Z", True),
        ("2026-01-05 12:00+0100", True),
    ],
)
def test_the_form_of_times_is_drafted(first: str, offsets: bool | None) -> None:
    rows = {"at": [first] * 20, "zip": ["a", "b"] * 10}
    assert drafted(rows, "at")["source"].get("offsets") == offsets
    moment = dt.datetime(2026, 1, 5, tzinfo=dt.UTC if offsets else None)
    assert drafted({**rows, "at": [moment] * 20}, "at")["source"].get("offsets") == offsets


@pytest.mark.parametrize("words", [["unknown"], ["n/a", "?", "-"], ["a", "b", "c", "d"]])
def test_a_few_words_among_numbers_are_other_values(words: list[str]) -> None:
    """Four words are no accident; nor is a word in every second row."""
    rows = [str(n % 60) for n in range(400)] + words * 5
    column = guess_column("age", pa.chunked_array([rows])).column
    assert isinstance(column, Integer if len(words) < 4 else Categorical)
    often = pa.chunked_array([rows + words * 200])
    assert isinstance(guess_column("age", often).column, Categorical)


def test_a_time_column_without_times_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="'day' holds neither days nor step numbers"):
        draft_config(pa.table({"day": ["31.12.2025"] * 9, "x": [1] * 9}), "day", name="n", path="p")
