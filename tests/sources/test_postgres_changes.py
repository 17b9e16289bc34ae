"""Logical replication as a source: every change once, in the step of its commit, whatever stops in between."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keyed_history as told
import pytest
from keyed_history import SCHEMA, STEPS, outcome
from postgres_log import FIRST_DAY, FIRST_DAY_NUMBER, ReplicatedTable

from dpstream.core.errors import ConfigError, DataError, StepError
from dpstream.core.tables import KeyedBatch, Snapshot
from dpstream.io.sources import SourceOptions, UnreadableError, replication
from dpstream.io.sources import pg_session as server_module

if TYPE_CHECKING:
    from postgres_server import Cluster

SECRET = "Q7731"
COLUMNS = ("zip", "rent")


class Feed(ReplicatedTable):
    """A replicated table whose log has whole old rows.

    A stored step keeps the position; ``crash`` loses what the source would have done after the commit.
    """

    def __init__(self, server: Cluster, patch: pytest.MonkeyPatch, **changes: Any) -> None:
        self.changes = changes
        self.step, self.position = 0, None
        super().__init__(
            server,
            patch,
            "CREATE TABLE f (id SERIAL PRIMARY KEY, zip TEXT, rent NUMERIC, note TEXT, who TEXT)",
            "CREATE TABLE other (id INT)",
            "ALTER TABLE f REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE f, other",
        )

    def options(self, **keys: Any) -> SourceOptions:
        return super().options(**{**self.changes, **keys})

    def entries(
        self, *, until: int | None = None, crash: bool = False, begun: Mapping[str, int] | None = None
    ) -> Iterator[Any]:
        """Steps of the days that are over, each kept as the store would."""
        source = self.open(self.options(), COLUMNS)
        if begun is not None:
            source.resume(self.step + 1, begun)
        for entry in source.steps(self.step + 1, seen=self.position):
            if until is not None and entry.step > until:
                return
            yield entry
            self.step, self.position = entry.step, dict(source.position)
            if crash:
                return
            source.committed(self.position)

    def take(self, **more: Any) -> list[tuple[list[str], list[str]]]:
        return [
            (sorted(entry.inserts["zip"].to_pylist()), sorted(entry.deletes["zip"].to_pylist()))
            for entry in self.entries(**more)
        ]

    def place(self) -> int:
        query = "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots"
        return int(self.db.execute(query).fetchone()[0])  # type: ignore[index]

    def add(self, *zips: str, rent: float = 1) -> None:
        for zip_code in zips:
            self.db.execute("INSERT INTO f (zip, rent) VALUES (%s, %s)", (zip_code, rent))


@pytest.fixture
def feed(server: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    made = Feed(server, monkeypatch)
    yield made
    made.close()


def test_inserts_updates_and_deletes(feed: Feed) -> None:
    feed.add("a", "b", "c")
    feed.db.execute("INSERT INTO other VALUES (1)")
    feed.end_day()
    feed.db.execute("UPDATE f SET zip = 'B' WHERE zip = 'b'")
    feed.db.execute("UPDATE f SET note = 'no column of the stream'")
    feed.db.execute("DELETE FROM f WHERE zip = 'a'")
    feed.db.execute("BEGIN; INSERT INTO f (zip) VALUES ('never'); ROLLBACK")
    feed.end_day()
    feed.end_day()
    assert feed.take() == [(["a", "b", "c"], []), (["B"], ["a", "b"]), ([], [])]
    assert feed.take() == []
    assert feed.place() == feed.position["done"], "nothing is kept for us any more"  # type: ignore[index]


def test_texts_are_those_of_a_csv_file(feed: Feed) -> None:
    feed.db.execute("DROP TABLE f")
    feed.db.execute(
        "CREATE TABLE f (zip TEXT, rent NUMERIC, yes BOOLEAN, day DATE, at TIMESTAMPTZ, x DOUBLE PRECISION, "
        "padded CHAR(5), who BIGINT); ALTER TABLE f REPLICA IDENTITY FULL; ALTER PUBLICATION p ADD TABLE f"
    )
    feed.db.execute("SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'")
    feed.db.execute(
        "INSERT INTO f VALUES ('', 1.50, true, '05.01.2026', '2026-01-05 12:00Z', 0.1, 'ab', 7); "
        "INSERT INTO f DEFAULT VALUES"
    )
    feed.end_day()
    names = ("zip", "rent", "yes", "day", "at", "x", "padded")
    source = feed.open(feed.options(user_column="who"), names)
    (entry,) = source.steps()
    assert [tuple(row.values()) for row in entry.inserts.to_pylist()] == [
        ("", "1.50", "true", "2026-01-05", "2026-01-05 12:00:00+00", "0.1", "ab"),
        (None,) * 7,
    ]
    assert entry.users[0].to_pylist() == ["7", None]
    # The same values from the table itself.
    cells = ", ".join(f"{name}::text" for name in names)
    with server_module.Session(feed.options()) as session:
        assert session.rows(f"SELECT {cells} FROM public.f")[0] == tuple(
            entry.inserts.to_pylist()[0].values()
        )


def test_large_values_that_an_update_leaves_alone(feed: Feed) -> None:
    """They are not sent again with the new row; the old row has them."""
    feed.db.execute("ALTER TABLE f ALTER COLUMN zip SET STORAGE EXTERNAL")
    large = "z" * 9000
    feed.add(large)
    feed.end_day()
    feed.db.execute("UPDATE f SET rent = 2")
    feed.end_day()
    assert feed.take() == [([large], []), ([large], [large])]


def test_a_crash_between_the_commit_and_the_slots_move(feed: Feed) -> None:
    """The step is durable and the slot is behind: nothing is read twice, and then the slot moves."""
    feed.add("a")
    feed.end_day()
    feed.add("b")
    before = feed.place()
    assert feed.take(crash=True) == [(["a"], [])]
    assert feed.place() == before
    feed.end_day()
    assert feed.take(crash=True) == [(["b"], [])]
    # A server that crashes forgets where the slot was moved to; it is told again.
    feed.add("c")
    feed.end_day()
    feed.db.close()
    feed.server.stop("immediate")
    feed.server.start()
    feed.db = feed.server.connect()
    assert feed.place() <= feed.position["done"]  # type: ignore[index]
    assert feed.take() == [(["c"], [])]


def test_a_slot_that_is_ahead_has_lost_changes(feed: Feed) -> None:
    feed.add("a")
    feed.end_day()
    feed.take()
    feed.add("b")
    feed.db.execute("SELECT count(*) FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, "
                    "'proto_version', '1', 'publication_names', 'p')")  # fmt: skip
    feed.end_day()
    with pytest.raises(StepError, match="the slot is ahead of the released steps"):
        feed.take()
    # Made again under its name: as bad.
    feed.drop_slot()
    feed.make_slot()
    with pytest.raises(StepError, match="the slot is ahead of the released steps"):
        feed.take()
    feed.position["system"] += 1  # type: ignore[index]
    with pytest.raises(StepError, match="the released steps came from another server"):
        feed.take()


@pytest.mark.parametrize("late", ["error", "next-step", "drop-and-count-nothing"])
def test_commit_times_out_of_order(feed: Feed, late: str) -> None:
    """A clock that goes back within what is read moves nothing; one that goes back behind it makes late changes."""
    feed.changes["late"] = late
    feed.add("one")
    border = len(feed.borders)
    feed.end_day()
    feed.add("two")  # of the second day, and in the log before ...
    early = feed.borders.pop(border)
    feed.add("one again")
    last = feed.now()

    times = {"set back": False}

    def day(moment: int) -> int:
        if moment <= early or (moment <= last and times["second"] < moment):
            return FIRST_DAY_NUMBER  # ... changes of the first day
        return FIRST_DAY_NUMBER + (0 if times["set back"] and moment > last else 1)

    begun = [
        replication.parse(bytes(data)).moment  # type: ignore[union-attr]
        for (data,) in feed.db.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes('s', NULL, NULL, 'proto_version', '1', "
            "'publication_names', 'p') WHERE get_byte(data, 0) = 66"
        )
    ]
    times["second"] = begun[-2]
    replication.commit_day = day  # restored by the fixture
    feed.borders = [0]
    assert feed.take() == [(["one", "one again"], [])]
    assert feed.place() == feed.position["done"] < feed.position["read"]  # type: ignore[index]
    times["set back"] = True
    feed.add("late")
    feed.borders = [0, 0]
    if late == "error":
        with pytest.raises(DataError, match="the server's clock went back"):
            feed.take()
    else:
        expected = ["late", "two"] if late == "next-step" else ["two"]
        assert feed.take() == [(expected, [])]
        feed.borders = [0, 0, 0]
        assert feed.take() == [([], [])], "and nothing twice"


def test_changes_are_those_of_a_plain_log_kept_by_a_trigger(feed: Feed) -> None:
    """Brute force: several writers, subtransactions and rollbacks; every reading stops at a random step."""
    import random

    draw = random.Random(5)
    sessions = [feed.server.connect() for _ in range(3)]
    expected: list[Counter[tuple[str, str]]] = []
    found: list[Counter[tuple[str, str]]] = []
    open_changes: dict[int, list[tuple[str, str]]] = {}
    current: Counter[tuple[str, str]] = Counter()
    serial = 0
    for _ in range(400):
        number = draw.randrange(3)
        db = sessions[number]
        if number not in open_changes:
            db.execute("BEGIN")
            open_changes[number] = []
        elif draw.random() < 0.3:
            done = draw.random() < 0.8
            db.execute("COMMIT" if done else "ROLLBACK")
            changes = open_changes.pop(number)
            current.update(changes if done else [])
        else:
            serial += 1
            name = f"{number}-{serial}"
            db.execute("SAVEPOINT s")
            db.execute("INSERT INTO f (zip, who) VALUES (%s, %s)", (name, str(number)))
            changes = [("+", name)]
            if draw.random() < 0.4:
                db.execute("UPDATE f SET zip = %s WHERE zip = %s", (name + "!", name))
                changes += [("-", name), ("+", name + "!")]
                if draw.random() < 0.5:
                    db.execute("DELETE FROM f WHERE zip = %s", (name + "!",))
                    changes += [("-", name + "!")]
            if draw.random() < 0.2:
                db.execute("ROLLBACK TO s")
                changes = []
            open_changes[number] += changes
        if draw.random() < 0.05:
            feed.end_day()
            expected.append(current)
            current = Counter()
            if draw.random() < 0.4:
                for other in list(open_changes):
                    sessions[other].execute("COMMIT")
                    current.update(open_changes.pop(other))
                stop, crash = draw.randrange(1, 12), draw.random() < 0.5
                found += [_net(entry) for entry in feed.entries(crash=crash, until=stop)]
    for other in list(open_changes):
        sessions[other].execute("COMMIT")
        current.update(open_changes.pop(other))
    feed.end_day()
    expected.append(current)
    found += [_net(entry) for entry in feed.entries()]
    assert found == expected
    assert len(expected) > 8
    for db in sessions:
        db.close()


def _net(entry: Any) -> Counter[tuple[str, str]]:
    signs = (("+", entry.inserts), ("-", entry.deletes))
    return Counter((sign, value) for sign, part in signs for value in part["zip"].to_pylist())


def test_an_open_transaction_is_given_a_moment(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is just committing is waited for; one that stays open will be of a later day."""
    with feed.server.connect() as slow:
        slow.execute("BEGIN; INSERT INTO f (zip) VALUES ('slow')")
        feed.add("quick")
        feed.end_day()
        assert feed.take() == [(["quick"], [])]
        feed.borders.append(10**18)
        monkeypatch.setattr(replication, "_GRACE", math.inf)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend(feed.take()))
        thread.start()
        query = (
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'dpstream' AND query LIKE '%%snapshot%%'"
        )
        while not feed.db.execute(query).fetchone() and thread.is_alive():
            time.sleep(0.01)
        slow.execute("COMMIT")
        thread.join()
    assert found == [(["slow"], [])]


