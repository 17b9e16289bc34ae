"""The state in parts: what is public and stays is written once, and what is private is written at every step; packed
state is exact and checked, and a keyed fingerprint tells a repetition from other records."""

from __future__ import annotations

import hashlib
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_keyed
from fault_harness import STEPS, Subject, killed_at_every, sql
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from toy_stream import SCHEMA

from dpstream.core.contracts import Packed
from dpstream.core.errors import StoreDamagedError, StoreFormatError
from dpstream.core.privacy import PureDP, Randomness, Record
from dpstream.core.schema import Domain
from dpstream.core.tables import KeyedChanges, PresentBatch, PresentTable, PresentView, Workload
from dpstream.families.census import Census
from dpstream.stream import Publishing, StateKey
from dpstream.stream.admission import RecordRows
from dpstream.stream.inspection import check_store
from dpstream.stream.release.persistent_records import (
    PersistentRecords,
    Rows,
    _succession,
    join_packed,
    split_packed,
)
from dpstream.stream.store import container, step_rows
from dpstream.stream.store.archive import export_store, import_store
from dpstream.stream.store.sealed_history import derive, write_latest
from dpstream.stream.store.sqlite import create_file
from dpstream.stream.store.step_rows import STATE, read_state, split_state, verify_state, write_state
from dpstream.stream.store.store_database import StoreDatabase, create_tables
from dpstream.stream.store.upkeep import rekey_store

