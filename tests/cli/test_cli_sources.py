"""Pipes, users, late files and broken records on the command line: one sentence, and nothing is spent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_stream import ROWS, dpstream, make, released, status
from small_configs import PAID, ZIP, rewrite, write_rows

import dpstream as dp
from dpstream.cli.shared import ShownStream
from dpstream.core.errors import ConfigError
from dpstream.io.sinks import read_manifest


def lines(*steps: int, rows: list[str] = ROWS) -> str:
    records = [(step, *row.split(",")) for step in steps for row in rows]
    keys = ("step", "zip", "paid", "kind")
    return "".join(json.dumps(dict(zip(keys, record, strict=True))) + "\n" for record in records)


def feed(config: Path, text: str, *, code: int = 0) -> str:
    done = dpstream("run", config, code=code, input=text)
    return done.stderr if code else done.stdout


# Users


MARKED = "marked-person-77431"


def with_users(folder: Path, *, bound: int = 2, who: tuple[str, ...] = (MARKED, "b", "c")) -> Path:
    config = make(folder, 2, user_column='"person"')
    rewrite(config, 'name = "test"', f'name = "test"\nunit = "user"\nmax_events = {bound}')
    for step in (1, 2):
        rows = [f"{step},{person},a,true,x" for person in who]
        write_rows(folder, f"{step:03d}.csv", "step,person,zip,paid,kind", rows)
    return config


def test_every_sentence_on_the_number_of_records_is_about_the_admitted_ones(tmp_path: Path) -> None:
    config = with_users(tmp_path, bound=1, who=tuple(f"p{i}" for i in range(300)))
    dpstream("run", config)
    accuracy = read_manifest(tmp_path / "releases", 2)["accuracy"]
    assert "The number of admitted records is noisy" in accuracy["words"]
    assert "at most 1 event of a user; no count or error holds the others" in accuracy["words"]
    assert "the number of admitted records" in status(config)["verdicts"][0]["words"]
    dpstream("report", config, "--out", tmp_path / "report.html")
    assert " admitted records, give or take " in (tmp_path / "report.html").read_text()
    told = dpstream("measured", tmp_path / "releases").stdout
    assert "number of admitted records" in told
    assert "of all admitted records" in (tmp_path / "releases/README.txt").read_text()


def test_every_page_says_how_many_users_had_more_than_the_bound(tmp_path: Path) -> None:
    """All of 4,000 come twice: with an error of 400, no page can miss them."""
    config = with_users(tmp_path, bound=1, who=tuple(f"p{i}" for i in range(4000)))
    assert "users with more than 1 event: ± " in dpstream("plan", config, "--quick").stdout
    dpstream("run", config)
    dpstream("report", config, "--out", tmp_path / "report.html")
    pages = [dpstream("status", config).stdout, dpstream("measured", tmp_path / "releases").stdout]
    pages += [dpstream("statement", config).stdout, (tmp_path / "report.html").read_text()]
    for page in pages:
        said = " ".join(page.split())
        users = re.search(r"About ([0-9,]+) ± [0-9]+ users \(95 %\) had more than 1 event up to ", said)
        assert users, said
        assert abs(int(users[1].replace(",", "")) - 4000) < 2000
        assert "This counts users, not lost records." in said


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


# Late files


KEYS = 'key_column = "id"\nshape = "snapshots"\n'


def stream(folder: Path, unit: str) -> Path:
    config = make(folder, 0, time_column=None, end=None, every='"files"')
    if unit == "record":
        text = config.read_text().replace("[source]\n", f'unit = "record"\n[source]\n{KEYS}')
        config.write_text(f"{text}[expect]\nsize = 40\nrecords_per_step = 10\n")
    return config


def write(folder: Path, name: str, unit: str) -> Path:
    rows = "".join(f"{'' if unit == 'event' else f'{key},'}a,true,x\n" for key in range(40))
    path = folder / "data" / name
    path.write_text(f"{'' if unit == 'event' else 'id,'}zip,paid,kind\n{rows}")
    return path


@pytest.mark.parametrize("unit", ["event", "record"])
def test_a_late_file_is_refused_and_nothing_is_spent(tmp_path: Path, unit: str) -> None:
    config = stream(tmp_path, unit)
    for name in ("2026-02.csv", "2026-03.csv"):
        write(tmp_path, name, unit)
    assert "2 new steps, 2 in all" in dpstream("run", config).stdout
    before, known = released(tmp_path), status(config)
    late = write(tmp_path, "2026-01.csv", unit)
    for more in ((), ("--no-recheck",), ("--until", 9)):
        error = dpstream("run", config, *more, code=2).stderr
        assert "data/2026-01.csv: the file sorts before released files" in error
        assert "a name that sorts last" in error
    # What a run refuses, a look before it refuses, too.
    for verb in (("check", config), ("run", config, "--dry-run")):
        assert "data/2026-01.csv: the file sorts before released files" in dpstream(*verb, code=2).stderr
    assert (released(tmp_path), status(config)) == (before, known)
    late.rename(late.with_name("2026-04.csv"))
    out = dpstream("run", config).stdout
    assert "step 3 (data/2026-04.csv) released" in out
    assert "in all" in out


# Records that cannot be taken apart


ODD = ZIP.replace('"b", "c"]', '"d"]\nother = "o"\nmissing = "m"') + PAID + 'other = "o"\nmissing = "m"\n'


def made(folder: Path, broken: bytes, ignore: str = '["note"]') -> Path:
    config = make(folder, 2, path='"data/d.*"', columns=f"[schema]\nignore = {ignore}\n{ODD}")
    (folder / "data" / "d.csv").write_bytes(b"step,zip,paid,note\n1,a,yes,x\n" + broken + b"\n2,a,no,x\n")
    return config


def test_a_broken_record_stops_the_run_and_the_owner_is_told_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (broken, why) in enumerate(
        (
            (b"SECRET,SECRET", "a line has 2 columns, the first line 4"),
            (b'1,"SECRET', "a line ends inside a quote"),
            (b"1,a,yes,SECRET,1", "a line has 5 columns, the first line 4"),
        )
    ):
        path = made(tmp_path / f"e{number}", broken)
        for verb in ("run", "check"):
            output = dpstream(verb, path, code=2).output
            assert "SECRET" not in output
            assert "line 3" not in output
        assert not (tmp_path / f"e{number}" / "releases" / "catalogue.json").exists()
        with monkeypatch.context() as patch:
            patch.setattr(ShownStream, "isatty", lambda self: True, raising=False)
            told = " ".join(dpstream("check", path, "--show-values", code=2).output.split())
        assert "d.csv, line 3" in told
        assert why in told
        assert "SECRET" not in told


def test_check_names_a_column_that_no_record_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = rewrite(made(tmp_path, b"", '["note", "paid"]'), "columns.paid", "columns.payed")
    (tmp_path / "data" / "d.csv").unlink()
    lines = '{"step": 1, "zip": 1, "paid": true}\n{"step": 2}\n'
    (tmp_path / "data" / "d.ndjson").write_text(lines, encoding="utf-8")
    assert "payed" not in dpstream("check", path).stdout, "private: for a terminal"
    monkeypatch.setattr(ShownStream, "isatty", lambda self: True, raising=False)
    shown = dpstream("check", path).stdout
    assert "column 'payed' holds nothing in any record" in shown
    assert "'zip'" not in shown
