"""A large Parquet file that is a step: counted while it is read, with the releases and messages of a smaller one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_stream import make

from dpstream.core.errors import DataError, DpstreamError
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Categorical, Schema
from dpstream.core.tables.access import BatchAccess, ReadRequest
from dpstream.io.sources import SourceOptions, UnreadableError, counted_file, open_source
from dpstream.io.sources.counted_file import CountedFile
from dpstream.io.sources.source import ReadOptions
from dpstream.project import Config, taken_steps
from dpstream.stream import Batch
from dpstream.stream.admission import RecordRows, encode_blocks

WORDS = {"zip": ["north", "south", "east"], "paid": ["yes", "no"], "age": [str(n) for n in range(5)]}
SCHEMA = Schema([Categorical(name, values, other="o", missing="m") for name, values in WORDS.items()])
KEY = bytes(range(32))
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
    files = (path for path in out.rglob("*") if path.is_file() and path.name != ".head.json")
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


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
    (entry,) = open_source(options, ReadOptions(base=folder, columns=SCHEMA.names, schema=SCHEMA)).steps()
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
