"""The catalogue in parts: what it says, stops at every write, the old form, and how little a step costs."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_harness import (
    committed_steps,
    faulty,
    in_child,
    kill,
    open_database,
    outcome,
    violations_after_stop,
)
from toy_stream import SCHEMA, ToyPlan, batch

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StepError, StoreDamagedError
from dpstream.io.sinks import Publisher, catalogue, read_catalogue, read_manifest, readable_steps
from dpstream.io.sinks import read_table as read
from dpstream.stream import Batch, Stream, open_stream
from dpstream.stream.inspection import verify_ledger
from dpstream.stream.release import persistent_records
from dpstream.stream.release.persistent_records import Segment
from dpstream.stream.release.publishing import Publishing
from dpstream.stream.store import step_rows
from dpstream.stream.store.sqlite import SQLiteDatabase

RECORDS = batch(1).inserts


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of three steps."""
    monkeypatch.setattr(catalogue, "PART", 3)


def start(home: Path, publishing: Publishing = Publishing(), keep: int | None = None) -> Stream:  # noqa: B008
    sink = Publisher(home / "releases", format="csv")
    policy = replace(publishing, keep=keep, max_rows=5)
    return open_stream(ToyPlan(), SCHEMA, home / "state", publish_to=sink, publishing=policy)


def ledger_says(home: Path) -> list[dict[str, Any]]:
    """What the catalogue has to list, from all rows of the store: the oracle."""
    db = open_database(home)
    found, before = [], None
    for step, publication, digest, manifest in db.execute(
        "SELECT step, publication, manifest_sha256, manifest FROM steps ORDER BY step"
    ):
        names = dict(db.execute("SELECT name, sha256 FROM files WHERE step = ?", (step,)))
        state = "full" if "table.csv" in names else "change"
        entry = {"step": step, "state": state, "kept": publication == "published", "manifest_sha256": digest}
        listed = json.loads(manifest)["files"]
        if before in ("withdrawn", "rejected") and entry["kept"] and listed.keys() != names.keys():
            entry["files"] = {name: listed.get(name, {"sha256": names[name]}) for name in sorted(names)}
        before = publication
        if publication == "withdrawn":
            (notice,) = db.execute(
                "SELECT bytes FROM files WHERE step = ? AND name = 'withdrawn.json'", (step,)
            ).fetchone()
            entry |= {"state": "withdrawn", "reason": json.loads(notice)["reason"]}
        if publication not in ("held", "rejected"):
            found.append(entry)
    db.close()
    return found


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
        with pytest.raises(ConfigError, match=f"no step {step + 1}"):
            read_manifest(root, step + 1)
    assert verify_ledger(tmp_path / "state", releases=root) == []
    stream.close()
    written = outcome(tmp_path)
    # Whatever is lost of it is written again, byte for byte: all of it follows from the store.
    shutil.rmtree(root / "catalogue", ignore_errors=True)
    start(tmp_path, keep=keep, publishing=publishing).close()
    assert outcome(tmp_path) == written


def test_damaged_parts_are_refused(tmp_path: Path, small_parts: None) -> None:
    with start(tmp_path) as stream:
        for step in range(1, 9):
            stream.step(batch(step), f"b{step}")
    root = tmp_path / "releases"
    part = root / "catalogue" / "000001-000003.json"
    good = part.read_bytes()
    assert read_manifest(root, 8)["step"] == 8
    for bad, words in (
        (good[:-9], "cannot be read"),
        (good.replace(b'"step": 2', b'"step": 9'), "cannot be read"),
        (good.replace(b'"stream_id": "', b'"stream_id": "0'), "another stream"),
        (None, "missing"),
    ):
        part.unlink() if bad is None else part.write_bytes(bad)
        assert read_manifest(root, 8)["step"] == 8, "other parts are not looked at"
        for reads in (lambda: read(root, 2), lambda: read_catalogue(root), lambda: readable_steps(root)):
            with pytest.raises(StoreDamagedError, match=words):
                reads()
        found = verify_ledger(tmp_path / "state", releases=root)
        assert found == ["the catalogue of the releases cannot be read"]
    start(tmp_path).close()
    assert part.read_bytes() == good, "what is lost is written again"
    part.write_bytes(good.replace(b'"kept": true', b'"kept": false'))
    start(tmp_path).close()
    assert part.read_bytes() == good, "what no hash covers is mended"


