"""Reading the linear map that a counter's code really computes.

The noise is replaced by a tape whose values are known. Runs with a single 1 on the tape, or in one cell
of one increment, give the two matrices of ``outputs = inputs_map @ z + noise_map @ noise``,
whatever the counter's documentation says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dpstream.counters import CalibratedCounter
from dpstream.errors import ConfigError
from dpstream.privacy.noise import Noise
from dpstream.privacy.randomness import Randomness

__all__ = ["NoiseTape", "RecordedMap", "read_map", "run_on_tape"]


class NoiseTape(Randomness):
    """Gives out known values instead of noise, and writes down which noise was asked for.

    Values beyond the end of the tape are 0. Uniform words are refused: a counter needs additive noise
    only, and a choice made with uniform words cannot be read off as a linear map.
    """

    def __init__(self, values: NDArray[np.int64] | None = None) -> None:
        super().__init__(_no_words)
        self._values = np.zeros(0, np.int64) if values is None else values
        #: The law of every value given out so far.
        self.laws: list[Noise] = []

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        """The next ``size`` values of the tape."""
        result = np.zeros(size, np.int64)
        part = self._values[len(self.laws) : len(self.laws) + size]
        result[: len(part)] = part
        self.laws.extend([noise] * size)
        return result


@dataclass(frozen=True)
class RecordedMap:
    """``outputs = inputs_map @ z + noise_map @ noise`` for ``ticks`` ticks of ``width`` cells.

    Outputs and inputs are flat, tick by tick (cell ``c`` of tick ``t`` is at ``(t - 1) width + c``).

    Attributes:
        noise_map: int64 (ticks width, m).
        inputs_map: int64 (ticks width, ticks width).
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
    """Outputs of a fresh run on ``increments`` (ticks, width), as an array of the same shape."""
    state = counter.init(increments.shape[1])
    return np.array([counter.step(state, row.copy(), tape) for row in increments], dtype=np.int64)


def read_map(counter: CalibratedCounter, ticks: int, width: int = 1) -> RecordedMap:
    """The map that ``counter.step`` computes in its first ``ticks`` ticks.

    Cost: ``ticks (m + ticks width)`` steps, where ``m`` values are drawn in a run.

    Errors:
        ConfigError: the draws depend on the data, uniform words are used, or the map is not linear.
    """
    zeros = np.zeros((ticks, width), np.int64)
    blank = NoiseTape()
    offset = run_on_tape(counter, zeros, blank).ravel()
    laws = tuple(blank.laws)

    def outputs(increments: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
        tape = NoiseTape(values)
        result = run_on_tape(counter, increments, tape).ravel() - offset
        if tuple(tape.laws) != laws:
            raise _not_linear("the noise it draws depends on the data or on earlier noise")
        return result

    no_noise = np.zeros(len(laws), np.int64)
    noise_map = _columns(len(laws), zeros.size, lambda unit: outputs(zeros, unit))
    inputs_map = _columns(zeros.size, zeros.size, lambda unit: outputs(unit.reshape(zeros.shape), no_noise))
    # Impulses alone would not see a rounding or a threshold: superpose everything a few times.
    rng = np.random.default_rng(20)
    for size in (2, 100, 10_000):
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
    return ConfigError(f"the counter cannot be certified: {what}", where="checks")


def _no_words(n: int) -> NoReturn:
    raise _not_linear("it uses uniform random words, not only additive noise")
