"""``Packed`` (JSON and arrays) to bytes and back: checked, compressed, versioned, never pickle.

Layout: magic ``DPSP``, format (uint16, little endian), SHA-256 of the rest, then a zstd frame holding
the length of the JSON head (uint64), the head (``meta`` and an index of arrays), and the arrays' bytes.

Trusted base: store (private states as bytes).
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import StoreDamagedError, StoreFormatError
from dpstream.core.paths import parse_json

CONTAINER_FORMAT = 1
_MAGIC = b"DPSP"
_HEAD = struct.Struct("<4sH32s")
_LENGTH = struct.Struct("<Q")
# Counts shrink 3 to 7 times already at the fastest level; noise in floats never does.
_LEVEL = 1
_FRAME = b"\x28\xb5\x2f\xfd"
# A block of four bytes holds at most 128 KiB.
_MOST = 2**15


def dump(packed: Packed) -> bytes:
    """The bytes of ``packed``; equal input gives equal bytes (one version of the compressor).

    Errors:
        TypeError, ValueError: ``meta`` is not JSON, or an array is not numeric: a bug of the mechanism.
    """
    import pyarrow

    index: list[dict[str, Any]] = []
    blocks: list[bytes] = []
    for name, array in packed.arrays.items():
        entry, block = array_block(name, np.asarray(array))
        index.append(entry)
        blocks.append(block)
    head = json.dumps({"meta": packed.meta, "arrays": index}, allow_nan=False, separators=(",", ":")).encode()
    raw = b"".join([_LENGTH.pack(len(head)), head, *blocks])
    body: bytes = pyarrow.Codec("zstd", compression_level=_LEVEL).compress(raw, asbytes=True)
    return _HEAD.pack(_MAGIC, CONTAINER_FORMAT, hashlib.sha256(body).digest()) + body


def load(data: bytes, *, where: str) -> Packed:
    """The inverse of ``dump``. Arrays are writable copies in their old memory order.

    Errors:
        StoreDamagedError: truncated or changed bytes.
        StoreFormatError: written by another version.
    """
    if len(data) < _HEAD.size or data[:4] != _MAGIC:
        raise StoreDamagedError("the packed bytes have no valid head", where=where)
    _, version, digest = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if hashlib.sha256(body).digest() != digest:
        raise StoreDamagedError("the checksum of packed bytes is wrong", where=where)
    # After the checksum, so that a flipped bit in the version is not reported as "newer".
    if version != CONTAINER_FORMAT:
        raise StoreFormatError(
            f"packed in format {version}", where=where, allowed=f"format {CONTAINER_FORMAT}"
        )
    raw = _expanded(body, where)
    (length,) = _LENGTH.unpack_from(raw)
    offset = _LENGTH.size + length
    head = parse_json(raw[_LENGTH.size : offset])
    arrays: dict[str, NDArray[Any]] = {}
    for entry in head["arrays"]:
        arrays[entry["name"]], offset = _read_array(entry, raw, offset)
    return Packed(head["meta"], arrays)


def _expanded(frame: bytes, where: str) -> bytes:
    """What a zstd frame holds. Memory: the size that the frame states, which is bounded by its length.

    Errors:
        StoreDamagedError: the frame states no size, or holds more or less than it states.
    """
    import pyarrow

    try:
        size = _stated_size(frame)
        if not _LENGTH.size <= size <= _MOST * len(frame):
            raise ValueError  # too short for a head, or too long for its frame
        return bytes(pyarrow.Codec("zstd").decompress(frame, size, asbytes=True))
    except (ValueError, IndexError, OSError):
        raise StoreDamagedError("the packed bytes cannot be expanded", where=where) from None


def _stated_size(frame: bytes) -> int:
    """The size of the content in the head of a frame (RFC 8878, 3.1.1.1); 0 where it states none."""
    if frame[:4] != _FRAME:
        raise ValueError  # of another kind than zstd
    flags = frame[4]
    one_segment = flags & 0x20
    start = (5 if one_segment else 6) + (0, 1, 2, 4)[flags & 3]
    length = 1 << (flags >> 6) if one_segment or flags >> 6 else 0
    return int.from_bytes(frame[start : start + length], "little") + (256 if length == 2 else 0)


def array_block(name: str, array: NDArray[Any]) -> tuple[dict[str, Any], bytes]:
    if array.dtype.kind not in "biuf":
        raise TypeError(f"array {name!r} has type {array.dtype}; only numbers are packed")
    # The memory order is kept: compiled code would otherwise be compiled again for the other one.
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    fixed = array.astype(array.dtype.newbyteorder("<"), copy=False)
    entry = {"name": name, "dtype": fixed.dtype.str, "shape": list(array.shape), "order": order}
    return entry, fixed.tobytes(order=order)  # type: ignore[arg-type]


def _read_array(entry: dict[str, Any], raw: bytes, offset: int) -> tuple[NDArray[Any], int]:
    dtype = np.dtype(entry["dtype"])
    shape = tuple(entry["shape"])
    count = int(np.prod(shape, dtype=np.int64))
    flat = np.frombuffer(raw, dtype=dtype, count=count, offset=offset)
    array = flat.reshape(shape, order=entry["order"]).astype(dtype.newbyteorder("="), order="K", copy=True)
    return array, offset + count * dtype.itemsize
