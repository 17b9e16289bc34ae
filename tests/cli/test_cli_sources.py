"""Streams from standard input and from a DuckDB file: released once, resumed, and refused where they differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_stream import ROWS, dpstream, make, released, status

duckdb = pytest.importorskip("duckdb")


def lines(*steps: int, rows: list[str] = ROWS) -> str:
    records = [(step, *row.split(",")) for step in steps for row in rows]
    keys = ("step", "zip", "paid", "kind")
    return "".join(json.dumps(dict(zip(keys, record, strict=True))) + "\n" for record in records)


def feed(config: Path, text: str, *, code: int = 0) -> str:
    done = dpstream("run", config, code=code, input=text)
    return done.stderr if code else done.stdout


def test_a_pipe_that_breaks_and_is_sent_again(tmp_path: Path) -> None:
    config = make(tmp_path, 0, path='"-"', end='"data"')
    out = feed(config, lines(1, 2, 3))
    assert [line.split()[1] for line in out.splitlines() if line.endswith("released")] == ["1", "2"]
    before = released(tmp_path)
    assert "the input begins after step 3" in feed(config, lines(4, 5), code=2)
    assert "other records, of step 2" in feed(config, lines(1) + lines(2, rows=ROWS[1:]) + lines(3), code=2)
    assert status(config)["steps"] == 2
    assert "1 new step, 3 in all" in feed(config, lines(2, 3, 4))
    after = released(tmp_path)
    assert {name: after[name] for name in before if name.startswith("step-")} == {
        name: data for name, data in before.items() if name.startswith("step-")
    }
