"""Tables that are drawn in blocks: staged on the disk, hashed before the commit, published by a link, made again; and
what becomes of them where staged files are gone and the program would write other bytes now (another pyarrow)."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from fault_harness import failing_with, killed_at_every, sql
from toy_stream import SCHEMA, ToyPlan, batch, start

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StepError, StoreError
from dpstream.core.privacy import Randomness
from dpstream.io.sinks import DuckDBFeed, Publisher, read_catalogue, read_manifest, read_table, table_files
from dpstream.io.sinks.standard_output import StandardOutput
from dpstream.io.sinks.target import Target
from dpstream.stream import Publishing, StateKey, Stream, open_stream
from dpstream.stream.release import render, table_blocks
from dpstream.stream.release.render import NotMadeError
from dpstream.stream.store import staging
from dpstream.stream.store.staging import Staging
from dpstream.stream.store.upkeep import rekey_store

KEYS = (None, StateKey(b"a" * 32), StateKey(b"b" * 32))
KEY = KEYS[1]
HOLD = Publishing(approve=True)
pytestmark = pytest.mark.usefixtures("small_blocks")


def opened(home: Path, form: Any = "parquet", **options: Any) -> Stream:
    return start(home, form=form, randomness=Randomness.seeded(1), **options)


def lived(home: Path, *steps: int, **options: Any) -> None:
    with opened(home, **options) as stream:
        for step in steps:
            stream.step(batch(step), f"b{step}")


def staged(home: Path) -> list[Path]:
    return sorted((home / "state" / "staged").glob("*"))


def table_hash(home: Path, name: str = "table.parquet") -> str:
    return hashlib.sha256((home / "releases" / "step-000001" / name).read_bytes()).hexdigest()


@pytest.mark.parametrize("mask", [0o022, 0o027])
def test_a_released_table_is_written_in_blocks_and_its_bytes_never_enter_the_store(
    tmp_path: Path, mask: int
) -> None:
    """It has the rights that the process gives new files."""
    before = os.umask(mask)
    try:
        with opened(tmp_path) as stream:
            release = stream.step(batch(1), "b1")
            assert release.manifest["drawn_in_blocks_of"] == 8
            assert release.rows > 8
            assert release.sample().equals(read_table(tmp_path / "releases", 1))
            assert stream._store.remembered_file(1, "table.parquet")[1] is None
    finally:
        os.umask(before)
    folder = tmp_path / "releases" / "step-000001"
    path = folder / "table.parquet"
    listed = {"sha256": table_hash(tmp_path), "bytes": path.stat().st_size}
    assert read_manifest(tmp_path / "releases", 1)["files"]["table.parquet"] == listed
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o666 & ~mask}
    assert path.stat().st_nlink == 1
    assert staged(tmp_path) == []
    assert (tmp_path / "state" / "staged").stat().st_mode & 0o777 == 0o700
    assert read_table(tmp_path / "releases", 1).schema.types == SCHEMA.arrow_schema().types


def test_a_wrong_number_of_threads_is_refused_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("0", "-1", "many", "99999"):
        monkeypatch.setenv("DPSTREAM_THREADS", value)
        with pytest.raises(ConfigError, match="DPSTREAM_THREADS"):
            opened(tmp_path)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("chunk", [1, 2**20], ids=["in a block", "at the end"])
def test_a_full_disk_while_a_table_is_staged_is_a_failure_after_drawing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, form: str
) -> None:
    """The size of the file depends on what was drawn, so nothing is drawn again without a decision, in no process.
    Nothing is left behind."""
    monkeypatch.setattr(table_files, "CHUNK", chunk)

    with opened(tmp_path, form=form) as stream:
        with monkeypatch.context() as patch:
            patch.setattr(durable, "write", failing_with(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
            with pytest.raises(StoreError, match="could not be written: No space left"):
                stream.step(batch(1), "b1")
        assert staged(tmp_path) == []
        with pytest.raises(StepError, match="after noise was drawn"):
            stream.step(batch(1), "b1")
    with opened(tmp_path, form=form) as stream:
        with pytest.raises(StepError, match="after noise was drawn"):
            stream.step(batch(1), "b1")
        stream.discard_reservation()
        assert stream.step(batch(1), "b1").step == 1


def flip(file: Path) -> None:
    """A bit of a file."""
    data = file.read_bytes()
    file.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])


def hold(home: Path, **options: Any) -> str:
    """A held step; the hash of its table."""
    with opened(home, publishing=HOLD, **options) as stream:
        files = stream.step(batch(1), "b1").manifest["files"]
    return str(files["table.parquet"]["sha256"])


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
@pytest.mark.parametrize("what", ["there", "gone", "changed", "cut", "folder gone"])
def test_a_held_table_waits_on_the_disk_and_is_made_again_where_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, key: StateKey | None
) -> None:
    """An encrypted store keeps nothing readable of it."""
    digest = hold(tmp_path, key=key)
    [file] = staged(tmp_path)
    data = file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "releases").iterdir()] == [".head.json"]
    assert (file.name.endswith(".sealed"), b"PAR1" in data) == (key is not None, key is None)
    if what == "gone":
        file.unlink()
    elif what == "folder gone":
        shutil.rmtree(file.parent)
    elif what == "changed":
        flip(file)
    elif what == "cut":
        file.write_bytes(data[:-1])
    made = writes(monkeypatch)
    with opened(tmp_path, key=key) as stream:
        assert staged(tmp_path) == ([] if "gone" in what else [file])
        assert stream.approve() == [1]
    assert len(made) == (what != "there")
    assert table_hash(tmp_path) == digest
    assert staged(tmp_path) == []


def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every table that is made from now on."""
    made, write = list[int](), table_blocks.write_blocks
    monkeypatch.setattr(
        render, "write_blocks", lambda *given, **more: made.append(1) or write(*given, **more)
    )
    return made


