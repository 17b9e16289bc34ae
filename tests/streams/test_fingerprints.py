"""What tells a repetition from other records: a keyed fingerprint of a multiset."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.schema import Domain
from dpstream.stream.admission import RecordRows

KEY = bytes(range(32))
#: What ``test_contents_as_they_are_stored`` expects.
STORED = [
    "ff6fe417f42b49073935f112e05b0b57143782e2d6d434876460ebfd8ff57361",
    "e8b74a3d9d162fd1de8b60be7ca73b4947701dcd0e7c4fc34906e35554a45117",
    "d917208db6aab19488869e423a148920c429c78e29db66decd7b4733692c8593",
]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_content_is_a_multiset(data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 65535]), min_size=1, max_size=6)))
    domain = Domain(tuple(f"c{i}" for i in range(len(sizes))), sizes)
    rows = st.lists(st.tuples(*(st.integers(0, size - 1) for size in sizes)), max_size=5)
    first, second = (np.array(data.draw(rows), np.int32).reshape(-1, len(sizes)) for _ in range(2))
    empty = first[:0]
    stored = RecordRows(domain, first, empty).fingerprint(KEY)
    mixed = first[np.random.default_rng(0).permutation(len(first))]
    assert RecordRows(domain, mixed, empty).fingerprint(KEY) == stored
    same = sorted(map(tuple, first.tolist())) == sorted(map(tuple, second.tolist()))
    assert (RecordRows(domain, second, empty).fingerprint(KEY) == stored) == same
    assert (RecordRows(domain, empty, first).fingerprint(KEY) == stored) == (len(first) == 0)


def test_contents_as_they_are_stored() -> None:
    domain = Domain(("a", "b", "c"), (3, 65535, 2**30))
    codes = np.array([[2, 7, 1], [0, 65534, 2**30 - 1], [2, 7, 1]], np.int32)
    owners = np.array([[5, -1], [2**62, 3], [5, 1]])
    contents = (
        RecordRows(domain, codes, codes[:1]),
        RecordRows(domain, codes, codes[:0], (owners, owners[:0])),
        RecordRows(domain, codes[:0], codes[:0]),
    )
    assert [one.fingerprint(KEY).hex() for one in contents] == STORED
