"""What other libraries say about a private value reaches nobody: behind every kind of source, and as a last net.

``test_marked_values.py`` looks at what dpstream itself says. Here readers and engines are brought to fail in the
middle of marked values, and exceptions of any kind are thrown where a bug might throw them.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from leak_search import DAY, NUMBER, PERSON, SPELLINGS, TEXT, Spill, spill
from test_marked_values import LENIENT, configure

from dpstream.cli.failures import ASKED
from dpstream.core.errors import DataError, SchemaError
from dpstream.core.foreign import arrow_input, failures, shielded
from dpstream.core.schema import Categorical, Schema
from dpstream.io.sources import ReadOptions, SourceOptions
from dpstream.io.sources.stdin import StdinSource

__all__ = ["spill"]

BROKEN = TEXT.encode() + b"\xff\xfe"


def texts(*cells: bytes) -> Any:
    """Cells of a text column whose bytes nobody checked, as a Parquet file may hold them."""
    return pa.Array.from_buffers(pa.string(), len(cells), pa.array(cells, pa.binary()).buffers())


def table(**columns: Any) -> pa.Table:
    rows: dict[str, Any] = {
        "step": pa.array([2, 2]),
        "op": pa.array(["insert"] * 2),
        "who": pa.array([PERSON, "p"]),
        "zip": pa.array([TEXT, "b"]),
        "age": pa.array([NUMBER, 2]),
        "rent": pa.array([0.5, 1.5]),
        "born": pa.array([DAY] * 2),
    }
    return pa.table({**rows, **columns})


def two(one: dict[str, Any], other: dict[str, Any]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        pq.write_table(table(**one), folder / "1.parquet")
        pq.write_table(table(**other), folder / "2.parquet")

    return write


def one(**columns: Any) -> Callable[[Path], None]:
    return two(columns, columns)


def raw(name: str, data: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return write


FAR = 2**53 + NUMBER
HEAD = b"step,op,who,zip,age,rent,born\n"
#: Kind of failure -> the files; each of these made a library speak of the value.
FILES: dict[str, Callable[[Path], None]] = {
    "text that is no UTF-8": one(zip=texts(BROKEN, b"b")),
    "a number that is no UTF-8": one(age=texts(BROKEN, b"7")),
    "a day that is no UTF-8": one(born=texts(BROKEN, b"1990-01-01")),
    "an operation that is no UTF-8": one(op=texts(BROKEN, b"insert")),
    "a step that is no UTF-8": one(step=texts(BROKEN, b"2")),
    "an ignored cell that is no UTF-8": one(who=texts(BROKEN, b"p")),
    "numbers that Arrow cannot join": two({"age": pa.array([FAR, 7])}, {"age": pa.array([1.0, 2.0])}),
    "ignored numbers that Arrow cannot join": two({"who": pa.array([FAR, 7])}, {"who": pa.array([1.0, 2.0])}),
    "text and numbers": two({"age": pa.array([TEXT, "7"])}, {}),
    "times that Arrow cannot join": two(
        {"born": pa.array([NUMBER * 10**9, 0]).cast(pa.timestamp("ms"))},
        {"born": pa.array([0, 1]).cast(pa.timestamp("ns"))},
    ),
    "a time in a zone that nobody knows": one(
        born=pa.array([0, NUMBER]).cast(pa.timestamp("us", f"{TEXT}/X"))
    ),
    "a step beyond 64 bits": one(step=pa.array([NUMBER * 10**12, 2], pa.decimal128(30))),
    "an unsigned step beyond 64 bits": one(step=pa.array([2**64 - NUMBER, 2], pa.uint64())),
    "JSON with a number beyond 64 bits": raw("1.ndjson", b'{"step": 2, "age": %d%030d}\n' % (NUMBER, 0)),
    "JSON with a number of 5,000 digits": raw("1.ndjson", b'{"step": 2, "age": %d%05000d}\n' % (NUMBER, 0)),
    "JSON with half a character": raw("1.ndjson", b'{"step": 2, "zip": "%s\\ud800"}\n' % TEXT.encode()),
    "CSV with a cell of a megabyte": raw("1.csv", b"%s,%s\n" % (HEAD[:-1], TEXT.encode() * 70_000)),
    "CSV with NUL": raw(
        "1.csv", HEAD + b"2,insert,%s,%s\x00,7,20.5,\x00\n" % (PERSON.encode(), TEXT.encode())
    ),
    "CSV in UTF-16": raw("1.csv", (HEAD.decode() + f"2,insert,{PERSON},{TEXT},7,2,x\n").encode("utf-16")),
}


@pytest.mark.parametrize("kind", FILES)
def test_files_that_bring_a_library_to_fail(tmp_path: Path, spill: Spill, kind: str) -> None:
    config = configure(tmp_path, LENIENT)
    FILES[kind](tmp_path / "data")
    spill.run("check", config, code=None)
    spill.run("run", config, "--dry-run", code=None)
    spill.run("run", config, "--log-json", "-", code=None)
    spill.run("status", config, "--health", code=None)
    assert spill.found() == []


QUERIES = {
    "a cell that is no number": "SELECT 1 AS step, CAST(who AS INTEGER) AS age FROM t WHERE ? <= ?",
    "a file that is no CSV": "SELECT * FROM read_csv('{marked}', columns = {{'a': 'INT'}}) WHERE ? <= ?",
    "a file whose header is a record": "SELECT nothing FROM read_csv('{marked}') WHERE ? <= ?",
    "an error that the query makes": "SELECT error(who) AS zip FROM t WHERE ? <= ?",
}


@pytest.mark.parametrize("kind", QUERIES)
def test_queries_that_bring_duckdb_to_fail(tmp_path: Path, spill: Spill, kind: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    config = configure(tmp_path, LENIENT)
    marked = tmp_path / "data" / "marked.csv"
    marked.write_text(f"{PERSON},{TEXT},{NUMBER}\n{PERSON},{TEXT},{NUMBER}\n", encoding="utf-8")
    with duckdb.connect(str(tmp_path / "data" / "t.duckdb")) as db:
        db.execute("CREATE TABLE t AS SELECT ? AS who, ? AS zip", [PERSON, TEXT])
    text = config.read_text(encoding="utf-8")
    query = QUERIES[kind].format(marked=marked)
    before, _, after = text.partition("[source]")
    after = after[after.index("[schema]") :]
    source = (
        f'[source]\nkind = "duckdb"\ndatabase = "data/t.duckdb"\nquery = """{query}"""\nstart = 1\nend = 3\n'
    )
    config.write_text(before + source + after, encoding="utf-8")
    for verb in (["check"], ["run", "--dry-run"], ["run", "--log-json", "-"]):
        told = spill.run(*verb, config, code=2).stderr
        assert "error" in told
    assert spill.found() == []


RECORD = f"2,insert,{PERSON},{TEXT},{NUMBER},20.5,{DAY}\n"
GOOD = "step,op,who,zip,age,rent,born\n2,insert,p,a,7,20.5,1990-05-06\n"
#: Files whose columns nobody declared, because their first line is a record.
HEADS: dict[str, dict[str, str]] = {
    "no header": {"1.csv": RECORD},
    "a second file without header": {"1.csv": GOOD, "2.csv": RECORD},
    "a record in the header": {
        "1.csv": f"step,op,who,zip,age,rent,born,{TEXT},{PERSON}\n2,insert,p,a,7,2,,1,1\n"
    },
    "a value twice": {"1.csv": RECORD.replace(str(NUMBER), TEXT)},
    "an undeclared key": {"1.ndjson": f'{{"step": 2, "op": "insert", "{TEXT}": 1, "zip": "a"}}\n'},
    "a late undeclared key": {
        "1.ndjson": f'{{"step": 2, "op": "insert"}}\n{{"step": 2, "{TEXT}": [1]}}\n' * 99
    },
    "an undeclared key with a list": {"1.ndjson": f'{{"step": 2, "op": "insert", "{TEXT}": [1]}}\n'},
}


@pytest.mark.parametrize("kind", HEADS)
def test_columns_that_nobody_declared_are_counted(tmp_path: Path, spill: Spill, kind: str) -> None:
    config = configure(tmp_path, LENIENT)
    for name, text in HEADS[kind].items():
        (tmp_path / "data" / name).write_text(text, encoding="utf-8")
    files = sorted((tmp_path / "data").iterdir())
    for verb in (["check"], ["check", "--json"], ["run", "--dry-run"], ["run"]):
        spill.run(*verb, config, code=None)
    (tmp_path / "data" / "good").mkdir()
    (tmp_path / "data" / "good" / "x.csv").write_text(GOOD, encoding="utf-8")
    draft = tmp_path / "data" / "draft.toml"
    spill.run("init", files[0], "--time-column", "nothing", "--out", draft, code=None)
    spill.run("init", files[0], "--person-column", "nothing", "--out", draft, code=None)
    assert any("error" in text.decode() for _, text in spill.seen)
    assert spill.found() == []
    source = StdinSource(
        SourceOptions.parse({"path": "-", "time_column": "step", "op_column": "op", "end": 3}),
        ReadOptions(columns=["zip"]),
        stream=io.BytesIO(HEADS["an undeclared key with a list"]["1.ndjson"].replace(": 2", ": 1").encode()),
    )
    with pytest.raises(DataError) as caught:
        list(source.steps())
    assert TEXT not in str(caught.value)


def test_undeclared_columns_of_frames_are_counted() -> None:
    schema = Schema([Categorical("zip", ["a"])])
    for frame in ({"zip": ["a"], TEXT: [1]}, {TEXT: [1]}, pa.table([[1], [2]], names=[TEXT, TEXT])):
        with pytest.raises((DataError, SchemaError)) as caught:
            schema.encode(frame)
        assert TEXT not in str(caught.value)
    with pytest.raises(DataError, match=TEXT):
        schema.encode({"zip": ["a"], TEXT: [1]}, reveal=True)


def test_the_door_knows_what_libraries_raise() -> None:
    known = failures()
    for error in (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError, UnicodeDecodeError):
        assert issubclass(error, known)
    with pytest.raises(Exception, match=r"^there: a sentence of ours$") as caught:  # noqa: SIM117
        with shielded("a sentence of ours", where="there"):
            pa.array([TEXT]).cast(pa.int64())
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


_BUG = """
import sys, threading, warnings
from dpstream.cli import main
from dpstream.project import Config
TEXT = {text!r}

