"""The unit ``user`` on the command line: what is printed, and what is not."""

from __future__ import annotations

import json
from pathlib import Path

from cli_stream import dpstream, make
from click.testing import CliRunner

from dpstream.cli import main

MARKED = "marked-person-77431"


def with_users(folder: Path, *, bound: int = 2, who: tuple[str, ...] = (MARKED, "b", "c")) -> Path:
    config = make(folder, 2, user_column='"person"')
    config.write_text(
        config.read_text().replace('name = "test"', f'name = "test"\nunit = "user"\nmax_events = {bound}')
    )
    for step in (1, 2):
        rows = [f"{person},a,true,x" for person in who]
        body = "".join(f"{step},{row}\n" for row in rows)
        (folder / "data" / f"{step:03d}.csv").write_text(f"step,person,zip,paid,kind\n{body}")
    return config


def test_plan_tells_amounts_per_event_and_per_user(tmp_path: Path) -> None:
    config = with_users(tmp_path)
    printed = " ".join(dpstream("plan", config).stdout.split())
    assert "Each event has epsilon = 0.5 (pure)" in printed
    assert '"times" holds a factor of 2: 2 events of one user' in printed
    assert json.loads(dpstream("plan", config, "--json").stdout)["contribution"]["max_events"] == 2


def test_a_run_never_shows_an_id(tmp_path: Path) -> None:
    config = with_users(tmp_path)
    shown = [dpstream(*words).output for words in (("check", config), ("run", config), ("status", config))]
    files = [
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "data"
    ]
    assert all(MARKED not in text for text in shown)
    assert all(MARKED.encode() not in data for data in files)
    assert "everything that one user id did" in shown[2]


def test_every_sentence_on_the_number_of_records_is_about_the_admitted_ones(tmp_path: Path) -> None:
    config = with_users(tmp_path, bound=1, who=tuple(f"p{i}" for i in range(300)))
    config.write_text(config.read_text() + "[expect]\nrecords_per_step = 300\n")
    verdicts = json.loads(dpstream("plan", config, "--json").stdout)["expected_errors"]["verdicts"]
    assert "of the number of admitted records" in verdicts[0]["words"]
    dpstream("run", config)
    accuracy = json.loads((tmp_path / "releases/step-000002/manifest.json").read_text())["accuracy"]
    assert "The number of admitted records is noisy" in accuracy["words"]
    assert "unbiased estimates of the admitted records" in accuracy["words"]
    assert "Admitted are at most 1 records of each user; the others are not counted." in accuracy["words"]
    totals = next(one for one in accuracy["verdicts"] if one["use"] == "totals")
    assert "the number of admitted records" in totals["words"]
    assert totals["words"] in " ".join(dpstream("status", config).stdout.split())
    dpstream("report", config, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert " admitted records, give or take " in page
    measured = dpstream("measured", tmp_path / "releases").stdout
    assert "number of admitted records" in measured
    asked = dpstream("measured", tmp_path / "releases", "--question", "paid").stdout
    assert asked.count("admitted records") >= 2


def test_check_finds_records_of_nobody(tmp_path: Path) -> None:
    config = with_users(tmp_path, who=(MARKED, ""))
    result = CliRunner().invoke(main, ["check", str(config)])
    assert result.exit_code == 2
    printed = result.output
    assert "column 'person' cannot be used as user ids: there is a record without a user id" in printed
    assert MARKED not in printed
    stopped = dpstream("run", config, code=2)
    assert "without a user id" in stopped.stderr
    assert MARKED not in stopped.output
