"""An archive that moved is taken in once: at every stop, by several, from what is read-only, and over what was left;
and the verbs that look after a store."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_stream import dpstream, make, released
from fault_harness import at_once, faults_in, sql
from postgres_server import Cluster
from toy_stream import SCHEMA, ToyPlan, batch, run, start

from dpstream import Publisher, errors
from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.io.sinks import read_table as read
from dpstream.stream import PostgresServer, Stream, open_stream, read_status
from dpstream.stream.inspection import check_store
from dpstream.stream.store import archive as archives
from dpstream.stream.store import sqlite
from dpstream.stream.store.archive import export_store, import_store
from dpstream.stream.store.sealed_history import Head

PINNED: dict[str, Any] = {}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A stream of two steps in ``state``; gives the folder."""
    run(tmp_path, 2, publish=False)
    with start(tmp_path, publish=False) as stream:
        PINNED.update(stream._facts)
    return tmp_path


@pytest.fixture
def moved(here: Path) -> Path:
    """It left for the archive ``moved``."""
    export_store(here / "state", here / "moved", move=True)
    return here


def take(home: Path, place: str, archive: str = "moved") -> int:
    return import_store(home / archive, home / place, PINNED)


def alive(home: Path, *places: str) -> list[str]:
    """The places where a stream goes on."""
    found = []
    for place in places:
        if not (home / place / "stream.sqlite").exists():
            continue
        try:
            with open_stream(ToyPlan(), SCHEMA, home / place) as stream:
                assert stream.step(batch(3), "b3").step == 3
        except errors.DpstreamError:
            continue
        found.append(place)
    return found


def test_a_second_import_is_refused_whatever_became_of_the_first(moved: Path) -> None:
    assert take(moved, "a") == 2
    with pytest.raises(errors.ConfigError, match="was imported already"):
        take(moved, "b")
    with pytest.raises(errors.ConfigError, match="there is a stream already"):
        take(moved, "a")
    assert alive(moved, "a", "b") == ["a"]
    # Lost after a step: the archive is older than the witness.
    (moved / "a" / "stream.sqlite").unlink()
    with pytest.raises(errors.StoreDamagedError, match="rolled back"):
        take(moved, "a")
    assert alive(moved, "a", "b", "state") == []


def test_a_place_that_a_stream_left_takes_in_no_copy_of_it(here: Path) -> None:
    """Also where the owner removed the store that had been moved away: its head file knows."""
    export_store(here / "state", here / "copy")
    export_store(here / "state", here / "moved", move=True)
    assert take(here, "a") == 2
    (here / "state" / "stream.sqlite").unlink()
    for archive in ("copy", "moved"):
        with pytest.raises(errors.ConfigError):
            take(here, "state", archive)
    export_store(here / "a", here / "back", move=True)
    assert take(here, "state", "back") == 2
    for archive in ("moved", "back"):
        with pytest.raises((errors.ConfigError, errors.StoreDamagedError)):
            take(here, "a", archive)
    assert alive(here, "state", "a") == ["state"]


@pytest.mark.parametrize("place", ["a", "state"], ids=["elsewhere", "over the store it left"])
def test_killed_anywhere_in_an_import(moved: Path, place: str) -> None:
    """Before each durability call: the same import ends it, or another place does, and never both."""

    def copied(home: Path) -> None:
        shutil.copy(moved / "moved", home / "moved")
        shutil.copytree(moved / "state", home / "state")

    ends, names = set(), set()
    for first, other in ((place, "b"), ("b", place)):
        folder = moved / f"first {first}"
        folder.mkdir()
        for home, name in faults_in(folder, lambda home: take(home, place), prepare=copied):
            for target in (first, other):
                with contextlib.suppress(errors.ConfigError):
                    take(home, target)
            lives = alive(home, place, "b")
            assert len(lives) == 1, (home.name, name, first)
            assert first == "b" or lives == [place]
            ends.add((first, lives[0]))
            names.add(name)
    assert {"write", "sync_file", "rename", "commit"} <= names
    assert len(ends) == 3, "some stops came before the mark and some after it"


