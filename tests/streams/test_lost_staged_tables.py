"""Large tables whose staged files are gone, where the program would write other bytes now: another pyarrow."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from fault_harness import sql
from toy_stream import batch, start

from dpstream.core import durable
from dpstream.core.errors import StoreError
from dpstream.core.privacy import Randomness
from dpstream.io.sinks import read_catalogue
from dpstream.stream import Publishing, StateKey, Stream
from dpstream.stream.release import table_blocks
from dpstream.stream.release.render import NotMadeError
from dpstream.stream.store.upkeep import rekey_store

KEYS = (None, StateKey(b"a" * 32), StateKey(b"b" * 32))
HOLD = Publishing(approve=True)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_blocks, "BLOCK", 8)


@pytest.fixture
def other_bytes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From the call on, Parquet files get other bytes."""

    class Other(pyarrow.parquet.ParquetWriter):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **{**options, "compression": "snappy"})

    return lambda: monkeypatch.setattr(pyarrow.parquet, "ParquetWriter", Other)


def opened(home: Path, **options: Any) -> Stream:
    return start(home, randomness=Randomness.seeded(1), **options)


def publication(home: Path) -> list[str]:
    return [state for (state,) in sql(home, "SELECT publication FROM steps ORDER BY step")]


def set_pending(home: Path, after: int = 0) -> None:
    """What a loss of power leaves of the marks that steps were published."""
    sql(home, "UPDATE steps SET publication = 'pending' WHERE step > ?", after)


def listed(home: Path) -> list[tuple[int, str]]:
    """The steps of the catalogue, and what is there of each."""
    return [(entry["step"], entry["state"]) for entry in read_catalogue(home / "releases")["steps"]]


def test_a_held_table_that_cannot_be_made_stays_held_and_can_be_rejected(
    tmp_path: Path, other_bytes: Any
) -> None:
    with opened(tmp_path, publishing=HOLD) as stream:
        stream.step(batch(1), "b1")
        stream.step(batch(2), "b2")
    shutil.rmtree(tmp_path / "state" / "staged")
    other_bytes()
    with opened(tmp_path, publishing=HOLD) as stream:
        with pytest.raises(NotMadeError, match=r"table.parquet of step 1 is missing and cannot be"):
            stream.approve()
        assert stream.held() == [1, 2]
        assert stream.decisions() == []
        assert stream.withdraw(1, "lost")
        assert stream.held() == [2]
        assert stream.step(batch(3), "b3").step == 3


def test_a_committed_table_that_cannot_be_made_stops_steps_and_can_be_withdrawn(
    tmp_path: Path, other_bytes: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as stream:
        stream.step(batch(1), "b1")
        stream.step(batch(2), "b2")
    set_pending(tmp_path)
    shutil.rmtree(tmp_path / "releases" / "step-000001")
    other_bytes()
    with opened(tmp_path) as stream:
        assert "step 1 is not published" in caplog.text
        for use in (lambda: stream.step(batch(3), "b3"), stream.publish_again, stream.approve):
            with pytest.raises(NotMadeError, match="dpstream withdraw"):
                use()
        assert stream.last_step == 2
        assert publication(tmp_path) == ["pending", "pending"]
        assert stream.withdraw(1, "lost")
        assert publication(tmp_path) == ["withdrawn", "published"]
        assert listed(tmp_path) == [(1, "withdrawn"), (2, "full")]
        assert stream.step(batch(3), "b3").step == 3


def test_readers_do_not_hear_of_a_step_that_cannot_be_made(tmp_path: Path, other_bytes: Any) -> None:
    with opened(tmp_path) as stream:
        stream.step(batch(1), "b1")
    with opened(tmp_path, publishing=HOLD) as stream:
        stream.step(batch(2), "b2")
    shutil.rmtree(tmp_path / "state" / "staged")
    set_pending(tmp_path, after=1)
    other_bytes()
    with opened(tmp_path) as stream:
        stream.withdraw(1, "a test")
        assert listed(tmp_path) == [(1, "withdrawn")]


def test_a_table_that_is_published_already_is_taken_from_its_folder(tmp_path: Path, other_bytes: Any) -> None:
    with opened(tmp_path) as stream:
        stream.step(batch(1), "b1")
    set_pending(tmp_path)
    other_bytes()
    with opened(tmp_path):
        assert publication(tmp_path) == ["published"]


def held_table(home: Path, key: StateKey | None) -> tuple[str, Path]:
    """The hash of a held table, and where it waits."""
    with opened(home, publishing=HOLD, key=key) as stream:
        digest = stream.step(batch(1), "b1").manifest["files"]["table.parquet"]["sha256"]
    [file] = (home / "state" / "staged").iterdir()
    return digest, file


def published_hash(home: Path) -> str:
    path = home / "releases" / "step-000001" / "table.parquet"
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("new", KEYS, ids=["plain", "a", "b"])
@pytest.mark.parametrize("old", KEYS, ids=["plain", "a", "b"])
def test_another_key_seals_what_waits_anew(
    tmp_path: Path, other_bytes: Any, old: StateKey | None, new: StateKey | None
) -> None:
    digest, before = held_table(tmp_path, old)
    rekey_store(tmp_path / "state", old=old, new=new)
    [after] = (tmp_path / "state" / "staged").iterdir()
    assert (after == before) == (old == new)
    assert (b"PAR1" in after.read_bytes()) == (new is None)
    assert after.stat().st_mode & 0o777 == 0o600
    other_bytes()
    with opened(tmp_path, key=new) as stream:
        stream.approve()
    assert published_hash(tmp_path) == digest
    assert not list((tmp_path / "state" / "staged").iterdir())


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
def test_a_change_of_keys_that_is_stopped_loses_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_bytes: Any, after: bool
) -> None:
    digest, _ = held_table(tmp_path, KEYS[1])
    commit = durable.commit

    def stops(db: Any) -> None:
        if after:
            commit(db)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(durable, "commit", stops)
        with pytest.raises(KeyboardInterrupt):
            rekey_store(tmp_path / "state", old=KEYS[1], new=KEYS[2])
    other_bytes()
    with opened(tmp_path, key=KEYS[2] if after else KEYS[1]) as stream:
        stream.approve()
    assert published_hash(tmp_path) == digest


def test_a_held_table_that_was_changed_is_not_sealed_as_if_it_were_good(
    tmp_path: Path, other_bytes: Any
) -> None:
    _, file = held_table(tmp_path, KEYS[1])
    data = file.read_bytes()
    file.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    rekey_store(tmp_path / "state", old=KEYS[1], new=KEYS[2])
    assert not list((tmp_path / "state" / "staged").iterdir())
    other_bytes()
    with (
        opened(tmp_path, key=KEYS[2]) as stream,
        pytest.raises(StoreError, match=r"step 1 is missing and cannot be"),
    ):
        stream.approve()
    assert not list((tmp_path / "state" / "staged").iterdir())
