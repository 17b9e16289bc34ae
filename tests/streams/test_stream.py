"""One stream's life: steps, repetition, refusals."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_stream import SCHEMA, ToyPlan, batch, run, start

from dpstream.core import durable
from dpstream.core.errors import (
    ConfigError,
    DataError,
    HorizonError,
    LimitError,
    StepError,
    StoreError,
    StoreLockedError,
)
from dpstream.core.privacy import PureDP, Randomness
from dpstream.core.schema import Categorical, Schema
from dpstream.io.sinks import Publisher, read_catalogue, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.stream import Batch, StatePermissionWarning, open_stream, read_status
from dpstream.stream.admission import ROWS, grant_batch
from dpstream.stream.release.publishing import Publishing


def test_a_step_spends_once_and_tells_the_truth_about_itself(tmp_path: Path) -> None:
    with start(tmp_path, name="evictions") as stream:
        assert stream.spent == PureDP(Fraction(0))
        release = stream.step(batch(1), "first", period="2026-W01")
        assert stream.spent == PureDP(Fraction(1))
        stream.step(batch(2), "second")
        assert stream.spent == PureDP(Fraction(1)), "steps hold different events: parallel composition"
        entries = stream.ledger()
        assert [entry.step for entry in entries] == [1, 2]
        assert sum(Fraction(part["total"]) for part in entries[0].parts) == entries[0].spent == 1
    manifest = read_manifest(tmp_path / "releases", 1)
    assert manifest == release.manifest
    assert manifest["period"] == "2026-W01"
    assert manifest["stream"] == "evictions"
    assert manifest["guarantee"]["epsilon"] == "1"
    assert manifest["relation"] == "add-remove"
    assert manifest["rows"] == max(0, round(release.total))
    assert manifest["made_with_test_seed"] is False
    assert "first" not in json.dumps(manifest), "the owner's batch id stays inside"
    table = read(tmp_path / "releases", 1)
    assert table.num_rows == manifest["rows"]
    assert table.schema == SCHEMA.arrow_schema()
    assert release.sample().equals(table), "sampling with the published seed gives the published table"
    assert read(tmp_path / "releases").equals(read(tmp_path / "releases", 2))


def test_repeating_a_batch_gives_the_stored_release_and_draws_nothing(tmp_path: Path) -> None:
    class Counting(Randomness):
        drawn = 0

        def draw(self, noise: object, size: int) -> np.ndarray:  # type: ignore[override]
            Counting.drawn += 1
            return super().draw(noise, size)  # type: ignore[arg-type]

    with start(tmp_path, randomness=Counting.system()) as stream:
        first = stream.step(batch(1), "a")
        stream.step(batch(2), "b")
        drawn = Counting.drawn
        # The same records in another order are the same batch.
        frame = {name: values[::-1] for name, values in batch(1).inserts.items()}
        again = stream.step(Batch(frame), "a")
        assert again.manifest == first.manifest
        assert again.sample().equals(first.sample())
        with pytest.raises(StepError, match="used at step 1 for other records"):
            stream.step(batch(3), "a")
        with pytest.raises(StepError, match="other records"):
            stream.step(Batch(frame, frame), "a")
        with pytest.raises(StepError, match="other records"):
            stream.step(Batch(None, frame), "a")
        assert stream.last_step == 2
        assert Counting.drawn == drawn
    with start(tmp_path) as stream:
        assert stream.step(batch(2), "b").step == 2


def test_state_continues_exactly_after_reopening(tmp_path: Path) -> None:
    """With the same noise, a stream that is reopened at every step equals one that stays open."""
    estimates = []
    for reopen in (False, True):
        home = tmp_path / str(reopen)
        randomness = Randomness.seeded(5)
        stream = start(home, randomness=randomness)
        for step in range(1, 5):
            release = stream.step(batch(step), f"b{step}")
            if reopen:
                stream.close()
                stream = start(home, randomness=randomness)
        stream.close()
        estimates.append((release.marginal(["zip"]).values.tolist(), release.manifest))
    assert estimates[0] == estimates[1]
    assert estimates[0][1]["made_with_test_seed"] is True
    with start(tmp_path / "True") as stream:
        sticky = stream.step(batch(9), "real entropy").manifest
    assert sticky["made_with_test_seed"] is True, "predictable noise stays in the sums"
    assert sticky["guarantee"]["words"].startswith("NO GUARANTEE")


def test_wrong_input_spends_nothing(tmp_path: Path) -> None:
    with start(tmp_path) as stream:
        stream.step(batch(1), "a")
        for bad in (
            Batch({"zip": ["94102"]}),
            Batch({"zip": ["94102"], "paid": ["perhaps"], "rent": [1]}),
            Batch(np.zeros((2, 3), np.int64)),
            Batch(np.full((2, 3), 99, np.int32)),
            Batch(7),
        ):
            with pytest.raises((DataError, Exception), match=r".") as caught:
                stream.step(bad, "b")
            assert caught.value.__class__.__module__ == "dpstream.core.errors"
            assert "perhaps" not in str(caught.value)
        with pytest.raises(DataError, match="is not a table"):
            stream.step(5, "b")
        for name in ("", " ", "x" * 201, "a\nb", 7.0, True, None):
            with pytest.raises(ConfigError, match=r"^name: "):
                stream.step(batch(2), name)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="period"):
            stream.step(batch(2), "b", period="\x00")
        assert stream.last_step == 1
        assert len(stream.ledger()) == 1
        assert stream.step(batch(2), "b").step == 2


def test_a_mechanism_that_fails_before_it_draws_leaves_everything_as_it_was(tmp_path: Path) -> None:
    class Failing(ToyPlan):
        fail = False

        def step(self, state, batch, randomness):  # type: ignore[no-untyped-def]
            state.true += 1
            if Failing.fail:
                raise LimitError("a sum would pass 64 bits", where="counter")
            state.true -= 1
            return super().step(state, batch, randomness)

    with start(tmp_path, plan=Failing()) as stream:
        stream.step(batch(1), "a")
        Failing.fail = True
        with pytest.raises(LimitError):
            stream.step(batch(2), "b")
        Failing.fail = False
        assert stream.last_step == 1
        assert read_status(tmp_path / "state").reserved is None
        release = stream.step(batch(3), "b")  # other records: nothing was kept of the failure
        assert stream._state.true.sum() == 80, "the half-done step was not counted twice"
        assert release.step == 2


@pytest.mark.parametrize("reopen", [False, True])
def test_a_mechanism_that_fails_after_it_drew_waits_for_a_decision(tmp_path: Path, reopen: bool) -> None:
    """Silent repetition until the draw is right would be selection on private draws."""
    draws = 0

    class Picky(ToyPlan):
        fail = False

        def step(self, state, batch, randomness):  # type: ignore[no-untyped-def]
            nonlocal draws
            draws += 1
            synthesis = super().step(state, batch, randomness)
            if Picky.fail:
                raise ArithmeticError("the counts are 17, 4 and 99")
            return synthesis

    stream = start(tmp_path, plan=Picky())
    stream.step(batch(1), "a")
    Picky.fail = True
    with pytest.raises(ArithmeticError):
        stream.step(batch(2), "b")
    Picky.fail = False
    if reopen:
        stream.close()
        stream = start(tmp_path, plan=Picky())
    for records, name in ((batch(2), "b"), (batch(3), "b"), (batch(3), "c")):
        with pytest.raises(StepError, match="stopped with ArithmeticError after noise was drawn") as caught:
            stream.step(records, name)
        assert "discard-reserved" in str(caught.value)
    assert draws == 2, "nothing was drawn again"
    status = read_status(tmp_path / "state")
    assert (status.reserved, status.failed) == (2, "ArithmeticError")
    assert b"counts are" not in (tmp_path / "state" / "stream.sqlite").read_bytes()
    assert stream.step(batch(1), "a").step == 1, "a repetition is still answered"
    stream.discard_reservation()
    assert read_status(tmp_path / "state").failed is None
    assert stream.step(batch(2), "b").step == 2
    assert (stream._state.step, stream._state.true.sum()) == (2, 77)
    stream.close()


def test_after_a_commit_that_failed_only_a_new_opening_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it took effect is unknown until the store is read again."""
    real = durable.commit

    def lying(db: object) -> None:
        real(db)  # type: ignore[arg-type]
        raise sqlite3.OperationalError("disk I/O error")

    with start(tmp_path) as stream:
        with monkeypatch.context() as patch:
            patch.setattr(durable, "commit", lying)
            with pytest.raises(StoreError):
                stream.step(batch(1), "a")
        with pytest.raises(StoreError, match="whether it took effect is unknown"):
            stream.step(batch(1), "a")
    with start(tmp_path) as stream:
        assert stream.step(batch(1), "a").step == 1


