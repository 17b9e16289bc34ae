"""Users and records with keys in Spark: what a step does with them is what it does in one process."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from local_frames import LocalFrame, LocalSession
from spark_cases import CLIQUES, EVERY_CALL, KEY, SCHEMA, SECRET, WANTED, same, table

from dpstream.core.errors import ConfigError, DataError, StoreDamagedError
from dpstream.core.tables import KeyedBatch, KeyedChanges, KeyRules, PresentTable, Snapshot
from dpstream.core.tables.access import BatchAccess, CounterShards, PresentShards, ReadRequest
from dpstream.core.tables.contribution import as_ids
from dpstream.core.tables.counter_files import read_present_shard, read_shard, shard_of, sweep_files
from dpstream.core.tables.keyed_reading import read_keyed
from dpstream.spark import KeyedSparkBatch, batch, keyed_batch, passes, tasks
from dpstream.spark.tasks import Applying, Spreading
from dpstream.stream.admission import Batch, _bounded, as_batch

pytest.importorskip("pyspark", reason="PySpark is not installed (make spark)")
pytest.importorskip("cryptography")
BOUND = 3
USERS: ReadRequest = replace(WANTED, unit="user", max_events=BOUND, key=b"u" * 32)
PRESENT: ReadRequest = replace(WANTED, reads="present", unit="record", key=b"k" * 32, cliques=())
LENIENT = KeyRules(unknown="drop")
Split = Callable[[pa.Table], Any]


@pytest.fixture(autouse=True)
def few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "SHARDS", 8)


class Both:
    """Steps in Spark beside the same ones in one process; between them the files that a store would keep."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder / "state" / "users" / "id", 0
        self.folder.parent.parent.mkdir(parents=True)
        self.shards: CounterShards | None = None

    def sweep(self) -> None:
        """Afterwards there are the files of the last step alone."""
        assert self.shards is not None
        believed = {self.folder / file.name for file in self.shards.all_files()}
        assert believed <= set(self.folder.iterdir())
        sweep_files(self.folder, self.shards)
        assert set(self.folder.iterdir()) == believed


class Users(Both):
    """Counters of users."""

    id: ClassVar[str] = "who"
    writer: ClassVar[str] = "write_file"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.counters: dict[bytes, int] = {}

    @staticmethod
    def rows(rows: int, seed: int, users: int = 40) -> pa.Table:
        """Rows of a few users; one has very many, and ids are numbers as texts."""
        rng = np.random.default_rng(seed)
        who = np.where(rng.random(rows) < 0.2, 0, rng.integers(0, users, rows))
        return table(rows, seed).append_column("who", pa.array([f"{user}" for user in who]))

    def steps(self) -> list[tuple[pa.Table, dict[str, Any]]]:
        """Deletes, steps without rows, and more deletes than inserts."""
        return [
            (self.rows(300, 1), {"went": self.rows(60, 2)}),
            (self.rows(0, 3), {"went": self.rows(0, 3)}),
            (self.rows(40, 4), {"went": self.rows(200, 5)}),
            (self.rows(90, 6), {}),
        ]

    def in_files(self) -> tuple[Path, CounterShards | None]:
        return self.folder, self.shards

    def granted(self, came: pa.Table, split: Split, went: pa.Table | None = None) -> Any:
        return batch(split(came), None if went is None else split(went), users="who").grant(USERS)

    def apply(self, granted: Any) -> Any:
        """Count in Spark; the files are those of the store from here on."""
        view, sharded = granted.bounded.admit(self)
        self.shards = sharded.shards
        return view, (sharded.dropped, sharded.cut)

    def step(self, came: pa.Table, split: Split, went: pa.Table | None = None) -> None:
        """One step, compared."""
        plain = _bounded(Batch(came, went, users="who"), USERS, BOUND, KEY)
        found = self.granted(came, split, went)
        assert found.rows.fingerprint(KEY) == plain.rows.fingerprint(KEY)
        assert plain.bounded is not None
        view, changes = plain.bounded.admit(
            lambda ids: np.array([self.counters.get(user, 0) for user in ids], np.int64)
        )
        other, dropped = self.apply(found)
        same(BatchAccess(other, found.rows), BatchAccess(view, plain.rows))
        if len(came) == 90:  # not asked before: another pass
            same(BatchAccess(other, found.rows), BatchAccess(view, plain.rows), [(2,), (0, 2)])
        assert dropped == (changes.dropped, changes.cut)
        self.counters |= {user: n for user, n in zip(changes.ids, changes.after.tolist(), strict=True) if n}
        assert self.all() == self.counters

    def all(self) -> dict[bytes, Any]:
        """Every counter, as the files have it."""
        found: dict[bytes, int] = {}
        shards = self.shards or CounterShards(1)
        for shard, files in shards.files.items():
            for ids, counts in read_shard(self.folder, files).parts:
                assert (shard_of(ids, shards.number) == shard).all()
                found |= dict(zip(as_ids(ids), counts.tolist(), strict=True))
        return found

    def is_hard(self) -> bool:
        """Whether the steps had users at their bound."""
        return max(self.counters.values()) == BOUND + 1 and len(self.counters) == 40


