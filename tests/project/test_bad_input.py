"""A corpus of bad input, generated from verbs, options, keys and files: every case ends as the documents say.

Each is run in this process and checked for: no traceback, a documented exit code, one line that says why, no private
value, nothing spent, nothing outside of the folder, no device touched, and an end.
"""

from __future__ import annotations

import warnings

import pytest
from bad_input import Case, World, damaged_data, damaged_state, judge, keys, numbers, paths

from dpstream.cli import main

#: Cases that other work mends, by a part of their name: why.
PENDING: dict[str, str] = {}
LEAST = 600


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("bad"))


def cases_of(kind: str, world: World) -> list[Case]:
    makers = {"paths": paths, "numbers": numbers, "keys": keys, "data": damaged_data}
    return damaged_state(world) if kind == "state" else makers[kind]()


KINDS = ("paths", "numbers", "keys", "data", "state")


@pytest.mark.parametrize("kind", KINDS)
def test_every_case_ends_as_documented(kind: str, world: World) -> None:
    assert main.name
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases_of(kind, world):
            if any(part in case.name for part in PENDING):
                continue
            wrong += [f"{case.name}: {found}" for found in judge(world, case)]
    assert wrong == []


def test_the_corpus_is_large_enough(world: World) -> None:
    counts = {kind: len(cases_of(kind, world)) for kind in KINDS}
    assert sum(counts.values()) >= LEAST and min(counts.values()) >= 100, counts
    names = [case.name for kind in KINDS for case in cases_of(kind, world)]
    assert len(set(names)) == len(names)
