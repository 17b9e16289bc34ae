"""Random records as batches, plans that run over them, and packed states: for tests below the streams."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch


def drawn_codes(domain: Domain, rows: int, generator: np.random.Generator) -> NDArray[np.int32]:
    """Records whose columns are uniform and independent."""
    return np.column_stack([generator.integers(0, size, rows) for size in domain.sizes]).astype(np.int32)


def drawn_batches(
    domain: Domain, steps: int, rows: int, *, seed: int = 0, deletes: int | None = None
) -> list[EncodedBatch]:
    """A batch a step; ``deletes`` is the number of records that leave in each."""
    generator, batches = np.random.default_rng(seed), []
    for _ in range(steps):
        came = drawn_codes(domain, rows, generator)
        gone = None if deletes is None else drawn_codes(domain, deletes, generator)
        batches.append(EncodedBatch(domain, came, gone))
    return batches


def run(plan: Any, batches: Iterable[Any], randomness: Randomness | int = 3) -> tuple[Any, Any]:
    """State and release after all batches."""
    state = plan.start()
    randomness = Randomness.seeded(randomness) if isinstance(randomness, int) else randomness
    for batch in batches:
        synthesis = plan.step(state, batch, randomness)
    return state, synthesis


def stored(packed: Packed) -> Packed:
    """As it comes back from a file."""
    return Packed(json.loads(json.dumps(packed.meta)), packed.arrays)


def same(one: Packed, other: Packed) -> bool:
    """Whether two are equal to the last bit."""
    return (
        json.dumps(one.meta) == json.dumps(other.meta)
        and one.arrays.keys() == other.arrays.keys()
        and all(
            np.array_equal(array, other.arrays[name]) and array.dtype == other.arrays[name].dtype
            for name, array in one.arrays.items()
        )
    )
