"""A MariaDB server gives the steps that files with its rows give; nothing is written, and nothing private is said."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cli_stream import dpstream, make
from row_files import source_of, write_rows

from dpstream.core.errors import ConfigError, DataError, DpstreamError
from dpstream.io.sources import SourceOptions, UnreadableError

if TYPE_CHECKING:
    from mariadb_server import Server

WEEKS = {"every": "week", "start": "2026-01-05", "end": "2026-02-01"}
COLUMNS = ["zip", "paid"]
SECRET = "hunter2"


@pytest.fixture(scope="module")
def shop() -> Iterator[Server]:
    """A server of these tests' own; without MariaDB on the machine the tests skip."""
    pytest.importorskip("pymysql")
    from mariadb_server import Server, programs

    tools = programs()
    if tools is None:
        pytest.skip("there is no MariaDB server on this machine (make mariadb installs one)")
    server = Server(tools)
    yield server
    server.remove()


def rows() -> list[tuple[Any, ...]]:
    """id, day, op, zip, paid, first, gone"""
    found = []
    for i in range(60):
        day = datetime.date(2026, 1, 1) + datetime.timedelta(days=i * 7 % 40)
        gone = None if i % 3 else day + datetime.timedelta(days=i % 15)
        zip_code = ["07001", "é,'\"\\%?", None][i % 3]
        found.append((i, day, ["insert", "delete"][i % 4 == 0], zip_code, i % 2, day, gone))
    return found


@pytest.fixture
def table(shop: Server) -> Server:
    shop.execute("DROP TABLE IF EXISTS visits")
    shop.execute(
        "CREATE TABLE visits (id INT PRIMARY KEY, day DATETIME NOT NULL, op VARCHAR(9), zip VARCHAR(20), paid BOOLEAN, "
        "arrived DATE, gone DATE, note BLOB) ENGINE = InnoDB"
    )
    with shop.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO visits VALUES (%s, %s, %s, %s, %s, %s, %s, 'x')", rows())
    return shop


NAMES = ["id", "day", "op", "zip", "paid", "arrived", "gone"]


def options(shop: Any, **keys: Any) -> SourceOptions:
    url = {} if "url_env" in keys else {"url": shop.url()}
    return SourceOptions(**{"kind": "mysql", **url, **WEEKS, **keys})


def plain(table: Any) -> Any:
    """Rows without an order; a csv file has no nulls."""
    if table is None:
        return None
    names = sorted(table.column_names)
    return sorted(
        tuple("" if row[name] is None else row[name] for name in names) for row in table.to_pylist()
    )


def contents(source: Any, start: int = 1) -> list[Any]:
    found = []
    for one in source.steps(start):
        keyed = None if one.keyed is None else plain(getattr(one.keyed, "rows", None) or one.keyed.events)
        found.append((one.step, one.batch_id, plain(one.inserts), plain(one.deletes), keyed))
    return found


STAYS = {"time_column": "arrived", "delete_time_column": "gone", "key_column": "id", "shape": "stays"}
BY_DAY = {"time_column": "day", "late": "drop-and-count-nothing"}
QUERY = (
    "SELECT zip, paid -- all? of them\nFROM visits WHERE day >= ? AND day < ? AND COALESCE(zip, '') <> '?';"
)


@pytest.mark.parametrize(
    ("there", "file"),
    [
        ({"table": "visits", **BY_DAY, "op_column": "op"}, {**BY_DAY, "op_column": "op"}),
        ({"table": "shop.visits", **BY_DAY}, BY_DAY),
        ({"query": QUERY}, BY_DAY),
        ({"table": "visits", **STAYS}, STAYS),
        ({"query": "SELECT * FROM visits", **STAYS, "late": "next-step"}, {**STAYS, "late": "next-step"}),
    ],
)
def test_a_server_gives_the_steps_that_files_give(
    table: Server, tmp_path: Path, there: dict[str, Any], file: dict[str, Any]
) -> None:
    lines = [dict(zip(NAMES, row, strict=True)) for row in rows()]
    path = str(write_rows(tmp_path / "visits.csv", lines, NAMES))
    ignored = [name for name in ("id", "day", "op", "arrived", "gone") if name not in file.values()]
    here = source_of(SourceOptions(path=(path,), **{**WEEKS, **file}), columns=COLUMNS, ignored=ignored)
    source = source_of(options(table, **there), columns=COLUMNS)
    expected = contents(here)
    assert contents(source) == expected
    assert contents(source, 3) == expected[2:]
    assert all(inserts or keyed for _, _, inserts, _, keyed in expected)


def test_the_zone_of_the_server_moves_no_record_to_another_step(shop: Server) -> None:
    shop.execute("CREATE OR REPLACE TABLE moments (zip VARCHAR(9), at TIMESTAMP NOT NULL) ENGINE = InnoDB")
    shop.execute("INSERT INTO moments VALUES ('a', FROM_UNIXTIME(1768404600))")  # 2026-01-14 15:30 in UTC
    keys = {"every": "day", "end": "2026-01-16"}
    by_query = {"query": "SELECT zip FROM moments WHERE at >= ? AND at < ?"}
    try:
        for zone in ("+00:00", "+09:00", "-09:00"):
            shop.execute(f"SET GLOBAL time_zone = '{zone}'")
            for there in ({"table": "moments", **BY_DAY, "time_column": "at"}, by_query):
                steps = source_of(options(shop, **keys, **there), columns=["zip"]).steps()
                assert [one.batch_id for one in steps if len(one.inserts)] == ["2026-01-14"]
    finally:
        shop.execute("SET GLOBAL time_zone = 'SYSTEM'")


