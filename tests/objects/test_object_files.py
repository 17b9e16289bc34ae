"""Files of an object store are read as files of this machine are."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from row_files import source_of, write_rows

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.foreign import arrow_input
from dpstream.core.schema import Categorical, Schema
from dpstream.io.objects import ObjectPath, is_object_url, object_path
from dpstream.io.sources import SourceOptions, UnreadableError, counted_file

START = datetime.date(2026, 1, 5)
SCHEMA = Schema([Categorical("zip", ["101", "102", "103"])])
Place = tuple[str, str]


def records(part: int) -> list[dict[str, Any]]:
    days = [START + datetime.timedelta(days=(7 * i + part) % 28) for i in range(40)]
    return [{"day": str(day), "zip": str(101 + i % 3)} for i, day in enumerate(days)]


def put(url: str, options: str, name: str, data: bytes) -> ObjectPath:
    place = object_path(f"{url}/{name}{options}")
    place.write(arrow_input(data).read_buffer())
    return place


def options(path: str, **keys: Any) -> SourceOptions:
    cut = {"time_column": "day", "every": "week", "start": str(START), "end": "2026-02-01"}
    return SourceOptions.parse({"path": path, **(cut | keys)})


def taken(source: Any, **keys: Any) -> tuple[list[Any], dict[str, int]]:
    steps = [(one.step, one.batch_id, rows(one.inserts)) for one in source.steps(key=b"k", **keys)]
    return steps, source.position


def rows(table: Any) -> Any:
    return table.to_pylist() if isinstance(table, pa.Table) else SCHEMA.encode_blocks(table).whole().tolist()


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "ndjson", "ndjson.gz"])
@pytest.mark.parametrize("late", ["error", "next-step"])
def test_objects_give_the_steps_that_files_give(
    tmp_path: Path, bucket: Place, ending: str, late: str
) -> None:
    (tmp_path / "data" / "more").mkdir(parents=True)
    for part, name in enumerate([f"data/a.{ending}", f"data/more/b.{ending}", f"data/.hidden.{ending}"]):
        put(*bucket, name, write_rows(tmp_path / name, records(part), ["day", "zip"]).read_bytes())
    url, more = bucket
    for schema in (None, SCHEMA):
        here, there = (
            source_of(options(path, late=late), base=tmp_path, columns=["zip"], schema=schema)
            for path in (f"data/**/*.{ending}", f"{url}/data/**/*.{ending}{more}")
        )
        steps, position = taken(here)
        assert len(steps) == 4
        assert taken(there) == (steps, position), (
            "names and fingerprints are those of files, so a stream may move"
        )
        assert taken(there, start_step=3, seen=position)[0] == steps[2:]


def test_each_object_may_be_a_step(tmp_path: Path, bucket: Place) -> None:
    url, more = bucket
    cut = {"every": "files", "time_column": None, "start": None, "end": None, "complete": "done"}
    source = source_of(options(f"{url}/in/*.parquet{more}", **cut), columns=["zip"])
    for part in (1, 2, 3):
        path = write_rows(tmp_path / "a.parquet", [{"zip": "101"}] * part, ["zip"])
        put(*bucket, f"in/{part}.parquet", path.read_bytes())
    with pytest.raises(UnreadableError, match="no file matches"):
        source.files()
    for part in (1, 2):
        put(*bucket, f"in/{part}.parquet.done", b"")
    assert [one.batch_id for one in source.steps()] == ["in/1.parquet", "in/2.parquet"]
    before = source.signature()
    assert source.signature() == before
    put(*bucket, "in/3.parquet.done", b"")
    assert source.signature() != before


def test_a_large_object_is_counted_while_it_is_read(
    tmp_path: Path, bucket: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, more = bucket
    path = write_rows(tmp_path / "a.parquet", [{"zip": "101"}, {"zip": "103"}], ["zip"])
    put(*bucket, "in/1.parquet", path.read_bytes())
    monkeypatch.setattr(counted_file, "_LARGE", 1)
    cut = {"every": "files", "time_column": None, "start": None, "end": None}
    (step,) = source_of(options(f"{url}/in/*{more}", **cut), columns=["zip"], schema=SCHEMA).steps()
    assert step.inserts is None
    assert rows(step.engine.whole()) == [[0], [2]]


def test_an_object_that_is_replaced_is_no_mixture(bucket: Place) -> None:
    url, more = bucket
    place = put(*bucket, "in/1.csv", b"day,zip\n2026-01-05,101\n2026-01-06,102\n")
    source = source_of(options(f"{url}/in/*.csv{more}"), columns=["zip"])
    (path,) = source.files()
    place.write(arrow_input(b"day,zip\n2026-01-05,101\n").read_buffer())
    source.files = lambda: [path]  # type: ignore[method-assign]
    with pytest.raises(DataError, match="changed during reading"):
        list(source.steps())


def test_what_cannot_be_read_is_said_without_a_secret(bucket: Place, endpoint: str) -> None:
    url, more = bucket
    with pytest.raises(UnreadableError, match="no file matches"):
        source_of(options(f"{url}/nothing/*.csv{more}")).files()
    put(*bucket, "in/1.parquet", b"PAR1 no")
    with pytest.raises(UnreadableError, match="damaged"):
        list(source_of(options(f"{url}/in/*.parquet{more}")).steps())
    nobody = "?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    with pytest.raises(UnreadableError, match="cannot be reached") as told:
        source_of(options(f"s3://elsewhere/in/*.csv{nobody}")).files()
    assert "127.0.0.1" not in str(told.value)
    two = [f"{url}/in/1.parquet{more}", f"s3://bucket-1/in/1.parquet{more}"]
    if url != "s3://bucket-1":
        put("s3://bucket-1", more, "in/1.parquet", b"")
        with pytest.raises(ConfigError, match="two files named"):
            source_of({"path": two, "every": "files"}).files()


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("s3://name:hunter2@bucket/x", "a name or secret"),
        ("s3://hunter2@bucket/x", "a name or secret"),
        ("abfss://c:hunter2@account/x", "a name or secret"),
        ("s3://bucket/x?secret_key=hunter2", "unknown URL option"),
        ("gs://bucket/x?region=hunter2", "unknown URL option"),
        ("s3:///x", "bucket missing in URL"),
        ("s3://bucket/../hunter2", "a path part is empty"),
        ("https://hunter2/x.csv", "files cannot be read from https"),
    ],
)
def test_wrong_urls_are_refused_and_not_shown(url: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as told:
        options(url)
    assert "hunter2" not in str(told.value)


def test_which_texts_are_urls() -> None:
    assert is_object_url("abfss://box@account.dfs.core.windows.net/a")
    assert not any(map(is_object_url, ["data/*.csv", "-", "s3:/x", "c:\\s3", "postgresql://host/db", 7]))
    path = object_path("s3://b/a?.csv?region=eu-west-1")
    assert (path.key, path.options) == ("a?.csv", (("region", "eu-west-1"),))
