"""Present records in the store: on each database, damaged, encrypted anew, moved, deleted for good, and few bytes."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from toy_keyed import KeyedPlan, Values, batch, events, frame, start, values
from toy_stream import SCHEMA

from dpstream.core.errors import StoreDamagedError
from dpstream.core.privacy import Record
from dpstream.core.tables import PresentTable
from dpstream.stream import KeyedBatch, KeyRules, Snapshot, StateKey, Stream
from dpstream.stream.inspection import check_store
from dpstream.stream.store import summed_rows
from dpstream.stream.store.archive import export_store, import_store
from dpstream.stream.store.upkeep import rekey_store

KEY = StateKey(b"k" * 32)
REFUSE = KeyedPlan(unit=Record(returns="refuse"))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that every loop over parts goes round, and ends with a part that is not full."""
    monkeypatch.setattr(summed_rows, "_CHUNK", 7)
    monkeypatch.setattr(summed_rows, "_PAGE", 5)


@pytest.fixture(params=["sqlite", "encrypted", "postgres"])
def key(request: pytest.FixtureRequest) -> StateKey | None:
    """On each database."""
    if request.param == "postgres":
        request.getfixturevalue("on_postgres")
    return KEY if request.param == "encrypted" else None


def same(one: PresentTable, other: PresentTable) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("keys", "first", "codes")
    )


def life(stream: Stream, steps: range) -> None:
    for step in steps:
        given = batch(step)
        # No key comes back: each step has keys of its own, and the deletes of the step before.
        table = {**given.events, "id": [f"{step // 2}-{key}" for key in given.events["id"]]}
        keep = [i for i, op in enumerate(table["op"]) if op != "delete" or step % 2]
        keep = [i for i in keep if step % 2 == 0 or table["op"][i] == "delete"]
        table = {name: [cells[i] for i in keep] for name, cells in table.items()}
        stream.step(KeyedBatch(table, "id", "op", rules=KeyRules(unknown="drop")), f"b{step}")


@pytest.mark.usefixtures("small_parts")
def test_what_a_step_writes_is_what_the_next_process_reads(tmp_path: Path, key: StateKey | None) -> None:
    for turn in (range(2, 4), range(4, 6)):
        with start(tmp_path, plan=REFUSE, key=key, publish=False) as stream:
            life(stream, turn)
            db, last = stream._store._db, stream.last_step
            secret = stream._store.meta["key"]
            assert stream._admission._table is not None
            assert same(stream._store.present(SCHEMA.domain), stream._admission._table)
            assert len(stream._admission._table) > 10
            assert db.execute("SELECT count(*) FROM departed").fetchone()[0] > 2
            assert summed_rows.verify_present(db, secret) is None
            for damage in (
                "DELETE FROM present WHERE key = (SELECT key FROM present ORDER BY key LIMIT 1)",
                # Another record: two of them may be equal.
                "UPDATE present SET value = (SELECT value FROM present ORDER BY value DESC LIMIT 1) "
                "WHERE key = (SELECT key FROM present ORDER BY value LIMIT 1)",
                "DELETE FROM departed WHERE key = (SELECT key FROM departed ORDER BY key LIMIT 1)",
                "INSERT INTO departed SELECT key FROM present ORDER BY key LIMIT 1",
                "DELETE FROM latest WHERE name = 'present sum'",
            ):
                db.begin()
                db.execute(damage)
                assert summed_rows.verify_present(db, secret) is not None, damage
                if "departed" not in damage:
                    with pytest.raises(StoreDamagedError) as caught:
                        summed_rows.read_present(db, secret, SCHEMA.domain, last)
                    assert str(caught.value).endswith("changed or lost") or key is not None
                db.rollback()


@pytest.mark.parametrize("whole", [True, False], ids=["rows and sum", "the sum's step"])
def test_present_records_of_an_earlier_step_are_refused(tmp_path: Path, whole: bool) -> None:
    """Rows that fit their sum, of a step before: they would bring records back, or lose them."""
    path = tmp_path / "state" / "stream.sqlite"
    tables = {"present": "", "departed": "", "latest": " WHERE name = 'present sum'"}
    with start(tmp_path, publish=False) as stream:
        life(stream, range(2, 3))
    with closing(sqlite3.connect(path)) as db:
        earlier = {
            name: db.execute(f"SELECT * FROM {name}{which}").fetchall() for name, which in tables.items()
        }
    with start(tmp_path, publish=False) as stream:
        life(stream, range(3, 5))
    with closing(sqlite3.connect(path)) as db:
        if whole:
            for name, which in tables.items():
                db.execute(f"DELETE FROM {name}{which}")
                for row in earlier[name]:
                    db.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
        else:
            db.execute(f"UPDATE latest SET step = step - 1{tables['latest']}")
        db.commit()
    words = (
        "present sum is that of step 1, and the ledger ends at step 3" if whole else "present sum was changed"
    )
    assert any(words in text for text in check_store(tmp_path / "state", None).problems)
    with pytest.raises(StoreDamagedError, match=words):
        start(tmp_path, publish=False)


