"""What is known of each user or key between the steps of a stream: rows of its store, or files of its state.

A few million of them are rows (``UserEvents`` says which ones a step changes). Those of an engine whose executors
count are files, in shards by the first bits of a user's keyed hash: each file is written once, and the step's
transaction says which files are believed (``ShardedEvents``). Records with keys are kept in the same way: a row of a
file is then a record that is present (``core.tables.counter_files``), and a user is a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

#: Bytes of a counter in a file.
COUNTER = 4


@dataclass(frozen=True, repr=False)
class UserEvents:
    """The counters that a step changes: for each user of its batch, the events admitted before and after. Private."""

    ids: list[bytes]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    dropped: int


@dataclass(frozen=True, repr=False)
class CounterFile:
    """One file of counters. Private.

    Attributes:
        name: unlike that of any other file that was ever begun.
        users: how many rows it has; its size follows.
        tag: binds its content; a changed file does not fit.
        key: that it is encrypted with; 32 bytes, the same for the files of one step.
        width: bytes of a row beside its hashed id; those of a counter.
    """

    name: str
    users: int
    tag: bytes
    key: bytes
    width: int = COUNTER


@dataclass(frozen=True, repr=False)
class CounterShards:
    """All counters of a stream's users, in files. Private.

    Attributes:
        number: of shards, a power of two; the first bits of a user's hash are the shard.
        files: for a shard its files, the oldest first. A counter in a later one stands in the place of an earlier one.
    """

    number: int
    files: Mapping[int, tuple[CounterFile, ...]] = field(default_factory=dict)

    def all_files(self) -> list[CounterFile]:
        """Of all shards."""
        return [file for shard in sorted(self.files) for file in self.files[shard]]


@dataclass(frozen=True, repr=False)
class ShardedEvents:
    """The counters after a step, in files that are on the disk, and how many events it left out. Private."""

    shards: CounterShards
    dropped: int


@dataclass(frozen=True, repr=False)
class PresentShards:
    """The records with keys that are present before a step, in files. Private.

    Attributes:
        folder: of the files, which may not be there.
        shards: the committed ones; None before the first step.
        step: the number of the one that comes.
        keep_keys: whether hashes of keys that left are kept, because no key may come back.
        content_key: that the step's rows are hashed with (``BatchRows.fingerprint``): what is applied has that hash.
    """

    folder: Path
    shards: CounterShards | None
    step: int
    keep_keys: bool
    content_key: bytes


class UserCounters(Protocol):
    """The committed counters of a stream's users."""

    def __call__(self, ids: list[bytes]) -> NDArray[np.int64]:
        """Events admitted of some users, by the keyed hashes of their ids.

        Errors:
            ConfigError: the counters are files, which an engine's executors read.
        """
        ...

    def in_files(self) -> tuple[Path, CounterShards | None]:
        """The folder of the files, which may not be there, and the committed ones; None before the first step.

        Errors:
            ConfigError: the counters are rows of the store.
        """
        ...
