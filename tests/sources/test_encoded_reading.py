"""Records that are encoded while they are read: the same codes, users and messages as when they are encoded later.

Whatever the number of threads, the size of the blocks, and what stands beside a record.
"""

from __future__ import annotations

import gzip
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_stream import make
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from row_files import source_of, write_rows
from second_place import contents

from dpstream.core import threads
from dpstream.core.errors import ConfigError, DataError, DpstreamError
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Categorical, CodeBlocks, Integer, Schema
from dpstream.core.schema.encoded_table import EncodedTable
from dpstream.core.tables import BatchAccess, MultisetHash, ReadRequest, count_marginals, counting
from dpstream.io.sources import SourceOptions, UnreadableError, counted_file, formats
from dpstream.io.sources import files as files_module
from dpstream.io.sources.counted_file import CountedFile
from dpstream.project import Config, taken_steps
from dpstream.stream import Batch
from dpstream.stream.admission import RecordRows, encode_batch, encode_blocks

BINS = {"other": "none of them", "missing": "nothing there"}
LOOSE = Schema([Categorical("zip", ["north", "7", "a,b"], **BINS), Integer("age", min=0, max=300, **BINS)])
STRICT = Schema([Categorical("zip", ["north", "7", "a,b"]), Integer("age", min=0, max=300, missing="m")])
KEY = bytes(range(32))
THREADS = (1, 2, 4)


NAMES = ["when", "op", "who", "zip", "age"]


def outcome(folder: Path, options: SourceOptions, schema: Schema, *, early: bool) -> list[Any]:
    """What each step gives: codes and users, or the message, after which nothing is read."""
    found: list[Any] = []
    source = source_of(options, base=folder, columns=schema.names, schema=schema if early else None)
    try:
        for entry in source.steps():
            assert not early or isinstance(entry.inserts, EncodedTable)
            users = (
                None if entry.users is None else [None if u is None else u.to_pylist() for u in entry.users]
            )
            batch = Batch(entry.inserts, entry.deletes)
            try:
                _, came, went = encode_batch(batch, schema, where=f"step {entry.step}")
            except DpstreamError as error:
                found.append((entry.step, str(error)))
                continue
            found.append((entry.step, came.tolist(), went.tolist(), users, dict(source.position)))
    except DpstreamError as error:
        found.append(str(error))
    return found


@pytest.fixture(params=THREADS)
def some_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    set_threads(monkeypatch, request.param)
    return int(request.param)


def set_threads(patch: pytest.MonkeyPatch, number: int) -> None:
    patch.setattr(threads, "thread_count", lambda: number)
    patch.setattr(counting, "thread_count", lambda: number)


ROWS = st.fixed_dictionaries(
    {
        "when": st.integers(1, 3),
        "op": st.sampled_from(["insert", "insert", "delete"]),
        "who": st.sampled_from(["p", "q"]),
        "zip": st.sampled_from(["north", "7", "a,b", "elsewhere", None]),
        "age": st.sampled_from([0, 7, 300, 301, None]),
    }
)
CUTS: list[dict[str, Any]] = [
    {"time_column": "when", "end": 3},
    {"time_column": "when", "end": 3, "op_column": "op", "user_column": "who"},
    {"rows": 3, "op_column": "op"},
    {"every": "files", "user_column": "who"},
]
ENDINGS = ("csv", "csv.gz", "parquet", "ndjson")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.sampled_from(ENDINGS), st.lists(ROWS, max_size=14)), min_size=1, max_size=3),
    st.sampled_from(CUTS),
    st.sampled_from([LOOSE, STRICT]),
    st.sampled_from(THREADS),
    st.sampled_from([24, 90, 2**22]),
    st.sampled_from([2**28, 40, 0]),
)
def test_encoded_early_or_late(
    files: list[Any], cut: dict[str, Any], schema: Schema, number: int, block: int, ahead: int
) -> None:
    """Every cut and format, tiny blocks, and records without a code beside good ones in other steps."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.setattr(formats, "_BLOCK_BYTES", block)
        patch.setattr(formats, "_BLOCK_ROWS", max(2, block // 20))
        patch.setattr(files_module, "_AHEAD", ahead)
        set_threads(patch, number)
        for i, (ending, rows) in enumerate(files):
            write_rows(folder / f"{i}.{ending}", rows, NAMES)
        ignored = {"when", "op", "who"} - set(cut.values())
        options = SourceOptions.parse({"path": "*", **cut})
        loose = Schema(schema.columns, ignore=tuple(ignored))
        assert outcome(folder, options, loose, early=True) == outcome(folder, options, loose, early=False)


def test_the_first_broken_record_of_the_file_is_named(
    tmp_path: Path, some_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where later blocks are read before it, and where the end of the file cannot be read at all."""
    monkeypatch.setattr(formats, "_BLOCK_BYTES", 64)
    body = ["north,7"] * 200
    body[60], body[61], body[150] = "north", "7,7,7", '"north,7'
    text = "\n".join(["zip,age", *body, ""]).encode()
    (tmp_path / "a.csv").write_bytes(text)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(text)[:-4])
    for name in ("a.csv", "b.csv.gz"):
        options = SourceOptions.parse({"path": name, "every": "files"})
        source = source_of(options, base=tmp_path, columns=LOOSE.names, schema=LOOSE, reveal=True)
        with pytest.raises(DataError, match=r"line 62: a line has 1 columns, the first line 2"):
            list(source.steps())


