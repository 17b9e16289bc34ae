"""What every sink has to do: releases once, replays without trace, withdrawals, one stream only."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError
from dpstream.core.schema import Categorical, Date, Real, Schema
from dpstream.io.sinks import DuckDBFeed, PostgresFeed, Publisher, StandardOutput, StepFiles, database_feed
from dpstream.io.sinks.change_tables import apply_changes, content_sha256
from dpstream.io.sinks.database_feed import DatabaseFeed
from dpstream.stream.release.manifest import descriptor

SCHEMA = Schema(
    [
        Categorical("zip 'code\" in %s", ["a", "b"], missing="missing"),
        Real("rent", [0, 500, 1000]),
        Date("filed", start="2024-01-01", end="2024-01-31", every="day"),
    ]
)
FIELDS = descriptor(SCHEMA)["resources"][0]["schema"]["fields"]
RECORD_ID = {"name": "record_id", "type": "integer"}


@dataclass
class Case:
    """A sink, and a way to look at the table beside the folder."""

    make: Callable[[], Publisher]
    look: Callable[[], list[tuple[Any, ...]] | None]
    out: io.BytesIO | None = None


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.fixture(params=["parquet", "csv", "duckdb", "duckdb-csv", "postgresql", "stdout"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    kind = request.param
    form: Any = "csv" if kind.endswith("csv") else "parquet"
    if kind in ("parquet", "csv"):
        return Case(lambda: Publisher(tmp_path / "releases", format=form), lambda: None)
    if kind == "stdout":
        out = io.BytesIO()
        return Case(lambda: Publisher(tmp_path / "releases", beside=StandardOutput(out)), lambda: None, out)
    if kind.startswith("duckdb"):
        duckdb = pytest.importorskip("duckdb")
        path = tmp_path / "releases.duckdb"

        def look() -> list[tuple[Any, ...]]:
            with duckdb.connect(str(path)) as db:
                return sorted(db.execute("SELECT * FROM synthetic").fetchall())

        return Case(lambda: Publisher(tmp_path / "releases", format=form, beside=DuckDBFeed(path)), look)
    psycopg = pytest.importorskip("psycopg")
    conninfo = f"host={request.getfixturevalue('postgres').home} user=dpstream dbname=postgres"
    with psycopg.connect(conninfo) as db:
        db.execute("DROP TABLE IF EXISTS synthetic, synthetic_steps")

    def ask() -> list[tuple[Any, ...]]:
        with psycopg.connect(conninfo) as db:
            return sorted(db.execute("SELECT * FROM synthetic").fetchall())

    return Case(lambda: Publisher(tmp_path / "releases", beside=PostgresFeed(conninfo)), ask)


def table(ids: list[int], later: int = 0) -> Any:
    import numpy as np

    codes = [[(one + later) % (2 + later), one % 2, one % 31] for one in ids]
    codes = np.array(codes, dtype=np.int32).reshape(-1, 3)
    return SCHEMA.decode(codes, 1).add_column(0, "record_id", pa.array(ids, pa.int64()))


def changes(gone: list[int], come: list[int], before: Any, updated: tuple[int, ...] = ()) -> Any:
    left = before.filter(pa.array([one in gone for one in before["record_id"].to_pylist()], pa.bool_()))
    words = ["delete"] * len(gone) + ["update"] * len(updated) + ["insert"] * len(come)
    rows = pa.concat_tables([left, table([*updated], later=1), table(come)]).combine_chunks()
    return rows.add_column(0, "op", pa.array(words, pa.string()))


def files(
    sink: Publisher,
    step: int,
    *,
    full: Any = None,
    change: Any = None,
    stream: str = "aa",
    leads_to: Any = None,
) -> dict[str, bytes]:
    parts = ({} if full is None else sink.render(full)) | (
        {} if change is None else sink.render_changes(change)
    )
    hashes = {name: {"sha256": hashlib.sha256(data).hexdigest()} for name, data in parts.items()}
    manifest: dict[str, Any] = {
        "format": 1,
        "step": step,
        "stream": "test",
        "stream_id": stream,
        "files": hashes,
    }
    if leads_to is not None or full is not None:
        manifest["rows_in_table"] = (leads_to or full).num_rows
        manifest["records"] = {"kind": "persistent", "content_sha256": content_sha256(leads_to or full)}
    return {**parts, "manifest.json": json.dumps(manifest).encode()}


def publish(sink: Publisher, step: int, release: Mapping[str, bytes]) -> None:
    for target in sink.targets:
        target.put(StepFiles.of(step, release, FIELDS))


def list_steps(sink: Publisher, entries: list[dict[str, Any]]) -> None:
    catalogue = {"format": 1, "part_steps": 100, "closed_parts": 0, "stream_id": "aa", "steps": entries}
    sink.index("catalogue.json", json.dumps(catalogue).encode())


def folder_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def digest(release: dict[str, bytes]) -> str:
    return hashlib.sha256(release["manifest.json"]).hexdigest()


FIRST = table([1, 2, 3, 4])
CHANGE = changes([2, 3], [5, 6, 7], FIRST, updated=(1, 4))
SECOND = apply_changes(FIRST, CHANGE)


def test_publishing_twice_is_publishing_once(case: Case) -> None:
    """Tables and changes; a step without a change, and one that empties the table."""
    sink, nothing = case.make(), table([])
    after = [FIRST, SECOND, table([1, 9]), table([1, 9]), nothing, nothing]
    releases = [files(sink, 1, full=FIRST), files(sink, 2, change=CHANGE), files(sink, 3, full=after[2])]
    releases += [files(sink, 4, change=changes([], [], after[2]))]
    releases += [files(sink, 5, change=changes([1, 9], [], after[3]))]
    releases += [files(sink, 6, change=changes([], [], nothing))]
    for step, (release, rows) in enumerate(zip(releases, after, strict=True), start=1):
        for _ in range(2):
            publish(sink, step, release)
        again = case.make()  # as after a crash
        publish(again, step, release)
        assert again.published("aa")[step] == digest(release)
        if case.look() is not None:
            assert case.look() == rows_of(rows)
    for step, release in enumerate(releases, start=1):  # all of them, from the first one on
        publish(case.make(), step, release)
    if case.look() is not None:
        assert case.look() == []
    assert sorted(case.make().published("aa")) == [1, 2, 3, 4, 5, 6]


def drop_writes(kind: str, patch: pytest.MonkeyPatch) -> None:
    """The control: a place that takes everything and keeps nothing, or not all."""
    if kind == "nothing":
        patch.setattr(durable, "commit", lambda db: db.execute("ROLLBACK"))
        patch.setattr(durable, "write_file", lambda path, data, *, mode: path.touch())
    elif kind == "no rows":
        for feed in (DuckDBFeed, PostgresFeed):
            patch.setattr(feed, "_insert", lambda self, db, rows: None)
        patch.setattr(durable, "write_file", lambda path, data, *, mode: path.write_bytes(data[:-1]))
    else:
        for feed in (DuckDBFeed, PostgresFeed):
            insert = feed._insert

            def other(self: Any, db: Any, rows: Any, insert: Any = insert) -> None:
                """As many rows, one of them another one."""
                at = rows.column_names.index("rent")
                rent = pa.array([7.0, *rows["rent"].to_pylist()[1:]], rows.schema.field("rent").type)
                insert(self, db, rows.set_column(at, rows.schema.field("rent"), rent))

            patch.setattr(feed, "_insert", other)
        patch.setattr(durable, "write_file", lambda path, data, *, mode: path.write_bytes(data[::-1]))


@pytest.mark.parametrize("kind", ["nothing", "no rows", "another row"])
@pytest.mark.parametrize("change", [False, True])
def test_what_is_not_stored_is_not_published(
    case: Case, kind: str, change: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sink that can be read: all but standard output, whose folder is."""
    sink = case.make()
    publish(sink, 1, files(sink, 1, full=FIRST))
    second = files(sink, 2, change=CHANGE, leads_to=SECOND) if change else files(sink, 2, full=SECOND)
    with monkeypatch.context() as patch:
        drop_writes(kind, patch)
        with pytest.raises((StoreError, StoreDamagedError)):
            publish(case.make(), 2, second)
    if case.look() is not None:
        # The folder's writes were dropped first: now those of the database alone.
        shutil.rmtree(sink.directory / "step-000002", ignore_errors=True)
        real = durable.write_file
        with monkeypatch.context() as patch:
            drop_writes(kind, patch)
            patch.setattr(durable, "write_file", real)
            with pytest.raises(StoreError, match="another connection does not find step"):
                publish(case.make(), 2, second)


