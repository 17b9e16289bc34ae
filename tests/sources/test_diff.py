"""Two snapshots to changes: applied to the old rows they give the new ones, whatever the partitions."""

from __future__ import annotations

import stat
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpstream.cli import main
from dpstream.core.errors import ConfigError, DataError
from dpstream.io.sources import formats, read_table
from dpstream.io.sources import snapshot_diff as diff_module
from dpstream.io.sources.operations import Operations
from dpstream.io.sources.rowhash import row_hashes
from dpstream.io.sources.snapshot_diff import Diff, write_diff

SECRET = "Q7731"
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["", "a", 'b\n,"', "a\0", SECRET, None]),
        st.sampled_from([None, 0, 1, -(2**60)]),
        st.sampled_from([None, 0.5, float("inf")]),
        st.sampled_from([True, False, None]),
    ),
    max_size=25,
)
NAMES = ("text", "number", "real", "flag")
TYPES = (pa.string(), pa.int64(), pa.float64(), pa.bool_())


def table_of(rows: list[Any]) -> Any:
    columns = zip(*rows, strict=True) if rows else [[] for _ in NAMES]
    return pa.table(
        {name: pa.array(list(c), kind) for name, c, kind in zip(NAMES, columns, TYPES, strict=True)}
    )


def applied(old: Counter[Any], changes: Any, op: str = "op") -> Counter[Any]:
    """The naive reading of a file of changes."""
    rows, words = Counter(old), Operations()
    for record in changes.to_pylist():
        operation = record.pop(op)
        values = tuple(record.values())
        if operation in words.delete:
            assert rows[values] > 0, "a delete of a row that is not there"
        rows[values] += 1 if operation in words.insert else -1
    return +rows


@given(ROWS, ROWS, st.sampled_from([1, 3]), st.sampled_from(["csv", "parquet"]))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_applying_the_changes_gives_the_new_rows(old: Any, new: Any, parts: int, ending: str) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff_module, "_partitions", lambda *_: parts)
        patch.setattr(formats, "_BLOCK_ROWS", 4)
        paths = [Path(folder) / f"{side}.{ending}" for side in ("old", "new")]
        for path, rows in zip(paths, (old, new), strict=True):
            write = pyarrow.csv.write_csv if ending == "csv" else pyarrow.parquet.write_table
            write(table_of(rows), path)
        out = Path(folder) / f"changes.{ending}"
        write_diff(*paths, out)
        before, after = (Counter(map(tuple, (r.values() for r in read_table(p).to_pylist()))) for p in paths)
        changes = read_table(out)
        assert applied(before, changes) == after
        assert changes.num_rows == (before - after).total() + (after - before).total(), "not the least"
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
        assert sorted(p.name for p in Path(folder).iterdir()) == sorted(p.name for p in (*paths, out))


@given(
    st.dictionaries(st.integers(0, 9), st.sampled_from("xyz")),
    st.dictionaries(st.integers(0, 9), st.sampled_from("xyz")),
)
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_by_key_an_update_says_what_the_old_row_was(old: dict[int, str], new: dict[int, str]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff_module, "_partitions", lambda *_: 2)
        paths = [Path(folder) / f"{side}.parquet" for side in ("old", "new")]
        for path, rows in zip(paths, (old, new), strict=True):
            columns = {
                "id": pa.array(list(rows), pa.int64()),
                "v": pa.array(list(rows.values()), pa.string()),
            }
            pyarrow.parquet.write_table(pa.table(columns), path)
        out = Path(folder) / "c.parquet"
        write_diff(*paths, out, Diff(("id",), "what", ("when", "7")))
        found = {(r["what"], r["id"], r["v"]) for r in read_table(out).to_pylist()}
        assert {r["when"] for r in read_table(out).to_pylist()} <= {"7"}
        changed = {i for i in old.keys() & new.keys() if old[i] != new[i]}
        assert found == (
            {("delete", i, old[i]) for i in old.keys() - new.keys()}
            | {("insert", i, new[i]) for i in new.keys() - old.keys()}
            | {("update-before", i, old[i]) for i in changed}
            | {("update-after", i, new[i]) for i in changed}
        )


