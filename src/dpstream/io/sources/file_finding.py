"""The files that ``[source] path`` names, here or in an object store, and the names they have in a stream."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError
from dpstream.core.objects import AnyPath, ObjectPath, is_object_url, object_path
from dpstream.io.sources.file_opening import UnreadableError, changed_file, readable
from dpstream.io.sources.source_keys import SourceKeys


def find_files(options: SourceKeys, base: Path) -> list[AnyPath]:
    """The files, in the order of their names. With ``complete = "done"`` only those that are marked as finished.

    Errors:
        UnreadableError: no file matches, or the object store does not answer.
        ConfigError: two files have one name.
    """
    by_name: dict[str, AnyPath] = {}
    for pattern in options.path:
        for path in _matching(pattern, base):
            if options.complete == "rename" or _is_marked(path):
                name = file_name(path, base)
                if by_name.setdefault(name, path) != path:
                    raise ConfigError(
                        f"two files have the name {name!r}",
                        where="[source] path",
                        allowed="each path once, in one bucket or folder: a bucket is no part of a file's name",
                    )
    if not by_name:
        raise UnreadableError(
            "no file matches", where=", ".join(options.path), allowed="a pattern that matches a file or more"
        )
    return [by_name[name] for name in sorted(by_name)]


def file_name(path: AnyPath, base: Path) -> str:
    """What a file is called in a stream: its path from the configuration's folder, or in its bucket. So files may move
    to a bucket and keep their names."""
    if isinstance(path, ObjectPath):
        return path.key
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else path.as_posix()


def changes_of(paths: Iterable[AnyPath]) -> Any:
    """A value that changes when a file comes, goes or changes.

    Errors:
        FileNotFoundError: one has gone meanwhile.
    """
    return tuple((str(path), *_facts(path)) for path in paths)


class FilesAsFound:
    """The files of a reading as they were found. A record that another writer moves from one file to another during
    the reading would be read twice or never, so whatever is read is held against names, sizes and times.

    Errors:
        UnreadableError: one has changed or gone since it was found. Nothing of the reading may be used.
    """

    def __init__(self, paths: Iterable[AnyPath], base: Path) -> None:
        self._base = base
        self._found: dict[AnyPath, tuple[int, ...]] = {}
        self._read: dict[AnyPath, None] = {}
        for path in paths:
            try:
                self._found[path] = _facts(path)
            except FileNotFoundError:
                raise changed_file(file_name(path, base)) from None

    def reading(self, path: AnyPath) -> None:
        """Remember that a file is read, for the next ``check``."""
        self._read[path] = None

    def check(self) -> None:
        """Hold the files that were read since the last check against what they were."""
        for path in self._read:
            if not self._same(path):
                raise changed_file(file_name(path, self._base))
        self._read.clear()

    def _same(self, path: AnyPath) -> bool:
        if isinstance(path, ObjectPath):
            with readable(path):
                return path.same()
        try:
            return _facts(path) == self._found.get(path)
        except FileNotFoundError:
            return False


def _facts(path: AnyPath) -> tuple[int, ...]:
    if isinstance(path, ObjectPath):
        facts = path.found or path.facts()
        if facts is None:
            raise FileNotFoundError
        return facts.size, facts.changed
    status = path.stat()
    # Of two files that exchange their names, size and time of writing may be the same.
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _matching(pattern: str, base: Path) -> Iterator[AnyPath]:
    if is_object_url(pattern):
        place = object_path(pattern)
        with readable(place):
            yield from list(place.matching())
        return
    for text in glob.glob(str(base / pattern), recursive=True):
        path = Path(text)
        if path.is_file():
            yield path


def _is_marked(path: AnyPath) -> bool:
    if path.suffix == ".done":
        return False
    mark = path.with_name(f"{path.name}.done")
    if isinstance(mark, ObjectPath):
        with readable(mark):
            return mark.exists()
    return mark.exists()