def test_releases_are_compared_and_restored(case: Case, tmp_path: Path) -> None:
    sink = case.make()
    empty = table([1, 4, 7], later=1)  # of whose texts a CSV file says nothing, not even that they are texts
    tables = [FIRST, SECOND, table([1, 9]), table([2, 3]), empty]
    given = {n: files(sink, n, full=one) for n, one in enumerate(tables, start=1)}
    committed = {
        step: {name: hashlib.sha256(data).hexdigest() for name, data in release.items()}
        for step, release in given.items()
    }
    entries = [
        {"step": n, "state": "full", "kept": True, "manifest_sha256": one["manifest.json"]}
        for n, one in committed.items()
    ]
    for step, release in given.items():
        publish(sink, step, release)
    book = json.dumps({**descriptor(SCHEMA), "resources": [{"schema": {"fields": [*FIELDS, RECORD_ID]}}]})
    sink.index("codebook.json", book.encode())
    list_steps(sink, entries)
    for deep in (False, True):
        assert case.make().compared(committed, deep=deep) == {}
    (name,) = (one for one in given[1] if one != "manifest.json")
    shutil.rmtree(sink.directory / "step-000001")
    (sink.directory / "step-000005" / name).unlink()
    found = case.make().compared(committed, deep=False)
    assert dict(found) == {(1, name): "missing", (1, "manifest.json"): "missing", (5, name): "missing"}
    before = case.out and case.out.getvalue()
    for step in (1, 5):
        for target in case.make().targets:
            target.put(StepFiles.of(step, given[step], FIELDS), mend=True)
    assert (case.out and case.out.getvalue()) == before, "told once"
    for deep in (False, True):
        assert case.make().compared(committed, deep=deep) == {}
    (sink.directory / "step-000001" / name).write_bytes(b"edited")
    assert case.make().compared(committed, deep=False) == {}
    assert case.make().compared(committed, deep=True) == {(1, name): "changed"}
    (sink.directory / "step-000001" / name).write_bytes(given[1][name])
    (sink.directory / "step-000004" / name).write_bytes(b"edited")
    assert case.make().compared(committed, deep=False) == {(4, name): "changed"}


