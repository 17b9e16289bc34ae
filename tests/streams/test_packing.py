"""Dataclasses as JSON and arrays, and back: everything survives, and what does not fit is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.contracts.packing import pack_fields, unpack_fields
from dpstream.core.errors import StoreDamagedError


@dataclass(frozen=True)
class Part:
    name: str
    amount: Fraction
    values: NDArray[np.float32]
    public: object = None


class Own:
    def __init__(self, number: int) -> None:
        self.number = number

    def pack(self) -> Packed:
        return Packed({"number": self.number}, {"zeros": np.zeros(self.number)})

    @classmethod
    def unpack(cls, packed: Packed) -> Own:
        assert len(packed.arrays["zeros"]) == packed.meta["number"]
        return cls(packed.meta["number"])


@dataclass
class State:
    step: int
    share: float
    parts: list[Part]
    counts: NDArray[np.int64]
    missing: NDArray[np.int64] | None
    there: NDArray[np.int64] | None
    last: list[int]
    pairs: list[tuple[float, float]]
    ends: tuple[int, ...]
    empty: list[float]
    by_level: dict[int, list[NDArray[np.int64]]]
    objects: list[Own | None]
    newest: Own | None
    flag: bool = False
    note: str | None = None
    derived: int = field(default=7, init=False)


def state() -> State:
    own = Own(3)
    parts = [
        Part("a", Fraction(1, 3), np.ones(2, np.float32), "plan"),
        Part("b", Fraction(2), np.zeros(0, np.float32)),
    ]
    return State(
        *(5, 0.1, parts, np.arange(4), None, np.zeros((2, 0), np.int64), [3, -1], [(0.5, 1.0), (2.0, 1e300)]),
        *((1, 2), [], {-1: [np.arange(2)], 4: []}, [own, None, Own(1)], own),
    )


def through_json(packed: Packed) -> Packed:
    return Packed(json.loads(json.dumps(packed.meta)), packed.arrays)


def test_everything_survives() -> None:
    made = state()
    packed = through_json(pack_fields(made, ["public"]))
    again = unpack_fields(State, packed, {"public": "given"})
    assert (again.step, again.share, again.last, again.pairs) == (5, 0.1, [3, -1], made.pairs)
    assert (again.ends, again.empty, again.missing, again.note, again.flag) == ((1, 2), [], None, None, False)
    assert again.there is not None
    assert again.there.shape == (2, 0)
    assert [(part.name, part.amount, part.public) for part in again.parts] == [
        ("a", Fraction(1, 3), "given"),
        ("b", Fraction(2), "given"),
    ]
    assert again.parts[0].values.dtype == np.float32
    assert again.by_level.keys() == {-1, 4}
    assert again.by_level[-1][0].tolist() == [0, 1]
    # One object stays one object, and is kept once.
    assert again.objects[0] is again.newest
    assert len(packed.meta["objects"]) == 2
    # Arrays are copies; narrower whole numbers are read as declared.
    narrow = replace(packed, arrays={**packed.arrays, "counts": packed.arrays["counts"].astype(np.int8)})
    read = unpack_fields(State, narrow, {"public": None})
    assert read.counts.dtype == np.int64
    read.counts += 1
    assert packed.arrays["counts"].tolist() == [0, 1, 2, 3]


def test_numbers_of_lists_are_in_arrays_of_one_width() -> None:
    """What is private in a list must not show in the length of the text."""
    small, large = (
        pack_fields(replace(state(), last=[1, 2])),
        pack_fields(replace(state(), last=[10**9, 10**12])),
    )
    assert json.dumps(small.meta) == json.dumps(large.meta)
    assert small.arrays["last"].nbytes == large.arrays["last"].nbytes


@pytest.mark.parametrize("name", ["counts", "there", "last", "parts/0/values", "object/0/zeros"])
def test_a_missing_array_is_refused(name: str) -> None:
    packed = pack_fields(state())
    arrays = {key: array for key, array in packed.arrays.items() if key != name}
    with pytest.raises(StoreDamagedError):
        unpack_fields(State, replace(packed, arrays=arrays))


@pytest.mark.parametrize(
    "wrong",
    [{"step": "5"}, {"step": None}, {"step": 1.5}, {"share": "x"}, {"parts": [{"name": "a"}]}, {"flag": 2}],
)
def test_another_type_is_refused(wrong: dict[str, object]) -> None:
    packed = pack_fields(state())
    meta = {**packed.meta, "fields": {**packed.meta["fields"], **wrong}}
    with pytest.raises(StoreDamagedError):
        unpack_fields(State, replace(packed, meta=meta))


def test_numbers_that_lose_digits_are_refused() -> None:
    packed = pack_fields(state())
    with pytest.raises(StoreDamagedError):
        unpack_fields(State, replace(packed, arrays={**packed.arrays, "counts": np.zeros(4)}))