def test_snapshots_are_of_one_moment(table: Server) -> None:
    from dpstream.io.sources.mysql import MySQLSession

    asked = options(table, table="visits", key_column="id", shape="snapshots")
    query = "SELECT id, zip, paid FROM visits WHERE day < ?"
    then = options(table, query=query, key_column="id", shape="snapshots")
    for one in source_of(asked, columns=COLUMNS).steps():
        assert one.keyed is not None
        assert plain(one.keyed.rows) == sorted((str(r[0]), str(r[4]), r[3] or "") for r in rows())
    grown = [len(one.keyed.rows) for one in source_of(then, columns=COLUMNS).steps()]
    ends = [datetime.date(2026, 1, 12) + datetime.timedelta(days=7 * i) for i in range(4)]
    assert grown == [sum(row[1] < end for row in rows()) for end in ends]
    with MySQLSession(asked, "a test") as session:
        before = session.rows("SELECT COUNT(*) FROM visits")
        table.execute("DELETE FROM visits WHERE id < 30")
        assert session.rows("SELECT COUNT(*) FROM visits") == before == [("60",)]


ZIPS = """\
[schema.columns.zip]
type = "categorical"
values = ["07001"]
other = "other"
missing = "missing"
[schema.columns.paid]
type = "boolean"
"""
VISITS = {"path": None, "kind": '"mysql"', "url_env": '"SHOP"', "table": '"visits"', "time_column": '"day"'}
VISITS |= {"every": '"week"', "start": '"2025-12-29"', "end": '"2026-01-11"'}


def test_a_stream_of_a_server(table: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that ends after its period was read is late: it stops the stream."""
    config = make(tmp_path, 0, columns=ZIPS, epsilon="2", **VISITS)
    guarded = table.url("guarded").replace(
        "guarded", f"guarded:{table.password.replace('/', '%2F').replace('@', '%40')}"
    )
    monkeypatch.setenv("SHOP", guarded)

    def run(*words: str, code: int = 0) -> str:
        output = dpstream(*words, config, code=code).output
        assert "%2F" not in output
        assert "S3cret" not in output
        return output

    assert "by that record alone" not in run("plan")
    with table.connect() as writer, writer.cursor() as cursor:
        writer.begin()
        cursor.execute("INSERT INTO visits VALUES (99, '2026-01-02', 'insert', '07001', 1, NULL, NULL, NULL)")
        run("check")
        run("run")
        run("run")
        writer.commit()
    steps = sorted(path.name for path in (tmp_path / "releases").glob("step-*"))
    assert steps == ["step-000001", "step-000002"]
    assert "step 1" in run("run", code=2)


def test_nothing_is_written_and_no_value_is_said(table: Server, tmp_path: Path) -> None:
    table.execute(
        f"INSERT INTO visits VALUES (77, '2026-01-06', '{SECRET}', '{SECRET}', 1, NULL, NULL, '{SECRET}')"
    )
    table.execute("CREATE TABLE IF NOT EXISTS old (day DATE, zip VARCHAR(9)) ENGINE = MyISAM")
    table.execute("CREATE TABLE IF NOT EXISTS undated (day DATE, zip VARCHAR(9))")
    table.execute(f"INSERT INTO undated VALUES (NULL, '{SECRET}')")
    table.execute("CREATE TABLE IF NOT EXISTS early (day DATE, zip VARCHAR(9))")
    table.execute(f"INSERT INTO early VALUES ('2025-12-31', '{SECRET}')")
    table.execute("CREATE OR REPLACE USER nobody@localhost")
    table.execute("GRANT SELECT ON shop.old TO nobody@localhost")
    place = tmp_path / "out"
    periods = "day >= ? AND day < ?"
    cases: list[tuple[dict[str, Any], type[DpstreamError], str]] = [
        ({"query": f"SELECT zip FROM visits WHERE {periods}) AS a; DELETE FROM visits; SELECT * FROM (SELECT 1"},
         ConfigError, "error 1064"),
        ({"query": f"DELETE FROM visits WHERE {periods}"}, ConfigError, "error 1064"),
        ({"query": f"SELECT zip FROM visits WHERE {periods} INTO OUTFILE '{place}'"}, ConfigError, "error 1"),
        ({"query": f"SELECT paid FROM visits WHERE {periods}"}, DataError, "unknown column 'zip'"),
        ({"query": f"SELECT CAST(zip AS BINARY) AS zip FROM visits WHERE {periods}"}, DataError, "holds bytes"),
        ({"table": "nowhere", "time_column": "day"}, ConfigError, "error 1146"),
        ({"table": "old", "time_column": "day"}, ConfigError, "engine"),
        ({"table": "undated", "time_column": "day"}, DataError, "a time is missing"),
        ({"table": "early", "time_column": "day"}, DataError, "precedes the start"),
        ({"table": "visits", "time_column": "zip"}, ConfigError, "another type"),
        ({"table": "visits", **BY_DAY, "op_column": "op"}, DataError, "operation"),
        ({"table": "visits", "time_column": "day", "url": table.url("nobody")}, ConfigError, "lacks a right"),
        ({"table": "visits", "time_column": "day", "url": table.url("guarded")}, ConfigError, "lacks a right"),
        ({"table": "visits", "time_column": "day", "url": "mysql://reader@127.0.0.1:9/shop"}, UnreadableError, "2003"),
    ]  # fmt: skip
    for keys, kind, what in cases:
        with pytest.raises(kind, match=what) as told:
            list(source_of(options(table, **keys), columns=["zip"]).steps())
        assert SECRET not in str(told.value)
    assert table.execute("SELECT COUNT(*) FROM visits") == [(61,)]
    assert not place.exists()
    table.execute("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(ConfigError, match="read-only"):
            list(source_of(options(table, table="visits", time_column="day"), columns=["zip"]).steps())
    finally:
        table.execute("SET GLOBAL read_only = 0")
