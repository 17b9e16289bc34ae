"""A folder of releases as consumers may see it: what its catalogue lists, opened without leaving the folder."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import stat
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.paths import parse_json, sha256_hex
from dpstream.io.sinks.catalogue import CATALOGUE, Catalogue, Entry, as_it_stands
from dpstream.io.sinks.simulated_errors import FOLDER
from dpstream.io.sinks.target import CODEBOOK, MANIFEST, MEASUREMENTS, NOTICE, step_name
from dpstream.service.releases.problems import Problem

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_NO_FILE = (errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENODEV)


class OpenFile:
    """An open file for one reader. What it holds stays, whatever is done with its name meanwhile."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.facts = os.fstat(fd)

    @property
    def path(self) -> Path:
        """Where libraries that open files by name find this very file."""
        return Path(f"/dev/fd/{self.fd}")

    def again(self) -> OpenFile:
        """The same file for another reader."""
        return OpenFile(os.dup(self.fd))

    def close(self) -> None:
        """Let it go; may be repeated."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


@dataclass(frozen=True, eq=False)
class Listing:
    """What a catalogue says at one moment.

    Attributes:
        facts: of the stream. entries: by step, in their order. readable: the steps whose tables can be put together.
        digest: SHA-256 of all this.
    """

    facts: dict[str, Any]
    entries: dict[int, Entry]
    readable: tuple[int, ...]
    digest: str

    @property
    def last(self) -> int:
        """The last listed step; 0 where there is none."""
        return max(self.entries, default=0)


class ReleaseFolder:
    """One folder of releases under the name that readers use.

    Errors of all methods:
        Problem: 404 for what is not listed, 410 for what was taken back, 503 while files change.
        StoreDamagedError: files that differ from their published hashes, or folders.
    """

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        self._lock = threading.Lock()
        self._hashing = threading.Lock()
        self._known: tuple[object, Listing] | None = None
        self._digests: dict[object, str] = {}
        self._files = [str(root / name) for name in (CATALOGUE, CODEBOOK)]
        self._folders = [str(root / name) for name in ("catalogue", FOLDER)]

    def listing(self) -> Listing:
        """The catalogue as it is now. Read again only when one of its files is another one."""
        with self._lock:
            try:
                now = self._fingerprint()
                if self._known is None or self._known[0] != now:
                    self._known = now, _listed(Catalogue(self.root))
            except FileNotFoundError:
                raise Problem(404, "nothing was released yet") from None
            return self._known[1]

    def version(self) -> object:
        """Another one whenever a file of the catalogue, the codebook or errors by simulation change; None where they
        cannot be read."""
        try:
            return *map(_version, self._files), *map(_versions, self._folders)
        except (OSError, StoreDamagedError):
            return None

    def entry(self, step: int) -> Entry:
        """The entry of a step that is listed, whatever its state."""
        found = self.listing().entries.get(step)
        if found is None:
            raise Problem(404, f"step {step} does not exist")
        return found

    def standing(self, step: int) -> Entry:
        """The entry of a step whose table or changes are there."""
        entry = self.entry(step)
        if entry["state"] == "withdrawn":
            raise _withdrawn(step, entry.get("reason"))
        if not entry["kept"]:
            raise Problem(410, f"the table of step {step} was dropped by the keep policy")
        return entry

    def manifest(self, step: int) -> tuple[bytes, dict[str, Any]]:
        """The manifest of a listed step, as it was published, and what it says, with the files that are there now."""
        entry = self.entry(step)
        with self.verified(step, MANIFEST, str(entry["manifest_sha256"])) as file:
            data = file.path.read_bytes()
        return data, as_it_stands(entry, _parsed(data))

    def codebook(self) -> dict[str, Any]:
        """What the columns are."""
        try:
            return _parsed(self.read(CODEBOOK))
        except FileNotFoundError:
            raise StoreDamagedError("the codebook is missing") from None

    def step_file(self, step: int, name: str) -> OpenFile:
        """A file of a step that its manifest names (or the manifest, or the notice of a withdrawal)."""
        if name == MANIFEST:
            return self.verified(step, MANIFEST, str(self.entry(step)["manifest_sha256"]))
        if name == NOTICE and self.entry(step)["state"] == "withdrawn":
            return self.open(step_name(step), name)
        files = self.manifest(step)[1]["files"]
        if name != MEASUREMENTS:
            self.standing(step)
        if name not in files:
            raise Problem(404, f"step {step} has no such file")
        return self.verified(step, name, str(files[name]["sha256"]))

    def verified(self, step: int, name: str, digest: str) -> OpenFile:
        """A file of a step whose bytes have the published hash; each version of a file is read for it once."""
        try:
            file = self.open(step_name(step), name)
        except FileNotFoundError:
            self._why_missing(step, name)
        if self.digest(file) != digest:
            file.close()
            raise StoreDamagedError(f"a file of step {step} differs from its published hash")
        return file

    def digest(self, file: OpenFile) -> str:
        """The SHA-256 of a file; remembered for this version of it."""
        key = file.facts.st_dev, file.facts.st_ino, file.facts.st_size, file.facts.st_mtime_ns
        if (known := self._digests.get(key)) is not None:
            return known
        with self._hashing:  # one at a time: many readers come at once for what is new
            if (known := self._digests.get(key)) is None:
                if len(self._digests) >= 10_000:
                    self._digests.clear()
                with file.path.open("rb") as content:
                    known = self._digests[key] = hashlib.file_digest(content, "sha256").hexdigest()
            return known

    def open(self, *parts: str) -> OpenFile:
        """A file below the folder: no part of the way is a link, and it is a plain file.

        Errors:
            FileNotFoundError: it is not there.
        """
        if not all(_PART.fullmatch(part) for part in parts):
            raise FileNotFoundError
        path = self.root.joinpath(*parts)
        try:
            if path.resolve(strict=True) != self.root.resolve().joinpath(*parts):
                raise OSError(errno.ELOOP, "a link")
            # Opening a pipe does not wait for its writer.
            file = OpenFile(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
            if not stat.S_ISREG(file.facts.st_mode):
                file.close()
                raise OSError(errno.ENOTDIR, "a device")
            return file
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
            raise StoreDamagedError("expected a readable file of a release") from None

    def read(self, *parts: str) -> bytes:
        """All bytes of such a file."""
        with self.open(*parts) as file:
            return file.path.read_bytes()

    def plain(self, *parts: str) -> None:
        """Check that a file, if it is there, is one that ``open`` would open; libraries open it by name then."""
        with contextlib.suppress(FileNotFoundError):
            self.open(*parts).close()

    def _fingerprint(self) -> object:
        """What changes with any file of the catalogue, closed parts included."""
        self.plain(CATALOGUE)
        return _version(self._files[0]), *_versions(self._folders[0])

    def _why_missing(self, step: int, name: str) -> None:
        """Say why a listed file is not there: its step was taken back just now, or its files change."""
        if name != MEASUREMENTS and name != MANIFEST:
            self.standing(step)
        with contextlib.suppress(FileNotFoundError, StoreDamagedError):
            notice = _parsed(self.read(step_name(step), NOTICE))
            raise _withdrawn(step, notice.get("reason"))
        raise Problem(503, f"step {step} is changing", {"Retry-After": "1"})


def find_places(texts: Sequence[str]) -> list[ReleaseFolder]:
    """Folders of releases, each ``PLACE`` or ``NAME=PLACE``; without a name it is that of the stream.

    Errors:
        ConfigError: no folder of releases, a name twice, a name that cannot stand in an address.
    """
    places: dict[str, ReleaseFolder] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or "/" in name or Path(text).is_dir():
            name, rest = "", text
        root = Path(rest)
        if not root.is_dir():
            raise ConfigError("the folder is missing", where=rest, allowed="a local folder of releases")
        if not name:
            name = _name_of(root)
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"the name {name!r} cannot stand in an address",
                where=rest,
                allowed=f"NAME={rest} of letters, digits, dots, - and _",
            )
        if name in places:
            raise ConfigError(
                f"two streams have the name {name!r}", where=rest, allowed=f"ANOTHER_NAME={rest}"
            )
        places[name] = ReleaseFolder(name, root.absolute())
    return list(places.values())


def _name_of(root: Path) -> str:
    try:
        return str(Catalogue(root).facts["stream"])
    except (FileNotFoundError, KeyError):
        raise ConfigError(
            "releases are missing",
            where=str(root),
            allowed=f"a stream's folder, or NAME={root} before that",
        ) from None


def _listed(catalogue: Catalogue) -> Listing:
    entries = catalogue.entries()
    readable: list[int] = []
    for entry in entries:
        follows = entry["state"] == "change" and readable[-1:] == [entry["step"] - 1]
        if entry["kept"] and (entry["state"] == "full" or follows):
            readable.append(entry["step"])
    digest = sha256_hex(repr((sorted(catalogue.facts.items()), entries)).encode())
    return Listing(catalogue.facts, {one["step"]: one for one in entries}, tuple(readable), digest)


@functools.lru_cache(maxsize=256)
def _parsed(data: bytes) -> dict[str, Any]:
    try:
        value: dict[str, Any] = parse_json(data)
        assert isinstance(value, dict)
    except (ValueError, AssertionError):
        raise StoreDamagedError("a file of a release cannot be read") from None
    return value


def _version(path: str | os.DirEntry[str]) -> tuple[Any, ...]:
    found = os.lstat(path) if isinstance(path, str) else path.stat(follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        raise StoreDamagedError("a part of the catalogue is a folder")
    return found.st_ino, found.st_size, found.st_mtime_ns


def _versions(folder: str) -> list[tuple[Any, ...]]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as files:
        return sorted((one.name, *_version(one)) for one in files)
    return []


def _withdrawn(step: int, reason: object) -> Problem:
    words = f"step {step} was withdrawn" + (f": {reason}" if reason else "")
    return Problem(410, words, reason=reason if isinstance(reason, str) else None)