def test_a_sealed_table_is_opened_once_for_folder_and_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was made ready is not made again for every look at it."""
    hold(tmp_path, key=KEY)
    opens, copy = list[str](), staging.Staging._copy
    monkeypatch.setattr(staging.Staging, "_copy", lambda *given: opens.append(given[2]) or copy(*given))
    with opened(tmp_path, key=KEY) as stream:
        stream.approve()
    assert opens == ["table.parquet"]
    for path in (tmp_path / "releases" / "step-000001").glob("table.*"):
        path.unlink()
    made = writes(monkeypatch)
    sink = Publisher(tmp_path / "releases", beside=StandardOutput(io.BytesIO()))
    with open_stream(ToyPlan(), SCHEMA, tmp_path / "state", publish_to=sink, key=KEY) as stream:
        remade = stream._outlet._remade()  # type: ignore[union-attr]
        first = remade.file(1, "table.parquet")
        assert remade.file(1, "table.parquet") == first
    assert (len(opens), len(made)) == (2, 1)


def test_where_files_cannot_be_linked_copies_survive_a_kill_at_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "link", failing_with(OSError(errno.EXDEV, os.strerror(errno.EXDEV))))
    killed_at_every(9, tmp_path)
    tables = list(tmp_path.glob("undisturbed/releases/step-*/table.csv"))
    assert [table.stat().st_mode & 0o777 for table in tables] == [0o644]


def test_a_staged_folder_is_for_its_owner_and_no_link_and_loses_what_was_never_committed(
    tmp_path: Path,
) -> None:
    hold(tmp_path)
    folder = tmp_path / "state" / "staged"
    (folder / "step-000002-table.parquet").write_bytes(b"half of it")
    folder.chmod(0o755)
    with pytest.warns(UserWarning, match="0755 and are now 0700"):
        opened(tmp_path).close()
    assert [path.name for path in staged(tmp_path)] == ["step-000001-table.parquet"]
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="link"):
        opened(tmp_path)


def test_tables_that_were_drawn_at_once_are_made_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier version drew, whatever its size."""
    with monkeypatch.context() as patch:
        patch.setattr(table_blocks, "BLOCK", 10**6)
        lived(tmp_path, 1)
    before = table_hash(tmp_path)
    (tmp_path / "releases" / "step-000001" / "table.parquet").unlink()
    with opened(tmp_path) as stream:
        assert stream.publish_again() == [1]
    assert table_hash(tmp_path) == before
    assert "drawn_in_blocks_of" not in read_manifest(tmp_path / "releases", 1)


def test_a_file_that_was_thrown_away_writes_nothing_more_and_a_link_is_not_published(tmp_path: Path) -> None:
    """A writer that is dropped writes its end, when its descriptor may be that of the store."""
    staging, outside = Staging(tmp_path), tmp_path / "outside"
    with suppress(RuntimeError), staging.file(1, "table.parquet") as file:
        file.put(b"one")
        raise RuntimeError
    with pytest.raises(ValueError, match="closed"):
        file.put(bytes(2**21))
    assert staging.names() == []
    outside.write_bytes(b"whole")
    outside.chmod(0o600)
    digest = hashlib.sha256(b"whole").hexdigest()
    with staging.file(1, "table.parquet") as file:
        file.put(b"whole")
        staged_file = file.finish()
    assert staging.find(1, "table.parquet", digest) is not None
    staged_file.path.unlink()
    staged_file.path.symlink_to(outside)
    assert staging.find(1, "table.parquet", digest) is None


