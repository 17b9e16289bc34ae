"""A table or a query of Spark as a source: from a file to releases, and what is refused before anything is read."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_stream import dpstream
from small_configs import PAID, ZIP, rewrite
from spark_cases import KEY, SECRET, WANTED, in_process, table

import dpstream as dp
from dpstream.core.errors import ConfigError, DataError, DpstreamError
from dpstream.core.privacy import InsertedRecord, Randomness
from dpstream.io.sources import ReadOptions, SourceOptions, UnreadableError, open_source
from dpstream.project import Config
from dpstream.spark.found_files import FoundFiles

SPARK = 'kind = "spark"\ntable = "parquet.`visits`"\ntime_column = "day"\nevery = "day"\n'
FILE = (
    f'[stream]\nname = "visits"\n[source]\n{SPARK}start = "2026-01-05"\nend = "2026-01-07"\nop_column = "op"\n'
    f'{ZIP}other = "other"\nmissing = "missing"\n{PAID}missing = "none"\n'
    '[mechanism]\nname = "pooled"\nworkload = "all-2-way"\n[budget]\nepsilon = "1"\n'
)
FILES = FILE.replace('kind = "spark"\ntable = "parquet.`visits`"', 'path = "visits/*.parquet"')
DAYS = [datetime.date(2026, 1, 5 + i) for i in (0, 0, 0, 1, 1, 2)]


def visits(rows: int) -> pa.Table:
    """Over three days, the last of them empty but for one row in six; deletes among them."""
    table_ = table(rows).select(["zip", "paid"])
    days = pa.array([DAYS[i % 6] for i in range(rows)], pa.date32())
    ops = pa.array(["delete" if i % 7 == 0 else "insert" for i in range(rows)])
    return table_.append_column("day", days).append_column("op", ops)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "visits").mkdir()
    pq.write_table(visits(600), tmp_path / "visits" / "one.parquet")
    (tmp_path / "dpstream.toml").write_text(FILE, encoding="utf-8")
    return tmp_path


def stops(file: Path, verb: str, words: str) -> None:
    assert words in " ".join(dpstream(verb, file, code=2, error=False).output.split())


def test_a_file_runs_from_check_to_releases_and_compares_on_the_next_run(spark: Any, folder: Path) -> None:
    """The steps are those of the same files read in this process, and their counts (by the stored content) too."""
    file = folder / "dpstream.toml"
    for verb in ("check", "run", "run"):
        dpstream(verb, file)
    manifest = json.loads((folder / "releases/step-000003/manifest.json").read_text(encoding="utf-8"))
    assert manifest["source"]["kind"] == "spark"
    assert "the table decides which records are in a step" in json.dumps(manifest)
    for entry, plain in zip(Config.load(file).source().steps(), plain_source(folder).steps(), strict=True):
        assert (entry.step, entry.batch_id, entry.period) == (plain.step, plain.batch_id, plain.period)
    # A late record changes a released step: the next run stops, and says which step it is.
    pq.write_table(visits(7), folder / "visits" / "two.parquet")
    stops(file, "run", "step 1")
    stops(file, "evaluate", "the true records are in an engine")


def test_records_of_a_table_that_only_grows_count_once_a_key(tmp_path: Path) -> None:
    """``insert_only``: the key takes the place of a user, with a bound of one event."""
    path = tmp_path / "dpstream.toml"
    keyed = FILE.replace('op_column = "op"', 'key_column = "who"\ninsert_only = true')
    path.write_text(keyed.replace('name = "visits"', 'name = "visits"\nunit = "record"'), encoding="utf-8")
    config = Config.load(path)
    assert config.source_options.user_column == "who"
    assert config.plan().unit == InsertedRecord()


def test_a_file_with_users_runs_and_compares_on_the_next_run(spark: Any, folder: Path) -> None:
    """Counters of users are files; a record of nobody stops the stream; a repetition compares users as well."""
    pytest.importorskip("cryptography")
    data = folder / "visits" / "one.parquet"
    rows = pq.read_table(data).slice(0, 60)
    rows = rows.append_column("who", pa.array([f"u{i % 7}" for i in range(60)]))
    pq.write_table(rows, data)
    file = folder / "dpstream.toml"
    person = FILE.replace('name = "visits"', 'name = "visits"\nunit = "user"\nmax_events = 3')
    person = person.replace('end = "2026-01-07"', 'end = "2026-01-05"')
    file.write_text(
        person.replace('op_column = "op"', 'op_column = "op"\nuser_column = "who"'), encoding="utf-8"
    )
    dpstream("run", file)
    assert list((folder / "state" / "users").glob("*/*"))
    pq.write_table(rows.set_column(4, "who", pa.array(["x"] * 60)), data)
    stops(file, "run", "step 1")
    pq.write_table(rows.set_column(4, "who", pa.array([None] + ["x"] * 59)), data)
    stops(file, "check", "lacks a user id")


def test_a_file_whose_values_are_discovered_is_refused_when_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "dpstream.toml"
    text = FILE.replace('values = ["a", "b", "c"]', 'values = "discover"').replace('op_column = "op"\n', "")
    file.write_text(text + '[discovery]\ndelta = "1e-9"\n', encoding="utf-8")
    stops(file, "plan", "values of records that stay in Spark cannot be discovered")


def test_a_file_that_is_gone_before_and_after_a_pass_is_refused(spark: Any, folder: Path) -> None:
    """Whether this machine or Spark alone knows the files' sizes and times."""
    frame = spark.read.parquet(str(folder / "visits"))
    elsewhere = SimpleNamespace(
        inputFiles=frame.inputFiles, sparkSession=SimpleNamespace(read=spark.read)
    )  # as with another file system
    for one in (frame, elsewhere):
        FoundFiles([one], "here").check()
    (folder / "visits" / "one.parquet").unlink()
    for one in (frame, elsewhere):
        with pytest.raises(UnreadableError, match=r"^here: a file was removed while .*run again"):
            FoundFiles([one], "here")


