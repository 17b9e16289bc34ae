"""The catalogue in parts: what it says, stops at every write, the old form, and how little a step costs."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_stream
from fault_harness import committed_steps, faults_in, in_child, outcome, sql, violations_after_stop
from second_place import contents, mirrored
from toy_stream import SCHEMA, ToyPlan, batch

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StepError, StoreDamagedError, StoreError
from dpstream.io.sinks import DuckDBFeed, Publisher, catalogue, read_catalogue, read_manifest, readable_steps
from dpstream.io.sinks import read_table as read
from dpstream.stream import Batch, Publishing, Stream, open_stream, read_status, verify_ledger
from dpstream.stream.release import persistent_records
from dpstream.stream.release.persistent_records import Segment
from dpstream.stream.store import step_rows
from dpstream.stream.store.sqlite import SQLiteDatabase

RECORDS = batch(1).inserts


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of three steps."""
    monkeypatch.setattr(catalogue, "PART", 3)


start = partial(toy_stream.start, form="csv", max_rows=5)
run = partial(toy_stream.run, form="csv", max_rows=5)


def ledger_says(home: Path) -> list[dict[str, Any]]:
    """What the catalogue has to list, from all rows of the store: the oracle."""
    entries, before = [], None
    steps = sql(home, "SELECT step, publication, manifest_sha256, manifest FROM steps ORDER BY step")
    stored: dict[int, dict[str, Any]] = {step: {} for step, *_ in steps}
    for step, name, digest, data in sql(home, "SELECT step, name, sha256, bytes FROM files ORDER BY name"):
        stored[step][name] = (digest, data)
    for step, publication, digest, manifest in steps:
        files, listed = stored[step], json.loads(manifest)["files"]
        state = "full" if "table.csv" in files else "change"
        entry = {"step": step, "state": state, "kept": publication == "published", "manifest_sha256": digest}
        if before in ("withdrawn", "rejected") and entry["kept"] and listed.keys() != files.keys():
            entry["files"] = {name: listed.get(name, {"sha256": files[name][0]}) for name in files}
        before = publication
        if publication == "withdrawn":
            entry |= {"state": "withdrawn", "reason": json.loads(files["withdrawn.json"][1])["reason"]}
        if publication not in ("held", "rejected"):
            entries.append(entry)
    return entries


@pytest.mark.parametrize("seed", range(4))
def test_the_catalogue_says_what_the_ledger_says(tmp_path: Path, small_parts: None, seed: int) -> None:
    """After every step, approval, rejection, withdrawal, expiry and reopening of random lives; in both directions."""
    generator = np.random.default_rng(seed)
    keep = [4, None, 2, 7][seed]
    publishing = Publishing(records="persistent", publish="changes", full_every=3, approve=seed % 2 == 0)
    stream = start(tmp_path, keep=keep, publishing=publishing)
    root, step = tmp_path / "releases", 0
    for _ in range(30):
        act = generator.choice(["step", "step", "step", "approve", "withdraw", "reopen"])
        if act == "step":
            step += 1
            stream.step(batch(step), f"b{step}")
        elif act == "approve" and stream.held():
            with contextlib.suppress(StepError):  # the changes since a step that stays held
                stream.approve(int(generator.choice(stream.held())))
        elif act == "withdraw" and step:
            stream.withdraw(int(generator.integers(1, step + 1)), "wrong")
        elif act == "reopen":
            stream.close()
            stream = start(tmp_path, keep=keep, publishing=publishing)
        expected = ledger_says(tmp_path)
        if not expected:
            assert not (root / "catalogue.json").exists()
            continue
        assert read_catalogue(root)["steps"] == expected
        assert len(json.loads((root / "catalogue.json").read_bytes())["steps"]) <= 3
        for entry in expected:
            assert read_manifest(root, entry["step"])["step"] == entry["step"]
        for number in readable_steps(root):
            read(root, number)
        with pytest.raises(ConfigError, match=f"unknown step {step + 1}"):
            read_manifest(root, step + 1)
    assert verify_ledger(tmp_path / "state", releases=root) == []
    stream.close()
    written = outcome(tmp_path)
    # Whatever is lost of it is written again, byte for byte: all of it follows from the store.
    shutil.rmtree(root / "catalogue", ignore_errors=True)
    start(tmp_path, keep=keep, publishing=publishing).close()
    assert outcome(tmp_path) == written