def test_text_does_not_wait_for_its_step(tmp_path: Path, some_threads: int) -> None:
    rows = 300_000
    words = pa.array([f"a rather long value with the number {i}" for i in range(5)])
    column = words.take(pa.array(np.arange(rows) % 5))
    pq.write_table(pa.table({"zip": column, "age": column}), tmp_path / "a.parquet", row_group_size=70_000)
    schema = Schema([Categorical(name, words.to_pylist(), **BINS) for name in ("zip", "age")])
    options = SourceOptions.parse({"path": "*.parquet", "every": "files"})
    before = pa.total_allocated_bytes()
    (step,) = source_of(options, base=tmp_path, columns=schema.names, schema=schema).steps()
    assert pa.total_allocated_bytes() - before < rows  # the text has 40 times as many bytes
    assert sum(part.nbytes for part in step.inserts.parts) == 2 * rows
    assert np.array_equal(schema.encode(step.inserts), np.repeat(np.arange(rows)[:, None] % 5, 2, axis=1))


def test_files_of_other_types(tmp_path: Path, some_threads: int) -> None:
    """Types that have a common one, and types that have none."""
    tables = {
        "1": pa.table({"zip": ["north", "7"], "age": pa.array([7, 8], pa.int64())}),
        "2": pa.table({"zip": pa.array(["7", "x"]).dictionary_encode(), "age": [7.0, None]}),
        "3": pa.table({"zip": pa.nulls(1), "age": pa.array([301], pa.uint64())}),
        "4": pa.table({"zip": ["7"], "age": ["12"]}),
        "5": pa.table({"zip": [b"north"], "age": [7]}),
    }
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    for first, second in itertools.permutations(tables, 2):
        rows = len(tables[first]) + len(tables[second])
        options = SourceOptions.parse({"path": [f"{first}.parquet", f"{second}.parquet"], "rows": rows})
        for schema in (LOOSE, STRICT):
            found = [outcome(tmp_path, options, schema, early=early) for early in (True, False)]
            assert found[0] == found[1]


def test_the_schema_is_the_one_that_encoded(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("zip,age\nnorth,7\n")
    options = SourceOptions.parse({"path": "a.csv", "every": "files"})
    (step,) = source_of(options, base=tmp_path, columns=LOOSE.names, schema=LOOSE).steps()
    assert LOOSE.encode(step.inserts).tolist() == [[0, 7]]
    with pytest.raises(ConfigError, match="another schema"):
        STRICT.encode(step.inserts)
    assert "north" not in repr(step.inserts) + repr(step)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32])
def test_type_blocks_and_threads_change_no_count_and_no_hash(
    kind: Any, some_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "_THREAD_ROWS", 100)
    codes = np.random.default_rng(0).integers(0, [4, 200, 9], (70_000, 3)).astype(np.int32)
    owners = np.arange(2 * len(codes)).reshape(-1, 2)
    cut = CodeBlocks(3, np.split(codes.astype(kind), [7, 7, 30_000]))
    domain = Schema([Integer(n, min=0, max=m) for n, m in zip("abc", (3, 199, 8), strict=True)]).domain
    cliques = [(), (0,), (1,), (0, 1), (0, 2), (0, 1, 2)]
    expected = count_marginals(codes, domain, cliques)
    plan = counting.count_plan(domain, tuple(cliques))
    out = np.zeros(plan.cells, np.int64)
    counting.add_counts(plan, cut, 1, out)
    assert (out == np.concatenate(expected)).all()
    for words in (None, owners):
        assert MultisetHash.of(cut, words, KEY) == MultisetHash.of(codes, words, KEY)
    assert (cut.whole() == codes).all()


