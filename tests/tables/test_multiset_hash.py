"""The keyed fingerprint of rows as a multiset: SipHash's own vectors, a sum over rows, and what it tells apart."""

from __future__ import annotations

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
KEY = bytes(range(7, 7 + HASH_KEY_BYTES))

#: ``vectors_sip128`` of the designers' repository: the key is 00 01 .. 0f, the message 00 01 .. of so many bytes.
VECTORS = {
    8: "3b62a9ba6258f5610f83e264f31497b4",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    24: "2db479ae78bd50d8882a8a178a6132ad",
    32: "7c3956ca5eeafc3e363e9d556546eb68",
    56: "1938f2cf72d54ee97e94166fa91d2a36",
}


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
    header, *words = (np.uint64(word) for (word,) in struct.iter_unpack("<Q", message))
    rest = np.array(words, np.uint64)
    for cut in range(len(words) + 1):  # so many words as codes, the others as the owner
        codes, owners = rest[:cut].view(np.int32)[None], rest[cut:].view(np.int64)[None]
        low, high = add_rows(*(np.uint64(k) for k in struct.unpack("<QQ", key)), header, codes, owners)
        assert (int(low) | int(high) << 64).to_bytes(16, "little").hex() == wanted


@settings(max_examples=150)
@given(tables(), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_order_and_parts_change_nothing(table: tuple[Codes, Owners | None], parts: int, seed: int) -> None:
    codes, owners = table
    order = np.random.default_rng(seed).permutation(len(codes))
    mixed = None if owners is None else owners[order]
    assert kept(codes[order], mixed, parts=parts) == kept(codes, owners)
    alone = [
        MultisetHash.of(codes[i : i + 1], mixed if mixed is None else owners[i : i + 1], KEY) for i in order
    ]
    assert MultisetHash.of(codes, owners, KEY).total == sum(one.total for one in alone) % 2**128


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