def test_damaged_parts_are_refused(tmp_path: Path, small_parts: None) -> None:
    run(tmp_path, 8)
    root = tmp_path / "releases"
    part = root / "catalogue" / "000001-000003.json"
    good = part.read_bytes()
    assert read_manifest(root, 8)["step"] == 8
    for bad, words in (
        (good[:-9], "unreadable catalogue"),
        (good.replace(b'"step": 2', b'"step": 9'), "unreadable catalogue"),
        (good.replace(b'"stream_id": "', b'"stream_id": "0'), "another stream"),
        (None, "missing"),
    ):
        part.unlink() if bad is None else part.write_bytes(bad)
        assert read_manifest(root, 8)["step"] == 8, "other parts are not looked at"
        for reads in (lambda: read(root, 2), lambda: read_catalogue(root), lambda: readable_steps(root)):
            with pytest.raises(StoreDamagedError, match=words):
                reads()
        found = verify_ledger(tmp_path / "state", releases=root)
        assert found == ["the releases' catalogue is unreadable"]
    start(tmp_path).close()
    assert part.read_bytes() == good, "what is lost is written again"
    part.write_bytes(good.replace(b'"kept": true', b'"kept": false'))
    start(tmp_path).close()
    assert part.read_bytes() == good, "what no hash covers is mended"


def test_a_part_alone_tells_that_the_state_was_rolled_back(tmp_path: Path, small_parts: None) -> None:
    run(tmp_path, 1)
    shutil.copytree(tmp_path / "state", tmp_path / "old")
    run(tmp_path, 5)
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "old").rename(tmp_path / "state")
    for folder in (tmp_path / "releases").glob("step-*"):
        shutil.rmtree(folder)
    (tmp_path / "releases" / "catalogue.json").unlink()
    with pytest.raises(StoreDamagedError, match="step 2 is published, but the ledger ends at step 1"):
        start(tmp_path)


# Stops


def reads_well(home: Path) -> list[dict[str, Any]]:
    """What a reader finds at this instant: every step that is listed can be read."""
    root = home / "releases"
    if not (root / "catalogue.json").exists():
        return []
    entries: list[dict[str, Any]] = read_catalogue(root)["steps"]
    for entry in entries:
        read_manifest(root, entry["step"])
        if entry["kept"] and entry["state"] == "full":
            read(root, entry["step"])
    return entries


def test_readers_find_a_whole_catalogue_wherever_the_stream_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before each fifth durability call of a life that closes parts, and writes closed ones again (step 1
    expires with step 3, and is withdrawn afterwards); a file takes four of them, so that each of these is met."""
    monkeypatch.setattr(catalogue, "PART", 1)

    def life(home: Path) -> None:
        with start(home, keep=2) as stream:
            for step in range(1, 4):
                stream.step(batch(step), f"b{step}")
            stream.withdraw(1, "wrong")

    listed = 0
    for home, _ in faults_in(tmp_path, life, calls=slice(8, None, 5)):  # the store is there
        assert violations_after_stop(home) == []
        entries, before = reads_well(home), committed_steps(home)
        assert {entry["step"] for entry in entries} <= set(before)
        listed = max(listed, len(entries))
        assert in_child(lambda home=home: life(home)) == 0  # type: ignore[misc]
        assert reads_well(home) == ledger_says(home)
        assert {step: committed_steps(home)[step] for step in before} == before
        shutil.rmtree(home)
    assert listed == 3


# Work


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts from now on: rows that are read, bytes that are written; what waits for the disk does not wait."""
    done: Counter[str] = Counter()
    execute, write = SQLiteDatabase.execute, durable.write

    def row(cursor: object, values: Any) -> Any:
        done["rows"] += 1
        return values

    def executed(self: SQLiteDatabase, statement: str, parameters: Any = ()) -> Any:
        done["stored bytes"] += sum(len(value) for value in parameters if isinstance(value, (bytes, str)))
        self._connection.row_factory = row
        return execute(self, statement, parameters)

    def written(descriptor: int, data: bytes) -> None:
        done["written bytes"] += len(data)
        done["writes"] += 1
        write(descriptor, data)

    monkeypatch.setattr(SQLiteDatabase, "execute", executed)
    monkeypatch.setattr(durable, "write", written)
    for name in ("sync_file", "sync_directory"):
        monkeypatch.setattr(durable, name, lambda _: None)
    return done


