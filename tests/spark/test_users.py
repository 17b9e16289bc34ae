"""Users in Spark: admission, counts, hashes and counters are those of one process, whatever happens to the tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from local_frames import LocalFrame, LocalSession
from spark_cases import KEY, SECRET, WANTED, same, table

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.tables.access import BatchAccess, CounterShards
from dpstream.core.tables.contribution import as_ids, hash_ids, id_bytes
from dpstream.core.tables.counter_files import read_shard, shard_of, sweep_files
from dpstream.spark import batch, passes, tasks
from dpstream.stream.admission import Batch, _bounded

BOUND = 3
USERS = replace(WANTED, unit="user", max_events=BOUND, key=b"u" * 32)
PYSPARK = pytest.importorskip("pyspark", reason="PySpark is not installed (make spark)")


@pytest.fixture(autouse=True)
def few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "SHARDS", 8)


class InFiles:
    """What a store says of the counters of users."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.shards = folder / "state" / "users" / "id", None
        self.folder.parent.parent.mkdir()

    def __call__(self, ids: list[bytes]) -> Any:
        raise AssertionError

    def in_files(self) -> tuple[Path, CounterShards | None]:
        return self.folder, self.shards

    def all(self) -> dict[bytes, int]:
        """Every counter."""
        found: dict[bytes, int] = {}
        shards = self.shards or CounterShards(1)
        for shard, files in shards.files.items():
            for ids, counts in read_shard(self.folder, files).parts:
                assert (shard_of(ids, shards.number) == shard).all()
                found |= dict(zip(as_ids(ids), counts.tolist(), strict=True))
        return found


class InRows(dict[bytes, int]):
    """The same in one process."""

    def __call__(self, ids: list[bytes]) -> Any:
        return np.array([self.get(user, 0) for user in ids], np.int64)


def owned(rows: int, seed: int, users: int = 40) -> pa.Table:
    """Rows of a few users; one has very many, and some ids are numbers as texts."""
    rng = np.random.default_rng(seed)
    who = np.where(rng.random(rows) < 0.2, 0, rng.integers(0, users, rows))
    return table(rows, seed).append_column("who", pa.array([f"{user}" for user in who]))


def step_both(
    came: pa.Table, went: pa.Table | None, split: Callable[[pa.Table], Any], files: InFiles, rows: InRows
) -> BatchAccess:
    """One step in both engines, compared; commits the counters."""
    plain = _bounded(Batch(came, went, users="who"), USERS, BOUND)
    found = batch(split(came), None if went is None else split(went), users="who").grant(USERS)
    assert found.rows.fingerprint(KEY) == plain.rows.fingerprint(KEY)
    assert plain.bounded is not None
    assert found.bounded is not None
    view, changes = plain.bounded.admit(rows)
    other, sharded = found.bounded.admit(files)
    same(BatchAccess(other, found.rows), BatchAccess(view, plain.rows))
    if len(came) == 90:  # not asked before: another pass
        same(BatchAccess(other, found.rows), BatchAccess(view, plain.rows), [(2,), (0, 2)])
    assert sharded.dropped == changes.dropped
    rows.update({user: n for user, n in zip(changes.ids, changes.after.tolist(), strict=True) if n})
    files.shards = sharded.shards
    assert files.all() == rows
    return found


@pytest.mark.parametrize("partitions", [1, 7, 200])
@pytest.mark.parametrize("troubled", [False, True], ids=["calm", "troubled"])
def test_admission_counts_hashes_and_counters_are_those_in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int, troubled: bool
) -> None:
    """Nulls, undeclared values, deletes, skewed and empty partitions; tasks that fail, and tasks that run twice."""
    pytest.importorskip("cryptography")
    session = LocalSession(tasks=min(partitions, 7), seed=partitions)
    if troubled:
        session.repeats, session.fails = 2, 0.3
    monkeypatch.setattr(tasks, "attempt", lambda: session.attempts)
    files, rows = InFiles(tmp_path), InRows()
    steps = [
        (owned(300, 1), owned(60, 2)),
        (owned(0, 3), owned(0, 3)),
        (owned(40, 4), owned(200, 5)),
        (owned(90, 6), None),
    ]
    for number, (came, went) in enumerate(steps):
        split = partial(LocalFrame.of, session, partitions=partitions, skewed=number == 2)
        step_both(came, went, split, files, rows)
        there = set(files.folder.iterdir())
        assert files.shards is not None
        believed = {files.folder / file.name for file in files.shards.all_files()}
        assert believed <= there
        sweep_files(files.folder, files.shards)
        assert set(files.folder.iterdir()) == believed
    assert max(rows.values()) == BOUND
    assert len(rows) == 40
    if troubled:
        assert session.attempts > 2 * partitions


