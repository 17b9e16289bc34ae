"""The command from simulation to sample: resumable, repeatable, and refusing what contradicts a release."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from dpstream import durable
from dpstream.cli import main
from dpstream.errors import LimitError, StoreError
from dpstream.streams import Stream
from dpstream.streams.store import Store

COLUMNS = """\
[schema.columns.zip]
type = "categorical"
values = ["a", "b", "c"]
[schema.columns.paid]
type = "boolean"
[schema.columns.kind]
type = "categorical"
values = ["x", "y"]
"""
ROWS = ["a,true,x", "b,false,y", "c,true,y", "a,false,x", "b,true,x"]


def dpstream(*args: object, code: int = 0) -> Result:
    """Run the command in this process and check its exit code."""
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    if code:
        lines = result.stderr.strip().splitlines()
        assert lines[-1].startswith("error: ") or "Usage:" in result.stderr
        assert "Traceback" not in result.output
    return result


def make(
    folder: Path, steps: int = 4, *, k: int = 2, columns: str = COLUMNS, more: str = "", **source: Any
) -> Path:
    """A stream by step numbers: 10 rows a step."""
    folder.mkdir(exist_ok=True)
    (folder / "data").mkdir(exist_ok=True)
    settings = {"path": '"data/*.csv"', "time_column": '"step"', "end": steps, **source}
    lines = [f"{key} = {value}" for key, value in settings.items() if value is not None]
    body = "\n".join(lines)
    config = folder / "dpstream.toml"
    config.write_text(
        f'format = 1\n[stream]\nname = "test"\n[source]\n{body}\n{columns}[mechanism]\nk = {k}\n'
        f'[budget]\nepsilon = "1"\n[output]\nformat = "csv"\n',
        encoding="utf-8",
    )
    for step in range(1, steps + 1):
        write_step(folder, step)
    return config


def write_step(folder: Path, step: int, rows: list[str] | None = None) -> None:
    body = "".join(f"{step},{row}\n" for row in (ROWS * 2 if rows is None else rows))
    (folder / "data" / f"{step:03d}.csv").write_text(f"step,zip,paid,kind\n{body}", encoding="utf-8")


def released(folder: Path) -> dict[str, bytes]:
    root = folder / "releases"
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def status(config: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(dpstream("status", config, "--json").stdout)
    return facts


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
    text = dpstream("plan", config).stdout
    assert "one record inserted or deleted at one step" in text
    assert "[mechanism] aggregate = last (default: " in text
    assert status(config)["started"] is False
    dry = dpstream("run", config, "--dry-run").stdout
    assert "5 steps can be read" in dry
    assert not (folder / "state").exists()

    first = dpstream("run", config, "--until", 3)
    assert [line for line in first.stdout.splitlines() if line.endswith("released")] == [
        "step 1 (2001-W01) released",
        "step 2 (2001-W02) released",
        "step 3 (2001-W03) released",
    ]
    before = released(folder)
    second = dpstream("run", config).stdout
    assert "step 3 " not in second
    assert "2 new steps, 5 in all" in second
    after = released(folder)
    assert {name: after[name] for name in before if name.startswith("step-")} == {
        name: data for name, data in before.items() if name.startswith("step-")
    }
    facts = status(config)
    assert (facts["steps"], facts["begun"], facts["spent"]) == (5, None, "epsilon = 1 (pure)")
    assert facts["last_period"] == "2001-01-29/2001-02-04"
    assert "5 steps released" in dpstream("status", config).stdout

    out = tmp_path / "s.csv"
    dpstream("sample", config, "--step", 5, "--out", out)
    assert out.read_bytes() == after["step-000005/table.csv"]
    assert not list(tmp_path.glob("s.csv.*")), "real entropy needs no warning"
    dpstream(
        "sample", config, "--step", 2, "--rows", 7, "--seed", 3, "--draws", 2, "--out", tmp_path / "d.csv"
    )
    drawn = [(tmp_path / f"d-{n}.csv").read_bytes() for n in (1, 2)]
    assert [data.count(b"\n") for data in drawn] == [8, 8]
    assert drawn[0] != drawn[1]
    dpstream("sample", config, "--step", 2, "--rows", 7, "--seed", 4, "--out", tmp_path / "e.csv")
    assert (tmp_path / "e.csv").read_bytes() == drawn[1]


def test_a_repeated_run_draws_nothing_new(tmp_path: Path) -> None:
    config = make(tmp_path)
    dpstream("run", config)
    before, store = released(tmp_path), (tmp_path / "state/head.json").read_bytes()
    lines = [json.loads(line) for line in dpstream("run", config, "--json").stdout.splitlines()]
    assert [(line["step"], line["drawn"]) for line in lines] == [(step, False) for step in (1, 2, 3, 4)]
    assert released(tmp_path) == before
    assert (tmp_path / "state/head.json").read_bytes() == store


def change_a_row(folder: Path) -> None:
    write_step(folder, 2, [*ROWS, *ROWS[:4], "c,false,x"])


def lose_a_file(folder: Path) -> None:
    (folder / "data/002.csv").unlink()


def add_a_row(folder: Path) -> None:
    write_step(folder, 2, [*ROWS, *ROWS, "c,false,x"])


@pytest.mark.parametrize("change", [change_a_row, lose_a_file, add_a_row])
def test_changed_data_of_a_released_step_are_refused(tmp_path: Path, change: Callable[[Path], None]) -> None:
    config = make(tmp_path, 3)
    dpstream("run", config, "--until", 2)
    before = released(tmp_path)
    change(tmp_path)
    error = dpstream("run", config, code=2).stderr
    assert "step 2 (step-2): this id was used at step 2 for other records" in error
    assert released(tmp_path) == before
    assert status(config)["steps"] == 2


def test_rows_in_another_order_are_the_same_step(tmp_path: Path) -> None:
    config = make(tmp_path, 2)
    dpstream("run", config)
    write_step(tmp_path, 2, list(reversed(ROWS * 2)))
    assert "0 new steps" in dpstream("run", config).stdout


def test_without_recheck_old_files_may_be_gone(tmp_path: Path) -> None:
    config = make(tmp_path, 3)
    dpstream("run", config, "--until", 2)
    lose_a_file(tmp_path)
    assert "1 new steps, 3 in all" in dpstream("run", config, "--no-recheck").stdout


@pytest.mark.parametrize("late", ["error", "next-step", "drop-and-count-nothing"])
def test_late_rows_follow_the_declared_rule(
    tmp_path: Path, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make(tmp_path, 3, late=f'"{late}"')
    dpstream("run", config, "--until", 2)
    (tmp_path / "data/004.csv").write_text("step,zip,paid,kind\n1,c,true,y\n", encoding="utf-8")
    real = Stream.step
    taken: list[tuple[str, int]] = []

    def rows(self: Stream, batch: Any, batch_id: str, *args: Any, **named: Any) -> Any:
        taken.append((batch_id, batch.inserts.num_rows))
        return real(self, batch, batch_id, *args, **named)

    monkeypatch.setattr(Stream, "step", rows)
    if late == "error":
        assert "step 1" in dpstream("run", config, code=2).stderr
        assert "already released" in dpstream("run", config, "--no-recheck", code=2).stderr
        assert status(config)["steps"] == 2
    else:
        assert "1 new steps, 3 in all" in dpstream("run", config).stdout
        assert taken == [("step-3", 11 if late == "next-step" else 10)]
        # A row that was moved or dropped is not taken once more.
        assert "0 new steps" in dpstream("run", config).stdout


def test_a_changed_schema_or_budget_is_refused(tmp_path: Path) -> None:
    config = make(tmp_path, 3)
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
        assert "it will not run" in dpstream("status", config).stdout
    config.write_text(text)
    facts = status(config)
    assert (facts["steps"], facts["same_plan"]) == (1, True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"step,zip,paid,kind\n3,a,true\n", "003.csv"),
        (b"step,zip,paid,kind\n3,SECRET,true,x\n", "column 'zip'"),
        (b"step,zip,paid,kind\nthree,a,true,x\n", "003.csv"),
        (b"step,zip,paid\n3,a,true\n", "lacks the column 'kind'"),
        (b"step,zip,paid,kind,name\n3,a,true,x,SECRET\n", "extra column 'name'"),
        (b"\xff\xfe\x00SECRET", "003.csv"),
    ],
)
def test_bad_files_spend_nothing(tmp_path: Path, content: bytes, words: str) -> None:
    config = make(tmp_path, 3)
    dpstream("run", config, "--until", 2)
    before = released(tmp_path)
    (tmp_path / "data/003.csv").write_bytes(content)
    error = dpstream("run", config, code=2).stderr
    assert words in error
    assert "SECRET" not in error
    assert released(tmp_path) == before
    assert status(config)["steps"] == 2
    write_step(tmp_path, 3)
    assert "1 new steps, 3 in all" in dpstream("run", config).stdout


def test_half_written_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    config = make(tmp_path, 1, path='"data/*.parquet"')
    table = pa.table({"step": [1], "zip": ["a"], "paid": [True], "kind": ["x"]})
    whole = tmp_path / "data/1.parquet"
    pq.write_table(table, whole)
    data = whole.read_bytes()
    whole.write_bytes(data[: len(data) // 2])
    assert "1.parquet" in dpstream("run", config, code=2).stderr
    assert "1.parquet" in dpstream("check", config, code=2).stderr
    whole.write_bytes(data)
    assert "1 new steps" in dpstream("run", config).stdout


@pytest.mark.parametrize("mechanism", ["dpstabs", "baseline"])
def test_empty_steps_one_column_and_a_domain_of_size_one(tmp_path: Path, mechanism: str) -> None:
    config = make(tmp_path, 3, k=1, columns='[schema.columns.zip]\ntype = "categorical"\nvalues = ["a"]\n')
    config.write_text(config.read_text().replace("[mechanism]\n", f'[mechanism]\nname = "{mechanism}"\n'))
    for step in (1, 2, 3):
        rows = "" if step == 2 else f"{step},a\n{step},a\n"
        (tmp_path / f"data/{step:03d}.csv").write_text(f"step,zip\n{rows}", encoding="utf-8")
    dpstream("run", config)
    assert status(config)["steps"] == 3
    for step in (1, 2, 3):
        table = released(tmp_path)[f"step-00000{step}/table.csv"].splitlines()
        assert set(table[1:]) <= {b'"a"'}


def test_all_steps_empty(tmp_path: Path) -> None:
    config = make(tmp_path, 2)
    for step in (1, 2):
        write_step(tmp_path, step, [])
    dpstream("run", config)
    assert status(config)["steps"] == 2


def test_public_sizes_by_rows_and_by_files(tmp_path: Path) -> None:
    config = make(tmp_path / "rows", 2, time_column=None, end=None, rows=5)
    for folder in ("rows", "files"):
        make(
            tmp_path / folder,
            2,
            time_column=None,
            end=None,
            **({"rows": 5} if folder == "rows" else {"every": '"files"'}),
        )
        path = tmp_path / folder / "dpstream.toml"
        path.write_text(
            path.read_text()
            .replace("[source]", 'total = "public"\n[source]')
            .replace("[schema.columns.zip]", '[schema]\nignore = ["step"]\n[schema.columns.zip]')
        )
    dpstream("run", config)
    assert status(config)["steps"] == 4
    manifest = json.loads(released(tmp_path / "rows")["step-000004/manifest.json"])
    assert (manifest["relation"], manifest["unit"]["name"]) == ("replace", "event-replace")
    plan = " ".join(dpstream("plan", config).stdout.split())
    assert "the numbers of inserts and of deletes at every step are public" in plan
    assert "The number of records is declared public" in plan
    dpstream("run", tmp_path / "files/dpstream.toml")
    assert status(tmp_path / "files/dpstream.toml")["steps"] == 2


def test_the_horizon_ends_the_stream(tmp_path: Path) -> None:
    config = make(tmp_path, 3)
    config.write_text(config.read_text().replace('epsilon = "1"', 'epsilon = "1"\nhorizon = 2'))
    assert "step 3" in dpstream("run", config, code=3).stderr
    facts = status(config)
    assert (facts["steps"], facts["steps_left"]) == (2, 0)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (('epsilon = "1"', "epsilon = 0"), 3, "[budget] epsilon"),
        (('epsilon = "1"', "epsilon = -1"), 3, "[budget] epsilon"),
        (('epsilon = "1"', "epsilon = nan"), 3, "[budget] epsilon"),
        (('epsilon = "1"', "epsilon = 1e9"), 3, "[budget] epsilon"),
        (('epsilon = "1"', "epsilon = [1]"), 2, "[budget] epsilon"),
        (('name = "test"', 'name = "test"\nunit = "user"'), 3, "[stream] unit"),
        (("k = 2", "k = 4"), 2, "allowed: 1 to 3"),
        (("k = 2", "kk = 2"), 2, "did you mean 'k'?"),
    ],
)
@pytest.mark.parametrize("verb", ["plan", "check", "run", "status"])
def test_wrong_configurations_reach_every_verb(
    tmp_path: Path, verb: str, change: tuple[str, str], code: int, words: str
) -> None:
    config = make(tmp_path, 1)
    config.write_text(config.read_text().replace(*change))
    assert words in dpstream(verb, config, code=code).stderr
    assert not (tmp_path / "state").exists()


def test_a_test_seed_marks_everything(tmp_path: Path) -> None:
    config = make(tmp_path, 2)
    run = dpstream("run", config, "--test-seed", 5, "--json")
    assert "no guarantee" in run.stderr
    assert all(json.loads(line)["made_with_test_seed"] for line in run.stdout.splitlines())
    assert status(config)["made_with_test_seed"]
    assert "NO GUARANTEE" in dpstream("status", config).stdout
    for ending in ("parquet", "csv"):
        done = dpstream("sample", config, "--step", 1, "--out", tmp_path / f"s.{ending}")
        assert "no guarantee" in done.stderr
    assert pq.read_schema(tmp_path / "s.parquet").metadata[b"made_with_test_seed"] == b"true"
    assert "NO GUARANTEE" in (tmp_path / "s.csv.made_with_test_seed").read_text()
    again = make(tmp_path / "again", 2)
    dpstream("run", again, "--test-seed", 5)
    tables = [released(folder)["step-000002/table.csv"] for folder in (tmp_path, tmp_path / "again")]
    assert tables[0] == tables[1]


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    real, full = durable.write, [False]

    def write(descriptor: int, data: bytes) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor, data)

    monkeypatch.setattr(durable, "write", write)

    def switch(on: bool) -> None:
        full[0] = on

    return switch


def test_a_full_disk_stops_cleanly(tmp_path: Path, full_disk: Callable[[bool], None]) -> None:
    config = make(tmp_path, 3)
    dpstream("run", config, "--until", 1)
    full_disk(True)
    assert "No space left" in dpstream("run", config, code=4).stderr
    assert (
        "No space left" in dpstream("sample", config, "--step", 1, "--out", tmp_path / "s.csv", code=4).stderr
    )
    full_disk(False)
    assert not (tmp_path / "s.csv").exists()
    dpstream("run", config)
    assert status(config)["steps"] == 3


@pytest.mark.parametrize("number", [errno.EACCES, errno.EDQUOT, errno.EIO])
def test_a_missing_right_or_a_broken_disk_is_one_line(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make(tmp_path, 1)
    dpstream("run", config)

    def fail(path: Path, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(durable, "replace_file", fail)
    out = tmp_path / "s.csv"
    assert (
        f"{out}: {os.strerror(number)}"
        in dpstream("sample", config, "--step", 1, "--out", out, code=4).stderr
    )


def test_an_interrupt_inside_a_step_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make(tmp_path, 4)
    real = Stream.step

    def step(self: Stream, *args: Any, **kwargs: Any) -> Any:
        if self.last_step == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Stream, "step", step)
    error = dpstream("run", config, code=5).stderr
    assert "interrupted after step 2; the state is clean" in error
    monkeypatch.undo()
    assert status(config)["steps"] == 2
    assert "2 new steps, 4 in all" in dpstream("run", config).stdout
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_aborts_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make(tmp_path, 3)
    dpstream("run", config, "--until", 1)
    before = released(tmp_path)
    real = Stream._prepare

    def prepare(self: Stream, *args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        return real(self, *args)

    monkeypatch.setattr(Stream, "_prepare", prepare)
    assert "the state is clean" in dpstream("run", config, code=5).stderr
    monkeypatch.undo()
    assert released(tmp_path) == before
    # Noise had been drawn, so the step stays reserved for its records, as after a crash; they go on.
    assert status(config)["begun"] == 2
    assert "2 new steps, 3 in all" in dpstream("run", config).stdout


def test_a_reservation_on_other_records_is_given_up_on_demand_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make(tmp_path, 2)
    dpstream("run", config, "--until", 1)

    class Crash(BaseException):
        pass

    def crash(*_: Any) -> Any:
        raise Crash

    monkeypatch.setattr(Stream, "_compute", crash)
    with pytest.raises(Crash):
        CliRunner().invoke(main, ["run", str(config)])
    monkeypatch.undo()
    write_step(tmp_path, 2, ROWS)
    assert status(config)["begun"] == 2
    assert "step 2 was begun" in dpstream("status", config).stdout
    assert "reserved" in dpstream("run", config, code=2).stderr
    assert "1 new steps, 2 in all" in dpstream("run", config, "--discard-reserved").stdout


def test_a_failure_after_drawing_is_decided_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make(tmp_path, 2)

    def fail(*_: Any) -> Any:
        raise LimitError("a sum would pass 64 bits", where="counter")

    def full(*_: Any) -> Any:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Stream, "_prepare", fail)
        patch.setattr(Store, "record_failure", full)
        told = dpstream("run", config, code=3).stderr
        assert "64 bits" in told
        assert "the failed attempt could not be recorded (the disk is full): see docs" in told
        assert status(config)["failed"] is None
        patch.undo()
        patch.setattr(Stream, "_prepare", fail)
        assert "recorded" not in dpstream("run", config, code=3).stderr
    assert status(config)["failed"] == "LimitError"
    assert "never put it into a scheduled command" in dpstream("status", config).stdout
    assert "stopped with LimitError" in dpstream("run", config, code=2).stderr
    assert "2 new steps, 2 in all" in dpstream("run", config, "--discard-reserved").stdout


def test_one_run_at_a_time(tmp_path: Path) -> None:
    from dpstream.config import Config

    config = make(tmp_path, 2)
    dpstream("run", config, "--until", 1)
    with Config.load(config).open_stream():
        assert "another process" in dpstream("run", config, code=4).stderr
        assert status(config)["steps"] == 1


def test_a_damaged_state_is_not_overwritten(tmp_path: Path) -> None:
    config = make(tmp_path, 2)
    dpstream("run", config, "--until", 1)
    store = tmp_path / "state/stream.sqlite"
    store.write_bytes(store.read_bytes()[:100])
    damaged = store.read_bytes()
    dpstream("run", config, code=4)
    assert store.read_bytes() == damaged
    dpstream("status", config, code=4)
