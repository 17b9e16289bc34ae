"""Sessions of Spark: who may ask them for something, what they must not change, and what is said where none starts."""

from __future__ import annotations

import datetime
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_cases import KEY, SCHEMA, SECRET, WANTED, table

from dpstream.core.errors import ConfigError
from dpstream.io.sources import ReadOptions, SourceOptions, UnreadableError, open_source
from dpstream.spark import batch, keyed_batch, sessions
from dpstream.spark.sessions import is_allowed_setting
from dpstream.spark.spark_source import SparkKeys, _check_own

DAY = datetime.date(2026, 1, 5)
KEYS = {"kind": "spark", "every": "day", "start": str(DAY), "late": "drop-and-count-nothing"}


def days(rows: int, day: int = 0, **more: Any) -> pa.Table:
    plain = {"zip": ["a"] * rows, "day": pa.array([DAY + datetime.timedelta(day)] * rows)}
    return pa.table(plain | {"paid": [True] * rows, "rent": [1] * rows} | more)


def counted(folder: Path, **keys: Any) -> list[int]:
    """The number of records of each step."""
    options = SourceOptions.parse({**KEYS, "end": str(DAY), **keys})
    found = []
    for step in open_source(options, ReadOptions(base=folder, columns=SCHEMA.names)).steps():
        assert step.engine is not None
        granted = step.engine.grant(replace(WANTED, cliques=((),)))
        granted.rows.fingerprint(KEY)
        assert granted.view is not None
        found.append(int(granted.view.count([()])[0].sum()))
    return found


def framed(kind: int, body: bytes) -> bytes:
    """A message of Spark's transport: an RPC with a body, as an executor sends it."""
    head = struct.pack(">bqi", kind, 7731, len(body))
    return struct.pack(">q", 8 + len(head) + len(body)) + head + body


def opened_blocks(spark: Any, block: str) -> bytes:
    """What the block manager answers to somebody with a plain socket who asks for a block."""
    place = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().keysIterator().next()
    host, _, port = str(place).rpartition(":")
    texts = [spark.sparkContext.applicationId.encode(), b"driver", block.encode()]
    lengths = [struct.pack(">i", len(text)) + text for text in texts]
    asked = struct.pack(">b", 0) + lengths[0] + lengths[1] + struct.pack(">i", 1) + lengths[2]
    with socket.create_connection((host, int(port)), timeout=10) as one:
        one.sendall(framed(3, asked))
        one.settimeout(10)
        answer = b""
        while len(answer) < 9:
            more = one.recv(2**16)
            if not more:
                break
            answer += more
    return answer


# PySpark leaves sockets of its own to the garbage collection.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_socket_without_the_secret_gets_no_block(spark: Any) -> None:
    """Broadcasts of tasks hold keys. An answer of the type 4 would name the stream of the block; without
    ``spark.authenticate`` it comes."""
    sent = spark.sparkContext.broadcast(SECRET)
    answer = opened_blocks(spark, f"broadcast_{sent._jbroadcast.id()}")
    sent.destroy()
    assert answer[8:9] != b"\x04"
    assert SECRET.encode() not in answer


@pytest.mark.parametrize("name", sessions._READING)
def test_a_running_session_that_reads_otherwise_is_refused_at_its_step(
    spark: Any, made: Callable[[Any], Any], name: str
) -> None:
    before = spark.conf.get(name)
    other = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.timestampType": "TIMESTAMP_NTZ"}
    turned = {"true": "false", "false": "true", "CORRECTED": "LEGACY"}
    plain = made(table(3))
    keyed = keyed_batch(made(table(3).append_column("who", pa.array([1, 2, 3]))), "who").grant
    wanted = replace(WANTED, reads="present")
    spark.conf.set(name, other.get(name) or turned[before])
    try:
        for use in (lambda: batch(plain).grant(WANTED), lambda: keyed(wanted)):
            with pytest.raises(ConfigError, match=f"the Spark session's {name} changes what is read"):
                use()
    finally:
        spark.conf.set(name, before)
    batch(plain).grant(WANTED)


def test_only_settings_that_change_nothing_may_be_in_the_file() -> None:
    for name in (
        *sessions._READING,
        *sessions._CONNECTIONS,
        "spark.driver.extraJavaOptions",
        "spark.plugins",
    ):
        assert not is_allowed_setting(name)
        with pytest.raises(ConfigError, match="may not change"):
            _check_own(SparkKeys(settings=(f"{name}=true",)))
    for name in ("spark.executor.memory", "spark.sql.shuffle.partitions", "spark.hadoop.fs.s3a.endpoint"):
        assert is_allowed_setting(name)