def step_alone(stream: Stream, step: int, work: Counter[str]) -> Counter[str]:
    """What a step did: rows it reads and changes, bytes it writes, calls it makes, folders it lists."""

    def profile(frame: Any, event: str, argument: Any) -> None:
        work["calls"] += event == "call"
        work["lists"] += event == "c_call" and argument.__name__ in {"listdir", "scandir", "glob", "iterdir"}

    work.clear()
    work["changed rows"] -= stream._store._db._connection.total_changes  # type: ignore[attr-defined]
    sys.setprofile(profile)
    try:
        stream.step(Batch(RECORDS, RECORDS), f"b{step:06d}")
    finally:
        sys.setprofile(None)
    work["changed rows"] += stream._store._db._connection.total_changes  # type: ignore[attr-defined]
    return Counter(work)


@pytest.mark.parametrize(
    "options",
    [
        {"keep": None},
        {"keep": 12},
        {"keep": 12, "publishing": Publishing(records="persistent", publish="changes", full_every=5)},
    ],
    ids=["all kept", "12 kept", "changes"],
)
def test_a_late_step_does_no_more_than_an_early_one(
    tmp_path: Path, work: Counter[str], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 23 and step 123, with parts of 5: rows read are the same, bytes and calls but for longer numbers.

    One row, line or call more for each step would show as 100 of them.
    """
    monkeypatch.setattr(catalogue, "PART", 5)
    # How many segments of records there are hangs on the noise: at most their logarithm (test_changes.py), and what
    # they cost is in test_state_parts.py. Here the state is written whole.
    monkeypatch.setattr(step_rows, "_LEAST", 2**40)
    monkeypatch.setattr(persistent_records, "grown", lambda segments, change, after: (Segment.of(after),))
    found = {}
    with start(tmp_path, **options) as stream:
        for step in range(1, 124):
            if step in (23, 123):
                found[step] = step_alone(stream, step, work)
            else:
                stream.step(Batch(RECORDS, RECORDS), f"b{step:06d}")
    early, late = found[23], found[123]
    assert early["rows"] > 0
    for name in ("rows", "writes", "changed rows", "lists"):
        assert late[name] == early[name], name
    assert early["lists"] == 1, "the folder of the step itself, which is read back"
    for name in ("written bytes", "stored bytes", "calls"):
        assert late[name] <= 1.05 * early[name] + 50, (name, early, late)
    assert len(json.loads((tmp_path / "releases" / "catalogue.json").read_bytes())["steps"]) == 3
    # Readers of one step open three small files, however many steps there are.
    opened: list[Path] = []
    reads = Path.read_bytes

    def noted(path: Path) -> bytes:
        opened.append(path)
        return reads(path)

    monkeypatch.setattr(Path, "read_bytes", noted)
    read_manifest(tmp_path / "releases", 1)
    assert len(opened) == 3


# Places that are away


CHANGES = Publishing(records="persistent", publish="changes", full_every=9)


def opened(home: Path, sink: Publisher) -> Stream:
    return open_stream(ToyPlan(), SCHEMA, home / "state", publish_to=sink, publishing=CHANGES)


@pytest.fixture(params=["bucket", "duckdb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[[], Publisher], Any, Any]:
    """A sink with a second place, what makes that one go away, and what brings it back."""
    if request.param == "bucket":
        away = tmp_path / "away"
        return lambda: mirrored(tmp_path), away.touch, away.unlink
    duckdb = pytest.importorskip("duckdb")
    path, readers = tmp_path / "releases.duckdb", list[Any]()

    def sink() -> Publisher:
        return Publisher(tmp_path / "releases", beside=DuckDBFeed(path))

    # A reader who has the file open keeps everybody from writing.
    return (
        sink,
        lambda: readers.append(duckdb.connect(str(path), read_only=True)),
        lambda: readers.pop().close(),
    )


def states(root: Path) -> list[str]:
    return [entry["state"] for entry in read_catalogue(root)["steps"]]


@pytest.mark.parametrize("step", [2, 3])
def test_a_withdrawal_does_not_wait_for_a_place_that_is_away(
    tmp_path: Path, place: tuple[Callable[[], Publisher], Any, Any], step: int
) -> None:
    make, leave, come_back = place
    root = tmp_path / "releases"
    with opened(tmp_path, make()) as stream:
        for number in (1, 2, 3):
            stream.step(batch(number), f"b{number}")
    expected = ["full", "withdrawn", "full"] if step == 2 else ["full", "change", "withdrawn"]
    leave()
    with opened(tmp_path, make()) as stream:  # a withdrawal begins with opening the stream
        for _ in range(2):
            with pytest.raises(StoreError, match=f"step {step} is withdrawing: all places but one"):
                stream.withdraw(step, "urgent")
            assert states(root) == expected
            folder = {path.name for path in (root / f"step-{step:06d}").iterdir()}
            assert folder == {"manifest.json", "measurements.ndjson", "withdrawn.json"}
            assert not list((root / "step-000003").glob("changes.*"))
            read(root)
        # What waits for the other place is not drawn.
        with pytest.raises(StoreError):
            stream.step(batch(4), "b4")
        assert stream.last_step == 3
        assert [one.kind for one in stream.decisions()] == ["withdrawn"]
    assert read_status(tmp_path / "state").reserved is None
    come_back()
    with opened(tmp_path, make()) as stream:  # the next call, whatever it is
        assert not stream.withdraw(step, "urgent")
        assert stream.publish_again() == []
        stream.step(batch(4), "b4")
    if (tmp_path / "second").exists():
        second = tmp_path / "second"
        assert states(second) == states(root) == [*expected, "change" if step == 2 else "full"]
        assert contents(root) == contents(second)
        return
    import duckdb

    with duckdb.connect(str(tmp_path / "releases.duckdb"), read_only=True) as db:
        noted = db.execute("SELECT step, state FROM synthetic_steps ORDER BY step").fetchall()
        ids = [one for (one,) in db.execute("SELECT record_id FROM synthetic ORDER BY record_id").fetchall()]
    assert (step, "withdrawn") in noted
    assert (4, "current") in noted
    assert ids == read(root, 4, ids=True)["record_id"].to_pylist()


def test_a_held_step_is_rejected_though_the_second_place_is_away(tmp_path: Path) -> None:
    sink = mirrored(tmp_path)
    held = Publishing(approve=True)
    with open_stream(ToyPlan(), SCHEMA, tmp_path / "state", publish_to=sink, publishing=held) as stream:
        stream.step(batch(1), "b1")
    (tmp_path / "away").touch()
    with open_stream(ToyPlan(), SCHEMA, tmp_path / "state", publish_to=sink, publishing=held) as stream:
        with pytest.raises(StoreError, match="does not answer"):
            stream.approve()
        assert stream.held() == [1], "nothing is approved that cannot be published"
        assert stream.withdraw(1, "urgent")
        assert stream.held() == []
