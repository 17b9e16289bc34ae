"""Streams whose values are discovered: codes for ever, exact counts until an epoch ends, nothing else of them."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from discovering import OPEN, Exactly, batch, discovering, files, frame
from toy_stream import start

import dpstream as dp
from dpstream.core.contracts import PublicPrior
from dpstream.core.errors import BudgetError, ConfigError, SchemaError, StepError, StoreDamagedError
from dpstream.core.privacy import Randomness, User
from dpstream.core.schema import Boolean, Schema, arrow
from dpstream.core.schema.constraints import Constraints, Derived
from dpstream.core.tables import Workload
from dpstream.core.tables.undiscovered import Undiscovered
from dpstream.families.tabular import DPStabs
from dpstream.io.sinks.target import step_name
from dpstream.mechanisms.discovery_plan import Discovery, OpenColumn
from dpstream.stream import Account, Batch, Limit, Publishing, Stream
from dpstream.stream.identity import plan_facts
from dpstream.stream.inspection import check_store
from dpstream.stream.measured_counts import published_counts, to_rows
from dpstream.stream.store.archive import archived_plan, export_store, import_store


def opened(home: Path, plan: Any, seed: int = 1, **options: Any) -> Stream:
    return start(home, plan=plan, schema=OPEN, randomness=Randomness.seeded(seed), **options)


def run(home: Path, plan: Any, steps: range, frames: Any = frame, *, again: bool = False) -> None:
    """All steps, each in an opening of its own, with noise that depends on the step."""
    for step in steps:
        with opened(home, plan, step) as stream:
            for _ in range(1 + again):
                stream.step(Batch(frames(step)), f"b{step}")


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    ("headline", "most"), [([], 60), ([], 30), ([["kind", "town"]], 60), ([["kind"], ["town", "paid"]], 60)]
)
def test_values_of_all_columns_share_the_room_of_the_model(
    tmp_path: Path, headline: list[list[str]], most: int, keyed: bool
) -> None:
    """Each column alone has room for its values; what has none must not stop a step whose noise is drawn."""
    columns = [dp.Categorical(name, "discover", known=["a"], other="other") for name in ("kind", "town")]
    numbers = range(20 * 60)
    frame: dict[str, Any] = {"paid": [True] * len(numbers), "town": [f"t{n // 20 % 20}" for n in numbers]}
    frame["kind"] = [f"k{n % 20 if n % 3 else 0}" for n in numbers]
    more: dict[str, Any] = {"mechanism": {"name": "pooled"}, "accuracy": {"periods": "1 steps"}}
    if keyed:
        more = {"mechanism": {"name": "census", "turnover": 4}, "accuracy": {}, "unit": dp.Record()}
    more["accuracy"] |= {"headline": headline} if headline else {}
    more = {name: own for name, own in more.items() if headline or name != "accuracy"}
    more["mechanism"]["max_cells"] = most
    more |= {"discovery": {"delta": "1e-3"}, "randomness": Randomness.seeded("room")}
    with dp.open(tmp_path, dp.Schema([*columns, Boolean("paid")]), epsilon="20", **more) as stream:
        for step in (1, 2):
            ids = [f"{step}-{n}" for n in numbers]
            stream.step(dp.KeyedBatch({"id": ids, **frame}, "id") if keyed else Batch(frame), f"b{step}")
        kind, town, paid = (column.size for column in stream._schema.columns)
        cells = kind * town + paid if ["kind", "town"] in headline else kind + town + paid
        cells += town * paid - town - paid if ["town", "paid"] in headline else 0
        assert most / 2 < cells <= most
        assert "k0" in stream._schema["kind"].labels()  # the most frequent ones enter


def test_values_enter_with_the_step_after_a_border_and_keep_their_codes(tmp_path: Path) -> None:
    plan = discovering(2, 4, least=10, headline=(("kind",),))
    run(tmp_path, plan, range(1, 7), again=True)
    counted = [Counter(value for step in span for value in frame(step)["kind"]) for span in ((1, 2), (3, 4))]
    for number, counts in enumerate(counted):
        del counts[None], counts["v1"]
        known = {value for value, many in counted[0].items() if many > 10} if number else set()
        seen = plan.discovery.seen[number]
        assert seen == {value: many for value, many in counts.items() if value not in known}
    release = dp.read(tmp_path / "releases")
    found = [
        (one["value"], one["from_step"], one["noisy_count"])
        for step in (2, 4)
        for one in release.manifest(step)["discovered"]["kind"]
    ]
    assert [entry[1] for entry in found] == sorted(entry[1] for entry in found)
    assert "discovered" not in release.manifest(3)
    book = json.loads((tmp_path / "releases" / "codebook.json").read_bytes())
    codes = book["resources"][0]["schema"]["fields"][1]["dpstream"]["codes"]
    labels = ["v1", "other", "missing", *(value for value, _, _ in found)]
    assert [code["label"] for code in codes] == labels
    assert set(release.table(2).column("kind").to_pylist()) <= {"v1", "other", None}
    assert "v2" in release.table(6).column("kind").to_pylist()
    # What was measured of a value holds from its step on; before, it is in the bin for others.
    measured = release.measured(["kind"])
    assert measured is not None
    low, high = measured.interval(0.999999)  # type: ignore[misc]
    for value, first, _ in found:
        truth = sum(frame(step)["kind"].count(value) for step in range(first, 7))
        assert low[labels.index(value)] <= truth <= high[labels.index(value)]
    assert low.sum() < 1200 < high.sum()
    assert measured.standard_errors[0] > measured.standard_errors[-1] > 0.0
    assert "v2 from step 3" in measured.note
    assert "v2 from step 3" in release.answer("kind = 'v2'", as_of=2).note
    # A value that begins between two spans came out of the bin for others: neither rose or fell.
    change = release.change(["kind"], earlier=(1, 2), later=(3, 6))
    seen = dict(zip(labels, change.to_table()["seen"].to_pylist(), strict=True))
    assert {value for value, told in seen.items() if told == "not compared"} == {
        "other",
        *(one[0] for one in found),
    }
    assert (change.direction()[[labels.index("v2"), 1]] == 0).all()
    assert change.later.values[labels.index("v2")] > 40 + change.earlier.values[labels.index("v2")]
    after = release.change(["kind"], earlier=(3, 4), later=(5, 6)).to_table()["seen"].to_pylist()
    assert after[labels.index("v2")] != "not compared"
    series = release.series(["kind"], 1).to_table().to_pylist()
    assert {row["status"] for row in series if row["kind"] == "v2"} == {"from step 3", "measured"}
    assert [row["status"] for row in series if row["kind"] == "v2"][:3] == ["from step 3"] * 2 + ["measured"]
    # Before its first step nothing is known of it: no number is given, not a 0.
    early = release.measured(["kind"], as_of=2)
    assert early is not None
    numbers = {
        row["kind"]: (row["measured"], row["low"], row["high"]) for row in early.to_table().to_pylist()
    }
    assert numbers["v2"] == (None, None, None)
    assert None not in numbers["other"]
    rows = [row for row in to_rows(published_counts(release)[0]).to_pylist() if row["column"] == "kind"]
    present = {row["status"] for row in rows if row["value"] == "v2" and row["kind"] == "present"}
    assert present == {"from step 3"}
    assert "from step 3" not in {row["status"] for row in rows if row["value"] == "other"}
    assert check_store(tmp_path / "state", tmp_path / "releases").problems == ()


def test_what_comes_again_is_compared_in_the_codes_of_its_step(tmp_path: Path) -> None:
    plan = discovering(1, 3)
    run(tmp_path, plan, range(1, 5))
    with opened(tmp_path, plan) as stream:
        for step in range(1, 5):
            assert stream.step(Batch(frame(step)), f"b{step}").step == step
        with pytest.raises(StepError, match="other records"):
            stream.step(Batch(frame(1, last="x")), "b1")  # the same codes
        assert stream.publish_again() == []


def rewritten(step: int) -> dict[str, Any]:
    return frame(step, last="other-")


def test_releases_depend_on_no_value_that_is_not_published(tmp_path: Path) -> None:
    """Other names for all that is rare: every table, measurement and manifest is the same."""
    plan = discovering(2)
    run(tmp_path / "a", plan, range(1, 5))
    run(tmp_path / "b", plan, range(1, 5), rewritten)
    first, second = files(tmp_path / "a"), files(tmp_path / "b")
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name] and "head" not in name] == []
    assert plan.discovery.seen[0] != plan.discovery.seen[1]


def test_nothing_of_an_epoch_stays_when_it_ended(tmp_path: Path) -> None:
    plan = discovering(2)
    run(tmp_path, plan, range(1, 2))

    def in_state(text: bytes) -> bool:
        return any(text in path.read_bytes() for path in (tmp_path / "state").iterdir() if path.is_file())

    assert in_state(b"rare7")
    run(tmp_path, plan, range(2, 3))
    assert not in_state(b"rare7")


def test_no_value_outlives_the_last_step(tmp_path: Path) -> None:
    """The step ends no epoch, and no later one reads what it counted."""
    plan = replace(discovering(1), horizon=3)
    for steps, left in ((range(1, 3), True), (range(3, 4), False)):
        run(tmp_path, plan, steps)
        state = [path.read_bytes() for path in (tmp_path / "state").iterdir() if path.is_file()]
        assert any(b"rare7" in data for data in state) is left
    assert check_store(tmp_path / "state", tmp_path / "releases").problems == ()


def test_a_stream_that_its_account_closed_forgets_what_it_counted(tmp_path: Path) -> None:
    """Users and values; when it is opened next. Its releases can be read, and its steps asked for again."""
    book = Account.create(tmp_path / "account.json", Limit.parse("epsilon=9,exceptions=1e-2"), "user")
    ids = [f"user {n}" for n in range(200)]
    rows = Batch(frame(1), users=ids)
    given = {"account": book.path, "plan": discovering(2, unit=User(3))}
    with opened(tmp_path, **given) as stream:
        stream.step(rows, "b1")
    (charge,) = book.read().charges

    def counted() -> list[int]:
        names = [path for path in (tmp_path / "state").iterdir() if path.is_file()]
        assert any(b"rare7" in path.read_bytes() for path in names) is not charge.closed
        with contextlib.closing(sqlite3.connect(tmp_path / "state" / "stream.sqlite")) as db:
            return [
                db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("users", "undiscovered")
            ]

    assert counted()[0] == 200
    assert counted()[1] > 5
    book.close_stream(charge.stream_id)
    (charge,) = book.read().charges
    for _ in range(2):
        with opened(tmp_path, **given) as stream:
            assert stream.step(rows, "b1").step == 1
            with pytest.raises(BudgetError, match="is closed in its account"):
                stream.step(rows, "b2")
        assert counted() == [0, 0]
    assert check_store(tmp_path / "state", tmp_path / "releases").problems == ()


def labels(home: Path) -> list[str]:
    book = json.loads((home / "releases" / "codebook.json").read_bytes())
    return [code["label"] for code in book["resources"][0]["schema"]["fields"][1]["dpstream"]["codes"]]


def approving(home: Path, approve: bool = True) -> Stream:
    """Step 1 is published; 2, which discovered values, and 3 are held."""
    options = {"publishing": Publishing(approve=approve)}
    if not (home / "state").exists():
        with opened(home, discovering(2, 4), **options) as stream:
            for step in range(1, 4):
                stream.step(Batch(frame(step)), f"b{step}")
            assert stream.discovered() == {2}
            stream.approve(1)
    return opened(home, discovering(2, 4), **options)


def test_values_that_a_held_step_discovered_wait_for_it(tmp_path: Path) -> None:
    wrong = "step 3 has the values that step 2 discovered, which is held"
    with approving(tmp_path) as stream:
        with pytest.raises(StepError, match=wrong):
            stream.approve(3)
        assert (stream.held(), labels(tmp_path)) == ([2, 3], ["v1", "other", "missing"])
    with approving(tmp_path, approve=False) as stream:
        with pytest.raises(StepError, match="step 4 has the values that step 2 discovered, which is held"):
            stream.step(Batch(frame(4)), "b4")
        assert (stream.last_step, stream.begun) == (3, None)
        assert stream.approve() == [2, 3]
        stream.step(Batch(frame(4)), "b4")
    assert "v2" in labels(tmp_path)


def test_values_that_a_rejected_step_discovered_are_never_published(tmp_path: Path) -> None:
    with approving(tmp_path) as stream:
        stream.withdraw(2, "a value is a name")
        for steps in (None, [3]):
            with pytest.raises(StepError, match=r"discovered, which is rejected .*a new stream"):
                stream.approve(steps)
        with pytest.raises(StepError, match="step 4 has the values that step 2 discovered"):
            stream.step(Batch(frame(4)), "b4")
        assert stream.last_step == 3
    for approve in (False, True):
        approving(tmp_path, approve).close()
    public = b"".join(files(tmp_path).values())
    assert b"v2" not in public
    assert [path.name for path in (tmp_path / "releases").glob("step*")] == [step_name(1)]


def test_values_that_a_withdrawn_step_discovered_were_public_and_stay(tmp_path: Path) -> None:
    with approving(tmp_path) as stream:
        stream.approve(2)
        stream.withdraw(2, "a value is a name")
        assert stream.discovered() == {2}
        assert stream.approve() == [3]
    assert "v2" in labels(tmp_path)
    manifest = json.loads((tmp_path / "releases" / step_name(2) / "manifest.json").read_bytes())
    assert "v2" in [one["value"] for one in manifest["discovered"]["kind"]]


def test_an_archive_holds_the_open_epoch(tmp_path: Path) -> None:
    plan, archive = discovering(2), tmp_path / "archive"
    for home in (tmp_path / "stays", tmp_path / "moves"):
        run(home, plan, range(1, 2))
    export_store(tmp_path / "moves" / "state", archive, move=True)
    shutil.rmtree(tmp_path / "moves" / "state")
    import_store(archive, tmp_path / "moves" / "state", archived_plan(archive))
    for home in (tmp_path / "stays", tmp_path / "moves"):
        run(home, plan, range(2, 3))
    assert plan.discovery.seen[0] == plan.discovery.seen[1]


def test_a_changed_count_is_noticed_before_anything_is_drawn(tmp_path: Path) -> None:
    plan = discovering(2)
    run(tmp_path, plan, range(1, 2))
    with sqlite3.connect(tmp_path / "state" / "stream.sqlite") as db:
        db.execute("DELETE FROM undiscovered WHERE key = (SELECT min(key) FROM undiscovered)")
    assert "count of a value" in check_store(tmp_path / "state", None).problems[0]
    with opened(tmp_path, plan) as stream, pytest.raises(StoreDamagedError):
        stream.step(Batch(frame(2)), "b2")
    assert plan.discovery.seen == []


HOSTILE = ["x" * 10**6, "a\nb", "a\x00b", "\u202eabc", "", "9" * 16, "ok", "7.0", "7", "other", "missing"]


def test_hostile_values_are_never_counted() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
    )
    kinds = pa.chunked_array([pa.array(HOSTILE), broken])
    table = pa.table({"paid": [True] * len(kinds), "kind": kinds})
    new = Undiscovered.of(table, OPEN, "test")
    assert new is not None
    ((texts, counts),) = new.counts()
    assert dict(zip(texts.to_pylist(), counts.tolist(), strict=True)) == {"ok": 1, "7": 2}
    assert OPEN.encode(table)[-3:, 1].tolist() == [1, 2, 1]


def test_which_records_of_a_user_are_counted_depends_on_no_order(tmp_path: Path) -> None:
    """The records have one code, and differ in values that are not discovered."""
    plan = discovering(1, least=0, unit=User(2))
    values = [f"n{number}" for number in range(30)]
    for name, order in (("a", values), ("b", values[::-1])):
        records = {"paid": [True] * 30, "kind": order}
        with opened(tmp_path / name, plan) as stream:
            stream._store.meta["key"] = b"k" * 32
            stream.step(Batch(records, users=["one user"] * 30), "b1")
    first, second = plan.discovery.seen
    assert first == second
    assert len(first) == 2


MANY = """
import resource, sys
import numpy as np, pyarrow as pa, pyarrow.compute as pc
import dpstream as dp
schema = dp.Schema([dp.Categorical("kind", "discover", other="other"), dp.Boolean("paid")])
rows = int(sys.argv[2])
texts = pc.utf8_lpad(pa.array(np.arange(rows)).cast(pa.string()), 20, "x")
table = pa.table({"kind": texts, "paid": pa.array(np.ones(rows, bool))})
given = {"epsilon": 1, "mechanism": "pooled", "discovery": {"delta": "1e-9"}}
with dp.open(sys.argv[1], schema, **given) as stream:
    stream.step(table.slice(0, 50), "b1")
    for name in ("b2", "b3"):
        stream.step(table, name)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_a_step_of_many_values_needs_the_memory_of_some(tmp_path: Path) -> None:
    """Counted in an epoch that stays open, and again in a step that ends it: there is no object for each of them."""
    peaks = []
    for rows in (20_000, 170_000):
        command = [sys.executable, "-c", MANY, str(tmp_path / str(rows)), str(rows)]
        peaks.append(int(subprocess.run(command, capture_output=True, check=True).stdout))
    assert (peaks[1] - peaks[0]) * 1024 < 150_000 * 250


