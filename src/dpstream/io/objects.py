"""Remote places: objects of an object store, and files of a web server, by URL.

Arrow's own file systems read and write objects without Python, as they do files (``core.foreign``); the standard
library reads a web server. No other package is needed. What is here of ``pathlib.Path`` is what readers of files use,
so that they read objects too. An object appears whole or not at all; renames do not exist. A token is sent to the
host that was asked, never to one that it points to, and never without TLS but to this machine.

pyarrow is imported inside functions, because the command line must start quickly.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import http.client
import io
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dpstream.core.errors import ConfigError, StoreError
from dpstream.core.paths import read_bytes

#: The variable with the token that a server asks for.
TOKEN = "DPSTREAM_TOKEN"
#: Seconds for a connection, and for each wait for more bytes.
TIMEOUT = 30.0
UNANSWERED = "the object store cannot be reached, or refuses"
_UNTRUSTED = "certificate or encryption not trusted"
_HERE = ("localhost", "127.0.0.1", "::1")


def is_web_url(text: object) -> bool:
    """Whether a text is meant as the address of a web server."""
    return isinstance(text, str) and text.lower().startswith(("https://", "http://"))


def web_url(url: str, token: str | None = None) -> tuple[str, str]:
    """Scheme with host, and path, of an address below which files lie. Nothing is asked of the server.

    Errors:
        ConfigError: no such address; one with a name, a secret or a query in it; a token sent unencrypted.

    >>> web_url("https://example.org/v1/streams/evictions/")
    ('https://example.org', 'v1/streams/evictions')
    """
    allowed = "such as https://example.org/v1/streams/evictions"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ConfigError("unreadable address", where="read", allowed=allowed) from None
    if "@" in parts.netloc:
        raise ConfigError("the address holds a name or secret", where="read", allowed=f"a token in {TOKEN}")
    if not host or parts.query or parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError("unusable address", where="read", allowed=allowed)
    if token and (not token.isascii() or not token.isprintable()):
        raise ConfigError("unusable token", where="token", allowed="plain letters")
    if token and parts.scheme.lower() == "http" and host not in _HERE:
        raise ConfigError("a token would be sent unencrypted", where=url, allowed="https://, or no token")
    return f"{parts.scheme.lower()}://{parts.netloc}", parts.path.strip("/")


def fetched(url: str, token: str | None = None, *, head: bool = False) -> bytes:
    """What the server gives for an address that ``web_url`` has seen.

    Args:
        token: sent as a bearer token.
        head: only ask whether it is there.

    Errors:
        FileNotFoundError: the server has no such file, or lost it.
        ConfigError: it asks for a token, or refuses this one. StoreError: it cannot be reached, or fails.
    """
    request = urllib.request.Request(url, method="HEAD" if head else "GET")
    request.add_header("User-Agent", "dpstream")
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        # A proxy would read what goes to this machine unencrypted.
        through = not (token and url.startswith("http:"))
        with _opener(through).open(request, timeout=TIMEOUT) as answer:
            return b"" if head else bytes(answer.read())
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 410):
            raise FileNotFoundError(url) from None
        if error.code in (401, 403):
            raise ConfigError(
                "token refused" if token else "token required",
                where=url,
                allowed=f"a token in {TOKEN}, or read(..., token=...)",
            ) from None
        what = f"the server answers {error.code}"
    except ssl.SSLError:
        what = _UNTRUSTED
    except urllib.error.URLError as error:
        is_tls = isinstance(error.reason, ssl.SSLError)
        what = _UNTRUSTED if is_tls else "the server cannot be reached"
    except (OSError, http.client.HTTPException):
        what = "connection closed or timed out"
    raise StoreError(what, where=url, allowed="a retry, which loses nothing")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirection away from encryption."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise urllib.error.URLError("unencrypted redirection")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener(through_proxies: bool) -> urllib.request.OpenerDirector:
    """One that speaks http and https only: neither files nor ftp."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(None if through_proxies else {}),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def token_of(given: str | None) -> str | None:
    """The token that was given, or else the one of the environment."""
    return given if given is not None else os.environ.get(TOKEN) or None


#: What may stand where a file or a folder may.
URLS = "s3://bucket/path, gs://bucket/path, abfss://container@account.dfs.core.windows.net/path"
_SCHEMES = ("s3", "gs", "abfs", "abfss")
#: What may follow the path of an s3 URL after ``?``: none of it is secret.
_S3_OPTIONS = ("region", "endpoint_override", "scheme")
_MAGIC = re.compile(r"[*?[]")


def is_object_url(text: object) -> bool:
    """Whether a text is meant as the URL of an object, by its scheme."""
    return isinstance(text, str) and text.partition("://")[0] in _SCHEMES and "://" in text


