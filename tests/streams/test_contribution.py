"""At most so many events of one user: a stability map, exact over a whole stream, and the same after a crash; the
counters of users in the store against a brute-force count, in parts, over restarts, on both databases."""

from __future__ import annotations

import functools
import itertools
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import toy_stream
from fault_harness import database
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_stream import SCHEMA, ToyPlan

from dpstream.core.errors import ConfigError, DataError, StepError, StoreDamagedError
from dpstream.core.privacy import Randomness, StepPeriods, User
from dpstream.core.tables.contribution import admit, id_bytes, read_owners
from dpstream.stream import Batch, StateKey, Stream, open_stream
from dpstream.stream.store import summed_rows

KEY = b"k" * 32


def bounded(steps, bound, key=KEY, order=None, cut=None):
    """What is admitted at each step of a stream of events (user, is a delete, record), as multisets.

    ``cut`` is told how many users each step cuts for the first time.
    """
    used, admitted = {}, []
    for events in steps:
        rows = list(events) if order is None else order(list(events))
        parts = [[event for event in rows if event[1] == side] for side in (False, True)]
        users = tuple(pa.chunked_array([pa.array([e[0] for e in part], pa.string())]) for part in parts)
        codes = [np.array([e[2] for e in part], np.int32).reshape(-1, 2) for part in parts]
        owners = read_owners(users, (len(parts[0]), len(parts[1])), key=key, where="test")
        before = np.array([used.get(user, 0) for user in owners.ids], np.int64)
        found = admit(codes[0], codes[1], owners, before, bound, key)
        used.update(zip(owners.ids, found.counts.tolist(), strict=True))
        masks = (found.inserts, found.deletes)
        kept = [e for part, mask in zip(parts, masks, strict=True) for e in itertools.compress(part, mask)]
        assert found.dropped == len(rows) - len(kept)
        assert found.counts.max(initial=0) <= bound + 1, "one event beyond the bound is enough to know"
        if cut is not None:
            cut.append(found.cut)
        admitted.append(Counter(kept))
    return admitted


#: Two households of two.
USERS = st.sampled_from(["a1", "a2", "b1", "b2"])
EVENT = st.tuples(USERS, st.booleans(), st.tuples(st.integers(0, 1), st.integers(0, 2)))
STREAM = st.lists(st.lists(EVENT, max_size=14), max_size=4)


@settings(deadline=None, max_examples=300)
@given(STREAM, st.integers(1, 6), USERS, st.randoms(use_true_random=False))
def test_adding_or_removing_a_user_changes_that_users_events_only(stream, bound, user, generator):
    """The stability map that the guarantee rests on: nobody else's events change, and at most the bound of these; one
    count of users who are cut, by one."""

    cut, cut_without = list[int](), list[int]()
    with_user = bounded(stream, bound, cut=cut)
    others = [[event for event in events if event[0] != user] for events in stream]
    without = bounded(others, bound, order=lambda rows: generator.sample(rows, len(rows)), cut=cut_without)
    gone = [full - rest for full, rest in zip(with_user, without, strict=True)]
    assert all(not rest - full for full, rest in zip(with_user, without, strict=True))
    assert all(event[0] == user for step in gone for event in step)
    assert sum(step.total() for step in gone) <= bound
    # Oracle: as many of each user's events as there is room for, counted one by one.
    wanted = Counter(event[0] for events in stream for event in events)
    taken = Counter(event[0] for step in with_user for event in step.elements())
    assert taken == {name: min(count, bound) for name, count in wanted.items()}
    assert all(not step - Counter(events) for step, events in zip(with_user, stream, strict=True))
    # Each step's number of users whose first event beyond the bound it holds, looked for one by one.
    places = {name: [n for n, step in enumerate(stream) for e in step if e[0] == name] for name in wanted}
    first = Counter(at[bound] for at in places.values() if len(at) > bound)
    assert cut == [first[number] for number in range(len(stream))]
    moved = [full - rest for full, rest in zip(cut, cut_without, strict=True)]
    assert sorted(moved)[:-1] == [0] * (len(moved) - 1) or not moved
    assert sum(moved) == int(wanted[user] > bound)


