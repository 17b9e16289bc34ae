"""Which commits wait for the disk."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from fault_harness import outcome
from toy_stream import batch, start

from dpstream.core import durable
from dpstream.core.privacy import Randomness


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
        # As after a loss of power that took the last mark back: it is all there is in the log since the commit.
        files = stream._store._db.execute("SELECT name FROM files WHERE step = 2").fetchall()
        released = outcome(tmp_path)
        names = [name for (name,) in files]
        stored = {name: (tmp_path / "releases" / "step-000002" / name).read_bytes() for name in names}
    db = sqlite3.connect(tmp_path / "state" / "stream.sqlite")
    db.execute("UPDATE steps SET publication = 'pending' WHERE step = 2")
    for name, data in stored.items():
        db.execute("UPDATE files SET bytes = ? WHERE step = 2 AND name = ?", (data, name))
    db.commit()
    db.close()
    with start(tmp_path) as stream:
        assert outcome(tmp_path) == released
        assert stream.release(2).step == stream.step(batch(2), "b2").step == 2
        assert stream._store.in_publication("pending") == []
