"""What ``dpstream init`` drafts for tables that change runs: every shape, from every kind of file."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keyed_history as told
import pytest
from cli_stream import dpstream

from dpstream.project import Config

Rows = list[dict[str, Any]]
FORMATS = ("csv", "parquet", "ndjson", "duckdb")
KEYS = 8


def write(rows: Rows, path: Path) -> Path:
    """Rows in the format of the name's ending; a DuckDB file has them in its only table."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    table = pa.Table.from_pylist(rows)
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    elif path.suffix == ".parquet":
        # As a writer that knows no missing whole numbers has them.
        for number, field in enumerate(table.schema):
            if pa.types.is_integer(field.type) and table.column(number).null_count:
                table = table.set_column(number, field.name, table.column(number).cast(pa.float64()))
        pyarrow.parquet.write_table(table, path)
    elif path.suffix == ".ndjson":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect(str(path)) as db:
            db.register("rows", table)
            db.execute("CREATE TABLE t AS FROM rows")
            db.unregister("rows")
    return path


def history() -> told.History:
    """One stay of each key: later ones need an order of rows that have the same step."""
    known = {stay.key: stay for stay in told.history(14, keys=60, updates=False).stays}
    return told.History(list(known.values()))


def day(step: int | None) -> str | None:
    return None if step is None else f"2026-01-{step + 4:02}"


def year(step: int | None) -> int | None:
    return None if step is None else 1996 + step


def feed(folder: Path, ending: str) -> tuple[Path, list[str]]:
    rows = told.feed_rows(history())
    return write([{**row, "when": day(row["when"])} for row in rows], folder / f"feed.{ending}"), []


def snapshots(folder: Path, ending: str) -> tuple[Path, list[str]]:
    tables = [
        [{"id": k, "group": g, "size": s} for k, (g, s) in history().table(step).items()] for step in (4, 5)
    ]
    if ending == "duckdb":  # it holds the table as it is now
        return write(tables[1], folder / "now.duckdb"), ["--key-column", "id"]
    for number, rows in enumerate(tables):
        write(rows, folder / f"table-{number}.{ending}")
    return folder / f"table-*.{ending}", []


def stays(folder: Path, ending: str, when: Callable[[int | None], Any] = day) -> tuple[Path, list[str]]:
    rows = [
        {"id": stay.key, "since": when(stay.first), "until": when(stay.gone), "group": g, "size": s}
        for stay in history().stays
        for _, g, s in stay.values
    ]
    return write(rows, folder / f"stays.{ending}"), []


def stays_by_number(folder: Path, ending: str) -> tuple[Path, list[str]]:
    return stays(folder, ending, year)


SHAPES: dict[str, tuple[str, Callable[[Path, str], tuple[Path, list[str]]]]] = {
    "feed": ("changes", feed),
    "snapshots": ("snapshots", snapshots),
    "stays": ("stays", stays),
    "years": ("stays", stays_by_number),
}


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("name", SHAPES)
def test_a_draft_runs_as_soon_as_its_owner_has_filled_it_in(name: str, ending: str, tmp_path: Path) -> None:
    shape, make = SHAPES[name]
    data, more = make(tmp_path, ending)
    config = tmp_path / "dpstream.toml"
    dpstream("init", data, *more, "--out", config)
    text = config.read_text()
    asked = re.findall(r"^(\w+) = .*# FILL IN", text, re.MULTILINE)
    numbered = name == "years"
    calendar = [] if name == "snapshots" and ending != "duckdb" else ["start", "end"]
    assert sorted(asked) == sorted([*calendar, "epsilon", "size", "records_per_step"])
    assert re.search(r'^key_column = "id"  # CONFIRM', text, re.MULTILINE)
    assert "\nsize = 1000  # FILL IN" in text  # an example, whatever the data hold
    assert "departures_every" not in text
    for key, value in (
        ("start", 1997 if numbered else "2026-01-05"),
        ("end", 1999 if numbered else "2026-01-07"),
        ("epsilon", "1"),
    ):
        text = re.sub(rf"^{key} = .*# FILL IN.*", f"{key} = {json.dumps(value)}", text, flags=re.MULTILINE)
    text = text.replace('every = "week"', 'every = "day"').replace("confirmed = false", "confirmed = true")
    config.write_text(text)
    assert "size, records_per_step are marked FILL IN" in dpstream("run", config, code=2).stderr
    config.write_text(text.replace("  # FILL IN", ""))
    loaded = Config.load(config)
    assert loaded.source_options.shape == shape
    assert loaded.schema().names == ("group", "size")
    steps = 3 if calendar else 2
    said = dpstream("check", config).stdout
    assert f"{steps} steps read: all rows fit the schema" in said
    assert f"(shape = \"{shape}\"); column 'id' names the record." in said.replace("\n  ", " ")
    plan = dpstream("plan", config, "--all", "--quick").stdout
    assert "· census ·" in plan
    assert "number of records" in plan
    assert "cell measured at every step" not in plan  # a census promises no such number
    assert "1 new step, 1 in all" in dpstream("run", config, "--steps", 1).stdout


def test_numbers_are_times_only_where_their_columns_say_so(tmp_path: Path) -> None:
    rows = [{"id": n, "height": n % 7, "weight": n % 7 + (n % 3), "since": 1990 + n % 9} for n in range(40)]
    dpstream("init", write(rows, tmp_path / "people.csv"), "--out", tmp_path / "one.toml")
    assert 'unit = "event"' in (tmp_path / "one.toml").read_text()
    named = [{**row, "endYear": row["since"] + 2 if row["id"] % 2 else None} for row in rows]
    dpstream("init", write(named, tmp_path / "stays.csv"), "--out", tmp_path / "two.toml")
    text = (tmp_path / "two.toml").read_text()
    assert 'delete_time_column = "endYear"' in text
    assert 'time_column = "since"' in text
    assert "never read it off the data" in text


def test_a_table_of_a_database_is_named_where_there_are_several(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path, _ = stays(tmp_path, "duckdb")
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE VIEW v AS FROM t; CREATE VIEW bad AS SELECT error('Q7731') AS x")
        db.execute("CREATE TABLE plain AS SELECT DATE '2026-01-05' AS d, 'x' AS zip")
    for more, what in (
        ([], "4 tables"),
        (["--table", "bad"], "the table cannot be read"),
        (["--table", "w"], "unknown table 'w'"),
        (["--table", "plain"], "nothing says which rows are in a step"),
    ):
        assert what in dpstream("init", path, *more, "--out", tmp_path / "a.toml", code=2).stderr
    dpstream("init", path, "--table", "v", "--out", tmp_path / "v.toml")
    assert 'shape = "stays"' in (tmp_path / "v.toml").read_text()
    dpstream("init", path, "--table", "plain", "--time-column", "d", "--out", tmp_path / "d.toml")
    assert 'unit = "event"' in (tmp_path / "d.toml").read_text()
    drafted = tomllib.loads((tmp_path / "d.toml").read_text())["source"]
    assert drafted["query"] == 'SELECT "zip" FROM "plain" WHERE "d" >= $1 AND "d" < $2'
    assert "time_column" not in drafted
