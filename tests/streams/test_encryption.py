"""Encrypted stores: the cipher and its keys, what can be read without the key, what a changed value does, and another
key."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_stream import dpstream, make
from fault_harness import database, in_child
from hypothesis import given
from hypothesis import strategies as st
from postgres_server import Cluster
from toy_stream import ToyPlan, batch, start

from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError
from dpstream.core.privacy import User
from dpstream.stream import Batch, PostgresServer, StateKey, Stream, read_ledger, verify_ledger
from dpstream.stream.inspection import check_store
from dpstream.stream.store import container
from dpstream.stream.store.archive import export_store, import_store
from dpstream.stream.store.encryption import Cipher, write_key
from dpstream.stream.store.sealed_history import POSITION
from dpstream.stream.store.sqlite import SQLiteDatabase
from dpstream.stream.store.upkeep import rekey_store, stored_key

KEY, OTHER = StateKey.generate(), StateKey.generate()
CIPHER = Cipher(KEY, b"stream", "here")
#: A source's position, as private as a number of records.
SOURCE = {"Zq7-Korvath-Lane.csv": 73_912_846}


def opened(home: Path, key: StateKey | None = KEY, server: PostgresServer | None = None) -> Stream:
    return start(home, plan=ToyPlan(unit=User(2)), form="csv", server=server, key=key)  # type: ignore[arg-type]


def step(stream: Stream, *numbers: int) -> None:
    """40 records of 7 users each, a few of them with more than two events."""
    for number in numbers:
        frame = {**batch(number).inserts, "person": [f"usr-9f41c7d2e{i % 7 + number}" for i in range(40)]}
        stream.step(Batch(frame, users="person"), f"b{number}", position=SOURCE)


def secrets_of(stream: Stream) -> dict[str, bytes]:
    """What only the owner may know, in the bytes that a store without encryption would hold."""
    store = stream._store
    packed = store.synthesis(2)
    found = store.find(step=2)
    assert packed is not None
    assert found is not None
    plain = {
        "state": container.dump(store.state()),
        "model": packed,
        "key": store.meta["key"],
        "fingerprint": found.content,
        "position": json.dumps(SOURCE, separators=(",", ":")).encode(),
    }
    # Long values cross the borders of a database's pages.
    return {name: data[-32:] if len(data) > 40 else data for name, data in plain.items()}


def files_of(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.read_bytes()


def rows_of(cluster: Cluster, schema: str) -> Iterator[bytes]:
    """Every value of every table on the server."""
    tables = cluster.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", schema)
    assert len(tables) > 8
    for (table,) in tables:
        for row in cluster.execute(f"SELECT * FROM {schema}.{table}"):
            yield from (v if isinstance(v, bytes) else str(v).encode() for v in row)


def seen(marks: dict[str, bytes], data: Iterator[bytes]) -> set[str]:
    everything = list(data)
    return {name for name, mark in marks.items() if any(mark in one for one in everything)}


@pytest.mark.parametrize("key", [None, KEY], ids=["control", "encrypted"])
def test_nothing_private_can_be_read_without_the_key(tmp_path: Path, key: StateKey | None) -> None:
    """Searched: the state directory while the stream is open (log included) and afterwards, and an archive. Without
    encryption everything is found."""
    with opened(tmp_path, key) as stream:
        step(stream, 1, 2, 3)
        marks, left_out = secrets_of(stream), stream.dropped_events
        places = {"open": list(files_of(tmp_path / "state"))}
        assert sum(path.name.endswith("-wal") for path in (tmp_path / "state").iterdir()) == 1
    places["closed"] = list(files_of(tmp_path / "state"))
    export_store(tmp_path / "state", tmp_path / "copy", key=key)
    places["archive"] = [(tmp_path / "copy").read_bytes()]
    expected = set() if key is not None else set(marks)
    assert {name: seen(marks, iter(data)) for name, data in places.items()} == dict.fromkeys(places, expected)
    with database(tmp_path) as db:
        counts = [len(value) for (value,) in db.execute("SELECT value FROM users")]
        (summed,) = db.execute("SELECT value FROM latest WHERE name = 'user sum'").fetchone()
    assert len(counts) == 9
    assert (set(counts) == {4}) == (key is None)
    assert (int.from_bytes(summed[:8], "little") == left_out) == (key is None), (
        "how many events were left out"
    )


@pytest.mark.parametrize("key", [None, KEY], ids=["control", "encrypted"])
def test_a_servers_operator_sees_nothing_private(
    tmp_path: Path, key: StateKey | None, postgres: Cluster
) -> None:
    server = PostgresServer(postgres.url, f"t_secret_{key is None}".lower())
    with opened(tmp_path, key, server) as stream:
        step(stream, 1, 2, 3)
        marks = secrets_of(stream)
        assert seen(marks, rows_of(postgres, server.schema)) == (set() if key else set(marks))
    with opened(tmp_path, key, server) as stream:
        step(stream, 4)
    assert check_store(tmp_path / "state", tmp_path / "releases", server=server, key=key).problems == ()
    # Another key on the server, and from there into a file.
    rekey_store(tmp_path / "state", old=key, new=OTHER, server=server)
    pinned = dict(stream._facts)
    export_store(tmp_path / "state", tmp_path / "moved", server=server, move=True, key=OTHER)
    with pytest.raises(StoreError, match="is encrypted with the key"):
        import_store(tmp_path / "moved", tmp_path / "state", pinned, key=key)
    assert import_store(tmp_path / "moved", tmp_path / "state", pinned, key=OTHER) == 4
    with opened(tmp_path, OTHER) as stream:
        step(stream, 5)


SWAPS = [
    ("the models of two steps", "UPDATE steps SET synthesis = (SELECT synthesis FROM steps WHERE step = 3 - s.step) "
     "FROM (SELECT step FROM steps) s WHERE steps.step = s.step AND s.step < 3"),
    ("the fingerprints of two steps", "UPDATE steps SET content = (SELECT content FROM steps WHERE step = 1) "
     "WHERE step = 2"),
    ("a model as the state", "UPDATE latest SET value = (SELECT synthesis FROM steps WHERE step = 3) "
     "WHERE name = 'state'"),
    ("the counters of two users", "UPDATE users SET value = (SELECT value FROM users ORDER BY key LIMIT 1)"),
    ("the sum of the users as a position", "UPDATE latest SET value = (SELECT value FROM latest "
     "WHERE name = 'user sum') WHERE name = 'position'"),
    ("a position of another step", "UPDATE latest SET step = 2 WHERE name = 'position'"),
    ("the state of another stream", "UPDATE latest SET value = (SELECT value FROM other.latest WHERE name = 'state') "
     "WHERE name = 'state'"),
    ("a value without encryption", "UPDATE latest SET value = x'44505350' WHERE name = 'state'"),
    ("the key of the seals", "UPDATE meta SET value = randomblob(32) WHERE key = 'key'"),
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("made")
    for place in (home, home / "second"):
        with opened(place) as stream:
            step(stream, 1, 2, 3)
    return home


@pytest.mark.parametrize("statement", [text for _, text in SWAPS], ids=[name for name, _ in SWAPS])
def test_a_value_in_another_place_is_found(tmp_path: Path, made: Path, statement: str) -> None:
    """In another row, or in the store of another stream with the same key."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    with database(tmp_path) as db:
        db.execute("ATTACH ? AS other", (str(made / "second" / "state" / "stream.sqlite"),))
        db.execute(statement)
    where = r"encrypted value \(state 3\)" if "other." in statement else "."
    with pytest.raises(StoreDamagedError, match=where), opened(tmp_path) as stream:  # noqa: PT012
        for number in (1, 2, 3):
            stream.release(number)
        assert stream.dropped_events + stream.position["Zq7-Korvath-Lane.csv"] < 0, "nothing was found"
    problems = check_store(tmp_path / "state", None, key=KEY).problems
    assert problems
    assert where == "." or "state 3" in problems[0]


