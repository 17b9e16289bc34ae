"""The command from simulation to sample: resumable, repeatable, and refusing what contradicts a release."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_stream import ROWS, dpstream, make, released, status, write_step


def test_from_simulation_to_sample(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    dpstream("simulate", "evictions", "--steps", 5, "--rows-per-step", 30, "--out", folder)
    config = folder / "dpstream.toml"
    assert "5 steps read: all rows fit the schema" in dpstream("check", config).stdout
    facts = json.loads(dpstream("plan", config, "--json", "--compare-epsilon", "0.5,1,2").stdout)
    assert facts["sum"] == "1"
    one = facts["noise"]["one_measurement"]
    assert [row["epsilon"] for row in facts["compared"]] == ["0.5", "1", "2"]
    assert facts["compared"][1]["deviation"] == one
    assert facts["compared"][0]["deviation"] == pytest.approx(2 * one, rel=0.01)
    assert status(config)["started"] is False
    dry = dpstream("run", config, "--dry-run").stdout
    assert "5 steps can be read" in dry
    assert not (folder / "state").exists()

    first = dpstream("run", config, "--until", 3)
    told = [line for line in first.stdout.splitlines() if line.endswith("released")]
    assert told == [f"step {step} (2001-W0{step}) released" for step in (1, 2, 3)]
    before = released(folder)
    second = dpstream("run", config).stdout
    assert "step 3 " not in second
    assert "2 new steps, 5 in all" in second
    after = released(folder)
    assert {name: after[name] for name in before if name.startswith("step-")} == {
        name: data for name, data in before.items() if name.startswith("step-")
    }
    store = (folder / "state/head.json").read_bytes()
    lines = [json.loads(line) for line in dpstream("run", config, "--json").stdout.splitlines()]
    assert [(line["step"], line["drawn"]) for line in lines] == [(step, False) for step in range(1, 6)]
    assert (released(folder), (folder / "state/head.json").read_bytes()) == (after, store)
    facts = status(config)
    assert (facts["steps"], facts["begun"], facts["spent"]) == (5, None, "epsilon = 1 (pure)")
    assert facts["last_period"] == "2001-01-29/2001-02-04"
    out = tmp_path / "s.csv"
    dpstream("sample", config, "--step", 5, "--out", out)
    assert out.read_bytes() == after["step-000005/table.csv"]
    assert not list(tmp_path.glob("s.csv.*")), "real entropy needs no warning"
    for seed in (3, 4):
        place = tmp_path / f"d-{seed}.csv"
        dpstream("sample", config, "--step", 2, "--rows", 7, "--seed", seed, "--out", place)
    drawn = [(tmp_path / f"d-{seed}.csv").read_bytes() for seed in (3, 4)]
    assert [data.count(b"\n") for data in drawn] == [8, 8]
    assert drawn[0] != drawn[1]


def change_a_row(folder: Path) -> None:
    write_step(folder, 2, [*ROWS, *ROWS[:4], "c,false,x"])


def lose_a_file(folder: Path) -> None:
    (folder / "data/002.csv").unlink()


@pytest.mark.parametrize("change", [change_a_row, lose_a_file])
def test_changed_data_of_a_released_step_are_refused(tmp_path: Path, change: Callable[[Path], None]) -> None:
    config = make(tmp_path, 3)
    dpstream("run", config, "--until", 2)
    before = released(tmp_path)
    change(tmp_path)
    error = dpstream("run", config, code=2).stderr
    assert "step 2 (step-2): the id belongs to other records, of step 2" in error
    assert released(tmp_path) == before
    assert status(config)["steps"] == 2
    assert "1 new step, 3 in all" in dpstream("run", config, "--no-recheck").stdout


def test_a_changed_schema_or_budget_is_refused(tmp_path: Path) -> None:
    config = make(tmp_path, 3, mechanism='name = "dpstabs"\nk = 2')
    dpstream("run", config, "--until", 1)
    text = config.read_text()
    for old, new, word in (
        ('values = ["x", "y"]', 'values = ["x", "y", "z"]', "schema"),
        ('epsilon = "1"', 'epsilon = "2"', "budget.epsilon"),
        ("k = 2", "k = 1", "options.k"),
    ):
        config.write_text(text.replace(old, new))
        error = dpstream("run", config, code=2).stderr
        assert "belongs to another plan" in error
        assert word in error
        assert status(config)["same_plan"] is False
        assert "it will not run" in " ".join(dpstream("status", config).stdout.split())
    config.write_text(text)
    facts = status(config)
    assert (facts["steps"], facts["same_plan"]) == (1, True)


def test_a_stream_of_another_mechanism_goes_on_once_it_is_named(tmp_path: Path) -> None:
    """A file that names another mechanism than the stream began with is refused with what to write."""
    config = make(tmp_path, 3, mechanism='name = "dpstabs"')
    account = tmp_path / "account.jsonl"
    dpstream("ledger", "account", "create", account, "--limit", "epsilon=2")
    config.write_text(config.read_text().replace("[output]", 'account = "account.jsonl"\n[output]'))
    dpstream("run", config, "--until", 2)
    text, before = config.read_text(), released(tmp_path)
    charged = dpstream("ledger", "account", "show", account, "--json").stdout
    ledger = dpstream("ledger", "show", config, "--json").stdout

    config.write_text(text.replace('name = "dpstabs"\n', ""))
    remedy = 'name = "dpstabs" under [mechanism]'
    sample = ("sample", "--step", 1, "--out", tmp_path / "s.csv")
    for verb, *more in (("run",), ("run", "--dry-run"), sample, ("evaluate",), ("report",), ("statement",)):
        assert remedy in dpstream(verb, config, *more, code=2).stderr
    assert remedy in status(config)["remedy"]
    assert (status(config)["steps"], released(tmp_path)) == (2, before)
    assert dpstream("ledger", "account", "show", account, "--json").stdout == charged

    config.write_text(text)
    assert dpstream("ledger", "show", config, "--json").stdout == ledger
    assert "1 new step, 3 in all" in dpstream("run", config).stdout


def test_a_test_seed_marks_everything(tmp_path: Path) -> None:
    config = make(tmp_path, 2)
    run = dpstream("run", config, "--test-seed", 5, "--json")
    assert "NO GUARANTEE" in run.stderr
    assert all(json.loads(line)["made_with_test_seed"] for line in run.stdout.splitlines())
    assert status(config)["made_with_test_seed"]
    assert "NO GUARANTEE" in dpstream("status", config).stdout
    for ending in ("parquet", "csv"):
        done = dpstream("sample", config, "--step", 1, "--out", tmp_path / f"s.{ending}")
        assert "NO GUARANTEE" in done.stderr
    assert pq.read_schema(tmp_path / "s.parquet").metadata[b"made_with_test_seed"] == b"true"
    assert "NO GUARANTEE" in (tmp_path / "s.csv.made_with_test_seed").read_text()
    again = make(tmp_path / "again", 2)
    dpstream("run", again, "--test-seed", 5)
    tables = [released(folder)["step-000002/table.csv"] for folder in (tmp_path, tmp_path / "again")]
    assert tables[0] == tables[1]


def test_a_run_may_be_limited_by_steps(tmp_path: Path) -> None:
    """A public number, beside --until: a limit of time would end a run by what it computes."""
    config = make(tmp_path, 6)
    assert "2 new steps, 2 in all" in dpstream("run", config, "--steps", 2).stdout
    assert "2 new steps, 4 in all" in dpstream("run", config, "--steps", 2, "--no-recheck").stdout
    assert "1 new step, 5 in all" in dpstream("run", config, "--steps", 3, "--until", 5).stdout
    assert "0 new steps, 5 in all" in dpstream("run", config, "--steps", 3, "--until", 5).stdout
    dpstream("run", config, "--steps", 1, "--dry-run", code=2)
    dpstream("run", config, "--steps", 0, code=2)
    other = make(tmp_path / "watched", 6, end='"data"')
    assert "2 new steps, 2 in all" in dpstream("run", other, "--watch", "--steps", 2).stdout
