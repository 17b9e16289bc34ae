"""Damage: places, rolled-back and edited stores, foreign releases, other formats; what SQLite's file promises;
file systems that cannot lock, a folder behind a link, and which commits wait."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import sqlite3
import stat
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_harness import failing_with, in_child, outcome, sql
from toy_stream import SCHEMA, ToyPlan, batch, run, start

from dpstream import User, errors
from dpstream.core import durable
from dpstream.core.errors import StoreError
from dpstream.core.privacy import Randomness
from dpstream.io.sinks import Publisher, read_catalogue, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.stream import Batch, StatePermissionWarning, Stream, open_stream, read_status, verify_ledger
from dpstream.stream.inspection import check_store
from dpstream.stream.release.publishing import Publishing
from dpstream.stream.store import lock
from dpstream.stream.store import store_database as database
from dpstream.stream.store.lock import NetworkFileSystemWarning, network_file_system
from dpstream.stream.store.sealed_history import row_seal
from dpstream.stream.store.store import Store


def test_a_seal_knows_where_each_column_ends() -> None:
    rows = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (1, 23), (12, 3), ("1", 23), (None, 3)]
    assert len({row_seal(b"key", b"start", row) for row in rows}) == len(rows)


def test_places(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(errors.ConfigError, match="expected a directory"):
        open_stream(ToyPlan(), SCHEMA, tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    with pytest.raises(errors.ConfigError, match=r"thesis\.tex"):
        open_stream(ToyPlan(), SCHEMA, tmp_path / "full")
    for state, public in (("a", "a"), ("a/state", "a"), ("b", "b/releases")):
        with pytest.raises(errors.ConfigError, match="inside each other"):
            open_stream(ToyPlan(), SCHEMA, tmp_path / state, publish_to=Publisher(tmp_path / public))


def test_a_log_that_was_lost_after_a_crash_is_noticed(tmp_path: Path) -> None:
    """SQLite drops a damaged log silently and falls back to older content: the head file tells."""
    with start(tmp_path, publish=False) as stream:
        stream.step(batch(1), "a")
        stream.step(batch(2), "b")
        shutil.copytree(tmp_path / "state", tmp_path / "crashed")
    log = tmp_path / "crashed" / "stream.sqlite-wal"
    good = log.read_bytes()
    for broken in (b"", good[: len(good) // 2], good[:-1], b"\0" * len(good)):
        log.write_bytes(broken)
        (tmp_path / "crashed" / "stream.sqlite-shm").unlink(missing_ok=True)
        shutil.copytree(tmp_path / "crashed", tmp_path / "state", dirs_exist_ok=True)
        with pytest.raises(errors.StoreDamagedError, match=r"head\.json knows step 2"):
            start(tmp_path, publish=False)
    log.write_bytes(good)
    shutil.copytree(tmp_path / "crashed", tmp_path / "state", dirs_exist_ok=True)
    with start(tmp_path, publish=False) as stream:
        assert stream.last_step == 2


def test_what_no_hash_covers_in_catalogue_and_codebook_is_mended(tmp_path: Path) -> None:
    """And a step that waits to be published is not listed before it is there."""
    path, book = (tmp_path / "releases" / f"{name}.json" for name in ("catalogue", "codebook"))
    run(tmp_path, 3, keep=2)
    good, said = path.read_bytes(), book.read_bytes()
    for damaged in (said[:-9], said.replace(b"zip", b"zap"), b""):
        book.write_bytes(damaged)
        start(tmp_path, keep=2).close()
        assert book.read_bytes() == said
    for old, new in ((b'"kept": true', b'"kept": fals'), (b"full", b"fuln"), (b"plan_hash", b"plan_hasi")):
        path.write_bytes(good.replace(old, new).replace(b'"kept": fals,', b'"kept": false,'))
        assert path.read_bytes() != good
        start(tmp_path, keep=2).close()
        assert path.read_bytes() == good
    seen: list[bytes] = []

    class Failing(Publisher):
        def put(self, files: object, *, mend: bool = False) -> None:
            seen.append(path.read_bytes())
            raise OSError(28, "No space left on device")

    def opened() -> Stream:
        sink, policy = Failing(tmp_path / "releases"), Publishing(keep=2)
        return open_stream(ToyPlan(), SCHEMA, tmp_path / "state", publish_to=sink, publishing=policy)

    with opened() as stream, pytest.raises(errors.StoreError, match="No space left"):
        stream.step(batch(4), "b4")
    path.write_bytes(good.replace(b'"kept": false', b'"kept": true', 1))
    with pytest.raises(errors.StoreError, match="No space left"):
        opened()
    listed = [entry["step"] for entry in json.loads(seen[-1])["steps"]]
    assert listed == [1, 2, 3], "step 4 is committed and not there yet"
    start(tmp_path, keep=2).close()
    assert [entry["step"] for entry in json.loads(path.read_bytes())["steps"]] == [1, 2, 3, 4]


def test_changed_manifests_are_refused(tmp_path: Path) -> None:
    run(tmp_path, 1)
    manifest = tmp_path / "releases" / "step-000001" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"step": 1', b'"step": 9'))
    with pytest.raises(errors.StoreDamagedError, match="manifest and catalogue differ"):
        start(tmp_path)


def test_flipped_and_cut_bytes_are_found_or_harmless(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A flipped byte of the store either stops the stream or touches nothing that it reads."""
    run(tmp_path, 3, publish=False)
    old_mask = os.umask(0o077)
    request.addfinalizer(lambda: os.umask(old_mask))
    state = tmp_path / "state"
    good = (state / "stream.sqlite").read_bytes()

    def content() -> object:
        with start(tmp_path, publish=False) as stream:
            kept = [stream.release(step) for step in (1, 2, 3)]
            return (
                stream._state.true.tolist(),
                stream._state.noise.tolist(),
                stream.spent,
                [(r.manifest, r.batch_id, r.sample().to_pydict()) for r in kept],
            )

    expected = content()
    generator = np.random.default_rng(3)
    schema = [i for i, byte in enumerate(good[:8192]) if i >= 100 and byte]
    found = 0
    for position in [*generator.integers(0, len(good), 150), *generator.choice(schema, 100)]:
        broken = bytearray(good)
        broken[position] ^= 1 << int(generator.integers(8))
        for leftover in state.glob("stream.sqlite-*"):
            leftover.unlink()
        (state / "stream.sqlite").write_bytes(broken)
        for look in (
            lambda: check_store(state, None),
            partial(read_status, state),
            partial(verify_ledger, state),
        ):
            with contextlib.suppress(errors.StoreError, errors.ConfigError):
                look()
        try:
            assert content() == expected, position
        except (errors.StoreError, errors.ConfigError):
            found += 1
    assert found > 10, "the flips hit something"
    for length in (0, 100, len(good) // 2, len(good) - 4096):
        (state / "stream.sqlite").write_bytes(good[:length])
        with pytest.raises(errors.StoreDamagedError):
            start(tmp_path, publish=False)
    (state / "stream.sqlite").unlink()

    def refused(words: str) -> None:
        with pytest.raises(errors.StoreDamagedError, match=words):
            start(tmp_path, publish=False)

    refused("the store is gone")
    (state / "stream.sqlite").write_bytes(good)
    (state / "head.json").write_text("{}")
    refused(r"head\.json cannot be read")
    (state / "head.json").unlink()
    refused(r"head\.json is missing")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM steps WHERE step = 2",
        "DELETE FROM steps WHERE step = 3",
        "UPDATE steps SET spent = '1/2' WHERE step = 1",
        "UPDATE latest SET step = 2 WHERE name = 'state'",
        "UPDATE latest SET value = substr(value, 2) WHERE name = 'state'",
        "UPDATE meta SET value = x'00' WHERE key = 'stream_id'",
        "DELETE FROM meta WHERE key = 'key'",
        "INSERT INTO latest VALUES ('reservation', 9, x'00', x'00')",
        "DELETE FROM latest WHERE name = 'state'",
        "PRAGMA user_version = 0",
    ],
)
def test_edited_stores_are_refused(tmp_path: Path, statement: str) -> None:
    run(tmp_path, 3, publish=False)
    sql(tmp_path, statement)
    with pytest.raises(errors.StoreDamagedError), start(tmp_path, publish=False) as stream:
        stream.step(batch(4), "b4")