@pytest.mark.parametrize("kind", ["table", "view", "query", "cached"])
def test_a_table_that_grows_is_read_as_it_is_at_each_step(spark: Any, tmp_path: Path, kind: str) -> None:
    """Within one process, and while one run goes on. A session that lists files once reads none of the new rows."""
    (tmp_path / "t").mkdir()
    pq.write_table(days(3), tmp_path / "t" / "1.parquet")
    if kind == "view":
        spark.read.parquet(str(tmp_path / "t")).createOrReplaceTempView("grows")
    else:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW grows USING parquet OPTIONS (path '{tmp_path}/t')")
    if kind == "cached":
        spark.sql("CACHE TABLE grows")
    source = {"table": "grows", "time_column": "day"}
    if kind == "query":
        source = {"query": "SELECT zip, paid, rent FROM grows WHERE day >= ? AND day < ?"}
    assert counted(tmp_path, **source) == [3]
    pq.write_table(days(4, 1), tmp_path / "t" / "2.parquet")
    two = {"end": str(DAY + datetime.timedelta(1)), **source}
    assert counted(tmp_path, **two) == [3, 4]
    options = SourceOptions.parse({**KEYS, **two})
    steps = iter(open_source(options, ReadOptions(base=tmp_path, columns=SCHEMA.names)).steps())
    next(steps)
    pq.write_table(days(5, 1), tmp_path / "t" / "3.parquet")
    engine = next(steps).engine
    assert engine is not None
    view = engine.grant(replace(WANTED, cliques=((),))).view
    assert view is not None
    assert view.count([()])[0].tolist() == [9]
    spark.catalog.dropTempView("grows")


def test_files_that_exchange_places_during_a_pass_give_no_step(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sizes and the times of writing are the same. Without an exchange the same pass is taken."""
    from dpstream.spark import passes

    paths = [tmp_path / "t" / name for name in ("1.parquet", "2.parquet")]
    paths[0].parent.mkdir()
    for number, path in enumerate(paths):
        pq.write_table(table(3, number), path)
        os.utime(path, (0, 0))
    real = passes.summed

    def summed(*arguments: Any) -> Any:
        found = real(*arguments)
        paths[0].rename(tmp_path / "aside")
        paths[1].rename(paths[0])
        (tmp_path / "aside").rename(paths[1])
        return found

    monkeypatch.setattr(passes, "summed", summed)
    given = batch(spark.read.parquet(str(tmp_path / "t")))
    granted = given.grant(WANTED)
    with pytest.raises(UnreadableError, match="the records changed while the step was read"):
        granted.rows.fingerprint(KEY)
    monkeypatch.undo()
    given.grant(WANTED).rows.fingerprint(KEY)


def test_ids_that_are_no_texts_are_those_of_files(spark: Any, tmp_path: Path) -> None:
    """Two ids that differ in bytes which are no UTF-8 are one id in a file."""
    rows = table(4)
    for number, cells in enumerate(([b"\xff", b"\xfe", b"a", b"b"], [b"\xfe", b"\xff", b"a", b"b"])):
        (tmp_path / str(number)).mkdir()
        who = pa.array(cells, pa.binary()).view(pa.string())
        pq.write_table(rows.append_column("who", who), tmp_path / str(number) / "1.parquet")
    wanted = replace(WANTED, unit="user", max_events=3)
    prints = [
        batch(spark.read.parquet(str(tmp_path / str(number))), users="who")
        .grant(wanted)
        .rows.fingerprint(KEY)
        for number in range(2)
    ]
    assert prints[0] == prints[1]


def started(settings: str, **environment: str) -> subprocess.CompletedProcess[str]:
    run = f"""
from dpstream.core.errors import DpstreamError
from dpstream.spark import session
try:
    session("local[1]", memory="400m", settings={settings})
except DpstreamError as error:
    print(type(error).__name__, error)
"""
    command = [sys.executable, "-W", "ignore", "-c", run]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)


def test_where_spark_does_not_start_there_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("Java is missing")
    (tmp_path / "bin").mkdir()
    none = started("None", JAVA_HOME=str(tmp_path / "nothing"))
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\necho 'Unrecognized option: of mine' >&2\nexit 1\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    failing = started("None", JAVA_HOME=str(tmp_path))
    wrong = started('{"spark.driver.maxResultSize": "lots"}')
    for said, words in (
        (none, "ConfigError [source] kind: JAVA_HOME lacks Java"),
        (failing, "ConfigError [source] kind: Java does not start Spark"),
        (wrong, "ConfigError [source] settings: Spark refuses the settings spark.driver.maxResultSize"),
    ):
        assert said.stdout.startswith(words), said
        assert said.stdout.count("\n") == 1
        assert not said.stderr


def test_a_master_that_does_not_answer_is_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        sessions._require_master(f"spark://127.0.0.1:{port}")
    with pytest.raises(UnreadableError, match="the Spark master cannot be reached"):
        sessions._require_master(f"spark://127.0.0.1:{port}")
    sessions._require_master("yarn")