def test_what_ends_the_stream(feed: Feed) -> None:
    feed.add(SECRET)
    feed.end_day()
    feed.take()
    for statement, message in (
        ("ALTER TABLE f ALTER COLUMN rent TYPE TEXT", "has another type in column 'rent'"),
        ("ALTER TABLE f RENAME COLUMN price TO rent", "lacks column 'rent'"),
    ):
        feed.db.execute("INSERT INTO f (zip) VALUES (%s)", (SECRET,))
        feed.end_day()
        feed.db.execute(statement)
        with pytest.raises(DataError, match=message) as caught:
            feed.take()
        assert SECRET not in str(caught.value)
        # Another stream; its slot begins behind the change of the column.
        feed.position, feed.step = None, 0
        feed.db.execute("ALTER TABLE f RENAME COLUMN rent TO price" if "TYPE" in statement else "SELECT 1")
        feed.drop_slot()
        feed.make_slot()
    feed.db.execute("ALTER TABLE f ADD COLUMN unused INT")
    feed.add(SECRET)
    feed.db.execute("TRUNCATE f, other")
    feed.end_day()
    with pytest.raises(DataError, match="a truncation deleted rows that the log lacks"):
        feed.take()
    feed.db.execute(
        "ALTER TABLE f RENAME TO old; CREATE TABLE f (LIKE old); ALTER TABLE f REPLICA IDENTITY FULL"
    )
    feed.db.execute("ALTER PUBLICATION p ADD TABLE f; DROP TABLE old")
    with pytest.raises(DataError, match="another table took this name before all changes were released"):
        feed.take()


