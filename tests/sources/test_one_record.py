"""One record of a text file changes at most one record of what a step encodes, whatever its bytes are, or stops the
reading. The cuts are those by files (a record keeps its place) and by step numbers."""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import tempfile
import tracemalloc
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from row_files import source_of

from dpstream.core import threads
from dpstream.core.errors import DataError
from dpstream.core.schema import Boolean, Categorical, Date, DateTime, Integer, Real, Schema
from dpstream.io.sources import SourceOptions, formats
from dpstream.io.sources.formats import cells, parse_record

BINS = {"other": "none of them", "missing": "nothing there"}
SCHEMA = Schema(
    [
        Categorical("zip", ["north", "7", "0.5"], **BINS),
        Integer("age", min=0, max=120, **BINS),
        Boolean("paid", **BINS),
        Real("rent", [0, 500, 1000], **BINS),
        Date("filed", edges=["2026-01-01", "2026-02-01", "2026-03-01"], **BINS),
        DateTime("seen", edges=["2026-01-01T00:00", "2026-02-01T00:00"], **BINS),
    ],
    ignore=("note",),
)
NAMES = ["zip", "age", "paid", "rent", "filed", "seen", "note"]
RECORDS: list[dict[str, Any]] = [
    dict(zip(NAMES, values, strict=True))
    for values in (
        ("north", 7, True, 12.5, "2026-01-05", "2026-01-02", "a, b"),
        ("7", 0, False, 700, "2026-02-05", "2026-01-31T12:00", ""),
        ("0.5", 120, None, 3.5, None, "x", 'he said "no"'),
        ("q", 2**40, True, 10**9, "2026-01-05", None, "é"),
    )
]


def csv_line(record: dict[str, Any]) -> bytes:
    cells_of = ["" if value is None else str(value) for value in record.values()]
    return ",".join('"' + c.replace('"', '""') + '"' if set(c) & set(',"') else c for c in cells_of).encode()


def json_line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


