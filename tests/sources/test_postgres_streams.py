"""Whole streams from PostgreSQL: the releases that the same records give from files, whatever is killed in between."""

from __future__ import annotations

import datetime
import json
import os
import random
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from cli_stream import dpstream, make, released, status
from postgres_log import FIRST_DAY as FIRST
from postgres_log import FIRST_DAY_NUMBER, ReplicatedTable
from row_files import source_of, write_rows

from dpstream.io.sources import SourceOptions, replication

if TYPE_CHECKING:
    from postgres_server import Cluster

SECRET = "Q7731"
DAYS = 4
CALENDAR = {"path": None, "every": '"day"', "start": '"2026-01-05"', "end": '"2026-01-08"'}
CHANGES = {
    **CALENDAR,
    "kind": '"postgres-changes"',
    "table": '"f"',
    "time_column": None,
    "slot": '"s"',
    "publication": '"p"',
}


@pytest.fixture
def log(server: Cluster) -> Iterator[ReplicatedTable]:
    """The replicated table ``f``, and the growing table ``t``."""
    columns = "zip TEXT, paid BOOLEAN, kind TEXT, who TEXT"
    made = ReplicatedTable(
        server,
        None,
        f"DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (at DATE NOT NULL, op TEXT, {columns})",
        f"CREATE TABLE f (id SERIAL, {columns}); ALTER TABLE f REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE f",
    )
    yield made
    made.close()


@pytest.fixture
def db(log: ReplicatedTable) -> psycopg.Connection:
    return log.db


Row = tuple[int, str, str, bool, str, str]


def rows(seed: int = 3) -> list[Row]:
    """Day, operation and values: records come, and some of them go later."""
    draw, there, found = random.Random(seed), [], []
    for day in range(DAYS):
        for _ in range(40):
            row = (draw.choice("abc"), draw.random() < 0.5, draw.choice("xy"), f"u{draw.randrange(50)}")
            there.append(row)
            found.append((day, "insert", *row))
        draw.shuffle(there)
        found += [(day, "delete", *there.pop()) for _ in range(7)]
    return found  # type: ignore[return-value]


def from_files(folder: Path, records: list[Row], **more: Any) -> dict[str, bytes]:
    config = make(
        folder,
        0,
        **{**CALENDAR, "path": '"data/*.csv"', "time_column": '"at"', "op_column": '"op"', **more},
    )
    names = ["at", "op", "zip", "paid", "kind", "who"]
    days = [(FIRST + datetime.timedelta(day), *rest) for day, *rest in records]
    write_rows(folder / "data" / "all.csv", [dict(zip(names, row, strict=True)) for row in days], names)
    return tables(config)


def settled(config: Path) -> Path:
    """The unit user where ids are read; elsewhere the schema leaves their column alone."""
    text = config.read_text()
    if "user_column" in text:
        text = text.replace('name = "test"\n', 'name = "test"\nunit = "user"\nmax_events = 100\n')
    else:
        text = text.replace("[schema.columns.zip]", '[schema]\nignore = ["who"]\n[schema.columns.zip]')
    config.write_text(text)
    return config


def tables(config: Path) -> dict[str, bytes]:
    dpstream("run", settled(config), "--test-seed", 5)
    return only_tables(config.parent)


def only_tables(folder: Path) -> dict[str, bytes]:
    found = {name: data for name, data in released(folder).items() if name.endswith("table.csv")}
    assert len(found) == DAYS
    return found


def fill_table(db: psycopg.Connection, records: list[Row]) -> None:
    for day, *row in records:
        db.execute("INSERT INTO t VALUES (%s, %s, %s, %s, %s, %s)", (FIRST + datetime.timedelta(day), *row))


def change(db: psycopg.Connection, record: Row) -> None:
    _, op, *row = record
    if op == "insert":
        db.execute("INSERT INTO f (zip, paid, kind, who) VALUES (%s, %s, %s, %s)", row)
    else:
        db.execute(
            "DELETE FROM f WHERE id = (SELECT min(id) FROM f WHERE (zip, paid, kind, who) = (%s, %s, %s, %s))",
            row,
        )


