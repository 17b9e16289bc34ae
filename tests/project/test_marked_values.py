"""Marked private values go through the whole command; nothing that leaves the program holds one.

Searched: standard output and error, log records at the lowest level, tracebacks, every file outside of the data
and the state, and the bytes of files that are only there for a moment. The state holds private counts: its modes
are checked instead.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from fault_harness import in_child
from leak_search import COUNT, DAY, NUMBER, PERSON, REAL, TEXT, Spill, spill
from small_configs import write_config

from dpstream.cli import main
from dpstream.core import durable
from dpstream.core.errors import DataError
from dpstream.io.sources import read_table
from dpstream.stream import Stream

__all__ = ["spill"]

HEAD = "step,op,who,zip,age,rent,born"
PLAIN = "{step},insert,p{step},b,7,20.5,1990-05-06"
MARKED = f"{{step}},insert,{PERSON},{TEXT},{NUMBER},{REAL},{DAY}"
#: Bins that take every marked value, so that a whole run goes through with them.
LENIENT = ('other = "other"\nmissing = "none"', 'outside = "clip"\nmissing = "none"')
STRICT = ("", "")


def configure(folder: Path, bins: tuple[str, str], *, form: str = "csv", late: str = "error") -> Path:
    """A stream of three steps over files of any kind in ``data``."""
    other, outside = bins
    (folder / "data").mkdir(parents=True, exist_ok=True)
    return write_config(
        folder,
        name="marked",
        source=f'path = "data/*"\ntime_column = "step"\nop_column = "op"\nend = 3\nlate = "{late}"',
        columns=f"""[schema]\nignore = ["who"]
