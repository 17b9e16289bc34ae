"""Durable steps on PostgreSQL under faults: kills, cut connections, a server that dies, and secrets."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from fault_harness import faulty, finish, full_disk, kill, lying_commit, outcome, run_stream
from postgres_server import Cluster
from toy_stream import SCHEMA, ToyPlan, batch, run, start

from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError, StoreLockedError
from dpstream.stream import PostgresServer, StateKey, StatePermissionWarning, open_stream, read_status
from dpstream.stream.inspection import check_store
from dpstream.stream.store.postgres import PostgresBackend, PostgresDatabase
from dpstream.stream.store.upkeep import rekey_store


def newest_schema(postgres: Cluster) -> str:
    """The schema of the store that was made last."""
    named = "SELECT nspname::text FROM pg_namespace WHERE nspname LIKE 't\\_%' ORDER BY oid DESC LIMIT 1"
    return str(postgres.execute(named)[0][0])


@pytest.mark.parametrize(
    "fault", ["cut", "cut after the call", "crash", "crash after the call", "lying", "full"]
)
def test_every_lost_connection_is_a_clear_error_and_nothing_is_lost(
    tmp_path: Path, on_postgres: Cluster, fault: str
) -> None:
    """The connection is cut or the server dies before a call or right after it, or COMMIT answers with an error."""
    with faulty(None, kill) as calls:
        run_stream(tmp_path / "undisturbed")
    expected = outcome(tmp_path / "undisturbed")

    def lose() -> None:
        if fault.startswith("cut"):
            on_postgres.cut()
        else:  # an immediate shutdown is a crash: the server recovers from its log
            on_postgres.stop("immediate")
            on_postgres.start()

    def before(name: str, call: Callable[..., None], arguments: tuple[object, ...]) -> None:
        lose()
        call(*arguments)

    def after(name: str, call: Callable[..., None], arguments: tuple[object, ...]) -> None:
        call(*arguments)
        lose()

    action = {"lying": lying_commit, "full": full_disk, "cut": before, "crash": before}.get(fault, after)
    commits = [at for at, name in enumerate(calls, start=1) if name == "commit"]
    stops = commits[3:5] if "crash" in fault else commits[::3]
    if fault == "cut":
        stops = sorted({*commits[1::3], *range(1, len(calls) + 1, 29)})
    stopped = 0
    for at in stops:
        home = tmp_path / str(at)
        try:
            with faulty(at, action):
                run_stream(home)
        except StoreError as error:
            stopped += "PostgreSQL" in str(error)
        finish(home, at, partial(run_stream, home), expected)
    # A connection that is cut in the last calls of a stream is not needed any more.
    assert stopped >= 2
    if fault == "cut":  # the object refuses from then on
        with start(tmp_path / "open") as stream:
            on_postgres.cut()
            for _ in range(2):
                with pytest.raises(StoreError, match="connection to the server was lost"):
                    stream.step(batch(1), "a")


def test_two_machines_cannot_run_one_stream(tmp_path: Path, postgres: Cluster) -> None:
    """Another state directory stands for another machine: the lock and the witness are both asked."""
    server = PostgresServer(postgres.url, "t_two_machines")
    backend = PostgresBackend(server)
    assert not backend.exists()
    with pytest.raises(StoreLockedError, match="another session"):
        PostgresBackend(server).exists()
    backend.close()
    other = PostgresBackend(server)
    assert not other.exists()
    other.close()


def test_a_database_that_was_rolled_back_or_lost_is_refused(tmp_path: Path, on_postgres: Cluster) -> None:
    run(tmp_path, 2, publish=False)
    schema = newest_schema(on_postgres)
    state = tmp_path / "state"
    assert sorted(path.name for path in state.iterdir()) == ["head.json"], "counts are on the server only"
    # As from a dump of the first step.
    with on_postgres.connect(schema) as db:
        db.execute("DELETE FROM files WHERE step = 2")
        db.execute("DELETE FROM steps WHERE step = 2")
        db.execute("UPDATE latest SET step = 1 WHERE name = 'state'")
    with pytest.raises(StoreDamagedError, match=r"head\.json knows step 2"):
        start(tmp_path, publish=False)
    on_postgres.execute(f"DROP TABLE {schema}.latest")
    with pytest.raises(StoreDamagedError, match="table latest is missing"):
        start(tmp_path, publish=False)
    on_postgres.execute(f"DROP SCHEMA {schema} CASCADE")
    with pytest.raises(StoreDamagedError, match=r"the store is gone; its witness head.json remains"):
        start(tmp_path, publish=False)
    with pytest.raises(ConfigError, match="the stream is missing"):
        read_status(state)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE steps SET spent = '1/2' WHERE step = 1",
        "UPDATE meta SET value = '\\x00' WHERE key = 'stream_id'",
        "DROP TABLE store_format",
        "UPDATE store_format SET format = 99",
    ],
)
def test_edited_databases_are_refused(tmp_path: Path, on_postgres: Cluster, statement: str) -> None:
    run(tmp_path, 2, publish=False)
    schema = newest_schema(on_postgres)
    with on_postgres.connect(schema) as db:
        db.execute(statement.encode())
    with pytest.raises(StoreError, match=r"changed|valid head|head file|lacks a stream|newer version"):
        start(tmp_path, publish=False).step(batch(3), "c")


def reload(postgres: Cluster, full_page_writes: str) -> None:
    """Set it for every session that begins from now on: the server takes a moment to read its configuration."""
    postgres.execute(f"ALTER SYSTEM SET full_page_writes = {full_page_writes}")
    postgres.execute("SELECT pg_reload_conf()")
    while postgres.execute("SHOW full_page_writes") != [(full_page_writes,)]:
        time.sleep(0.01)


def test_settings_are_asserted(postgres: Cluster) -> None:
    server = PostgresServer(postgres.url, "t_settings")
    reload(postgres, "off")
    try:
        with pytest.raises(StoreError, match="full_page_writes = off: power loss may lose a commit"):
            PostgresDatabase(server, "here").close()
    finally:
        reload(postgres, "on")
    for named, settings in (
        ("log_min_duration_statement", {"log_min_duration_statement": 100}),
        ("log_statement", {"log_statement": "mod"}),
        ("log_transaction_sample_rate", {"log_transaction_sample_rate": 0.1}),
        (
            "log_min_duration_sample, log_statement_sample_rate",
            {"log_min_duration_sample": 0, "log_statement_sample_rate": 0.1},
        ),
        ("log_parameter_max_length_on_error", {"log_parameter_max_length_on_error": -1}),
    ):
        for name, value in settings.items():
            postgres.execute(f"ALTER ROLE dpstream SET {name} = '{value}'")
        try:
            with pytest.warns(StatePermissionWarning, match=rf"private counts into its log \({named}\)"):
                PostgresDatabase(server, "here").close()
        finally:
            postgres.execute("ALTER ROLE dpstream RESET ALL")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PostgresDatabase(server, "here").close()
    session = PostgresDatabase(server, "here")
    with session.errors():
        assert session.execute("SHOW synchronous_commit").fetchone() == ("on",)
        with pytest.raises(StoreError, match="has lost the stream's lock"):
            session.begin()
    session.close()


def test_no_error_repeats_a_password_or_a_value(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = "hunter2-sekret"
    urls = [
        f"postgresql://guarded:{secret}@/postgres?host={postgres.home}",
        f"postgresql://guarded:{secret}@nowhere@/postgres?host={postgres.home}",
        f"postgresql://guarded:{secret}/x@localhost/postgres",
        f"postgresql://guarded:{secret}@localhost:port/postgres",
        f"postgresql://u:{secret}@/postgres?host=/nowhere",
        f"host={secret}'",
    ]
    for url in urls:
        server = PostgresServer(url, "t_secret")
        assert secret not in repr(server)
        with pytest.raises((StoreError, ConfigError)) as caught:
            PostgresDatabase(server, "here")
        told = "".join(traceback.format_exception(caught.value, chain=False))
        assert secret not in str(caught.value)
        assert caught.value.__suppress_context__, "libpq's own words stay out of tracebacks"
        assert secret not in told.replace(repr(url), "")
    monkeypatch.setenv("PGPASSWORD", postgres.password)
    url = f"postgresql://guarded@/postgres?host={postgres.home}"
    session = PostgresDatabase(PostgresServer(url, "t_secret"), "here")
    with pytest.raises(StoreError, match="the role may not do this"), session.errors():
        session.execute("CREATE SCHEMA t_secret")
    session.rollback()
    with pytest.raises(StoreError) as caught, session.errors():
        session.execute("SELECT ?::bigint", (secret,))
    assert secret not in str(caught.value)
    session.close()


def test_roles_that_were_let_in_are_named_and_everybody_loses_the_right_to_look(
    tmp_path: Path, on_postgres: Cluster
) -> None:
    on_postgres.execute("CREATE ROLE analyst LOGIN")
    on_postgres.execute("CREATE ROLE nobody LOGIN")
    on_postgres.execute("ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO analyst")
    on_postgres.execute("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO analyst")
    try:
        with pytest.warns(
            StatePermissionWarning, match="other roles may read private counts: analyst; REVOKE"
        ):
            run(tmp_path, 1, publish=False)
    finally:
        on_postgres.execute("DROP OWNED BY analyst")
        on_postgres.execute("DROP ROLE analyst")
        on_postgres.execute("DROP ROLE nobody")
    on_postgres.execute(f"GRANT USAGE ON SCHEMA {newest_schema(on_postgres)} TO PUBLIC")
    with pytest.warns(StatePermissionWarning, match="everybody had rights"):
        start(tmp_path, publish=False).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start(tmp_path, publish=False).close()


def stored_bytes(postgres: Cluster, schema: str) -> bytes:
    """All bytes in the files of a schema's tables."""
    postgres.execute("CHECKPOINT")
    paths = postgres.execute(
        "SELECT pg_relation_filepath(unnest(ARRAY[c.oid, c.reltoastrelid])) FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s AND relkind = 'r'",
        schema,
    )
    files = (postgres.home / "data" / str(path) for (path,) in paths if path is not None)
    return b"".join(path.read_bytes() for path in files if path.exists())


