"""``service.toml``: which streams one service looks after, and how."""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dpstream.core import durable
from dpstream.core.contracts import shown
from dpstream.core.durations import seconds
from dpstream.core.errors import ConfigError
from dpstream.core.schema.declared import unknown_key
from dpstream.project.reader import is_url, refuse_password
from dpstream.project.schema_file import load_toml, toml_value
from dpstream.stream import PostgresServer
from dpstream.stream.store.postgres import schema_name

FILE = "service.toml"
#: The database, where it is a file.
DATABASE = "service.sqlite"
_DRAFT = """\
# A service: dpstream up keeps its streams running, with pages for the people who look after them.
[service]
name = {name}
listen = "127.0.0.1:8420"
# How often a source without a calendar is looked at.
look_every = "5m"
# A login lasts so long at most, and so long without being used.
session_hours = 12
idle_minutes = 60
# Instead of the file service.sqlite beside this one (the password in PGPASSFILE, PGSERVICEFILE or PGPASSWORD):
# database = "postgresql://user@host:5432/database"

# Who somebody is, said by a proxy at one address that knows a secret, and by nobody else:
# [proxy]
# address = "127.0.0.1"
# header = "X-Remote-User"
# A file of mode 0600 with 32 characters or more, which the proxy sends in the header X-Proxy-Secret:
# secret_file = "proxy-secret"

# For each stream its configuration, and how many different persons must approve a held step.
"""
_KEYS: dict[str, tuple[str, ...]] = {
    "service": ("name", "listen", "look_every", "database", "session_hours", "idle_minutes"),
    "proxy": ("address", "header", "secret_file", "secret_header"),
    "stream": ("config", "approvals", "look_every"),
}
#: Characters of the proxy's secret.
_SHORTEST, _LONGEST = 32, 1000


@dataclass(frozen=True)
class Proxy:
    """The one machine whose header says who somebody is, where it sends the secret, too.

    Attributes:
        secret_header: the name of the header with the secret.
        secret: what only the proxy and the service know: other programs of that machine have its address as well.
    """

    address: str
    header: str
    secret_header: str
    secret: str = field(repr=False)

    def sent(self, address: str, secrets: Sequence[str]) -> bool:
        """Whether the proxy sent a request: ``address`` is of the connection, ``secrets`` what stands in the header."""
        # What comes twice may come once from the proxy and once from somebody else.
        given = secrets[0].encode("utf-8", "surrogatepass") if len(secrets) == 1 else b""
        return hmac.compare_digest(given, self.secret.encode()) and address == self.address


@dataclass(frozen=True)
class StreamSettings:
    """One stream of the service.

    Attributes:
        name: as its configuration has it.
        config: that file.
        approvals: how many different persons approve a held step.
        look_every: seconds between two looks at a source without a calendar.
    """

    name: str
    config: Path
    approvals: int
    look_every: int


@dataclass(frozen=True)
class Settings:
    """Everything ``service.toml`` says, checked and with its defaults.

    Attributes:
        folder: of the file; the service's own files are in it.
        database: a server; None is the file ``service.sqlite`` in the folder.
        listen: host and port of the pages.
        session_seconds, idle_seconds: how long a login lasts at most, and without being used.
    """

    folder: Path
    name: str
    listen: str
    streams: tuple[StreamSettings, ...]
    database: PostgresServer | None
    proxy: Proxy | None
    session_seconds: int
    idle_seconds: int

    @classmethod
    def load(cls, folder: str | Path) -> Settings:
        """Read and check ``service.toml`` in ``folder``.

        Errors:
            ConfigError: names file, key and what is allowed.
        """
        base = Path(folder)
        file = base / FILE
        if not file.is_file():
            raise ConfigError(
                f"there is no {FILE}", where=str(base), allowed="a folder that dpstream up --init made"
            )
        document = load_toml(file)
        for key in document:
            if key not in _KEYS:
                raise unknown_key(key, document[key], _KEYS, str(file))
        top = _Table(document.get("service", {}), "service", file)
        proxy = _Table(document.get("proxy", {}), "proxy", file)
        name = top.text("name", base.resolve().name or "service")
        return cls(
            base,
            name,
            top.text("listen", "127.0.0.1:8420"),
            _streams(document.get("stream", []), base, file, top.seconds("look_every", 300)),
            _server(top, name) if "database" in top.table else None,
            _proxy(proxy) if proxy.table else None,
            3600 * top.whole("session_hours", 12, 24 * 30),
            60 * top.whole("idle_minutes", 60, 24 * 60),
        )

    def stream(self, name: str) -> StreamSettings:
        """The stream of that name.

        Errors:
            ConfigError: there is none.
        """
        for one in self.streams:
            if one.name == name:
                return one
        raise ConfigError("the service has no such stream", where="desk", allowed="one of its streams")


def draft_service(folder: Path, configs: Sequence[Path]) -> Path:
    """Write ``service.toml`` for these configurations; gives the file.

    Errors:
        ConfigError: there is one already, or a configuration cannot be read.
    """
    file = folder / FILE
    if file.exists():
        raise ConfigError("there is a service already", where=str(file), allowed="another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot be made: {error.strerror}", where=str(folder), allowed="a folder"
        ) from None
    places = [os.path.relpath(config.resolve(), folder.resolve()) for config in configs]
    _streams([{"config": place} for place in places], folder, file, 300)
    lines = _DRAFT.format(name=toml_value(folder.resolve().name or "service"))
    for place in places:
        lines += f"\n[[stream]]\nconfig = {toml_value(place)}\n# approvals = 2\n"
    durable.replace_file(file, lines.encode(), mode=0o644)
    return file