def test_a_mark_that_failed_leaves_no_store(moved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark is on the disk before there is a store: without it the archive could be taken in again."""
    real, archive = durable.sync_file, (moved / "moved").stat()

    def failing(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), archive):
            raise OSError(28, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync_file", failing)
        with pytest.raises(errors.StoreError, match="No space left"):
            take(moved, "a")
    assert not (moved / "a" / "stream.sqlite").exists()
    assert take(moved, "a") == 2


def test_an_archive_that_cannot_be_marked_is_refused(moved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def read_only(path: Path, mode: str = "r", **options: Any) -> Any:
        if path.name == "moved" and mode != "rb":
            raise OSError(30, "Read-only file system")
        return real(path, mode, **options)

    monkeypatch.setattr(Path, "open", read_only)
    with pytest.raises(errors.ConfigError, match="cannot be marked as imported"):
        take(moved, "a")
    assert not (moved / "a").exists() or list((moved / "a").iterdir()) == []


def test_two_imports_at_once(moved: Path) -> None:
    """Real processes; one of them is the stream's new place."""
    for number in range(5):
        home = moved / str(number)
        home.mkdir()
        shutil.copy(moved / "moved", home / "moved")
        codes = at_once(partial(take, home, "a"), partial(take, home, "b"))
        assert sorted(codes) in ([0, 2], [0, 4]), "imported already, or locked"
        assert len(alive(home, "a", "b")) == 1


def test_the_note_of_an_import_goes_with_its_end(moved: Path) -> None:
    take(moved, "a")
    head = Head(moved / "a")
    noted = head.read("a")
    assert noted.importing is None
    # Killed before that: whoever moves the stream on ends it.
    head.write((noted.step, noted.seal), (noted.entry, noted.entry_seal), importing="0" * 32)
    export_store(moved / "a", moved / "on", move=True)
    noted = head.read("a")
    assert noted.importing == "moved away"


def test_a_copy_that_replaces_a_lost_store_waits_for_a_decision(here: Path) -> None:
    """The step that failed after drawing is not forgotten with the store; a copy without it is refused."""
    export_store(here / "state", here / "older")
    with start(here, publish=False) as stream:

        def fails(*_: Any) -> None:
            stream._randomness_used = _[-1].words(1)
            raise RuntimeError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ToyPlan, "step", fails)
            with pytest.raises(RuntimeError):
                stream.step(batch(3), "b3")
        with pytest.raises(errors.StepError, match="stopped with RuntimeError"):
            stream.step(batch(3), "b3")
        stream.discard_reservation()
    export_store(here / "state", here / "copy")
    (here / "state" / "stream.sqlite").unlink()
    for side in (here / "state").glob("stream.sqlite-*"):
        side.unlink()
    with pytest.raises(errors.StoreDamagedError, match="knows more events than the store"):
        take(here, "state", "older")
    assert take(here, "state", "copy") == 2
    status = read_status(here / "state")
    assert (status.restored, status.failed) == (True, None)
    for _ in range(2):  # whatever is opened again, it waits
        with start(here, publish=False) as stream:
            assert stream.step(batch(2), "b2").step == 2, "what is committed can be read"
            with pytest.raises(errors.StepError, match="a restored copy"):
                stream.step(batch(3), "b3")
    with start(here, publish=False) as stream:
        stream.discard_reservation()
        assert stream.step(batch(3), "b3").step == 3
    assert read_status(here / "state").restored is False


def test_copies_of_an_archive_are_seen_by_the_common_releases_only(moved: Path) -> None:
    """What nothing inside the two can see: documented, and shown by whoever publishes second."""
    shutil.copy(moved / "moved", moved / "other")
    take(moved, "a")
    take(moved, "b", "other")

    def opened(place: str, releases: str) -> Stream:
        sink = Publisher(moved / releases)
        return open_stream(ToyPlan(), SCHEMA, moved / place, publish_to=sink)

    with opened("a", "common") as first:
        second = opened("b", "common")
        assert first.step(batch(3), "b3").step == 3
        with second, pytest.raises(errors.StoreDamagedError, match="differ from the committed bytes"):
            second.step(batch(3), "b3")
    with pytest.raises(errors.StoreDamagedError, match="differs from the committed"):
        opened("b", "common")
    with opened("a", "common") as first:
        assert first.step(batch(4), "b4").step == 4


