"""State on the disk: file systems that cannot lock, a folder behind a link, and which commits wait."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest
from fault_harness import database, outcome
from toy_stream import batch, run, start

from dpstream.core import durable
from dpstream.core.errors import StoreError
from dpstream.core.privacy import Randomness
from dpstream.stream import StatePermissionWarning
from dpstream.stream.store import lock
from dpstream.stream.store.lock import NetworkFileSystemWarning, network_file_system

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
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
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
    with database(tmp_path) as db:
        db.execute("UPDATE steps SET publication = 'pending' WHERE step = 2")
        for name, data in stored.items():
            db.execute("UPDATE files SET bytes = ? WHERE step = 2 AND name = ?", (data, name))
    with start(tmp_path) as stream:
        assert outcome(tmp_path) == released
        assert stream.release(2).step == stream.step(batch(2), "b2").step == 2
        assert stream._store.in_publication("pending") == []