def moments(rows: int) -> pa.Table:
    """What happened to a few keys over three days, in its order; updates and deletes among it."""
    one = table(rows).select(["zip", "paid"])
    start = datetime.datetime(2026, 1, 5)
    at = [start + datetime.timedelta(minutes=7 * i) for i in range(rows)]
    ops = [("insert", "update-after", "insert", "delete")[i % 4] for i in range(rows)]
    one = one.append_column("at", pa.array(at, pa.timestamp("us"))).append_column("op", pa.array(ops))
    return one.append_column("who", pa.array([f"k{i * i % 31}" for i in range(rows)]))


def drawn(config: Any) -> list[Any]:
    return [release.sample().to_pydict() for release in dp.run(config, randomness=Randomness.seeded(5))]


def test_a_file_of_records_that_change_runs_as_over_files(spark: Any, folder: Path) -> None:
    """The same tables from the same noise, whatever the order of Spark's rows; a late update stops the next run."""
    pytest.importorskip("cryptography")
    rows = moments(600)
    data = folder / "visits" / "one.parquet"
    keyed = FILES.replace('time_column = "day"', 'time_column = "at"').replace(
        'name = "pooled"', 'name = "census"\nturnover = 2'
    )
    keyed = keyed.replace('op_column = "op"', 'op_column = "op"\nkey_column = "who"\nunknown = "drop"')
    keyed = keyed.replace('name = "visits"', 'name = "visits"\nunit = "record"')
    plain, file = folder / "plain", folder / "dpstream.toml"
    plain.mkdir()
    (plain / "dpstream.toml").write_text(keyed.replace("visits/*", "../visits/*"), encoding="utf-8")
    file.write_text(
        keyed.replace('path = "visits/*.parquet"', 'kind = "spark"\ntable = "parquet.`visits`"'),
        encoding="utf-8",
    )
    pq.write_table(rows, data)
    made = drawn(plain / "dpstream.toml")
    pq.write_table(rows.take(pa.array(list(range(599, -1, -1)))), data)
    config = Config.load(file)
    assert config.facts()["source"]["own"].get("order_column") is None
    assert any("'at', or two rows of a key" in words for words in config.declared_public())
    assert drawn(config) == made
    assert len(made) == 3
    assert list((folder / "state" / "users").glob("*/*"))
    late = rows.slice(0, 1).set_column(3, "op", pa.array(["delete"]))
    pq.write_table(late, folder / "visits" / "two.parquet")
    stops(file, "run", "step 1")
    stops(file, "check", "column 'at' repeats a value")


def plain_source(folder: Path) -> Any:
    other = folder / "plain.toml"
    other.write_text(FILES, encoding="utf-8")
    return Config.load(other).source()


CALENDAR = {"kind": "spark", "every": "day", "start": "2026-01-05", "end": "2026-01-07"}
TABLE = {**CALENDAR, "table": "parquet.`visits`", "time_column": "day"}


def hashed(step: Any, schema: Any) -> bytes:
    return bytes(step.engine.grant(replace(WANTED, schema=schema, cliques=())).rows.fingerprint(KEY))