def test_a_lost_database_gets_what_the_store_makes(case: Case, tmp_path: Path) -> None:
    """Of a change whose step before was withdrawn: its whole table; and nothing that lies in the folder."""
    lost, third = case.make(), apply_changes(SECOND, follow := changes([1], [8], SECOND))
    given = files(lost, 3, change=follow, leads_to=third)
    withdrawn = {number: files(lost, number, full=table([number])) for number in (2, 4)}
    lost.targets[0].put(StepFiles.of(3, given))
    (lost.directory / "step-000003" / lost.table_name).write_bytes(b"from somewhere else")
    made = StepFiles(3, list(given), given.__getitem__, fields=FIELDS, whole=lambda: third)
    for target in case.make().targets:
        target.put(made, mend=True)
        for number, release in withdrawn.items():
            staying = {"manifest.json": release["manifest.json"], "withdrawn.json": b"{}"}
            target.withdraw(number, [lost.table_name], staying)
    notes = {number: digest(one) for number, one in withdrawn.items()}
    if case.look() is not None:
        assert case.look() == rows_of(third)
        assert case.make().published("aa") == {3: digest(given), **notes}
        publish(case.make(), 5, files(lost, 5, change=changes([8], [9], third)))
        assert case.look() == rows_of(third), "a change of a withdrawn step waits"
    for name in ("table.csv", "manifest.json", "withdrawn.json"):
        path = lost.directory / "step-000002" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}")
    shutil.rmtree(lost.directory / "step-000003")
    assert dict(case.make().compared({}, deep=False, withdrawn=notes)) == {(2, "table.csv"): "withdrawn"}


def test_another_release_or_stream_is_refused(case: Case, tmp_path: Path) -> None:
    sink = case.make()
    publish(sink, 1, files(sink, 1, full=FIRST))
    list_steps(sink, [])
    with pytest.raises(StoreDamagedError):
        publish(case.make(), 1, files(sink, 1, full=SECOND))
    folder, good = sink.directory / "step-000001", files(sink, 1, full=FIRST)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    for wrong in ({sink.table_name: b"other"}, {"more.txt": b""}, {"manifest.json": b"{}"}):
        with pytest.raises(StoreDamagedError, match="differ from the committed bytes"):
            sink.targets[0].put(StepFiles.of(1, {**good, **wrong}))
    with pytest.raises(StoreDamagedError, match="differ from the committed bytes"):
        sink.targets[0].put(StepFiles.of(1, {"manifest.json": good["manifest.json"]}))
    sink.targets[0].put(StepFiles.of(1, good))
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert folder_files(folder) == good
    with pytest.raises(StoreDamagedError, match="another stream"):
        case.make().published("bb")
    if case.look() is not None:
        shutil.rmtree(tmp_path / "releases")  # the database still knows
        with pytest.raises(StoreDamagedError, match="another stream"):
            case.make().published("bb")
        with pytest.raises(StoreDamagedError, match="another stream"):
            publish(case.make(), 2, files(sink, 2, full=SECOND, stream="bb"))
        assert case.look() == rows_of(FIRST)