def counted(name: str, content: bytes, source: dict[str, Any], block: int = 2**22) -> Counter[Any]:
    """The encoded records of all steps, as a multiset: (step, insert or delete, codes)."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "_BLOCK_BYTES", block)
        found: Counter[Any] = Counter()
        if name == "stdin":
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        else:
            data = gzip.compress(content, mtime=0) if name.endswith(".gz") else content
            (Path(folder) / name).write_bytes(data)
        options = SourceOptions.parse({"path": "-" if name == "stdin" else name, **source})
        opened = source_of(options, base=folder, columns=SCHEMA.names, ignored=SCHEMA.ignore)
        for step in opened.steps():
            for part in (step.inserts, step.deletes):
                if part is not None:
                    found.update((step.step, *codes) for codes in SCHEMA.encode(part).tolist())
        return found


FILES = {"every": "files"}


@cache
def as_they_are(name: str, content: bytes, block: int) -> Counter[Any]:
    """``counted`` of a good file, which many examples begin with."""
    return counted(name, content, FILES, block)


NOISE = st.binary(max_size=40).map(lambda data: data.translate(None, b"\n\r"))
BYTES = (b'"', b'""', b",", b"\xff", b"\xef\xbb\xbf", b"\x00", b"\xe2\x82", b"a", b"7", b'\\"')
PIECES = st.sampled_from([*BYTES, b"{", b"}", b"[", b":", b" "])


@st.composite
def spoiled(draw: st.DrawFn, line: bytes) -> bytes:
    """A good line with some pieces put into it or cut out, or any bytes."""
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(line)))
        line = line[:at] + draw(PIECES) + line[at + draw(st.integers(0, 3)) :]
    return draw(st.one_of(st.just(line), NOISE))


def changed(before: Counter[Any], after: Counter[Any]) -> tuple[int, int]:
    return (before - after).total(), (after - before).total()


#: Stands for a whole number of 5,000 digits, which Python does not write.
HUGE = "@huge@"
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(2**52, 2**70),
        st.just(HUGE),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters()),
        st.sampled_from(
            ["north", "7", "7.0", "true", "2026-01-05", "1e400", "\ud800", "none of them", "\udfffnorth"]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def json_spoiled(draw: st.DrawFn, record: dict[str, Any]) -> bytes:
    if draw(st.booleans()):
        return draw(spoiled(json_line(record)))
    more = draw(st.dictionaries(st.sampled_from([*NAMES, "extra", "\ud800", ""]), VALUES, max_size=4))
    return written({**record, **more})


def written(record: dict[str, Any]) -> bytes:
    return json_line(record).replace(json.dumps(HUGE).encode(), b"1" * 5000)


@settings(max_examples=300, deadline=None)
@given(
    st.data(),
    st.integers(0, 3),
    st.sampled_from(["a.csv", "a.csv.gz", "a.ndjson", "a.jsonl.gz"]),
    st.sampled_from([24, 100, 2**22]),
)
def test_one_record_changes_one_record(data: st.DataObject, place: int, name: str, block: int) -> None:
    if "csv" in name:
        good, head = [csv_line(record) for record in RECORDS], [",".join(NAMES).encode()]
        line, end = data.draw(spoiled(good[place])), data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
        left_out = not line
    else:
        good, head = [json_line(record) for record in RECORDS], []
        line, end = data.draw(json_spoiled(RECORDS[place])), b"\n"
        left_out = not line.removeprefix(b"\xef\xbb\xbf").strip()  # a byte order mark: none or an error
    other = [*good[:place], line, *good[place + 1 :]]
    before = as_they_are(name, end.join([*head, *good, b""]), block)
    try:
        after = counted(name, end.join([*head, *other, b""]), FILES, block)
    except DataError:
        return
    assert max(changed(before, after)) <= 1
    assert after.total() == (3 if left_out else 4)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 3))
def test_a_record_with_a_time_changes_one_record_of_its_step(data: st.DataObject, place: int) -> None:
    rule = {"time_column": "when", "op_column": "op", "end": 2, "eof": "close"}
    marked = [{"when": 1 + i // 2, "op": "insert", **record} for i, record in enumerate(RECORDS)]
    good = [json_line(record) for record in marked]
    more = data.draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3))
    other = good.copy()
    other[place] = written({**marked[place], **more})
    before, after = (counted("stdin", b"\n".join(part), rule) for part in (good, other))
    assert max(changed(before, after)) <= 1


def test_a_line_that_is_no_record_stops_the_reading(tmp_path: Path) -> None:
    head, good = ",".join(NAMES).encode(), csv_line(RECORDS[0])
    for line in (b"a,b", b"a" + b"," * 7, b'"' + b"," * 6, b',"' + b"," * 5, good[:-1] + b"\xff"):
        for body in ([line, good], [good, line], [good, line, b"", good]):
            with pytest.raises(DataError):
                counted("a.csv", b"\n".join([head, *body]), FILES)
    for line in (b"null", b"[1]", b'{"zip": 1', b"\xff", b'"', b"{" * 100_000):
        with pytest.raises(DataError):
            counted("a.ndjson", line + b"\n" + json_line(RECORDS[0]), FILES)
    # One column: an empty line is a record there.
    (tmp_path / "b.csv").write_bytes(b"zip\nnorth\n\n7\n")
    (step,) = source_of({"path": "b.csv", **FILES}, base=tmp_path, columns=["zip"]).steps()
    assert step.inserts.to_pydict() == {"zip": ["north", "", "7"]}


@pytest.mark.parametrize("head", [b"a,b", b"\xef\xbb\xbfa,b", b"a,b\n", b"a,b\r"])
def test_a_header_is_no_record(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "1.csv").write_bytes(head)
    (step,) = source_of({"path": "1.csv", "every": "files"}, base=tmp_path, columns=["a", "b"]).steps()
    assert step.inserts.num_rows == 0


def test_no_record_of_standard_input_decides_whether_another_is_read() -> None:
    """Where a block that is read at once ends depends on how long the records are."""
    cut = {"time_column": "when", "end": 1, "eof": "close"}
    found = list[str]()
    for note in ("short", "long" * 100_000):
        first, last = ({"when": 1, **RECORDS[0], "note": note}, {"when": 1, **RECORDS[1]})
        content = b"\xef\xbb\xbf" + json_line(first) + b"\n\xef\xbb\xbf" + json_line(last) + b"\n"
        with pytest.raises(DataError) as caught:  # a byte order mark within the text
            counted("stdin", content, cut)
        found.append(str(caught.value))
    assert found[0] == found[1]


@settings(max_examples=100, deadline=None)
@example(parts=[(b"x", b"\r"), (b'"z', b"\n"), (b"", b"\n")], block=2**22, width=1, number=1)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"x", b"", b'"z', b"x,y", b'"', b'"q"', b",", b"x" * 9]),
            st.sampled_from([b"\n", b"\r\n", b"\r"]),
        ),
        max_size=6,
    ),
    st.sampled_from([1, 2, 3, 7, 2**22]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 4]),
)
def test_a_broken_line_leaves_the_lines_around_it_alone(
    parts: list[tuple[bytes, bytes]], block: int, width: int, number: int
) -> None:
    """A file reads as each of its lines read alone, in any number of threads."""
    head = b",".join([b"a", b"b"][:width]) + b"\n"

    def read(body: bytes) -> list[Any] | None:
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(formats, "_BLOCK_BYTES", block)
            patch.setattr(threads, "thread_count", lambda: number)
            (Path(folder) / "1.csv").write_bytes(head + body)
            try:
                found = formats.blocks(Path(folder) / "1.csv", each=lambda table: table)
                return pa.concat_tables(found).to_pylist()
            except DataError:
                return None

    body = b"".join(line + end for line, end in parts)
    alone = re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)", body)
    apart = [read(line) for line in alone]
    assert read(body) == (None if None in apart else [record for one in apart for record in one or ()])


def test_long_lines_and_deep_objects_are_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MAX_BYTES", 200)
    head, good = ",".join(NAMES).encode(), csv_line(RECORDS[0])
    long = b"x" * 1000 + b"," * 6
    for block in (32, 2**22):
        with pytest.raises(DataError, match="line too long"):
            counted("a.csv", b"\n".join([head, good, long, good]), FILES, block)
        wide = json_line({**RECORDS[0], "note": "x" * 1000})
        with pytest.raises(DataError, match="expected JSON objects"):
            counted("a.ndjson", wide, FILES, block)
    for text in ("[" * 100_000, '{"a":' * 100_000, '{"a":' + "[" * 1000 + "]" * 1000 + "}"):
        assert parse_record(text) is None
    assert parse_record('{"a": "' + "[{" * 1000 + '"}') is not None


def test_depth_needs_no_memory_for_the_characters_of_a_text() -> None:
    """One character of a long text used to take many bytes, to go back to."""
    line = '{"a": "' + "x" * 2**20 + '\\"", "b": "' + "[" * 201 + '"}'
    tracemalloc.start()
    try:
        assert parse_record(line) is not None
        assert tracemalloc.get_traced_memory()[1] < 8 * len(line)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_text_that_is_no_utf_8_is_a_value_of_its_own(tmp_path: Path, kind: pa.DataType) -> None:
    """In Parquet and in frames, as in text files: it falls into the bins, and no other cell changes."""
    raw = [b"7", b"\xff", None, b"7\xc3", b"north"]
    texts = pa.Array.from_buffers(pa.string(), len(raw), pa.array(raw, pa.binary()).buffers())
    if pa.types.is_dictionary(kind):
        codes = pa.array([0, 1, None, 2, 3], pa.int32())
        texts = pa.DictionaryArray.from_arrays(codes, texts.take(pa.array([0, 1, 3, 4])))
    elif pa.types.is_large_string(kind):
        texts = texts.cast(pa.large_binary()).view(kind)
    table = pa.table(dict.fromkeys((*SCHEMA.names, "id"), texts))
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    options = SourceOptions.parse({"path": "a.parquet", "period_columns": ["zip"], "user_column": "id"})
    (step,) = source_of(options, base=tmp_path, columns=["zip"]).steps()
    assert step.users is not None
    assert step.users[0].to_pylist() == ["7", "\ufffd", None, "7\ufffd", "north"]
    (step,) = source_of({"path": "a.parquet", "every": "files"}, base=tmp_path, columns=SCHEMA.names).steps()
    for given_table in (step.inserts, table):
        found = SCHEMA.encode(given_table.select(SCHEMA.names))
        for i, column in enumerate(SCHEMA.columns):
            seven = column.encode(["7"])[0]
            assert found[:4, i].tolist() == [seven, column.other_code, column.missing_code, column.other_code]
    with pytest.raises(DataError, match="\ufffd"):
        Categorical("zip", ["7", "north"], missing="m").encode(texts, reveal=True)


def test_no_message_counts_the_keys_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_BLOCK_BYTES", 20)
    (tmp_path / "a.ndjson").write_text('{"a": 1, "b": 2, "c": 3}\n{"d": "' + "x" * 60 + '"}\n')
    (tmp_path / "b.ndjson").write_text('{"e": 1, "f": 2}\n')
    (tmp_path / "c.csv").write_text("e,f\n1,2\n")
    for cut in (
        {"path": "a.ndjson", "every": "files"},
        {"path": "a.ndjson", "time_column": "when", "end": 2},
        {"path": ["b.ndjson", "a.ndjson"], "every": "files"},
        {"path": ["c.csv", "a.ndjson"], "every": "files"},
    ):
        with pytest.raises(DataError) as caught:
            list(source_of(cut, base=tmp_path).steps())
        message = str(caught.value).replace(str(tmp_path), "")
        assert not re.findall(r"\b(?:[0-9]+|[b-f](?!\.))\b", message), cut


def test_where_a_record_of_a_wide_file_stands_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys of the first records used to be the header: a period that one of them lacked was none."""
    monkeypatch.setattr(formats, "_BLOCK_BYTES", 40)
    rows = [{"id": i, "poor_1": True, "poor_2": False} for i in range(4)]
    rows[0]["poor_3"] = True
    keys = {"path": "a.ndjson", "period_columns": "poor_{period}", "user_column": "id"}
    for place in range(4):
        order = rows[1 : place + 1] + rows[:1] + rows[place + 1 :]
        (tmp_path / "a.ndjson").write_bytes(b"\n".join(map(json_line, order)))
        steps = list(source_of(keys, base=tmp_path, columns=["poor"]).steps())
        assert [step.inserts.num_rows for step in steps] == [4, 4, 4]
        assert steps[2].inserts.column("poor").to_pylist() == [
            "true" if i == place else None for i in range(4)
        ]


