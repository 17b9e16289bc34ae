"""The unit ``user`` on the command line: what is printed, and what is not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_stream import dpstream, make, status
from small_configs import rewrite, write_rows

import dpstream as dp
from dpstream.core.errors import ConfigError
from dpstream.io.sinks import read_manifest

MARKED = "marked-person-77431"


def with_users(folder: Path, *, bound: int = 2, who: tuple[str, ...] = (MARKED, "b", "c")) -> Path:
    config = make(folder, 2, user_column='"person"')
    rewrite(config, 'name = "test"', f'name = "test"\nunit = "user"\nmax_events = {bound}')
    for step in (1, 2):
        rows = [f"{step},{person},a,true,x" for person in who]
        write_rows(folder, f"{step:03d}.csv", "step,person,zip,paid,kind", rows)
    return config


def test_a_run_never_shows_an_id(tmp_path: Path) -> None:
    config = with_users(tmp_path)
    shown = [dpstream(*words).output for words in (("check", config), ("run", config), ("status", config))]
    files = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.parent.name != "data"]
    assert all(MARKED not in text for text in shown)
    assert all(MARKED.encode() not in data for data in files)


def test_every_sentence_on_the_number_of_records_is_about_the_admitted_ones(tmp_path: Path) -> None:
    config = with_users(tmp_path, bound=1, who=tuple(f"p{i}" for i in range(300)))
    dpstream("run", config)
    accuracy = read_manifest(tmp_path / "releases", 2)["accuracy"]
    assert "The number of admitted records is noisy" in accuracy["words"]
    assert "at most 1 event of a user; no count or error holds the others" in accuracy["words"]
    assert "the number of admitted records" in status(config)["verdicts"][0]["words"]
    dpstream("report", config, "--out", tmp_path / "report.html")
    assert " admitted records, give or take " in (tmp_path / "report.html").read_text()
    assert "number of admitted records" in dpstream("measured", tmp_path / "releases").stdout


def test_no_error_is_claimed_of_the_whole_table_where_the_bound_leaves_out_an_eighth(tmp_path: Path) -> None:
    """88 persons come once a step and 7 four times: a bound of 4 leaves out 28 of 232 records, 12 %. One of 8 leaves
    out none, and says the same of itself: whether anybody reaches a bound is private."""
    who = (*(f"p{i}" for i in range(88)), *(f"h{i}" for i in range(7) for _ in range(4)))
    shown = {bound: said_of_errors(tmp_path / str(bound), bound, who) for bound in (4, 8)}
    for bound, texts in shown.items():
        assert [text for text in texts if "admitted records" not in text] == []
        sentence = (
            f"Errors are about admitted records, at most {bound} events of a user; no count or error holds "
        )
        assert sum(sentence in text for text in texts) >= 3
    control = said_of_errors(tmp_path / "control", None, who)
    assert control
    assert not any("admitted" in text for text in control)


def said_of_errors(folder: Path, bound: int | None, who: tuple[str, ...]) -> list[str]:
    """What plan, status, manifest and report say of errors, a sentence each; without a bound the unit is a record."""
    config = with_users(folder, bound=bound or 1, who=who)
    if bound is None:
        rewrite(config, 'unit = "user"\nmax_events = 1', 'unit = "event"')
        rewrite(config, 'user_column = "person"\n', "")
        rewrite(config, "[schema.columns.zip]", '[schema]\nignore = ["person"]\n\n[schema.columns.zip]')
    dpstream("run", config)
    dpstream("report", config, "--out", folder / "report.html")
    facts = status(config)
    accuracy = read_manifest(folder / "releases", 2)["accuracy"]
    plan = json.loads(dpstream("plan", config, "--quick", "--json").stdout)
    verdicts = [*facts["verdicts"], *accuracy["verdicts"]]
    texts = [*(one["words"] for one in verdicts if one["share"]), accuracy["words"]]
    texts += [told["errors_are_about"] for told in (facts, plan) if told["errors_are_about"]]
    page = re.sub(r"<[^>]+>", "\n", (folder / "report.html").read_text())
    return [
        *texts,
        *(line for line in page.splitlines() if re.search(r"give or take|standard error is \d", line)),
    ]


def test_flows_under_a_bound_are_about_admitted_records_and_nothing_is_called_higher(tmp_path: Path) -> None:
    """Sixty persons come twice in each of two steps. The first two events of each are admitted: all of step 1."""
    config = with_users(tmp_path, bound=2, who=tuple(f"p{i}" for i in range(60) for _ in range(2)))
    rewrite(config, 'epsilon = "1"', 'epsilon = "100"')
    dpstream("run", config)
    release = dp.read(tmp_path / "releases")
    change = release.change(earlier=(1, 1), later=(2, 2))
    assert float(change.difference.values) < -90
    assert change.to_table()["seen"].to_pylist() == ["not compared"]
    with pytest.raises(ConfigError, match="later periods hold fewer admitted records"):
        change.direction()
    assert "admitted records" in release.flow((), 1, 1).note
    words = "the first 2 events of a user count"
    for asked in (("--every", "1 step"), ("--from", "2", "--to", "2", "--change", "1/1")):
        assert words in " ".join(dpstream("measured", tmp_path / "releases", *asked).stdout.split())
