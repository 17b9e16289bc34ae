"""What a store keeps as bytes: packed state, exact and checked; and the keyed fingerprint that tells a repetition from
other records."""

from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpstream.core.contracts import Packed
from dpstream.core.errors import StoreDamagedError, StoreFormatError
from dpstream.core.schema import Domain
from dpstream.stream.admission import RecordRows
from dpstream.stream.store import container

NUMBERS = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.floating_dtypes(endianness="=", sizes=(32, 64)),
)
ARRAYS = hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.text(), JSON, max_size=3),
    st.dictionaries(st.text(), ARRAYS, max_size=3),
    st.booleans(),
)
def test_round_trip(meta: dict[str, object], arrays: dict[str, np.ndarray], fortran: bool) -> None:
    if fortran:
        arrays = {name: np.asfortranarray(array) for name, array in arrays.items()}
    back = container.load(container.dump(Packed(meta, arrays)), where="test")
    assert back.meta == meta
    assert list(back.arrays) == list(arrays)
    for name, array in arrays.items():
        other = back.arrays[name]
        assert (other.dtype, other.shape) == (array.dtype, array.shape)
        assert other.tobytes() == array.tobytes(), "bit for bit, NaN included"
        assert other.flags.f_contiguous == array.flags.f_contiguous
        assert other.flags.writeable


def test_every_flip_and_every_cut_is_found() -> None:
    good = container.dump(Packed({"step": 3}, {"true": np.arange(50), "x": np.eye(3)}))
    for i in range(len(good)):
        broken = bytearray(good)
        broken[i] ^= 4
        with pytest.raises(StoreFormatError if i in (4, 5) else StoreDamagedError, match="state"):
            container.load(bytes(broken), where="state")
        with pytest.raises(StoreDamagedError):
            container.load(good[:i], where="state")


def test_a_frame_holds_what_it_states() -> None:
    zeros = container.dump(Packed({}, {"a": np.zeros(2_000_000, dtype=np.int64)}))
    assert len(container.load(zeros, where="test").arrays["a"]) == 2_000_000
    start = 4 + 2 + 32
    size = start + 6  # magic, flags and window, then four bytes
    stated = int.from_bytes(zeros[size : size + 4], "little")
    assert stated > 16_000_000
    tracemalloc.start()
    for other in (0, stated - 1, stated + 1, 2**32 - 1):
        body = zeros[start:size] + other.to_bytes(4, "little") + zeros[size + 4 :]
        forged = zeros[: start - 32] + hashlib.sha256(body).digest() + body
        with pytest.raises(StoreDamagedError, match="cannot be expanded"):
            container.load(forged, where="test")
    assert tracemalloc.get_traced_memory()[1] < 2 * stated
    tracemalloc.stop()


def test_only_numbers_and_json() -> None:
    for array in (np.array([object()]), np.array(["a"]), np.array([1j]), np.array(["2024"], "M8[Y]")):
        with pytest.raises(TypeError, match="only numbers"):
            container.dump(Packed({}, {"a": array}))
    with pytest.raises(TypeError):
        container.dump(Packed({"a": {1, 2}}))
    with pytest.raises(ValueError, match="JSON compliant"):
        container.dump(Packed({"a": float("nan")}))


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