@pytest.mark.parametrize("away", [-1, 1])
def test_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: int) -> None:
    run(tmp_path, 1, publish=False)
    before = (tmp_path / "state" / "stream.sqlite").read_bytes()
    monkeypatch.setattr(database, "STORE_FORMAT", database.STORE_FORMAT + away)
    with pytest.raises(errors.StoreFormatError, match="a newer version" if away < 0 else "an older version"):
        start(tmp_path, publish=False)
    assert (tmp_path / "state" / "stream.sqlite").read_bytes() == before


def flipped(value: object, bit: int) -> object:
    """A stored value with one bit changed; None where that is no value of its type."""
    if isinstance(value, int):
        return value ^ (1 << bit % 3)
    data = bytearray(value.encode() if isinstance(value, str) else value)
    if not data:
        return None
    data[7 * bit % len(data)] ^= 1 << bit % 7
    try:
        return data.decode() if isinstance(value, str) else bytes(data)
    except UnicodeDecodeError:
        return None


def test_a_flipped_bit_anywhere_is_told(tmp_path: Path) -> None:
    """In every column of every table: the check of the store says so, and nothing else is raised."""
    home, copy = tmp_path / "home", tmp_path / "copy"
    users = ToyPlan(unit=User(2))

    def whose(step: int) -> Batch:
        return Batch({**batch(step).inserts, "person": [f"u{k % 7}" for k in range(40)]}, users="person")

    with start(home, plan=users, keep=1) as stream:
        for step in (1, 2, 3):
            stream.step(whose(step), f"b{step}", position={"rows": 40 * step})
        stream.withdraw(3, "a test")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Stream, "_prepare", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                stream.step(whose(4), "b4", position={"rows": 160})
    assert check_store(home / "state", home / "releases").problems == ()
    good = home / "state" / "stream.sqlite"
    shutil.copytree(home, copy)
    bad, seen, silent = copy / "state" / "stream.sqlite", set(), set()

    def told() -> bool:
        try:
            return bool(check_store(copy / "state", copy / "releases").problems)
        except errors.StoreError:
            return True

    with closing(sqlite3.connect(good)) as db:
        db.row_factory = sqlite3.Row
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            keys = [column["name"] for column in db.execute(f"PRAGMA table_info({table})") if column["pk"]]
            where = " AND ".join(f"{key} = ?" for key in keys)
            for row in map(dict, db.execute(f"SELECT * FROM {table}")):
                for bit, (column, value) in enumerate(row.items(), start=len(seen)):
                    new = None if value is None else flipped(value, bit)
                    if new is None:
                        continue
                    shutil.copy(good, bad)
                    with closing(sqlite3.connect(bad)) as broken:
                        change = f"UPDATE {table} SET {column} = ? WHERE {where}"
                        try:
                            broken.execute(change, (new, *(row[key] for key in keys)))
                        except sqlite3.Error:  # a second row of a table of one
                            continue
                        broken.commit()
                    seen.add((table, column))
                    if not told():
                        silent.add((table, column))
    assert silent == set()
    assert {"steps", "log", "latest", "users"} <= {table for table, _ in seen}