def any_path(place: str | Path | ObjectPath) -> AnyPath:
    """A path of this machine, of an object store, or of a web server.

    Errors: those of ``object_path`` and ``web_path``.
    """
    if isinstance(place, ObjectPath):
        return place
    if isinstance(place, str) and is_web_url(place):
        return web_path(place)
    return object_path(place) if isinstance(place, str) and is_object_url(place) else Path(place)


def object_path(url: str) -> ObjectPath:
    """The object (or the folder of objects) of that URL. Nothing is asked of the store.

    Errors:
        ConfigError: no such URL, or one that holds a secret. It is not shown then.

    >>> str(object_path("s3://bucket/data/?region=eu-central-1") / "a.csv")
    's3://bucket/data/a.csv'
    """
    scheme = url.partition("://")[0]
    # ``?`` is also a wildcard of a pattern. Options have the form name=value.
    found = re.search(r"\?(?=[a-z_]+=)", url)
    place, options = (url[: found.start()], url[found.end() :]) if found else (url, "")
    try:
        parts = urlsplit(place.replace("?", "%3F").replace("#", "%23"))
        chosen = tuple(sorted(parse_qsl(options, strict_parsing=bool(options))))
    except ValueError:
        raise _wrong_object("unreadable URL") from None
    if parts.password is not None or (parts.username is not None and not scheme.startswith("abfs")):
        raise _wrong_object("the URL holds a name or secret", " (secrets: in the store's tools)")
    allowed = _S3_OPTIONS if scheme == "s3" else ()
    for name, _ in chosen:
        if name not in allowed:
            raise _wrong_object("unknown URL option", f", options {', '.join(_S3_OPTIONS)} (s3)")
    if scheme not in _SCHEMES or not parts.netloc:
        raise _wrong_object("bucket missing in URL")
    rest = place[len(scheme) + 3 + len(parts.netloc) :].strip("/")
    if any(part in ("", ".", "..") for part in rest.split("/")) and rest:
        raise _wrong_object("a path part is empty, . or ..")
    return ObjectPath(scheme, parts.netloc, rest, chosen)


@dataclass(frozen=True)
class Facts:
    """What the store says of an object.

    Attributes:
        size: in bytes.
        changed: when it was written, in nanoseconds since 1970.
    """

    size: int
    changed: int


@dataclass(frozen=True, repr=False, order=True)
class ObjectPath:
    """The place of an object. Its text leaves options out.

    Attributes:
        place: the bucket, or ``container@account...``.
        key: the path in it.
        options: of the connection.
        found: what the store said of it when it was found; no part of which object it is.

    Errors of all methods that ask the store:
        FileNotFoundError: no such object. OSError: the store cannot be reached, or refuses.
        ConfigError: this pyarrow cannot read such a store.
    """

    scheme: str
    place: str
    key: str
    options: tuple[tuple[str, str], ...] = ()
    found: Facts | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}/{self.key}".rstrip("/")

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    def __truediv__(self, name: str) -> ObjectPath:
        return self._at(f"{self.key}/{name}".strip("/"))

    @property
    def name(self) -> str:
        """The last part."""
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        return Path(self.name).suffix

    def with_name(self, name: str) -> ObjectPath:
        """Another object beside this one."""
        return self._at(f"{self.key.rpartition('/')[0]}/{name}".strip("/"))

    def facts(self) -> Facts | None:
        """Of the object; None where there is none."""
        import pyarrow.fs

        found = self.system.get_file_info(self.at)
        return _facts(found) if found.type == pyarrow.fs.FileType.File else None

    def is_file(self) -> bool:
        """Whether there is such an object."""
        return self.facts() is not None

    exists = is_file

    def below(self) -> dict[str, Facts]:
        """All objects below this place, by the rest of their path."""
        import pyarrow.fs

        found = self.system.get_file_info(
            pyarrow.fs.FileSelector(self.at, allow_not_found=True, recursive=True)
        )
        start = len(self.at) + 1
        return {one.path[start:]: _facts(one) for one in found if one.type == pyarrow.fs.FileType.File}

    def same(self) -> bool:
        """Whether the object is as it was when it was found."""
        return self.found is None or self.facts() == self.found

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """As ``matching``, of a pattern below this place."""
        return (self / pattern).matching()

    def matching(self) -> Iterator[ObjectPath]:
        """The objects that match this path as a pattern, as ``glob`` of the standard library has it: no hidden names,
        ``**`` for any folders; in the order of their names."""
        parts = self.key.split("/")
        fixed = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), len(parts) - 1)
        folder = self._at("/".join(parts[:fixed]))
        for rest, facts in sorted(folder.below().items()):
            if _matches(rest.split("/"), parts[fixed:]):
                yield replace(folder / rest, found=facts)

    def open(self, mode: str = "rb") -> Any:
        """The bytes, for one reading from the beginning to the end."""
        assert mode == "rb"
        return self.system.open_input_stream(self.at)

    def read_bytes(self) -> bytes:
        """The whole object."""
        with self.open() as stream:
            return bytes(stream.read())

    def write(self, buffer: Any) -> None:
        """Replace the object, by one call: it appears whole or not at all.

        Args:
            buffer: a ``pyarrow.Buffer`` that Arrow owns.
        """
        with self.system.open_output_stream(self.at) as stream:
            stream.write(buffer)

    def unlink(self) -> None:
        """Remove the object, if it is there."""
        if self.is_file():
            self.system.delete_file(self.at)

    @property
    def at(self) -> str:
        """The place for ``system``."""
        bucket = self.place.partition("@")[0]
        return f"{bucket}/{self.key}".rstrip("/")

    @property
    def system(self) -> Any:
        """The ``pyarrow.fs.FileSystem``."""
        return _system(self.scheme, self.place, self.options)

    def _at(self, key: str) -> ObjectPath:
        return ObjectPath(self.scheme, self.place, key, self.options)


