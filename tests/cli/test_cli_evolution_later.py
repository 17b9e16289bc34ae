"""Successor streams beside a predecessor that goes on, and what becomes of a stream under another plan."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import test_cli_evolution
from cli_stream import certain, dpstream, invoke, make, released, status, write_step
from scipy.stats import beta
from small_configs import PUBLIC, ZIP, rewrite, write_config, write_rows
from test_cli_evolution import Ran
from test_cli_health import healthy

import dpstream as dp
from dpstream.core.privacy.convert import best_guess
from dpstream.io.sinks import read_manifest
from dpstream.io.sinks import read_table as read

ran = test_cli_evolution.ran  # the fixture


def test_a_predecessor_that_goes_on_stops_its_successor(ran: Ran, tmp_path: Path) -> None:
    """Its end is not pinned, and a forgotten schedule may go on: one event would cost both budgets."""
    old, new = ran(tmp_path)
    dpstream("run", new, "--until", 1)
    catalogue = (tmp_path / "releases" / "catalogue.json").read_bytes()
    dpstream("withdraw", old, "--step", 2, "--reason", "a mistake")
    dpstream("run", new, "--dry-run")  # what it began with was published
    write_rows(tmp_path, "3.csv", "step,op,zip,paid,kind", ["3,insert,02140,true,x"])
    old.write_text(old.read_text(encoding="utf-8").replace("end = 2", "end = 3"), encoding="utf-8")
    dpstream("run", old)
    for more in ((), ("--dry-run",), ("--no-recheck",)):
        assert "step 3, after the border" in dpstream("run", new, *more, code=2).stderr
    dpstream("withdraw", new, "--step", 1, "--reason", "its records are in both")
    (tmp_path / "releases" / "catalogue.json").write_bytes(catalogue[:-20])
    dpstream("run", new)
    assert status(new)["steps"] == 2, "a damaged folder shows nothing"


@pytest.mark.filterwarnings("default")
def test_an_invalid_file_of_the_predecessor_stops_only_who_has_not_begun(ran: Ran, tmp_path: Path) -> None:
    old, new = ran(tmp_path)
    new.write_text(new.read_text().replace("[base]", f'[base]\nconfig = "{old.name}"'), encoding="utf-8")
    text = old.read_text(encoding="utf-8")
    old.write_text(text + "\n[later]\nkey = 1\n", encoding="utf-8")
    assert "unknown key 'later'" in dpstream("run", new, "--until", 1, code=2).stderr
    old.write_text(text, encoding="utf-8")
    dpstream("run", new, "--until", 1)
    old.write_text(text + "\n[later]\nkey = 1\n", encoding="utf-8")
    result = dpstream("run", new)
    assert re.search(r"warning: .* cannot be read: .*unknown key 'later'", result.stderr)
    assert status(new)["steps"] == 2


CHAIN = """
[base]
releases = "../{old}/releases"
config = "../{old}/dpstream.toml"
"""


def chained(folder: Path, name: str, start: int, epsilon: str, old: str | None = None, **more: str) -> Path:
    """A stream of two steps from ``start`` on, after the stream ``old``."""
    config = make(folder / name, 2, mechanism='name = "baseline"', epsilon=epsilon, start=start)
    text = config.read_text().replace('name = "test"', f'name = "{name}"')
    text = text.replace("end = 2", f"end = {start + 1}").replace("data/*.csv", "../data/*.csv")
    config.write_text(text + ("" if old is None else CHAIN.format(old=old)))
    for step in (start, start + 1):
        write_step(folder, step, ["a,true,x"] * 20)
    return config


def told(config: Path) -> tuple[float, float, dict[int, Fraction]]:
    """What a statement says: the likelier factor, guesses of 100, and epsilon or rho of somebody with k records."""
    text = " ".join(dpstream("statement", config).stdout.split())
    (share,) = set(re.findall(r"best method, the guess is right in at most ([0-9.]+) of 100", text))
    factor = re.findall(r"is at most ([0-9.e+]+) times likelier", text)
    rows = {
        int(k or 1): Fraction(amount.rstrip("."))
        for k, amount in re.findall(
            r"One (?:record|person with (\d+) records): (?:epsilon|rho) = ([0-9./]+)", text
        )
    }
    return float(factor[0]), float(share), rows


@pytest.mark.parametrize(("before", "after"), [("2", "1/10"), ("1/10", "2")])
def test_the_statement_counts_records_on_either_side(tmp_path: Path, before: str, after: str) -> None:
    """Against the largest loss over all ways to spread k records over both streams, computed by hand."""
    first, second = Fraction(before), Fraction(after)
    dpstream("run", chained(tmp_path, "one", 1, before))
    config = chained(tmp_path, "two", 3, after, "one")
    dpstream("run", config)
    factor, share, rows = told(config)
    assert set(rows) == {1, 2, 10}
    for k, amount in rows.items():
        assert amount == max(first * i + second * (k - i) for i in range(k + 1))
    worst = float(max(first, second))
    assert share / 100 >= best_guess(worst, 0.0) > 0.88
    assert factor >= 7.38
    manifest = read_manifest(tmp_path / "two" / "releases", 2)
    assert Fraction(manifest["guarantee"]["epsilon"]) == max(first, second)
    assert f"with epsilon = {2 if worst == 2 else worst}" in manifest["guarantee"]["words"]
    registry = json.loads(dpstream("statement", config, "--format", "registry").stdout)
    assert Fraction(registry["loss"]["epsilon"]) == max(first, second)
    assert Fraction(registry["accounting"]["planned"]) == second
    # A third one counts what each of them has, once.
    third = chained(tmp_path, "three", 5, "1", "two")
    base = json.loads(dpstream("plan", third, "--json").stdout)["base"]
    assert [Fraction(one["budget"]["epsilon"]) for one in base["composition"]["periods"]] == [first, second]


def test_what_an_old_record_loses_to_the_new_tables_is_told(tmp_path: Path) -> None:
    """Somebody guesses from the successor's table alone whether a record was in the first stream: what so many right
    guesses prove (at 99 %) refutes a smaller told bound. The control: the successor's own budget is refuted."""
    rows, right, tries = ["a,true,x"] * 60 + ["b,true,y"] * 60 + ["c,false,x"] * 60, 0, 32
    for number in range(tries):
        folder, there = tmp_path / str(number), number % 2 == 0
        folder.mkdir()
        first = chained(folder, "one", 1, "60")
        config = chained(folder, "two", 3, "1/10", "one")
        for step in range(1, 5):
            write_step(folder, step, [*rows, *(["c,true,y"] if there and step == 1 else [])])
        for path in (first, config):
            for _ in dp.run(path):
                pass
        seen = read(folder / "two" / "releases", 1).to_pylist()
        right += there == (seen.count({"zip": "c", "paid": True, "kind": "y"}) == 1)
    proved = float(beta.ppf(0.01, right, tries - right + 1))
    assert proved > best_guess(0.1, 0.0)
    page = dpstream("statement", config).stdout
    assert "The loss is so large (epsilon = 60) that it protects hardly anything" in page
    assert "the best method" not in page


