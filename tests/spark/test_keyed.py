"""Records with keys that change, in Spark: hashes, counts, departures and present records are those of one process."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from local_frames import LocalFrame, LocalSession
from spark_cases import CLIQUES, EVERY_CALL, KEY, SCHEMA, SECRET, WANTED, table

from dpstream.core.errors import ConfigError, DataError, StoreDamagedError
from dpstream.core.tables import KeyedBatch, KeyedChanges, KeyRules, PresentTable, Snapshot
from dpstream.core.tables.access import CounterShards, PresentShards, ReadRequest
from dpstream.core.tables.counter_files import read_present_shard, shard_of, sweep_files
from dpstream.core.tables.keyed_reading import read_keyed
from dpstream.spark import KeyedSparkBatch, batch, keyed_batch, passes, tasks
from dpstream.spark.tasks import Applying, Spreading
from dpstream.stream.admission import as_batch

PYSPARK = pytest.importorskip("pyspark", reason="PySpark is not installed (make spark)")
pytest.importorskip("cryptography")
PRESENT: ReadRequest = replace(WANTED, reads="present", unit="record", key=b"k" * 32, cliques=())
LENIENT = KeyRules(unknown="drop")


@pytest.fixture(autouse=True)
def few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "SHARDS", 8)


def events(rows: int, seed: int, keys: int = 50) -> pa.Table:
    """What happened to a few keys, in its order; one key has very many rows. Deletes have values that nobody reads."""
    rng = np.random.default_rng(seed)
    who = np.where(rng.random(rows) < 0.1, 0, rng.integers(0, keys, rows))
    ops = np.array(["insert", "insert", "update", "delete"])[rng.integers(0, 4, rows)]
    one = table(rows, seed)
    return one.append_column("id", pa.array([f"{key}" for key in who], pa.string())).append_column(
        "op", pa.array(ops.tolist(), pa.string())
    )


class InRows:
    """The present records in one process."""

    def __init__(self) -> None:
        self.table, self.step, self.left = PresentTable.empty(SCHEMA.domain), 0, set[bytes]()

    def apply(self, effect: Any) -> np.ndarray[Any, Any]:
        before = self.table
        _, there = before.find(effect.keys)
        self.left |= {key.tobytes() for key in effect.keys[there & ~effect.present]}
        self.step += 1
        changes = KeyedChanges(effect.keys, effect.present, effect.codes)
        self.table, departed = before.after(changes, self.step)
        return departed


class InFiles:
    """What a store says of the same in files."""

    def __init__(self, folder: Path, *, keep_keys: bool = False) -> None:
        self.folder, self.keep_keys = folder / "state" / "users" / "id", keep_keys
        self.folder.parent.parent.mkdir(parents=True)
        self.shards: CounterShards | None = None
        self.step = 0

    def coming(self) -> PresentShards:
        return PresentShards(self.folder, self.shards, self.step + 1, self.keep_keys, KEY)

    def all(self) -> tuple[PresentTable, Any]:
        """Every record, as one table; and the keys that left."""
        found = [PresentTable.empty(SCHEMA.domain)]
        left = [found[0].keys]
        for shard, files in (self.shards or CounterShards(1)).files.items():
            one, gone = read_present_shard(self.folder, files, SCHEMA.domain)
            assert (shard_of(one.keys, 8) == shard).all()
            found.append(one)
            left.append(gone)
        parts = [np.concatenate([getattr(one, name) for one in found]) for name in ("keys", "first", "codes")]
        order = np.lexsort((parts[0][:, 1], parts[0][:, 0]))
        return PresentTable(SCHEMA.domain, *(part[order] for part in parts)), np.concatenate(left)


def shuffled(given: pa.Table, seed: int = 1) -> pa.Table:
    """With the order in a column, and in another one."""
    given = given.append_column("at", pa.array(range(10, 10 + len(given)), pa.int64()))
    return given.take(pa.array(np.random.default_rng(seed).permutation(len(given))))


def in_spark(given: pa.Table, split: Callable[[pa.Table], Any], **options: Any) -> Any:
    return keyed_batch(
        split(shuffled(given)), "id", **{"operation": "op", "order": "at", "rules": LENIENT, **options}
    )


def step_both(
    given: pa.Table, split: Callable[[pa.Table], Any], files: InFiles, rows: InRows, **options: Any
) -> Any:
    """One step in both engines, compared; commits it."""
    named = {"operation": "op", "rules": LENIENT, **options}
    plain = read_keyed(KeyedBatch(given, "id", **named), PRESENT)
    found = in_spark(given, split, **options).grant(PRESENT)
    if rows.step % 2:  # as where the step may be a repetition; else the pass that applies gives the hash
        assert found.rows.fingerprint(KEY) == plain.rows.fingerprint(KEY)
    assert plain.keyed is not None
    departed = rows.apply(plain.keyed.changes(rows.table))
    present, sharded = found.sharded.apply(files.coming())
    assert found.rows.fingerprint(KEY) == plain.rows.fingerprint(KEY)
    np.testing.assert_array_equal(np.sort(present.departed), np.sort(departed))
    for after in range(-1, rows.step + 1):
        for one, two in zip(present.count(CLIQUES, after), rows.table.count(CLIQUES, after), strict=True):
            np.testing.assert_array_equal(one, two)
    files.shards, files.step = sharded.shards, files.step + 1
    table, left = files.all()
    for name in ("keys", "first", "codes"):
        np.testing.assert_array_equal(getattr(table, name), getattr(rows.table, name))
    assert {key.tobytes() for key in left} == (rows.left if files.keep_keys else set())
    return present


@pytest.mark.parametrize("partitions", [1, 7, 1000 if EVERY_CALL else 100])
@pytest.mark.parametrize("troubled", [False, True], ids=["calm", "troubled"])
def test_hashes_counts_departures_and_records_are_those_in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int, troubled: bool
) -> None:
    """Nulls, undeclared values, updates, deletes, keys that come back, upserts, changed cells only, skewed and empty
    partitions, steps without rows; tasks that fail, and tasks that run twice."""
    session = LocalSession(tasks=min(partitions, 7), seed=partitions)
    if troubled:
        session.repeats, session.fails = 2, 0.3
    monkeypatch.setattr(tasks, "attempt", lambda: session.attempts)
    files, rows = InFiles(tmp_path), InRows()
    steps: list[tuple[pa.Table, dict[str, Any]]] = [
        (events(150, 1), {}),
        (events(0, 2), {}),
        (events(120, 3), {"changed": "null-keeps"}),
        (events(100, 4).drop_columns(["op"]), {"operation": None}),
        (events(60, 5), {}),
    ]
    for number, (given, options) in enumerate(steps):
        split = partial(LocalFrame.of, session, partitions=partitions, skewed=number == 2)
        step_both(given, split, files, rows, **options)
        assert files.shards is not None
        believed = {files.folder / file.name for file in files.shards.all_files()}
        assert all(len(found) == 1 for found in files.shards.files.values())
        sweep_files(files.folder, files.shards)
        assert set(files.folder.iterdir()) == believed
    assert len(rows.table) > 20
    assert len(set(rows.table.first.tolist())) > 2
    if troubled:
        assert session.attempts > 2 * partitions


def plain_split(given: pa.Table) -> LocalFrame:
    return LocalFrame.of(LocalSession(), given, 3)


def test_one_key_more_changes_nothing_for_others(tmp_path: Path) -> None:
    """All keys share few shards: the present records of all other keys are the same with and without one of them."""
    tables = []
    for place, out in (("all", None), ("less", "0")):
        (tmp_path / place).mkdir()
        files, rows = InFiles(tmp_path / place), InRows()
        for seed in (1, 2, 3):
            given = events(100, seed)
            stays = pa.array([key != out for key in given.column("id").to_pylist()])
            step_both(given.filter(stays), plain_split, files, rows)
            sweep_files(files.folder, files.shards or CounterShards(1))
        tables.append(
            dict(
                zip(
                    map(bytes, rows.table.keys),
                    zip(rows.table.first.tolist(), rows.table.codes.tolist(), strict=True),
                    strict=True,
                )
            )
        )
    more, less = tables
    assert {key: more[key] for key in less} == less
    assert len(more) <= len(less) + 1


def test_a_key_that_came_back_is_refused_where_none_may(tmp_path: Path) -> None:
    files, rows = InFiles(tmp_path, keep_keys=True), InRows()
    for seed in (1, 2):
        given = events(60, seed, keys=400)
        step_both(given, plain_split, files, rows)
    gone = pa.Table.from_pylist(
        [{"id": "1000", "op": "insert"}], pa.schema([("id", pa.string()), ("op", pa.string())])
    )
    row = pa.concat_tables([table(1)], promote_options="none")
    both = row.append_column("id", gone.column("id")).append_column("op", gone.column("op"))
    step_both(both, plain_split, files, rows)
    step_both(both.set_column(4, "op", pa.array(["delete"])), plain_split, files, rows)
    with pytest.raises(DataError, match="a key comes back after it was absent") as caught:
        in_spark(both, plain_split).grant(PRESENT).sharded.apply(files.coming())
    assert "1000" not in str(caught.value)


@pytest.mark.parametrize(
    ("ops", "rules", "words"),
    [
        (["delete"], KeyRules(), "a delete has a key that is not there"),
        (["update"], KeyRules(), "an update has a key that is not there"),
        (["insert", "insert"], KeyRules(known="error"), "an insert has a key that is there already"),
        (["insert", "update"], KeyRules(repeated="error"), "a key has several rows in one step"),
        (["insert", "delete", "delete"], KeyRules(), "a delete has a key that is not there"),
    ],
)
def test_the_rules_refuse_in_the_words_of_one_process(
    tmp_path: Path, ops: list[str], rules: KeyRules, words: str
) -> None:
    given = table(len(ops)).append_column("id", pa.array([SECRET] * len(ops)))
    given = given.append_column("op", pa.array(ops))
    told = []
    files = InFiles(tmp_path)

    def plain() -> None:
        granted = read_keyed(KeyedBatch(given, "id", "op", rules=rules), PRESENT)
        assert granted.keyed is not None
        granted.keyed.changes(PresentTable.empty(SCHEMA.domain))

    def spark() -> None:
        found = in_spark(given, plain_split, rules=rules).grant(PRESENT)
        found.rows.fingerprint(KEY)
        found.sharded.apply(files.coming())

    for one in (plain, spark):
        with pytest.raises(DataError, match=words) as caught:
            one()
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert SECRET not in told[1]


def test_rows_that_nothing_orders_are_refused() -> None:
    given = shuffled(events(60, 1))
    same = given.set_column(5, "at", pa.array([5] * 60))
    for one, order, words in (
        (given.drop_columns(["at"]), None, "nothing says which comes first"),
        (same, "at", "column 'at' does not say"),
    ):
        frame = plain_split(one)
        granted = keyed_batch(frame, "id", operation="op", order=order, rules=LENIENT).grant(PRESENT)
        with pytest.raises(DataError, match=words):
            granted.rows.fingerprint(KEY)
        found = keyed_batch(frame, "id", operation="op", order=order, rules=LENIENT).problems(SCHEMA, "x")
        assert [problem.kind for problem in found] == ["key"]
    nulls = given.set_column(5, "at", pa.array([None] + [1] * 59, pa.int64()))
    granted = keyed_batch(plain_split(nulls), "id", operation="op", order="at").grant(PRESENT)
    with pytest.raises(DataError, match="'at' cannot order the rows of a key: there is a null"):
        granted.rows.fingerprint(KEY)


def test_dates_and_moments_order_rows(tmp_path: Path) -> None:
    given = events(40, 1)
    plain = read_keyed(KeyedBatch(given, "id", "op", rules=LENIENT), PRESENT)
    for kind, rows in (
        (pa.date32(), range(40)),
        (pa.timestamp("us"), range(-3, 37)),
        (pa.int16(), range(40)),
    ):
        ordered = given.append_column(
            "at",
            pa.array(list(rows), pa.int64())
            .cast(pa.int32() if kind == pa.date32() else pa.int64())
            .cast(kind),
        )
        mixed = ordered.take(pa.array(np.random.default_rng(3).permutation(40)))
        found = keyed_batch(plain_split(mixed), "id", operation="op", order="at", rules=LENIENT).grant(
            PRESENT
        )
        assert found.rows.fingerprint(KEY) == plain.rows.fingerprint(KEY)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop_columns(["id"]), "there is no column 'id'"),
        (lambda t: t.drop_columns(["op"]), "there is no column 'op'"),
        (lambda t: t.drop_columns(["at"]), "there is no column 'at'"),
        (lambda t: t.set_column(5, "at", pa.array([1.5] * len(t))), "has the type double"),
        (lambda t: t.set_column(3, "id", pa.array([1.5] * len(t))), "keys are of the type double"),
        (lambda t: t.set_column(3, "id", pa.array([None] + ["a"] * (len(t) - 1))), "without a key"),
        (lambda t: t.set_column(4, "op", pa.array([SECRET] * len(t))), "an unknown operation"),
    ],
)
def test_rows_that_cannot_be_read_stop_the_step_before_anything(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], words: str
) -> None:
    frame = plain_split(change(shuffled(events(20, 1))))
    with pytest.raises(DataError, match=words) as caught:
        keyed_batch(frame, "id", operation="op", order="at").grant(PRESENT).rows.fingerprint(KEY)
    assert SECRET not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_nulls_and_values_are_told_by_column() -> None:
    """Of a delete only the key is read; a null that keeps what is there is no problem, in an insert it is one."""
    strict = replace(SCHEMA, columns=tuple(replace(one, missing=None) for one in SCHEMA.columns))
    given = shuffled(events(60, 1))
    wanted = replace(PRESENT, schema=strict)
    with pytest.raises(DataError, match="holds nulls and declares no missing bin"):
        keyed_batch(plain_split(given), "id", operation="op", order="at").grant(wanted).rows.fingerprint(KEY)
    keeps = keyed_batch(
        plain_split(given), "id", operation="op", order="at", changed="null-keeps", rules=LENIENT
    ).grant(wanted)
    keeps.rows.fingerprint(KEY)


def test_keys_where_they_are_not_used_and_the_reverse() -> None:
    frame = plain_split(shuffled(events(5, 1)))
    with pytest.raises(ConfigError, match="holds keyed records, and the mechanism reads what a step brings"):
        keyed_batch(frame, "id").grant(WANTED)
    with pytest.raises(ConfigError, match=r"the batch has no keys .*keyed_batch"):
        batch(frame).grant(PRESENT)
    with pytest.raises(ConfigError, match=r"'zip' .* schema as well"):
        keyed_batch(frame, "zip").grant(PRESENT)


def test_a_keyed_batch_of_a_frame_is_taken_and_a_whole_table_refused() -> None:
    """Without an order: one row a key. The same call as with frames of this process."""
    given = table(30).append_column("id", pa.array(range(30))).append_column("op", pa.array(["insert"] * 30))
    own = KeyedBatch(plain_split(given), "id", "op")
    found = as_batch(own)
    assert isinstance(found, KeyedSparkBatch)
    plain = read_keyed(KeyedBatch(given, "id", "op"), PRESENT)
    assert found.grant(PRESENT).rows.fingerprint(KEY) == plain.rows.fingerprint(KEY)
    with pytest.raises(ConfigError, match="whole table of keyed records cannot be read from Spark"):
        as_batch(Snapshot(plain_split(given), "id"))


@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "another's"])
def test_a_task_reads_no_file_that_was_not_committed(tmp_path: Path, damage: str) -> None:
    files, rows = InFiles(tmp_path), InRows()
    present = step_both(events(200, 1), plain_split, files, rows)
    assert files.shards is not None
    one, other = files.shards.all_files()[:2]
    path = files.folder / one.name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        new = {"changed": data[:-1] + bytes([data[-1] ^ 1]), "cut": data[:-1]}
        path.write_bytes(new.get(damage, (files.folder / other.name).read_bytes()))
    with pytest.raises(StoreDamagedError, match="changed or lost"):
        in_spark(events(200, 2), plain_split).grant(PRESENT).sharded.apply(files.coming())
    with pytest.raises(StoreDamagedError, match="changed or lost"):
        present.count([(0,)], 0)


def test_executors_get_no_more_keys_than_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the rows' key, the keys' key and the files' keys; no text of a record is in a task or a file."""
    sent: list[bytes] = []
    for kind in (Applying, Spreading):
        real = kind.__call__
        monkeypatch.setattr(
            kind,
            "__call__",
            lambda one, batches, real=real: sent.append(pickle.dumps(one)) or real(one, batches),
        )
    files, key = InFiles(tmp_path), bytes(range(100, 132))
    granted = in_spark(events(50, 1), plain_split).grant(PRESENT)
    granted.rows.fingerprint(key)
    files.shards = granted.sharded.apply(replace(files.coming(), content_key=key))[1].shards
    assert sent
    assert not any(key[16:] in one or SECRET.encode() in one for one in sent)
    assert any(key[:16] in one for one in sent)
    text = b"".join(path.read_bytes() for path in files.folder.iterdir())
    found, _ = files.all()
    assert len(found)
    assert not any(row.astype(">u8").tobytes() in text for row in found.keys)


# A real session.


def test_a_real_session_keeps_the_same_records(
    spark: Any, made: Callable[[Any], Any], tmp_path: Path
) -> None:
    """Two steps; the second one reads the files of the first one."""
    files, rows = InFiles(tmp_path), InRows()
    for seed in (1, 2):
        step_both(events(80, seed), lambda one: made(one).repartition(3), files, rows)
        sweep_files(files.folder, files.shards or CounterShards(1))