def test_records_without_their_values_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path, discovering(1)) as stream:
        with pytest.raises(ConfigError, match="records as codes lack them"):
            stream.step(Batch(np.zeros((3, 2), np.int32)), "b1")
        assert stream.last_step == 0


def test_mechanisms_whose_counts_cannot_grow_refuse(tmp_path: Path) -> None:
    plan = DPStabs(Workload.all_k_way(OPEN.domain, 1)).calibrate(epsilon=1, horizon=9)
    with pytest.raises(ConfigError, match="'dpstabs' discovers no values of 'kind'"):
        opened(tmp_path, plan)
    with pytest.raises(SchemaError, match="reads the column 'kind', whose values are discovered"):
        OPEN.with_levels("tree", ["group", "kind"], {"group": ["a"] * 3, "kind": ["v1", "other", "missing"]})
    follows = Constraints(derived=(Derived(OPEN.columns[1], ("paid",), (0, 0)),))
    with pytest.raises(SchemaError, match="reads the column 'kind', whose values are discovered"):
        Schema(OPEN.columns[:1], constraints=follows)


def test_a_stream_that_discovers_begins_with_no_table(tmp_path: Path) -> None:
    """With a pattern, too, where the delta is 0."""
    column = OpenColumn.of(replace(OPEN.columns[1], pattern=("v[0-9]",)))
    recipe = replace(discovering(1).recipe, discovery=Discovery((column,), share=Fraction(1, 2)))
    plan = recipe.calibrate(epsilon=1)
    assert (plan.delta, plan.open_columns) == (0, ("kind",))
    with pytest.raises(ConfigError, match="cannot begin with another stream's table"):
        plan_facts(plan, OPEN, "test", None, (), {})