@pytest.mark.parametrize(
    ("stored", "given_key", "words"),
    [
        (KEY, OTHER, f"with the key {KEY.name}, and the key {OTHER.name} is given"),
        (KEY, None, f"with the key {KEY.name}, and no key is given"),
        (None, KEY, "is plain; a key is given"),
    ],
    # Keys are drawn anew by every process: their names would make tests that no other process knows.
    ids=["another key", "no key", "a key too many"],
)
def test_a_wrong_key_is_one_sentence_and_changes_nothing(
    tmp_path: Path, stored: StateKey | None, given_key: StateKey | None, words: str
) -> None:
    with opened(tmp_path, stored) as stream:
        step(stream, 1)
    state = tmp_path / "state"
    before = list(files_of(state))
    for work in (
        lambda: opened(tmp_path, given_key),
        lambda: check_store(state, None, key=given_key),
        lambda: read_ledger(state, key=given_key),
        lambda: verify_ledger(state, key=given_key),
        lambda: export_store(state, tmp_path / "copy", key=given_key),
    ):
        with pytest.raises(StoreError, match=words) as caught:
            work()
        assert not isinstance(caught.value, StoreDamagedError)
        assert caught.value.exit_code == 4
    assert list(files_of(state)) == before
    with opened(tmp_path, stored) as stream:
        step(stream, 2)


