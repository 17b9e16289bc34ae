"""A withdrawal while a place beside the folder does not answer: recorded, done where it can be, and finished later."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from second_place import contents, mirrored
from toy_stream import SCHEMA, ToyPlan, batch

from dpstream.core.errors import StoreError
from dpstream.io.sinks import DuckDBFeed, Publisher, read_catalogue
from dpstream.io.sinks import read_table as read
from dpstream.stream import Publishing, Stream, open_stream, read_status

CHANGES = Publishing(records="persistent", publish="changes", full_every=9)


def opened(home: Path, sink: Publisher) -> Stream:
    return open_stream(ToyPlan(), SCHEMA, home / "state", publish_to=sink, publishing=CHANGES)


@pytest.fixture(params=["bucket", "duckdb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[[], Publisher], Any, Any]:
    """A sink with a second place, what makes that one go away, and what brings it back."""
    if request.param == "bucket":
        away = tmp_path / "away"
        return lambda: mirrored(tmp_path), away.touch, away.unlink
    duckdb = pytest.importorskip("duckdb")
    path, readers = tmp_path / "releases.duckdb", list[Any]()

    def sink() -> Publisher:
        return Publisher(tmp_path / "releases", beside=DuckDBFeed(path))

    # A reader who has the file open keeps everybody from writing.
    return (
        sink,
        lambda: readers.append(duckdb.connect(str(path), read_only=True)),
        lambda: readers.pop().close(),
    )


def states(root: Path) -> list[str]:
    return [entry["state"] for entry in read_catalogue(root)["steps"]]


@pytest.mark.parametrize("step", [2, 3])
def test_a_withdrawal_does_not_wait_for_a_place_that_is_away(
    tmp_path: Path, place: tuple[Callable[[], Publisher], Any, Any], step: int
) -> None:
    make, leave, come_back = place
    root = tmp_path / "releases"
    with opened(tmp_path, make()) as stream:
        for number in (1, 2, 3):
            stream.step(batch(number), f"b{number}")
    expected = ["full", "withdrawn", "full"] if step == 2 else ["full", "change", "withdrawn"]
    leave()
    with opened(tmp_path, make()) as stream:  # a withdrawal begins with opening the stream
        for _ in range(2):
            with pytest.raises(StoreError, match=f"step {step} is withdrawing: all places but one"):
                stream.withdraw(step, "urgent")
            assert states(root) == expected
            folder = {path.name for path in (root / f"step-{step:06d}").iterdir()}
            assert folder == {"manifest.json", "measurements.ndjson", "withdrawn.json"}
            assert not list((root / "step-000003").glob("changes.*"))
            read(root)
        # What waits for the other place is not drawn.
        with pytest.raises(StoreError):
            stream.step(batch(4), "b4")
        assert stream.last_step == 3
        assert [one.kind for one in stream.decisions()] == ["withdrawn"]
    assert read_status(tmp_path / "state").reserved is None
    come_back()
    with opened(tmp_path, make()) as stream:  # the next call, whatever it is
        assert not stream.withdraw(step, "urgent")
        assert stream.publish_again() == []
        stream.step(batch(4), "b4")
    if (tmp_path / "second").exists():
        second = tmp_path / "second"
        assert states(second) == states(root) == [*expected, "change" if step == 2 else "full"]
        assert contents(root) == contents(second)
        return
    import duckdb

    with duckdb.connect(str(tmp_path / "releases.duckdb"), read_only=True) as db:
        noted = db.execute("SELECT step, state FROM synthetic_steps ORDER BY step").fetchall()
        ids = [one for (one,) in db.execute("SELECT record_id FROM synthetic ORDER BY record_id").fetchall()]
    assert (step, "withdrawn") in noted
    assert (4, "current") in noted
    assert ids == read(root, 4, ids=True)["record_id"].to_pylist()


def test_a_held_step_is_rejected_though_the_second_place_is_away(tmp_path: Path) -> None:
    sink = mirrored(tmp_path)
    held = Publishing(approve=True)
    with open_stream(ToyPlan(), SCHEMA, tmp_path / "state", publish_to=sink, publishing=held) as stream:
        stream.step(batch(1), "b1")
    (tmp_path / "away").touch()
    with open_stream(ToyPlan(), SCHEMA, tmp_path / "state", publish_to=sink, publishing=held) as stream:
        with pytest.raises(StoreError, match="does not answer"):
            stream.approve()
        assert stream.held() == [1], "nothing is approved that cannot be published"
        assert stream.withdraw(1, "urgent")
        assert stream.held() == []
