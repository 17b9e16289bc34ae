"""The catalogue of released tables: writes and reads the files that list the steps. Public facts only.

``catalogue.json`` lists the steps of the open part. After ``PART`` steps the part is closed: its steps move to a file
of their own (``part_name``). That file is rewritten only when the entry of a step changes (its table was withdrawn,
dropped by the keep policy, or approved late). So a step writes the lines of two parts at most, however long the stream
is. Part k holds the steps from k * PART + 1 on, whether they are published or not. ``closed_parts`` is the number of
closed parts, so no file needs a list of them, which would grow.

A part is on the disk before the ``catalogue.json`` that counts it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpstream.core.errors import StoreDamagedError, StoreFormatError
from dpstream.core.paths import parse_json
from dpstream.io.objects import AnyPath, any_path, read_place

CATALOGUE = "catalogue.json"
#: The folder of closed parts, beside ``catalogue.json``.
PARTS = "catalogue"
#: How many steps a part has.
PART = 100
_FORMAT = 1

#: The entry of a step: ``step``, ``state``, ``kept``, ``manifest_sha256``; ``reason`` where it was withdrawn; ``files``
#: where the step before was, whose table the changes of this one would give away: what stands here instead of the files
#: that the manifest lists.
Entry = dict[str, Any]


def part_name(part: int, size: int | None = None) -> str:
    """The path of a closed part from the folder of releases; the first part is 0.

    >>> part_name(2)
    'catalogue/000201-000300.json'
    """
    size = PART if size is None else size
    return f"{PARTS}/{part * size + 1:06d}-{(part + 1) * size:06d}.json"


def entry_line(step: int, state: str, kept: bool, digest: str, **more: Any) -> str:
    """The entry of a step as a line of JSON."""
    entry = {"step": step, "state": state, "kept": kept, "manifest_sha256": digest, **more}
    return json.dumps(entry, ensure_ascii=False)


def as_it_stands(entry: Entry, manifest: dict[str, Any]) -> dict[str, Any]:
    """What a manifest says, with the files that are there now (``Entry``)."""
    return {**manifest, "files": entry["files"]} if "files" in entry else manifest


def index_bytes(facts: Mapping[str, Any], closed: int, lines: Sequence[str]) -> bytes:
    """The file ``catalogue.json``: facts of the stream, the number of closed parts, and the entries of the open
    part."""
    return _document({"format": _FORMAT, **facts, "part_steps": PART, "closed_parts": closed}, lines)


def part_bytes(stream_id: str, part: int, lines: Sequence[str]) -> bytes:
    """The file of a closed part."""
    return _document({"format": _FORMAT, "stream_id": stream_id, "part": part}, lines)


class Catalogue:
    """The catalogue of a folder of releases. A closed part is read when a step of it is asked for.

    Attributes:
        facts: the facts of the stream in ``catalogue.json``; at least ``format`` and ``stream_id``.
        stream_id: the public id of the stream that made the releases.

    Errors (here and in all methods):
        FileNotFoundError: ``catalogue.json`` is missing. StoreDamagedError: it, or a part, cannot be read, or a part
            is missing. StoreFormatError: a newer version of dpstream wrote it.
    """

    def __init__(self, folder: str | AnyPath) -> None:
        self._folder = any_path(folder)
        path = self._folder / CATALOGUE
        self.facts, self._open = _read(path)
        try:
            self.stream_id = str(self.facts["stream_id"])
            self._closed = int(self.facts.pop("closed_parts"))
            self._size = int(self.facts.pop("part_steps"))
        except (KeyError, TypeError, ValueError):
            raise _unreadable(path) from None
        if self._closed < 0 or self._size < 1:
            raise _unreadable(path)
        self._parts: dict[int, dict[int, Entry]] = {}

    def entry(self, step: int) -> Entry | None:
        """The entry of a step; None where it is not listed. Reads one file at most."""
        if step < 1 or step > self._closed * self._size:
            return self._open.get(step)
        return self._part((step - 1) // self._size).get(step)

    def entries(self) -> list[Entry]:
        """The entries of all steps, in their order."""
        closed = (self._part(part) for part in range(self._closed))
        return [entries[step] for entries in (*closed, self._open) for step in sorted(entries)]

    def backwards(self) -> Iterator[int]:
        """The numbers of all listed steps, the last one first."""
        yield from sorted(self._open, reverse=True)
        for part in range(self._closed - 1, -1, -1):
            yield from sorted(self._part(part), reverse=True)

    def _part(self, part: int) -> dict[int, Entry]:
        if part not in self._parts:
            path = self._folder / part_name(part, self._size)
            try:
                facts, entries = _read(path)
            except FileNotFoundError:
                raise StoreDamagedError("catalogue part missing", where=str(path)) from None
            if facts.get("stream_id") != self.stream_id:
                raise StoreDamagedError("a catalogue part belongs to another stream", where=str(path))
            if any((step - 1) // self._size != part for step in entries):
                raise _unreadable(path)
            self._parts[part] = entries
        return self._parts[part]


def listed_hashes(folder: AnyPath, stream_id: str) -> dict[int, str]:
    """The SHA-256 of the manifest of every step that any file of the catalogue lists.

    This is for the stream itself, which rewrites missing files. So a lost file is accepted here, as is a part that
    ``catalogue.json`` does not count yet.

    Errors:
        StoreDamagedError: a file cannot be read, belongs to another stream, or contradicts another one.
        StoreFormatError: a newer version of dpstream wrote it.
    """
    hashes: dict[int, str] = {}
    index = folder / CATALOGUE
    parts: list[AnyPath] = [*(folder / PARTS).glob("*.json")]
    for path in (*([index] if index.exists() else []), *sorted(parts, key=str)):
        facts, entries = _read(path)
        if facts.get("stream_id") != stream_id:
            raise StoreDamagedError(
                "the releases belong to another stream",
                where=str(path),
                allowed="the state that made them, or a directory for each stream",
            )
        for step, entry in entries.items():
            digest = str(entry["manifest_sha256"])
            if hashes.setdefault(step, digest) != digest:
                raise StoreDamagedError(f"two manifests of step {step} in the catalogue", where=str(path))
    return hashes


def _document(head: Mapping[str, Any], lines: Sequence[str]) -> bytes:
    text = json.dumps(head, indent=1, ensure_ascii=False)
    listed = ",\n".join(f"  {line}" for line in lines)
    body = f"[\n{listed}\n ]" if lines else "[]"
    return f'{text[:-2]},\n "steps": {body}\n}}\n'.encode()


def _read(path: AnyPath) -> tuple[dict[str, Any], dict[int, Entry]]:
    """The facts in a file, and its entries by step."""
    data = read_place(path)
    try:
        facts: dict[str, Any] = parse_json(data)
        version = facts["format"]
        if version == _FORMAT:
            listed = facts.pop("steps")
            return facts, {int(entry["step"]): _sound(entry) for entry in listed}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise _unreadable(path) from None
    raise StoreFormatError(
        f"unknown catalogue format {version!r}",
        where=str(path),
        allowed=f"format {_FORMAT}, or a newer dpstream",
    )


def _sound(entry: Entry) -> Entry:
    entry["state"], entry["kept"], entry["manifest_sha256"]  # raises KeyError where one is missing
    if not isinstance(entry["step"], int) or not 0 < entry["step"] < 2**63:
        raise ValueError("step number missing")
    return entry


def _unreadable(path: AnyPath) -> StoreDamagedError:
    return StoreDamagedError("unreadable catalogue", where=str(path))