def values_of(home: Path, key: StateKey | None) -> list[object]:
    """Everything that a store says, whatever it is encrypted with."""
    with database(home) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        rows = {name: db.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for name in tables}
    plain = {
        name: rows[name]
        for name in tables
        if name not in {"log", "meta", "steps", "files", "latest", "users"}
    }
    marks = [row[0] for row in rows["users"]]
    with opened(home, key) as stream:
        store = stream._store
        steps = [(store.synthesis(n), store.find(step=n)) for n in range(1, stream.last_step + 1)]
        latest = [store.meta, container.dump(store.state()), store.dropped_events(), store.position()]
        return [plain, marks, store.user_events(marks).tolist(), steps, *latest]


@pytest.mark.parametrize(
    ("old", "new"),
    [(None, KEY), (KEY, OTHER), (KEY, None)],
    ids=["first key", "another key", "no key any more"],
)
def test_killed_anywhere_a_store_has_one_of_the_two_keys(
    tmp_path: Path, old: StateKey | None, new: StateKey | None
) -> None:
    """Killed before statements on the way to its commit, before that, and at all of those after it. The first key
    leaves no trace of what was readable."""
    made = tmp_path / "made"
    with opened(made, old) as stream:
        step(stream, 1, 2)
        marks = secrets_of(stream)
    expected = values_of(made, old)
    assert seen(marks, files_of(made / "state")) == (set(marks) if old is None else set())
    stopped = {"old": 0, "new": 0}
    shutil.copytree(made, tmp_path / "undisturbed")
    file = tmp_path / "undisturbed" / "state" / "stream.sqlite"
    with contextlib.closing(sqlite3.connect(file)) as db:  # a free page, as of a row that was dropped
        db.executescript(
            "PRAGMA secure_delete = OFF; CREATE TABLE gone (x); INSERT INTO gone VALUES ('a dropped row'); "
            "DROP TABLE gone"
        )
    assert b"a dropped row" in file.read_bytes()
    total = killed_at_statement(0, lambda: rekey_store(tmp_path / "undisturbed" / "state", old=old, new=new))
    assert b"a dropped row" not in file.read_bytes()
    assert new is None or seen(marks, files_of(tmp_path / "undisturbed" / "state")) == set()
    for at in [*range(1, total - 8, 5), *range(total - 8, total + 1)]:
        home = tmp_path / str(at)
        shutil.copytree(made, home)
        rekey = partial(rekey_store, home / "state", old=old, new=new)
        assert in_child(partial(killed_at_statement, at, rekey)) == -signal.SIGKILL  # type: ignore[arg-type]
        key = new if stored_key(home / "state") == (None if new is None else new.name) else old
        stopped["new" if key is new else "old"] += 1
        assert values_of(home, key) == expected
        rekey()
        assert values_of(home, new) == expected
        assert check_store(home / "state", home / "releases", key=new).problems == ()
        assert new is None or seen(marks, files_of(home / "state")) == set()
        shutil.rmtree(home)
    assert stopped["old"] >= 10
    assert stopped["new"] >= 2, "after the commit: while the old bytes are removed"


