"""Computes the linear map of a counter from its running code.

A tape with known values replaces the noise. Runs with a single 1 on the tape, or in one cell of one increment, give the
two matrices of ``outputs = inputs_map @ z + noise_map @ noise``, whatever the counter's documentation says. The outputs
are those of the counter's private half (``measure``, where it has one), otherwise its estimates. All other outputs are
computed from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import CalibratedCounter
from dpstream.core.counters.counter import FactoredCounter
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.noise import Noise
from dpstream.core.privacy.randomness import Randomness

#: The sizes of the random values that test whether the code is linear and has the computed map. At the largest size the
#: test misses a wrong linear map with probability 2^-30 at most.
_SIZES = (2, 100, 10_000, 2**30)


class NoiseTape(Randomness):
    """Gives known values instead of noise, and records the law and the size of each draw.

    Values beyond the end of the tape are 0. Uniform words are refused (ConfigError): a counter needs additive noise
    only, and a choice by uniform words is not a linear map.
    """

    def __init__(self, values: NDArray[np.int64] | None = None) -> None:
        super().__init__(_no_words)
        self._values = np.zeros(0, np.int64) if values is None else values
        self._given = 0
        #: The law and the size of every draw so far.
        self.draws: list[tuple[Noise, int]] = []

    @property
    def laws(self) -> list[Noise]:
        """The law of every value so far."""
        return [noise for noise, size in self.draws for _ in range(size)]

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        """The next ``size`` values of the tape."""
        result = np.zeros(size, np.int64)
        part = self._values[self._given : self._given + size]
        result[: len(part)] = part
        self._given += size
        self.draws.append((noise, size))
        return result


@dataclass(frozen=True)
class RecordedMap:
    """``outputs = inputs_map @ z + noise_map @ noise`` for ``ticks`` ticks of ``width`` cells.

    Outputs and inputs are flattened tick by tick (cell ``c`` of input ``t`` is at ``(t - 1) width + c``).

    Attributes:
        noise_map: int64 (outputs, m).
        inputs_map: int64 (outputs, ticks width).
        laws: the noise of each of the ``m`` coordinates, in the order of the draws.
    """

    noise_map: NDArray[np.int64]
    inputs_map: NDArray[np.int64]
    laws: tuple[Noise, ...]
    ticks: int
    width: int


def run_on_tape(
    counter: CalibratedCounter, increments: NDArray[np.int64], tape: Randomness
) -> NDArray[np.int64]:
    """The estimates of a new run on ``increments``, both of shape (ticks, width)."""
    state = counter.init(increments.shape[1])
    return np.array([counter.step(state, row.copy(), tape) for row in increments], dtype=np.int64)


def measured_on_tape(
    counter: CalibratedCounter, increments: NDArray[np.int64], tape: Randomness
) -> NDArray[np.int64]:
    """The outputs of the private half of a new run, shape (outputs, width)."""
    if not isinstance(counter, FactoredCounter):
        return run_on_tape(counter, increments, tape)
    state = counter.init(increments.shape[1])
    return np.concatenate([counter.measure(state, row.copy(), tape) for row in increments])


def read_cell(counter: CalibratedCounter, ticks: int) -> RecordedMap | None:
    """The map of one cell, from a single run in which every cell has another impulse.

    None unless the code is linear and the same in all cells, and each cell has its own noise. This is tested in runs of
    2 and 5 cells with random noise and increments, whose outputs must agree with the map.

    Cost: about ``5 ticks`` steps, the widest of ``m + ticks`` cells, where a cell draws ``m`` values in a run.
    """
    blank = NoiseTape()
    measured_on_tape(counter, np.zeros((ticks, 1), np.int64), blank)
    laws, m = tuple(blank.laws), len(blank.laws)
    width = m + ticks
    increments = np.zeros((ticks, width), np.int64)
    increments[np.arange(ticks), m + np.arange(ticks)] = 1
    outputs = measured_on_tape(counter, increments, _ImpulseSource(width))
    recorded = RecordedMap(outputs[:, :m], outputs[:, m:], laws, ticks, 1)
    rng = np.random.default_rng(20)
    sound = all(_superposes(counter, recorded, size, cells, rng) for size in _SIZES for cells in (2, 5))
    return recorded if sound else None


class _ImpulseSource(NoiseTape):
    """Gives cell ``i`` a 1 as its ``i``-th noise, and 0 otherwise."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        result = np.zeros(size, np.int64)
        rows, rest = divmod(size, self._width)
        if not rest and self._given + rows <= self._width:
            result[np.arange(rows) * self._width + self._given + np.arange(rows)] = 1
        self._given += rows
        return result


