"""The counters of users, or the records that are present, in files: what the store's row says of them, and
whether they are what it says.

The files are in the folder ``users`` of the secret state directory, or where a link of that name leads, in a folder
named by the stream's id: executors on other machines have to see it under the same path. The row (``contribution``) has
in the place of a checksum the names of the files, their sizes, keys and tags. Nothing else makes a file believed, so
that a stop between the files and the transaction leaves files that nobody reads, which are removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import CounterFile, CounterShards, Packed
from dpstream.core.contracts.user_counters import COUNTER
from dpstream.core.tables.counter_files import damaged_files, file_bytes, missing_files
from dpstream.stream.store import container
from dpstream.stream.store.lock import USERS

_FORMAT = 1
_KEY, _TAG = 32, 16
#: Bytes of files that are read again at each opening.
_SAMPLE = 2**26


def user_folder(state: Path, meta: Mapping[str, bytes]) -> Path:
    """Where a stream's files are, which may not be there."""
    return state / USERS / meta["stream_id"].hex()


def problem_of_files(folder: Path, shards: CounterShards, step: int, *, everything: bool) -> str | None:
    """What is wrong with the committed files; None if nothing is.

    Args:
        everything: whether all of them are read. Else names and sizes are looked at, and some files are read: with
            each step other ones. (A task reads no file without its tag.)

    Cost: a look at each name (some thousand), and reading 64 MiB; or reading everything, 20 bytes a user.
    """
    files = shards.all_files()
    if missing_files(folder, files):
        return "a file in the folder users is missing, or was cut short"
    chosen, size = files if everything else [], 0
    while not everything and len(chosen) < len(files) and size < _SAMPLE:
        chosen.append(files[(step + len(chosen)) % len(files)])
        size += file_bytes(chosen[-1])
    return "a file in the folder users was changed" if damaged_files(folder, chosen) else None


def pack_shards(shards: CounterShards) -> bytes:
    """What the row says of the files."""
    files = [(shard, file) for shard in sorted(shards.files) for file in shards.files[shard]]
    keys = sorted({file.key for _, file in files})
    meta = {"format": _FORMAT, "shards": shards.number, "names": [file.name for _, file in files]}
    # Of counters it is left out, as in older versions, which take other files for damage.
    widths = {file.width for _, file in files} - {COUNTER}
    meta |= {"width": widths.pop()} if widths else {}
    arrays: dict[str, NDArray[Any]] = {
        "shard": np.array([shard for shard, _ in files], np.int64),
        "users": np.array([file.users for _, file in files], np.int64),
        "key": np.array([keys.index(file.key) for _, file in files], np.int64),
        "keys": np.frombuffer(b"".join(keys), np.uint8),
        "tags": np.frombuffer(b"".join(file.tag for _, file in files), np.uint8),
    }
    return container.dump(Packed(meta, arrays))


def unpack_shards(data: bytes, where: str) -> CounterShards:
    """The inverse of ``pack_shards``.

    Errors:
        StoreDamagedError: it was changed. StoreFormatError: a newer version wrote it.
    """
    packed = container.load(data, where=where)
    arrays, names = packed.arrays, packed.meta["names"]
    keys = arrays["keys"].tobytes()
    keys_of = [keys[start : start + _KEY] for start in range(0, len(keys), _KEY)]
    tags = arrays["tags"].tobytes()
    files: dict[int, list[CounterFile]] = {}
    width = int(packed.meta.get("width", COUNTER))
    columns = (arrays[name].tolist() for name in ("shard", "users", "key"))
    for number, (name, shard, users, key) in enumerate(zip(names, *columns, strict=True)):
        file = CounterFile(str(name), users, tags[_TAG * number : _TAG * (number + 1)], keys_of[key], width)
        files.setdefault(shard, []).append(file)
    return CounterShards(int(packed.meta["shards"]), {one: tuple(found) for one, found in files.items()})