@dataclass(frozen=True, repr=False, order=True)
class WebPath(ObjectPath):
    """A file, or a folder of files, of a web server, which lists none of them. It is only read.

    Errors of all methods that ask the server: as ``dpstream.io.objects.fetched``.
    """

    token: str | None = field(default=None, compare=False)

    def facts(self) -> Facts | None:
        """Of the file, whose size is not asked; None where there is none."""
        try:
            fetched(str(self), self.token, head=True)
        except FileNotFoundError:
            return None
        return Facts(0, 0)

    def below(self) -> dict[str, Facts]:
        """None: readers know what there is by the catalogue."""
        return {}

    def open(self, mode: str = "rb") -> Any:
        """The bytes, for one reading from the beginning to the end."""
        return io.BytesIO(self.read_bytes())

    def read_bytes(self) -> bytes:
        """The whole file."""
        return fetched(str(self), self.token)

    @property
    def system(self) -> Any:
        """There is none.

        Errors:
            ConfigError: always.
        """
        raise ConfigError("a web server gives releases only", where=str(self), allowed=URLS)

    def _at(self, key: str) -> ObjectPath:
        return WebPath(self.scheme, self.place, key, token=self.token)


def web_path(url: str, token: str | None = None) -> WebPath:
    """A folder of a web server, such as https://example.org/v1/streams/evictions.

    Args:
        token: for a server that asks for one; by default what the variable DPSTREAM_TOKEN holds.

    Errors: as ``dpstream.io.objects.web_url``.
    """
    token = token_of(token)
    place, key = web_url(url, token)
    scheme, _, host = place.partition("://")
    return WebPath(scheme, host, key, token=token)


AnyPath = Path | ObjectPath


@contextlib.contextmanager
def asking(place: AnyPath) -> Iterator[None]:
    """Say it in a sentence where the store does not answer; other errors, and those of this machine, pass.

    Errors:
        StoreError: the store cannot be reached, or refuses.
    """
    try:
        yield
    except OSError as error:
        if not isinstance(getattr(place, "inner", place), ObjectPath) or isinstance(error, FileNotFoundError):
            raise
        # The store's own words quote its requests.
        raise StoreError(
            UNANSWERED,
            where=str(place),
            allowed="an existing bucket, its region or endpoint, and access rights; a retry loses nothing",
        ) from None


def read_place(place: AnyPath) -> bytes:
    """Read a whole file, of this machine after ``check_file``.

    Errors:
        ConfigError: no file. StoreError: an object store that does not answer.
        OSError: it cannot be read, or is not there.
    """
    with asking(place):
        return place.read_bytes() if isinstance(place, ObjectPath) else read_bytes(place)


@functools.lru_cache
def _system(scheme: str, place: str, options: tuple[tuple[str, str], ...]) -> Any:
    import pyarrow as pa
    import pyarrow.fs

    try:
        if scheme == "s3":
            # Written where it is called: a thread in the background could hold memory of Python when the program ends.
            return pyarrow.fs.S3FileSystem(background_writes=False, **dict(options))
        return pyarrow.fs.FileSystem.from_uri(f"{scheme}://{place}/")[0]
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, AttributeError, TypeError):
        raise ConfigError(
            f"pyarrow {pa.__version__} cannot open {scheme}:// with these options",
            where=f"{scheme}://{place}",
            allowed="a newer pyarrow, or local files",
        ) from None


def _facts(info: Any) -> Facts:
    return Facts(int(info.size), int(info.mtime_ns or 0))


def _matches(names: list[str], parts: list[str]) -> bool:
    if not parts:
        return not names
    if parts[0] == "**" and len(parts) > 1:
        return _matches(names, parts[1:]) or (
            bool(names) and not names[0].startswith(".") and _matches(names[1:], parts)
        )
    if not names or (names[0].startswith(".") and not parts[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(names[0], parts[0]) and _matches(names[1:], parts[1:])


def _wrong_object(what: str, more: str = "") -> ConfigError:
    return ConfigError(f"{what} of an object store", allowed=f"{URLS}{more}")
