"""What tells a repetition from other records: the rule of this version, and that of the formats 1 to 8."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.schema import Domain
from dpstream.stream.batch_content import BatchContent, RecordRows
from dpstream.stream.store.stored import StoreReader

#: What ``test_contents_as_they_were_stored`` expects.
OLD = [
    "4ca10f07f088413a297f562b9a72c8151a0f1687bc96cf4dc940cfb22b31f17d",
    "7da58cb08764a51bd61279dfc91db21ff464a1280536ec8f62b9bfe2675b7120",
    "3b436e91baec50769d9534a61a1a1f6c535e1d342a1f74192f4fa5e3896114b9",
]
NEW = [
    "02513b7ab12df3c779250d3381d617b5d81d53788e09137b654382b11d572d3d08",
    "02e8e566849d56c5f58ecf070033664b1702179bfa0714f9ce079cb123912eae23",
    "023eece5002fdde3026f99b5f9885ab2de1c857b58237bfbdd35ce43f7ebe73595",
]


def store() -> Any:
    """What a content needs of its store."""
    found = StoreReader()
    found.meta = {"key": bytes(range(32))}
    return found


def old(content: BatchContent) -> bytes:
    """As the versions of the formats 1 to 8 stored it."""
    return content.store.fingerprint(content.rows.in_order())


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_by_both_rules_a_content_is_a_multiset(data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 65535]), min_size=1, max_size=6)))
    domain = Domain(tuple(f"c{i}" for i in range(len(sizes))), sizes)
    rows = st.lists(st.tuples(*(st.integers(0, size - 1) for size in sizes)), max_size=5)
    first, second = (np.array(data.draw(rows), np.int32).reshape(-1, len(sizes)) for _ in range(2))
    empty, kept = first[:0], store()
    here = BatchContent(kept, RecordRows(domain, first, empty))
    mixed = BatchContent(
        kept, RecordRows(domain, first[np.random.default_rng(0).permutation(len(first))], empty)
    )
    same = sorted(map(tuple, first.tolist())) == sorted(map(tuple, second.tolist()))
    for stored in (here.stored, old(here)):
        assert mixed.is_stored_as(stored)
        assert BatchContent(kept, RecordRows(domain, second, empty)).is_stored_as(stored) == same
        assert BatchContent(kept, RecordRows(domain, empty, first)).is_stored_as(stored) == (len(first) == 0)
        assert not mixed.is_stored_as(stored[:-1] + bytes([stored[-1] ^ 1]))


def test_contents_as_they_were_stored() -> None:
    """Made once: the first ones by the version before the rule changed."""
    domain = Domain(("a", "b", "c"), (3, 65535, 2**30))
    codes = np.array([[2, 7, 1], [0, 65534, 2**30 - 1], [2, 7, 1]], np.int32)
    owners = np.array([[5, -1], [2**62, 3], [5, 1]])
    contents = (
        BatchContent(store(), RecordRows(domain, codes, codes[:1])),
        BatchContent(store(), RecordRows(domain, codes, codes[:0], (owners, owners[:0]))),
        BatchContent(store(), RecordRows(domain, codes[:0], codes[:0])),
    )
    assert [old(one).hex() for one in contents] == OLD
    assert [one.stored.hex() for one in contents] == NEW