def test_files_of_several_formats_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("zip,age\nnorth,7\n")
    (tmp_path / "b.ndjson").write_text('{"zip": 7, "age": "8"}\n{"age": [1]}\n')
    for first, second in (("a.csv", "b.ndjson"), ("b.ndjson", "c.csv")):
        (tmp_path / "c.csv").write_text("zip,age\nnorth,7\n")
        options = SourceOptions.parse({"path": [first, second], "rows": 3})
        (step,) = source_of(options, base=tmp_path, columns=["zip", "age"]).steps()
        rows = Schema(SCHEMA.columns[:2]).encode(step.inserts).tolist()
        assert sorted(rows) == sorted(
            [[0, 7], [1, 8], [SCHEMA["zip"].missing_code, SCHEMA["age"].other_code]]
        )


def test_standard_input_without_a_schema_takes_the_keys_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b'{"when": 1, "zip": 7}\n{"when": 1, "age": "x", "zip": [1]}\n{"when": 2, "age": null}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    first, second = source_of({"path": "-", "time_column": "when", "end": 2, "eof": "close"}).steps()
    assert first.inserts.column("age").to_pylist() == [None, "x"]
    assert first.inserts.column("zip").to_pylist() == ["7", "\x00list or object"]
    assert second.inserts.num_rows == 1


