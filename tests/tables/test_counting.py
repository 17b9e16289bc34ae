"""Marginal counting against brute force."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError, DataError, LimitError
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import EncodedBatch, count_marginals
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
