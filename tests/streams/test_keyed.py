"""Streams of keyed records against a plain dict, what they refuse and say, and their present records in the store:
on each database, damaged, encrypted anew, moved, deleted for good, and few bytes."""

from __future__ import annotations

import hashlib
import itertools
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fault_harness import database
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from toy_keyed import NAMES, KeyedPlan, Values, batch, events, frame, start, values
from toy_stream import SCHEMA, ToyPlan
from toy_stream import batch as plain_batch

from dpstream import Batch, DpstreamError, Event, KeyedBatch, KeyRules, Record, Snapshot, Stream
from dpstream.core.errors import ConfigError, DataError, StepError, StoreDamagedError, UnconfirmedError
from dpstream.core.privacy import Randomness
from dpstream.core.tables import BatchAccess, EncodedBatch, PresentTable, ReadRequest
from dpstream.core.tables.keyed_reading import hash_keys, read_keyed
from dpstream.stream import StateKey, open_stream
from dpstream.stream.inspection import check_store
from dpstream.stream.store import summed_rows

KEY = StateKey(b"k" * 32)
REFUSE = KeyedPlan(unit=Record(returns="refuse"))
A: Values = ("94102", True, 700)
SECRET, GONE = "secret-key-7", "secret-gone-7"


def snapshot(*keys: str, rules: KeyRules | None = None, confirmed: bool = False) -> Snapshot:
    return Snapshot(frame(dict.fromkeys(keys, A)), "id", rules or KeyRules(), confirmed)


def keyed(*rows: tuple[Any, str, Values | None], **options: Any) -> KeyedBatch:
    return KeyedBatch(events(list(rows)), "id", "op", **options)


def same(one: PresentTable, other: PresentTable) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("keys", "first", "codes")
    )


class RefusedHere(Exception):
    """The model refuses a step."""


@dataclass
class Model:
    """A dict of keys: first step and values."""

    present: dict[str, tuple[int, Values]] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    step: int = 0

    def events(
        self, rows: list[tuple[str, str | None, list[Any] | None]], rules: KeyRules, changed: str | None
    ) -> Model:
        now: dict[str, Values] = {key: value for key, (_, value) in self.present.items()}
        if rules.repeated == "error" and len({key for key, *_ in rows}) < len(rows):
            raise RefusedHere
        for key, op, cells in rows:
            if op in ("update", "delete") and key not in now:
                if rules.unknown == "error":
                    raise RefusedHere
                continue
            if op == "insert" and key in now and rules.known == "error":
                raise RefusedHere
            if op == "delete":
                del now[key]
                continue
            assert cells is not None
            partial = changed is not None and key in now and op != "insert"
            row = [now[key][i] if partial and cell is None else cell for i, cell in enumerate(cells)]
            if row[0] is None or row[1] is None:
                raise RefusedHere
            now[key] = tuple(row)  # type: ignore[assignment]
        return self.after(now)

    def after(self, now: dict[str, Values]) -> Model:
        old, step = self.present, self.step + 1
        kept = {key: (old[key][0] if key in old else step, value) for key, value in now.items()}
        return Model(kept, self.left | (old.keys() - now.keys()), step)


def contents(stream: Stream) -> dict[bytes, tuple[int, list[int]]]:
    """What the store holds, by hashed key."""
    table = stream._store.present(SCHEMA)
    cached = stream._admission._table
    assert cached is None or same(cached, table)
    rows = zip(table.keys, table.first, table.codes, strict=True)
    return {key.tobytes(): (int(first), codes.tolist()) for key, first, codes in rows}


def expected(stream: Stream, model: Model) -> dict[bytes, tuple[int, list[int]]]:
    secret = stream._store.derived_key(b"record keys")
    keys = hash_keys(pa.chunked_array([pa.array(list(model.present), pa.string())]), secret, "test")
    rows = frame({key: value for key, (_, value) in model.present.items()})
    codes = SCHEMA.encode({name: rows[name] for name in NAMES}).tolist() if model.present else []
    firsts = [first for first, _ in model.present.values()]
    rows_by_key = zip(keys, firsts, codes, strict=True)
    return {key.tobytes(): (first, code) for key, first, code in rows_by_key}


KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
CELLS = st.tuples(
    st.sampled_from(["94102", "94103", "10001", None]),
    st.sampled_from([True, False, None]),
    st.sampled_from([1, 700, None]),
)
ROW = st.tuples(KEYS, st.sampled_from(["insert", "update", "delete", None]), CELLS)
FULL = st.tuples(st.sampled_from(["94102", "94103", "10001"]), st.booleans(), st.sampled_from([1, 700, None]))
RULES = st.builds(
    KeyRules,
    unknown=st.sampled_from(["error", "drop", "drop", "drop"]),
    known=st.sampled_from(["error", "update", "update"]),
    repeated=st.sampled_from(["error", "last", "last", "last"]),
)
EVENTS = st.tuples(st.lists(ROW, max_size=7), RULES, st.sampled_from([None, "null-keeps"]), st.booleans())
SNAPSHOT = st.dictionaries(KEYS, FULL, max_size=5)
#: Records that differ, and an update of each that leaves cells out.
KEPT = [
    ({"a": ("94102", True, 1), "b": ("94103", False, 700), "c": ("10001", True, None)}, False),
    (([(key, "update", (None, None, 1)) for key in "abc"], KeyRules(), "null-keeps", True), False),
]
LIFE = st.lists(st.tuples(EVENTS | SNAPSHOT, st.booleans()), min_size=1, max_size=6)


@pytest.mark.usefixtures("small_sums")
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(LIFE, st.booleans(), st.sampled_from(["new", "refuse"]))
@example(KEPT, False, "new")
def test_every_life_is_that_of_a_dict(life: list[tuple[Any, bool]], encrypted: bool, returns: str) -> None:
    """Each step: events with or without an operation column, or a snapshot; and whether the program starts again."""
    key = KEY if encrypted else None
    plan = KeyedPlan(unit=Record(returns=returns))  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:

        def opened() -> Stream:
            return start(Path(folder), plan=plan, publish=False, randomness=Randomness.seeded(1), key=key)

        stream, model = opened(), Model()
        for number, (given_step, restart) in enumerate(life):
            if restart:
                stream.close()
                stream = opened()
            before = contents(stream)
            given_batch, after = as_given(given_step, model)
            back = after is not None and model.left & after.present.keys() - model.present.keys()
            if after is None or (back and returns == "refuse"):
                with pytest.raises(DataError):
                    stream.step(given_batch, f"b{number}")
                assert (contents(stream), stream.begun, stream.last_step) == (before, None, model.step)
                continue
            release = stream.step(given_batch, f"b{number}")
            assert stream.step(given_batch, f"b{number}").manifest == release.manifest
            left = sorted(first for name, (first, _) in model.present.items() if name not in after.present)
            model = after
            assert contents(stream) == expected(stream, model)
            state = stream._stored_state()
            zips = [value[0] for _, value in model.present.values()]
            wanted = [
                sum(zip_code == one for zip_code in zips) for one in ("94102", "94103", "94110", "10001")
            ]
            assert state.true.tolist() == wanted
            assert state.noise.tolist() == left
        kept = stream._store._db.execute("SELECT count(*) FROM departed").fetchone()[0]
        assert kept == (len(model.left) if returns == "refuse" else 0)
        stream.close()


def as_given(step: Any, model: Model) -> tuple[KeyedBatch | Snapshot, Model | None]:
    """What a stream is given, and the model after it; None where it is refused."""
    if isinstance(step, dict):
        after = model.after(dict(step))
        return Snapshot(frame(step), "id", confirmed=True), after
    rows, rules, changed, with_operations = step
    used = [(key, op or "insert" if with_operations else None, cells) for key, op, cells in rows]
    table = events([(key, op, None if op == "delete" else cells) for key, op, cells in used])
    if not with_operations:
        del table["op"]
    given_batch = KeyedBatch(table, "id", "op" if with_operations else None, changed, rules)
    whole = [cells for _, op, cells in used if op != "delete" and changed is None]
    if any(cells[0] is None or cells[1] is None for cells in whole):
        return given_batch, None
    try:
        return given_batch, model.events(used, rules, changed)
    except RefusedHere:
        return given_batch, None


