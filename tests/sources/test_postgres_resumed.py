"""A step of a replicated table that was begun and killed is read again as it was; and messages that are damaged."""

from __future__ import annotations

import pytest
import test_postgres_changes
from test_postgres_changes import COLUMNS, Feed

from dpstream.core.errors import DataError
from dpstream.io.sources import replication

feed = test_postgres_changes.feed  # the fixture


@pytest.mark.parametrize("late", ["error", "next-step"])
def test_a_step_that_was_begun_is_read_as_it_was(feed: Feed, late: str) -> None:
    """The server's clock was set back in between: the change that it dates into the step comes too late for it."""
    feed.changes = {"late": late}
    feed.add("a")
    feed.end_day()
    feed.add("b")
    feed.end_day()
    feed.take(until=1)
    step, position, place = feed.step, feed.position, feed.place()
    begun = feed.take(crash=True)
    held, feed.step, feed.position = feed.position, step, position  # killed before the commit
    feed.borders[1] += 3600 * 10**6
    feed.add("between")
    assert feed.take(crash=True) == [(["b", "between"], [])], (
        "the control: without the position it reads more"
    )
    feed.step, feed.position = step, position
    feed.end_day()
    feed.add("c")
    source = feed.open(feed.options(late="next-step"), COLUMNS)
    source.resume(2, held)  # type: ignore[arg-type]
    assert [entry.step for entry in source.steps(2, seen=position)] == [2, 3]
    assert feed.place() == place, "steps that were not taken move nothing"
    taken = feed.entries(begun=held)
    assert next(taken).inserts["zip"].to_pylist() == ["b"] == begun[0][0]
    if late == "error":
        with pytest.raises(DataError, match="of a step that is already released"):
            next(taken)
        assert (feed.step, feed.position) == (2, held)
    else:
        assert sorted(next(taken).inserts["zip"].to_pylist()) == ["between", "c"]


def test_messages_that_are_cut_short_or_unknown_are_refused() -> None:
    insert = (
        b"I" + (7).to_bytes(4, "big") + b"N" + (1).to_bytes(2, "big") + b"t" + (2).to_bytes(4, "big") + b"zy"
    )
    change = replication.parse(insert)
    assert isinstance(change, replication.Change)
    assert (change.oid, change.kind, change.old, change.new) == (7, "I", None, ["zy"])
    assert "zy" not in repr(change)  # no hexadecimal digits: a representation may hold an address
    for data in (insert[:-1], insert[:7], b"Z", b"", b"B" + bytes(15), insert[:8] + b"b" + insert[9:]):
        with pytest.raises(ValueError, match=r"message|cut short|cell"):
            replication.parse(data)