def test_results_and_failures_come_in_the_order_of_the_tasks(some_threads: int) -> None:
    def work(number: int) -> int:
        if number == 7:
            raise ValueError(number)
        return number

    def tasks(most: int) -> Iterator[int]:
        yield from range(most)
        raise OSError

    assert list(threads.in_order(work, range(7))) == list(range(7))
    for most in (0, 1, 2, 6, 9, 99):
        seen: list[int] = []
        with pytest.raises(OSError if most < 7 else ValueError):
            seen.extend(threads.in_order(work, tasks(most)))
        assert seen == list(range(min(most, 7)))
    # Who stops in the middle waits for nothing but what was begun.
    assert next(threads.in_order(work, itertools.count())) == 0


@pytest.mark.parametrize("rows", [10, 2**21], ids=["many groups", "one group"])
@pytest.mark.parametrize("each", [None, lambda table: table], ids=["as it is", "in threads"])
def test_a_parquet_file_that_is_replaced_meanwhile_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, each: Any, rows: int
) -> None:
    monkeypatch.setenv("DPSTREAM_THREADS", "2")
    monkeypatch.setattr(formats, "_BLOCK_ROWS", 10)
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for name, value in ((path, 1), (other, 2)):
        table = pa.table({"x": pa.array([value] * 400)})
        pq.write_table(table, name, row_group_size=rows, use_dictionary=False, compression=None)
    found = []
    for number, block in enumerate(formats.blocks(path, each=each)):
        found += block.column("x").to_pylist()
        if number == 1:
            other.replace(path)
    assert found == [1] * 400


# A large file that is a step


WORDS = {"zip": ["north", "south", "east"], "paid": ["yes", "no"], "age": [str(n) for n in range(5)]}
SCHEMA = Schema([Categorical(name, values, other="o", missing="m") for name, values in WORDS.items()])
PAIRS = ((0, 1), (0, 2), (1, 2))


