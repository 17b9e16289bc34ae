"""Migrations that are stopped: the store is in the old format, untouched, or in the newest."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from fault_harness import faulty, full_disk, in_child, kill
from postgres_server import Cluster
from toy_stream import SCHEMA, ToyPlan, batch

from dpstream.core import durable
from dpstream.core.errors import StoreError
from dpstream.core.privacy import User
from dpstream.io.sinks import Publisher
from dpstream.stream import Batch, PostgresServer, StateKey, Stream, open_stream
from dpstream.stream.store import archive, sqlite
from dpstream.stream.store import store_database as database
from dpstream.stream.store.archive import export_store, import_store
from dpstream.stream.store.postgres import PostgresDatabase
from dpstream.stream.store.rekey import rekey_store
from dpstream.stream.store.sqlite import SQLiteDatabase
from dpstream.stream.store.upkeep import check_store, migrate_store

STORED = sorted((Path(__file__).parent / "data").glob("format-*.tar.xz"))


def unpack(stored: Path, home: Path) -> int:
    """The stored state, and its format."""
    with tarfile.open(stored) as packed:
        packed.extractall(home, filter="data")
    (home / "state").chmod(0o700)
    for file in (home / "state").iterdir():
        file.chmod(0o600)
    return int(re.findall(r"\d+", stored.name)[0])


def go_on(home: Path, server: PostgresServer | None = None) -> Stream:
    sink = Publisher(home / "releases", format="csv")
    return open_stream(
        ToyPlan(), SCHEMA, home / "state", name="stored", publish_to=sink, keep=2, server=server
    )


def content(home: Path) -> list[str]:
    """Format, tables and rows: everything that the version which wrote it can see."""
    db = sqlite3.connect(home / "state" / "stream.sqlite")
    header = [str(db.execute(f"PRAGMA {name}").fetchone()) for name in ("user_version", "application_id")]
    found = header + list(db.iterdump())
    db.close()
    return found


def opened(home: Path) -> None:
    with go_on(home):
        pass


def by_the_verb(home: Path) -> None:
    migrate_store(home / "state")


def halfway(db: SQLiteDatabase, version: int, commit: Callable[[SQLiteDatabase], None]) -> None:
    """Negative control: one commit for the tables and one for the format."""
    db.begin()
    for number in range(version, database.STORE_FORMAT):
        database.MIGRATIONS[number](db)
    commit(db)
    db.begin()
    db.set_format(database.STORE_FORMAT)
    commit(db)


def stops(work: Callable[[Path], None], home: Path, at: int) -> int:
    """Exit status of ``work`` that is killed before durability call ``at``."""

    def disturbed() -> None:
        with faulty(at, kill):
            work(home)

    return in_child(disturbed)


@pytest.mark.parametrize("work", [opened, by_the_verb], ids=["by opening", "by the verb"])
@pytest.mark.parametrize("stored", STORED, ids=lambda path: path.name[:8])
def test_killed_before_every_durability_call_of_a_migration(
    tmp_path: Path, stored: Path, work: Callable[[Path], None]
) -> None:
    unpack(stored, tmp_path / "made")
    before = content(tmp_path / "made")
    shutil.copytree(tmp_path / "made", tmp_path / "whole")
    with faulty(None, kill) as calls:
        work(tmp_path / "whole")
    after = content(tmp_path / "whole")
    assert "commit" in calls
    unchanged = 0
    for at in range(1, len(calls) + 1):
        home = tmp_path / str(at)
        shutil.copytree(tmp_path / "made", home)
        assert stops(work, home, at) == -signal.SIGKILL
        found = content(home)
        assert found in (before, after)
        unchanged += found == before
        work(home)
        assert content(home) == after
        migrate_store(home / "state")
        assert [path.name for path in (home / "state").glob(".*")] == []
        assert check_store(home / "state", home / "releases").problems == ()
        with go_on(home) as stream:
            assert stream.step(batch(4), "b4").step == 4
            assert stream._state.true.sum() == 154
    assert unchanged >= calls.index("commit") + 1


def test_killed_between_the_statements_of_a_migration(tmp_path: Path) -> None:
    version = unpack(STORED[0], tmp_path / "made")
    before = content(tmp_path / "made")
    added = sum(
        len(list(database.statements(database.DEFINITIONS[n]))) for n in range(2, database.STORE_FORMAT + 1)
    )
    assert version == 1
    for at in range(1, added + 1):
        home = tmp_path / str(at)
        shutil.copytree(tmp_path / "made", home)

        def work(home: Path = home, at: int = at) -> None:
            done = [0]

            def counted(definitions: str) -> object:
                for statement in original(definitions):
                    done[0] += 1
                    if done[0] == at:
                        os.kill(os.getpid(), signal.SIGKILL)
                    yield statement

            original = sqlite.statements
            sqlite.statements = counted  # type: ignore[assignment]  (in a forked child)
            opened(home)

        assert in_child(work) == -signal.SIGKILL
        assert content(home) == before
        opened(home)


def test_a_migration_on_a_full_disk_is_a_clear_error(tmp_path: Path) -> None:
    unpack(STORED[-1], tmp_path)
    before = content(tmp_path)
    with faulty(1, full_disk), pytest.raises(StoreError, match="full"):
        opened(tmp_path)
    assert content(tmp_path) == before
    opened(tmp_path)


def test_a_migration_in_two_commits_is_caught(tmp_path: Path) -> None:
    """The negative control: tables of the newest format under the number of the old one."""
    unpack(STORED[0], tmp_path)
    before = content(tmp_path)
    db = SQLiteDatabase(tmp_path / "state" / "stream.sqlite")
    commits = []

    def commit(connection: SQLiteDatabase) -> None:
        durable.commit(connection)
        db.close()
        commits.append(content(tmp_path))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        halfway(db, 1, commit)
    assert commits[0] != before
    assert commits[0][0] == before[0], "an old version would open it"


def test_a_migration_on_a_server_is_one_transaction(
    tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of the first format is put on the server as it is; its migration is killed before its commit."""
    server = PostgresServer(postgres.url, "t_migrates")
    unpack(STORED[0], tmp_path)
    with monkeypatch.context() as patch:  # an archive of a store that moved, in the old format
        patch.setattr(database, "STORE_FORMAT", 3)
        export_store(tmp_path / "state", tmp_path / "moved", move=True)
    with open_stream(ToyPlan(), SCHEMA, tmp_path / "for its facts", name="stored") as stream:
        pinned = dict(stream._facts)
    with monkeypatch.context() as patch:  # an import migrates in its own transaction
        patch.setattr(archive, "upgrade", lambda db, version: None)
        patch.setattr(archive, "unlock", lambda db, version, key: None)
        patch.setattr(archive, "Store", lambda *_, **__: contextlib.nullcontext(SimpleNamespace(last_step=3)))
        import_store(tmp_path / "moved", tmp_path / "state", pinned, server=server)

    def version() -> int:
        return int(postgres.execute(f"SELECT format FROM {server.schema}.store_format")[0][0])

    def killed() -> None:
        real = PostgresDatabase.set_format

        def set_format(db: PostgresDatabase, number: int) -> None:
            real(db, number)
            if number == database.STORE_FORMAT:
                os.kill(os.getpid(), signal.SIGKILL)

        PostgresDatabase.set_format = set_format  # type: ignore[method-assign]  (in a forked child)
        with go_on(tmp_path, server):
            pass

    assert in_child(killed) == -signal.SIGKILL
    assert version() == 3
    tables = postgres.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", server.schema)
    assert ("times",) not in tables
    with go_on(tmp_path, server) as stream:
        assert stream.step(batch(4), "b4").step == 4
    assert version() == database.STORE_FORMAT


