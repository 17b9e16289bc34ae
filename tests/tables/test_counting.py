"""Exact counts of private records, and the hash of a multiset of them."""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError, LimitError
from dpstream.core.schema import Clique, Domain
from dpstream.core.tables import HASH_KEY_BYTES, EncodedBatch, MultisetHash, count_marginals
from dpstream.core.tables import counting as counting_module

DOMAIN = Domain(("zip", "paid"), (3, 2))


def brute_force(codes: np.ndarray, domain: Domain, cliques: list[Clique]) -> list[list[int]]:
    tables = []
    for clique in cliques:
        seen = Counter(tuple(row[i] for i in clique) for row in codes.tolist())
        tables.append([seen[cell] for cell in itertools.product(*(range(domain.sizes[i]) for i in clique))])
    return tables


@st.composite
def problems(draw: st.DrawFn) -> tuple[Domain, np.ndarray, np.ndarray, list[Clique]]:
    """Awkward domains (constant columns, one column), empty batches, repeated and 3-way cliques."""
    columns = draw(st.integers(1, 5))
    sizes = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 7, 64]), min_size=columns, max_size=columns)))
    domain = Domain(tuple(f"c{i}" for i in range(columns)), sizes)
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)

    def table() -> np.ndarray:
        rows = draw(st.sampled_from([0, 1, 2, 63, 64, 65, 200]))
        codes = np.stack([generator.integers(0, size, rows, dtype=np.int32) for size in sizes], axis=1)
        return np.asfortranarray(codes) if draw(st.booleans()) else codes

    subsets = st.sets(st.integers(0, columns - 1), max_size=min(columns, 3)).map(lambda s: tuple(sorted(s)))
    cliques = draw(st.lists(subsets, max_size=6))
    return domain, table(), table(), cliques + cliques[:1]


@given(problems(), st.booleans())
@settings(max_examples=150)
def test_counts_are_those_of_brute_force(problem: Any, bitsets_always: bool) -> None:
    domain, inserts, deletes, cliques = problem
    expected = brute_force(inserts, domain, cliques)
    less = brute_force(deletes, domain, cliques)
    with pytest.MonkeyPatch.context() as patch:
        if bitsets_always:
            patch.setattr(counting_module, "BITSET_ROWS", 0)
        counted = count_marginals(inserts, domain, cliques)
        assert [counts.tolist() for counts in counted] == expected
        assert all(counts.dtype == np.int64 for counts in counted)
        batch = EncodedBatch(domain, inserts, deletes)
        assert [c.tolist() for c in batch.count(cliques, "inserts")] == expected
        assert [c.tolist() for c in batch.count(cliques, "deletes")] == less
        assert [c.tolist() for c in batch.count(cliques)] == [
            [a - b for a, b in zip(x, y, strict=True)] for x, y in zip(expected, less, strict=True)
        ]


@pytest.mark.parametrize("order", ["C", "F"])
def test_many_rows_cross_every_block_border(order: Any) -> None:
    """More rows than a chunk and than a transposed block; pairs on both sides of the bitset limit."""
    domain = Domain(tuple("abcde"), (2, 40, 1, 30, 700))
    rows = 70_001
    generator = np.random.default_rng(5)
    codes = np.stack([generator.integers(0, s, rows, dtype=np.int32) for s in domain.sizes], axis=1)
    codes[:, 1] //= 1 + codes[:, 0]  # dependent columns
    codes = np.array(codes, order=order)
    cliques = [c for k in range(4) for c in itertools.combinations(range(5), k)]
    plan = counting_module.count_plan(domain, tuple(cliques))
    pairs = [bool(by_bits) for c, by_bits in zip(cliques, plan.by_bits, strict=True) if len(c) == 2]
    assert True in pairs
    assert False in pairs
    for clique, counts in zip(cliques, count_marginals(codes, domain, cliques), strict=True):
        shape = domain.shape(clique)
        cells = np.ravel_multi_index(tuple(codes[:, clique].T), shape) if clique else np.zeros(rows, int)
        expected = np.bincount(cells, minlength=domain.cells(clique))
        np.testing.assert_array_equal(counts, expected, err_msg=str(clique))


