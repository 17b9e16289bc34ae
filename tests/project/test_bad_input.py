"""A corpus of bad input, generated from verbs, options and files: every case ends as the documents say.

Each is run in this process and checked for: no traceback, a documented exit code, one line that says why, no private
value, nothing spent, nothing outside of the folder, no device touched, and an end.
"""

from __future__ import annotations

import os
import re
import sqlite3
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_input import damaged_data, damaged_state, numbers, paths
from bad_input_judge import MARKS, Case, World, judge

from dpstream.cli.check import command as check
from dpstream.core.errors import ConfigError

LEAST = 600


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("bad"))


def cases_of(kind: str, world: World) -> list[Case]:
    makers = {"paths": paths, "numbers": numbers, "data": damaged_data}
    return damaged_state(world) if kind == "state" else makers[kind]()


KINDS = ("paths", "numbers", "data", "state")


@pytest.mark.parametrize("kind", KINDS)
def test_every_case_ends_as_documented(kind: str, world: World) -> None:
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases_of(kind, world):
            wrong += [f"{case.name}: {found}" for found in judge(world, case)]
    assert wrong == []


def test_the_corpus_is_large_enough(world: World) -> None:
    counts = {kind: len(cases_of(kind, world)) for kind in KINDS}
    assert sum(counts.values()) >= LEAST, counts
    assert min(counts.values()) >= 100, counts
    names = [case.name for kind in KINDS for case in cases_of(kind, world)]
    assert len(set(names)) == len(names)


def misbehave_by_traceback() -> int:
    raise LookupError("a bug")


def misbehave_by_value() -> int:
    raise ConfigError(f"{MARKS[0]} cannot be used")


def misbehave_by_code() -> int:
    return 1


def misbehave_by_silence() -> int:
    return 2


def misbehave_by_device() -> int:
    Path("bad").unlink()
    Path("bad").write_text("x", encoding="utf-8")
    raise ConfigError("wrong")


def misbehave_by_spending() -> int:
    with sqlite3.connect("state/stream.sqlite") as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("DELETE FROM steps WHERE step = 2")
    db.close()
    raise ConfigError("wrong")


def misbehave_by_a_place() -> int:
    Path("../outside").write_text("x", encoding="utf-8")
    raise ConfigError("wrong")


FAULTS = {
    misbehave_by_traceback: "a traceback|exit code 1",
    misbehave_by_value: "prints",
    misbehave_by_code: "exit code 1",
    misbehave_by_silence: "0 lines with an error",
    misbehave_by_device: "a device, a pipe or a link was",
    misbehave_by_spending: "something was spent",
    misbehave_by_a_place: "outside of the folder",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_judge_sees_every_fault(
    world: World, fault: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "callback", lambda **_: fault())
    found = judge(world, Case("control", ["check"], lambda folder: os.mkfifo(folder / "bad")))
    assert any(re.search(FAULTS[fault], one) for one in found), found
    (world.root / "outside").unlink(missing_ok=True)
