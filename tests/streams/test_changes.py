"""Records that stay: the law of carried tables, the smallest change, what a stream publishes of it; and records that
are updated: which pairs become updates, what the changes say, and feeds that have none."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import toy_keyed
import toy_stream
from fault_harness import sql
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from toy_stream import SCHEMA, ToyPlan, ToySynthesis, batch

from dpstream.core.errors import ConfigError, DataError, StepError, StoreDamagedError
from dpstream.core.graphical import Model, junction_tree
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Categorical, Integer, Schema
from dpstream.io.sinks import read_catalogue, read_changes, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.io.sinks.change_tables import apply_changes, content_sha256
from dpstream.mechanisms.table_release import ModelSynthesis
from dpstream.stream import Publishing, Stream, open_stream, verify_ledger
from dpstream.stream.inspection import check_store
from dpstream.stream.release import persistent_records
from dpstream.stream.release.persistent_records import (
    PersistentRecords,
    Rows,
    _succession,
    carry,
    carry_codes,
    join_packed,
    most_that_change,
    pair_alike,
    split_packed,
)
from dpstream.stream.store import container

SMALL = Schema(
    [Categorical("a", ["x", "y", "z"]), Categorical("b", ["u", "v"]), Categorical("c", ["r", "s"])]
)
CELLS = np.indices(SMALL.domain.sizes).reshape(3, -1).T.astype(np.int32)


def model(seed: int, cliques: list[tuple[int, ...]], total: float, spread: float = 0.7) -> ModelSynthesis:
    tree = junction_tree(SMALL.domain, cliques)
    potentials = np.random.default_rng(seed).normal(0, spread, tree.parameters)
    return ModelSynthesis((Model(tree, potentials, total),), total)


def expected(synthesis: ModelSynthesis, rows: int) -> NDArray[np.float64]:
    return rows * np.exp(synthesis.log_density(CELLS))


def counts(codes: NDArray[np.int32], schema: Schema = SMALL) -> NDArray[np.int64]:
    cells = np.ravel_multi_index(tuple(codes.T), schema.domain.sizes)
    return np.bincount(cells, minlength=math.prod(schema.domain.sizes))


CHAINS = {
    "grows": [(1, [(0, 1)], 40), (2, [(0, 1), (1, 2)], 55), (3, [(0, 2)], 70)],
    "shrinks": [(4, [(0, 1)], 60), (5, [(1, 2)], 35), (6, [(0, 1), (1, 2)], 30)],
    "stands still": [(7, [(0, 1), (1, 2)], 40), (7, [(0, 1), (1, 2)], 40), (8, [(0, 1)], 40)],
}
RUNS = 400
#: z of a false alarm of 1e-7 two-sided: 12 cells of 3 chains stay below 1e-5 / 2 in all.
Z = 5.33


def carried(chain: list[ModelSynthesis], sizes: list[int], runs: int) -> tuple[Any, Any]:
    """The last table's cells in independent chains of carried tables, and how many records left at the last step."""
    cells, churn = [], []
    for run in range(runs):
        codes = chain[0].sample(sizes[0], run)
        for number, (earlier, later) in enumerate(itertools.pairwise(chain), start=1):
            stays, added = carry_codes(codes, earlier, later, sizes[number], 1000 * run + number)
            codes = np.concatenate([codes[stays], added])
        cells.append(counts(codes))
        churn.append(int((~stays).sum()))
    return np.array(cells), np.array(churn)


@pytest.mark.parametrize("name", CHAINS)
def test_carried_tables_follow_the_last_model(name: str) -> None:
    """Every cell's expected count is the model's. Slack: a twentieth of a record, where a few places that are left
    over are filled (documented in ``changes``); false alarms at most 1e-6 a chain."""
    chain = [model(*link) for link in CHAINS[name]]
    sizes = [total for _, _, total in CHAINS[name]]
    cells, churn = carried(chain, sizes, RUNS)
    mean, slack = cells.mean(axis=0), Z * cells.std(axis=0) / math.sqrt(RUNS) + 0.05
    assert (abs(mean - expected(chain[-1], sizes[-1])) <= slack).all()
    # As few as can be: in expectation what the old model has above the new one. The table's own sampling
    # deviation from its model adds less than the root of the number of cells.
    surplus = np.maximum(expected(chain[-2], sizes[-2]) - expected(chain[-1], sizes[-1]), 0).sum()
    spread = Z * np.std(churn) / math.sqrt(RUNS)
    assert abs(np.mean(churn) - surplus) <= spread + math.sqrt(len(CELLS))
    # The test would notice records that are kept whatever the new model says.
    assert (abs(mean - expected(chain[-2], sizes[-1])) > slack).any()


