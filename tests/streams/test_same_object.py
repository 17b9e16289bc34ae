"""A step that fails and is repeated in the same object: counted once, like an undisturbed run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from toy_stream import ToyPlan, batch, start

from dpstream.core import durable
from dpstream.core.errors import StoreError
from dpstream.core.privacy import Randomness
from dpstream.stream import Stream
from dpstream.stream.store.store import Store

Fault = Callable[[Stream, pytest.MonkeyPatch], type[BaseException]]


class Exact(Randomness):
    """Noise 0: estimates are true counts, so that a batch that was counted twice shows."""

    def draw(self, noise: object, size: int):  # type: ignore[no-untyped-def, override]
        return super().draw(noise, size) * 0  # type: ignore[arg-type]


def full(stream: Stream, _: pytest.MonkeyPatch) -> type[BaseException]:
    """SQLITE_FULL from SQLite itself, inside the transaction of the commit."""
    db = stream._store._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")
    return StoreError


def before_commit(stream: Stream, patch: pytest.MonkeyPatch) -> type[BaseException]:
    """An error after all rows are written, before COMMIT."""

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    stream._renderer._policy = type(stream._renderer._policy)(1, stream._renderer._policy.max_rows)
    patch.setattr(Store, "_expire", fail)
    return OSError


def interrupt_before(stream: Stream, patch: pytest.MonkeyPatch) -> type[BaseException]:
    """Ctrl-C between the computation and the commit."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    patch.setattr(Store, "commit_step", stop)
    return KeyboardInterrupt


def interrupt_inside(stream: Stream, patch: pytest.MonkeyPatch) -> type[BaseException]:
    """Ctrl-C when the mechanism has advanced its state."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    patch.setattr(ToyPlan, "pack_state", stop)
    return KeyboardInterrupt


def interrupt_after(stream: Stream, patch: pytest.MonkeyPatch) -> type[BaseException]:
    """Ctrl-C just after the commit: the repetition finds the step."""

    def stop(*_: object, **options: object) -> None:
        raise KeyboardInterrupt

    patch.setattr(Store, "write_head", stop)
    return KeyboardInterrupt


@pytest.mark.parametrize("fault", [full, before_commit, interrupt_before, interrupt_inside, interrupt_after])
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
                for _ in range(2 if fault is not interrupt_after else 1):
                    with pytest.raises(error):
                        stream.step(batch(step), f"b{step}")
            stream._renderer._policy = policy
            stream._store._db.execute("PRAGMA max_page_count = 1000000")
            assert stream.step(batch(step), f"b{step}").step == step
        release = stream.step(batch(4), "b4")
        assert (stream._state.step, stream._state.true.tolist()) == (ticks, true)
        assert release.marginal(["zip"]).values.tolist() == values
        assert [entry.step for entry in stream.ledger()] == [1, 2, 3, 4]
    with start(tmp_path / "disturbed") as stream:
        assert (stream._state.step, stream._state.true.tolist()) == (ticks, true)


def test_an_interrupt_right_after_commit_leaves_no_half_known_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COMMIT took effect, and its caller never heard: the object refuses, the store knows."""
    commit = durable.commit
    with start(tmp_path) as stream:
        stream.step(batch(1), "b1")

        def late(db) -> None:  # type: ignore[no-untyped-def]
            commit(db)
            if db.execute("SELECT count(*) FROM steps").fetchone() == (2,):
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(durable, "commit", late)
            with pytest.raises(KeyboardInterrupt):
                stream.step(batch(2), "b2")
        with pytest.raises(StoreError, match="whether it took effect is unknown"):
            stream.step(batch(3), "b3")
    with start(tmp_path) as stream:
        assert stream.last_step == 2
        assert stream._state.step == 2
