"""Synthetic records that are updated: which pairs become updates, what the changes say, and feeds that have none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_keyed
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from toy_stream import SCHEMA, ToySynthesis
from toy_stream import batch as plain_batch
from toy_stream import start as start_plain

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Categorical, Integer, Schema
from dpstream.io.sinks import read_changes, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.io.sinks.change_tables import apply_changes
from dpstream.stream import Publishing
from dpstream.stream.release import persistent_records
from dpstream.stream.release.persistent_records import (
    PersistentRecords,
    Rows,
    _succession,
    carry,
    most_that_change,
    pair_alike,
)

ALL = SCHEMA.names
#: Both numbers are null to a reader.
NULLS = np.array([[0, 0, 1], [1, 1, 1]], dtype=np.int32)
BOTH = Publishing(records="persistent", publish="both")


def by_op(changes: Any, op: str) -> dict[int, tuple[Any, ...]]:
    """Rows of one operation by their ids."""
    rows = zip(*(changes.column(name).to_pylist() for name in ("op", "record_id", *ALL)), strict=True)
    return {row[1]: row[2:] for row in rows if row[0] == op}


def by_id(records: PersistentRecords) -> dict[int, tuple[int, ...]]:
    return dict(zip(records.ids.tolist(), map(tuple, records.codes.tolist()), strict=True))


def cells(records: PersistentRecords) -> NDArray[np.int64]:
    return np.bincount(
        np.ravel_multi_index(tuple(records.codes.T), SCHEMA.domain.sizes),
        minlength=SCHEMA.domain.cells((0, 1, 2)),
    )


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), min_size=2, max_size=5),
    st.sets(st.sampled_from(ALL), min_size=1),
)
def test_changes_lead_to_the_table_and_updates_keep_most_of_a_record(
    steps: list[tuple[int, int]], may_change: set[str]
) -> None:
    """Beside it the same stream without updates: the tables have the same codes, and as many more changes."""
    before: Any = None
    beside: Any = None
    for step, (seed, rows) in enumerate(steps):
        sizes = np.random.default_rng(seed).random(4) * rows
        synthesis: Any = ToySynthesis(SCHEMA.domain, sizes, 1.0)
        made = carry(before, synthesis, SCHEMA, rows, step, may_change=may_change)
        same = carry(beside, synthesis, SCHEMA, rows, step)
        assert (cells(made.records) == cells(same.records)).all()
        stored = PersistentRecords.unpack(made.records.pack())
        assert stored.with_ids.equals(made.records.with_ids)
        assert (stored.codes == made.records.codes).all()
        assert len(stored.segments) <= 2 + np.log2(1 + max(rows, stored.segments[0].size))
        if before is not None:
            old, new, changes = by_id(before[0]), by_id(made.records), made.changes
            assert apply_changes(before[0].with_ids, changes).equals(made.records.with_ids)
            counted = tuple(len(by_op(changes, op)) for op in ("delete", "update", "insert"))
            assert counted == (made.deletes, made.updates, made.inserts)
            assert by_op(changes, "delete").keys() == old.keys() - new.keys()
            assert all(one >= before[0].next_id for one in by_op(changes, "insert"))
            shown = zip(*before[0].table.to_pydict().values(), strict=True)
            values = dict(zip(before[0].ids.tolist(), shown, strict=True))
            for one, row in by_op(changes, "update").items():
                differ = [i for i in range(3) if old[one][i] != new[one][i]]
                assert 1 <= len(differ) <= most_that_change(3)
                assert all(ALL[i] in may_change for i in differ)
                assert all(values[one][i] == row[i] for i in range(3) if i not in differ), "cells that stay"
            stay = [one for one in old.keys() & new.keys() if one not in by_op(changes, "update")]
            assert all(old[one] == new[one] for one in stay)
        before, beside = (made.records, synthesis), (same.records, synthesis)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(2, 64))
def test_pairs_are_alike_and_no_pair_that_is_left_could_be_one(
    seed: int, columns: int, compared: int
) -> None:
    rng = np.random.default_rng(seed)
    left, come = (rng.integers(0, 3, (rng.integers(0, 40), columns)) for _ in range(2))
    may_change = rng.random(columns) < 0.7
    keep = persistent_records._COMPARED
    persistent_records._COMPARED = compared
    try:
        one, other = pair_alike(left, come, may_change)
    finally:
        persistent_records._COMPARED = keep
    assert len(set(one.tolist())) == len(set(other.tolist())) == len(one)
    assert (np.diff(one) > 0).all()
    differ = left[one] != come[other]
    assert (differ.sum(axis=1) <= most_that_change(columns)).all()
    assert not differ[:, ~may_change].any()
    if len(left) + len(come) <= compared:  # else only neighbours were compared
        rest, others = np.delete(left, one, axis=0), np.delete(come, other, axis=0)
        apart = rest[:, None] != others[None]
        possible = (apart.sum(axis=2) <= most_that_change(columns)) & ~apart[:, :, ~may_change].any(axis=2)
        assert not possible.any()


def test_an_equal_neighbour_is_found_among_many() -> None:
    """Each record that comes differs in the last column from one that leaves; more than are compared at once."""
    codes = np.random.default_rng(1).permutation(6000)
    left = np.stack([codes // 100, codes % 100, codes % 7, codes % 2], axis=1)
    come = left[np.random.default_rng(2).permutation(6000)].copy()
    come[:, 3] = 1 - come[:, 3]
    one, other = pair_alike(left, come, np.array([False, False, False, True]))
    assert len(one) == 6000
    assert (left[one][:, :3] == come[other][:, :3]).all()


@pytest.mark.parametrize(
    ("ops", "ids", "zips", "words"),
    [
        (["update"], [9], ["b"], "is missing"),
        (["update"], [1], ["a"], "changes nothing"),
        (["update"], [3], [None], "changes nothing"),
        (["delete", "update"], [1, 1], ["a", "b"], "a record changes twice"),
        (["update", "update"], [1, 1], ["b", "c"], "a record changes twice"),
        (["delete"], [9], ["a"], "is missing"),
    ],
)
def test_changes_that_contradict_the_table_are_refused(
    ops: list[str], ids: list[int], zips: list[str | None], words: str
) -> None:
    import pyarrow as pa

    table = pa.table({"record_id": [1, 2, 3], "zip": ["a", "b", None]})
    changes = pa.table({"op": ops, "record_id": ids, "zip": pa.array(zips, pa.string())})
    with pytest.raises(DataError, match=words):
        apply_changes(table, changes)


def test_two_codes_that_are_shown_alike_are_no_update_to_a_reader() -> None:
    columns = [Categorical("a", ["x", "y"]), Categorical("b", ["u", "v"])]
    schema = Schema([*columns, Integer("n", edges=[0, 9], other="other", missing="missing")])
    old = PersistentRecords.of(Rows(np.array([4, 6]), NULLS, schema.decode(NULLS, 1)), 7)
    stays, added = np.zeros(2, dtype=bool), np.array([[0, 0, 2], [1, 0, 1]], dtype=np.int32)
    made = _succession(old, stays, added, schema, 1, schema.names)
    assert made.records.codes.tolist() == added.tolist()
    assert made.records.ids.tolist() == [4, 6]
    assert made.changes.to_pydict() == {
        "op": ["update"], "record_id": [6], "a": ["y"], "b": ["u"], "n": [None]
    }  # fmt: skip
    assert apply_changes(old.with_ids, made.changes).equals(made.records.with_ids)


# In a stream


def ops_of(home: Path, steps: range) -> set[str]:
    return {op for step in steps for op in read_changes(home / "releases", step)["op"].to_pylist()}


def live(home: Path, steps: range, publishing: Publishing) -> None:
    noise = Randomness.seeded(steps.start)
    with toy_keyed.start(home, publishing=publishing, randomness=noise) as stream:
        for step in steps:
            stream.step(toy_keyed.batch(step), f"b{step}")


def test_a_feed_of_keyed_records_has_updates_and_can_be_made_again(tmp_path: Path) -> None:
    live(tmp_path, range(1, 7), BOTH)
    releases = tmp_path / "releases"
    assert ops_of(tmp_path, range(2, 7)) == {"delete", "update", "insert"}
    for step in range(1, 7):
        facts = read_manifest(releases, step)["records"]
        assert facts["may_change"] == list(ALL)
        if step > 1:
            before, after = (read(releases, one, ids=True) for one in (step - 1, step))
            changes = read_changes(releases, step)
            assert apply_changes(before, changes).equals(after)
            assert facts["updates"] == len(by_op(changes, "update"))
    lost = releases / "step-000004" / "changes.parquet"
    kept = lost.read_bytes()
    lost.unlink()
    with toy_keyed.start(tmp_path, publishing=BOTH) as stream:
        assert stream.publish_again() == [4]
    assert lost.read_bytes() == kept


def test_the_owner_chooses_the_columns_that_may_change(tmp_path: Path) -> None:
    chosen = Publishing(records="persistent", publish="both", may_change=("paid",))
    live(tmp_path, range(1, 4), chosen)
    live(tmp_path, range(4, 6), Publishing(records="persistent", publish="both", may_change=()))
    live(tmp_path, range(6, 7), BOTH)
    releases = tmp_path / "releases"
    assert "update" in ops_of(tmp_path, range(2, 4))
    for step in (2, 3):
        changes, before = read_changes(releases, step), read(releases, step - 1, ids=True)
        old = {row["record_id"]: row for row in before.to_pylist()}
        for one, (code, paid, rent) in by_op(changes, "update").items():
            assert (code, rent, not paid) == (old[one]["zip"], old[one]["rent"], old[one]["paid"])
    assert ops_of(tmp_path, range(4, 7)) == {"delete", "insert"}, "off, and then as the feed has it"
    with pytest.raises(ConfigError, match="unknown column 'city'"):
        live(tmp_path, range(7, 8), Publishing(records="persistent", may_change=("city",)))
    with pytest.raises(ConfigError, match="may_change needs persistent records"):
        Publishing(may_change="any")


def test_records_without_keys_have_no_updates_unless_asked_for(tmp_path: Path) -> None:
    for kind in (None, "any"):
        home = tmp_path / str(kind)
        publishing = Publishing(records="persistent", publish="both", may_change=kind)
        with start_plain(home, publishing=publishing, randomness=Randomness.seeded(1)) as stream:
            for step in range(1, 5):
                stream.step(plain_batch(step), f"b{step}")
        assert ("update" in ops_of(home, range(2, 5))) == (kind == "any")
        assert ("updates" in read_manifest(home / "releases", 4)["records"]) == (kind == "any")


# Stopped, and stored by the version before