class Records(Both):
    """Present records by their keys."""

    id: ClassVar[str] = "id"
    writer: ClassVar[str] = "write_present_shard"

    def __init__(self, folder: Path, *, keep_keys: bool = False) -> None:
        super().__init__(folder)
        self.keep_keys, self.left = keep_keys, set[bytes]()
        self.table = PresentTable.empty(SCHEMA.domain)

    @staticmethod
    def rows(rows: int, seed: int, keys: int = 50) -> pa.Table:
        """What happened to a few keys, in its order; one key has very many rows. Deletes have values that nobody
        reads."""
        rng = np.random.default_rng(seed)
        who = np.where(rng.random(rows) < 0.1, 0, rng.integers(0, keys, rows))
        ops = np.array(["insert", "insert", "update", "delete"])[rng.integers(0, 4, rows)]
        named = table(rows, seed).append_column("id", pa.array([f"{key}" for key in who], pa.string()))
        return named.append_column("op", pa.array(ops.tolist(), pa.string()))

    def steps(self) -> list[tuple[pa.Table, dict[str, Any]]]:
        """Updates, deletes, keys that come back, upserts, changed cells only, and a step without rows."""
        return [
            (self.rows(150, 1), {}),
            (self.rows(0, 2), {}),
            (self.rows(120, 3), {"changed": "null-keeps"}),
            (self.rows(100, 4).drop_columns(["op"]), {"operation": None}),
            (self.rows(60, 5), {}),
        ]

    def granted(self, given: pa.Table, split: Split, **options: Any) -> Any:
        named = {"operation": "op", "order": "at", "rules": LENIENT, **options}
        return keyed_batch(split(shuffled(given)), "id", **named).grant(PRESENT)

    def apply(self, granted: Any, content_key: bytes = KEY) -> Any:
        """Count in Spark; the files are those of the store from here on."""
        coming = PresentShards(self.folder, self.shards, self.number + 1, self.keep_keys, content_key)
        present, sharded = granted.sharded.apply(coming)
        self.shards, self.number = sharded.shards, self.number + 1
        return present

    def step(self, given: pa.Table, split: Split, **options: Any) -> Any:
        """One step, compared."""
        plain = read_keyed(
            KeyedBatch(given, "id", **{"operation": "op", "rules": LENIENT, **options}), PRESENT
        )
        found = self.granted(given, split, **options)
        if (
            self.number % 2
        ):  # as where the step may be a repetition; else the pass that applies gives the hash
            assert found.rows.fingerprint(KEY) == plain.rows.fingerprint(KEY)
        assert plain.keyed is not None
        effect = plain.keyed.changes(self.table)
        _, there = self.table.find(effect.keys)
        self.left |= {key.tobytes() for key in effect.keys[there & ~effect.present]}
        changes = KeyedChanges(effect.keys, effect.present, effect.codes)
        self.table, departed = self.table.after(changes, self.number + 1)
        present = self.apply(found)
        assert found.rows.fingerprint(KEY) == plain.rows.fingerprint(KEY)
        np.testing.assert_array_equal(np.sort(present.departed), np.sort(departed))
        for after in range(-1, self.number + 1):
            for one, two in zip(present.count(CLIQUES, after), self.table.count(CLIQUES, after), strict=True):
                np.testing.assert_array_equal(one, two)
        rows = zip(self.table.first.tolist(), self.table.codes.tolist(), strict=True)
        assert self.all() == dict(zip(map(bytes, self.table.keys), rows, strict=True))
        return present

    def all(self) -> dict[bytes, Any]:
        """Every record, as the files have it."""
        found: dict[bytes, Any] = {}
        left: set[bytes] = set()
        for shard, files in (self.shards or CounterShards(1)).files.items():
            assert len(files) == 1
            one, gone = read_present_shard(self.folder, files, SCHEMA.domain)
            assert (shard_of(one.keys, 8) == shard).all()
            rows = zip(one.first.tolist(), one.codes.tolist(), strict=True)
            found |= dict(zip(map(bytes, one.keys), rows, strict=True))
            left |= {key.tobytes() for key in gone}
        assert left == (self.left if self.keep_keys else set())
        return found

    def is_hard(self) -> bool:
        """Whether records of several steps are there."""
        return len(self.table) > 20 and len(set(self.table.first.tolist())) > 2