def test_a_part_alone_tells_that_the_state_was_rolled_back(tmp_path: Path, small_parts: None) -> None:
    with start(tmp_path) as stream:
        stream.step(batch(1), "b1")
    shutil.copytree(tmp_path / "state", tmp_path / "old")
    with start(tmp_path) as stream:
        for step in range(2, 6):
            stream.step(batch(step), f"b{step}")
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
    """Killed before every durability call of a life that closes parts, and writes closed ones again (step 1 expires
    with step 3, and is withdrawn afterwards)."""
    monkeypatch.setattr(catalogue, "PART", 1)

    def life(home: Path) -> None:
        with start(home, keep=2) as stream:
            for step in range(1, 4):
                stream.step(batch(step), f"b{step}")
            stream.withdraw(1, "wrong")

    with faulty(None, kill) as calls:
        life(tmp_path / "undisturbed")
    listed, first = 0, calls.index("rename") + 2  # the store is there: how it comes about has its own tests
    for at in range(first, len(calls) + 1):
        home = tmp_path / str(at)

        def disturbed(home: Path = home, at: int = at) -> None:
            with faulty(at, kill):
                life(home)

        assert in_child(disturbed) == -signal.SIGKILL
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


class Work(Counter[str]):
    """Counts what one step does: rows it reads, bytes it writes, calls it makes, folders it lists."""


class Counted:
    """Rows that are read, counted."""

    def __init__(self, rows: Any, work: Work) -> None:
        self._rows, self._work = rows, work
        self.rowcount, self.description = rows.rowcount, rows.description

    def fetchone(self) -> Any:
        row = self._rows.fetchone()
        self._work["rows"] += row is not None
        return row

    def fetchall(self) -> list[Any]:
        rows: list[Any] = self._rows.fetchall()
        self._work["rows"] += len(rows)
        return rows

    def __iter__(self) -> Iterator[Any]:
        for row in self._rows:
            self._work["rows"] += 1
            yield row


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Counts from now on; what waits for the disk does not wait."""
    found = Work()
    execute, write = SQLiteDatabase.execute, durable.write

    def counted(self: SQLiteDatabase, statement: str, parameters: Any = ()) -> Any:
        found["stored bytes"] += sum(len(one) for one in parameters if isinstance(one, (bytes, str)))
        rows = execute(self, statement, parameters)
        found["changed rows"] += max(rows.rowcount, 0)
        return Counted(rows, found)

    def written(descriptor: int, data: bytes) -> None:
        found["written bytes"] += len(data)
        found["writes"] += 1
        write(descriptor, data)

    monkeypatch.setattr(SQLiteDatabase, "execute", counted)
    monkeypatch.setattr(durable, "write", written)
    monkeypatch.setattr(durable, "sync_file", lambda descriptor: None)
    monkeypatch.setattr(durable, "sync_directory", lambda directory: None)
    return found


LISTS = {"listdir", "scandir", "glob", "iterdir"}


def one_step(stream: Stream, step: int, work: Work) -> Work:
    """What a step did."""
    work.clear()

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            work["calls"] += 1
        elif event == "c_call" and argument.__name__ in LISTS:
            work["lists"] += 1

    sys.setprofile(profile)
    try:
        stream.step(Batch(RECORDS, RECORDS), f"b{step:06d}")
    finally:
        sys.setprofile(None)
    return Work(work)


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
    tmp_path: Path, work: Work, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 23 and step 223, with parts of 5: rows read are the same, bytes and calls but for longer numbers.

    One row, line or call more for each step would show as 200 of them.
    """
    monkeypatch.setattr(catalogue, "PART", 5)
    # How many segments of records there are hangs on the noise: at most their logarithm (test_updates.py), and what
    # they cost is in test_state_parts.py. Here the state is written whole.
    monkeypatch.setattr(step_rows, "_LEAST", 2**40)
    monkeypatch.setattr(persistent_records, "grown", lambda segments, change, after: (Segment.of(after),))
    found = {}
    with start(tmp_path, **options) as stream:
        for step in range(1, 224):
            if step in (23, 223):
                found[step] = one_step(stream, step, work)
            else:
                stream.step(Batch(RECORDS, RECORDS), f"b{step:06d}")
    early, late = found[23], found[223]
    assert late["rows"] == early["rows"] > 0
    assert (late["writes"], late["changed rows"], late["lists"]) == (
        early["writes"],
        early["changed rows"],
        early["lists"],
    )
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
