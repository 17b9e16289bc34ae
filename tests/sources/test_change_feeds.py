"""Feeds of changes: the words of inserts, deletes and of the two halves of an update."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpstream.core.errors import ConfigError, DataError
from dpstream.io.sources import FileSource, SourceOptions

FEED = [
    (1, "insert", "a"),
    (1, "insert", "b"),
    (2, "update-before", "a"),
    (2, "update-after", "c"),
    (3, "delete", "b"),
    (4, "update-before", "c"),
]
BASE: dict[str, Any] = {"path": "*.csv", "time_column": "when", "end": "data", "op_column": "op"}


def steps(folder: Path, **changes: Any) -> list[tuple[list[str], list[str]]]:
    source = FileSource(SourceOptions.parse({**BASE, **changes}), base=folder)
    return [(s.inserts["zip"].to_pylist(), s.deletes["zip"].to_pylist()) for s in source.steps()]


def write(folder: Path, words: dict[str, str]) -> None:
    lines = [f"{when},{words.get(op, op)},{value}" for when, op, value in FEED]
    (folder / "feed.csv").write_text("\n".join(["when,op,zip", *lines]) + "\n", encoding="utf-8")


def test_an_update_is_a_delete_and_an_insert(tmp_path: Path) -> None:
    """Each half counts by itself: the last update's second half is missing, and no other record notices."""
    expected = [(["a", "b"], []), (["c"], ["a"]), ([], ["b"]), ([], ["c"])]
    write(tmp_path, {})
    assert steps(tmp_path) == expected
    own = {"insert": "r", "update-before": "ub", "update-after": "ua", "delete": "d"}
    write(tmp_path, own)
    assert steps(tmp_path, op_values={"insert": ["r", "ua"], "delete": ["d", "ub"]}) == expected
    with pytest.raises(DataError, match=r"feed\.csv, column 'op': unknown operation \(allowed: insert, upd"):
        steps(tmp_path)
    with pytest.raises(DataError, match=r"unknown operation \(allowed: r, d, ub\)"):
        steps(tmp_path, op_values={"insert": "r", "delete": ["d", "ub"]})


def test_a_word_that_does_not_say_what_the_old_row_was(tmp_path: Path) -> None:
    write(tmp_path, {"update-after": "update"})
    with pytest.raises(DataError, match=r"an update lacks the old row.*update-before"):
        steps(tmp_path)
    for table, message in (
        ({"insert": ["c", "update"], "delete": "d"}, "a row with the word 'update' lacks the old row"),
        ({"insert": ["c", "x"], "delete": ["x"]}, "the word 'x' stands in two lists"),
        ({"insert": ["c"]}, "two lists of words: insert, delete"),
        ({"insert": ["c"], "delete": []}, "not a text or a list of texts"),
        ({"insert": ["c"], "delete": 7}, "not a text or a list of texts"),
        ("c", "two lists of words: insert, delete"),
    ):
        with pytest.raises(ConfigError, match=message):
            steps(tmp_path, op_values=table)


def test_the_words_are_pinned_where_they_differ_from_the_usual_ones() -> None:
    """A stream that was started before there were words has no such key, and still opens."""
    plain = SourceOptions.parse(BASE).pinned()
    assert "op_values" not in plain
    usual = {"delete": ["update-before", "delete"], "insert": ["update-after", "insert"]}
    assert SourceOptions.parse({**BASE, "op_values": usual}).pinned() == plain
    words = {"insert": ["ua", "r"], "delete": "d"}
    own = json.loads(json.dumps(SourceOptions.parse({**BASE, "op_values": words}).pinned()))
    assert own == {**plain, "op_values": {"insert": ["r", "ua"], "delete": ["d"]}}