def test_no_value_is_preferred():
    """Each of ten events is admitted with probability 1/10. False alarms: below 1e-6 (5 standard deviations)."""
    rare, usual, keys = ("a", False, (0, 0)), ("a", False, (1, 2)), 4000
    hits = sum(rare in bounded([[rare] + [usual] * 9], 1, n.to_bytes(32, "little"))[0] for n in range(keys))
    deviation = math.sqrt(keys * 0.1 * 0.9)
    assert abs(hits - keys / 10) < 5 * deviation
    # Negative control: a hash of the record alone would give each different record the same chance.
    assert abs(keys / 2 - keys / 10) > 5 * deviation


def test_ids_are_compared_as_texts():
    def ids(*values):
        return [value.as_py() for values in values for value in id_bytes(pa.chunked_array([values]), "test")]

    text = pa.array(["12"])
    twelve = [text, text.dictionary_encode(), text.cast(pa.large_string()), pa.array([12], pa.uint64())]
    twelve += [pa.array([b"12"]), pa.array([b"12"], pa.binary(2)), pa.array([12], pa.decimal128(9))]
    assert ids(*twelve) == [b"12"] * len(twelve)
    assert len(set(ids(pa.array(["12", "012", "12 ", "A", "a"])))) == 5
    for bad in (pa.array(["1", None]), pa.array([""]), pa.array([None]), pa.array([1.5]), pa.array([True])):
        with pytest.raises(DataError, match=r"user id"):
            id_bytes(pa.chunked_array([bad]), "test")


# Whole streams. The toy's state holds the true counts of the first column.


def frame(*zips, users=None):
    found = {"zip": list(zips), "paid": [True] * len(zips), "rent": [1] * len(zips)}
    return found if users is None else {**found, "person": list(users)}


def start(home: Path, bound: int = 2, key: StateKey | None = None, per: int = 0, end: int = 0) -> Stream:
    plan = ToyPlan(unit=User(bound, StepPeriods(per) if per else None), horizon=end or None)
    return toy_stream.start(home, plan=plan, publish=False, randomness=Randomness.seeded(1), key=key)


def true_counts(stream: Stream) -> list[int]:
    return stream._stored_state().true.tolist()


A, B, C = "94102", "94103", "94110"


def test_the_bound_holds_over_steps_and_restarts_and_deletes_give_nothing_back(tmp_path):
    with start(tmp_path) as stream:
        stream.step(Batch(frame(A, B, users="xy"), users="person"), "b1")
        assert true_counts(stream) == [1, 1, 0, 0]
    with start(tmp_path) as stream:
        # x: the delete is the second and last event; y: one more.
        inserts, deletes = frame(B, users="y"), frame(A, users="x")
        stream.step(Batch(inserts, deletes, users="person"), "b2")
        assert true_counts(stream) == [0, 2, 0, 0]
        stream.step(Batch(frame(A, B, C), frame(B), users=(["x", "y", "z"], ["y"])), "b3")
        assert true_counts(stream) == [0, 2, 1, 0]
        assert stream.dropped_events == 3
        assert stream._store.cut_users().draws == 3, "each of the first steps ends a period"
        manifest = stream.release().manifest
        # The same events in another order are the same batch; those of other users are not.
        again = stream.step(Batch(frame(C, A, B), frame(B), users=(["z", "x", "y"], ["y"])), "b3")
        assert again.manifest == manifest
        with pytest.raises(StepError, match="other records"):
            stream.step(Batch(frame(A, B, C), frame(B), users=(["x", "y", "y"], ["y"])), "b3")
    words = User(2).describe()
    assert manifest["unit"] == {"name": "user", "words": words, "max_events": 2, "each_event": "49/100"}
    told = {part["name"]: part["total"] for part in manifest["mechanism"]["parts"]}
    assert told == {"select": "49/150", "measure": "49/75", "cut users": "1/50"}
    assert "each of a user's 2 events" in manifest["spent"]["composition"]
    assert manifest["spent"]["total"] == "1"


