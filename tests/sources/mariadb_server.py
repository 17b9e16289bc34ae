"""A private MariaDB server that lives as long as the tests: temporary folder, unix socket, no network."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any


def programs() -> tuple[str, str] | None:
    """``mariadb-install-db`` and ``mariadbd``, or None (Debian has the second one in /usr/sbin)."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    found = [shutil.which(name, path=path) for name in ("mariadb-install-db", "mariadbd")]
    return (found[0], found[1]) if found[0] and found[1] and shutil.which("my_print_defaults") else None


class Server:
    """``url(user)`` needs no password but for ``guarded``."""

    password = "S3cret/with@signs"

    def __init__(self, tools: tuple[str, str]) -> None:
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.home = Path(tempfile.mkdtemp(prefix="dpstream-my-", dir=base))
        self.socket, data = self.home / "socket", self.home / "data"
        user = pwd.getpwuid(os.geteuid()).pw_name
        common = ["--no-defaults", f"--datadir={data}", f"--user={user}"]
        made = subprocess.run(
            [tools[0], *common, "--auth-root-authentication-method=normal", "--skip-test-db"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        small = [
            "--innodb-buffer-pool-size=16M",
            "--innodb-log-file-size=8M",
            "--innodb-flush-log-at-trx-commit=0",
        ]
        self._log = (self.home / "log").open("wb")
        self._server = subprocess.Popen(
            [tools[1], *common, f"--socket={self.socket}", "--skip-networking", "--skip-log-bin", *small],
            stdout=self._log,
            stderr=self._log,
        )
        while not self.socket.exists():  # made when the server listens
            assert self._server.poll() is None, (self.home / "log").read_text(errors="replace")
            time.sleep(0.05)
        for statement in (
            "CREATE DATABASE shop CHARACTER SET utf8mb4",
            "CREATE USER reader@localhost",
            "GRANT SELECT ON shop.* TO reader@localhost",
            f"CREATE USER guarded@localhost IDENTIFIED BY '{self.password}'",
            "GRANT SELECT ON shop.* TO guarded@localhost",
        ):
            self.execute(statement, database="mysql")

    def url(self, user: str = "reader", database: str = "shop") -> str:
        return f"mysql://{user}@localhost/{database}?unix_socket={self.socket}"

    def connect(self, user: str = "root", database: str = "shop") -> Any:
        return self._driver().connect(
            unix_socket=str(self.socket), user=user, database=database, autocommit=True, charset="utf8mb4"
        )

    def execute(
        self, statement: str, *values: object, user: str = "root", database: str = "shop"
    ) -> list[Any]:
        with self.connect(user, database) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def remove(self) -> None:
        self._server.kill()
        self._server.wait()
        self._log.close()
        shutil.rmtree(self.home)

    @staticmethod
    def _driver() -> Any:
        import pymysql

        return pymysql
