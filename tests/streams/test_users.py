"""The counters of users in the store against a brute-force count: in parts, over restarts, on both databases."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_stream import SCHEMA, ToyPlan

from dpstream.core.privacy import Randomness, User
from dpstream.core.tables.contribution import ID_BYTES
from dpstream.stream import Batch, StateKey, open_stream
from dpstream.stream.store import sqlite, summed_rows
from dpstream.stream.store.store import Store

ZIPS = ["94102", "94103", "94110"]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that every loop over parts goes round, and ends with a part that is not full."""
    monkeypatch.setattr(summed_rows, "_CHUNK", 3)
    monkeypatch.setattr(summed_rows, "_PAGE", 4)
    monkeypatch.setattr(sqlite, "_ROWS", 3)


def counters(db: Any) -> dict[bytes, int]:
    """All counters, by the hash of the user."""
    pages = list(summed_rows.value_pages(db, "users"))
    return {
        key: int.from_bytes(value, "little")
        for keys, values in pages
        for key, value in zip(keys, values, strict=True)
    }


# User u always has the same record, so that true counts show how many of each user's events came in.
EVENTS = st.lists(st.integers(0, 11), max_size=16)
STREAM = st.lists(st.tuples(EVENTS, st.booleans()), min_size=1, max_size=5)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(STREAM, st.integers(1, 5), st.booleans())
def test_every_life_agrees_with_a_brute_force_count(
    stream: list[tuple[list[int], bool]], bound: int, encrypted: bool
) -> None:
    """``stream``: the users of a step's records, and whether the program starts again before the step."""
    plan, key = ToyPlan(unit=User(bound)), StateKey(b"k" * 32) if encrypted else None
    with tempfile.TemporaryDirectory() as home:

        def start() -> object:
            return open_stream(plan, SCHEMA, Path(home) / "s", randomness=Randomness.seeded(1), key=key)

        opened, asked = start(), Counter[int]()
        for number, (events, restart) in enumerate(stream, start=1):
            if restart:
                opened.close()
                opened = start()
            frame = {
                "zip": [ZIPS[u % 3] for u in events],
                "paid": [True] * len(events),
                "rent": [1] * len(events),
            }
            opened.step(Batch(frame, users=[f"user {u}" for u in events]), f"b{number}")
            asked.update(events)
        counts = {u: min(n, bound) for u, n in asked.items()}
        assert opened.dropped_events == sum(asked.values()) - sum(counts.values())
        expected = [sum(n for u, n in counts.items() if u % 3 == zip_code) for zip_code in range(3)]
        assert opened._stored_state().true.tolist()[:3] == expected
        stored = list(counters(opened._store._database).values())
        assert sorted(stored) == sorted(counts.values())
        opened.close()


@pytest.fixture(params=["sqlite", "encrypted", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store on each database."""
    if request.param == "postgres":
        request.getfixturevalue("on_postgres")
    key = StateKey(b"k" * 32) if request.param == "encrypted" else None
    stream = open_stream(ToyPlan(unit=User(9)), SCHEMA, tmp_path / "state", key=key)
    yield stream._store
    stream.close()


def test_counters_are_read_and_written_exactly_in_any_order(store: Store) -> None:
    """Against a dict, with few and with many of the users there, known and new ones, neighbours and strangers."""
    rng, oracle = random.Random(5), dict[bytes, int]()
    db, key = store._database, store.meta["key"]
    # A few first bytes: ranges of ids that hold many others, and ranges that hold none.
    everybody = sorted({bytes([rng.randrange(4)]) + rng.randbytes(ID_BYTES - 1) for _ in range(60)})
    for step in range(1, 31):
        ids = rng.sample(everybody, rng.choice([0, 1, 4, 30, 60]))
        with db.errors():
            before = summed_rows.read_events(db, ids)
            assert before.tolist() == [oracle.get(user, 0) for user in ids]
            after = before + np.array([rng.randrange(3) for _ in ids], np.int64)
            db.begin()
            summed_rows.write_events(db, key, step, summed_rows.UserEvents(ids, before, after, 1))
            db.execute("COMMIT")
            assert summed_rows.verify_events(db, key) is None
        oracle.update({user: n for user, n in zip(ids, after.tolist(), strict=True) if n})
        assert counters(db) == oracle
    assert summed_rows.dropped(db, key) == 30
    with db.errors():
        for damage, values in (
            ("DELETE FROM users WHERE key = ?", [max(oracle)]),
            ("UPDATE users SET key = ? WHERE key = ?", [b"", min(oracle)]),
        ):
            db.begin()
            db.execute(damage, values)
            assert wrong(db, key)
            db.rollback()
        assert summed_rows.verify_events(db, key) is None


def wrong(db: object, key: bytes) -> bool:
    """Whether the counters are found to be damaged."""
    from dpstream.core.errors import StoreDamagedError

    try:
        return summed_rows.verify_events(db, key) is not None
    except StoreDamagedError:
        return True


def test_a_wrong_order_of_ranges_would_be_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: reading ranges by their first and last id is exact in sorted lists only."""
    monkeypatch.setattr(summed_rows, "min", lambda part: part[0], raising=False)
    monkeypatch.setattr(summed_rows, "max", lambda part: part[-1], raising=False)
    with pytest.raises(AssertionError):
        test_counters_are_read_and_written_exactly_in_any_order(store)