KINDS = pytest.mark.parametrize("kind", [Users, Records])


def shuffled(given: pa.Table, seed: int = 1) -> pa.Table:
    """With the order in a column, and in another one."""
    given = given.append_column("at", pa.array(range(10, 10 + len(given)), pa.int64()))
    return given.take(pa.array(np.random.default_rng(seed).permutation(len(given))))


def plain_split(given: pa.Table) -> LocalFrame:
    return LocalFrame.of(LocalSession(), given, 3)


@KINDS
@pytest.mark.parametrize("partitions", [1, 7, 1000 if EVERY_CALL else 100])
@pytest.mark.parametrize("troubled", [False, True], ids=["calm", "troubled"])
def test_hashes_counts_and_what_is_kept_are_those_in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, partitions: int, troubled: bool
) -> None:
    """Nulls, undeclared values, skewed and empty partitions; tasks that fail, and tasks that run twice."""
    session = LocalSession(tasks=min(partitions, 7), seed=partitions)
    if troubled:
        session.repeats, session.fails = 2, 0.3
    monkeypatch.setattr(tasks, "attempt", lambda: session.attempts)
    both = kind(tmp_path)
    for number, (given, options) in enumerate(both.steps()):
        both.step(
            given, partial(LocalFrame.of, session, partitions=partitions, skewed=number == 2), **options
        )
        both.sweep()
    assert both.is_hard()
    assert not troubled or session.attempts > 2 * partitions


@KINDS
def test_a_real_session_keeps_the_same(
    spark: Any, made: Callable[[Any], Any], tmp_path: Path, kind: Any
) -> None:
    """Two steps; the second one reads the files of the first one."""
    both = kind(tmp_path)
    for seed in (1, 2):
        both.step(both.rows(100, seed), lambda rows: made(rows).repartition(3))
        both.sweep()


@KINDS
def test_one_more_changes_nothing_for_others(tmp_path: Path, kind: Any) -> None:
    """The stability map, through few shards: what is kept of all others is the same with and without one of them."""
    kept = []
    for place, out in (("all", None), ("less", "0")):
        both = kind(tmp_path / place)
        for seed in (1, 2, 5):
            given = both.rows(100, seed)
            stays = pa.array([name != out for name in given.column(both.id).to_pylist()])
            both.step(given.filter(stays), plain_split)
            both.sweep()
        kept.append(both.all())
    more, less = kept
    assert {name: more[name] for name in less} == less
    assert len(more) == len(less) + 1


def test_a_file_of_users_that_grows_is_joined_and_read_once(tmp_path: Path) -> None:
    """Few files a shard, however many steps; a counter in a later file stands in the place of an earlier one."""
    both = Users(tmp_path)
    for seed in range(8):
        both.step(both.rows(30 if seed else 400, seed, users=400), plain_split)
        both.sweep()
    assert both.shards is not None
    counts = [[file.users for file in found] for found in both.shards.files.values()]
    assert any(len(found) > 1 for found in counts)
    assert all(a > 2 * b for found in counts for a, b in pairwise(found))


@KINDS
@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "another's"])
def test_a_task_reads_no_file_that_was_not_committed(tmp_path: Path, kind: Any, damage: str) -> None:
    both = kind(tmp_path)
    present = both.step(both.rows(200, 1), plain_split)
    first, other = both.shards.all_files()[:2]
    path = both.folder / first.name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        new = {"changed": data[:-1] + bytes([data[-1] ^ 1]), "cut": data[:-1]}
        path.write_bytes(new.get(damage, (both.folder / other.name).read_bytes()))
    with pytest.raises(StoreDamagedError, match="a file in the folder users changed or is lost"):
        both.apply(both.granted(both.rows(200, 2), plain_split))
    if present is not None:
        with pytest.raises(StoreDamagedError, match="a file in the folder users changed or is lost"):
            present.count([(0,)], 0)