def test_one_compiled_version_serves_everything() -> None:
    from dpstream.core.tables._counting_kernels import count_codes

    for sizes, rows in (((2,), 3), ((2, 3, 4), 5000), ((1, 1), 0)):
        domain = Domain(tuple(f"c{i}" for i in range(len(sizes))), sizes)
        count_marginals(np.zeros((rows, len(sizes)), np.int32), domain, [(), (0,)])
    assert len(count_codes.signatures) == 1


def test_codes_are_checked_and_the_message_names_the_column_but_no_value() -> None:
    good = np.zeros((4, 2), np.int32)
    for value in (2, 17, -1):
        bad = good.copy()
        bad[2, 1] = value
        for build in (
            lambda bad=bad: EncodedBatch(DOMAIN, good, bad),
            lambda bad=bad: EncodedBatch(DOMAIN, bad),
            lambda bad=bad: count_marginals(bad, DOMAIN, [(0, 1)]),
        ):
            with pytest.raises(DataError, match="column 'paid'") as caught:
                build()
            assert str(value) not in str(caught.value).replace("0 to 1", "").replace("32-bit", "")
    masked = np.ma.masked_equal(good, 1)
    for wrong in (good[:, :1], good.astype(np.int64), good.astype(">i4"), good[0], [[0, 0]], masked):
        with pytest.raises(DataError):
            EncodedBatch(DOMAIN, wrong)


def test_the_batch_is_sealed() -> None:
    """Later changes of the caller's array change nothing, and no number of records shows."""
    codes = np.zeros((41, 2), np.int32)
    batch = EncodedBatch(DOMAIN, codes)
    codes[:] = 1_000_000
    assert batch.count([(0, 1)])[0].tolist() == [41, 0, 0, 0, 0, 0]
    assert "41" not in repr(batch)
    assert not hasattr(batch, "__len__")


def test_arrays_from_elsewhere() -> None:
    """Unaligned, strided, read-only and subclassed arrays count like plain ones."""
    plain = np.array([[2, 1], [0, 1], [2, 0]], np.int32)
    raw = np.zeros(plain.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(np.int32).reshape(2, 3).T
    unaligned[:] = plain
    strided = np.zeros((6, 4), np.int32)[::2, ::2]
    strided[:] = plain
    read_only = np.asfortranarray(plain)
    read_only.flags.writeable = False
    expected = brute_force(plain, DOMAIN, [(0, 1), (1,)])
    assert expected == [c.tolist() for c in count_marginals(plain, DOMAIN, [(0, 1), (1,)])]
    assert not unaligned.flags.aligned
    for codes in (unaligned, strided, read_only, plain.view(np.recarray)):
        assert [c.tolist() for c in count_marginals(codes, DOMAIN, [(0, 1), (1,)])] == expected
        assert [c.tolist() for c in EncodedBatch(DOMAIN, codes).count([(0, 1), (1,)])] == expected


def test_wrong_requests() -> None:
    batch = EncodedBatch(DOMAIN, np.zeros((1, 2), np.int32))
    for clique in ((1, 0), (0, 0), (2,), (-1,), (0, 2)):
        with pytest.raises(ConfigError, match=": expected a clique of the domain"):
            batch.count([clique])
    with pytest.raises(ConfigError, match="unknown part"):
        batch.count([(0,)], part="both")


def test_a_workload_larger_than_memory_is_refused_before_allocating() -> None:
    domain = Domain(("a", "b", "c"), (10**6, 10**6, 10**6))
    batch = EncodedBatch(domain, np.zeros((2, 3), np.int32))
    with pytest.raises(LimitError, match="1000000000000000000 cells, above the limit of 134217728"):
        batch.count([(0, 1, 2)])
    with pytest.raises(LimitError, match="limit of 5"):
        count_marginals(np.zeros((2, 3), np.int32), Domain(tuple("abc"), (2, 3, 1)), [(0, 1)], max_cells=5)


# The keyed fingerprint of rows as a multiset: SipHash's own vectors, a sum over rows, and what it tells apart


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