#: Numbers whose text says something else than the number in a column with a type.
AS_TEXTS = ("0.5", "-9", "-9.0", "nan", "NaN", "-0.0", "-0")


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.lists(st.one_of(st.none(), kind), max_size=8)
        for kind in (
            st.one_of(st.integers(-10, 130), st.integers(-(2**63), 2**63 - 1)),
            st.one_of(st.floats(), st.integers(-9, 9).map(float)),
            st.booleans(),
            st.one_of(
                st.text(),
                st.sampled_from(["north", "7", "7.0", "-9", "", "none of them", "true", "2026-01-05"]),
            ),
        )
    )
)
def test_values_of_one_kind_mean_what_a_typed_column_means(values: list[Any]) -> None:
    for column in SCHEMA.columns:
        mine = column.encode(cells(values), null_values=("", "-9"))
        try:
            theirs = column.encode(pa.array(values), null_values=("", "-9"))
        except DataError:  # the whole column has a type that cannot be read
            assert set(mine.tolist()) <= {column.other_code, column.missing_code}
            continue
        # Numbers are texts here, as in a csv file: some are a declared text, a null value, or no number.
        alike = [isinstance(value, str) or cells([value]).to_pylist()[0] not in AS_TEXTS for value in values]
        assert mine[alike].tolist() == theirs[alike].tolist()


def test_numbers_that_a_typed_column_reads_in_another_way() -> None:
    for column in SCHEMA.columns:
        codes = column.encode(cells([-9, -9.0, math.nan]), null_values=("", "-9")).tolist()
        assert codes[0] == column.missing_code
        assert codes[2] in (column.other_code, column.missing_code)
    assert SCHEMA.columns[0].encode(cells([0.5, 7])).tolist() == [2, 1]
    assert SCHEMA.columns[2].encode(cells([0, 1, -0.0])).tolist() == [0, 1, SCHEMA.columns[2].other_code]


def test_lists_and_objects_are_values_that_no_column_reads() -> None:
    for column in SCHEMA.columns:
        assert column.encode(cells([["7"], {"a": 7}])).tolist() == [column.other_code] * 2