@KINDS
def test_an_executor_that_writes_elsewhere_or_lacks_the_cipher_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """Elsewhere: a folder of the same name on another machine."""
    (tmp_path / "elsewhere").mkdir()
    real, both = getattr(tasks, kind.writer), kind(tmp_path)

    def lacks(*_: Any) -> None:
        raise ConfigError("encrypted files need the package cryptography", where="x")

    for write, words in (
        (
            lambda _, *rest: real(tmp_path / "elsewhere", *rest),
            "the driver cannot see the folder where executors write",
        ),
        (lacks, r"executors lack .*dpstream\[spark,encryption\]"),
    ):
        monkeypatch.setattr(tasks, kind.writer, write)
        with pytest.raises(ConfigError, match=words):
            both.apply(both.granted(both.rows(50, 1), plain_split))


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
    both, key = Records(tmp_path), bytes(range(100, 132))
    granted = both.granted(both.rows(50, 1), plain_split)
    granted.rows.fingerprint(key)
    both.apply(granted, key)
    assert sent
    assert not any(key[16:] in one or SECRET.encode() in one for one in sent)
    assert any(key[:16] in one for one in sent)
    text = b"".join(path.read_bytes() for path in both.folder.iterdir())
    assert (keys := both.all())
    assert not any(np.frombuffer(name, np.uint64).astype(">u8").tobytes() in text for name in keys)


@pytest.mark.parametrize(
    ("ops", "rules", "words"),
    [
        (["delete"], KeyRules(), "a delete has an unknown key"),
        (["update"], KeyRules(), "an update has an unknown key"),
        (["insert", "insert"], KeyRules(known="error"), "an insert has a present key"),
        (["insert", "update"], KeyRules(repeated="error"), "a key has several rows in one step"),
        (["insert", "delete", "delete"], KeyRules(), "a delete has an unknown key"),
    ],
)
def test_the_rules_refuse_in_the_words_of_one_process(
    tmp_path: Path, ops: list[str], rules: KeyRules, words: str
) -> None:
    given = table(len(ops)).append_column("id", pa.array([SECRET] * len(ops)))
    given = given.append_column("op", pa.array(ops))
    said = []

    def plain() -> None:
        granted = read_keyed(KeyedBatch(given, "id", "op", rules=rules), PRESENT)
        assert granted.keyed is not None
        granted.keyed.changes(PresentTable.empty(SCHEMA.domain))

    def spark() -> None:
        both = Records(tmp_path)
        granted = both.granted(given, plain_split, rules=rules)
        granted.rows.fingerprint(KEY)
        both.apply(granted)

    for call in (plain, spark):
        with pytest.raises(DataError, match=words) as caught:
            call()
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert SECRET not in said[1]


