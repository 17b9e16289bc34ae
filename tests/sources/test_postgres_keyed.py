"""A PostgreSQL table's changes and snapshots by key: the history that files tell, with the default replica identity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keyed_history as told
import pytest
from keyed_history import SCHEMA, STEPS, outcome
from postgres_log import FIRST_DAY, ReplicatedTable

from dpstream.core.errors import ConfigError
from dpstream.core.tables import KeyedBatch, Snapshot
from dpstream.io.sources import SourceOptions

if TYPE_CHECKING:
    from postgres_server import Cluster


class Table(ReplicatedTable):
    """A replicated table with a primary key."""

    def __init__(self, server: Cluster, patch: pytest.MonkeyPatch) -> None:
        create = 'CREATE TABLE f (id INT PRIMARY KEY, "group" TEXT, size INT, note TEXT)'
        super().__init__(server, patch, create, "CREATE PUBLICATION p FOR TABLE f")

    def source(self) -> Any:
        return self.open(self.options(key_column="id"), SCHEMA.names)

    def snapshots(self) -> Any:
        given = {"kind": "postgres", "url": self.server.url, "table": "f", "every": "day", "start": FIRST_DAY}
        keyed = {"end": "today", "key_column": "id", "shape": "snapshots"}
        return self.open(SourceOptions.parse({**given, **keyed}), SCHEMA.names)

    def play(self, event: dict[str, Any]) -> None:
        values = (event["group"], event["size"], event["id"])
        statement = {
            "insert": 'INSERT INTO f ("group", size, id) VALUES (%s, %s, %s)',
            "update": 'UPDATE f SET "group" = %s, size = %s WHERE id = %s',
            "delete": "DELETE FROM f WHERE id = %s",
        }[event["op"]]
        self.db.execute(statement.encode(), values if event["op"] != "delete" else values[2:])


@pytest.fixture
def table(server: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    made = Table(server, monkeypatch)
    yield made
    made.close()


def test_the_log_and_the_table_tell_the_history_that_a_file_tells(table: Table, tmp_path: Path) -> None:
    history = told.history(7, keys=15)
    snapshots: list[Any] = []
    for step in range(1, STEPS + 1):
        for event in history.events(step):
            table.play(event)
        table.end_day()
        (snapshot,) = [e for e in table.snapshots().steps(step) if e.step == step]
        snapshots.append(snapshot)
    wanted = outcome(told.read(told.write_feed(history, tmp_path, "feed.csv"), tmp_path))
    changes = list(table.source().steps())
    assert all(isinstance(entry.keyed, KeyedBatch) for entry in changes)
    assert outcome(changes) == wanted
    assert all(isinstance(entry.keyed, Snapshot) for entry in snapshots)
    assert outcome(snapshots) == wanted


def test_a_key_that_changes_is_another_record(table: Table) -> None:
    table.db.execute("INSERT INTO f VALUES (1, 'a', 1)")
    table.end_day()
    table.db.execute("UPDATE f SET id = 2, size = 5")
    table.db.execute("DELETE FROM f")
    table.db.execute("INSERT INTO f VALUES (1, 'b', 3)")
    table.end_day()
    first, second = table.source().steps()
    assert first.keyed.events.to_pylist() == [
        {"group": "a", "size": "1", "id": "1", "operation": "insert"},
    ]
    words = [(row["operation"], row["id"], row["size"]) for row in second.keyed.events.to_pylist()]
    assert words == [("delete", "1", None), ("insert", "2", "5"), ("delete", "2", None), ("insert", "1", "3")]


@pytest.mark.parametrize(
    "identity",
    [
        "ALTER TABLE f REPLICA IDENTITY NOTHING",
        'ALTER TABLE f DROP CONSTRAINT f_pkey, ADD PRIMARY KEY (id, "group")',
        "ALTER TABLE f DROP CONSTRAINT f_pkey",
    ],
)
def test_a_log_that_does_not_name_the_key_is_refused(identity: str, table: Table) -> None:
    table.db.execute("INSERT INTO f VALUES (1, 'a', 1)")
    table.db.execute(identity.encode())
    table.end_day()
    with pytest.raises(ConfigError, match="lacks the 'id'"):
        list(table.source().steps())


@pytest.mark.parametrize(
    "identity",
    [
        "ALTER TABLE f REPLICA IDENTITY FULL",
        "CREATE UNIQUE INDEX u ON f (id); ALTER TABLE f REPLICA IDENTITY USING INDEX u",
    ],
)
def test_other_identities_that_name_it_are_taken(identity: str, table: Table) -> None:
    table.db.execute(identity.encode())
    table.db.execute("INSERT INTO f VALUES (1, 'a', 1); UPDATE f SET size = 2; DELETE FROM f")
    table.end_day()
    (entry,) = table.source().steps()
    words = [(row["operation"], row["id"], row["size"]) for row in entry.keyed.events.to_pylist()]
    assert words == [("insert", "1", "1"), ("update", "1", "2"), ("delete", "1", None)]


def test_a_partitioned_table_names_its_key_in_each_partition(table: Table) -> None:
    table.db.execute(
        'DROP TABLE f; CREATE TABLE f (id INT PRIMARY KEY, "group" TEXT, size INT) PARTITION BY RANGE (id); '
        "CREATE TABLE f_low PARTITION OF f FOR VALUES FROM (0) TO (10); "
        "CREATE TABLE f_high PARTITION OF f FOR VALUES FROM (10) TO (20); "
        "DROP PUBLICATION p; CREATE PUBLICATION p FOR TABLE f WITH (publish_via_partition_root = true)"
    )
    table.db.execute("INSERT INTO f VALUES (1, 'a', 1), (11, 'b', 2)")
    table.db.execute("UPDATE f SET size = 3 WHERE id = 11")
    table.db.execute("DELETE FROM f WHERE id = 1")
    table.end_day()
    (entry,) = table.source().steps()
    words = [(row["operation"], row["id"]) for row in entry.keyed.events.to_pylist()]
    assert words == [("insert", "1"), ("insert", "11"), ("update", "11"), ("delete", "1")]
    table.db.execute("ALTER TABLE f_high REPLICA IDENTITY NOTHING")
    table.end_day()
    with pytest.raises(ConfigError, match="lacks the 'id'"):
        list(table.source().steps())