@pytest.mark.parametrize("unit", ["event", "user"])
def test_the_releases_are_those_of_the_same_records_in_files(
    server: Cluster, log: ReplicatedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    records, more = rows(), {"user_column": '"who"'} if unit == "user" else {}
    fill_table(log.db, records)
    for day in range(DAYS):
        for record in records:
            if record[0] == day:
                change(log.db, record)
        log.end_day()
    monkeypatch.setattr(replication, "commit_day", log.day)
    table = {"kind": '"postgres"', "url": f'"{server.url}"', "table": '"t"', "time_column": '"at"'}
    kinds = {
        "table": {**CALENDAR, **table, "op_column": '"op"', **more},
        "changes": {**CHANGES, "url": f'"{server.url}"', **more},
    }
    expected = from_files(tmp_path / "files", records, **more)
    found = {name: tables(make(tmp_path / name, 0, **settings)) for name, settings in kinds.items()}
    assert found["table"] == expected
    assert found["changes"] == expected
    assert from_files(tmp_path / "other", records[1:], **more) != expected, (
        "the releases do depend on the records"
    )
    # Run again: the table is compared, the log is not there any more; nothing is drawn.
    for name in kinds:
        again = dpstream("run", tmp_path / name / "dpstream.toml", "--test-seed", 5).stdout
        assert f"0 new steps, {DAYS} in all" in again
        assert only_tables(tmp_path / name) == expected


DISCOVERING = """[schema.columns.zip]
type = "categorical"
values = "discover"
other = "other"
"""


def test_a_census_discovers_what_it_discovers_from_files(
    server: Cluster, log: ReplicatedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every table and every value with its noisy count."""
    settings = {**CALENDAR, "key_column": '"who"', "op_column": '"op"', "time_column": '"at"'}
    records = [
        (day, "insert", f"{draw}{day // 2}", n % 2 == 0, "xy"[n % 2], f"k{day}-{n}")
        for day in range(DAYS)
        for n, draw in enumerate("a" * 60 + "b" * 40 + "c")
    ]
    records += [(day + 2, "delete", *row) for day, _, *row in records if day < 2 and row[-1].endswith("7")]
    for day in range(DAYS):
        for own, op, *row in records:
            if own == day and op == "insert":
                change(log.db, (day, op, *row))
            elif own == day:
                log.db.execute("DELETE FROM f WHERE who = %s", (row[-1],))
        log.end_day()
    monkeypatch.setattr(replication, "commit_day", log.day)
    days = [(FIRST + datetime.timedelta(day), *row) for day, *row in records]
    rows = [dict(zip(["at", "op", "zip", "paid", "kind", "who"], row, strict=True)) for row in days]
    (tmp_path / "files" / "data").mkdir(parents=True)
    write_rows(tmp_path / "files" / "data" / "all.csv", rows, list(rows[0]))
    found = {}
    for name, source in {
        "files": {"path": '"data/*.csv"'},
        "changes": {**CHANGES, "url": f'"{server.url}"', "op_column": None},
    }.items():
        config = make(tmp_path / name, 0, epsilon="8", mechanism='name = "census"', **{**settings, **source})
        text = config.read_text().replace('name = "test"\n', 'name = "test"\nunit = "record"\n')
        head, _, rest = text.partition("[schema.columns.zip]")
        text = head + DISCOVERING + "[schema.columns." + rest.partition("[schema.columns.")[2]
        config.write_text(text + '\n[discovery]\ndelta = "1e-6"\n')
        dpstream("run", config, "--test-seed", 5)
        manifests = sorted((config.parent / "releases").glob("step*/manifest.json"))
        values = [json.loads(path.read_bytes()).get("discovered") for path in manifests]
        found[name] = (only_tables(config.parent), values)
    assert {one["value"] for one in found["files"][1][0]["zip"]} == {"a0", "b0"}
    assert {one["value"] for one in found["files"][1][2]["zip"]} == {"a1", "b1"}
    assert found["changes"] == found["files"]


def test_check_and_dry_run_move_nothing(
    server: Cluster, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for record in rows()[:20]:
        change(db, record)
    monkeypatch.setattr(replication, "commit_day", lambda _: FIRST_DAY_NUMBER)
    config = make(tmp_path, 0, **{**CHANGES, "url": f'"{server.url}"'})
    place = "SELECT confirmed_flush_lsn FROM pg_replication_slots"
    before = server.execute(place)
    assert "4 steps read: all rows fit the schema" in dpstream("check", config).stdout
    assert "4 steps can be read" in dpstream("run", config, "--dry-run").stdout
    assert server.execute(place) == before
    plan = " ".join(dpstream("plan", config, "--all", "--quick").stdout.split())
    assert "When transactions commit is declared public" in plan
    assert "4 new steps" in dpstream("run", config, "--until", 4).stdout
    assert server.execute(place) != before
    db.execute("INSERT INTO f (zip) VALUES (%s)", (SECRET,))
    db.execute("SELECT pg_replication_slot_advance('s', pg_current_wal_lsn())")
    config.write_text(config.read_text().replace("2026-01-08", "2026-01-09"))
    assert "the slot is ahead of the released steps" in dpstream("run", config, code=2).stderr


KILLED = """
import datetime, os, signal, sys
from dpstream.cli import main
from dpstream.io.sources import SourceOptions
from dpstream.io.sources.replication import ChangeSource
today = datetime.datetime.now(datetime.UTC).date()
SourceOptions.clock = lambda self, now=None: today + datetime.timedelta(7)
ChangeSource.committed = lambda self, position: os.kill(os.getpid(), signal.SIGKILL)
main(["run", sys.argv[1], "--test-seed", "5"])
"""


def test_a_kill_between_the_commit_and_the_slots_move_counts_nothing_twice(
    server: Cluster, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is really killed; the next run moves the slot, and the step is not drawn again."""
    today = datetime.datetime.now(datetime.UTC).date()
    settings = {**CHANGES, "url": f'"{server.url}"', "every": '"week"', "end": '"today"'}
    settings["start"] = f'"{today}"'
    killed = settled(make(tmp_path / "killed", 0, **settings))
    calm = settled(make(tmp_path / "calm", 0, **{**settings, "slot": '"calm"'}))
    for record in rows()[:30]:
        change(db, record)
    db.execute("SELECT pg_copy_logical_replication_slot('s', 'calm')")
    place = (
        "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots WHERE slot_name = 's'"
    )
    start = server.execute(place)
    done = subprocess.run([sys.executable, "-c", KILLED, str(killed)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert server.execute(place) == start
    assert status(killed)["steps"] == 1
    for config, weeks in ((calm, 1), (calm, 2), (killed, 2)):
        later = today + datetime.timedelta(7 * weeks)
        monkeypatch.setattr(SourceOptions, "clock", lambda self, now=None, later=later: later)
        assert "1 new step" in dpstream("run", config, "--test-seed", 5).stdout
    assert server.execute(place) > start
    found = [released(config.parent) for config in (calm, killed)]
    for step in (1, 2):
        first, second = (files[f"step-{step:06d}/table.csv"] for files in found)
        assert first == second


@pytest.mark.parametrize("what", ["slot", "table"])
def test_what_is_missing_is_told_before_the_first_step_is_due(
    server: Cluster, db: psycopg.Connection, tmp_path: Path, what: str
) -> None:
    """What is committed before there is a slot is lost: waiting for the first period would be too late."""
    today = datetime.datetime.now(datetime.UTC).date()
    given = (
        CHANGES
        if what == "slot"
        else {**CALENDAR, "kind": '"postgres"', "table": '"t"', "time_column": '"at"'}
    )
    more = {"url": f'"{server.url}"', "every": '"week"', "start": f'"{today}"', "end": '"today"'}
    good = settled(make(tmp_path / "good", 0, **{**given, **more}))
    bad = settled(make(tmp_path / "bad", 0, **{**given, **more, what: '"nope"'}))
    for verb in (("check",), ("run", "--dry-run"), ("run",), ("run", "--watch")):
        assert "nope'" in dpstream(verb[0], bad, *verb[1:], code=2).stderr
    assert "0 new steps" in dpstream("run", good).stdout


INSIDE = """
import os, signal, sys
from dpstream.cli import main
from dpstream.stream.store.store import Store
Store.commit_step = lambda self, prepared: os.kill(os.getpid(), signal.SIGKILL)
main(["run", sys.argv[1], "--until", "2", "--test-seed", "5"])
"""


@pytest.mark.parametrize(
    ("late", "moved"),
    [("error", False), ("next-step", True), ("drop-and-count-nothing", False)],
    ids=["as it was", "other key", "dropped"],
)
def test_late_rows_after_a_kill_inside_a_step_are_late(
    server: Cluster, db: psycopg.Connection, tmp_path: Path, late: str, moved: bool
) -> None:
    """The step is read again as it was reserved, so that nobody has to give it up."""
    db.execute("ALTER TABLE t ADD COLUMN tx XID8 NOT NULL DEFAULT pg_current_xact_id()")
    insert = "INSERT INTO t (at, op, zip, paid, kind, who) VALUES (%s, %s, %s, %s, %s, %s)"
    for day, *row in rows():
        db.execute(insert, (FIRST + datetime.timedelta(day), *row))
    more = {"kind": '"postgres"', "url": f'"{server.url}"', "table": '"t"', "time_column": '"at"'}
    more |= {"op_column": '"op"', "late": f'"{late}"'} | ({"xid_column": '"tx"'} if late != "error" else {})
    calm, config = (settled(make(tmp_path / name, 0, **{**CALENDAR, **more})) for name in ("calm", "s"))
    dpstream("store", "key", "--out", tmp_path / "key")
    config.write_text(config.read_text() + f'[state]\nkey_file = "{tmp_path / "key"}"\n')
    for one, until in ((calm, 1), (calm, 2), (config, 1)):
        dpstream("run", one, "--until", until, "--test-seed", 5)
    done = subprocess.run([sys.executable, "-c", INSIDE, str(config)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    for day in (1,) if late == "error" else (0, 1):  # of the step that was begun, and of a released one
        db.execute(insert, (FIRST + datetime.timedelta(day), "insert", "a", True, "x", "u1"))
    if moved:
        dpstream("store", "key", "--out", tmp_path / "new")
        dpstream("store", "rekey", config, "--to", tmp_path / "new")
        config.write_text(config.read_text().replace('key"\n', 'new"\n'))
    dpstream("store", "check", config)
    dpstream("run", config, "--until", 2, "--test-seed", 5)
    for one in (calm, config):
        if late == "error":
            stopped = dpstream("run", one, "--no-recheck", code=2).stderr
            assert "a released step" in stopped
        else:
            dpstream("run", one, "--test-seed", 5)
            assert status(one)["steps"] == DAYS
    first, second = (
        {name: data for name, data in released(one.parent).items() if name.endswith("table.csv")}
        for one in (calm, config)
    )
    assert first == second


def test_no_password_and_no_value_is_written_anywhere(
    server: Cluster, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role of its own, with no more rights than the guide says."""
    password = "Hidden/pass@word"
    db.execute("DROP ROLE IF EXISTS dpreader")
    db.execute(f"CREATE ROLE dpreader LOGIN REPLICATION PASSWORD '{password}'".encode())
    db.execute("GRANT SELECT ON t, f TO dpreader")
    fill_table(db, rows())
    db.execute("INSERT INTO t VALUES ('2026-01-05', 'insert', %s, true, 'x', 'u1')", (SECRET,))
    monkeypatch.setenv(
        "SOURCE_URL", f"postgresql://dpreader:Hidden%2Fpass%40word@/postgres?host={server.home}"
    )
    table = {"kind": '"postgres"', "url_env": '"SOURCE_URL"', "table": '"t"', "time_column": '"at"'}
    output = ""
    for name, settings in (
        ("table", {**CALENDAR, **table, "op_column": '"op"'}),
        ("changes", {**CHANGES, "url_env": '"SOURCE_URL"'}),
    ):
        config = settled(make(tmp_path / name, 0, **settings))
        if name == "table":
            output += dpstream("run", config, code=2).output
            db.execute("DELETE FROM t WHERE zip = %s", (SECRET,))
        for verb in ("check", "plan", "run", "status"):
            output += dpstream(verb, config).output
    for path in tmp_path.rglob("*"):
        if path.is_file():
            output += path.read_bytes().decode("latin-1")
    for word in (password, "Hidden%2Fpass%40word", SECRET):
        assert word not in output
    for url in ("postgresql://a:b@h/d", "mysql://h/d", "postgresql://h/d?password=b"):
        wrong = make(tmp_path / "wrong", 0, **{**CHANGES, "url": f'"{url}"'})
        assert "url" in dpstream("plan", wrong, code=2).stderr
    db.execute("DROP OWNED BY dpreader; DROP ROLE dpreader")


def test_the_guides_statements_are_enough(server: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run as they stand; the role they make can read both kinds, and nothing else was granted."""
    guide = Path(__file__).resolve().parents[2] / "docs/guide"
    page = "".join(
        (guide / name).read_text(encoding="utf-8") for name in ("postgres.md", "postgres-changes.md")
    )
    column, replicate, drop = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    tables = re.findall(r"```toml\n\[source\]\n(.*?)```", page, re.DOTALL)
    tables = [text for text in tables if "key_column" not in text]
    monkeypatch.setattr(replication, "commit_day", lambda _: FIRST_DAY_NUMBER)
    with server.connect() as db:
        db.execute("CREATE TABLE notices (file_date DATE NOT NULL, op TEXT, zip TEXT)")
        db.execute("INSERT INTO notices VALUES ('2026-01-05', 'insert', 'old')")
        for statement in (column + replicate).split(";\n")[:-1]:
            db.execute(statement.encode())
        db.execute("INSERT INTO notices VALUES ('2026-01-06', 'insert', 'new')")
        found = []
        for text in tables:
            given = {**tomllib.loads(text), "url": f"postgresql://dpreader@/postgres?host={server.home}"}
            more = {"late": "next-step", "xid_column": "tx"} if given["kind"] == "postgres" else {}
            source = source_of({**given, **more}, columns=["zip"])
            first = next(iter(source.steps()))
            found.append(first.inserts["zip"].to_pylist())
            source.committed(source.position)
        assert found == [["old", "new"], ["new"]]
        db.execute(drop.encode())
        db.execute("DROP PUBLICATION dpstream; DROP TABLE notices; DROP ROLE dpreader")


def test_a_stop_while_waiting_leaves_a_clean_state(
    server: Cluster, db: psycopg.Connection, tmp_path: Path
) -> None:
    """Ctrl-C while an open transaction is waited for; then the same command goes on."""
    fill_table(db, [record for record in rows() if record[1] == "insert"])
    table = {"kind": '"postgres"', "url": f'"{server.url}"', "table": '"t"', "time_column": '"at"'}
    config = make(tmp_path, 0, **CALENDAR, **table)
    with server.connect() as slow:
        slow.execute("BEGIN")
        slow.execute("INSERT INTO t VALUES ('2026-01-05', 'insert', 'a', true, 'x', 'slow')")
        command = [sys.executable, "-m", "dpstream", "run", str(config)]
        running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
        assert running.stderr is not None
        assert "waiting for open transactions" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait() == 5
        running.stderr.close()
        slow.execute("COMMIT")
    assert "4 new steps, 4 in all" in dpstream("run", config).stdout