def test_a_copy_that_says_it_moved_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A move stands in the sealed log. Control: without that look two streams would go on from one."""
    monkeypatch.setattr(archives, "_COPY", archives._MOVING)
    export_store(here / "state", here / "copy")
    monkeypatch.undo()
    with pytest.raises(errors.StoreDamagedError, match="log has no move"):
        take(here, "again", "copy")
    assert alive(here, "state", "again") == ["state"]


def test_an_archive_moves_a_stream_and_leaves_a_store_that_refuses(moved: Path) -> None:
    copy, there = moved / "copy", moved / "moved"
    assert stat.S_IMODE(there.stat().st_mode) == 0o600
    with pytest.raises(errors.StoreError, match="was moved away"):
        start(moved)
    with pytest.raises(errors.StoreError, match="was moved away"):
        export_store(moved / "state", copy)
    assert check_store(moved / "state", None).moved
    with pytest.raises(errors.ConfigError, match="belongs to another plan"):
        import_store(there, moved / "new", {**PINNED, "horizon": 7})
    assert not (moved / "new" / "stream.sqlite").exists()
    assert take(moved, "new") == 2
    with pytest.raises(errors.ConfigError, match="the file exists"):
        export_store(moved / "new", there)
    assert export_store(moved / "new", copy) == 2
    for place in ("elsewhere", "state"):
        with pytest.raises(errors.ConfigError, match="the archive is a copy"):
            take(moved, place, "copy")
    assert alive(moved, "new") == ["new"]


def test_changed_archives_are_refused(moved: Path) -> None:
    good = (moved / "moved").read_bytes()
    broken = moved / "broken"
    cut = (good[:-1], good[: len(good) // 2], good[:20], b"", good[:-200] + good[-199:], good[:-32])
    longer = (good + b"\1" * 32, good + b"\1" * 33, good[:-32] + b"\0" * 32)
    swapped = (
        good.replace(b"DPSP", b"DPSQ", 1),
        good.replace(b"moving", b"copies", 1),
        good.replace(b"moving", b"taken ", 1),
    )
    generator = np.random.default_rng(3)
    places = [*range(100), *generator.choice(len(good), 150, replace=False).tolist()]
    flipped = (good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :] for at in places)
    for number, data in enumerate((*cut, *longer, *swapped, *flipped)):
        assert data != good
        broken.write_bytes(data)
        with pytest.raises((errors.StoreDamagedError, errors.StoreFormatError, errors.ConfigError)):
            import_store(broken, moved / f"place{number}", PINNED)
        assert not (moved / f"place{number}" / "stream.sqlite").exists()
    assert import_store(moved / "moved", moved / "place", PINNED) == 2
    # The number of the import stands behind the archive, with its own SHA-256.
    taken = (moved / "moved").read_bytes()
    assert taken[:-32] == good
    assert taken[-16:] == hashlib.sha256(taken[-32:-16]).digest()[:16]


def test_a_stream_moves_to_a_server_and_back(tmp_path: Path, postgres: Cluster) -> None:
    server = PostgresServer(postgres.url, "t_moves")
    there, back = tmp_path / "there", tmp_path / "back"
    run(tmp_path, 3)
    with start(tmp_path) as stream:
        pinned = dict(stream._facts)
        stream.step(batch(4), "b4")
        kept = stream.release().manifest
    export_store(tmp_path / "state", there, move=True)
    assert import_store(there, tmp_path / "state", pinned, server=server) == 4
    with pytest.raises(errors.ConfigError, match="there is a stream already"):
        import_store(there, tmp_path / "state", pinned, server=server)
    with pytest.raises(errors.StoreError, match="was moved away"):
        start(tmp_path)
    with start(tmp_path, server=server) as stream:
        assert stream.release().manifest == kept
        assert stream.step(batch(4), "b4").step == 4
        assert stream.step(batch(5), "b5").step == 5
    assert check_store(tmp_path / "state", tmp_path / "releases", server=server).problems == ()
    export_store(tmp_path / "state", back, server=server, move=True)
    with pytest.raises(errors.StoreError, match="was moved away"):
        start(tmp_path, server=server)
    assert import_store(back, tmp_path / "state", pinned) == 5
    with start(tmp_path) as stream:
        assert stream.step(batch(6), "b6").step == 6
    assert check_store(tmp_path / "state", tmp_path / "releases").problems == ()


# The verbs that look after a store


def test_check_says_what_is_damaged(tmp_path: Path) -> None:
    """In a value of the store: ``test_a_flipped_bit_anywhere_is_told``."""
    with pytest.raises(ConfigError, match="the stream is missing"):
        check_store(tmp_path / "state", None)
    run(tmp_path, 3)
    state, releases = tmp_path / "state", tmp_path / "releases"

    def problems() -> str:
        return "; ".join(check_store(state, releases).problems)

    assert problems() == ""
    sql(tmp_path, "UPDATE steps SET synthesis = substr(synthesis, 1, 60) WHERE step = 1")
    assert "stored model of step 1" in problems()
    table = releases / "step-000002" / "table.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    assert "table.parquet of step 2 differs from the committed file" in problems()
    table.unlink()
    assert "table.parquet of step 2 is missing" in problems()
    store = state / "stream.sqlite"
    store.write_bytes(store.read_bytes()[: store.stat().st_size // 2])
    assert problems()
    store.unlink()
    assert "the store is gone" in problems()


def test_large_stores_are_opened_by_their_small_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, 2, publish=False)
    monkeypatch.setattr(sqlite, "_WHOLE", 0)
    with start(tmp_path, publish=False) as stream:
        assert stream.step(batch(3), "b3").step == 3
    (tmp_path / "state" / "stream.sqlite").write_bytes(b"SQLite format 3\0" + b"\0" * 9000)
    with pytest.raises(StoreDamagedError):
        start(tmp_path, publish=False)


def test_compacting_keeps_what_changes_rest_on(tmp_path: Path) -> None:
    config = make(tmp_path, steps=3)
    config.write_text(
        config.read_text() + 'records = "persistent"\npublish = "changes"\nfull_every = 3\nkeep = 1\n'
    )
    dpstream("run", config, "--test-seed", 3)
    before = released(tmp_path)
    dpstream("store", "compact", config)
    assert released(tmp_path) == before, "the changes of step 3 are changes of the table of step 1"
    assert read(tmp_path / "releases", step=3).shape[0] > 0
    assert len(before) == 11 + 2 * 3 + 6, (
        "each step keeps what it measured, and its model; six files explain the folder"
    )


def test_a_configuration_names_a_server(
    tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make(tmp_path, steps=2)
    text = config.read_text()
    url = f"postgresql://dpstream@/postgres?host={postgres.home}"
    config.write_text(text + f'[state]\nurl = "{url}"\n')
    assert json.loads(dpstream("status", config, "--json").stdout)["started"] is False
    dpstream("run", config)
    assert json.loads(dpstream("status", config, "--json").stdout)["steps"] == 2
    assert sorted(p.name for p in (tmp_path / "state").iterdir()) == ["head.json"]
    assert "sound: 2 steps" in dpstream("store", "check", config).stdout
    dpstream("store", "compact", config)
    monkeypatch.setenv("STREAM_URL", f"postgresql://guarded:{postgres.password}@/postgres?host=/nowhere")
    config.write_text(text + '[state]\nurl_env = "STREAM_URL"\n')
    failed = dpstream("run", config, code=2)
    assert "S3cret" not in failed.output + failed.stderr
    assert "write @ : / in names as %40 %3A %2F" in failed.stderr
    for wrong in (
        f"postgresql://guarded:{postgres.password}@localhost/postgres",
        "postgresql://u:S3cret/x@h/db",
        "postgresql://h/db?password=S3cret",
        "mysql://S3cret/x",
    ):
        config.write_text(text + f'[state]\nurl = "{wrong}"\n')
        told = dpstream("plan", config, code=2)
        assert "S3cret" not in told.output + told.stderr
        assert "url" in told.stderr
    config.write_text(text + '[state]\nurl_env = "NOT_SET"\n')
    assert "is not set" in dpstream("run", config, code=2).stderr