def test_dates_and_moments_order_rows(tmp_path: Path) -> None:
    given = Records.rows(40, 1)
    plain = read_keyed(KeyedBatch(given, "id", "op", rules=LENIENT), PRESENT)
    for kind, first in ((pa.date32(), 0), (pa.timestamp("us"), -3), (pa.int16(), 0)):
        at = pa.array(range(first, first + 40), pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
        mixed = given.append_column("at", at).take(pa.array(np.random.default_rng(3).permutation(40)))
        found = keyed_batch(plain_split(mixed), "id", operation="op", order="at", rules=LENIENT)
        assert found.grant(PRESENT).rows.fingerprint(KEY) == plain.rows.fingerprint(KEY)


Change = Callable[[pa.Table], pa.Table]
AT: list[tuple[Any, Change, str]] = [
    (Users, lambda t: t.set_column(3, "who", pa.array([None] + ["a"] * 59)), "lacks a user id"),
    (Users, lambda t: t.set_column(3, "who", pa.array([""] + ["a"] * 59)), "lacks a user id"),
    (Records, lambda t: t.drop_columns(["id"]), "unknown column 'id'"),
    (Records, lambda t: t.drop_columns(["op"]), "unknown column 'op'"),
    (Records, lambda t: t.drop_columns(["at"]), "unknown column 'at'"),
    (Records, lambda t: t.set_column(5, "at", pa.array([1.5] * 60)), "of type double cannot order rows"),
    (Records, lambda t: t.set_column(5, "at", pa.array([5] * 60)), "a key has several rows in one step, and"),
    (Records, lambda t: t.set_column(5, "at", pa.array([None] + [1] * 59, pa.int64())), "holds a null, so"),
    (Records, lambda t: t.set_column(3, "id", pa.array([1.5] * 60)), "keys have the type double"),
    (Records, lambda t: t.set_column(3, "id", pa.array([None] + ["a"] * 59)), "lacks a key"),
    (Records, lambda t: t.set_column(4, "op", pa.array([SECRET] * 60)), "holds a null or unknown operation"),
]


@pytest.mark.parametrize(("kind", "change", "words"), AT)
def test_rows_that_cannot_be_read_stop_the_step_before_anything(
    tmp_path: Path, kind: Any, change: Change, words: str
) -> None:
    frame = plain_split(change(shuffled(kind.rows(60, 1)) if kind is Records else kind.rows(60, 1)))
    given = (
        keyed_batch(frame, "id", operation="op", order="at") if kind is Records else batch(frame, users="who")
    )
    with pytest.raises(DataError, match=words) as caught:
        given.grant(PRESENT if kind is Records else USERS).rows.fingerprint(KEY)
    assert SECRET not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_nulls_and_rows_without_an_order_are_problems_by_their_column() -> None:
    """Of a delete only the key is read; a null that keeps what is there is no problem, in an insert it is one."""
    strict = replace(SCHEMA, columns=tuple(replace(one, missing=None) for one in SCHEMA.columns))
    wanted = replace(PRESENT, schema=strict)
    given = shuffled(Records.rows(60, 1))
    keyed = partial(keyed_batch, plain_split(given), "id", operation="op", order="at")
    with pytest.raises(DataError, match="holds nulls and declares no missing bin"):
        keyed().grant(wanted).rows.fingerprint(KEY)
    keyed(changed="null-keeps", rules=LENIENT).grant(wanted).rows.fingerprint(KEY)
    alike = given.set_column(5, "at", pa.array([5] * 60))
    for frame, order in ((given.drop_columns(["at"]), None), (alike, "at")):
        unordered = keyed_batch(plain_split(frame), "id", operation="op", order=order, rules=LENIENT)
        assert [problem.kind for problem in unordered.problems(SCHEMA, "x")] == ["key"]
        if order is None:
            with pytest.raises(DataError, match="order_column is missing"):
                unordered.grant(PRESENT).rows.fingerprint(KEY)


def test_users_and_keys_where_they_are_not_used_and_the_reverse() -> None:
    owned, keyed = plain_split(Users.rows(5, 1)), plain_split(shuffled(Records.rows(5, 1)))
    for call, error, words in (
        (lambda: batch(owned, users="who").grant(WANTED), DataError, "the unit 'event' has no users"),
        (lambda: batch(owned).grant(USERS), DataError, "needs the batch"),
        (lambda: batch(owned, users="zip").grant(USERS), ConfigError, r"'zip' .* also in the schema"),
        (lambda: batch(owned, users=["who"]), ConfigError, "users: expected a column, got list"),  # type: ignore[arg-type]
        (lambda: keyed_batch(keyed, "id").grant(WANTED), ConfigError, "deletes, not keyed records"),
        (lambda: batch(keyed).grant(PRESENT), ConfigError, r"needs keys .*keyed_batch"),
        (lambda: keyed_batch(keyed, "zip").grant(PRESENT), ConfigError, r"'zip' .* also in the schema"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_a_keyed_batch_of_a_frame_is_taken_and_a_whole_table_refused() -> None:
    """Without an order: one row a key. The same call as with frames of this process."""
    given = table(30).append_column("id", pa.array(range(30))).append_column("op", pa.array(["insert"] * 30))
    found = as_batch(KeyedBatch(plain_split(given), "id", "op"))
    assert isinstance(found, KeyedSparkBatch)
    plain = read_keyed(KeyedBatch(given, "id", "op"), PRESENT)
    assert found.grant(PRESENT).rows.fingerprint(KEY) == plain.rows.fingerprint(KEY)
    with pytest.raises(ConfigError, match="Spark takes changes of keyed records, not the whole table"):
        as_batch(Snapshot(plain_split(given), "id"))
