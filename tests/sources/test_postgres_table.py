"""A PostgreSQL table as a source: nothing lost, nothing twice, whatever is open while it is read."""

from __future__ import annotations

import datetime
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from row_files import source_of

from dpstream.core.errors import ConfigError, DataError, StepError
from dpstream.io.libpq import connection_settings
from dpstream.io.sources import SourceOptions, UnreadableError
from dpstream.io.sources import pg_session as server_module

if TYPE_CHECKING:
    from postgres_server import Cluster

SECRET = "Q7731"


@pytest.fixture
def table(server: Cluster) -> Iterator[psycopg.Connection]:
    """Rows with a time, an operation, and the number of their transaction."""
    with server.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS t CASCADE")
        connection.execute(
            "CREATE TABLE t (id BIGSERIAL, at TIMESTAMPTZ NOT NULL, op TEXT DEFAULT 'insert', zip TEXT, rent NUMERIC, "
            "who TEXT, paid BOOLEAN, tx XID8 NOT NULL DEFAULT pg_current_xact_id())"
        )
        yield connection


def options(server: Cluster, **changes: Any) -> SourceOptions:
    given = {
        "kind": "postgres",
        "url": server.url,
        "table": "t",
        "time_column": "at",
        "every": "day",
        "start": "2026-01-05",
        "end": "today",
        "wait": "0 minutes",
        **changes,
    }
    return SourceOptions.parse({key: value for key, value in given.items() if value is not None})


class Reader:
    """Takes steps, and keeps the position as the store does: with the step."""

    def __init__(
        self, server: Cluster, *, columns: tuple[str, ...] = ("zip", "rent"), **changes: Any
    ) -> None:
        self.options, self.columns = options(server, **changes), columns
        self.step, self.position, self.records = 0, None, []

    def take(self, day: int, position: Mapping[str, int] | None = None) -> list[Any]:
        """The steps that are over on a day of January; only the zip codes."""
        source = source_of(self.options, columns=self.columns)
        source.today = datetime.date(2026, 1, day)
        found = []
        for entry in source.steps(self.step + 1, seen=position or self.position):
            self.step, self.position = entry.step, dict(source.position)
            found.append(sorted(entry.inserts["zip"].to_pylist()))
        return found


def add(connection: psycopg.Connection, day: int, *zips: str, **more: Any) -> None:
    for zip_code in zips:
        row = {"at": f"2026-01-{day:02d} 12:00+00", "zip": zip_code, **more}
        names, marks = ", ".join(row), ", ".join(["%s"] * len(row))
        connection.execute(f"INSERT INTO t ({names}) VALUES ({marks})".encode(), list(row.values()))


@pytest.mark.parametrize("late", ["error", "next-step"])
def test_a_transaction_that_began_earlier_and_commits_later(
    server: Cluster, table: psycopg.Connection, late: str
) -> None:
    reader = Reader(server, late=late, xid_column="tx" if late == "next-step" else None)
    with server.connect() as slow:
        slow.execute("BEGIN")
        add(slow, 5, "slow")
        add(table, 5, "quick")
        with pytest.raises(
            UnreadableError,
            match="a transaction stays open",
        ):
            reader.take(6)
        assert reader.step == 0
        largest = table.execute("SELECT max(id) FROM t").fetchone()
        slow.execute("COMMIT")
    # Control: who reads on from the largest number never sees the slow row.
    assert not table.execute("SELECT zip FROM t WHERE id > %s", largest).fetchall()
    assert reader.take(6) == [["quick", "slow"]]
    assert reader.take(7) == [[]]