# SQLite's file: its settings, its lock, its permissions and its size.


@pytest.mark.parametrize("error", [KeyboardInterrupt(), sqlite3.OperationalError("disk I/O error")], ids=repr)
def test_after_a_commit_that_failed_only_a_new_opening_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """COMMIT took effect, and its caller never heard: the object refuses, the store knows."""
    commit = durable.commit
    with start(tmp_path) as stream:
        stream.step(batch(1), "b1")

        def late(db: Any) -> None:
            commit(db)
            if db.execute("SELECT count(*) FROM steps").fetchone() == (2,):
                raise error

        with monkeypatch.context() as patch:
            patch.setattr(durable, "commit", late)
            with pytest.raises((KeyboardInterrupt, errors.StoreError)):
                stream.step(batch(2), "b2")
        with pytest.raises(errors.StoreError, match="effect is not known"):
            stream.step(batch(3), "b3")
    with start(tmp_path) as stream:
        assert stream.last_step == 2
        assert stream._state.step == 2


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with start(tmp_path) as stream:
        with pytest.raises(errors.StoreLockedError, match="another process"):
            start(tmp_path)
        assert in_child(lambda: stream.step(batch(1), "from the child")) == errors.StoreError.exit_code
    with start(tmp_path, publish=False) as stream:
        assert stream.last_step == 0
    with pytest.raises(errors.StoreError, match="closed"):
        stream.step(batch(1), "x")