def test_old_rows_that_were_not_logged(feed: Feed) -> None:
    feed.add(SECRET, "b")
    feed.db.execute("ALTER TABLE f REPLICA IDENTITY DEFAULT")
    feed.db.execute("UPDATE f SET zip = 'c' WHERE zip = 'b'")
    feed.end_day()
    with pytest.raises(ConfigError, match="the log lacks old rows"):
        feed.take()
    feed.db.execute("ALTER TABLE f REPLICA IDENTITY FULL")
    with pytest.raises(DataError, match="lacks the old row of a change") as caught:
        feed.take()
    assert SECRET not in str(caught.value)


def test_slots_and_publications_that_cannot_be_used(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.end_day()
    feed.db.execute(
        "DROP PUBLICATION IF EXISTS q; CREATE PUBLICATION q FOR TABLE f WITH (publish = 'insert')"
    )
    feed.db.execute("DROP PUBLICATION IF EXISTS r; CREATE PUBLICATION r FOR TABLE other")
    feed.db.execute("SELECT pg_create_logical_replication_slot('words', 'test_decoding')")
    guarded = f"postgresql://guarded@/postgres?host={feed.server.home}"
    monkeypatch.setenv("PGPASSWORD", feed.server.password)
    for changes, message in (
        ({"publication": "q"}, "must send inserts, updates, deletes and truncations"),
        ({"publication": "r"}, "must send inserts, updates, deletes and truncations"),
        ({"publication": "gone"}, 'CREATE PUBLICATION "gone" FOR TABLE "public"."f"'),
        ({"slot": "gone"}, r"pg_create_logical_replication_slot\('gone', 'pgoutput'\)"),
        ({"slot": "words"}, "slot 'words' of the plugin pgoutput"),
        ({"url": guarded}, "the role lacks a right"),
    ):
        feed.changes = changes
        with pytest.raises(ConfigError, match=message):
            feed.take()
    feed.changes = {}
    assert feed.take() == [([], [])]


def test_partitions_and_a_renamed_table(feed: Feed) -> None:
    feed.db.execute("DROP TABLE IF EXISTS parts CASCADE")
    feed.db.execute(
        "CREATE TABLE parts (id INT, zip TEXT, rent INT) PARTITION BY RANGE (id); "
        "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10); "
        "CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (20); "
        "ALTER TABLE low REPLICA IDENTITY FULL; ALTER TABLE parts REPLICA IDENTITY FULL"
    )
    feed.db.execute("DROP PUBLICATION p; CREATE PUBLICATION p FOR TABLE parts")
    feed.drop_slot()
    feed.make_slot()
    feed.table = "parts"
    feed.end_day()
    with pytest.raises(ConfigError, match="publish_via_partition_root"):
        feed.take()
    feed.db.execute("ALTER PUBLICATION p SET (publish_via_partition_root = true)")
    with pytest.raises(ConfigError, match="partitions too"):
        feed.take()
    feed.db.execute("ALTER TABLE high REPLICA IDENTITY FULL")
    feed.db.execute("INSERT INTO parts VALUES (1, 'low', 1), (11, 'high', 1)")
    feed.db.execute("UPDATE parts SET id = 12 WHERE id = 1")  # moves the row to the other partition
    feed.db.execute("UPDATE parts SET rent = 2 WHERE id = 12")
    feed.db.execute("ALTER TABLE parts RENAME TO pieces")
    feed.end_day()
    feed.table = "pieces"
    first, second = feed.take()
    assert first == ([], [])
    assert Counter(second[0]) - Counter(second[1]) == Counter(["low", "high"])


def test_a_connection_that_is_cut_and_somebody_else_at_the_slot(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.add(*(f"z{i}" for i in range(40)))
    feed.end_day()
    whole, peeks = server_module.Session.stream, [0]

    def disturbed(self: Any, *args: Any, **more: Any) -> Iterator[Any]:
        peeks[0] += 1
        for number, block in enumerate(whole(self, *args, **{**more, "size": 7})):
            if number == 2 and peeks[0] == 2:
                feed.db.close()
                feed.server.cut()
                feed.db = feed.server.connect()
            yield block
        if peeks[0] == 4:
            feed.db.execute("SELECT pg_replication_slot_advance('s', pg_current_wal_lsn())")

    with monkeypatch.context() as patch:
        patch.setattr(server_module.Session, "stream", disturbed)
        with pytest.raises(UnreadableError, match="connection lost"):
            feed.take()
        assert feed.position is None
        with pytest.raises(UnreadableError, match="another reader moved the slot"):
            feed.take()
    assert feed.position is None


@pytest.mark.parametrize("late", ["error", "next-step"])
def test_a_step_that_was_begun_is_read_as_it_was(feed: Feed, late: str) -> None:
    """The server's clock was set back in between: the change that it dates into the step comes too late for it."""
    feed.changes = {"late": late}
    feed.add("a")
    feed.end_day()
    feed.add("b")
    feed.end_day()
    feed.take(until=1)
    step, position, place = feed.step, feed.position, feed.place()
    begun = feed.take(crash=True)
    held, feed.step, feed.position = feed.position, step, position  # killed before the commit
    feed.borders[1] += 3600 * 10**6
    feed.add("between")
    assert feed.take(crash=True) == [(["b", "between"], [])], (
        "the control: without the position it reads more"
    )
    feed.step, feed.position = step, position
    feed.end_day()
    feed.add("c")
    source = feed.open(feed.options(late="next-step"), COLUMNS)
    source.resume(2, held)  # type: ignore[arg-type]
    assert [entry.step for entry in source.steps(2, seen=position)] == [2, 3]
    assert feed.place() == place, "steps that were not taken move nothing"
    taken = feed.entries(begun=held)
    assert next(taken).inserts["zip"].to_pylist() == ["b"] == begun[0][0]
    if late == "error":
        with pytest.raises(DataError, match="a change falls into a released step"):
            next(taken)
        assert (feed.step, feed.position) == (2, held)
    else:
        assert sorted(next(taken).inserts["zip"].to_pylist()) == ["between", "c"]


def test_messages_that_are_cut_short_or_unknown_are_refused() -> None:
    insert = (
        b"I" + (7).to_bytes(4, "big") + b"N" + (1).to_bytes(2, "big") + b"t" + (2).to_bytes(4, "big") + b"zy"
    )
    change = replication.parse(insert)
    assert isinstance(change, replication.Change)
    assert (change.oid, change.kind, change.old, change.new) == (7, "I", None, ["zy"])
    assert "zy" not in repr(change)  # no hexadecimal digits: a representation may hold an address
    for data in (insert[:-1], insert[:7], b"Z", b"", b"B" + bytes(15), insert[:8] + b"b" + insert[9:]):
        with pytest.raises(ValueError, match=r"message|cut short|cell"):
            replication.parse(data)


# Records with keys


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