def killed_at_statement(at: int, work: Callable[[], object]) -> int:
    """Die before a statement of ``work``, from 1; with 0 it lives, and this is how many statements it has."""
    execute, done = SQLiteDatabase.execute, [0]

    def counted(db: SQLiteDatabase, *args: Any) -> object:
        done[0] += 1
        if done[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(db, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SQLiteDatabase, "execute", counted)
        work()
    return done[0]


def test_without_the_package_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ConfigError, match=r"cryptography is not installed .*dpstream\[encryption\]"):
        opened(tmp_path)
    assert not (tmp_path / "state" / "stream.sqlite").exists()
    with opened(tmp_path, None) as stream:
        step(stream, 1)


def test_the_verbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, key, second = make(tmp_path, steps=4), tmp_path / "first.key", tmp_path / "second.key"
    text = config.read_text()
    dpstream("run", config, "--until", 1)
    for file in (key, second):
        made_key = dpstream("store", "key", "--out", file).stdout.split()[-1]
    dpstream("store", "key", "--out", key, code=2)
    config.write_text(text + f'[state]\nkey_file = "{key.name}"\n')
    assert "is plain" in dpstream("run", config, code=4).stderr
    assert "a new key is missing" in dpstream("store", "rekey", config, code=2).stderr
    dpstream("store", "rekey", config, "--to", key)
    dpstream("run", config, "--until", 2)
    found = dpstream("store", "check", config).stdout
    assert re.search("sound: 2 steps, .*, encrypted with the key [0-9a-f]{16}", found)
    dpstream("ledger", "verify", config)
    dpstream("sample", config, "--step", 1, "--rows", 5, "--out", tmp_path / "sample.csv")
    assert made_key in dpstream("store", "rekey", config, "--to", second).stdout
    told = dpstream("run", config, code=4)
    assert made_key in told.stderr
    config.write_text(text + '[state]\nkey_env = "STREAM_KEY"\n')
    assert "is not set" in dpstream("run", config, code=2).stderr
    monkeypatch.setenv("STREAM_KEY", second.read_text())
    dpstream("plan", config)
    dpstream("run", config, "--until", 3)
    dpstream("store", "compact", config)
    dpstream("store", "export", config, "--move", "--out", tmp_path / "x.dpstore")
    dpstream("store", "import", config, "--from", tmp_path / "x.dpstore")
    dpstream("store", "rekey", config, "--plain")
    config.write_text(text)
    dpstream("run", config)
    dpstream("plan", config)
    for secret in map(StateKey.from_file, (key, second)):
        texts = (secret.secret, secret.text.encode(), secret.secret.hex().encode())
        paths = [path for path in tmp_path.rglob("*") if path.is_file() and path not in (key, second)]
        assert [path for path in paths for text in texts if text in path.read_bytes()] == []
    for wrong, words in (
        ('key_file = "state/x.key"', "beside what it protects"),
        ('key_file = "releases/x.key"', "among the releases"),
        ('key_env = "not a name"', "expected the name of an environment variable"),
        ('key_file = "a"\nkey_env = "B"', "key_file says it already"),
    ):
        config.write_text(text + f"[state]\n{wrong}\n")
        assert words in dpstream("plan", config, code=2).stderr


