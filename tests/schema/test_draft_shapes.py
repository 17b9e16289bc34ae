"""What `dpstream init` recognises: operations, stays, panels, coordinates, and columns that follow from each other."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpstream.core.errors import ConfigError
from dpstream.project.column_draft import coordinates, followers, is_nearly_unique
from dpstream.project.config_draft import draft_config
from dpstream.project.drafted_tables import periods_of
from dpstream.project.keys import section_of
from dpstream.project.schema_file import read_schema

DAYS = [dt.date(2026, 1, 5) + dt.timedelta(days=n // 10) for n in range(60)]


def drafted(rows: dict[str, list[Any]], time_column: str | None = None, **said: Any) -> dict[str, Any]:
    return tomllib.loads(draft_config(pa.table(rows), time_column, name="n", path="p", **said))


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


def test_updates_without_the_old_row_are_no_attribute_either() -> None:
    rows = {"day": DAYS, "op": ["I", "U", "D"] * 20, "zip": ["a", "b"] * 30}
    text = draft_config(pa.table(rows), "day", name="n", path="p")
    assert 'op_column = "op"  # FILL IN: rows with U lack the old row' in text
    assert "op" not in tomllib.loads(text)["schema"]["columns"]


def test_words_of_a_known_feed_are_all_declared_though_the_sample_lacks_some() -> None:
    rows = {"id": [1, 2, 1], "op": ["c", "c", "d"], "at": DAYS[:3], "zip": ["a", "b", "a"]}
    found = drafted(rows, "at")["source"]
    assert found["op_values"] == {"insert": ["c", "r"], "update": ["u"], "delete": ["d"]}
    assert drafted(rows | {"op": ["I", "I", "D"]}, "at")["source"]["op_values"]["update"] == ["U"]
    mixed = drafted(rows | {"op": ["create", "create", "remove"]}, "at")["source"]["op_values"]
    assert mixed == {"insert": ["create"], "delete": ["remove"]}


def test_a_flag_is_no_column_of_operations() -> None:
    rows = {"day": DAYS, "kind": ["i"] * 60, "grade": ["a", "b", "d"] * 20}
    assert set(drafted(rows, "day")["schema"]["columns"]) == {"kind", "grade"}


@pytest.mark.parametrize("inside", [None, "payload"])
def test_envelopes_are_told_how_to_become_rows(tmp_path: Path, inside: str | None) -> None:
    row: dict[str, Any] = {"before": None, "after": {"id": 1, "zip": "a"}, "op": "c", "ts_ms": 1}
    row = row if inside is None else {"schema": {}, inside: row}
    (tmp_path / "feed.ndjson").write_text(json.dumps(row) + "\n")
    with pytest.raises(ConfigError, match=r"envelopes of a change feed.*jq -c") as caught:
        draft_config(tmp_path / "feed.ndjson")
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
    text = " ".join(draft_config(pa.table(rows), "day", name="n", path="p").replace("\n#", "").split())
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
    text = draft_config(pa.table(rows), "day", name="n", path="p", mechanism="points")
    columns = tomllib.loads(text)["schema"]["columns"]
    for name in ("lat", "price"):
        low, high = columns[name]["edges"]
        assert low <= min(rows[name]) < max(rows[name]) <= high, name
    assert text.count("]  # CONFIRM") == 2
    assert "Edges between them" in text
    tables = drafted(rows, "day", mechanism="pooled")["schema"]["columns"]
    assert len(tables["lat"]["edges"]) > 5, "tables have bins"


def test_columns_that_follow_from_each_other_are_named_and_no_row_is_copied() -> None:
    draw = np.random.default_rng(3)
    zips = draw.integers(0, 12, 2000)
    rows = {
        "zip": [f"941{n:02}" for n in zips],
        "district": [f"D{n // 4}" for n in zips],
        "paid": draw.integers(0, 2, 2000).tolist(),
        "rare": [int(n == 0) for n in range(2000)],
    }
    assert followers(pa.table(rows), list(rows)) == [("zip", "district")]
    text = draft_config(pa.table(rows), name="n", path="p")
    line = '# district = { from = "zip", file = "zip-district.csv" }'
    assert line in text
    assert "constraints" not in tomllib.loads(text)["schema"], "a comment: the list must be a public file"
    # One row in ten that breaks the rule, and there is none.
    broken = [word if n % 10 else "D0" for n, word in enumerate(rows["district"])]
    assert followers(pa.table(rows | {"district": broken}), list(rows)) == []


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
    text = draft_config(pa.table(rows), "day", name="n", path="p")
    offered = re.compile(r'^# (?=\[[\w."]+\]$|[\w"]+ = )', re.MULTILINE)
    lines = offered.sub("", text).replace("= ...", '= "..."').replace('["...", "..."]', '["n0"]').splitlines()
    # `outside` is offered in the place of `other`, and a column that is used is ignored no longer.
    lines = [line for line in lines if not line.startswith(("outside =", "ignore ="))]
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


def test_identifiers_are_nearly_unique() -> None:
    assert is_nearly_unique(pa.chunked_array([[*range(195), *range(5)]]))
    assert not is_nearly_unique(pa.chunked_array([list(range(100)) * 2]))
    assert not is_nearly_unique(pa.chunked_array([list(range(50))])), "too few to tell"


def test_the_proposed_mechanism_has_a_reason_and_a_chosen_one_has_none() -> None:
    rows = {"day": DAYS, "zip": ["a", "b"] * 30}
    text = draft_config(pa.table(rows), "day", name="n", path="p")
    assert "# pooled is proposed because nothing looks like a key" in text
    text = draft_config(pa.table(rows), "day", name="n", path="p", mechanism="pooled")
    assert "is proposed because" not in text


@pytest.mark.parametrize("name", ["person_id", "code"])
def test_values_that_come_again_over_time_are_asked_about(name: str) -> None:
    """721 persons with 15 records each: who follows the draft promises it to a person, and not to a record."""
    days = [dt.date(2020 + month // 12, month % 12 + 1, 10) for month in range(15) for _ in range(721)]
    rows = {"day": days, name: [*range(1000, 1721)] * 15, "region": ["a", "b", "c"] * 3605}
    text = draft_config(pa.table(rows), "day", name="n", path="p")
    assert "nothing looks like" not in text
    assert f'user_column = "{name}"  # CONFIRM: its values come again and again' in text
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
    text = draft_config(pa.table(rows), "day", person_column="id", name="n", path="p")
    found = tomllib.loads(text)
    assert (found["mechanism"]["name"], found["stream"]["unit"]) == ("pooled", "user")
    assert found["source"]["user_column"] == "id"
    assert "too many combinations" in " ".join(text.replace("\n#", "").split())


def test_step_numbers_that_do_not_begin_with_one_are_asked_for() -> None:
    rows = {"year": [1996 + n // 10 for n in range(60)], "zip": ["a", "b"] * 30}
    text = draft_config(pa.table(rows), "year", name="n", path="p")
    assert 'start = "FILL IN"' in text
    assert "1996" not in text
    rows["year"] = [1 + n // 10 for n in range(60)]
    assert "\nstart = 1\n" in draft_config(pa.table(rows), "year", name="n", path="p")


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
