"""The keyed fingerprint of rows as a multiset: SipHash's own vectors, a plain oracle, and what it tells apart."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.core.tables import HASH_KEY_BYTES, MultisetHash

Codes = NDArray[np.int32]
Owners = NDArray[np.int64]
MASK = 2**64 - 1
KEY = bytes(range(7, 7 + HASH_KEY_BYTES))

#: ``vectors_sip128`` of the designers' repository: the key is 00 01 .. 0f, the message 00 01 .. of so many bytes.
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    24: "2db479ae78bd50d8882a8a178a6132ad",
    32: "7c3956ca5eeafc3e363e9d556546eb68",
    56: "1938f2cf72d54ee97e94166fa91d2a36",
    63: "5150d1772f50834a503e069a973fbd7c",
}


def siphash(key: bytes, message: bytes) -> int:
    """SipHash-2-4 with 128 bits of output, as the paper and its authors' remarks on longer outputs say it."""
    k0, k1 = struct.unpack("<QQ", key)
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def rotated(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            for one, two, bits in ((0, 1, 13), (2, 3, 16)):
                v[one] = (v[one] + v[two]) & MASK
                v[two] = rotated(v[two], bits) ^ v[one]
            v[0] = rotated(v[0], 32)
            for one, two, bits in ((2, 1, 17), (0, 3, 21)):
                v[one] = (v[one] + v[two]) & MASK
                v[two] = rotated(v[two], bits) ^ v[one]
            v[2] = rotated(v[2], 32)

    rest = len(message) % 8
    tail = message[len(message) - rest :].ljust(7, b"\0") + bytes([len(message) % 256])
    for (word,) in struct.iter_unpack("<Q", message[: len(message) - rest] + tail):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    halves = []
    for place, mark in ((2, 0xEE), (1, 0xDD)):
        v[place] ^= mark
        rounds(4)
        halves.append(v[0] ^ v[1] ^ v[2] ^ v[3])
    return halves[0] | halves[1] << 64


def values(codes: Codes, owners: Owners | None, deletes: bool) -> list[int]:
    """The plain definition: one value a row."""
    words = np.empty((len(codes), 0), np.int64) if owners is None else owners
    header = struct.pack("<BBHI", deletes, words.shape[1], 0, codes.shape[1])
    found = []
    for row, owner in zip(codes.tolist(), words.tolist(), strict=True):
        cells = struct.pack(f"<{len(row)}i", *row) + bytes(4 * (len(row) % 2))
        found.append(siphash(KEY[:16], header + cells + struct.pack(f"<{len(owner)}q", *owner)))
    return found


def kept(codes: Codes, owners: Owners | None = None, *, deletes: bool = False, parts: int = 1) -> bytes:
    """What would be stored, computed in parts."""
    whole = MultisetHash()
    for some in np.array_split(np.arange(len(codes)), parts):
        given = None if owners is None else owners[some]
        whole = MultisetHash.of(codes[some], given, KEY, deletes=deletes).merge(whole)
    return whole.finish((5,) * codes.shape[1], KEY)


@st.composite
def tables(draw: st.DrawFn, *, least: int = 0) -> tuple[Codes, Owners | None]:
    """Rows with many repetitions, and perhaps their owners, in one of the layouts that batches have."""
    rows, columns = draw(st.integers(least, 60)), draw(st.integers(0 if least == 0 else 1, 7))
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    codes = generator.integers(0, draw(st.sampled_from([1, 2, 2**31 - 1])), (rows, columns)).astype(np.int32)
    layout = draw(st.sampled_from("CFS"))
    codes = np.repeat(codes, 2, axis=1)[:, ::2] if layout == "S" else np.asarray(codes, order=layout)
    codes.flags.writeable = draw(st.booleans())
    words = generator.integers(-(2**63), 2**63 - 1, (rows, 2)) if draw(st.booleans()) else None
    return codes, words


@pytest.mark.parametrize("length", VECTORS)
def test_the_designers_vectors(length: int) -> None:
    from dpstream.core.tables._siphash import add_rows  # compiles: not while tests are collected

    key, message, wanted = bytes(range(16)), bytes(range(length)), VECTORS[length]
    assert siphash(key, message).to_bytes(16, "little").hex() == wanted
    if length % 8 or not length:
        return
    header, *words = (np.uint64(word) for (word,) in struct.iter_unpack("<Q", message))
    rest = np.array(words, np.uint64)
    for cut in range(len(words) + 1):  # so many words as codes, the others as the owner
        codes, owners = rest[:cut].view(np.int32)[None], rest[cut:].view(np.int64)[None]
        low, high = add_rows(*(np.uint64(k) for k in struct.unpack("<QQ", key)), header, codes, owners)
        assert (int(low) | int(high) << 64).to_bytes(16, "little").hex() == wanted


@settings(max_examples=60)
@given(tables(), st.booleans())
def test_it_is_the_sum_of_the_rows(table: tuple[Codes, Owners | None], deletes: bool) -> None:
    codes, owners = table
    found = MultisetHash.of(codes, owners, KEY, deletes=deletes)
    assert (found.total, found.rows) == (sum(values(codes, owners, deletes)) % 2**128, len(codes))
    sizes = tuple(range(codes.shape[1]))
    said = struct.pack(f"<{len(sizes) + 2}Q", len(sizes), *sizes, len(codes)) + found.total.to_bytes(
        16, "little"
    )
    assert found.finish(sizes, KEY) == hmac.new(KEY[16:], said, hashlib.sha256).digest()


@settings(max_examples=150)
@given(tables(), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_order_and_parts_change_nothing(table: tuple[Codes, Owners | None], parts: int, seed: int) -> None:
    codes, owners = table
    order = np.random.default_rng(seed).permutation(len(codes))
    mixed = None if owners is None else owners[order]
    assert kept(codes[order], mixed, parts=parts) == kept(codes, owners)


@settings(max_examples=150)
@given(tables(least=1), st.data())
def test_every_cell_owner_copy_and_side_counts(
    table: tuple[Codes, Owners | None], data: st.DataObject
) -> None:
    codes, owners = table
    row = data.draw(st.integers(0, len(codes) - 1))
    whole = kept(codes, owners)
    other = codes.copy()
    other[row, data.draw(st.integers(0, codes.shape[1] - 1))] ^= 1 << data.draw(st.integers(0, 30))
    assert kept(other, owners) != whole
    if owners is not None:
        strange = owners.copy()
        strange[row, data.draw(st.integers(0, 1))] ^= 1 << data.draw(st.integers(0, 62))
        assert kept(codes, strange) != whole
        assert kept(codes) != whole
    assert kept(codes, owners, deletes=True) != whole
    rows = np.arange(len(codes))
    for many in (np.append(rows, row), np.concatenate([rows, [row, row]]), np.delete(rows, row)):
        assert kept(codes[many], None if owners is None else owners[many]) != whole


@settings(max_examples=150)
@given(st.integers(1, 3).flatmap(lambda n: st.tuples(*[st.lists(st.tuples(*[st.integers(0, 1)] * n))] * 2)))
@example(([(0,), (0,)], []))
@example(([(0,), (0,), (1,)], [(0,), (1,), (1,)]))
def test_equal_means_the_same_multiset(pair: tuple[list[tuple[int, ...]], list[tuple[int, ...]]]) -> None:
    width = len(next(iter(pair[0] + pair[1]), (0,)))
    first, second = (np.array(rows, np.int32).reshape(-1, width) for rows in pair)
    assert (kept(first) == kept(second)) == (Counter(pair[0]) == Counter(pair[1]))


def test_columns_and_keys_are_told_apart() -> None:
    """The same cells in other columns, the same codes under other sizes, and owners that look like cells."""
    key, empty = KEY, MultisetHash()
    cells = np.array([[1, 2, 3, 4]], np.int32)
    found = {
        MultisetHash.of(codes, owners, key).total
        for codes, owners in (
            (cells, None),
            (cells[:, :3], None),
            (np.array([[1, 2, 3, 0]], np.int32), None),
            (cells[:, :2], cells[:, 2:].copy().view(np.int64)),
            (cells[:, :0], cells.view(np.int64)),
        )
    }
    assert len(found) == 5
    assert len({empty.finish(sizes, key) for sizes in ((), (0,), (2, 3), (3, 2), (23,))}) == 5
    other = key[:16] + bytes(16)
    assert empty.finish((2,), key) != empty.finish((2,), other)
    assert MultisetHash.of(cells, None, bytes(16) + key[16:]) != MultisetHash.of(cells, None, key)


def test_a_wrong_call_is_refused_and_nothing_is_shown() -> None:
    codes = np.zeros((3, 2), np.int32)
    with pytest.raises(ValueError, match="differ in rows"):
        MultisetHash.of(codes, np.zeros((2, 2), np.int64), KEY)
    with pytest.raises(ValueError, match="needs 32"):
        MultisetHash.of(codes, None, KEY[:16])
    assert "rows" not in repr(MultisetHash.of(codes, None, KEY))
