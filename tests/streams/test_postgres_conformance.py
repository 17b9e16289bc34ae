"""The promises of a stream, tested on PostgreSQL by the same tests as on SQLite."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import test_declared
import test_same_object
import test_stream

#: Tests that look into SQLite's file, set SQLite's options or need a second interpreter.
SQLITE_ONLY = {
    "test_a_failure_that_cannot_be_recorded_is_still_told",
    "test_after_a_commit_that_failed_only_a_new_opening_goes_on",
    "test_durability_settings_are_in_force",
    "test_one_process_at_a_time",
    "test_the_keep_policy_bounds_the_disk",
    "test_the_state_is_for_its_owner_only",
}


def shared() -> list[Callable[..., None]]:
    """Every test of one stream's life that is not about SQLite's file."""
    found = []
    for module in (test_stream, test_same_object, test_declared):
        for name, test in vars(module).items():
            if (
                not name.startswith("test_")
                or name in SQLITE_ONLY
                or "stream.sqlite" in inspect.getsource(test)
            ):
                continue
            if not any(mark.name == "parametrize" for mark in getattr(test, "pytestmark", ())):
                found.append(test)
    return found


@pytest.mark.parametrize("test", shared(), ids=lambda test: test.__name__)
def test_streams_keep_their_promises(
    test: Callable[..., None], request: pytest.FixtureRequest, on_postgres: object
) -> None:
    test(**{name: request.getfixturevalue(name) for name in inspect.signature(test).parameters})


def test_there_is_something_to_share() -> None:
    assert len(shared()) > 12
    assert all(hasattr(test_stream, name) for name in SQLITE_ONLY)


@pytest.mark.parametrize(
    "fault", ["before_commit", "interrupt_before", "interrupt_inside", "interrupt_after"]
)
def test_a_failed_step_that_is_repeated_is_counted_once(
    fault: str, request: pytest.FixtureRequest, on_postgres: object
) -> None:
    test = test_same_object.test_a_failed_step_that_is_repeated_is_counted_once
    with pytest.MonkeyPatch.context() as patch:
        # The test gives a full SQLite file its room back.
        from dpstream.stream.store.postgres import PostgresDatabase

        execute = PostgresDatabase.execute

        def without_pragma(self: PostgresDatabase, statement: str, parameters: object = ()) -> object:
            return None if statement.startswith("PRAGMA") else execute(self, statement, parameters)  # type: ignore[arg-type]

        patch.setattr(PostgresDatabase, "execute", without_pragma)
        test(request.getfixturevalue("tmp_path"), getattr(test_same_object, fault))


@pytest.mark.parametrize("reopen", [False, True])
def test_a_failure_after_drawing_waits_for_a_decision(
    reopen: bool, request: pytest.FixtureRequest, on_postgres: object
) -> None:
    from toy_stream import ToyPlan, batch, start

    from dpstream.core.errors import StepError

    home = request.getfixturevalue("tmp_path")

    class Picky(ToyPlan):
        fail = True

        def step(self, state, batch, randomness):  # type: ignore[no-untyped-def]
            synthesis = super().step(state, batch, randomness)
            if Picky.fail:
                raise ArithmeticError("the counts are 17, 4 and 99")
            return synthesis

    stream = start(home, plan=Picky())
    with pytest.raises(ArithmeticError):
        stream.step(batch(1), "a")
    Picky.fail = False
    if reopen:
        stream.close()
        stream = start(home, plan=Picky())
    for _ in range(2):
        with pytest.raises(StepError, match="stopped with ArithmeticError after noise was drawn"):
            stream.step(batch(1), "a")
    stream.discard_reservation()
    assert stream.step(batch(1), "a").step == 1
    stream.close()