def test_the_keep_policy_bounds_the_disk(tmp_path: Path) -> None:
    with start(tmp_path, keep=2) as stream:
        sizes = []
        for step in range(1, 31):
            stream.step(batch(1), f"b{step}")
            sizes.append((tmp_path / "state" / "stream.sqlite").stat().st_size)
        assert stream.release().sample(rows=3).num_rows == 3
        with pytest.raises(errors.ConfigError, match="model of step 28 was dropped"):
            stream.release(28).sample()
        assert stream.release(28).manifest["step"] == 28
    releases = tmp_path / "releases"
    assert sorted(p.parent.name for p in releases.glob("*/table.parquet")) == ["step-000029", "step-000030"]
    assert len(list(releases.glob("*/manifest.json"))) == 30
    assert [e["kept"] for e in read_catalogue(releases)["steps"]] == [False] * 28 + [True] * 2
    with pytest.raises(errors.ConfigError, match="keep policy dropped"):
        read(releases, 3)
    assert read(releases).num_rows == read_manifest(releases, 30)["rows"]
    kept = "SELECT count(*) FROM files WHERE bytes IS NOT NULL AND name <> 'measurements.ndjson'"
    assert sql(tmp_path, kept) == [(0,)], "tables are not stored twice"
    assert sql(tmp_path, "SELECT count(*) FROM steps WHERE synthesis IS NOT NULL") == [(2,)]


def test_the_state_is_for_its_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        run(tmp_path, 1)
    finally:
        os.umask(old)
    state = tmp_path / "state"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in state.iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / "releases" / "step-000001" / "table.parquet").stat().st_mode) == 0o644
    state.chmod(0o755)
    (state / "stream.sqlite").chmod(0o644)
    with pytest.warns(StatePermissionWarning) as caught:
        start(tmp_path).close()
    assert len(caught) == 2
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "stream.sqlite").stat().st_mode) == 0o600


def test_a_reservation_that_cannot_be_withdrawn_is_still_told(tmp_path: Path) -> None:
    """A failure that cannot be recorded: ``test_a_failure_after_drawing_is_decided_by_hand``."""

    with start(tmp_path) as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ToyPlan, "step", lambda *_: 1 / 0)
        patch.setattr(Store, "release_reservation", failing_with(errors.StoreError("the disk is full")))
        with pytest.raises(ZeroDivisionError) as caught:
            stream.step(batch(1), "a")
    (note,) = caught.value.__notes__
    assert re.search("withdrawn.*the disk is full", note)
    status = read_status(tmp_path / "state")
    assert (status.last_step, status.reserved, status.failed) == (0, 1, None)
    with start(tmp_path) as stream:  # the documented gap: as after a kill
        with pytest.raises(errors.StepError, match="reserved for the batch 'a'"):
            stream.step(batch(2), "b")
        assert stream.step(batch(1), "a").step == 1


# File systems that cannot lock, a folder behind a link, and which commits wait


MOUNTS = """\
1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
2 1 0:30 / /srv rw - nfs4 server:/export rw,local_lock=none
3 2 8:2 / /srv/fast rw master:1 shared:2 - xfs /dev/sdb1 rw
4 1 0:31 / /media/ann/my\\040drive rw - fuse.sshfs ann@server: rw
5 1 0:32 / /over rw - ext4 /dev/sdc rw
6 1 0:33 / /over rw - cifs //server/share rw
damaged line
"""