def test_row_hashes_agree_between_blocks_and_spread() -> None:
    rows = table_of([(f"{i % 97}", i, i / 3, bool(i % 2)) for i in range(4000)])
    whole = row_hashes(rows)
    halves = [row_hashes(rows.slice(0, 1237)), row_hashes(rows.slice(1237))]
    assert np.array_equal(whole, np.concatenate(halves))
    assert len(set(whole.tolist())) == 4000
    assert np.bincount((whole % np.uint64(8)).astype(int)).min() > 400


def test_bad_snapshots_are_refused_without_a_value(tmp_path: Path) -> None:
    def file(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    old = file("old.csv", f"id,v\n{SECRET},1\n")
    out = tmp_path / "out.csv"
    typed = tmp_path / "typed.parquet"
    pyarrow.parquet.write_table(pa.table({"id": [SECRET], "v": [1]}), typed)
    other = tmp_path / "other.parquet"
    pyarrow.parquet.write_table(pa.table({"id": [SECRET], "v": ["1"]}), other)
    for paths, options, kind, message in (
        (
            (old, file("a.csv", f"id\n{SECRET}\n"), out),
            Diff(),
            DataError,
            "only one of the snapshots has 1 column",
        ),
        (
            (old, file("b.csv", f"id,v\n{SECRET},1\n{SECRET},2\n"), out),
            Diff(("id",)),
            DataError,
            "more than one",
        ),
        ((old, file("c.csv", f"id,v\n{SECRET}\n"), out), Diff(), DataError, "more or fewer columns"),
        ((old, tmp_path / "none.csv", out), Diff(), DataError, "there is no such file"),
        (
            (old, typed, tmp_path / "o.parquet"),
            Diff(),
            ConfigError,
            "one snapshot is csv and the other parquet",
        ),
        (
            (typed, other, tmp_path / "o.parquet"),
            Diff(),
            DataError,
            "column 2 has different types in the two",
        ),
        ((typed, typed, out), Diff(), ConfigError, "csv has no types and no nulls"),
        ((old, old, out), Diff(("no",)), ConfigError, "there is no column 'no'"),
        ((old, old, out), Diff(op_column="v"), ConfigError, "the name 'v' is taken"),
        ((old, old, out), Diff(step=("op", "1")), ConfigError, "the name 'op' is taken"),
        ((old, old, old), Diff(), ConfigError, "there is a file already"),
        ((old, old, tmp_path / "no" / "out.csv"), Diff(), ConfigError, "the folder does not exist"),
        (
            (old, old, tmp_path / "out.ndjson"),
            Diff(),
            ConfigError,
            "the changes cannot be written in this format",
        ),
    ):
        with pytest.raises(kind, match=message) as caught:
            write_diff(*paths, options)
        assert SECRET not in str(caught.value)
        assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")], "something is left behind"
        assert not out.exists()


def test_the_command_makes_a_file_that_a_stream_reads(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text(f"id,v\n1,{SECRET}\n2,y\n")
    (tmp_path / "new.csv").write_text("id,v\n1,z\n2,y\n3,w\n")
    args = ["diff", str(tmp_path / "old.csv"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "c.csv")]
    done = CliRunner().invoke(main, [*args, "--key", "id", "--step-column", "month", "2026-04-01"])
    assert done.exit_code == 0, done.output
    assert SECRET not in done.output
    lines = (tmp_path / "c.csv").read_text().replace('"', "").splitlines()
    assert lines[0] == "id,v,month,op"
    assert sorted(lines[1:]) == [
        f"1,{SECRET},2026-04-01,update-before",
        "1,z,2026-04-01,update-after",
        "3,w,2026-04-01,insert",
    ]
    again = CliRunner().invoke(main, args)
    assert again.exit_code == 2
    assert "there is a file already" in again.stderr
