"""Streams of keyed records against a plain dict, whatever form the steps come in."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_keyed import NAMES, KeyedPlan, Values, events, frame, start
from toy_stream import SCHEMA

from dpstream.core.errors import DataError
from dpstream.core.privacy import Randomness, Record
from dpstream.core.tables.keyed_reading import hash_keys
from dpstream.stream import KeyedBatch, KeyRules, Snapshot, StateKey, Stream
from dpstream.stream.store import summed_rows


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that every loop over parts goes round, and ends with a part that is not full."""
    monkeypatch.setattr(summed_rows, "_CHUNK", 3)
    monkeypatch.setattr(summed_rows, "_PAGE", 4)


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
    table = stream._store.present(SCHEMA.domain)
    if stream._admission._table is not None:
        for name in ("keys", "first", "codes"):
            assert np.array_equal(getattr(stream._admission._table, name), getattr(table, name))
    return {
        key.tobytes(): (int(first), codes.tolist())
        for key, first, codes in zip(table.keys, table.first, table.codes, strict=True)
    }


def expected(stream: Stream, model: Model) -> dict[bytes, tuple[int, list[int]]]:
    import pyarrow as pa

    secret = stream._store.derived_key(b"record keys")
    keys = hash_keys(pa.chunked_array([pa.array(list(model.present), pa.string())]), secret, "test")
    rows = frame({key: value for key, (_, value) in model.present.items()})
    codes = (
        SCHEMA.encode({name: rows[name] for name in NAMES}) if model.present else np.zeros((0, 3), np.int32)
    )
    return {
        key.tobytes(): (first, code)
        for key, code, (first, _) in zip(keys, codes.tolist(), model.present.values(), strict=True)
    }


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
LIFE = st.lists(st.tuples(EVENTS | SNAPSHOT, st.booleans()), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(LIFE, st.booleans(), st.sampled_from(["new", "refuse"]))
def test_every_life_is_that_of_a_dict(life: list[tuple[Any, bool]], encrypted: bool, returns: str) -> None:
    """Each step: events with or without an operation column, or a snapshot; and whether the program starts again."""
    key = StateKey(b"k" * 32) if encrypted else None
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
            if (
                after is not None
                and returns == "refuse"
                and model.left & after.present.keys() - model.present.keys()
            ):
                after = None
            if after is None:
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
