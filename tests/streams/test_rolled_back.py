"""A database, or a whole state, restored at the same step: whatever it forgot, every verb sees it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fault_harness import failing_with, sql
from toy_stream import batch, run, start

from dpstream.core.errors import StoreDamagedError, StoreError
from dpstream.io.sinks import Publisher
from dpstream.stream import Publishing, Stream, inspection, verify_ledger
from dpstream.stream.inspection import check_store, wrong_state
from dpstream.stream.store import sealed_history
from dpstream.stream.store.archive import export_store
from dpstream.stream.store.sealed_history import outside_heads


def opened(home: Path, *, hold: bool = False) -> Stream:
    return start(home, form="csv", publishing=Publishing(approve=hold))


def publish(home: Path) -> None:
    run(home, 3, form="csv")


def hold(home: Path) -> None:
    with opened(home) as stream:
        stream.step(batch(1), "b1")
    with opened(home, hold=True) as stream:
        stream.step(batch(2), "b2")


def withdraw(home: Path) -> None:
    with opened(home) as stream:
        stream.withdraw(2, "a test")


def reject(home: Path) -> None:
    with opened(home, hold=True) as stream:
        stream.withdraw(2, "a test")


def fail(home: Path) -> None:
    with opened(home) as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stream, "_prepare", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            stream.step(batch(4), "b4")


def discard(home: Path) -> None:
    with opened(home) as stream:
        stream.discard_reservation()


def move(home: Path) -> None:
    export_store(home / "state", home / "moved", move=True, outside=outside_heads(home / "releases"))


def take(home: Path) -> None:
    with opened(home) as stream:
        stream.step(batch(4), "b4")


def take_and_hold(home: Path) -> None:
    with opened(home, hold=True) as stream:
        stream.step(batch(3), "b3")


def everybody(home: Path) -> list[str]:
    """Who says that the state was rolled back."""
    found = []
    try:
        opened(home).close()
    except StoreDamagedError as error:
        found += ["run"] if "rolled back" in str(error) else [str(error)]
    told = {
        "check": check_store(home / "state", home / "releases").problems,
        "verify": verify_ledger(home / "state", releases=home / "releases"),
        "health": [wrong_state(home / "state", home / "releases") or ""],
    }
    return found + [who for who, words in told.items() if any("rolled back" in text for text in words)]


#: What is there before the copy is made, and what the copy does not know.
FORGOTTEN: list[tuple[Callable[[Path], None], Callable[[Path], None]]] = [
    (publish, withdraw),
    (hold, reject),
    (publish, fail),
    (lambda home: (publish(home), fail(home)), discard),
    (publish, move),
    (publish, take),
    (hold, take_and_hold),
]


@pytest.mark.parametrize("what", ["stream.sqlite", "state"])
@pytest.mark.parametrize(("before", "after"), FORGOTTEN, ids=lambda one: one.__name__)
def test_a_restored_copy_is_seen_by_everybody(
    tmp_path: Path, before: Callable[[Path], None], after: Callable[[Path], None], what: str
) -> None:
    before(tmp_path)
    place = tmp_path / "state"
    shutil.copytree(place, tmp_path / "copy")
    after(tmp_path)
    assert after is move or everybody(tmp_path) == []
    shutil.copytree(place, tmp_path / "newest")
    if what == "state":
        shutil.rmtree(place)
        shutil.copytree(tmp_path / "copy", place)
    else:
        shutil.copy(tmp_path / "copy" / what, place / what)
    for _ in range(2):  # nobody makes it good by trying
        assert everybody(tmp_path) == ["run", "check", "verify", "health"]
    if after is take:  # the releases themselves tell, without any list of them
        for listed in ("catalogue.json", ".head.json"):
            (tmp_path / "releases" / listed).rename(tmp_path / listed)
        with pytest.raises(StoreDamagedError, match="rolled back"):
            opened(tmp_path)
        (tmp_path / "releases" / "catalogue.json").unlink(missing_ok=True)
        for listed in ("catalogue.json", ".head.json"):
            (tmp_path / listed).rename(tmp_path / "releases" / listed)
    shutil.rmtree(place)
    (tmp_path / "newest").rename(place)
    if after is not move:
        opened(tmp_path).close()
        assert everybody(tmp_path) == []


def test_witnesses_of_the_last_step_alone_would_not_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: what was forgotten are entries of the log."""
    real = sealed_history.head_problem

    def last_step_only(heads: Any, history: Any) -> str | None:
        return real(None if heads is None else replace(heads, entry=0, entry_seal=b"", outside={}), history)

    for module in (sealed_history, inspection):
        monkeypatch.setattr(module, "head_problem", last_step_only)
    for before, after in ((hold, reject), (publish, fail), (publish, move)):
        home = tmp_path / after.__name__
        before(home)
        shutil.copytree(home / "state", home / "copy")
        after(home)
        shutil.copy(home / "copy" / "stream.sqlite", home / "state" / "stream.sqlite")
        assert everybody(home) != ["run", "check", "verify", "health"]


def test_a_public_notice_stops_publication_whatever_the_store_says(tmp_path: Path) -> None:
    """Also where no witness is left that knows of it."""
    publish(tmp_path)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    withdraw(tmp_path)
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "copy").rename(tmp_path / "state")
    (tmp_path / "releases" / ".head.json").unlink(missing_ok=True)
    assert everybody(tmp_path) == ["run", "check", "verify", "health"]
    with pytest.raises(StoreDamagedError, match=r"step 2 was withdrawn \(withdrawn.json is in the folder\)"):
        opened(tmp_path)
    assert not list((tmp_path / "releases" / "step-000002").glob("table.*"))


def test_what_nobody_was_told_may_be_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heads are written after the commit and before the world sees anything of it."""
    publish(tmp_path)
    seen: list[str] = []
    real = Publisher.withdraw

    def looking(self: Publisher, *arguments: Any) -> None:
        [(entry,)] = sql(tmp_path, "SELECT hex(seal) FROM log ORDER BY id DESC LIMIT 1")
        for head in (tmp_path / "state" / "head.json", tmp_path / "releases" / ".head.json"):
            assert entry.lower() in head.read_text()
        seen.append(entry)
        real(self, *arguments)

    monkeypatch.setattr(Publisher, "withdraw", looking)
    withdraw(tmp_path)
    assert len(seen) == 1


def test_a_head_that_cannot_be_written_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path)
    with opened(tmp_path) as stream:
        with monkeypatch.context() as patch:
            patch.setattr("dpstream.core.durable.replace_file", failing_with(OSError(28, "full")))
            with pytest.raises(StoreError, match="full"):
                stream.withdraw(2, "a test")
        stream.withdraw(2, "a test")
    assert everybody(tmp_path) == []


def test_a_state_that_is_gone_is_told_and_no_other_is_made(tmp_path: Path) -> None:
    """Its witness among the releases is left: nothing is charged to an account for a stream that could not go on."""
    publish(tmp_path)
    withdraw(tmp_path)
    shutil.rmtree(tmp_path / "state")
    for path in (tmp_path / "releases").iterdir():
        if path.name != ".head.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert wrong_state(tmp_path / "state", tmp_path / "releases") is not None
    with pytest.raises(StoreDamagedError, match=r"its witness \.head\.json remains"):
        publish(tmp_path)
    assert not (tmp_path / "state").exists()