class _Table:
    """One table of the file, read strictly.

    Errors (of all methods): ConfigError names file, key and what is allowed.
    """

    def __init__(self, table: object, name: str, file: Path) -> None:
        if not isinstance(table, Mapping):
            raise ConfigError(f"{name} is not a table", where=str(file), allowed=f"a section [{name}]")
        for key in table:
            if key not in _KEYS[name]:
                raise unknown_key(key, table[key], _KEYS[name], f"{file} [{name}]")
        self.table, self.file, self.place = table, file, f"{file} [{name}]"

    def text(self, key: str, default: str = "") -> str:
        value = self.table.get(key, default)
        if not isinstance(value, str) or not value or len(value) > 1000 or not value.isprintable():
            raise ConfigError(
                f"{key} = {shown(value)} cannot be used", where=str(self.file), allowed="a text"
            )
        return value

    def whole(self, key: str, default: int, most: int) -> int:
        value = self.table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            allowed = f"a whole number from 1 to {most}"
            raise ConfigError(f"{key} = {shown(value)} cannot be used", where=str(self.file), allowed=allowed)
        return value

    def seconds(self, key: str, default: int) -> int:
        """``30s``, ``5m``, ``1 hour``, ``1d`` as whole seconds."""
        if key not in self.table:
            return default
        value, where = self.table[key], f"{self.place} {key}"
        length = int(seconds(value) or 0)
        if not length:
            raise ConfigError(
                f"{shown(value)} is no length of time", where=where, allowed="such as 30s, 5m or 1h"
            )
        return length


def _server(table: _Table, name: str) -> PostgresServer:
    url, where = table.text("database"), f"{table.place} database"
    if not is_url(url):
        raise ConfigError(
            "this is not the URL of a PostgreSQL database",
            where=where,
            allowed=f"postgresql://user@host:5432/database, or no key: then it is the file {DATABASE}",
        )
    refuse_password(url, where, "PGSERVICE")
    return PostgresServer(url, schema_name(f"service {name}"))


def _proxy(table: _Table) -> Proxy:
    address, header = table.text("address"), table.text("header")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise ConfigError(
            "address is no address of one machine", where=table.place, allowed="such as 127.0.0.1"
        ) from None
    other = table.text("secret_header", "X-Proxy-Secret")
    for key, name, such in (("header", header, "X-Remote-User"), ("secret_header", other, "X-Proxy-Secret")):
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,99}", name):
            raise ConfigError(f"{key} is no name of a header", where=table.place, allowed=f"such as {such}")
    if header.lower() == other.lower():
        raise ConfigError("both headers have one name", where=table.place, allowed="two names")
    if "secret_file" not in table.table:
        raise ConfigError(
            "without secret_file every program that reaches the pages from the proxy's machine could be anybody",
            where=table.place,
            allowed=f"secret_file: a file with a secret that the proxy sends in the header {other}",
        )
    return Proxy(address, header, other, _secret(table.file.parent / table.text("secret_file")))


def _secret(file: Path) -> str:
    """What the file holds, without the white space around it.

    Errors:
        ConfigError: it cannot be read, others may read it, or it is no secret that a header can hold.
    """
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            secret = opened.read(4 * _LONGEST).decode("ascii", "replace").strip()
    except OSError as error:
        raise ConfigError(
            f"the proxy's secret cannot be read: {error.strerror}", where=str(file), allowed="a file with it"
        ) from None
    if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"others may read the proxy's secret (mode {stat.S_IMODE(status.st_mode):04o})",
            where=str(file),
            allowed="mode 0600 or 0400, owned by who runs the service; another secret, if others may have read it",
        )
    if not re.fullmatch(f"[!-~]{{{_SHORTEST},{_LONGEST}}}", secret):
        raise ConfigError(
            "this is no secret for a proxy",
            where=str(file),
            allowed=f"{_SHORTEST} to {_LONGEST} letters, digits or signs on one line, without spaces",
        )
    return secret


def _streams(given: object, base: Path, file: Path, every: int) -> tuple[StreamSettings, ...]:
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        raise ConfigError("streams are no tables", where=str(file), allowed="[[stream]] with a key config")
    found: dict[str, StreamSettings] = {}
    for entry in given:
        table = _Table(entry, "stream", file)
        path = base / table.text("config")
        stream = load_toml(path).get("stream")
        name = stream.get("name") if isinstance(stream, Mapping) else None
        if not isinstance(name, str):
            raise ConfigError("has no [stream] name", where=str(path), allowed="a configuration of dpstream")
        if name in found:
            raise ConfigError(
                f"two streams have the name {name!r}", where=str(file), allowed="a name of its own for each"
            )
        found[name] = StreamSettings(
            name, path, table.whole("approvals", 1, 10), table.seconds("look_every", every)
        )
    if not found:
        raise ConfigError("names no stream", where=str(file), allowed="[[stream]] with a key config")
    return tuple(found.values())