[schema.columns.zip]\ntype = "categorical"\nvalues = ["a", "b"]\n{other}
[schema.columns.age]\ntype = "integer"\nedges = [0, 5, 10]\n{outside}
[schema.columns.rent]\ntype = "real"\nedges = [0, 50, 100]\n{outside}
[schema.columns.born]\ntype = "date"\nedges = ["1980-01-01", "1990-01-01", "2000-01-01"]\n{outside}
""",
        rest=f'[output]\nformat = "{form}"',
    )


def write(spill: Spill, folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / "data" / name
    path.write_text("\n".join([HEAD, *lines]) + "\n", encoding="utf-8")
    spill.remember_input(path)
    return path


def fill(spill: Spill, folder: Path) -> None:
    """Three steps, each with ``COUNT`` records, some of them marked."""
    for step in (1, 2, 3):
        lines = [MARKED] * 7 + [PLAIN] * (COUNT - 7)
        write(spill, folder, f"{step}.csv", [line.format(step=step) for line in lines])


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_run_with_everything_around_it(tmp_path: Path, spill: Spill, form: str) -> None:
    config = configure(tmp_path, LENIENT, form=form)
    fill(spill, tmp_path)
    draft, bare = tmp_path / "draft.toml", tmp_path / "bare.toml"
    spill.run("init", tmp_path / "data", "--time-column", "step", "--out", bare)
    spill.private_files.add(draft)
    spill.run("init", tmp_path / "data", "--time-column", "step", "--public", "*", "--out", draft)
    assert TEXT in draft.read_text(encoding="utf-8")
    for verb in (("check",), ("check", "--json"), ("plan",), ("plan", "--json")):
        spill.run(*verb, config)
    spill.run("check", config, "--show-values", code=2)
    spill.run("run", config, "--dry-run")
    spill.run("run", config, "--until", 2)
    spill.run("run", config, "--json", "--log-json", tmp_path / "log.json")
    spill.run("run", config, "--log-json", "-")
    for verb in (
        ("status",),
        ("status", "--json"),
        ("status", "--health"),
        ("statement",),
        ("ledger", "show"),
    ):
        spill.run(*verb, config)
    spill.run("statement", config, "--out", tmp_path / "statement.html")
    spill.run("withdraw", config, "--step", 1, "--reason", "a test")
    spill.run("sample", config, "--step", 2, "--rows", 50, "--seed", 3, "--out", tmp_path / f"s.{form}")
    spill.run("report", config, "--out", tmp_path / "report.html")
    assert [name for name, _ in spill.seen if name.startswith("file under way")]
    assert spill.caplog.records
    assert len(list(spill.published())) > 10
    assert spill.found() == []
    assert spill.wrong_modes() == []


def parquet(path: Path, **columns: Any) -> None:
    rows: dict[str, Any] = {"step": [2, 2], "op": ["insert"] * 2, "who": [PERSON, "p"]}
    rows |= {"zip": ["a", "b"], "age": [1, 2], "rent": [0.5, 1.5], "born": [DAY.replace(year=1985)] * 2}
    pyarrow.parquet.write_table(pa.table({**rows, **columns}), path)


def csv_line(line: str) -> Callable[[Path], None]:
    return lambda path: path.with_suffix(".csv").write_text(f"{HEAD}\n{line}\n", encoding="utf-8")


def raw(ending: str, data: bytes) -> Callable[[Path], None]:
    return lambda path: path.with_suffix(ending).write_bytes(data)


def truncated(path: Path) -> None:
    parquet(path.with_suffix(".parquet"), zip=[TEXT, "b"])
    whole = path.with_suffix(".parquet").read_bytes()
    path.with_suffix(".parquet").write_bytes(whole[:-60])


GOOD = f"2,insert,{PERSON},b,7,20.5,1990-05-06"
BAD: dict[str, Callable[[Path], None]] = {
    "a value that is not declared": csv_line(f"2,insert,{PERSON},{TEXT},7,20.5,1990-05-06"),
    "a null": csv_line(f"2,insert,{PERSON},,7,20.5,1990-05-06"),
    "a number beyond the edges": csv_line(f"2,insert,{PERSON},b,{NUMBER},20.5,1990-05-06"),
    "a number beyond 64 bits": csv_line(f"2,insert,{PERSON},b,{NUMBER}0000000000000,20.5,1990-05-06"),
    "text for a number": csv_line(f"2,insert,{PERSON},b,{TEXT},20.5,1990-05-06"),
    "a real beyond the edges": csv_line(f"2,insert,{PERSON},b,7,{REAL},1990-05-06"),
    "text for a real": csv_line(f"2,insert,{PERSON},b,7,{TEXT},1990-05-06"),
    "a day beyond the edges": csv_line(f"2,insert,{PERSON},b,7,20.5,{DAY}"),
    "text for a day": csv_line(f"2,insert,{PERSON},b,7,20.5,{TEXT}"),
    "text for a step": csv_line(f"{TEXT},insert,{PERSON},b,7,20.5,1990-05-06"),
    "a step far beyond the end": csv_line(f"{NUMBER},insert,{PERSON},b,7,20.5,1990-05-06"),
    "holds a null or unknown operation": csv_line(f"2,{TEXT},{PERSON},b,7,20.5,1990-05-06"),
    "a short line": csv_line(f"{GOOD}\n2,insert,{PERSON},{TEXT}"),
    "a long line": csv_line(f"{GOOD},{TEXT},{NUMBER}"),
    "no text": raw(".csv", f"{HEAD}\n2,insert,{PERSON},{TEXT}".encode() + b"\xff\xfe,7,20.5,1990-05-06\n"),
    "an open quote": csv_line(f'2,insert,{PERSON},"{TEXT},7,20.5,1990-05-06'),
    "no JSON": raw(".ndjson", f'{{"step": 2, "op": "insert", "who": "{PERSON}", "zip": {TEXT}}}\n'.encode()),
    "mixed JSON": raw(
        ".ndjson", f'{{"step": 2, "zip": "{TEXT}"}}\n{{"step": 2, "zip": {NUMBER}}}\n'.encode()
    ),
    "a column too many": raw(".csv", f"{HEAD},note\n{GOOD},{TEXT}\n".encode()),
    "Parquet with text for a number": lambda p: parquet(p.with_suffix(".parquet"), age=[TEXT, str(NUMBER)]),
    "Parquet with a number for text": lambda p: parquet(p.with_suffix(".parquet"), zip=[NUMBER, NUMBER]),
    "Parquet with a number for a day": lambda p: parquet(p.with_suffix(".parquet"), born=[NUMBER, NUMBER]),
    "Parquet that was cut": truncated,
    "no gzip": raw(".csv.gz", f"{HEAD}\n{GOOD}\n".encode()),
}


@pytest.mark.parametrize("kind", BAD)
def test_input_that_stops_a_run(tmp_path: Path, spill: Spill, kind: str) -> None:
    config = configure(tmp_path, STRICT)
    write(spill, tmp_path, "1.csv", [PLAIN.format(step=1)] * COUNT)
    spill.run("run", config, "--until", 1)
    BAD[kind](tmp_path / "data" / "2")
    spill.run("check", config, code=None)
    spill.run("check", config, "--json", code=None)
    # A record of a step that is not due waits.
    code = 0 if kind == "a step far beyond the end" else 2
    spill.run("run", config, "--dry-run", code=code)
    spill.run("run", config, "--log-json", tmp_path / "log.json", code=code)
    spill.run("run", config, "--json", code=code)
    spill.run("status", config, "--health", code=None)
    spill.run("status", config, "--json")
    spill.run("init", tmp_path / "data" / "2.*", "--time-column", "step", "--out", tmp_path / "d", code=None)
    spill.private_files |= {path for path in [tmp_path / "d"] if path.exists()}
    assert code == 0 or any(name == "traceback" for name, _ in spill.seen)
    assert spill.found() == []
    assert spill.wrong_modes() == []


@pytest.mark.parametrize("late", ["error", "drop-and-count-nothing"])
def test_late_and_changed_records(tmp_path: Path, spill: Spill, late: str) -> None:
    config = configure(tmp_path, LENIENT, late=late)
    fill(spill, tmp_path)
    spill.run("run", config, "--until", 2)
    write(spill, tmp_path, "4.csv", [MARKED.format(step=1)] * 3)
    spill.run("run", config, code=2 if late == "error" else 0)
    (tmp_path / "data" / "1.csv").unlink()
    spill.run("run", config, code=None)
    spill.run("status", config)
    assert spill.found() == []


def fail_with(patch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: Any) -> Any:
        raise error

    patch.setattr(Stream, "_prepare", fail)


def test_failures_of_the_program_and_its_surroundings(
    tmp_path: Path, spill: Spill, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(tmp_path, LENIENT)
    fill(spill, tmp_path)
    spill.run("run", config, "--until", 1)
    for number in (errno.ENOSPC, errno.EIO, errno.EACCES):
        with monkeypatch.context() as patch:

            def full(*_: object, number: int = number) -> None:
                raise OSError(number, os.strerror(number))

            patch.setattr(durable, "write", full)
            spill.run("run", config, code=4)
    with monkeypatch.context() as patch:

        def unknown(connection: Any) -> None:
            connection.execute("COMMIT")
            raise sqlite3.OperationalError("disk I/O error")

        patch.setattr(durable, "commit", unknown)
        spill.run("run", config, code=4)
    with monkeypatch.context() as patch:
        # A bug's own message may hold anything; it is shown to the operator once, and kept nowhere.
        fail_with(patch, RuntimeError(f"{TEXT} {NUMBER}"))
        seen = list(spill.seen)
        with pytest.raises(RuntimeError):
            spill.run("run", config)
        spill.seen = seen
        spill.caplog.clear()
    facts = json.loads(spill.run("status", config, "--json").stdout)
    assert facts["failed"] == "RuntimeError"
    spill.run("run", config, code=2)
    spill.run("run", config, "--discard-reserved")
    spill.run("report", config, "--out", tmp_path / "report.html")
    assert spill.found() == []
    assert spill.wrong_modes() == []


@pytest.mark.parametrize("call", ["write", "sync_file", "rename", "commit"])
def test_what_a_killed_run_leaves(
    tmp_path: Path, spill: Spill, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Temporary files included: a write is killed after its bytes are there."""
    config = configure(tmp_path, LENIENT)
    fill(spill, tmp_path)
    spill.run("run", config, "--until", 1)
    real, total = getattr(durable, call), 0
    for at in (1, 2, 4):
        calls = [0]

        def deadly(*arguments: Any, calls: list[int] = calls, at: int = at) -> None:
            calls[0] += 1
            real(*arguments)
            if calls[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)

        with monkeypatch.context() as patch:
            patch.setattr(durable, call, deadly)
            total += in_child(lambda: CliRunner().invoke(main, ["run", str(config)])) == -signal.SIGKILL
        spill.run("status", config, "--json")
        assert spill.found() == []
        assert spill.wrong_modes() == []
    assert total >= 2
    spill.run("run", config)
    assert spill.found() == []