def test_a_row_that_is_visible_above_an_open_transaction_is_read_once(
    server: Cluster, table: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction opens after the wait: what commits above it is left to the next step, by its number."""
    for column in ("tx", None):
        table.execute("TRUNCATE t")
        late = "next-step" if column else "error"
        reader = Reader(server, late=late, xid_column=column)
        add(table, 5, "a")
        slow = server.connect()

        def opened(_: object, slow: psycopg.Connection = slow) -> None:
            slow.execute("BEGIN")
            add(slow, 5, "open")
            add(table, 5, "above")
            add(table, 6, "of the sixth")

        with monkeypatch.context() as patch:
            patch.setattr(server_module.Session, "settle", opened)
            assert reader.take(6) == [["a"]], "above is committed, and not safe"
            slow.execute("COMMIT")
            if column:
                assert reader.take(7) == [["above", "of the sixth", "open"]], "late ones are no safer"
                slow.execute("COMMIT")
        slow.close()
        if column:
            assert reader.take(8) == [["above", "of the sixth", "open"]]
            assert reader.take(9) == [[]]
        else:
            with pytest.raises(DataError, match="released step"):
                reader.take(7)


def test_many_writers_lose_nothing_and_count_nothing_twice(
    server: Cluster, table: psycopg.Connection
) -> None:
    """Rows of random periods in transactions (and subtransactions) of random lengths, read all the while."""
    reader = Reader(server, late="next-step", xid_column="tx", wait="1 day")
    written: list[str] = []

    def write(number: int) -> None:
        with server.connect() as own:
            for turn in range(25):
                names = [f"w{number}-{turn}-{i}" for i in range(3)]
                own.execute("BEGIN")
                add(own, 5 + (number + turn) % 9, names[0])
                own.execute("SAVEPOINT s")
                add(own, 5 + turn % 9, names[1])
                time.sleep(0.001 * ((number * 7 + turn) % 5))
                if turn % 4 == 0:
                    own.execute("ROLLBACK TO s")
                    names.pop(1)
                add(own, 5 + turn % 3, names[-1])
                own.execute("COMMIT")
                written.extend(names)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    found: list[str] = []
    for day in range(6, 30):
        found += [zip_code for step in reader.take(day) for zip_code in step]
        if day == 20:
            for thread in threads:
                thread.join()
    assert sorted(found) == sorted(written)


def test_late_rows_and_rows_changed_in_place(server: Cluster, table: psycopg.Connection) -> None:
    add(table, 4, "before the start")
    add(table, 5, "a", "b")
    readers = {
        late: Reader(server, late=late, xid_column="tx") for late in ("next-step", "drop-and-count-nothing")
    }
    readers["error"] = Reader(server)
    readers["changed"] = Reader(server)
    for reader in readers.values():
        assert reader.take(6) == [["a", "b"]]
    table.execute("UPDATE t SET rent = 7 WHERE zip = 'a'")
    with pytest.raises(DataError, match="a record of a released step"):
        readers.pop("changed").take(7)
    table.execute("UPDATE t SET rent = 8, at = '2026-01-06' WHERE zip = 'a'")
    table.execute("DELETE FROM t WHERE zip = 'a'")
    add(table, 5, SECRET)
    add(table, 6, "c")
    add(table, 3, "long before")
    assert readers["next-step"].take(7) == [sorted([SECRET, "c"])]
    assert readers["drop-and-count-nothing"].take(7) == [["c"]]
    with pytest.raises(DataError, match="a record of a released step") as caught:
        readers["error"].take(7)
    assert SECRET not in str(caught.value)
    # Released steps that are read again to be compared: the whole period, as it is now.
    again = Reader(server)
    assert again.take(7) == [sorted(["b", SECRET]), ["c"]]


def test_rewriting_the_table_counts_nothing_twice(server: Cluster, table: psycopg.Connection) -> None:
    """A rewrite gives every row a new number of the server's, and keeps the column's."""
    add(table, 5, "a")
    own, column = Reader(server), Reader(server, late="next-step", xid_column="tx")
    assert own.take(6) == column.take(6) == [["a"]]
    table.execute("ALTER TABLE t ALTER COLUMN rent TYPE BIGINT")
    assert column.take(7) == [[]]
    with pytest.raises(DataError, match="released step"):
        own.take(7)
    table.execute("VACUUM FREEZE t")
    assert Reader(server).take(6) == [["a"]], "frozen rows are old rows"


@pytest.mark.parametrize("epochs", [1, 3])
def test_numbers_of_32_bits_are_counted_back_from_the_next_one(
    server: Cluster, table: psycopg.Connection, epochs: int
) -> None:
    """The server keeps 32 bits of a row's number; checked against whole ones, across the wrap."""
    from dpstream.io.sources.table import _XID, _Reading, _Safe

    reading = _Reading.__new__(_Reading)
    following = epochs * 2**32 + 5
    reading._safe, reading._number = _Safe(None, following, following), ("c", _XID)
    whole = [following - back for back in (1, 4, 6, 7, 1000, 2**31 - 10)]
    for border in (following, following - 5, following - 6, following - 500):
        condition = reading._below(border)
        for number in whole:
            raw = number % 2**32
            if raw < 3:
                continue  # never given out
            query = f"SELECT {condition} FROM (SELECT '{raw}'::xid AS c) x"
            assert table.execute(query.encode()).fetchone() == (number < border,)
    assert table.execute(f"SELECT {reading._below(3)} FROM (SELECT '2'::xid AS c) x".encode()).fetchone() == (
        True,
    )


def test_operations_users_views_partitions_and_texts(server: Cluster, table: psycopg.Connection) -> None:
    add(table, 5, "a", who="ann", rent=1.50, paid=True)
    add(table, 5, "b", who="bob", op="delete")
    add(table, 6, "c", who="ann", op="insert")
    table.execute("CREATE VIEW v AS SELECT * FROM t WHERE zip <> 'c'")
    table.execute(
        "CREATE TABLE parts (LIKE t) PARTITION BY RANGE (at); CREATE TABLE p1 PARTITION OF parts DEFAULT; "
        "INSERT INTO parts SELECT * FROM t"
        if not table.execute("SELECT to_regclass('parts')").fetchone()[0]  # type: ignore[index]
        else "TRUNCATE parts; INSERT INTO parts SELECT * FROM t"
    )
    for name, extra in (("t", {}), ("public.v", {"xid_column": "tx"}), ("parts", {})):
        given = options(server, table=name, op_column="op", user_column="who", **extra)
        source = source_of(given, columns=["zip", "rent", "paid"])
        source.today = datetime.date(2026, 1, 7)
        first, second = source.steps()
        assert first.inserts.to_pylist() == [{"zip": "a", "rent": "1.5", "paid": "true"}]
        assert first.deletes.to_pylist() == [{"zip": "b", "rent": None, "paid": None}]
        assert [part.to_pylist() for part in first.users] == [["ann"], ["bob"]]
        assert second.inserts["zip"].to_pylist() == ([] if name == "public.v" else ["c"])
    # Without a schema all columns but the marks leave the server.
    assert next(iter(source_of(options(server)).steps())).inserts.column_names == [
        "id", "op", "zip", "rent", "who", "paid", "tx",
    ]  # fmt: skip


def test_what_cannot_be_read_is_told_without_a_value(
    server: Cluster, table: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(table, 5, SECRET)
    table.execute("CREATE VIEW plain AS SELECT at, zip, rent FROM t")
    table.execute("CREATE VIEW failing AS SELECT at, zip::int AS zip, rent, tx FROM t")
    table.execute("CREATE VIEW timeless AS SELECT NULLIF(at, at) AS at, zip, rent, tx FROM t")
    guarded = f"postgresql://guarded@/postgres?host={server.home}"
    monkeypatch.setenv("PGPASSWORD", server.password)
    for changes, error, message in (
        ({"table": "gone"}, ConfigError, "missing table 'gone' in schema 'public'"),
        ({"time_column": "zip"}, ConfigError, "column 'zip': another type"),
        ({"time_column": "when"}, ConfigError, "column 'when': missing"),
        ({"xid_column": "rent"}, ConfigError, "lacks transaction numbers"),
        ({"table": "plain"}, ConfigError, "a view lacks transaction numbers"),
        ({"table": "failing", "xid_column": "tx"}, DataError, "unreadable records"),
        ({"table": "timeless", "xid_column": "tx"}, DataError, "missing time"),
        ({"op_column": "zip"}, DataError, "unknown operation"),
        ({"user_column": "owner"}, DataError, "unknown column 'owner'"),
        ({"url": guarded}, ConfigError, "the role lacks a right"),
        ({"url": "postgresql://x@/postgres?host=/nowhere"}, UnreadableError, "the server cannot be reached"),
    ):
        with pytest.raises(error, match=message) as caught:
            Reader(server, **changes).take(6)
        assert SECRET not in str(caught.value)
    monkeypatch.setenv("PGPASSWORD", SECRET)
    monkeypatch.setenv("WHERE", f"postgresql://guarded:{SECRET}@/postgres?host={server.home}")
    for place in ({"url": guarded}, {"url": None, "url_env": "WHERE"}):
        with pytest.raises(UnreadableError, match="password refused") as caught:
            Reader(server, **place).take(6)
        assert SECRET not in str(caught.value) + repr(Reader(server, **place).options)
        assert caught.value.__cause__ is None


def test_another_server_and_one_that_was_set_back_are_refused(
    server: Cluster, table: psycopg.Connection
) -> None:
    add(table, 5, "a")
    reader = Reader(server)
    reader.take(6)
    position = dict(reader.position or {})
    with pytest.raises(StepError, match="the released steps came from another server"):
        reader.take(7, {**position, "system": position["system"] + 1})
    with pytest.raises(StepError, match="the server went back in time"):
        reader.take(7, {**position, "watermark": position["watermark"] + 10**6})
    assert reader.take(7) == [[]]


def test_a_server_that_crashes_gives_no_number_again_that_was_read(
    server: Cluster, table: psycopg.Connection
) -> None:
    """Transactions that did not wait for the disk are lost in a crash, and their numbers are given out anew."""
    reader = Reader(server, late="next-step", xid_column="tx")
    table.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
    table.execute("SELECT pg_reload_conf()")
    try:
        with server.connect() as hasty:
            hasty.execute("SET synchronous_commit = off")
            for _ in range(30):
                add(hasty, 5, "a")
            reader.take(6)
        server.stop("immediate")
        server.start()
        with server.connect() as later:
            later.execute("ALTER SYSTEM RESET wal_writer_delay")
            later.execute("SELECT pg_reload_conf()")
            add(later, 5, "late")
        assert reader.take(7) == [["late"]]
    finally:
        server.execute("ALTER SYSTEM RESET wal_writer_delay")


def test_a_cut_cable_is_noticed_in_a_minute() -> None:
    """What the system is asked to watch: an idle connection, and what was sent and is not acknowledged. A URL may say
    otherwise."""
    for more, unanswered in (("", 60_000), ("?tcp_user_timeout=5000", 5_000)):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"postgresql://x@127.0.0.1:{silent.getsockname()[1]}/x{more}"
            given = psycopg.conninfo.make_conninfo(**connection_settings(url, "here"))
            connection = psycopg.pq.PGconn.connect_start(given.encode())
            with socket.socket(fileno=os.dup(connection.socket)) as wire:
                assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                idle, between, tries = (
                    wire.getsockopt(socket.IPPROTO_TCP, option)
                    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                )
                assert idle + between * tries == 60
                assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == unanswered
            connection.finish()
