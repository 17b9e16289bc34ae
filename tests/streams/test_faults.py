"""Durable steps under injected faults: before each durability call, and on a full disk."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from fault_harness import (
    committed_steps,
    faulty,
    full_disk,
    in_child,
    kill,
    lying_commit,
    outcome,
    refused,
    run_stream,
    violations_after_stop,
    violations_at_end,
)

from dpstream.core.errors import DpstreamError, StoreError
from dpstream.stream import StateKey

KEY = StateKey.generate()


def count_calls(home: Path, **options: object) -> list[str]:
    with faulty(None, kill) as seen:
        run_stream(home, **options)  # type: ignore[arg-type]
    return seen


@pytest.mark.parametrize(("keep", "stride", "key"), [(1, 1, None), ("all", 4, None), (1, 2, KEY)])
def test_killed_before_every_durability_call(
    tmp_path: Path, keep: int | str, stride: int, key: StateKey | None
) -> None:
    """With ``keep = 1`` every call there is (releases expire too); without it, and encrypted, a part of them."""
    calls = count_calls(tmp_path / "undisturbed", seeded=True, keep=keep, key=key)
    assert {"commit", "write", "sync_file", "sync_directory", "rename", "unlink"} == set(calls)
    expected = outcome(tmp_path / "undisturbed")
    for at in range(1, len(calls) + 1, stride):
        home = tmp_path / str(at)

        def disturbed(home: Path = home, at: int = at) -> None:
            with faulty(at, kill):
                run_stream(home, seeded=True, keep=keep, key=key)

        assert in_child(disturbed) == -signal.SIGKILL
        assert violations_after_stop(home) == [], at
        before = committed_steps(home)
        assert not refused(home, seeded=True, keep=keep, key=key), (at, calls[at - 1])
        assert violations_at_end(home, before) == [], at
        # Creating the state takes words of the first seed: once it is reopened, step 1 sees other noise.
        if before:
            assert outcome(home) == expected, at
    with faulty(len(calls) + 1, kill):
        run_stream(tmp_path / "after the last", seeded=True, keep=keep, key=key)


def test_fresh_entropy_after_a_kill_never_contradicts_what_was_published(tmp_path: Path) -> None:
    calls = count_calls(tmp_path / "undisturbed", seeded=False)
    for at in range(len(calls) // 3, 2 * len(calls) // 3, 2):
        home = tmp_path / str(at)

        def disturbed(home: Path = home, at: int = at) -> None:
            with faulty(at, kill):
                run_stream(home, seeded=False)

        assert in_child(disturbed) == -signal.SIGKILL
        before = committed_steps(home)
        assert not refused(home, seeded=False)
        assert violations_at_end(home, before) == [], at


def test_the_harness_catches_publishing_before_the_commit(tmp_path: Path) -> None:
    """Negative control: the wrong order is found, at several stops."""
    calls = count_calls(tmp_path / "undisturbed", seeded=False, wrong_order=True)
    caught = 0
    for at in range(len(calls) // 3, len(calls) + 1):
        home = tmp_path / str(at)

        def disturbed(home: Path = home, at: int = at) -> None:
            with faulty(at, kill):
                run_stream(home, seeded=False, wrong_order=True)

        in_child(disturbed)
        before = committed_steps(home)
        wrong = bool(violations_after_stop(home))
        caught += wrong or refused(home, seeded=False) or bool(violations_at_end(home, before))
    assert caught >= 3, "each step has two calls between being visible and being committed"


@pytest.mark.parametrize("fault", [full_disk, lying_commit])
def test_every_failing_call_is_a_clear_error_and_nothing_is_lost(tmp_path: Path, fault: object) -> None:
    calls = count_calls(tmp_path / "undisturbed", seeded=True)
    expected = outcome(tmp_path / "undisturbed")
    for at in range(1, len(calls) + 1):
        home = tmp_path / str(at)
        with faulty(at, fault), pytest.raises(DpstreamError) as caught:  # type: ignore[arg-type]
            run_stream(home, seeded=True)
        assert isinstance(caught.value, StoreError), at
        assert violations_after_stop(home) == [], at
        before = committed_steps(home)
        run_stream(home, seeded=True)
        assert violations_at_end(home, before) == [], at
        if before:
            assert outcome(home) == expected, at
