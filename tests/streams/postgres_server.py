"""A private PostgreSQL server that lives as long as the tests: temporary folder, unix socket, no network."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

_PLACES = "/usr/lib/postgresql"


def programs() -> Path | None:
    """The folder of initdb and pg_ctl, or None (Debian keeps them out of PATH)."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = sorted(Path(_PLACES).glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return folders[-1].parent if folders else None


def _drop_rights() -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    user = "postgres" if any(entry.pw_name == "postgres" for entry in pwd.getpwall()) else "nobody"
    entry = pwd.getpwnam(user)
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]


class Cluster:
    """The server. ``url`` needs no password; the role ``guarded`` does."""

    password = "S3cret/with@signs"

    def __init__(self, tools: Path) -> None:
        self._tools = tools
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.home = Path(tempfile.mkdtemp(prefix="dpstream-pg-", dir=base))
        self._as = _drop_rights()
        if self._as:
            owner = int(self._as[1].split("=")[1]), int(self._as[2].split("=")[1])
            os.chown(self.home, *owner)
        data = self.home / "data"
        self._run(
            "initdb", "-D", data, "-U", "dpstream", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
        )
        rules = "local all guarded scram-sha-256\nlocal all all trust\n"
        (data / "pg_hba.conf").write_text(rules)
        with (data / "postgresql.conf").open("a") as file:
            file.write(
                f"listen_addresses = ''\nunix_socket_directories = '{self.home}'\nshared_buffers = '16MB'\n"
                # A vacuum that happens to run is an open transaction, which some tests are told of and others refuse.
                "max_connections = 40\nautovacuum = off\n"
            )
        self.start()
        self.execute(f"CREATE ROLE guarded LOGIN PASSWORD '{self.password}'")

    @property
    def url(self) -> str:
        return f"postgresql://dpstream@/postgres?host={self.home}"

    def connect(self, schema: str | None = None) -> psycopg.Connection:
        connection = psycopg.connect(self.url, autocommit=True)
        if schema is not None:
            connection.execute(f"SET search_path = {schema}".encode())
        return connection

    def execute(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        with self.connect() as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def cut(self) -> None:
        """End every other session, in the middle of whatever it does; none is left on return."""
        self.execute(
            "SELECT pg_terminate_backend(pid, 600000) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )

    def start(self) -> None:
        self._run("pg_ctl", "-D", self.home / "data", "-w", "-t", 600, "-l", self.home / "log", "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", self.home / "data", "-w", "-t", 600, "-m", mode, "stop")

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.home)

    def _run(self, name: str, *arguments: object) -> None:
        command = [*self._as, str(self._tools / name), *map(str, arguments)]
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, cwd=self.home
        )
        if done.returncode:
            raise RuntimeError(f"{name} failed: {done.stderr}")


@contextlib.contextmanager
def own_server() -> Iterator[Cluster]:
    """A server of the tests' own; without PostgreSQL on the machine the test skips."""
    tools = programs()
    if tools is None:
        pytest.skip("there is no PostgreSQL server on this machine (make postgres installs one)")
    cluster = Cluster(tools)
    yield cluster
    cluster.remove()