def test_the_innermost_mount_counts() -> None:
    for path, kind in (
        ("/var/lib/state", None),
        ("/srv", "nfs4"),
        ("/srv/state", "nfs4"),
        ("/srv/fast/state", None),
        ("/srvx/state", None),
        ("/over/state", "cifs"),
        ("/media/ann/my drive/state", "fuse.sshfs"),
    ):
        assert network_file_system(Path(path), MOUNTS) == kind, path


def test_a_network_file_system_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"1 0 8:1 / / rw - ext4 x rw\n2 1 0:9 / {tmp_path.resolve()} rw - nfs server:/x rw\n")
    monkeypatch.setattr(lock, "_MOUNTS", mounts)
    with pytest.warns(NetworkFileSystemWarning, match="nfs may lack locks"):
        start(tmp_path).close()
    monkeypatch.setattr(lock, "_MOUNTS", tmp_path / "none")
    start(tmp_path).close()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", failing_with(OSError(number, os.strerror(number))))
    with pytest.raises(StoreError, match="cannot be locked"):
        start(tmp_path)


def test_a_linked_state_is_for_its_owner_only(tmp_path: Path) -> None:
    """The folder is repaired like any other, and a linked file in it is refused."""
    elsewhere = tmp_path / "disk"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    (tmp_path / "state").symlink_to(elsewhere, target_is_directory=True)
    with pytest.warns(StatePermissionWarning, match="0755"):
        run(tmp_path, 1)
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o700
    assert {stat.S_IMODE(entry.lstat().st_mode) for entry in elsewhere.iterdir()} == {0o600}
    sides = ("stream.sqlite-wal", "stream.sqlite-shm", "stream.sqlite.charge")
    for name in ("stream.sqlite", "head.json", *sides):
        entry, kept, target = elsewhere / name, tmp_path / f"kept-{name}", tmp_path / "open"
        content = entry.read_bytes() if entry.exists() else b""
        if entry.exists():
            entry.rename(kept)
        for there in (True, False):
            if there:
                target.write_bytes(content)
                target.chmod(0o666)
            entry.symlink_to(target)
            with pytest.raises(StoreError, match="got a link"):
                start(tmp_path)
            assert target.exists() == there
            if there:
                assert target.read_bytes() == content
                target.unlink()
            entry.unlink()
        if kept.exists():
            kept.rename(entry)
    os.mkfifo(elsewhere / "stream.sqlite-odd")
    with pytest.raises(StoreError, match="a link or a folder"):
        start(tmp_path)
    (elsewhere / "stream.sqlite-odd").unlink()
    with start(tmp_path) as stream:
        assert stream.last_step == 1


def test_reservation_and_step_are_on_the_disk_when_their_commits_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the note that a step is published is not fsynced by itself: lost, the same bytes are published again."""
    levels: list[int] = []
    commit = durable.commit

    def seen(connection: durable.Transaction) -> None:
        levels.append(connection.execute("PRAGMA synchronous").fetchone()[0])
        commit(connection)

    with start(tmp_path, randomness=Randomness.seeded(1)) as stream:
        monkeypatch.setattr(durable, "commit", seen)
        stream.step(batch(1), "b1")
        stream.step(batch(2), "b2")
        full, normal = 2, 1
        assert levels == [full, full, normal] * 2
        assert stream._store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        # As after a loss of power that took the last mark back: it is all there is in the log since the commit.
        files = stream._store._db.execute("SELECT name FROM files WHERE step = 2").fetchall()
        released = outcome(tmp_path)
        names = [name for (name,) in files]
        stored = {name: (tmp_path / "releases" / "step-000002" / name).read_bytes() for name in names}
    sql(tmp_path, "UPDATE steps SET publication = 'pending' WHERE step = 2")
    for name, data in stored.items():
        sql(tmp_path, "UPDATE files SET bytes = ? WHERE step = 2 AND name = ?", data, name)
    with start(tmp_path) as stream:
        assert outcome(tmp_path) == released
        assert stream.release(2).step == stream.step(batch(2), "b2").step == 2
        assert stream._store.in_publication("pending") == []
