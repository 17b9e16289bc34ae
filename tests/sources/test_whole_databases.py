"""Databases that are read whole, as snapshots or as stays: DuckDB and PostgreSQL, with the same keys and words."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keyed_history as told
import pytest
from keyed_history import SCHEMA, STEPS, outcome
from row_files import source_of

from dpstream.core.errors import ConfigError, DataError, DpstreamError
from dpstream.io.sources import SourceOptions

if TYPE_CHECKING:
    from postgres_server import Cluster

FIRST = datetime.date(2026, 1, 5)
COLUMNS = 'id INT, since DATE, until DATE, "group" TEXT, size INT'
CALENDAR = {"every": "day", "start": FIRST, "end": FIRST + datetime.timedelta(STEPS - 1), "key_column": "id"}
TIMES = {"time_column": "since", "delete_time_column": "until", "shape": "stays"}
THERE = 'SELECT id, "group", size FROM t WHERE since < $1 AND (until IS NULL OR until >= $1)'


@dataclass
class Database:
    """One of the two, with a table ``t`` of stays."""

    execute: Callable[..., Any]
    keys: dict[str, Any]
    base: Path

    def fill(self, *rows: str) -> None:
        self.execute("DELETE FROM t")
        if rows:
            self.execute(f"INSERT INTO t VALUES {', '.join(rows)}")

    def read(self, **more: Any) -> list[Any]:
        options = SourceOptions.parse({**self.keys, **CALENDAR, **more})
        return list(source_of(options, base=self.base, columns=SCHEMA.names).steps())

    def stays(self, query: str = "SELECT * FROM t", **more: Any) -> list[Any]:
        return self.read(query=query, **TIMES, **more)

    def snapshots(self, query: str = THERE, **more: Any) -> list[Any]:
        return self.read(query=query, shape="snapshots", **more)

    def refused(self, query: str) -> DpstreamError:
        with pytest.raises(DpstreamError) as caught:
            outcome(self.snapshots(query))
        return caught.value


def duckdb_database(folder: Path) -> Database:
    duckdb = pytest.importorskip("duckdb")

    def execute(statement: str) -> None:
        with duckdb.connect(str(folder / "t.duckdb")) as db:
            db.execute(statement)

    execute(f"CREATE TABLE t ({COLUMNS})")
    return Database(execute, {"kind": "duckdb", "database": "t.duckdb"}, folder)


def server_database(server: Cluster, folder: Path) -> Database:
    def execute(statement: str) -> Any:
        with server.connect() as db:
            answer = db.execute(statement.encode())
            return answer.fetchall() if answer.description else None

    execute(f"DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t ({COLUMNS})")
    return Database(execute, {"kind": "postgres", "url": server.url}, folder)


@pytest.fixture(params=["duckdb", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "duckdb":
        yield duckdb_database(tmp_path)
        return
    made = server_database(request.getfixturevalue("server"), tmp_path)
    yield made
    made.execute("DROP TABLE t CASCADE")


def day(step: int | None) -> str:
    return "NULL" if step is None else f"'{FIRST + datetime.timedelta(step - 1)}'"


def test_a_query_gives_the_history_that_a_file_tells(database: Database, tmp_path: Path) -> None:
    history = told.history(21, keys=12, updates=False)
    rows = [
        f"({stay.key}, {day(stay.first)}, {day(stay.gone)}, '{group}', {size})"
        for stay in history.stays
        for _, group, size in stay.values
    ]
    database.fill(*rows)
    wanted = outcome(told.read(told.write_stays(history, tmp_path, "stays.csv"), tmp_path))
    assert outcome(database.snapshots()) == wanted
    for late in ("error", "next-step"):
        assert outcome(database.stays("SELECT * FROM t;", late=late)) == wanted
    if database.keys["kind"] == "postgres":
        assert outcome(database.read(table="t", **TIMES)) == wanted


def test_the_zone_of_a_database_moves_no_record_to_another_step(server: Cluster, tmp_path: Path) -> None:
    database = server_database(server, tmp_path)
    database.fill(f"(1, {day(2)}, NULL, 'a', 1)")
    query = """SELECT id, "group", size FROM t WHERE (since + time '15:30') AT TIME ZONE 'UTC' < $1"""
    for zone in ("UTC", "Asia/Tokyo", "America/Los_Angeles"):
        database.execute(f"ALTER DATABASE postgres SET timezone = '{zone}'")
        assert [one.keyed.rows.num_rows for one in database.snapshots(query)] == [0, *[1] * (STEPS - 1)]
    database.execute("ALTER DATABASE postgres RESET timezone; DROP TABLE t")


@pytest.mark.parametrize(
    ("query", "kind", "what"),
    [
        ('SELECT "group", size FROM t', DataError, "unknown column 'id'"),
        ("SELECT id, nothing FROM t", ConfigError, "refuses the query"),
        ("SELECT *, id FROM t", ConfigError, "two columns share a name"),
        ("SELECT * FROM t WHERE since < $1 AND until > $2", ConfigError, "the query has 2 parameters"),
        ("DELETE FROM t", ConfigError, "expected a SELECT that only reads"),
        ('SELECT id, "group", size FROM t, generate_series(1, 2)', DataError, "several rows"),
        ('SELECT NULL::INT AS id, "group", size FROM t', DataError, "lacks a key"),
    ],
)
def test_a_query_that_cannot_be_used_is_refused_in_the_same_words(
    query: str, kind: type[Exception], what: str, database: Database
) -> None:
    database.fill("(7731, '2026-01-05', NULL, 'a', 1)")
    error = database.refused(query)
    assert isinstance(error, kind)
    assert what in str(error)
    assert error.allowed
    assert "7731" not in str(error)


def test_nothing_can_be_written_through_a_query(server: Cluster, tmp_path: Path) -> None:
    database = server_database(server, tmp_path)
    database.execute(
        "CREATE SEQUENCE IF NOT EXISTS s; CREATE OR REPLACE FUNCTION eats() RETURNS int LANGUAGE sql AS "
        "'DELETE FROM public.t RETURNING 1'"
    )
    database.fill("(1, '2026-01-05', NULL, 'a', 1)", "(2, '2026-01-05', NULL, 'a', 1)")
    for query, what in (
        ("SELECT * FROM t; DELETE FROM t", "SyntaxError"),
        ("SELECT * FROM t; COMMIT; SET default_transaction_read_only = off; DELETE FROM t", "SyntaxError"),
        ("SELECT 1) AS x; DELETE FROM t; SELECT * FROM (SELECT 1", "SyntaxError"),
        ("WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone", "expected a SELECT that only reads"),
        ("SELECT * INTO other FROM t", "expected a SELECT that only reads"),
        ("SELECT *, eats() AS e FROM t", "would write"),
        (
            "SELECT *, set_config('transaction_read_only', 'off', true) AS a, eats() AS e FROM t",
            "cannot|would",
        ),
        ("SELECT *, nextval('s') AS e FROM t", "would write"),
        ("SELECT * FROM t FOR UPDATE", "would write"),
    ):
        with pytest.raises(DpstreamError, match=what):
            # All columns are asked for, so that all of the query is run.
            list(source_of({**database.keys, **CALENDAR, "query": query, "shape": "snapshots"}).steps())
        assert len(database.execute("SELECT id FROM t")) == 2, query
    database.execute("DROP TABLE t; DROP SEQUENCE s; DROP FUNCTION eats")


def test_a_query_is_planned_before_a_first_step_is_due(server: Cluster, tmp_path: Path) -> None:
    database = server_database(server, tmp_path)
    options = {**database.keys, **CALENDAR, "shape": "snapshots", "start": "2999-01-01", "end": "today"}
    for query, what in (
        ("SELECT id FROM t", "unknown column 'group'"),
        ("SELECT x FROM t", "UndefinedColumn"),
    ):
        source = source_of({**options, "query": query}, columns=SCHEMA.names)
        with pytest.raises(DpstreamError, match=what):
            list(source.steps())
    assert list(source_of({**options, "query": "TABLE t"}).steps()) == []


def test_ends_that_are_open_late_or_moved(database: Database) -> None:
    """A null and infinity are no end. What is changed after its step was read shows in that step (``error``) or in the
    next one that is read (``next-step``)."""
    there = ["(8, '2025-12-24', NULL, 'b', 2)", "(9, '2026-01-05', 'infinity', 'c', 3)"]
    started, closed, moved = (
        f"(7, '2026-01-0{start}', {end}, 'a', 1)"
        for start, end in ((5, "NULL"), (5, "'2026-01-06'"), (6, "NULL"))
    )
    for later, present in ((closed, [False]), (moved, [])):
        database.fill(*there, started)
        before = outcome(database.stays())
        early = database.stays(late="next-step")[:3]
        assert [flags for _, flags, _ in before] == [[True] * 3, *([[]] * 6)]
        database.fill(*there, later)
        assert outcome(database.stays())[:2] != before[:2]
        late = database.stays(late="next-step")[3:]
        assert [flags for _, flags, _ in outcome([*early, *late])[3:]] == [present, [], [], []]


def test_times_with_a_zone_are_taken_in_utc(database: Database) -> None:
    zone = "TIMESTAMP WITH TIME ZONE"
    query = (
        f"SELECT id, \"group\", size, ({zone} '2026-01-06 23:30:00-02') AS since, "
        f"({zone} '2026-01-09 00:30:00+02') AS until FROM t"
    )
    database.fill("(1, '2026-01-05', NULL, 'a', 1)")
    assert [flags for _, flags, _ in outcome(database.stays(query))] == [[], [], [True], [False], [], [], []]


def test_what_is_published_of_a_database_that_is_read_whole() -> None:
    server = {"kind": "postgres", "url_env": "U", **CALENDAR}
    for given in ({"shape": "snapshots"}, TIMES):
        asked = SourceOptions.parse({**server, **given, "query": "SELECT * FROM t"})
        table = SourceOptions.parse({**server, **given, "table": "t"})
        assert any("the query decides" in fact for fact in asked.declared_public())
        assert any("rows that no other record shares" in fact for fact in table.declared_public())
        assert not any(
            "rows are only added" in fact for fact in asked.declared_public() + table.declared_public()
        )
        assert asked.pinned()["query"].startswith("sha256:")
        assert asked.repeatable is (given is TIMES)


def test_the_guides_query_can_be_used() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guide" / "postgres.md").read_text(encoding="utf-8")
    sources = [tomllib.loads(text)["source"] for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)]
    (asked,) = [source for source in sources if "query" in source]
    assert SourceOptions.parse(asked).whole_tables