SECRET = b"s" * 32
BOTH = Publishing(records="persistent", publish="both")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that the few records of these tests are parts."""
    monkeypatch.setattr(step_rows, "_LEAST", 1)


def live(home: Path, steps: range, key: StateKey | None = None) -> None:
    with toy_keyed.start(home, publishing=BOTH, key=key, randomness=Randomness.seeded(1)) as stream:
        for step in steps:
            stream.step(toy_keyed.batch(step), f"b{step}")


def rows(home: Path) -> dict[bytes, bytes]:
    return dict(sql(home, "SELECT key, value FROM state_parts"))


# One state after another


def filled(path: Path, work: Callable[[StoreDatabase], None]) -> None:
    def fill(db: StoreDatabase) -> None:
        create_tables(db)
        write_latest(db, SECRET, "state", 0, container.dump(Packed({}, {})))
        work(db)

    create_file(path, fill)


arrays = st.dictionaries(
    st.sampled_from("abcdef"),
    st.tuples(
        st.integers(0, 3), st.sampled_from(["<f8", "<i4", "|u1", "|b1"]), st.sampled_from([1, 40, 300])
    ),
)


@settings(max_examples=25)
@given(st.lists(st.tuples(arrays, st.sets(st.sampled_from("abcdef"))), min_size=1, max_size=4))
def test_what_is_written_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, states: list[tuple[dict[str, Any], set[str]]]
) -> None:
    """Also arrays that are equal under two names, change their type, or come back."""

    def work(db: StoreDatabase) -> None:
        for step, (chosen, public) in enumerate(states, start=1):
            made = {
                name: np.asfortranarray(np.full((rows, 2), value).astype(kind))
                for name, (value, kind, rows) in chosen.items()
            }
            packed = Packed({"step": step, "parts": 1}, made, frozenset(public & made.keys()))
            split = split_state(packed, derive(SECRET, STATE))
            write_state(db, SECRET, step, split)
            found = read_state(db, SECRET)
            assert found.meta == packed.meta
            assert found.arrays.keys() == made.keys()
            for name, array in made.items():
                assert found.arrays[name].dtype == array.dtype
                assert found.arrays[name].flags.f_contiguous
                assert (found.arrays[name] == array).all()
            assert verify_state(db, SECRET) is None
            with pytest.raises(StoreDamagedError, match="the stored state belongs to another step"):
                write_state(db, SECRET, step, split)

    filled(tmp_path_factory.mktemp("one") / "db", work)


def test_only_public_arrays_are_parts() -> None:
    """Whether a part is written is seen from outside: private numbers are in the row that is written at every step."""
    big = np.zeros(5000)
    packed = Packed(
        {}, {"private": big, "public": big + 1, "small": np.zeros(3)}, frozenset({"public", "small"})
    )
    split = split_state(packed, SECRET)
    assert [array[0] for array in split.parts.values()] == [1.0]
    assert container.load(split.head, where="test").arrays.keys() == {"private", "small"}
    assert split_state(Packed({}, {"private": big}), SECRET).parts == {}
    assert split.parts.keys() != split_state(packed, b"t" * 32).parts.keys(), "names are keyed"


def test_the_departures_of_a_census_are_no_part_and_its_models_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_rows, "_LEAST", 100)
    domain = SCHEMA.domain
    recipe = Census(Workload.all_k_way(domain, 2), turnover=8, iterations=2)
    plan = recipe.calibrate(PureDP.of(1), Record(), None)
    state, table, seen, written = plan.start(), PresentTable.empty(domain), set(), []
    rng = np.random.default_rng(1)
    for number in range(5):
        codes = np.stack([rng.integers(0, size, 100) for size in domain.sizes], axis=1).astype(np.int32)
        keys = np.sort(rng.integers(1, 2**60, (100, 2)).astype(np.uint64), axis=0)
        table, departed = table.after(KeyedChanges(keys, np.ones(100, dtype=bool), codes), state.step + 1)
        plan.step(state, PresentBatch(PresentView(table, departed)), Randomness.seeded(number))
        if number == 0:  # young streams have a census at every step
            state.step, state.last = 30, [30]
        packed = plan.pack_state(state)
        assert packed.public == packed.arrays.keys() - {"state/left"}
        parts = split_state(packed, SECRET).parts
        written.append(sum(array.nbytes for name, array in parts.items() if name not in seen))
        seen |= parts.keys()
    assert state.last[0] == 33, "the third of the later steps was a census"
    assert [bool(number) for number in written] == [True, False, False, True, False]


# In a store


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("key", [None, StateKey(b"k" * 32)], ids=["plain", "encrypted"])
def test_a_store_with_parts_moves_changes_its_key_and_goes_on(tmp_path: Path, key: StateKey | None) -> None:
    live(tmp_path, range(1, 4), key)
    before = rows(tmp_path)
    assert len(before) >= 3
    rekey_store(tmp_path / "state", old=key, new=StateKey(b"o" * 32))
    sealed = rows(tmp_path)
    assert sealed.keys() == before.keys()
    assert not set(sealed.values()) & set(before.values())
    rekey_store(tmp_path / "state", old=StateKey(b"o" * 32), new=key)
    with toy_keyed.start(tmp_path, publishing=BOTH, key=key) as stream:
        pinned, records = dict(stream._facts), stream._carried.records
        present = stream._store.present(SCHEMA)
    export_store(tmp_path / "state", tmp_path / "moving", move=True, key=key)
    shutil.rmtree(tmp_path / "state")
    import_store(tmp_path / "moving", tmp_path / "state", pinned, key=key)
    assert check_store(tmp_path / "state", tmp_path / "releases", key=key).problems == ()
    with toy_keyed.start(tmp_path, publishing=BOTH, key=key) as stream:
        assert stream._carried.records.with_ids.equals(records.with_ids)
        assert stream._store.present(SCHEMA).codes.tobytes() == present.codes.tobytes()
        stream.step(toy_keyed.batch(4), "b4")
    assert check_store(tmp_path / "state", tmp_path / "releases", key=key).problems == ()


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("DELETE FROM state_parts WHERE key = (SELECT min(key) FROM state_parts)", "missing"),
        ("DELETE FROM state_parts", "missing"),
        (
            "UPDATE state_parts SET value = (SELECT value FROM state_parts ORDER BY key DESC LIMIT 1) "
            "WHERE key = (SELECT min(key) FROM state_parts)",
            "changed",
        ),
        ("UPDATE state_parts SET value = substr(value, 1, 45)", "checksum"),
        ("INSERT INTO state_parts SELECT x'00', value FROM state_parts LIMIT 1", "unnamed"),
    ],
)
def test_damaged_parts_are_found(tmp_path: Path, damage: str, words: str) -> None:
    live(tmp_path, range(1, 4))
    sql(tmp_path, damage)
    assert any(words in problem for problem in check_store(tmp_path / "state", None).problems)
    if words != "unnamed":
        with pytest.raises(StoreDamagedError, match=words):
            toy_keyed.start(tmp_path, publishing=BOTH).close()


def test_few_changes_write_few_bytes() -> None:
    """20,000 records of which 40 change in a step: all 60 steps write about as much as the table, in all."""
    rng = np.random.default_rng(1)
    codes = np.stack([rng.integers(0, size, 20_000) for size in SCHEMA.domain.sizes], axis=1).astype(np.int32)
    first = Rows(np.arange(1, 20_001), codes, SCHEMA.decode(codes, 1))
    records, seen, written = PersistentRecords.of(first, 20_001), set(), []
    for step in range(61):
        packed = join_packed(Packed({}), records, records.next_id)
        split = split_state(packed, SECRET)
        written.append(len(split.head) + sum(a.nbytes for n, a in split.parts.items() if n not in seen))
        seen = set(split.parts)
        stays = np.ones(20_000, dtype=bool)
        stays[rng.choice(20_000, 40, replace=False)] = False
        fresh = np.stack([rng.integers(0, size, 40) for size in SCHEMA.domain.sizes], axis=1).astype(np.int32)
        records = _succession(records, stays, fresh, SCHEMA, step, ()).records
    assert split_packed(packed)[1] is not None
    assert sum(written[1:]) < 1.5 * written[0]
    assert sorted(written[1:])[30] < written[0] / 50


@pytest.mark.usefixtures("small_parts")
def test_killed_before_durability_calls(tmp_path: Path) -> None:
    def sound(home: Path) -> None:
        assert check_store(home / "state", home / "releases").problems == ()
        assert rows(home)

    subject = Subject(toy_keyed.KeyedPlan(), SCHEMA, toy_keyed.batch, BOTH, judge=sound)
    assert killed_at_every(9, tmp_path, subject) > 10 * STEPS


# Packed state, and the fingerprint that tells a repetition from other records


NUMBERS = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.floating_dtypes(endianness="=", sizes=(32, 64)),
)
ARRAYS = hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.text(), JSON, max_size=3),
    st.dictionaries(st.text(), ARRAYS, max_size=3),
    st.booleans(),
)
def test_round_trip(meta: dict[str, object], arrays: dict[str, np.ndarray], fortran: bool) -> None:
    if fortran:
        arrays = {name: np.asfortranarray(array) for name, array in arrays.items()}
    back = container.load(container.dump(Packed(meta, arrays)), where="test")
    assert back.meta == meta
    assert list(back.arrays) == list(arrays)
    for name, array in arrays.items():
        other = back.arrays[name]
        assert (other.dtype, other.shape) == (array.dtype, array.shape)
        assert other.tobytes() == array.tobytes(), "bit for bit, NaN included"
        assert other.flags.f_contiguous == array.flags.f_contiguous
        assert other.flags.writeable


def test_every_flip_and_every_cut_is_found() -> None:
    good = container.dump(Packed({"step": 3}, {"true": np.arange(50), "x": np.eye(3)}))
    for i in range(len(good)):
        broken = bytearray(good)
        broken[i] ^= 4
        with pytest.raises(StoreFormatError if i in (4, 5) else StoreDamagedError, match="state"):
            container.load(bytes(broken), where="state")
        with pytest.raises(StoreDamagedError):
            container.load(good[:i], where="state")


def test_a_frame_holds_what_it_states() -> None:
    zeros = container.dump(Packed({}, {"a": np.zeros(2_000_000, dtype=np.int64)}))
    assert len(container.load(zeros, where="test").arrays["a"]) == 2_000_000
    start = 4 + 2 + 32
    size = start + 6  # magic, flags and window, then four bytes
    stated = int.from_bytes(zeros[size : size + 4], "little")
    assert stated > 16_000_000
    tracemalloc.start()
    for other in (0, stated - 1, stated + 1, 2**32 - 1):
        body = zeros[start:size] + other.to_bytes(4, "little") + zeros[size + 4 :]
        forged = zeros[: start - 32] + hashlib.sha256(body).digest() + body
        with pytest.raises(StoreDamagedError, match="cannot be expanded"):
            container.load(forged, where="test")
    assert tracemalloc.get_traced_memory()[1] < 2 * stated
    tracemalloc.stop()


def test_only_numbers_and_json() -> None:
    for array in (np.array([object()]), np.array(["a"]), np.array([1j]), np.array(["2024"], "M8[Y]")):
        with pytest.raises(TypeError, match="only numbers"):
            container.dump(Packed({}, {"a": array}))
    with pytest.raises(TypeError):
        container.dump(Packed({"a": {1, 2}}))
    with pytest.raises(ValueError, match="JSON compliant"):
        container.dump(Packed({"a": float("nan")}))


ROWS_KEY = bytes(range(32))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_content_is_a_multiset(data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 65535]), min_size=1, max_size=6)))
    domain = Domain(tuple(f"c{i}" for i in range(len(sizes))), sizes)
    rows = st.lists(st.tuples(*(st.integers(0, size - 1) for size in sizes)), max_size=5)
    first, second = (np.array(data.draw(rows), np.int32).reshape(-1, len(sizes)) for _ in range(2))
    empty = first[:0]
    stored = RecordRows(domain, first, empty).fingerprint(ROWS_KEY)
    mixed = first[np.random.default_rng(0).permutation(len(first))]
    assert RecordRows(domain, mixed, empty).fingerprint(ROWS_KEY) == stored
    same = sorted(map(tuple, first.tolist())) == sorted(map(tuple, second.tolist()))
    assert (RecordRows(domain, second, empty).fingerprint(ROWS_KEY) == stored) == same
    assert (RecordRows(domain, empty, first).fingerprint(ROWS_KEY) == stored) == (len(first) == 0)


def test_a_content_as_it_is_stored() -> None:
    """One with owners: ``test_golden_store.py``."""
    domain = Domain(("a", "b", "c"), (3, 65535, 2**30))
    codes = np.array([[2, 7, 1], [0, 65534, 2**30 - 1], [2, 7, 1]], np.int32)
    stored = "ff6fe417f42b49073935f112e05b0b57143782e2d6d434876460ebfd8ff57361"
    assert RecordRows(domain, codes, codes[:1]).fingerprint(ROWS_KEY).hex() == stored