def test_new_values_have_their_share_at_once_beside_a_season_and_a_prior(tmp_path: Path) -> None:
    """Between the border at which they enter and the next one, where no number of their own is known."""
    codes = np.array([[0], [1]], np.int32)
    prior = PublicPrior(OPEN.domain, (0,), codes, np.array([700.0, 300.0]), {"sha256": ""})
    for beside in ({}, {"season": Fraction(12), "prior": prior}):
        plan = discovering(17, least=10, **beside)
        assert [plan.epochs.after(step) for step in (15, 17)] == [17, 19]
        home = tmp_path / str(len(beside))
        with opened(home, plan) as stream:
            for step in range(1, 19):
                stream.step(batch(step), f"b{step}")
        release = dp.read(home / "releases")
        found = release.manifest(17)["discovered"]["kind"]
        share = next(one["noisy_count"] for one in found if one["value"] == "v2") / 17
        # Half of what a step let expect, and twice that: rows are drawn.
        assert share / 2 < release.table(18).column("kind").to_pylist().count("v2") < 2 * share
    recipe = plan.recipe
    with pytest.raises(ConfigError, match="the prior has the column 'kind', whose values are discovered"):
        replace(recipe, prior=replace(prior, columns=(0, 1), codes=np.repeat(codes, 2, axis=1)))