@pytest.mark.parametrize(
    ("what", "cut"), [("folder", 1000), ("output", 1000), ("feed", 20), ("persistent", 20), ("nowhere", 20)]
)
def test_only_tables_that_are_made_in_blocks_may_have_more_rows_than_memory_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, cut: int
) -> None:
    pytest.importorskip("duckdb")
    monkeypatch.setattr(render, "MAX_ROWS", 1000)
    monkeypatch.setattr(render, "MAX_ROWS_WHOLE", 20)
    places: dict[str, Target] = {
        "output": StandardOutput(io.BytesIO()),
        "feed": DuckDBFeed(tmp_path / "feed.duckdb"),
    }
    sink = None if what == "nowhere" else Publisher(tmp_path / "releases", beside=places.get(what))
    policy = Publishing(records="persistent" if what == "persistent" else "fresh")
    options: dict[str, Any] = {"publish_to": sink, "publishing": policy, "randomness": Randomness.seeded(1)}
    with open_stream(ToyPlan(), SCHEMA, tmp_path / "state", **options) as stream:
        release = stream.step(batch(1), "b1")
        assert release.rows == min(release.manifest["rows"], cut)
        assert release.manifest["rows"] > 20
    options["publishing"] = replace(policy, max_rows=25)
    with open_stream(ToyPlan(), SCHEMA, tmp_path / "state", **options) as stream:
        assert stream.step(batch(2), "b2").rows == 25


# Where staged files are gone


@pytest.fixture
def other_bytes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From the call on, Parquet files get other bytes."""

    class Other(pyarrow.parquet.ParquetWriter):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **{**options, "compression": "snappy"})

    return lambda: monkeypatch.setattr(pyarrow.parquet, "ParquetWriter", Other)


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
    lived(tmp_path, 1, 2, publishing=HOLD)
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
    lived(tmp_path, 1, 2)
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
    lived(tmp_path, 1)
    lived(tmp_path, 2, publishing=HOLD)
    shutil.rmtree(tmp_path / "state" / "staged")
    set_pending(tmp_path, after=1)
    other_bytes()
    with opened(tmp_path) as stream:
        stream.withdraw(1, "a test")
        assert listed(tmp_path) == [(1, "withdrawn")]


def test_a_table_that_is_published_already_is_taken_from_its_folder(tmp_path: Path, other_bytes: Any) -> None:
    lived(tmp_path, 1)
    set_pending(tmp_path)
    other_bytes()
    with opened(tmp_path):
        assert publication(tmp_path) == ["published"]


@pytest.mark.parametrize("new", KEYS, ids=["plain", "a", "b"])
@pytest.mark.parametrize("old", KEYS, ids=["plain", "a", "b"])
def test_another_key_seals_what_waits_anew(
    tmp_path: Path, other_bytes: Any, old: StateKey | None, new: StateKey | None
) -> None:
    digest, [before] = hold(tmp_path, key=old), staged(tmp_path)
    rekey_store(tmp_path / "state", old=old, new=new)
    [after] = staged(tmp_path)
    assert (after == before) == (old == new)
    assert (b"PAR1" in after.read_bytes()) == (new is None)
    assert after.stat().st_mode & 0o777 == 0o600
    other_bytes()
    with opened(tmp_path, key=new) as stream:
        stream.approve()
    assert table_hash(tmp_path) == digest
    assert staged(tmp_path) == []


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
def test_a_change_of_keys_that_is_stopped_loses_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_bytes: Any, after: bool
) -> None:
    digest = hold(tmp_path, key=KEYS[1])
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
    assert table_hash(tmp_path) == digest


def test_a_held_table_that_was_changed_is_not_sealed_as_if_it_were_good(
    tmp_path: Path, other_bytes: Any
) -> None:
    hold(tmp_path, key=KEYS[1])
    [file] = staged(tmp_path)
    flip(file)
    rekey_store(tmp_path / "state", old=KEYS[1], new=KEYS[2])
    assert staged(tmp_path) == []
    other_bytes()
    with (
        opened(tmp_path, key=KEYS[2]) as stream,
        pytest.raises(StoreError, match=r"step 1 is missing and cannot be"),
    ):
        stream.approve()
    assert staged(tmp_path) == []
