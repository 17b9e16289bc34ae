"""The unit ``user`` on the command line: what is printed, and what is not."""

from __future__ import annotations

from pathlib import Path

from cli_stream import dpstream, make, status
from small_configs import rewrite, write_rows

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
    assert "Admitted are at most 1 records of each user; the others are not counted." in accuracy["words"]
    assert "the number of admitted records" in status(config)["verdicts"][0]["words"]
    dpstream("report", config, "--out", tmp_path / "report.html")
    assert " admitted records, give or take " in (tmp_path / "report.html").read_text()
    assert "number of admitted records" in dpstream("measured", tmp_path / "releases").stdout