def test_carried_tables_have_no_more_sampling_error_than_independent_records() -> None:
    chain = [model(seed, [(0, 1), (1, 2)], 60) for seed in range(6)]
    cells, _ = carried(chain, [60] * 6, 200)
    shares = expected(chain[-1], 60) / 60
    # The sum over 12 cells of 200 sample variances varies by about 4 %.
    assert cells.var(axis=0).sum() < (60 * shares * (1 - shares)).sum()


def test_a_model_that_stands_still_changes_nothing() -> None:
    same = model(1, [(0, 1)], 50)
    first = carry(None, same, SMALL, 50, 1)
    again = carry((first.records, same), same, SMALL, 50, 2)
    assert again.deletes == again.inserts == 0
    assert again.records.with_ids.equals(first.records.with_ids)
    grown = carry((first.records, same), same, SMALL, 61, 3)
    assert (grown.deletes, grown.inserts) == (0, 11)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), min_size=1, max_size=6), st.booleans())
def test_the_sum_of_the_changes_is_the_table(steps: list[tuple[int, int]], densities: bool) -> None:
    """Any chain of models and sizes, empty tables included; with and without densities."""
    before, total, seen = None, None, 0
    for step, (seed, rows) in enumerate(steps):
        synthesis: Any = model(seed, [(0, 1)], rows)
        if not densities:
            sizes = np.array([3.0, 1.0, 2.0]) * rows
            synthesis = ToySynthesis(SMALL.domain, sizes, 1.0)
        made = carry(before, synthesis, SMALL, rows, step)
        table = made.records.with_ids
        if made.changes is not None:
            total = apply_changes(total, made.changes)
            old = PersistentRecords.unpack(before[0].pack())
            assert made.deletes <= len(old.ids)
            left, come = (
                {tuple(row[name] for name in "abc") for row in made.changes.to_pylist() if row["op"] == op}
                for op in ("delete", "insert")
            )
            assert not left & come, "an equal record leaves and comes"
        else:
            total = table
        assert total.equals(table)
        assert content_sha256(total) == content_sha256(table)
        assert table.num_rows == rows
        ids = table["record_id"].to_pylist()
        assert ids == sorted(set(ids))
        assert all(one > seen for one in ids[len(ids) - made.inserts :])
        seen = made.records.next_id - 1
        assert SMALL.encode(table.drop_columns(["record_id"])).tolist() == made.records.codes.tolist()
        before = made.records, synthesis


def test_records_come_back_from_the_state() -> None:
    made = carry(None, model(1, [(0, 1)], 20), SMALL, 20, 1).records
    own = ToyPlan().pack_state(ToyPlan().start())
    packed = container.load(container.dump(join_packed(own, made, made.next_id)), where="test")
    rest, records, next_id = split_packed(packed)
    assert rest.meta == own.meta
    assert next_id == 21
    assert records is not None
    assert records.with_ids.equals(made.with_ids)
    assert split_packed(own) == (own, None, 1)
    assert join_packed(own, None, 1) is own
    broken = {**packed.arrays, "records/0/ids": packed.arrays["records/0/ids"][:-1]}
    with pytest.raises(StoreDamagedError, match="unreadable"):
        split_packed(type(packed)(packed.meta, broken))


# In a stream


def start(
    home: Path, form: Any = "parquet", keep: int | None = None, seed: int | None = None, **more: Any
) -> Stream:
    randomness = None if seed is None else Randomness.seeded(seed)
    return toy_stream.start(home, form=form, keep=keep, randomness=randomness, publishing=Publishing(**more))


CHANGES = {"records": "persistent", "publish": "changes", "full_every": 3}


def states(home: Path) -> list[str]:
    return [entry["state"] for entry in read_catalogue(home / "releases")["steps"]]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_changes_and_tables_tell_the_same(tmp_path: Path, form: Any) -> None:
    """The same noise three times: as tables, as changes, and as both, with a process of its own per step."""
    homes = {kind: tmp_path / kind for kind in ("full", "changes", "both")}
    for kind, home in homes.items():
        for step in range(1, 8):
            with start(home, form, seed=step, **{**CHANGES, "publish": kind}) as stream:
                stream.step(batch(step), f"b{step}")
    assert states(homes["changes"]) == ["full", "change", "change", "full", "change", "change", "full"]
    assert states(homes["full"]) == states(homes["both"]) == ["full"] * 7
    for step in range(1, 8):
        tables = [read(home / "releases", step, ids=True) for home in homes.values()]
        assert tables[0].equals(tables[1])
        assert tables[0].equals(tables[2])
        facts = read_manifest(homes["both"] / "releases", step)["records"]
        assert facts["content_sha256"] == content_sha256(tables[0])
        assert SCHEMA.encode(read(homes["changes"] / "releases", step)).shape == (tables[0].num_rows, 3)
        if step > 1:
            changes = read_changes(homes["both"] / "releases", step)
            before = read(homes["both"] / "releases", step - 1, ids=True)
            assert apply_changes(before, changes).equals(tables[0])
            assert facts["change_from_step"] == step - 1
            assert facts["deletes"] + facts["inserts"] == changes.num_rows
            assert changes.num_rows < before.num_rows + tables[0].num_rows
    with pytest.raises(ConfigError, match="step 1 lacks changes"):
        read_changes(homes["both"] / "releases", 1)
    victim = homes["changes"] / "releases" / "step-000002" / f"changes.{form}"
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(StoreDamagedError, match="published hash"):
        read(homes["changes"] / "releases", 3)