def test_an_older_snapshot_keeps_nothing_of_what_was_readable(
    tmp_path: Path, on_postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a dump of another schema holds it; and a dump of this one is waited for, refused and not forgotten."""
    run(tmp_path, 2, publish=False)
    schema, state, key = newest_schema(on_postgres), tmp_path / "state", StateKey(b"k" * 32)
    server = PostgresServer(on_postgres.url, schema)
    [(mark,)] = on_postgres.execute(f"SELECT value FROM {schema}.meta WHERE key = 'key'")
    assert bytes(mark) in stored_bytes(on_postgres, schema)
    monkeypatch.setattr("dpstream.stream.store.postgres._TABLES_PATIENCE", "100ms")
    with on_postgres.connect() as other, on_postgres.connect() as dump:
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM pg_class")
        dump.execute("BEGIN")
        dump.execute(f"LOCK TABLE {schema}.files IN ACCESS SHARE MODE".encode())
        with pytest.raises(StoreError, match="another session reads the tables"):
            rekey_store(state, old=None, new=key, server=server)
        [problem] = check_store(state, None, server=server, key=key).problems
        assert "rekey was interrupted" in problem
        assert bytes(mark) in stored_bytes(on_postgres, schema)
        dump.execute("ROLLBACK")
        rekey_store(state, old=None, new=key, server=server)
        assert check_store(state, None, server=server, key=key).problems == ()
        assert bytes(mark) not in stored_bytes(on_postgres, schema)
    with start(tmp_path, publish=False, key=key) as stream:
        assert stream.step(batch(3), "b3").step == 3


def test_a_local_store_is_not_left_behind_silently(tmp_path: Path, postgres: Cluster) -> None:
    run(tmp_path, 1, publish=False)
    server = PostgresServer(postgres.url, "t_left_behind")
    with pytest.raises(ConfigError, match="holds a store; the configuration names a server"):
        open_stream(ToyPlan(), SCHEMA, tmp_path / "state", server=server)
