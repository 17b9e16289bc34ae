"""The counters of users in the store against a brute-force count: in parts, over restarts, on both databases."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_stream import SCHEMA, ToyPlan

from dpstream.core.errors import StoreDamagedError
from dpstream.core.privacy import Randomness, User
from dpstream.stream import Batch, StateKey, open_stream
from dpstream.stream.store import sqlite, summed_rows

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


def damaged(db: Any, key: bytes) -> bool:
    """Whether the counters are found to be damaged."""
    try:
        return summed_rows.verify_events(db, key) is not None
    except StoreDamagedError:
        return True


# User u always has the same record, so that true counts show how many of each user's events came in.
EVENTS = st.lists(st.integers(0, 29), max_size=24)
STREAM = st.lists(st.tuples(EVENTS, st.booleans()), min_size=1, max_size=5)


@pytest.mark.parametrize("place", ["sqlite", "encrypted", "postgres"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(stream=STREAM, bound=st.integers(1, 5))
def test_every_life_agrees_with_a_brute_force_count(
    request: pytest.FixtureRequest, place: str, stream: list[tuple[list[int], bool]], bound: int
) -> None:
    """``stream``: the users of a step's records, and whether the program starts again before the step."""
    if place == "postgres":
        request.getfixturevalue("on_postgres")
    plan, key = ToyPlan(unit=User(bound)), StateKey(b"k" * 32) if place == "encrypted" else None
    with tempfile.TemporaryDirectory() as home:

        def start() -> Any:
            return open_stream(plan, SCHEMA, Path(home) / "s", randomness=Randomness.seeded(1), key=key)

        opened, asked = start(), Counter[int]()
        for number, (events, restart) in enumerate(stream, start=1):
            if restart:
                opened.close()
                opened = start()
            zips = [ZIPS[u % 3] for u in events]
            frame = {"zip": zips, "paid": [True] * len(events), "rent": [1] * len(events)}
            opened.step(Batch(frame, users=[f"user {u}" for u in events]), f"b{number}")
            asked.update(events)
        counts = {u: min(n, bound) for u, n in asked.items()}
        assert opened.dropped_events == sum(asked.values()) - sum(counts.values())
        expected = [sum(n for u, n in counts.items() if u % 3 == zip_code) for zip_code in range(3)]
        assert opened._stored_state().true.tolist()[:3] == expected
        db, secret = opened._store._database, opened._store.meta["key"]
        with db.errors():
            stored = counters(db)
            assert sorted(stored.values()) == sorted(counts.values())
            mixed = [*sorted(stored, key=lambda user: user[::-1]), bytes(len(max(stored, default=b"")))]
            assert summed_rows.read_events(db, mixed).tolist() == [stored.get(user, 0) for user in mixed]
            assert not damaged(db, secret)
            for statement, values in (
                ("DELETE FROM users WHERE key = ?", []),
                ("UPDATE users SET key = ? WHERE key = ?", [b""]),
            ):
                if stored:
                    db.begin()
                    db.execute(statement, [*values, max(stored)])
                    assert damaged(db, secret)
                    db.rollback()
        opened.close()