# The cipher and its keys


@given(data=st.binary(max_size=3000), kind=st.sampled_from(["kind", POSITION]), number=st.integers(0, 2**40))
def test_values_come_back_and_look_different_every_time(data: bytes, kind: str, number: int) -> None:
    sealed = CIPHER.seal(data, kind, number, "name")
    assert CIPHER.open(sealed, kind, number, "name") == data
    assert CIPHER.seal(data, kind, number, "name") != sealed
    inside = len(sealed) - 48
    size = max(len(data) + 1, 1024 if kind == POSITION else 0)
    assert size <= inside <= max(1.12 * size, size + 1)
    if len(data) > 8:
        assert data not in sealed


def test_lengths_have_few_significant_bits() -> None:
    """20,000 lengths of values become fewer than 200 of sealed ones."""
    sizes = {len(CIPHER.seal(bytes(n), "kind")) for n in range(0, 20_000, 7)}
    assert len(sizes) < 200
    assert len(CIPHER.seal(b"1", POSITION)) == len(CIPHER.seal(b"1" * 900, POSITION))


@given(at=st.integers(0, 87), bit=st.integers(0, 7))
def test_every_flipped_bit_is_found(at: int, bit: int) -> None:
    sealed = bytearray(CIPHER.seal(bytes(range(39)), "kind", 3))
    assert len(sealed) == 88
    assert CIPHER.open(bytes(sealed), "kind", 3) == bytes(range(39))
    sealed[at] ^= 1 << bit
    with pytest.raises(StoreDamagedError):
        CIPHER.open(bytes(sealed), "kind", 3)


@pytest.mark.parametrize("place", [("kind", 3), ("kind3", b"x"), ("kin", 3, b"x")])
def test_a_value_belongs_to_its_place(place: tuple[Any, ...]) -> None:
    """Of other rows, streams and keys: ``test_a_value_in_another_place_is_found``."""
    sealed = CIPHER.seal(b"value", "kind", 3, b"x")
    assert CIPHER.open(sealed, "kind", 3, b"x") == b"value"
    with pytest.raises(StoreDamagedError, match="changed or moved"):
        CIPHER.open(sealed, *place)


def test_nonces_do_not_repeat_and_salts_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpstream.stream.store.encryption._VALUES", 100)
    monkeypatch.setattr("dpstream.stream.store.encryption._KEPT", 5)
    cipher = Cipher(KEY, b"stream", "here")
    sealed = [cipher.seal(b"x", "kind", n) for n in range(1000)]
    assert len({one[4:20] for one in sealed}) == 10
    assert len({one[20:32] for one in sealed}) == 1000
    order = np.random.default_rng(1).permutation(1000)
    assert all(cipher.open(sealed[n], "kind", n) == b"x" for n in order.tolist())


def test_keys_are_read_from_files_that_nobody_else_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "the.key"
    made_key = write_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert StateKey.from_file(path) == made_key
    assert made_key.text not in repr(made_key)
    with pytest.raises(ConfigError, match="the file exists"):
        write_key(path)
    monkeypatch.setenv("THE_KEY", path.read_text())
    assert StateKey.from_environment("THE_KEY") == made_key
    for mode in (0o640, 0o604, 0o666):
        path.chmod(mode)
        with pytest.raises(ConfigError, match=f"others may read the key .mode {mode:04o}"):
            StateKey.from_file(path)
    path.chmod(0o600)
    for wrong in ("", "S3cret-phrase", made_key.text[:-5], made_key.text.replace("1:", "2:"), "\xff" * 40):
        path.write_text(wrong, encoding="latin-1")
        with pytest.raises(ConfigError, match="expected a key") as caught:
            StateKey.from_file(path)
        assert not wrong or wrong not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        StateKey.from_file(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="is not set"):
        StateKey.from_environment("NOT_SET_ANYWHERE")