def _superposes(
    counter: CalibratedCounter, recorded: RecordedMap, size: int, cells: int, rng: np.random.Generator
) -> bool:
    """Whether a run on random values agrees with the map, where each cell has its own noise."""
    z = rng.integers(-size, size, (recorded.ticks, cells), endpoint=True)
    noise = rng.integers(-size, size, (len(recorded.laws), cells), endpoint=True)
    tape = NoiseTape(noise.ravel())
    outputs = measured_on_tape(counter, z, tape)
    if any(n % cells for _, n in tape.draws):
        return False
    laws = [law for law, n in tape.draws for _ in range(n // cells)]
    expected = recorded.inputs_map @ z + recorded.noise_map @ noise
    return laws == list(recorded.laws) and np.array_equal(outputs, expected)


def read_map(counter: CalibratedCounter, ticks: int, width: int = 1) -> RecordedMap:
    """The map of ``width`` cells together in the first ``ticks`` ticks, impulse by impulse, without any assumption.

    Cost: ``ticks (m + ticks width)`` steps, where ``m`` values are drawn in a run.

    Errors:
        ConfigError: the draws depend on the data, uniform words are used, or the map is not linear.
    """
    zeros = np.zeros((ticks, width), np.int64)
    blank = NoiseTape()
    offset = measured_on_tape(counter, zeros, blank).ravel()
    laws = tuple(blank.laws)

    def outputs(increments: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
        tape = NoiseTape(values)
        result = measured_on_tape(counter, increments, tape).ravel() - offset
        if tape.draws != blank.draws:
            raise _not_linear("the noise it draws depends on the data or on earlier noise")
        return result

    no_noise = np.zeros(len(laws), np.int64)
    noise_map = _columns(len(laws), offset.size, lambda unit: outputs(zeros, unit))
    inputs_map = _columns(zeros.size, offset.size, lambda unit: outputs(unit.reshape(zeros.shape), no_noise))
    # Impulses alone would not show a rounding or a threshold, so random values are tried too.
    rng = np.random.default_rng(20)
    for size in _SIZES:
        z = rng.integers(-size, size, zeros.shape, endpoint=True)
        values = rng.integers(-size, size, len(laws), endpoint=True)
        if not np.array_equal(outputs(z, values), inputs_map @ z.ravel() + noise_map @ values):
            raise _not_linear("its outputs are not a linear map of increments and noise")
    return RecordedMap(noise_map, inputs_map, laws, ticks, width)


def _columns(
    count: int, rows: int, image: Callable[[NDArray[np.int64]], NDArray[np.int64]]
) -> NDArray[np.int64]:
    result = np.zeros((rows, count), np.int64)
    for column in range(count):
        unit = np.zeros(count, np.int64)
        unit[column] = 1
        result[:, column] = image(unit)
    return result


def _not_linear(what: str) -> ConfigError:
    return ConfigError(
        f"the counter cannot be certified: {what}",
        where="checks",
        allowed="a counter that adds noise to linear functions of its increments",
    )


def _no_words(n: int) -> NoReturn:
    raise _not_linear("it uses uniform random words, not only additive noise")