def write(path: Path, seed: int, *, unknown: bool = False, rows: int = 400) -> None:
    generator = np.random.default_rng(seed)
    columns = {}
    for name, values in WORDS.items():
        places = generator.integers(0, len(values) + 1, rows)
        columns[name] = [values[i] if i < len(values) else None for i in places]
    if unknown:
        columns["zip"][rows // 2] = "nowhere"
    pq.write_table(pa.table(columns), path, row_group_size=64)


def project(folder: Path, mechanism: str) -> Config:
    columns = {
        name: f'type = "categorical"\nvalues = {values}\nmissing = "m"' for name, values in WORDS.items()
    }
    if mechanism == "points":
        columns = {"x": 'type = "real"\nedges = [0, 0.5, 1]'}
    text = "".join(f"[schema.columns.{name}]\n{lines}\n" for name, lines in columns.items())
    files = {"path": '"*.parquet"', "every": '"files"', "time_column": None, "end": None}
    path = make(folder, 0, columns=text, mechanism=f'name = "{mechanism}"', **files)
    total = 'total = "public"\n' if mechanism == "points" else ""
    path.write_text(
        path.read_text().replace("[source]", f"{total}[source]").replace("[output]", "horizon = 8\n[output]")
    )
    return Config.load(path)


def taken(config: Config, place: Path, *, large: bool, counts: bool = True) -> dict[str, bytes] | str:
    """The bytes of what a run publishes, or its message; with ``large``, each file is counted while it is read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted_file, "_LARGE", 0 if large else 2**60)
        source = config.source(schema=config.reading_schema)
        out, granted = place / "out", []
        own = CountedFile.grant
        patch.setattr(CountedFile, "grant", lambda *given: granted.append(given) or own(*given))
        with config.at(place / "state", out).open_stream(randomness=Randomness.seeded(3)) as stream:
            try:
                steps = len(list(taken_steps(config, stream, source)))
            except DpstreamError as error:
                return str(error)
        assert len(granted) == (steps if large and counts else 0)
    return contents(out)


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("mechanism", ["pooled", "dpstabs", "baseline"])
def test_releases_are_the_same(
    tmp_path: Path, mechanism: str, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPSTREAM_THREADS", threads)
    for number in (1, 2):
        write(tmp_path / f"{number}.parquet", number)
    config = project(tmp_path, mechanism)
    expected = taken(config, tmp_path / "a", large=False)
    assert isinstance(expected, dict)
    assert taken(config, tmp_path / "b", large=True) == expected
    # What the one kind of reading released is compared with what the other reads.
    for place, large in (("a", True), ("b", False)):
        assert taken(config, tmp_path / place, large=large) == expected
    write(tmp_path / "1.parquet", 9)
    told = [taken(config, tmp_path / place, large=large) for place in "ab" for large in (True, False)]
    assert len(set(map(str, told))) == 1
    assert "step 1" in str(told[0])


def test_messages_are_the_same(tmp_path: Path) -> None:
    """Of a value without a code, in a block between others; nothing is spent."""
    write(tmp_path / "1.parquet", 1, unknown=True)
    config = project(tmp_path, "pooled")
    plain = taken(config, tmp_path / "a", large=False)
    assert isinstance(plain, str)
    assert "zip" in plain
    assert taken(config, tmp_path / "b", large=True) == plain
    write(tmp_path / "1.parquet", 1)
    assert len(taken(config, tmp_path / "b", large=True)) > 3


def granted(folder: Path, monkeypatch: pytest.MonkeyPatch, *cliques: tuple[int, int]) -> BatchAccess:
    monkeypatch.setattr(counted_file, "_LARGE", 0)
    options = SourceOptions(path=("*.parquet",), every="files")
    (entry,) = source_of(options, base=folder, columns=SCHEMA.names, schema=SCHEMA).steps()
    assert entry.engine is not None
    assert entry.inserts is None
    return entry.engine.grant(ReadRequest("counts", SCHEMA, "event", None, b"", "step 1", cliques))


def test_counts_and_hash_are_those_of_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "1.parquet", 4, unknown=True)
    batch, came, gone = encode_blocks(Batch(pq.read_table(tmp_path / "1.parquet")), SCHEMA)
    rows = RecordRows(SCHEMA.domain, came, gone)
    for cells in (2**21, 0):  # a table for each thread, and one for all
        monkeypatch.setattr(counted_file, "_THREAD_CELLS", cells)
        found = granted(tmp_path, monkeypatch, *PAIRS[:2])
        assert found.rows.fingerprint(KEY) == rows.fingerprint(KEY)
        assert found.view is not None
        for part in ("net", "inserts", "deletes"):
            expected = batch.count([*PAIRS, (), (1,)], part)
            counts = found.view.count([*PAIRS, (), (1,)], part)
            assert [one.tolist() for one in counts] == [one.tolist() for one in expected]
        # What a mechanism does with its counts changes no later ones.
        found.view.count([(1,)])[0][:] = 0
        assert found.view.count([(1,)])[0].tolist() == batch.count([(1,)])[0].tolist()


def test_a_second_pass_over_other_records_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "1.parquet"
    write(path, 4)
    found = granted(tmp_path, monkeypatch, PAIRS[0])
    found.rows.fingerprint(KEY)
    assert found.view is not None
    write(path, 5)
    assert len(found.view.count([PAIRS[0]])) == 1  # counted in the first pass
    with pytest.raises(DataError, match="the file changed during reading"):
        found.view.count([PAIRS[1]])


def test_one_pass_over_a_file_that_changes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are the same in number and kind: names, sizes and times of the file alone tell it."""
    path = tmp_path / "1.parquet"
    write(path, 4)
    found = granted(tmp_path, monkeypatch, PAIRS[0])
    path.write_bytes(path.read_bytes())
    with pytest.raises(UnreadableError, match="the file changed during reading"):
        found.rows.fingerprint(KEY)


def test_who_reads_records_gets_them_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Online points read records."""
    pq.write_table(pa.table({"x": np.random.default_rng(1).random(50).tolist()}), tmp_path / "1.parquet")
    config = project(tmp_path, "points")
    expected = taken(config, tmp_path / "a", large=False)
    assert isinstance(expected, dict)
    assert taken(config, tmp_path / "b", large=True, counts=False) == expected