def test_records_may_begin_and_end_to_persist(tmp_path: Path) -> None:
    kinds = [{}, {"records": "persistent"}, CHANGES, {}, CHANGES, CHANGES]
    seen: set[int] = set()
    for step, kind in enumerate(kinds, start=1):
        with start(tmp_path, **kind) as stream:
            stream.step(batch(step), f"b{step}")
        table = read(tmp_path / "releases", ids=True)
        assert ("record_id" in table.column_names) == bool(kind)
        if step == 5:
            assert not seen & set(table["record_id"].to_pylist()), "an id is used once"
        elif kind:
            seen |= set(table["record_id"].to_pylist())
    assert states(tmp_path) == ["full", "full", "change", "full", "full", "change"]


def test_held_steps_wait_and_are_published_as_committed(tmp_path: Path) -> None:
    root, undisturbed = tmp_path / "releases", tmp_path / "undisturbed"
    for step in (1, 2, 3):
        for home, approve in ((tmp_path, True), (undisturbed, False)):
            with start(home, seed=step, approve=approve) as stream:
                stream.step(batch(step), f"b{step}")
                stream.step(batch(step), f"b{step}")
                assert stream.held() == (list(range(1, step + 1)) if approve else [])
    with start(tmp_path) as stream:
        assert stream.held() == [1, 2, 3], "another setting approves nothing"
        assert stream.approve(2) == [2]
        assert stream.approve(2) == []
        assert [entry["step"] for entry in read_catalogue(root)["steps"]] == [2]
        assert stream.withdraw(1, "not good enough")
        assert not stream.withdraw(1, "not good enough")
        with pytest.raises(ConfigError, match=r"is rejected already .*the reason 'not good enough'"):
            stream.withdraw(1, "too bad")
        for refused, words in (
            (stream.approve, "step 1 is rejected"),
            (stream.release, "step 1 was rejected"),
        ):
            with pytest.raises(StepError, match=words):
                refused(1)
        assert stream.approve() == [3]
        assert stream.last_step == 3, "its cost stays"
    for step in (2, 3):
        assert read(root, step).equals(read(undisturbed / "releases", step))
    assert states(tmp_path) == ["full", "full"]
    with start(tmp_path) as stream:  # and nothing of the rejected step came out meanwhile
        assert stream.step(batch(1), "b1").step == 1
    assert not any(b"not good" in path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert sorted(path.name for path in root.glob("step-*")) == ["step-000002", "step-000003"]
    assert verify_ledger(tmp_path / "state", releases=root) == []


def test_a_withdrawn_step_is_gone_and_its_manifest_says_why(tmp_path: Path) -> None:
    root = tmp_path / "releases"
    with start(tmp_path, **CHANGES) as stream:
        for step in range(1, 4):
            stream.step(batch(step), f"b{step}")
        assert stream.withdraw(2, "sent twice")
        with pytest.raises(StepError, match="step 2 was withdrawn"):
            stream.release(2)
        assert stream.step(batch(2), "b2").step == 2, "a run that compares released steps goes on"
        assert stream.last_step == 3
        assert states(tmp_path) == ["full", "withdrawn", "full"]
        left = {path.name for path in (root / "step-000002").iterdir()}
        assert left == {"manifest.json", "measurements.ndjson", "withdrawn.json"}
        assert read_manifest(root, 2)["withdrawn"] == {"reason": "sent twice"}
        assert read(root).equals(read(root, 3)), "whole now, so that later changes can be applied to it"
        stream.step(batch(4), "b4")
        assert states(tmp_path)[3] == "change"
        read(root, 4)
    with open_stream(ToyPlan(), SCHEMA, tmp_path / "alone") as stream:
        stream.step(batch(1), "b1")
        with pytest.raises(StepError, match="no place"):
            stream.withdraw(1, "x")


# What was taken back stays away


def rebuilt(root: Path, step: int) -> str | None:
    """The content hash of the table before ``step``, from the files of that step alone: its table without what came
    and with what left."""
    folder = root / f"step-{step:06d}"
    if not list(folder.glob("changes.*")):
        return None
    table, changes = read(root, step, ids=True), read_changes(root, step)
    ops = np.array(changes["op"].to_pylist())
    rows = changes.drop_columns(["op"])
    come = set(rows.filter(ops == "insert")["record_id"].to_pylist())
    kept = table.filter(np.array([one not in come for one in table["record_id"].to_pylist()]))
    return content_sha256(pa.concat_tables([kept, rows.filter(ops == "delete")]).sort_by("record_id"))


def content_of(home: Path, step: int) -> str:
    """The content hash of a step's table as the store knows it, also where readers know nothing of it."""
    [(manifest,)] = sql(home, "SELECT manifest FROM steps WHERE step = ?", step)
    return str(json.loads(manifest)["records"]["content_sha256"])


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("publish", ["changes", "both"])
@pytest.mark.parametrize("keep", [None, 2])
@pytest.mark.parametrize("when", ["held, last", "held, first", "published", "published, last"])
def test_no_later_file_gives_a_table_away_that_was_taken_back(
    tmp_path: Path, form: Any, publish: Any, keep: Any, when: str
) -> None:
    """Step 3 is rejected before or after step 4 is made, or withdrawn before or after it is published."""
    root, options = tmp_path / "releases", {**CHANGES, "publish": publish, "full_every": 9}
    with start(tmp_path, form, keep, approve=when.startswith("held"), **options) as stream:
        for step in (1, 2, 3):
            stream.step(batch(step), f"b{step}")
            if step < 3 and "held" in when:
                stream.approve()
        if "last" in when:
            stream.withdraw(3, "wrong")
        stream.step(batch(4), "b4")
        stream.step(batch(5), "b5")
        if "last" not in when:
            if publish == "both" and "held" not in when:
                assert rebuilt(root, 4) == content_of(tmp_path, 3), "control: with its changes it can be"
            stream.withdraw(3, "wrong")
        if "held" in when:
            stream.approve()
    assert list((root / "step-000004").glob("changes.*")) == []
    with start(tmp_path, form, keep, **options) as stream:
        assert stream.publish_again() == []
    assert states(tmp_path)[-2:] == ["full", "full" if publish == "both" else "change"]
    for step in (4, 5):
        assert content_sha256(read(root, step, ids=True)) == content_of(tmp_path, step)
        assert rebuilt(root, step) != content_of(tmp_path, 3)
    files = {path.name for path in (root / "step-000004").iterdir()}
    assert files <= {*read_manifest(root, 4)["files"], "manifest.json"}
    assert check_store(tmp_path / "state", root).problems == ()


@pytest.mark.parametrize("publish", ["changes", "both"])
def test_changes_wait_for_the_step_that_they_change(tmp_path: Path, publish: Any) -> None:
    """Approved alone they would publish the held table."""
    options = {**CHANGES, "publish": publish}
    with start(tmp_path, approve=True, **options) as stream:
        for step in (1, 2, 3):
            stream.step(batch(step), f"b{step}")
        with pytest.raises(StepError, match=r"step 3 has the changes since step 2, .* withdrawing it first"):
            stream.approve([1, 3])
        assert stream.held() == [1, 2, 3]
        stream.approve(1)
    with start(tmp_path, **options) as stream:  # held no more from here on, but step 3 waits still
        stream.step(batch(4), "b4")
        assert list((tmp_path / "releases" / "step-000004").glob("changes.*")) == []
        assert read_manifest(tmp_path / "releases", 4)["records"]["change_from_step"] is None
        assert stream.approve([2, 3]) == [2, 3]
    for step in (1, 2, 3, 4):
        read(tmp_path / "releases", step)


def test_what_cannot_be_published_is_refused(tmp_path: Path) -> None:
    for wrong, words in (
        ({"publish": "changes"}, "needs persistent records"),
        ({"records": "sticky"}, "fresh, persistent"),
    ):
        with pytest.raises(ConfigError, match=words):
            Publishing(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'record_id'"):
        Publishing(records="persistent").check_columns(("zip", "record_id"))


# Records that are updated


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
        assert (counts(made.records.codes, SCHEMA) == counts(same.records.codes, SCHEMA)).all()
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
        (["delete"], [9], ["a"], "is missing"),
    ],
)
def test_changes_that_contradict_the_table_are_refused(
    ops: list[str], ids: list[int], zips: list[str | None], words: str
) -> None:
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
        with toy_stream.start(home, publishing=publishing, randomness=Randomness.seeded(1)) as stream:
            for step in range(1, 5):
                stream.step(batch(step), f"b{step}")
        assert ("update" in ops_of(home, range(2, 5))) == (kind == "any")
        assert ("updates" in read_manifest(home / "releases", 4)["records"]) == (kind == "any")