_AUDITED = """
import json, sys
opened, wanted = [], 3
def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)) and (arguments[2] or 0) & wanted:
        path = arguments[0]
        opened.append(path if isinstance(path, str) else path.decode())
sys.addaudithook(hook)
from dpstream.cli import main
try:
    main(sys.argv[2:])
finally:
    json.dump(opened, open(sys.argv[1], "w"))
"""


def test_nothing_is_written_elsewhere(tmp_path: Path, spill: Spill) -> None:
    """Every file that Python opens for writing is the state, a release, or compiled code."""
    config = configure(tmp_path, LENIENT)
    fill(spill, tmp_path)
    log = tmp_path / "data" / "opened.json"
    command = [sys.executable, "-c", _AUDITED, str(log), "run", str(config), "--until", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    places = {path for path in json.loads(log.read_text(encoding="utf-8")) if "__pycache__" not in path}
    places.discard(str(tmp_path))  # a file without a name, to see whether releases can be made there
    code = os.environ.get("NUMBA_CACHE_DIR") or Path.home() / ".cache" / "dpstream"
    allowed = [tmp_path / "state", tmp_path / "releases", log, code]
    assert [path for path in places if not path.startswith(tuple(str(one) for one in allowed))] == []
    assert [path for path in places if path.startswith(str(tmp_path / "releases"))]
    assert os.listdir(os.environ["TMPDIR"]) == []


@pytest.mark.parametrize("leak", ["message", "count", "log", "file", "temporary", "hash", "name"])
def test_planted_leaks_are_found(
    tmp_path: Path, spill: Spill, monkeypatch: pytest.MonkeyPatch, leak: str
) -> None:
    """The negative control: one leak at a time, each through another door."""
    config = configure(tmp_path, LENIENT)
    fill(spill, tmp_path)
    real = Stream.step

    def step(self: Stream, batch: Any, *args: Any, **kwargs: Any) -> Any:
        release = real(self, batch, *args, **kwargs)
        source = tmp_path / "data" / "1.csv"
        column = read_table(source).column("zip")  # a batch holds codes, and no values
        value = column[0].as_py()
        if leak == "message":
            raise DataError(f"the value {value!r} is not allowed")
        if leak == "count":
            raise DataError(f"step 1 has {len(column)} records")
        if leak == "log":
            logging.getLogger("dpstream.io.sources").debug("first: %s", value)
        if leak == "file":
            durable.replace_file(tmp_path / "releases" / "x.json", value.encode().hex().encode(), mode=0o644)
        if leak == "temporary":
            durable.replace_file(tmp_path / "temporary" / "x", f"{value}\n".encode(), mode=0o600)
            durable.unlink(tmp_path / "temporary" / "x")
        if leak == "hash":
            text = hashlib.sha256(source.read_bytes()).hexdigest()
            durable.replace_file(tmp_path / "releases" / "x.json", text.encode(), mode=0o644)
        if leak == "name":
            (tmp_path / "releases" / f"{value}.json").write_text("{}", encoding="utf-8")
        return release

    monkeypatch.setattr(Stream, "step", step)
    spill.run("run", config, "--until", 1, code=2 if leak in ("message", "count") else 0)
    assert spill.found() != []


def test_open_state_is_found(tmp_path: Path, spill: Spill) -> None:
    config = configure(tmp_path, LENIENT)
    fill(spill, tmp_path)
    spill.run("run", config, "--until", 1)
    assert spill.wrong_modes() == []
    (tmp_path / "state" / "head.json").chmod(0o640)
    assert spill.wrong_modes() == [str(tmp_path / "state" / "head.json")]