@pytest.mark.usefixtures("small_parts")
def test_a_store_that_moves_and_changes_its_key_keeps_its_records(tmp_path: Path) -> None:
    with start(tmp_path, plan=REFUSE, publish=False) as stream:
        life(stream, range(2, 5))
        before, facts = stream._store.present(SCHEMA.domain), dict(stream._facts)
    state = tmp_path / "state"
    rekey_store(state, old=None, new=KEY)
    assert before.first.astype("<i4").tobytes() not in (state / "stream.sqlite").read_bytes()
    export_store(state, tmp_path / "moved", move=True, key=KEY)
    shutil.rmtree(state)
    import_store(tmp_path / "moved", state, facts, key=KEY)
    assert check_store(state, None, key=KEY).problems == ()
    rekey_store(state, old=KEY, new=None)
    assert check_store(state, None).problems == ()
    with start(tmp_path, plan=REFUSE, publish=False) as stream:
        assert same(stream._store.present(SCHEMA.domain), before)
        life(stream, range(5, 6))


def test_a_deleted_key_leaves_no_trace_in_a_closed_store(tmp_path: Path) -> None:
    """Hash and values are overwritten in the file, and the log is gone with the last connection."""
    rng = np.random.default_rng(1)
    with start(tmp_path, publish=False) as stream:
        rows: dict[str, Values] = {f"key-{i}": values(rng) for i in range(3000)}
        stream.step(Snapshot(frame(rows), "id"), "b1")
        table = stream._store.present(SCHEMA.domain)
        names = [name.astype(">u8").tobytes() for name in table.keys]
        gone = list(rows)[::3]
        stream.step(KeyedBatch(events([(name, "delete", None) for name in gone]), "id", "op"), "b2")
        left = {name.astype(">u8").tobytes() for name in stream._store.present(SCHEMA.domain).keys}
        log = (tmp_path / "state" / "stream.sqlite-wal").read_bytes()
        assert any(name in log for name in names if name not in left), "the log still has them"
    assert [path.name for path in (tmp_path / "state").iterdir() if "wal" in path.name] == []
    data = (tmp_path / "state" / "stream.sqlite").read_bytes()
    assert all((name in data) == (name in left) for name in names)
    assert len(left) == 2000


def test_constant_churn_keeps_the_store_flat_and_its_writes_small(tmp_path: Path) -> None:
    """10^5 records come and go at a constant size; a step's bytes follow its changes, not the table."""
    size, turnover, log = 20_000, 5_000, tmp_path / "state" / "stream.sqlite-wal"
    rows = {"zip": ["94102"] * turnover, "paid": [True] * turnover, "rent": [1] * turnover}

    def turn(first: int, last: int) -> KeyedBatch:
        """Records ``first`` to ``last`` come, and those that came ``size`` before them leave."""
        keys = np.concatenate([np.arange(first, last), np.arange(first - size, last - size)])
        keys = keys[keys >= 0]
        table = {name: (cells * 8)[: len(keys)] for name, cells in rows.items()}
        ops = ["insert"] * (last - first) + ["delete"] * (len(keys) - last + first)
        return KeyedBatch({"id": keys, "op": ops, **table}, "id", "op")

    sizes, written = [], []
    with start(tmp_path, plan=KeyedPlan(horizon=30), publish=False) as stream:
        stream.step(turn(0, size), "load")
        for step in range(20):
            first = size + step * turnover
            stream.step(turn(first, first + turnover), f"b{step}")
            sizes.append(sum(path.stat().st_size for path in (tmp_path / "state").iterdir()))
        assert len(stream._store.present(SCHEMA.domain)) == size
        stream._store._db.execute("PRAGMA wal_autocheckpoint = 0")
        for number, changes in enumerate((10, 1000)):
            stream._store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            first = 10**6 * (number + 1)
            come = events([(key, "insert", ("94102", True, 1)) for key in range(first, first + changes)])
            stream.step(KeyedBatch(come, "id", "op"), f"few{number}")
            written.append(log.stat().st_size)
        whole = stream._store._db.execute("SELECT sum(length(key) + length(value)) FROM present").fetchone()[
            0
        ]
    assert max(sizes[10:]) <= 1.2 * max(sizes[:10])
    assert written[0] < whole / 2, "few changes write few bytes"
    assert written[1] - written[0] < 1000 * 4300