def test_one_user_more_changes_nothing_for_others(tmp_path: Path) -> None:
    """The stability map, through shards: all users share few of them."""
    counters = []
    for place, users in (("all", range(40)), ("less", range(1, 40))):
        (tmp_path / place).mkdir()
        files, rows = InFiles(tmp_path / place), InRows()
        for seed in (1, 2):
            came = owned(200, seed)
            mask = pa.array([int(user) in users for user in came.column("who").to_pylist()])
            step_both(came.filter(mask), None, lambda one: LocalFrame.of(LocalSession(), one, 3), files, rows)
            sweep_files(files.folder, files.shards)
        counters.append(files.all())
    more, less = counters
    gone = {user: n for user, n in more.items() if user not in less}
    assert {user: n for user, n in more.items() if user in less} == less
    assert list(gone.values()) == [BOUND]
    text = id_bytes(pa.chunked_array([pa.array(["0"])]), "x")
    assert list(gone) == as_ids(hash_ids(text, USERS.key))


def test_a_file_that_grows_is_joined_and_read_once(tmp_path: Path) -> None:
    """Few files a shard, however many steps; a counter in a later file stands in the place of an earlier one."""
    files, rows = InFiles(tmp_path), InRows()
    for seed in range(8):
        one = owned(30 if seed else 400, seed, users=400)
        step_both(one, None, lambda one: LocalFrame.of(LocalSession(), one, 2), files, rows)
        sweep_files(files.folder, files.shards)
    assert files.shards is not None
    counts = [[file.users for file in found] for found in files.shards.files.values()]
    assert any(len(found) > 1 for found in counts)
    assert all(a > 2 * b for found in counts for a, b in pairwise(found))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.set_column(3, "who", pa.array([None] + ["a"] * (len(t) - 1))), "without a user id"),
        (lambda t: t.set_column(3, "who", pa.array([""] + ["a"] * (len(t) - 1))), "without a user id"),
    ],
)
def test_records_of_nobody_stop_the_step_before_anything(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], words: str
) -> None:
    frame = LocalFrame.of(LocalSession(), change(owned(20, 1)), 3)
    with pytest.raises(DataError, match=words) as caught:
        batch(frame, users="who").grant(USERS).rows.fingerprint(KEY)
    assert SECRET not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_users_where_they_are_not_used_and_the_reverse() -> None:
    frame = LocalFrame.of(LocalSession(), owned(5, 1), 1)
    with pytest.raises(DataError, match="unit is 'event', which does not use it"):
        batch(frame, users="who").grant(WANTED)
    with pytest.raises(DataError, match="does not say whose records they are"):
        batch(frame).grant(USERS)
    with pytest.raises(ConfigError, match=r"'zip' .* schema as well"):
        batch(frame, users="zip").grant(USERS)
    with pytest.raises(ConfigError, match="users is a list"):
        batch(frame, users=["who"])  # type: ignore[arg-type]


def test_a_table_that_changes_between_the_passes_is_refused(tmp_path: Path) -> None:
    session, tables = LocalSession(), [owned(50, 1), owned(51, 1)]
    frame = LocalFrame.of(session, tables[0], 2)
    granted = batch(frame, users="who").grant(USERS)
    granted.rows.fingerprint(KEY)
    moved = LocalFrame.of(session, tables[1], 2)
    granted.bounded._passes.sides[0].frame._tables = moved.select("zip", "paid", "rent", "who")._tables  # type: ignore[union-attr]
    with pytest.raises(DataError, match="the records changed while the step was read"):
        granted.bounded.admit(InFiles(tmp_path))  # type: ignore[union-attr]


def test_an_executor_that_writes_elsewhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the same name on another machine."""
    (tmp_path / "elsewhere").mkdir()
    real = tasks.write_file
    monkeypatch.setattr(tasks, "write_file", lambda _, *rest: real(tmp_path / "elsewhere", *rest))
    granted = batch(LocalFrame.of(LocalSession(), owned(50, 1), 2), users="who").grant(USERS)
    with pytest.raises(ConfigError, match="a folder that the driver does not see"):
        granted.bounded.admit(InFiles(tmp_path))  # type: ignore[union-attr]


def test_an_executor_without_the_cipher_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*_: Any) -> None:
        raise ConfigError("the package cryptography is missing", where="x")

    monkeypatch.setattr(tasks, "write_file", lacks)
    granted = batch(LocalFrame.of(LocalSession(), owned(50, 1), 2), users="who").grant(USERS)
    with pytest.raises(ConfigError, match=r"executors do not have .*dpstream\[spark,encryption\]"):
        granted.bounded.admit(InFiles(tmp_path))  # type: ignore[union-attr]


# A real session.


def test_a_real_session_admits_the_same(spark: Any, made: Callable[[Any], Any], tmp_path: Path) -> None:
    """Two steps; the second one reads the files of the first one."""
    files, rows = InFiles(tmp_path), InRows()
    for seed in (1, 3):
        step_both(owned(200, seed), owned(40, seed + 1), lambda one: made(one).repartition(2), files, rows)
        sweep_files(files.folder, files.shards)