def test_horizon_is_enforced_before_anything_is_reserved(tmp_path: Path) -> None:
    with start(tmp_path, plan=ToyPlan(horizon=2)) as stream:
        stream.step(batch(1), "a")
        stream.step(batch(2), "b")
        with pytest.raises(HorizonError, match="pays for 2 steps"):
            stream.step(batch(3), "c")
        assert stream.step(batch(2), "b").step == 2, "a repetition is no new step"
        assert stream.discard_reservation() is None


def test_another_plan_is_refused_by_name(tmp_path: Path) -> None:
    run(tmp_path, 1)
    cases = [
        (replace(ToyPlan(), budget=PureDP.of(2)), SCHEMA, "stream", 'budget.epsilon was "1" and is "2"'),
        (replace(ToyPlan(), horizon=9), SCHEMA, "stream", "horizon was null and is 9"),
        (replace(ToyPlan(), label="new"), SCHEMA, "stream", 'options.label was "plain" and is "new"'),
        (ToyPlan(), SCHEMA, "other name", 'stream was "stream"'),
    ]
    wider = Schema([Categorical("zip", ["94102", "94103", "94110", "94117"]), *SCHEMA.columns[1:]])
    cases.append((replace(ToyPlan(), domain=wider.domain), wider, "stream", "schema.columns.zip.values"))
    for plan, schema, name, words in cases:
        with pytest.raises(ConfigError, match="belongs to another plan") as caught:
            open_stream(plan, schema, tmp_path / "state", name=name)
        assert words in str(caught.value)
    with pytest.raises(ConfigError, match="calibrated for other columns"):
        open_stream(ToyPlan(), Schema(SCHEMA.columns[:2]), tmp_path / "elsewhere")
    with start(tmp_path) as stream:
        assert stream.last_step == 1