def test_texts_of_a_large_step_are_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text is in one part, whatever borders there are; of nulls and long texts nothing is kept."""
    drawn = np.random.default_rng(3)
    known: list[Any] = [None, "v1", "other", "", "bad\x07", "long" * 60, "7.0", "7", "\u00e9" * 100]
    rows = [*known, *drawn.choice(np.array([*known, *[f"v{n}" for n in range(900)]], object), 9000)]
    cells, found, parts = pa.chunked_array([rows[:5000], rows[5000:5000], rows[5000:]]), [], []
    for size in (1 << 20, 500, 9):
        monkeypatch.setattr(arrow, "_PART_ROWS", size)
        texts, places = OPEN.columns[1].undiscovered(cells, ())
        assert len(set(texts.to_pylist())) == len(texts)
        found.append([None if place < 0 else texts[int(place)].as_py() for place in places])
        parts.append(sum(1 for _ in arrow.apart([cells.combine_chunks().cast(pa.large_string())], 200)))
    wanted = dict.fromkeys((*known[:6], "v1")) | {"7.0": "7"}
    assert found == [[wanted.get(row, row) for row in rows]] * 3
    assert parts[0] == 1 < parts[1] < parts[2]


def test_a_stand_in_for_the_law_is_not_private() -> None:
    """What these tests publish is exact: it must never be a plan's own."""
    assert replace(discovering(1), discovery=None).open_columns == ()
    assert isinstance(discovering(1).discovery, Exactly)