def health(config: Path) -> str:
    """Its line, whatever the exit code."""
    return invoke("status", config, "--health").output


def go_on(folder: Path, name: str) -> None:
    """Let a stream of two steps take a third one."""
    config = folder / name / "dpstream.toml"
    config.write_text(config.read_text().replace("end = 2", "end = 3"))
    dpstream("run", config)


def draw_again(folder: Path, name: str) -> None:
    """Take the last step of a stream again, from a copy of its state before it."""
    shutil.rmtree(folder / name)
    shutil.copytree(folder / "backup", folder / name)
    dpstream("run", folder / name / "dpstream.toml")


@pytest.mark.parametrize(("broken", "sums"), [(go_on, ("2", "3")), (draw_again, ("3", "4"))])
def test_a_broken_border_is_told_by_everybody(tmp_path: Path, broken: Any, sums: tuple[str, str]) -> None:
    """Of three streams the first goes on over the days of the others, or takes a step again: one record may be in all
    of them. The control is the same chain before."""
    one, two = chained(tmp_path, "one", 1, "1"), chained(tmp_path, "two", 3, "1", "one")
    dpstream("run", one, "--until", 1)
    shutil.copytree(tmp_path / "one", tmp_path / "backup")
    dpstream("run", one)
    dpstream("run", two)
    three = chained(tmp_path, "three", 5, "1", "two")
    three.write_text(three.read_text().replace("[output]", "[output]\napprove = true"))
    dpstream("run", three, "--until", 1)
    for config in (two, three):
        assert "no-guarantee" not in health(config)
        dpstream("ledger", "verify", config)
        assert told(config)[2][1] == 1
    broken(tmp_path, "one")
    for config, both in zip((two, three), sums, strict=True):
        dpstream("run", config, code=2)
        page = " ".join(dpstream("statement", config).stdout.split())
        assert "THE PUBLISHED GUARANTEE DOES NOT HOLD" in page
        assert told(config)[2] == {1: int(both), 2: 2 * int(both), 10: 10 * int(both)}
        facts = json.loads(dpstream("plan", config, "--json").stdout)
        assert facts["base"]["composition"]["together"]["epsilon"] == both
        assert "DOES NOT HOLD" in facts["guarantee"]
        assert "no-guarantee: the stream 'one'" in health(config)
        assert "does not hold: the stream 'one'" in dpstream("status", config).stdout
        assert "the stream 'one'" in dpstream("ledger", "verify", config, code=4).stderr
    assert "the stream 'one'" in dpstream("approve", three, "--all", code=2).stderr
    dpstream("withdraw", three, "--step", 1, "--reason", "its records may be in several streams")
    # Whoever begins now with the second one's table is not promised what does not hold.
    last = chained(tmp_path, "last", 5, "1", "two")
    if broken is go_on:
        base = json.loads(dpstream("plan", last, "--json").stdout)["base"]["composition"]
        assert (base["rule"], base["together"]["epsilon"]) == ("sum", "3")
        dpstream("run", last)
    else:
        assert "cannot be added" in dpstream("plan", last, code=2).stderr


# Another plan


@pytest.mark.filterwarnings("default")
def test_a_first_run_that_failed_pins_nothing(tmp_path: Path) -> None:
    config = certain(tmp_path, 2)
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
    config = certain(tmp_path, 4)
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