@pytest.mark.parametrize(
    "options", [{"keep": 0}, {"keep": True}, {"keep": "some"}, {"max_rows": 0}, {"full_every": None}]
)
def test_bad_options(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        Publishing(**options)
    with pytest.raises(ConfigError, match="name"):
        start(tmp_path, name="")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from toy_stream import *\nfrom dpstream.stream import open_stream\n"
        "from dpstream.core.errors import StoreLockedError\n"
        "try:\n    open_stream(ToyPlan(), SCHEMA, sys.argv[1])\n"
        "except StoreLockedError as error:\n    print(error)\n    sys.exit(4)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "state")]
    with start(tmp_path) as stream:
        other = subprocess.run(command, capture_output=True, text=True, check=False)
        assert other.returncode == 4, other.stderr
        assert "another process" in other.stdout
        with pytest.raises(StoreLockedError):
            start(tmp_path)
        child = os.fork()
        if child == 0:
            try:
                stream.step(batch(1), "from the child")
            except StoreError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with start(tmp_path, publish=False) as stream:
        assert stream.last_step == 0
    with pytest.raises(StoreError, match="closed"):
        stream.step(batch(1), "x")


def test_the_state_is_for_its_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        run(tmp_path, 1)
    finally:
        os.umask(old)
    state = tmp_path / "state"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in state.iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / "releases" / "step-000001" / "table.parquet").stat().st_mode) == 0o644
    state.chmod(0o755)
    (state / "stream.sqlite").chmod(0o644)
    with pytest.warns(StatePermissionWarning) as caught:
        start(tmp_path).close()
    assert len(caught) == 2
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "stream.sqlite").stat().st_mode) == 0o600


def test_the_keep_policy_bounds_the_disk(tmp_path: Path) -> None:
    with start(tmp_path, keep=2) as stream:
        sizes = []
        for step in range(1, 31):
            stream.step(batch(1), f"b{step}")
            sizes.append((tmp_path / "state" / "stream.sqlite").stat().st_size)
        assert stream.release().sample(rows=3).num_rows == 3
        with pytest.raises(ConfigError, match="model of step 28 was dropped"):
            stream.release(28).sample()
        assert stream.release(28).manifest["step"] == 28
    releases = tmp_path / "releases"
    assert sorted(p.parent.name for p in releases.glob("*/table.parquet")) == ["step-000029", "step-000030"]
    assert len(list(releases.glob("*/manifest.json"))) == 30
    assert [e["kept"] for e in read_catalogue(releases)["steps"]] == [False] * 28 + [True] * 2
    with pytest.raises(ConfigError, match="dropped by the keep policy"):
        read(releases, 3)
    assert read(releases).num_rows == read_manifest(releases, 30)["rows"]
    db = sqlite3.connect(tmp_path / "state" / "stream.sqlite")
    kept = "SELECT count(*) FROM files WHERE bytes IS NOT NULL AND name <> 'measurements.ndjson'"
    assert db.execute(kept).fetchone() == (0,), "tables are not stored twice"
    assert db.execute("SELECT count(*) FROM steps WHERE synthesis IS NOT NULL").fetchone() == (2,)
    db.close()


def test_log_lines_show_steps_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="dpstream")
    run(tmp_path, 2)
    lines = [record.getMessage() for record in caplog.records]
    expected = [f"step {s}: {word}" for s in (1, 2) for word in ("reserved", "committed", "published")]
    assert lines == expected
    assert repr(batch(1)) == "Batch(records hidden)"