def test_a_key_and_a_user_of_one_name_have_different_hashes() -> None:
    column = pa.chunked_array([pa.array(["12"])])
    user = hashlib.blake2b(b"12", digest_size=16, key=b"secret", person=b"user").digest()
    record = hashlib.blake2b(b"12", digest_size=16, key=b"secret", person=b"record").digest()
    assert hash_keys(column, b"secret", "test").astype(">u8").tobytes() == record != user


# What is refused, and what is content


NO_KNOWN, ONCE, NULL = KeyRules(known="error"), KeyRules(repeated="error"), ("94102", None, 7)
BAD: dict[str, tuple[KeyedBatch | Snapshot | Batch, str]] = {
    "unknown delete": (keyed((SECRET, "delete", None)), "a delete has an unknown key"),
    "unknown update": (keyed((SECRET, "update", A)), "an update has an unknown key"),
    "known insert": (keyed(("here", "insert", A), rules=NO_KNOWN), "an insert has a present key"),
    "repeated": (keyed((SECRET, "insert", A), (SECRET, "update", A), rules=ONCE), "several rows in one step"),
    "repeated whole": (Snapshot({**frame({1: A, 2: A}), "id": [SECRET] * 2}, "id", ONCE), "several rows"),
    "comes back": (keyed((GONE, "insert", A)), "a key returns after an absence, despite returns ="),
    "null key": (keyed((None, "insert", A)), "a record lacks a key"),
    "empty key": (keyed(("", "insert", A)), "a record lacks a key"),
    "key of another type": (Snapshot({**frame({"here": A}), "id": [1.5]}, "id"), "keys have the type double"),
    "operation": (keyed((SECRET, "upsert", A)), ": expected operations"),
    "value": (keyed((SECRET, "insert", NULL)), "'paid' holds nulls"),
    "null of a whole record": (
        keyed((SECRET, "insert", NULL), changed="null-keeps"),
        "nulls in whole records",
    ),
    "no key column": (Snapshot({n: [A[i]] for i, n in enumerate(NAMES)}, "id"), "unknown column 'id'"),
    "no operation column": (KeyedBatch(frame({"here": A}), "id", "op"), "unknown column 'op'"),
    "key is a column": (Snapshot(frame({"here": A}), "zip"), "keys or operations is also in the schema"),
    "empty": (snapshot(), "the snapshot is empty, or below the declared share"),
    "no rows": (Snapshot(None, "id"), "the snapshot is empty, or below the declared share"),
    "no keys": (plain_batch(1), "reads records with keys"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_one_sentence_and_leaves_no_trace(tmp_path: Path, name: str) -> None:
    """No key, value or number of the step is in the message, and nothing was reserved or spent."""
    bad, says = BAD[name]
    keys = ["here", *(f"key-{i}" for i in range(16))]
    with start(tmp_path, plan=REFUSE, publish=False) as stream:
        stream.step(snapshot(*keys, GONE), "b0")
        stream.step(snapshot(*keys), "b1")
        before = (tmp_path / "state" / "stream.sqlite-wal").read_bytes()
        with pytest.raises(DpstreamError, match=re.escape(says)) as caught:
            stream.step(bad, "b2")
        assert caught.value.exit_code == 2
        text = str(caught.value)
        assert text.startswith("step 'b2': ")
        assert not re.search(r"secret|key-|\d", text.removeprefix("step 'b2'")), "no key, and no number"
        assert caught.value.__cause__ is None
        assert (stream.last_step, stream.begun) == (2, None)
        assert (tmp_path / "state" / "stream.sqlite-wal").read_bytes() == before
        assert stream.step(keyed(("new", "insert", A)), "b2").step == 3


def test_a_shrunken_snapshot_goes_on_once_it_is_confirmed(tmp_path: Path) -> None:
    keys = [f"k{i}" for i in range(20)]
    with start(tmp_path, publish=False) as stream:
        assert stream.step(snapshot(), "empty, and nothing leaves").step == 1
        stream.step(snapshot(*keys), "b2")
        stream.step(snapshot(*keys[:2]), "a tenth is enough")
        stream.step(snapshot(*keys, rules=KeyRules(shrinks=1.0)), "b4")
        with pytest.raises(UnconfirmedError):
            stream.step(snapshot(*keys[:19], rules=KeyRules(shrinks=1.0)), "b5")
        stream.step(snapshot(*keys[:1], rules=KeyRules(shrinks=0.0)), "b5")
        with pytest.raises(UnconfirmedError):
            stream.step(snapshot(rules=KeyRules(shrinks=0.0)), "b6")
        release = stream.step(snapshot(confirmed=True), "b6")
        # Who confirmed is no part of the content.
        assert stream.step(snapshot(), "b6").manifest == release.manifest
        assert len(stream._store.present(SCHEMA)) == 0


@pytest.mark.parametrize(
    "rules", [{"unknown": "drop?"}, {"known": "drop"}, {"repeated": "first"}, {"shrinks": 2}]
)
def test_rules_that_do_not_exist_are_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="rules of keyed records"):
        KeyRules(**rules)


def test_keyed_records_are_for_plans_that_read_present_records(tmp_path: Path) -> None:
    with open_stream(ToyPlan(), SCHEMA, tmp_path / "events") as stream:
        for given_batch in (snapshot("a"), keyed(("a", "insert", A)), Engine(batch(1))):
            with pytest.raises(ConfigError, match="the mechanism 'toy' reads records without keys"):
                stream.step(given_batch, "b1")
        assert stream.begun is None
    with pytest.raises(ConfigError, match="cannot protect the unit 'record'"):
        open_stream(ToyPlan(unit=Record()), SCHEMA, tmp_path / "a")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cannot protect the unit 'event'"):
        open_stream(KeyedPlan(unit=Event()), SCHEMA, tmp_path / "b")  # type: ignore[arg-type]


def shuffled(table: dict[str, list[Any]], rng: np.random.Generator) -> dict[str, list[Any]]:
    """Rows in another order, each key's in theirs."""
    keys = table["id"]
    places = {key: iter([i for i, other in enumerate(keys) if other == key]) for key in keys}
    rows = [next(places[keys[i]]) for i in rng.permutation(len(keys))]
    return {name: [cells[i] for i in rows] for name, cells in table.items()}


def test_the_order_of_different_keys_changes_nothing_and_that_of_one_key_is_content(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    with start(tmp_path, publish=False) as stream:
        given = [batch(step) for step in (1, 2, 3)]
        for step, one in enumerate(given, start=1):
            release = stream.step(one, f"b{step}")
            for _ in range(3):
                again = KeyedBatch(pa.table(shuffled(one.events, rng)), "id", "op", rules=one.rules)
                assert stream.step(again, f"b{step}").manifest == release.manifest
        table = given[-1].events
        pairs = list(zip(table["id"], table["op"], strict=True))
        first, second = next(
            (i, j)
            for i, j in itertools.combinations(range(len(pairs)), 2)
            if pairs[i][0] == pairs[j][0] and pairs[i][1] != pairs[j][1]
        )
        order = list(range(len(table["id"])))
        order[first], order[second] = second, first
        others = [
            {name: [cells[i] for i in rows] for name, cells in table.items()}
            for rows in (order, order[:-1], [*order, order[-1]])
        ]
        for changed in [*others, {**table, "id": ["other", *table["id"][1:]]}]:
            with pytest.raises(StepError, match="the id belongs to other records"):
                stream.step(KeyedBatch(changed, "id", "op", rules=KeyRules(unknown="drop")), "b3")
        whole = {"id": table["id"], **{n: [A[i]] * 40 for i, n in enumerate(NAMES)}}
        for other in (KeyedBatch(whole, "id"), Snapshot(whole, "id")):
            with pytest.raises(StepError, match="the id belongs to other records"):
                stream.step(other, "b3")
        stream.step(KeyedBatch(None, "id"), "nothing happened")
        with pytest.raises(StepError):
            stream.step(Snapshot(None, "id", confirmed=True), "nothing happened")


def test_other_rules_are_other_content(tmp_path: Path) -> None:
    """After a crash the same rows under other rules are not taken for the same batch."""
    rows = (("x", "insert", A), ("y", "insert", A))
    rules = ({"unknown": "drop"}, {"known": "error"}, {"repeated": "error"}, {"shrinks": 0.2})
    with start(tmp_path, publish=False) as stream:
        first = stream.step(keyed(*rows), "b1")
        for options in (*({"rules": KeyRules(**one)} for one in rules), {"changed": "null-keeps"}):  # type: ignore[arg-type]
            with pytest.raises(StepError, match="the id belongs to other records"):
                stream.step(keyed(*rows, **options), "b1")
        assert stream.step(keyed(*rows), "b1").manifest == first.manifest


class Engine:
    """Keeps its records elsewhere; here: as the frames of a batch."""

    def __init__(self, given: KeyedBatch | Snapshot, *, keyed: bool = True) -> None:
        self.given, self.keyed = given, keyed

    def grant(self, wanted: ReadRequest) -> BatchAccess:
        granted = read_keyed(self.given, wanted)
        if self.keyed:
            return granted
        return BatchAccess(EncodedBatch(wanted.schema.domain, np.zeros((0, 3), np.int32), None), granted.rows)


def test_an_engine_gives_keyed_changes_where_they_are_read(tmp_path: Path) -> None:
    with start(tmp_path, publish=False) as stream:
        release = stream.step(Engine(batch(1)), "b1")
        assert stream.step(batch(1), "b1").manifest == release.manifest
        with pytest.raises(ConfigError, match="reads records with keys"):
            stream.step(Engine(batch(2), keyed=False), "b2")
        assert (stream.last_step, stream.begun) == (1, None)


@pytest.mark.parametrize("after_noise", [False, True])
def test_a_mechanism_that_stops_leaves_the_present_records_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_noise: bool
) -> None:
    step = KeyedPlan.step

    def stops(*given: Any) -> None:
        if after_noise:
            step(*given)
        raise ArithmeticError

    with start(tmp_path / "undisturbed", publish=False) as stream:
        for number in (1, 2):
            stream.step(batch(number), f"b{number}")
        true = stream._stored_state().true.tolist()
    with start(tmp_path, publish=False) as stream:
        stream.step(batch(1), "b1")
        before = contents(stream)
        with monkeypatch.context() as patch:
            patch.setattr(KeyedPlan, "step", stops)
            with pytest.raises(ArithmeticError):
                stream.step(batch(2), "b2")
        assert stream._admission._table is None
        assert contents(stream) == before
        if after_noise:
            with pytest.raises(StepError):
                stream.step(batch(2), "b2")
            stream.discard_reservation()
        stream.step(batch(2), "b2")
        assert stream._stored_state().true.tolist() == true


def test_what_a_stream_says_of_keyed_records(tmp_path: Path) -> None:
    for returns, words in (("new", "is a new record"), ("refuse", "no key comes back after an absence")):
        plan = KeyedPlan(unit=Record(returns=returns))  # type: ignore[arg-type]
        with start(tmp_path / returns, plan=plan) as stream:
            manifest = stream.step(batch(1), "b1").manifest
        assert manifest["unit"]["name"] == "record"
        assert manifest["unit"]["returns"] == returns
        assert "one record's whole stay" in manifest["unit"]["words"]
        assert words in manifest["unit"]["words"]
        assert "a record's whole stay" in manifest["spent"]["composition"]
        told = " ".join(manifest["declared_public"])
        assert "that a step was accepted, and when, is public" in told
        assert "until its owner has confirmed it" in told
        assert ("a key that comes back after an absence stops the stream" in told) == (returns == "refuse")
        with pytest.raises(ConfigError, match="returns was"):
            start(tmp_path / returns, plan=KeyedPlan() if returns == "refuse" else REFUSE)
    with start(tmp_path / "public", plan=KeyedPlan(unit=Record("replace"))) as stream:
        told = " ".join(stream.step(batch(1), "b1").manifest["declared_public"])
    assert "which keys are present" in told


# Present records in the store


@pytest.fixture(params=["sqlite", "encrypted", "postgres"])
def key(request: pytest.FixtureRequest) -> StateKey | None:
    """On each database."""
    if request.param == "postgres":
        request.getfixturevalue("on_postgres")
    return KEY if request.param == "encrypted" else None


def life(stream: Stream, steps: range) -> None:
    for step in steps:
        given = batch(step)
        # No key comes back: each step has keys of its own, and the deletes of the step before.
        table = {**given.events, "id": [f"{step // 2}-{key}" for key in given.events["id"]]}
        keep = [i for i, op in enumerate(table["op"]) if op != "delete" or step % 2]
        keep = [i for i in keep if step % 2 == 0 or table["op"][i] == "delete"]
        table = {name: [cells[i] for i in keep] for name, cells in table.items()}
        stream.step(KeyedBatch(table, "id", "op", rules=KeyRules(unknown="drop")), f"b{step}")


@pytest.mark.usefixtures("small_sums")
def test_what_a_step_writes_is_what_the_next_process_reads(tmp_path: Path, key: StateKey | None) -> None:
    for turn in (range(2, 4), range(4, 6)):
        with start(tmp_path, plan=REFUSE, key=key, publish=False) as stream:
            life(stream, turn)
            db, last = stream._store._db, stream.last_step
            secret = stream._store.meta["key"]
            assert stream._admission._table is not None
            assert same(stream._store.present(SCHEMA), stream._admission._table)
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
    tables = {"present": "", "departed": "", "latest": " WHERE name = 'present sum'"}
    with start(tmp_path, publish=False) as stream:
        life(stream, range(2, 3))
    with database(tmp_path) as db:
        earlier = {
            name: db.execute(f"SELECT * FROM {name}{rows}").fetchall() for name, rows in tables.items()
        }
    with start(tmp_path, publish=False) as stream:
        life(stream, range(3, 5))
    with database(tmp_path) as db:
        if not whole:
            db.execute(f"UPDATE latest SET step = step - 1{tables['latest']}")
        for name, rows in tables.items() if whole else ():
            db.execute(f"DELETE FROM {name}{rows}")
            for row in earlier[name]:
                db.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
    words = (
        "present sum is that of step 1, and the ledger ends at step 3" if whole else "present sum was changed"
    )
    assert any(words in text for text in check_store(tmp_path / "state", None).problems)
    with pytest.raises(StoreDamagedError, match=words):
        start(tmp_path, publish=False)


def test_a_deleted_key_leaves_no_trace_in_a_closed_store(tmp_path: Path) -> None:
    """Hash and values are overwritten in the file, and the log is gone with the last connection."""
    rng = np.random.default_rng(1)
    with start(tmp_path, publish=False) as stream:
        rows: dict[str, Values] = {f"key-{i}": values(rng) for i in range(3000)}
        stream.step(Snapshot(frame(rows), "id"), "b1")
        table = stream._store.present(SCHEMA)
        names = [name.astype(">u8").tobytes() for name in table.keys]
        gone = list(rows)[::3]
        stream.step(KeyedBatch(events([(name, "delete", None) for name in gone]), "id", "op"), "b2")
        left = {name.astype(">u8").tobytes() for name in stream._store.present(SCHEMA).keys}
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
        assert len(stream._store.present(SCHEMA)) == size
        stream._store._db.execute("PRAGMA wal_autocheckpoint = 0")
        for number, changes in enumerate((10, 1000)):
            stream._store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            first = 10**6 * (number + 1)
            come = events([(key, "insert", ("94102", True, 1)) for key in range(first, first + changes)])
            stream.step(KeyedBatch(come, "id", "op"), f"few{number}")
            written.append(log.stat().st_size)
        size_of_rows = "SELECT sum(length(key) + length(value)) FROM present"
        (whole,) = stream._store._db.execute(size_of_rows).fetchone()
    assert max(sizes[10:]) <= 1.2 * max(sizes[:10])
    assert written[0] < whole / 2, "few changes write few bytes"
    assert written[1] - written[0] < 1000 * 4300
