"""``service.toml``: which streams one service looks after, and how."""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from dpstream.core import durable
from dpstream.core.contracts import shown
from dpstream.core.durations import seconds
from dpstream.core.errors import ConfigError, InputError
from dpstream.core.foreign import from_extra
from dpstream.core.schema.schema import unknown_key
from dpstream.project.reader import is_url, refuse_password
from dpstream.project.schema_file import load_toml, toml_value
from dpstream.service.tokens import TokenFile
from dpstream.stream import PostgresServer
from dpstream.stream.store.postgres import schema_name
from dpstream.stream.templates import Words

with from_extra("service", __name__):
    from pydantic import (
        AfterValidator,
        BaseModel,
        BeforeValidator,
        ConfigDict,
        Field,
        PrivateAttr,
        ValidationError,
        ValidationInfo,
    )

FILE = "service.toml"
#: The database, where it is a file.
DATABASE = "service.sqlite"
_WORDS = Words(Path(__file__).with_name("draft.j2"))
#: Characters of the proxy's secret.
_SHORTEST, _LONGEST = 32, 1000


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("cannot be printed")
    return text


def _length(value: object) -> int:
    """``30s``, ``5m``, ``1 hour``, ``1d`` as whole seconds."""
    length = int(seconds(value) or 0)
    if not length:
        raise ValueError("malformed length of time")
    return length


def _address(text: str) -> str:
    return str(ipaddress.ip_address(text))


def _below(text: object, info: ValidationInfo) -> object:
    """A path, seen from the folder of the file."""
    return Path(info.context["folder"]) / text if info.context and isinstance(text, str) and text else text


_Text = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_printable)]
_Header = Annotated[
    str,
    Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,99}$", description="a header, such as X-Remote-User"),
]
_Seconds = Annotated[int, BeforeValidator(_length), Field(description="such as 30s, 5m or 1h")]
_Below = Annotated[Path, BeforeValidator(_below)]


def _whole(default: int, most: int) -> Any:
    return Field(default=default, ge=1, le=most, description=f"a whole number from 1 to {most}")


class _Table(BaseModel):
    """Keys of one table, their types and what is allowed (``description``)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Service(_Table):
    name: _Text | None = Field(default=None, description="a text")
    listen: _Text = Field(default="127.0.0.1:8420", description="such as 127.0.0.1:8420")
    look_every: _Seconds = 300
    database: _Text | None = Field(default=None, description="the URL of a PostgreSQL database")
    tokens: _Below | None = Field(default=None, description="a file of tokens")
    session_hours: int = _whole(12, 720)
    idle_minutes: int = _whole(60, 1440)


class Proxy(_Table):
    """The one machine whose header says who somebody is, where it sends a secret in another one, too: other programs of
    that machine have its address as well."""

    address: Annotated[str, AfterValidator(_address)] = Field(description="an address, such as 127.0.0.1")
    header: _Header
    secret_header: _Header = "X-Proxy-Secret"
    secret_file: _Below = Field(
        description="a file with the proxy's secret: without it other programs could pose as anybody"
    )
    _secret: str = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Read the secret."""
        if self.header.lower() == self.secret_header.lower():
            raise ConfigError("both headers have one name", where="[proxy]", allowed="two names")
        self._secret = _secret(self.secret_file)

    def sent(self, address: str, secrets: Sequence[str]) -> bool:
        """Whether the proxy sent a request: ``address`` is of the connection, ``secrets`` what stands in the header."""
        # What comes twice may come once from the proxy and once from somebody else.
        given = secrets[0].encode("utf-8", "surrogatepass") if len(secrets) == 1 else b""
        return hmac.compare_digest(given, self._secret.encode()) and address == self.address


class StreamSettings(_Table):
    """One stream of the service: the file of its configuration, how many different persons approve a held step, and
    seconds between two looks at a source without a calendar (0 in the file's table: as the service has it)."""

    config: _Below = Field(description="a configuration of dpstream")
    approvals: int = _whole(1, 10)
    look_every: _Seconds = 0

    @cached_property
    def name(self) -> str:
        """As its configuration has it.

        Errors:
            ConfigError: it has none.
        """
        stream = load_toml(self.config).get("stream")
        name = stream.get("name") if isinstance(stream, dict) else None
        if not isinstance(name, str):
            raise ConfigError("has no [stream] name", where=str(self.config))
        return name


class _File(_Table):
    service: _Service = Field(default=_Service(), description="a section [service]")
    proxy: Proxy | None = Field(default=None, description="a section [proxy]")
    stream: list[StreamSettings] = Field(min_length=1, description="[[stream]] with a key config")