def test_durability_settings_are_in_force(tmp_path: Path) -> None:
    with start(tmp_path) as stream:
        db = stream._store._db
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_reservation_outlives_a_crash_and_is_given_up_only_on_request(tmp_path: Path) -> None:
    with start(tmp_path) as stream:
        stream.step(batch(1), "a")
        # A crash right after the intent.
        rows = grant_batch(batch(9), ToyPlan(), SCHEMA, stream._store, "then").rows
        stream._reserve("b", rows.fingerprint(stream._store.derived_key(ROWS)))
    assert read_status(tmp_path / "state").reserved == 2
    with start(tmp_path) as stream:
        with pytest.raises(StepError, match="reserved for other records under this id"):
            stream.step(batch(2), "b")
        with pytest.raises(StepError, match="reserved for the batch 'b'"):
            stream.step(batch(2), "c")
        assert stream.step(batch(1), "a").step == 1, "a repetition is still answered"
        stream.discard_reservation()
        assert stream.step(batch(2), "c").step == 2
        assert len(stream.ledger()) == 2


def test_a_failure_before_drawing_keeps_the_reservation_of_an_earlier_attempt(tmp_path: Path) -> None:
    """The earlier attempt may have drawn noise: withdrawing would let other records take its place unasked."""
    fault: BaseException | None = None
    before = False

    class Faulty(ToyPlan):
        def step(self, state, batch, randomness):  # type: ignore[no-untyped-def]
            if fault is not None and before:
                raise fault
            synthesis = super().step(state, batch, randomness)
            if fault is not None:
                raise fault
            return synthesis

    with start(tmp_path, plan=Faulty()) as stream:
        fault = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            stream.step(batch(1), "b1")
        with pytest.raises(StepError, match="reserved for the batch 'b1'"):
            stream.step(batch(2), "other")
        fault, before = LimitError("a sum would pass 64 bits", where="counter"), True
        for _ in range(2):
            with pytest.raises(LimitError):
                stream.step(batch(1), "b1")
            assert read_status(tmp_path / "state").reserved == 1
        fault = None
        with pytest.raises(StepError, match="reserved for the batch 'b1'"):
            stream.step(batch(2), "other")
    with start(tmp_path, plan=Faulty()) as stream:
        with pytest.raises(StepError, match="reserved for the batch 'b1'"):
            stream.step(batch(2), "other")
        assert stream.step(batch(1), "b1").step == 1
        assert (stream._state.step, stream._state.true.sum()) == (1, 40)


@pytest.mark.parametrize("drawn", [False, True])
def test_a_failure_that_cannot_be_recorded_is_still_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: bool
) -> None:
    commit, commits = durable.commit, 0

    def full(db: sqlite3.Connection) -> None:
        nonlocal commits
        commits += 1
        if commits == 2:  # the reservation is the first
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        commit(db)

    class Failing(ToyPlan):
        def step(self, state, batch, randomness):  # type: ignore[no-untyped-def]
            if drawn:
                super().step(state, batch, randomness)
            raise ArithmeticError("overflow")

    with start(tmp_path, plan=Failing()) as stream:
        monkeypatch.setattr(durable, "commit", full)
        with pytest.raises(ArithmeticError, match="overflow") as caught:
            stream.step(batch(1), "a")
        (note,) = caught.value.__notes__
        assert ("recorded" if drawn else "withdrawn") in note
        assert "disk is full" in note
        with pytest.raises(StoreError):
            stream.step(batch(1), "a")
    monkeypatch.undo()
    status = read_status(tmp_path / "state")
    assert (status.last_step, status.reserved, status.failed) == (0, 1, None)
    with start(tmp_path) as stream:  # the documented gap: as after a kill
        with pytest.raises(StepError, match="reserved for the batch 'a'"):
            stream.step(batch(2), "b")
        assert stream.step(batch(1), "a").step == 1


def test_publishing_that_fails_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start(tmp_path) as stream:

        def refuse(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        stream.step(batch(1), "a")
        with monkeypatch.context() as patch:
            patch.setattr(Publisher, "put", refuse)
            with pytest.raises(StoreError, match="No space left on device"):
                stream.step(batch(2), "b")
            assert read_status(tmp_path / "state").unpublished == (2,)
            with pytest.raises(StoreError, match="No space left"):
                stream.step(batch(3), "c")
        assert stream.last_step == 2, "no step runs ahead of one that could not be published"
        assert stream.step(batch(2), "b").step == 2
        assert read(tmp_path / "releases", 2).num_rows == stream.release(2).rows
        assert stream.step(batch(3), "c").step == 3
    assert len(read_catalogue(tmp_path / "releases")["steps"]) == 3
