"""Keyed records that are present, in files: one for each shard, written anew by each step that changes one of its keys.

A row is a hashed key, the first step of its record (4 bytes) and its codes, as in the store. Where no key may come
back, a key that left stays, with the first step 0 and no value. Elsewhere nothing of a deleted record is in a committed
file. What ``core.tables.counter_files`` guarantees holds for these files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import CounterFile
from dpstream.core.schema.domain import Domain
from dpstream.core.tables.contribution import Words
from dpstream.core.tables.counter_files import Generation, Values, read_rows, write_rows
from dpstream.core.tables.present_table import PresentTable

_FIRST = 4


def present_width(domain: Domain) -> int:
    """Bytes of a row beside its hashed key."""
    return _FIRST + len(domain.sizes) * PresentTable.empty(domain).codes.dtype.itemsize


def write_present_shard(
    folder: Path, generation: Generation, name: str, table: PresentTable, departed: Words
) -> CounterFile:
    """Write the records of a shard, and the keys that left; as ``counter_files.write_file``.

    Args:
        departed: ascending and different; none of them is in ``table``.
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
