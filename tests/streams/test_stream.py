"""One stream's life, on each database: steps, repetition, refusals, and failures that are counted once."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_harness import failing_with
from toy_stream import SCHEMA, ToyPlan, batch, run, start

from dpstream.core.errors import ConfigError, DataError, LimitError, StepError, StoreError
from dpstream.core.privacy import PureDP, Randomness
from dpstream.core.schema import Schema
from dpstream.io.sinks import Publisher, read_catalogue, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.stream import Batch, Publishing, Stream, open_stream, read_ledger, read_status
from dpstream.stream.admission import ROWS, grant_batch
from dpstream.stream.store.store import Store

pytestmark = pytest.mark.usefixtures("each_database")
Fault = Callable[[Stream, pytest.MonkeyPatch], type[BaseException]]


class Faulty(ToyPlan):
    """Fails before or after it draws, as a test says."""

    before: BaseException | None = None
    after: BaseException | None = None

    def step(self, state: Any, batch: Any, randomness: Randomness) -> Any:
        state.true += 1
        if self.before is not None:
            raise self.before
        state.true -= 1
        synthesis = super().step(state, batch, randomness)
        if self.after is not None:
            raise self.after
        return synthesis


def failing(patch: pytest.MonkeyPatch, *, before: Any = None, after: Any = None) -> None:
    """From now on."""
    patch.setattr(Faulty, "before", before)
    patch.setattr(Faulty, "after", after)


def test_a_step_spends_once_and_tells_the_truth_about_itself(tmp_path: Path) -> None:
    with start(tmp_path, name="evictions") as stream:
        assert stream.spent == PureDP(Fraction(0))
        release = stream.step(batch(1), "first", period="2026-W01")
        assert stream.spent == PureDP(Fraction(1))
        stream.step(batch(2), "second")
        assert stream.spent == PureDP(Fraction(1)), "steps hold different events: parallel composition"
        entries = read_ledger(tmp_path / "state").spends
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

        def draw(self, noise: object, size: int) -> np.ndarray:
            Counting.drawn += 1
            return super().draw(noise, size)

    with start(tmp_path, randomness=Counting.system()) as stream:
        first = stream.step(batch(1), "a")
        stream.step(batch(2), "b")
        drawn = Counting.drawn
        # The same records in another order are the same batch.
        frame = {name: values[::-1] for name, values in batch(1).inserts.items()}
        again = stream.step(Batch(frame), "a")
        assert again.manifest == first.manifest
        assert again.sample().equals(first.sample())
        with pytest.raises(StepError, match="other records, of step 1"):
            stream.step(batch(3), "a")
        with pytest.raises(StepError, match="other records"):
            stream.step(Batch(frame, frame), "a")
        with pytest.raises(StepError, match="other records"):
            stream.step(Batch(None, frame), "a")
        assert stream.last_step == 2
        assert Counting.drawn == drawn
    with start(tmp_path) as stream:
        assert stream.step(batch(2), "b").step == 2


def test_predictable_noise_stays_in_the_sums(tmp_path: Path) -> None:
    """That a stream goes on as it was: ``test_a_stream_that_is_opened_again_at_every_step_is_the_same_stream``."""
    run(tmp_path, 1, randomness=Randomness.seeded(5))
    with start(tmp_path) as stream:
        manifests = [stream.release(1).manifest, stream.step(batch(9), "real entropy").manifest]
    for manifest in manifests:
        assert manifest["made_with_test_seed"] is True
        assert manifest["guarantee"]["words"].startswith("NO GUARANTEE")


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
        with pytest.raises(DataError, match="expected a table, got int"):
            stream.step(5, "b")
        for name in ("", " ", "x" * 201, "a\nb", 7.0, True, None):
            with pytest.raises(ConfigError, match=r"^name: "):
                stream.step(batch(2), name)
        with pytest.raises(ConfigError, match="period"):
            stream.step(batch(2), "b", period="\x00")
        assert stream.last_step == 1
        assert stream.step(batch(2), "b").step == 2


def test_a_mechanism_that_fails_before_it_draws_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(tmp_path, plan=Faulty()) as stream:
        stream.step(batch(1), "a")
        failing(monkeypatch, before=LimitError("a sum would pass 64 bits", where="counter"))
        with pytest.raises(LimitError):
            stream.step(batch(2), "b")
        failing(monkeypatch)
        assert stream.last_step == 1
        assert read_status(tmp_path / "state").reserved is None
        release = stream.step(batch(3), "b")  # other records: nothing was kept of the failure
        assert stream._state.true.sum() == 80, "the half-done step was not counted twice"
        assert release.step == 2


@pytest.mark.parametrize("reopen", [False, True])
def test_a_mechanism_that_fails_after_it_drew_waits_for_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reopen: bool
) -> None:
    """Silent repetition until the draw is right would be selection on private draws."""
    stream = start(tmp_path, plan=Faulty())
    stream.step(batch(1), "a")
    failing(monkeypatch, after=ArithmeticError("the counts are 17, 4 and 99"))
    with pytest.raises(ArithmeticError):
        stream.step(batch(2), "b")
    failing(monkeypatch, before=AssertionError("it was drawn again"))
    if reopen:
        stream.close()
        stream = start(tmp_path, plan=Faulty())
    for records, name in ((batch(2), "b"), (batch(3), "b"), (batch(3), "c")):
        with pytest.raises(StepError, match="stopped with ArithmeticError after noise was drawn") as caught:
            stream.step(records, name)
        assert "discard-reserved" in str(caught.value)
    status = read_status(tmp_path / "state")
    assert (status.reserved, status.failed) == (2, "ArithmeticError")
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert all(b"counts are" not in path.read_bytes() for path in files)
    assert stream.step(batch(1), "a").step == 1, "a repetition is still answered"
    failing(monkeypatch)
    stream.discard_reservation()
    assert read_status(tmp_path / "state").failed is None
    assert stream.step(batch(2), "b").step == 2
    assert (stream._state.step, stream._state.true.sum()) == (2, 77)
    stream.close()


def test_bad_options_another_name_and_other_columns_are_refused(tmp_path: Path) -> None:
    """Another plan: ``test_a_changed_schema_or_budget_is_refused``."""
    for options in ({"keep": 0}, {"keep": True}, {"keep": "some"}, {"max_rows": 0}, {"full_every": 0}):
        with pytest.raises(ConfigError, match="cannot be used"):
            Publishing(**options)
    with pytest.raises(ConfigError, match="name"):
        start(tmp_path, name="")
    run(tmp_path, 1)
    with pytest.raises(ConfigError, match=r'belongs to another plan.*stream was "stream"'):
        start(tmp_path, name="other name")
    with pytest.raises(ConfigError, match="calibrated for other columns"):
        open_stream(ToyPlan(), Schema(SCHEMA.columns[:2]), tmp_path / "elsewhere")


def test_log_lines_show_steps_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="dpstream")
    run(tmp_path, 2)
    lines = [record.getMessage() for record in caplog.records]
    expected = [f"step {s}: {word}" for s in (1, 2) for word in ("reserved", "committed", "published")]
    assert lines == expected
    assert repr(batch(1)) == "Batch(records hidden)"


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
        assert stream.last_step == 2


def test_a_failure_before_drawing_keeps_the_reservation_of_an_earlier_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier attempt may have drawn noise: withdrawing would let other records take its place unasked."""
    with start(tmp_path, plan=Faulty()) as stream:
        failing(monkeypatch, after=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            stream.step(batch(1), "b1")
        with pytest.raises(StepError, match="reserved for the batch 'b1'"):
            stream.step(batch(2), "other")
        failing(monkeypatch, before=LimitError("a sum would pass 64 bits", where="counter"))
        for _ in range(2):
            with pytest.raises(LimitError):
                stream.step(batch(1), "b1")
            assert read_status(tmp_path / "state").reserved == 1
        failing(monkeypatch)
        with pytest.raises(StepError, match="reserved for the batch 'b1'"):
            stream.step(batch(2), "other")
    with start(tmp_path, plan=Faulty()) as stream:
        with pytest.raises(StepError, match="reserved for the batch 'b1'"):
            stream.step(batch(2), "other")
        assert stream.step(batch(1), "b1").step == 1
        assert (stream._state.step, stream._state.true.sum()) == (1, 40)


def test_publishing_that_fails_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start(tmp_path) as stream:
        stream.step(batch(1), "a")
        with monkeypatch.context() as patch:
            patch.setattr(Publisher, "put", failing_with(OSError(28, "No space left on device")))
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


# A step that fails and is repeated in the same object.


class Exact(Randomness):
    """Noise 0: estimates are true counts, so that a batch that was counted twice shows."""

    def draw(self, noise: object, size: int):
        return super().draw(noise, size) * 0


def full(stream: Stream, _: pytest.MonkeyPatch) -> type[BaseException]:
    """SQLITE_FULL from SQLite itself, inside the transaction of the commit."""
    db = stream._store._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")
    return StoreError


def before_commit(stream: Stream, patch: pytest.MonkeyPatch) -> type[BaseException]:
    """An error after all rows are written, before COMMIT."""
    stream._renderer._policy = type(stream._renderer._policy)(1, stream._renderer._policy.max_rows)
    patch.setattr(Store, "_expire", failing_with(OSError(5, "Input/output error")))
    return OSError


def interrupted(target: type, name: str) -> Fault:
    """Ctrl-C in the place of a call."""

    def interrupt(_: Stream, patch: pytest.MonkeyPatch) -> type[BaseException]:
        patch.setattr(target, name, failing_with(KeyboardInterrupt()))
        return KeyboardInterrupt

    return interrupt


#: The commit is done: the repetition finds the step.
AFTER = interrupted(Store, "write_head")
#: Before the commit, and when the mechanism has advanced its state.
INTERRUPTIONS = (before_commit, interrupted(Store, "commit_step"), interrupted(ToyPlan, "pack_state"), AFTER)


@pytest.mark.parametrize(
    ("each_database", "fault"),
    [("sqlite", full), *itertools.product(("sqlite", "postgres"), INTERRUPTIONS)],
    indirect=["each_database"],
)
def test_a_failed_step_that_is_repeated_is_counted_once(tmp_path: Path, fault: Fault) -> None:
    with start(tmp_path / "undisturbed", randomness=Exact.seeded(1)) as stream:
        for step in range(1, 5):
            expected = stream.step(batch(step), f"b{step}")
        ticks, true = stream._state.step, stream._state.true.tolist()
        values = expected.marginal(["zip"]).values.tolist()
    with start(tmp_path / "disturbed", randomness=Exact.seeded(1)) as stream:
        stream.step(batch(1), "b1")
        for step in (2, 3):
            policy = stream._renderer._policy
            with pytest.MonkeyPatch.context() as patch:
                error = fault(stream, patch)
                for _ in range(2 if fault is not AFTER else 1):
                    with pytest.raises(error):
                        stream.step(batch(step), f"b{step}")
            stream._renderer._policy = policy
            if fault is full:
                stream._store._db.execute("PRAGMA max_page_count = 1000000")
            assert stream.step(batch(step), f"b{step}").step == step
        release = stream.step(batch(4), "b4")
        assert (stream._state.step, stream._state.true.tolist()) == (ticks, true)
        assert release.marginal(["zip"]).values.tolist() == values
        assert stream.last_step == 4
    with start(tmp_path / "disturbed") as stream:
        assert (stream._state.step, stream._state.true.tolist()) == (ticks, true)