@pytest.mark.parametrize(
    ("batch", "error", "words"),
    [
        (Batch(frame(A)), DataError, "the unit 'user' needs users"),
        (Batch(frame(A), users="person"), DataError, "column 'person' is missing"),
        (Batch(frame(A), users="zip"), ConfigError, "'zip' .* in the schema too"),
        (Batch(frame(A), users=["x", "y"]), DataError, "one user id for each of the inserts"),
        (Batch(frame(A), frame(B), users=["x"]), DataError, "one user id for each of the deletes"),
        (Batch(frame(A), users=(["x"], None, None)), DataError, "pair"),
        (Batch(frame(A), users=[None]), DataError, "lacks a user id"),
        (Batch(np.zeros((1, 3), np.int32), users="person"), DataError, "have no column of user ids"),
    ],
)
def test_wrong_users_are_refused_before_anything_is_spent(tmp_path, batch, error, words):
    with start(tmp_path) as stream:
        with pytest.raises(error, match=words):
            stream.step(batch, "b1")
        stream.step(Batch(frame(A, users="x"), users="person"), "b1")
        assert stream.last_step == 1


def test_users_without_the_unit_and_another_bound_are_refused(tmp_path):
    with (
        open_stream(ToyPlan(), SCHEMA, tmp_path / "event") as stream,
        pytest.raises(DataError, match="the unit 'event' takes no users"),
    ):
        stream.step(Batch(frame(A), users=["x"]), "b1")
    with start(tmp_path) as stream:  # a state that never began a step would take another plan
        stream.step(Batch(frame(A), users=["x"]), "b1")
    with pytest.raises(ConfigError, match="max_events was 2 and is 3"):
        start(tmp_path, 3)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE users SET value = x'01000000' WHERE value > x'01000000'",
        "DELETE FROM latest WHERE name = 'user sum'",
        "UPDATE latest SET step = step - 1 WHERE name = 'user sum'",
    ],
)
def test_a_changed_or_lost_counter_is_damage(tmp_path, damage):
    with start(tmp_path) as stream:
        stream.step(Batch(frame(A, B, C), users=["x", "x", "y"]), "b1")
    with database(tmp_path) as db:
        assert db.execute(damage).rowcount > 0
    with pytest.raises(StoreDamagedError, match="user"):
        start(tmp_path)


# The counters in the store


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
LIVES = st.lists(st.tuples(st.lists(st.integers(0, 29), max_size=24), st.booleans()), min_size=1, max_size=5)


@pytest.mark.usefixtures("small_sums")
@pytest.mark.parametrize("place", ["sqlite", "encrypted", "postgres"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(stream=LIVES, bound=st.integers(1, 5), per=st.integers(0, 3), ends=st.booleans())
def test_every_life_agrees_with_a_brute_force_count(
    request: pytest.FixtureRequest,
    place: str,
    stream: list[tuple[list[int], bool]],
    bound: int,
    per: int,
    ends: bool,
) -> None:
    """``stream``: the users of a step's records, and whether the program starts again before the step. ``per``: steps
    of a period, 0 for the whole life. ``ends``: whether the last step is the plan's last."""
    if place == "postgres":
        request.getfixturevalue("on_postgres")
    key = StateKey(KEY) if place == "encrypted" else None
    with tempfile.TemporaryDirectory() as home:
        begin = functools.partial(start, Path(home), bound, key, per, len(stream) if ends else 0)
        opened, asked = begin(), Counter[tuple[int, int]]()
        for number, (events, restart) in enumerate(stream, start=1):
            if restart:
                opened.close()
                opened = begin()
            records = frame(*((A, B, C)[u % 3] for u in events))
            opened.step(Batch(records, users=[f"user {u}" for u in events]), f"b{number}")
            asked.update((u, -(-number // (per or 99))) for u in events)
        counts, seen = ({life: min(n, most) for life, n in asked.items()} for most in (bound, bound + 1))
        assert opened.dropped_events == sum(asked.values()) - sum(counts.values())
        expected = [sum(n for (u, _), n in counts.items() if u % 3 == zip_code) for zip_code in range(3)]
        assert true_counts(opened)[:3] == expected
        db, secret = opened._store._database, opened._store.meta["key"]
        with db.errors():
            stored = counters(db)
            over = ends or (per and len(stream) % per == 0)
            last = 0 if over else -(-len(stream) // (per or 99))
            assert sorted(stored.values()) == sorted(n for (_, period), n in seen.items() if period == last)
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
