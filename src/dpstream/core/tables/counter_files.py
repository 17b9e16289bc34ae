"""Counters of users, or records by key, in files: written once, encrypted, and believed only where a committed row
names them.

Guarantee: ``read_file`` gives what ``write_file`` was given for the file that the row names, or fails. A file is
AES-256-GCM of hashed ids and what is known of each, under a key of its own (HMAC-SHA256 of its step's key and its name,
so that no nonce is used twice with one key), and the row has its tag. Who has no key learns from a file how many users
it has, by its length. Once its row is gone nobody can read it, wherever a copy lies.

A step adds a file of counters to a shard, with those that it changes. A file that is at least half as large as the one
before it is joined with it: a shard has at most as many files as the logarithm of its users, and each counter is
written again as often. (Released records that stay are kept by the same rule.)

Trusted base: kernel (holds counters of users).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core import durable
from dpstream.core.errors import StoreDamagedError
from dpstream.core.foreign import cipher
from dpstream.core.schema.domain import Domain
from dpstream.core.tables.access import CounterFile, CounterShards
from dpstream.core.tables.contribution import EventCounts, Words
from dpstream.core.tables.present_table import PresentTable, search_keys

_ID, _TAG = 16, 16
#: Each file has a key of its own.
_NONCE = bytes(12)

#: What is known of each id: rows of bytes, as many for all.
Values = NDArray[np.uint8]


@dataclass(frozen=True, repr=False)
class Generation:
    """What the files of one step are called and encrypted with; executors get it, and nothing that says more.

    Attributes:
        name: no other attempt at any step has it.
        key: 32 secret bytes, for these files alone.
    """

    name: str
    key: bytes

    def file_name(self, shard: int, attempt: int) -> str:
        """Of one attempt at one shard: a task that is tried again, or runs twice, writes another file."""
        return f"{self.name}-{shard:04d}-{attempt}"


@dataclass(frozen=True, repr=False)
class ShardCounters:
    """The counters of one shard, as its files hold them; immutable. Private.

    Attributes:
        parts: for each file the ids, which ascend, and their counters; the oldest first.
    """

    parts: tuple[tuple[Words, EventCounts], ...]

    def events(self, ids: Words) -> EventCounts:
        """The counters of some users; 0 for those that never came."""
        found = np.zeros(len(ids), np.int64)
        for words, counts in self.parts:  # later ones stand in the place of earlier ones
            place, there = search_keys(words, ids)
            found[there] = counts[place[there]]
        return found

    def grown(self, ids: Words, counts: EventCounts) -> tuple[int, Words, EventCounts]:
        """What is written for a step that changes these counters (at least one; the ids ascend): how many of the
        present files stay, and the content of the new one."""
        stay = len(self.parts)
        while stay and 2 * len(ids) >= len(self.parts[stay - 1][0]):
            stay -= 1
            words, before = self.parts[stay]
            ids, counts = _joined((words, before), (ids, counts))
        return stay, ids, counts


def shard_of(words: Words, number: int) -> NDArray[np.int64]:
    """The shard of each hashed id: its first bits."""
    bits = number.bit_length() - 1
    return (words[:, 0] >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(words), np.int64)


def write_file(
    folder: Path, generation: Generation, name: str, ids: Words, counts: EventCounts
) -> CounterFile:
    """Write a file that is not there yet; it is on the disk when this returns, and its name is once the folder is
    synced.

    Errors:
        ConfigError: the package ``cryptography`` is missing. OSError: the disk failed.
    """
    values = counts.astype("<u4")[:, None].view(np.uint8)
    return write_rows(folder, generation, name, ids, values)


def write_rows(folder: Path, generation: Generation, name: str, ids: Words, values: Values) -> CounterFile:
    """As ``write_file``, with any bytes beside each id, as many for all."""
    data = ids.astype(">u8").tobytes() + values.tobytes()
    sealed = _cipher(generation.key, name).encrypt(_NONCE, data, name.encode())
    durable.write_file(folder / name, sealed, mode=0o600)
    return CounterFile(name, len(ids), sealed[-_TAG:], generation.key, values.shape[1])


def read_file(folder: Path, file: CounterFile) -> tuple[Words, EventCounts]:
    """Ids that ascend, and their counters.

    Errors:
        StoreDamagedError: the file was changed, or another one has its name. OSError: it cannot be read.
    """
    words, values = read_rows(folder, file)
    return words, values.view("<u4")[:, 0].astype(np.int64)


def read_rows(folder: Path, file: CounterFile) -> tuple[Words, Values]:
    """What ``write_rows`` was given; errors as ``read_file``."""
    data = (folder / file.name).read_bytes()
    plain = _opened(data, file)
    if plain is None:
        raise StoreDamagedError("a file in the folder users was changed", where=str(folder / file.name))
    split = _ID * file.users
    words = np.frombuffer(plain[:split], ">u8").reshape(-1, 2).astype(np.uint64)
    return words, np.frombuffer(plain[split:], np.uint8).reshape(-1, file.width)


def read_shard(folder: Path, files: Sequence[CounterFile]) -> ShardCounters:
    """The counters of a shard.

    Errors:
        StoreDamagedError, OSError: as ``read_file``.
    """
    return ShardCounters(tuple(read_file(folder, file) for file in files))


def require_cipher() -> None:
    """Look whether files can be written here, before anything is read.

    Errors:
        ConfigError: the package ``cryptography`` is missing.
    """
    _library()


def file_bytes(file: CounterFile) -> int:
    """The size of a file."""
    return (_ID + file.width) * file.users + _TAG


def missing_files(folder: Path, files: Iterable[CounterFile]) -> list[str]:
    """The names of those that are not there, or have another size. Cost: a look at each name."""
    return [file.name for file in files if _size(folder / file.name) != file_bytes(file)]


def damaged_files(folder: Path, files: Iterable[CounterFile]) -> list[str]:
    """The names of those that are not there, cannot be read, or were changed. Cost: reads and decrypts them, one at a
    time."""
    wrong = []
    for file in files:
        try:
            data = (folder / file.name).read_bytes()
        except OSError:
            data = b""
        if _opened(data, file) is None:
            wrong.append(file.name)
    return wrong


def sweep_files(folder: Path, shards: CounterShards | None) -> None:
    """Remove all files but those that are committed: of steps that were never committed, of tasks that were tried
    again, and of earlier steps."""
    if not folder.is_dir():
        return
    kept = set() if shards is None else {file.name for file in shards.all_files()}
    for path in sorted(folder.iterdir()):
        if path.name not in kept:
            durable.unlink(path)


def _joined(old: tuple[Words, EventCounts], new: tuple[Words, EventCounts]) -> tuple[Words, EventCounts]:
    """Both, with the newer counter of a user that is in both."""
    ids, counts = np.concatenate([old[0], new[0]]), np.concatenate([old[1], new[1]])
    order = np.lexsort((ids[:, 1], ids[:, 0]))  # stable: the newer one comes last
    ids, counts = ids[order], counts[order]
    last = np.ones(len(ids), np.bool_)
    last[:-1] = (ids[1:] != ids[:-1]).any(axis=1)
    return ids[last], counts[last]


def _size(path: Path) -> int | None:
    # A link is not followed: what it leads to was not written here.
    if path.is_symlink() or not path.is_file():
        return None
    return path.stat().st_size


def _opened(data: bytes, file: CounterFile) -> bytes | None:
    """The content of a file; None where it is not the one that is named."""
    if len(data) != file_bytes(file) or not hmac.compare_digest(data[-_TAG:], file.tag):
        return None
    cipher, invalid = _cipher(file.key, file.name), _library()[1]
    try:
        plain: bytes = cipher.decrypt(_NONCE, data, file.name.encode())
    except invalid:
        return None
    return plain


def _cipher(key: bytes, name: str) -> Any:
    return _library()[0](hmac.digest(key, name.encode(), "sha256"))


def _library() -> tuple[Any, Any]:
    return cipher("spark,encryption", "unit = user or record")


_FIRST = 4


def present_width(domain: Domain) -> int:
    """Bytes of a row beside its hashed key."""
    return _FIRST + len(domain.sizes) * PresentTable.empty(domain).codes.dtype.itemsize


def write_present_shard(
    folder: Path, generation: Generation, name: str, table: PresentTable, departed: Words
) -> CounterFile:
    """Write the records of a shard, and the keys that left; as ``counter_files.write_file``.

    Args:
        departed: different, in any order; none of them is in ``table``.
    """
    gone = np.zeros((len(departed), present_width(table.domain)), np.uint8)
    keys, values = np.concatenate([table.keys, departed]), np.concatenate([_values(table), gone])
    order = np.lexsort((keys[:, 1], keys[:, 0])) if len(departed) else slice(None)
    return write_rows(folder, generation, name, keys[order], values[order])


def read_present_shard(
    folder: Path, files: Sequence[CounterFile], domain: Domain
) -> tuple[PresentTable, Words]:
    """The records of a shard, and the keys that left, as far as they are kept.

    Args:
        files: of the shard; at most one.

    Errors:
        StoreDamagedError: the file was changed, or another one has its name. OSError: it cannot be read.
    """
    empty = PresentTable.empty(domain)
    if not files:
        return empty, empty.keys
    [file] = files
    keys, values = read_rows(folder, file)
    first = np.ascontiguousarray(values[:, :_FIRST]).view("<i4")[:, 0].astype(np.int32)
    there = first > 0
    kind = empty.codes.dtype.newbyteorder("<")
    codes: NDArray[Any] = np.ascontiguousarray(values[there, _FIRST:]).view(kind)
    stored = codes.astype(empty.codes.dtype, order="F")
    return PresentTable(domain, keys[there], first[there], stored), keys[~there]


def _values(table: PresentTable) -> Values:
    codes = np.ascontiguousarray(table.codes, table.codes.dtype.newbyteorder("<"))
    first = np.ascontiguousarray(table.first, "<i4")[:, None]
    return np.concatenate([first.view(np.uint8), codes.view(np.uint8)], axis=1)