class Strange(Exception):
    def __str__(self):
        return TEXT

def load(*_):
    kind = sys.argv.pop()
    local_value = TEXT
    if kind == "chain":
        try:
            int(TEXT)
        except ValueError as error:
            raise RuntimeError(TEXT) from error
    if kind == "context":
        try:
            {{}}[TEXT]
        finally:
            raise Strange(TEXT)
    if kind == "note":
        error = TypeError(1, TEXT)
        error.add_note(TEXT)
        raise error
    if kind == "group":
        raise ExceptionGroup(TEXT, [ValueError(TEXT), ExceptionGroup(TEXT, [KeyError(TEXT)])])
    if kind == "warning":
        warnings.warn(TEXT)
        raise RuntimeError
    if kind == "thread":
        thread = threading.Thread(target=int, args=(TEXT,))
        thread.start()
        thread.join()
        raise RuntimeError
    if kind == "finalizer":
        class Broken:
            def __del__(self):
                raise ValueError(TEXT)
        Broken()
        raise RuntimeError

Config.load = load
main(["plan", "x.toml"])
"""


@pytest.mark.parametrize("kind", ["chain", "context", "note", "group", "warning", "thread", "finalizer"])
def test_a_bug_keeps_its_frames_and_loses_its_text(kind: str) -> None:
    program = _BUG.format(text=f"{TEXT} {PERSON}")
    surroundings = {name: value for name, value in os.environ.items() if name != ASKED}

    def run(**more: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-c", program, kind]
        return subprocess.run(command, capture_output=True, env={**surroundings, **more}, check=False)

    done = run()
    assert done.returncode == 1
    assert b"Traceback" in done.stderr
    assert b"in load" in done.stderr
    assert ASKED.encode() in done.stderr
    assert not [name for name, mark in SPELLINGS.items() if mark.search(done.stdout + done.stderr)]
    if kind == "chain":
        shown = run(**{ASKED: "full"})
        assert shown.returncode == 1
        assert TEXT.encode() in shown.stderr


def test_arrow_owns_what_it_reads() -> None:
    """A thread of Arrow that frees memory of Python while the program ends aborts it (seen: 1 of 7 programs)."""
    data = bytearray(b"zip\n94102\n")
    lent = pa.BufferReader(data)
    with pytest.raises(BufferError):  # the control: here Python's memory is lent
        data.clear()
    del lent
    opened = arrow_input(data)
    data.clear()
    assert opened.read() == b"zip\n94102\n"
    assert arrow_input(b"").read() == b""


def test_arrow_reads_through_one_door() -> None:
    """``BufferReader`` and ``read_table`` of a Python file lend memory to threads of Arrow."""
    source = Path(__file__).resolve().parents[2] / "src/dpstream"
    lends = re.compile(r"BufferReader\((?!memory\))|parquet\.read_table\(|pq\.read_table\(|py_buffer\(")
    found = {
        str(path.relative_to(source)): lends.findall(path.read_text(encoding="utf-8"))
        for path in source.rglob("*.py")
    }
    # Records' segments are read as a stream in one thread, which ends with the reading.
    assert {name for name, uses in found.items() if uses} == {"stream/release/persistent_records.py"}


@pytest.mark.parametrize("name", ["bad.csv", "bad.csv.gz"])
def test_a_program_that_stops_while_arrow_reads_ahead_ends_as_it_says(tmp_path: Path, name: str) -> None:
    """Half of such programs were aborted by a thread of Arrow when it read through a Python file."""
    lines = b"a,b\n1,x\n1,2,3\n" + b"1,xxxxxx\n" * 300_000
    (tmp_path / name).write_bytes(gzip.compress(lines, 1) if name.endswith(".gz") else lines)
    program = (
        "import sys, pathlib\nfrom dpstream.io.sources import read_table\n"
        "try:\n    read_table(pathlib.Path(sys.argv[1]))\n"
        "except Exception as error:\n    sys.exit(2)"
    )
    started = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path / name)]) for _ in range(4)]
    assert [process.wait() for process in started] == [2] * 4