def test_a_copy_in_an_old_format_replaces_a_lost_store(tmp_path: Path) -> None:
    unpack(STORED[0], tmp_path)
    _, _, copy = migrate_store(tmp_path / "state")
    assert copy is not None
    copy.rename(tmp_path / "copy")
    for left in (tmp_path / "state").glob("stream.sqlite*"):
        left.unlink()
    with open_stream(ToyPlan(), SCHEMA, tmp_path / "for its facts", name="stored") as stream:
        pinned = dict(stream._facts)
    assert import_store(tmp_path / "copy", tmp_path / "state", pinned) == 3
    with go_on(tmp_path) as stream:
        stream.discard_reservation()
        assert stream.step(batch(4), "b4").step == 4
    assert check_store(tmp_path / "state", tmp_path / "releases").problems == ()


@pytest.mark.parametrize("key", [None, StateKey.generate()], ids=["plain", "encrypted"])
def test_counters_of_users_of_format_5_open_for_ever(tmp_path: Path, key: StateKey | None) -> None:
    """Nine users, 18 events of at most two each admitted, 102 left out; made once by the version of its time."""
    assert unpack(STORED[0].with_name("users-5.tar.xz"), tmp_path) == 5
    if key is not None:
        rekey_store(tmp_path / "state", old=None, new=key)

    def opened() -> Stream:
        plan = ToyPlan(unit=User(2))  # type: ignore[arg-type]
        sink = Publisher(tmp_path / "releases", format="csv")
        return open_stream(plan, SCHEMA, tmp_path / "state", name="stored", publish_to=sink, keep=1, key=key)

    def step(stream: Stream, number: int) -> None:
        frame = {**batch(number).inserts, "person": [f"user-{i % 7 + number}" for i in range(40)]}
        stream.step(Batch(frame, users="person"), f"b{number}", position={"rows": 40 * number})

    with opened() as stream:
        assert (stream._state.true.sum(), stream.dropped_events) == (18, 102)
        assert stream.position == {"rows": 120}
        step(stream, 3)
        assert stream.last_step == 3, "the stored fingerprint and the marks of users still fit"
        step(stream, 4)
        # Users 4 to 9 are at their bound; user 10 is new.
        assert (stream._state.true.sum(), stream.dropped_events) == (20, 140)
    assert check_store(tmp_path / "state", tmp_path / "releases", key=key).problems == ()


def test_a_store_of_the_format_before_is_looked_into_without_a_migration(tmp_path: Path) -> None:
    (stored,) = (path for path in STORED if path.name.startswith("format-11"))
    unpack(stored, tmp_path)
    assert check_store(tmp_path / "state", None).problems == ()
    with contextlib.closing(sqlite3.connect(tmp_path / "state" / "stream.sqlite")) as db:
        db.execute("INSERT INTO decisions VALUES (1, 1, 'approved', 'eve', '2026-01-01', x'00')")
        db.commit()
    assert len(check_store(tmp_path / "state", None).problems) == 1
