"""States as JSON and arrays: every kind of field comes back, and what is missing is said."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from small_batches import same, stored

from dpstream.core.contracts import UNPACKED, pack_fields, unpack_fields
from dpstream.core.errors import StoreDamagedError, StoreFormatError
from dpstream.core.graphical import Model
from dpstream.core.schema import Domain


@dataclass
class Part:
    plan: str = field(metadata=UNPACKED)
    counts: NDArray[np.int64]
    counters: list[dict[str, NDArray[np.int64]]]
    ends: list[int]
    rates: list[float]
    known: tuple[NDArray[np.float64], ...] = ()


@dataclass
class Other:
    pairs: list[tuple[float, float]]


@dataclass
class State:
    step: int
    parts: tuple[Part, ...]
    models: dict[str, Model]
    error: float | None = None
    newest: Part | None = None
    there: NDArray[np.int64] | None = None
    missing: NDArray[np.int64] | None = None
    share: Fraction = Fraction(1, 3)
    mixed: list[dict[str, NDArray[np.int64]]] = field(default_factory=list)
    again: list[Model | None] = field(default_factory=list)
    either: list[Part | Other] = field(default_factory=list)


def state() -> State:
    counters = [{"t": np.array([n]), "sum": np.full((n, 2), n)} for n in (1, 0, 3)]
    part = Part("plan", np.arange(3), counters, [4, 5], [0.1], (np.ones(2), np.zeros((2, 3))))
    empty = Part("plan", np.zeros(0, np.int64), [], [], [])
    model = Model.uniform(Domain(("a", "b"), (2, 3)), 5.0)
    return State(
        7,
        (part, empty),
        {"inserts": model},
        newest=part,
        there=np.zeros((2, 0), np.int64),
        mixed=[{"t": np.ones(1, np.int64)}, {"s": np.arange(2)}],
        again=[model, None],
        either=[Other([(0.5, 1e300)]), empty],
    )


def test_numbers_that_json_lacks_come_back() -> None:
    """A step that has drawn must not fail because of the form of a number."""
    odd = replace(state(), step=np.int64(7), error=math.inf)
    packed = pack_fields(odd)
    json.dumps(packed.meta, allow_nan=False)
    again = unpack_fields(State, stored(packed), plan="plan")
    assert (again.step, again.error) == (7, math.inf)
    wrong = {**packed.meta, "either": [{"kind": "Else", "value": 1}]}
    with pytest.raises(StoreDamagedError):
        unpack_fields(State, replace(packed, meta=wrong), plan="plan")


def test_every_kind_of_field_comes_back() -> None:
    packed = pack_fields(state())
    again = unpack_fields(State, stored(packed), plan="plan")
    assert same(pack_fields(again), packed)
    assert (again.step, again.error, again.parts[0].ends, again.parts[1].counters) == (7, None, [4, 5], [])
    assert again.parts[0].counters[2]["sum"].shape == (3, 2)
    assert (again.missing, again.share, again.either[0]) == (None, Fraction(1, 3), Other([(0.5, 1e300)]))
    assert again.there is not None
    assert again.there.shape == (2, 0)
    assert again.mixed[1]["s"].tolist() == [0, 1]
    # One object stays one object, and is kept once.
    assert again.again == [again.models["inserts"], None]
    assert sum(name.endswith("potentials") for name in packed.arrays) == 1
    again.parts[0].counts[:] = 9  # a copy
    assert same(pack_fields(state()), packed)


def test_other_fields_are_found() -> None:
    """Missing or more, also of a part: what another version wrote is said to be that."""
    packed = pack_fields(state())
    part = [{**packed.meta["parts"][0], "more": 1}, *packed.meta["parts"][1:]]
    for meta in ({"step": 7}, {**packed.meta, "more": 1}, {**packed.meta, "parts": part}):
        with pytest.raises(
            StoreFormatError, match="another version of dpstream wrote the state: the fields of"
        ):
            unpack_fields(State, replace(packed, meta=meta), plan="plan")