@pytest.mark.parametrize("call", ["commit", "rename", "sync_directory", "sync_file", "write"])
def test_a_publication_that_stopped_is_replayed(
    case: Case, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every durable call in turn; before the replay readers see the old table, whole."""
    sink = case.make()
    publish(sink, 1, files(sink, 1, full=FIRST))
    release = files(sink, 2, change=CHANGE)
    original = getattr(durable, call)
    stopped = 0
    for at in range(1, 10):
        seen = 0

        def fail(*arguments: Any, at: int = at) -> None:
            nonlocal seen
            seen += 1
            if seen == at:
                raise OSError(28, "No space left on device")
            original(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(durable, call, fail)
            try:
                publish(case.make(), 2, release)
            except OSError:
                stopped += 1
                folder = sink.directory / "step-000002"
                assert not folder.exists() or folder_files(folder) == release
                if case.look() is not None:
                    assert case.look() in (rows_of(FIRST), rows_of(SECOND))
                continue
        break
    assert stopped or (call == "commit" and case.look() is None)
    publish(case.make(), 2, release)
    assert {path.name for path in sink.directory.iterdir()} == {"step-000001", "step-000002"}
    assert case.make().published("aa")[2] == digest(release)
    if case.look() is not None:
        assert case.look() == rows_of(SECOND)


def test_tables_expire_and_are_withdrawn(case: Case, tmp_path: Path) -> None:
    sink = case.make()
    first, second = files(sink, 1, full=FIRST), files(sink, 2, full=SECOND, change=CHANGE)
    publish(sink, 1, first)
    publish(sink, 2, second)
    left = sink.directory / ".publishing.tmp" / "0123"  # of an interrupted attempt
    left.mkdir(parents=True)
    shutil.copy(sink.directory / "step-000002" / sink.table_name, left)
    for _ in range(2):
        notice = {"manifest.json": second["manifest.json"], "withdrawn.json": b"{}"}
        for target in case.make().targets:
            target.withdraw(1, [name for name in first if name != "manifest.json"], {})
            target.withdraw(2, [name for name in second if name != "manifest.json"], notice)
    there = {str(path.relative_to(sink.directory)) for path in sink.directory.rglob("*") if path.is_file()}
    assert there == {"step-000001/manifest.json", "step-000002/manifest.json", "step-000002/withdrawn.json"}
    if case.look() is not None:
        assert case.look() == [], "the withdrawn table is gone"
        follow = changes([1], [8], SECOND)
        publish(sink, 3, files(sink, 3, change=follow))
        assert case.look() == [], "changes wait for the table that they change"
        publish(sink, 4, files(sink, 4, full=table([1, 8])))
        assert case.look() == rows_of(table([1, 8]))
    assert set(case.make().published("aa")) >= {1, 2}


def test_standard_output_is_whole_steps_in_order(tmp_path: Path) -> None:
    out = io.BytesIO()
    sink = Publisher(tmp_path / "releases", beside=StandardOutput(out))
    publish(sink, 1, files(sink, 1, full=FIRST))
    publish(sink, 2, files(sink, 2, full=SECOND, change=CHANGE))
    after_crash = io.BytesIO()
    again = Publisher(tmp_path / "releases", beside=StandardOutput(after_crash))
    publish(again, 2, files(sink, 2, full=SECOND, change=CHANGE))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["event"] for line in lines if "event" in line] == ["begin", "end"] * 2
    assert [line["kind"] for line in lines if "event" in line] == ["table"] * 2 + ["changes"] * 2
    second = [line for line in lines if line["step"] == 2 and "event" not in line]
    assert [line["op"] for line in second] == ["delete"] * 2 + ["update"] * 2 + ["insert"] * 3
    lines = [json.loads(line) for line in after_crash.getvalue().splitlines()]
    assert (lines[0]["kind"], lines[-1]["rows"]) == ("table", SECOND.num_rows)
    assert [line["record_id"] for line in lines[1:-1]] == SECOND["record_id"].to_pylist()


def test_a_database_that_is_away_or_misspelt_is_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    malformed = (ConfigError, "write @ : / in names as %40 %3A %2F")
    for url, (error, words) in {
        f"host={tmp_path} user=nobody dbname=none": (StoreError, "database error:"),
        "postgresql//host/releases": malformed,
        "postgresql://host:many/releases": malformed,
    }.items():
        with pytest.raises(error, match=words):
            PostgresFeed(url).have("aa")


def test_drivers_are_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ConfigError, match=r"pip install 'dpstream\[duckdb\]'"):
        DuckDBFeed(tmp_path / "x.duckdb").withdraw(1, (), {"manifest.json": b""})


def test_a_late_release_reads_no_more_notes_than_an_early_one(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of ``<table>_steps`` that a database reads for one release, after 3 and after 203."""
    sink = case.make()
    feed = sink.targets[-1]
    if not isinstance(feed, DatabaseFeed):
        pytest.skip("keeps no notes in a database")
    read, run = [0], feed._run

    class Rows:
        def __init__(self, rows: Any) -> None:
            self._rows = rows

        def fetchall(self) -> list[Any]:
            found: list[Any] = self._rows.fetchall()
            read[0] += len(found)
            return found

        def fetchone(self) -> Any:
            read[0] += 1
            return self._rows.fetchone()

    monkeypatch.setattr(feed, "_run", lambda *arguments: Rows(run(*arguments)))
    counts = {}
    for step in (1, 2, 3, 4, 204):
        if step == 204:
            with feed._transaction() as db:
                for filler in range(5, 204):
                    run(db, f"INSERT INTO {feed._steps} VALUES (?, ?, ?, ?)", (filler, "aa", "00", "past"))
        read[0] = 0
        publish(sink, step, files(sink, step, full=FIRST))
        counts[step] = read[0]
    assert counts[4] > 0
    assert counts[204] <= counts[4]


def test_what_readers_made_of_a_table_stays(
    postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grant, an index, a view and a reader who is idle in a transaction, under fresh tables; with other columns a
    reader in a transaction stops the release with a sentence, and no other reader."""
    import psycopg

    monkeypatch.setattr(database_feed, "LOCK_SECONDS", 1)
    url = f"host={postgres.home} user=dpstream dbname=postgres"
    sink = Publisher(tmp_path / "releases", beside=PostgresFeed(url, table="kept"))
    first, second = (rows.drop_columns(["record_id"]) for rows in (FIRST, SECOND))
    publish(sink, 1, files(sink, 1, full=first))
    reader_url = url.replace("user=dpstream", "user=reader")
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP ROLE IF EXISTS reader")
        db.execute("CREATE ROLE reader LOGIN")
        db.execute("GRANT SELECT ON kept TO reader")
        db.execute("CREATE INDEX by_rent ON kept (rent)")
        db.execute("CREATE VIEW cheap AS SELECT rent FROM kept WHERE rent < 500")

    def numbers() -> tuple[int, int, int]:
        with psycopg.connect(reader_url) as reader, psycopg.connect(url) as db:
            rows = reader.execute("SELECT count(*) FROM kept").fetchone()
            view = db.execute("SELECT count(*) FROM cheap").fetchone()
            index = db.execute("SELECT count(*) FROM pg_indexes WHERE indexname = 'by_rent'").fetchone()
        assert rows is not None
        assert view is not None
        assert index is not None
        return rows[0], view[0], index[0]

    def cheap(rows: Any) -> int:
        return sum(1 for rent in rows["rent"].to_pylist() if rent < 500)

    with psycopg.connect(reader_url) as idle:
        seen = idle.execute("SELECT count(*) FROM kept").fetchone()
        publish(sink, 2, files(sink, 2, full=second))
        assert numbers() == (second.num_rows, cheap(second), 1)
        assert seen == (first.num_rows,)
        # Records persist from here on: the table gets a column, which waits for readers.
        persistent = files(sink, 3, full=FIRST)
        with pytest.raises(StoreError, match="locks kept for 1 seconds"):
            publish(sink, 3, persistent)
        assert numbers() == (second.num_rows, cheap(second), 1), "no other reader waits"
    publish(sink, 3, persistent)
    assert numbers() == (FIRST.num_rows, cheap(FIRST), 1)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE VIEW named AS SELECT record_id FROM kept")
    with pytest.raises(StoreError, match=r"a view of kept uses a column .* drop that view"):
        publish(sink, 4, files(sink, 4, full=second))
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP VIEW named")
    publish(sink, 4, files(sink, 4, full=second))
    sink.targets[1].withdraw(4, [], {"manifest.json": files(sink, 4, full=second)["manifest.json"]})
    assert numbers() == (0, 0, 1)
