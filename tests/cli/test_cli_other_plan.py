"""A configuration that changes: before anything was spent it may; later errors name the way to a successor."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from cli_stream import certain as make
from cli_stream import dpstream, released, status, write_step
from small_configs import PUBLIC, ZIP, rewrite, write_config, write_rows
from test_cli_health import healthy

from dpstream.io.sinks import read_table as read


@pytest.mark.filterwarnings("default")
def test_a_first_run_that_failed_pins_nothing(tmp_path: Path) -> None:
    config = make(tmp_path, 2)
    write_step(tmp_path, 1, ["d,true,x"] * 10)
    told = dpstream("run", config, code=2).stderr
    assert "outside its domain" in told
    assert "init --after" not in told, "there is no release to go on from"
    text = rewrite(config, '"a", "b", "c"', '"a", "b", "c", "d"').read_text(encoding="utf-8")
    rewrite(config, 'epsilon = "100"', 'epsilon = "200"')
    assert status(config)["same_plan"]
    assert healthy(config, code=0) == "healthy"
    dpstream("run", config, "--dry-run")
    told = dpstream("run", config).stderr
    assert told.count("another plan's state without steps begins anew") == 1
    assert dpstream("run", config).stderr == ""
    config.write_text(text, encoding="utf-8")
    assert "dpstream init --after" in dpstream("run", config, code=2).stderr
    assert healthy(config) == "other-plan"


def test_a_new_category_leads_to_a_successor(tmp_path: Path) -> None:
    config = make(tmp_path, 4)
    write_step(tmp_path, 4, ["d,true,x"] * 10)
    told = dpstream("run", config, code=2).stderr
    (named,) = re.findall(r"dpstream (init --after \S+ --out) NEXT.toml", told)
    before, draft = released(tmp_path), tmp_path / "next.toml"
    dpstream(*shlex.split(named), draft)
    # The records of steps 1 to 3 are in the same files, and are left alone.
    rewrite(draft, '"a", "b", "c"', '"a", "b", "c", "d"')
    dpstream("check", draft)
    dpstream("run", draft)
    assert "d" in read(tmp_path / "test-next-releases")["zip"].unique().to_pylist()
    assert released(tmp_path) == before


@pytest.mark.filterwarnings("default")
def test_a_stream_that_is_asked_begins_anew_with_its_questions(tmp_path: Path) -> None:
    def config(epsilon: int, mechanism: str = 'name = "pmwg"\nalpha = "0.05"\nstart = 100') -> Path:
        return write_config(
            tmp_path,
            stream=PUBLIC,
            source='path = "data/*.csv"\nevery = "files"',
            columns=ZIP,
            mechanism=f"{mechanism}\nhard_questions = 20",
            budget=f"epsilon = {epsilon}",
        )

    write_rows(tmp_path, "1.csv", "zip", ["elsewhere"] * 200)
    dpstream("run", config(1), code=2)
    assert (tmp_path / "state-questions").exists()
    write_rows(tmp_path, "1.csv", "zip", ["a"] * 200)
    told = dpstream("run", config(2)).stderr
    assert told.count("begins anew") == 2, "the stream, and its questions"
    dpstream("ask", config(2), "zip = 'a'")
    assert "another plan" in dpstream("ask", config(1), "zip = 'a'", code=2).stderr


def test_without_a_predecessor_records_before_the_start_stop(tmp_path: Path) -> None:
    config = make(tmp_path, 3, start=2)
    assert "before the start" in dpstream("run", config, code=2).stderr
