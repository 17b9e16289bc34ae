"""Wrong paths, devices, numbers without end, and the one place that explains what the system says."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from bad_input import device
from cli_stream import dpstream, invoke, make

import dpstream as package
from dpstream.cli.failures import explain
from dpstream.core import durable, paths
from dpstream.core.errors import ConfigError, SchemaError
from dpstream.core.schema import Categorical


@pytest.mark.parametrize("place", ["none/run.log", "folder", "pipe", "config.toml/x", "n" * 300])
def test_a_log_that_cannot_be_opened_stops_no_run(tmp_path: Path, place: str) -> None:
    config = make(tmp_path, 2)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    done = dpstream("run", config, "--until", 1, "--log-json", tmp_path / place)
    assert done.stderr.count("the log ends here, the run goes on") == 1
    assert "1 new step" in done.stdout
    told = invoke("run", config, env={"DPSTREAM_LOG": str(tmp_path / place)})
    assert told.exit_code == 0
    assert "1 new step" in told.stdout
    assert told.stderr.count("the log ends here, the run goes on") == 1
    # The run's own failure keeps its exit code, and no second warning comes.
    (tmp_path / "data" / "001.csv").unlink()
    failed = dpstream("run", tmp_path / "none.toml", "--log-json", tmp_path / place, code=2)
    assert failed.stderr.count("the log ends here") == 1


def test_nothing_but_a_file_is_replaced(tmp_path: Path) -> None:
    made = make(tmp_path, 1)
    dpstream("run", made)
    device(target := tmp_path / "null")
    whole = tmp_path / "whole"
    whole.write_bytes(b"x")
    link = tmp_path / "link"
    link.symlink_to(whole)
    for place in (target, link, tmp_path / "data"):
        with pytest.raises(ConfigError, match="never replaced"):
            durable.replace_file(place, b"y", mode=0o600)
        with pytest.raises(ConfigError, match="never replaced"):
            durable.rename(whole, place)
    assert whole.read_bytes() == b"x"
    assert link.is_symlink()
    # Of the secret state, too: what is no file keeps its mode, and is refused.
    strange = tmp_path / "state" / "head.json-pipe"
    os.mkfifo(strange, 0o644)
    strange.chmod(0o644)
    dpstream("run", made, code=4)
    assert stat.S_IMODE(strange.lstat().st_mode) == 0o644


@pytest.mark.parametrize("place", ["-", "/dev/stdout"])
def test_standard_output_has_a_name(tmp_path: Path, place: str) -> None:
    config = make(tmp_path, 1)
    dpstream("run", config)
    lines = dpstream("ledger", "export", config, "--out", place).stdout.splitlines()
    dpstream("ledger", "export", config, "--out", tmp_path / "ledger.jsonl")
    assert lines == (tmp_path / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    assert dpstream("statement", config, "--out", place).stdout == dpstream("statement", config).stdout


def test_what_the_system_says_is_explained_and_bugs_are_not() -> None:
    for number, code in (
        (errno.ENAMETOOLONG, 2), (errno.ELOOP, 2), (errno.ENOTDIR, 2), (errno.EISDIR, 2), (errno.EEXIST, 2),
        (errno.ENXIO, 2), (errno.ENOENT, 2), (errno.ENOSPC, 4), (errno.EIO, 4), (errno.EACCES, 4),
        (errno.EMFILE, 4), (errno.ESTALE, 4), (errno.EFBIG, 4), (errno.ETXTBSY, 4),
    ):  # fmt: skip
        explained = explain(OSError(number, os.strerror(number), "a-path"))
        assert explained is not None
        assert explained[1] == code
        assert explained[0].startswith("a-path: ")
    for error in (
        OverflowError("Zq7"),
        RecursionError("Zq7"),
        MemoryError("Zq7"),
        ValueError("embedded null byte"),
    ):
        explained = explain(error)
        assert explained is not None
        assert "Zq7" not in explained[0]
    own = Path(package.__file__).parent / "missing.txt"
    for bug in (
        OSError(errno.EBADF, "Bad file descriptor"),
        OSError(errno.ENOENT, "No such file", str(own)),
        OSError(errno.ENOENT, "No such file"),
        OSError("without a number"),
        ValueError("Zq7"),
        KeyError("Zq7"),
        ZeroDivisionError(),
    ):
        assert explain(bug) is None


def test_json_without_end_is_no_json() -> None:
    for text in ('{"step": 1e999}', "[" * 100_000, "NaN", "-Infinity", "9" * 5000):
        with pytest.raises(ValueError):
            paths.parse_json(text)
    assert paths.parse_json('{"a": 1.5}') == {"a": 1.5}


def test_too_many_values_are_refused_before_they_are_looked_at() -> None:
    class Counted(tuple[str, ...]):
        looked = 0

        def __iter__(self):  # type: ignore[no-untyped-def]
            Counted.looked += 1
            return super().__iter__()

    with pytest.raises(SchemaError, match="1000000 codes"):
        Categorical("zip", Counted(["a"] * 1_000_000))
    assert Counted.looked <= 1
    # A label that stands twice at the very end: one pass finds it, where pairs would be 2 * 10^9.
    values = [f"v{number}" for number in range(60_000)]
    with pytest.raises(SchemaError, match="the label 'v59999' names two bins"):
        Categorical("zip", [*values, "v59999"])


def test_ten_thousand_columns_are_not_printed(tmp_path: Path) -> None:
    config = make(tmp_path, 1)
    names = ",".join(f"column{number}" for number in range(10_000))
    (tmp_path / "data" / "001.csv").write_text(f"{names}\n{names}\n", encoding="utf-8")
    for verb in ("check", "run"):
        assert len(dpstream(verb, config, code=2).stderr) < 3000


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("us", tz="Mars/Olympus"), pa.timestamp("us", tz="+99:99"), pa.timestamp("us"), pa.date32()],
    ids=str,
)
def test_times_that_no_calendar_has(tmp_path: Path, kind: pa.DataType) -> None:
    values = pa.array([2**31 - 1, -(2**31), 0], pa.int32())
    table = pa.table({"t": values.cast(pa.int64()).cast(kind) if kind != pa.date32() else values.cast(kind)})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    done = invoke("init", tmp_path / "t.parquet", "--out", tmp_path / "d.toml")
    assert done.exit_code in (0, 2), done.exception
    assert "Mars" not in done.stderr


def test_a_number_beyond_64_bits_in_a_configuration(tmp_path: Path) -> None:
    config = make(tmp_path, 1)
    text = config.read_text(encoding="utf-8")
    for value in ("9223372036854775808", "0x" + "f" * 20_000, "[" * 5000 + "]" * 5000):
        config.write_text(f"{text}keep = {value}\n", encoding="utf-8")
        assert len(dpstream("plan", config, code=2).stderr) < 500