def test_the_steps_hold_the_records_of_their_days(spark: Any, folder: Path) -> None:
    """By table and by query, with the content of the same files in process."""
    schema = Config.load(folder / "dpstream.toml").schema()
    plain = [in_process(one.inserts, one.deletes, schema) for one in plain_source(folder).steps()]
    asked = f"SELECT zip, paid, op FROM parquet.`{folder}/visits` WHERE day >= ? AND day < ? -- why?"
    for own in (TABLE, {**CALENDAR, "query": asked}):
        options = SourceOptions.parse({"op_column": "op", **own})
        steps = open_source(options, ReadOptions(base=folder, columns=schema.names)).steps(2)
        expected = [granted.rows.fingerprint(KEY) for granted in plain[1:]]
        assert [hashed(step, schema) for step in steps] == expected


def test_records_without_a_step_stop_the_stream(spark: Any, folder: Path) -> None:
    schema = Config.load(folder / "dpstream.toml").schema()
    for day in (None, datetime.date(2025, 12, 31)):
        row = visits(1).set_column(2, "day", pa.array([day], pa.date32()))
        pq.write_table(row, folder / "visits" / "lost.parquet")
        step = next(iter(Config.load(folder / "dpstream.toml").source().steps()))
        with pytest.raises(DataError, match="a record lacks a time, or precedes the start"):
            hashed(step, schema)
    (folder / "visits" / "lost.parquet").unlink()
    for wrong, error, words in (
        ({"time_column": "zip"}, DataError, "time column of type string"),
        ({"time_column": "never"}, DataError, "unknown column 'never'"),
        ({"table": "nowhere.at_all"}, ConfigError, "Spark refuses the table or the query"),
        ({"op_column": "never"}, DataError, "unknown column 'never'"),
    ):
        options = SourceOptions.parse({**TABLE, **wrong})
        with pytest.raises(error, match=words):
            next(iter(open_source(options, ReadOptions(base=folder, columns=schema.names)).steps()))


TIME, TABLED, OP, NAMED = (
    'time_column = "day"\n',
    'table = "parquet.`visits`"',
    'op_column = "op"',
    'name = "visits"',
)
POOLED = 'name = "pooled"\nworkload = "all-2-way"'
OF_RECORDS = {NAMED: f'{NAMED}\nunit = "record"', POOLED: 'name = "census"'}
MANY = "\n".join(f'[schema.columns.c{i}]\ntype = "integer"\nmin = 1\nmax = 90\n' for i in range(6))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({OP: 'remote = "sc://x;token=abc"'}, "unusable remote"),
        ({OP: 'memory = "lots"'}, "unusable memory"),
        ({OP: 'settings = ["spark.authenticate.secret=abc"]'}, "this file public"),
        ({OP: 'settings = ["memory"]'}, "unknown Spark setting"),
        ({OP: 'order_column = "n"'}, "has no meaning without key_column"),
        ({**OF_RECORDS, OP: f'{OP}\norder_column = "who"\nkey_column = "who"'}, "name one column"),
        # Plans that Spark cannot feed, before anything starts.
        (
            {
                POOLED: 'name = "panel-window"\nwindow = 2',
                OP: 'user_column = "who"',
                "epsilon": "horizon = 3\nrho",
            },
            "the mechanism reads reports; only counts",
        ),
        ({"[mechanism]": f"{MANY}[mechanism]", OP: f'{OP}\nmemory = "4m"'}, "of the Spark driver's 4 MiB"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    path = tmp_path / "dpstream.toml"
    path.write_text(FILE, encoding="utf-8")
    with pytest.raises(DpstreamError, match=words) as caught:
        Config.load(rewrite(path, *chain(*changes.items())))
    assert "abc" not in str(caught.value)


def test_what_is_pinned_and_told(tmp_path: Path) -> None:
    path = tmp_path / "dpstream.toml"
    path.write_text(FILE, encoding="utf-8")
    before = Config.load(path).facts()
    path.write_text(
        FILE.replace('op_column = "op"', 'op_column = "op"\nmaster = "spark://h:7077"\nmemory = "4g"')
    )
    assert Config.load(path).facts() == before, "where it runs may change"
    path.write_text(FILE.replace('op_column = "op"', 'op_column = "op"\nallow_plain_shuffle = true'))
    told = Config.load(path)
    assert told.facts() != before
    assert any("disks and network of the Spark cluster" in words for words in told.declared_public())
    assert told.source_options.repeatable
    assert SECRET not in json.dumps(before)


def test_it_says_how_to_install_what_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigError, match=r"PySpark is not installed.*dpstream\[spark\]"):
        next(iter(Config.load(folder / "dpstream.toml").source().steps()))