@dataclass(frozen=True)
class Settings:
    """Everything ``service.toml`` says, checked and with its defaults.

    Attributes:
        folder: of the file; the service's own files are in it.
        listen: host and port of the pages.
        database: a server; None is the file ``service.sqlite`` in the folder.
        tokens: of programs that watch the streams.
        session_seconds, idle_seconds: how long a login lasts at most, and without being used.
    """

    folder: Path
    name: str
    listen: str
    streams: tuple[StreamSettings, ...]
    database: PostgresServer | None
    proxy: Proxy | None
    tokens: TokenFile | None
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
            raise ConfigError(f"{FILE} is missing", where=str(base), allowed="a folder of dpstream up --init")
        try:
            written = _File.model_validate(load_toml(file), context={"folder": base})
        except ValidationError as error:
            raise _refusal(error, file) from None
        service = written.service
        name = service.name or base.resolve().name or "service"
        return cls(
            base,
            name,
            service.listen,
            _streams(written.stream, file, service.look_every),
            None
            if service.database is None
            else _server(service.database, name, f"{file} [service] database"),
            written.proxy,
            None if service.tokens is None else TokenFile(service.tokens),
            3600 * service.session_hours,
            60 * service.idle_minutes,
        )

    def stream(self, name: str) -> StreamSettings:
        """The stream of that name.

        Errors:
            ConfigError: there is none.
        """
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise ConfigError("unknown stream", where="desk", allowed="one of its streams")


def draft_service(folder: Path, configs: Sequence[Path]) -> Path:
    """Write ``service.toml`` for these configurations; gives the file.

    Errors:
        ConfigError: there is one already, or a configuration cannot be read.
    """
    file = folder / FILE
    if file.exists():
        raise ConfigError("the service exists", where=str(file), allowed="another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot be made: {error.strerror}", where=str(folder), allowed="a folder"
        ) from None
    places = [os.path.relpath(config.resolve(), folder.resolve()) for config in configs]
    _streams([StreamSettings(config=folder / place) for place in places], file, 300)
    facts = {"name": toml_value(folder.resolve().name or "service"), "configs": map(toml_value, places)}
    lines = "\n".join(map(str, _WORDS.lines("file", **facts))) + "\n"
    durable.replace_file(file, lines.encode(), mode=0o644)
    return file


def _refusal(error: ValidationError, file: Path) -> InputError:
    """The first thing that is wrong, in the words of its key."""
    wrong = error.errors()[0]
    *section, key = [str(place) for place in wrong["loc"] if isinstance(place, str)]
    tables: dict[str, type[_Table]] = {"service": _Service, "proxy": Proxy, "stream": StreamSettings}
    table = tables[section[0]] if section else _File
    where = f"{file} [{section[0]}]" if section else str(file)
    if wrong["type"] == "extra_forbidden":
        return unknown_key(key, wrong["input"], table.model_fields, where)
    words = "is missing" if wrong["type"] == "missing" else f"= {shown(wrong['input'])} cannot be used"
    return ConfigError(f"{key} {words}", where=where, allowed=table.model_fields[key].description)


def _server(url: str, name: str, where: str) -> PostgresServer:
    if not is_url(url):
        raise ConfigError(
            "malformed URL of a database",
            where=where,
            allowed=f"postgresql://user@host:5432/database, or no key for {DATABASE}",
        )
    refuse_password(url, where, "PGSERVICE")
    return PostgresServer(url, schema_name(f"service {name}"))


def _secret(file: Path) -> str:
    """What the file holds, without the white space around it.

    Errors:
        ConfigError: it cannot be read, others may read it, or a header cannot hold it.
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
            allowed="a new secret, in your file of mode 0600 or 0400",
        )
    if not re.fullmatch(f"[!-~]{{{_SHORTEST},{_LONGEST}}}", secret):
        raise ConfigError(
            "the proxy's secret is malformed",
            where=str(file),
            allowed=f"{_SHORTEST} to {_LONGEST} printable ASCII without spaces",
        )
    return secret


def _streams(streams: Sequence[StreamSettings], file: Path, every: int) -> tuple[StreamSettings, ...]:
    """With their names, which differ, and a time between two looks."""
    names: set[str] = set()
    for stream in streams:
        if stream.name in names:
            raise ConfigError(
                f"two streams have the name {stream.name!r}",
                where=str(file),
                allowed="different names",
            )
        names.add(stream.name)
    return tuple(stream.model_copy(update={"look_every": stream.look_every or every}) for stream in streams)
