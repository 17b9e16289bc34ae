"""A door that records what passes it, and the exact loss of whole runs between two such doors.

All that a mechanism reveals follows from its measurements, its choices and public facts. The mechanism's own code runs
twice: on its records, through a door that records the exact values and the law of each measurement and the law of each
choice; and on other records, through a door that gives the same noisy values and makes the same choices. Everything
that is released must then be the same, bit for bit, *whatever* the records are: else private information reached it
other than through the door. For neighbours the loss is known exactly, too: from the difference of the exact values and
of the laws.

Noisy limits of tests are given again and their laws recorded: what tests cost is for the audits of the tests. Noise
that is drawn otherwise (``loose``) makes the loss infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import StartTable, Synthesis
from dpstream.core.privacy import (
    AnyNoise,
    Budget,
    CubeNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    HistogramsNoise,
    Noise,
    Randomness,
)


def released_arrays(synthesis: Synthesis) -> list[NDArray[Any]]:
    """All that one step releases: its packed form (totals, standard errors, whole models), what its manifest says of
    errors, and its noisy counts."""
    packed = synthesis.pack()
    facts = np.frombuffer(repr((packed.meta, synthesis.accuracy())).encode(), np.uint8)
    return [facts, *packed.arrays.values(), published_lines(synthesis)]


def published_lines(synthesis: Synthesis) -> NDArray[np.uint8]:
    """The file of noisy counts of one step, as bytes that an audit compares."""
    lines = "\n".join(one.line() for one in synthesis.noisy_counts)
    return np.frombuffer(lines.encode(), np.uint8)


#: Replaces the randomness that a plan gets.
Wrap = Callable[[Randomness], Randomness]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """One measurement: its law, the exact values, and what came out."""

    noise: AnyNoise
    exact: Ints
    noisy: Ints


@dataclass(frozen=True)
class Choice:
    """One selection: its outcome, the probabilities of all outcomes, and how it is made again."""

    chosen: int
    law: Floats
    again: Callable[[], int]


class _OtherTranscriptError(Exception):
    """The second stream asks for what the first one never measured or chose."""


class SameWords(Randomness):
    """Randomness with the random words and the choices of ``inner``; subclasses change the noise."""

    def __init__(self, inner: Randomness) -> None:
        super().__init__(lambda n: inner.words(-(-n // 8)).tobytes()[:n])
        self._inner = inner

    def choose(self, choice: Callable[[], int], law: Callable[[], Floats]) -> int:
        """The choice of ``inner``."""
        return self._inner.choose(choice, law)


#: Noise that leans to one side is moved by so many standard deviations.
_LEAN = 4


class Door(Randomness):
    """Records measurements and choices; with a script, gives those of the script.

    Public random words come from a seed of their own, so that both runs have the same ones.

    Args:
        lean: the sign that all independent noise of measurements gets: rare outcomes, but possible ones. 0: as drawn.
    """

    def __init__(self, seed: bytes, script: Door | None = None, lean: int = 0) -> None:
        super().__init__(_no_source)
        self._public, self._noise = Randomness.seeded(seed), Randomness.seeded(seed + b"noise")
        self._choosing, self._script, self._lean = False, script, lean
        self.measured: list[Measured] = []
        self.choices: list[Choice] = []
        #: Noisy limits of tests: the law, and the noise.
        self.limited: list[tuple[Noise, Ints]] = []
        #: Laws that were drawn beside the door.
        self.loose: list[AnyNoise] = []

    def words(self, n: int) -> NDArray[np.uint64]:
        """Words for a choice, or public ones."""
        return (self._noise if self._choosing else self._public).words(n)

    def draw(self, noise: Any, size: int) -> Ints:
        """Noise that is not measured here."""
        self.loose += [noise] * bool(size)
        return self._noise.draw(noise, size)

    def draw_joint(self, noise: CubeNoise | HistogramsNoise) -> Ints:
        """As ``draw``, of a whole vector."""
        self.loose.append(noise)
        return self._noise.draw_joint(noise)

    def limits(self, limit: int, noise: Noise, size: int) -> Ints:
        """Fresh noisy limits, or the script's."""
        if self._script is None:
            drawn = self._noise.draw(noise, size)
        else:
            given = self._script.limited[len(self.limited) :][:1]
            if not given or given[0][0] != noise or len(given[0][1]) != size:
                raise _OtherTranscriptError
            drawn = given[0][1]
        self.limited.append((noise, drawn))
        return limit + drawn

    def measure(self, exact: Ints, noise: AnyNoise) -> Ints:
        """A fresh measurement, or the script's."""
        if self._script is None:
            noisy = self._noise.measure(exact, noise)
            if self._lean and isinstance(noise, DiscreteLaplace | DiscreteGaussian):
                far = math.ceil(_LEAN * noise.variance**0.5)
                noisy = exact + self._lean * (np.abs(noisy - exact) + far)
        else:
            if isinstance(noise, HistogramsNoise):
                noise.check(exact)
            given = self._script.measured[len(self.measured) :][:1]
            if not given or given[0].noise != noise or given[0].noisy.shape != exact.shape:
                raise _OtherTranscriptError
            noisy = given[0].noisy
        self.measured.append(Measured(noise, exact.copy(), noisy.copy()))
        return noisy

    def choose(self, choice: Callable[[], int], law: Callable[[], Floats]) -> int:
        """A fresh choice, or the script's."""

        def again() -> int:
            self._choosing = True
            try:
                return choice()
            finally:
                self._choosing = False

        own = law()
        if self._script is None:
            chosen = again()
        else:
            given = self._script.choices[len(self.choices) :][:1]
            if not given or len(given[0].law) != len(own):
                raise _OtherTranscriptError
            chosen = given[0].chosen
        self.choices.append(Choice(chosen, own, again))
        return chosen


#: What is released, part by part, by one run with this randomness.
Run = Callable[[Randomness], Iterable[Sequence[NDArray[Any]]]]


def as_it_is(randomness: Randomness) -> Randomness:
    """No wrap."""
    return randomness


class Streamed(Protocol):
    """A plan, or what stands for it in a control."""

    @property
    def budget(self) -> Budget:
        """What it claims."""
        ...

    def start(self) -> Any:
        """The state before the first step."""
        ...

    def step(self, state: Any, batch: Any, randomness: Randomness, /) -> Synthesis:
        """One step."""
        ...


def stream_run(plan: Streamed, batches: Iterable[Any], base: StartTable | None = None) -> Run:
    """A run of a stream: everything that each step releases.

    Args:
        base: the table that it begins with.
    """

    def run(randomness: Randomness) -> Iterator[list[NDArray[Any]]]:
        state = plan.start() if base is None else plan.start_from(base)  # type: ignore[attr-defined]
        for batch in batches:
            yield released_arrays(plan.step(state, batch, randomness))

    return run


@dataclass(frozen=True)
class Transcript:
    """One run: what passed its door, and everything that was released, part by part."""

    seed: bytes
    door: Door
    released: list[Sequence[NDArray[Any]]]


@dataclass(frozen=True)
class Loss:
    """The loss of one transcript: of its measurements, and of its choices."""

    measured: float
    chosen: float

    @property
    def total(self) -> float:
        """Of both together."""
        return self.measured + self.chosen


def record(run: Run, randomness: Randomness, wrap: Wrap = as_it_is, lean: int = 0) -> Transcript:
    """A random transcript of a run.

    Args:
        wrap: replaces the door that the mechanism gets (for controls).
        lean: see ``Door``.
    """
    seed = randomness.words(4).tobytes()
    door = Door(seed, lean=lean)
    return Transcript(seed, door, [_copied(part) for part in run(wrap(door))])


def replay(run: Run, first: Transcript, wrap: Wrap = as_it_is) -> tuple[Transcript, str]:
    """A run on other records with the measurements and choices of the first one; and what it reveals all the same, or
    an empty text."""
    door = Door(first.seed, first.door)
    released: list[Sequence[NDArray[Any]]] = []
    second = Transcript(first.seed, door, released)
    try:
        for part in run(wrap(door)):
            expected = first.released[len(released)]
            released.append(_copied(part))
            if len(part) != len(expected) or not all(map(np.array_equal, part, expected)):
                return second, f"the release of step {len(released)} differs"
    except _OtherTranscriptError:
        return second, f"step {len(released) + 1} measures or chooses something else"
    one, two = first.door, door
    if (
        len(one.measured) != len(two.measured)
        or len(one.choices) != len(two.choices)
        or len(one.limited) != len(two.limited)
        or one.loose != two.loose
    ):
        return second, "the numbers of measurements or choices differ"
    return second, ""


def _copied(part: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    return [array.copy() for array in part]


def transcript_loss(first: Transcript, second: Transcript, *, pure: bool) -> Loss:
    """The loss of one transcript of neighbours.

    Of each measurement the largest over all values that its noise could have had; of each choice (pure) the largest
    log-ratio of an outcome, or (zCDP) the squared range of its privacy loss, divided by 8 (Cesar, Rogers 2021).
    """
    measured = sum(
        measured_loss(one.noise, other.exact - one.exact)
        for one, other in zip(first.door.measured, second.door.measured, strict=True)
    )
    chosen = sum(
        choice_loss(here.law, there.law, pure=pure)
        for here, there in zip(first.door.choices, second.door.choices, strict=True)
    )
    return Loss(measured, chosen)


#: Outcomes that are less likely than this on both sides are left out: floats have no ratio of what is next to 0.
_UNLIKELY = 1e-200


def choice_loss(law: Floats, other: Floats, *, pure: bool) -> float:
    """The loss of a choice with these probabilities on two neighbours (see ``transcript_loss``)."""
    likely = np.maximum(law, other) > _UNLIKELY
    with np.errstate(divide="ignore"):
        ratio = np.log(law[likely]) - np.log(other[likely])
    return float(np.abs(ratio).max()) if pure else float(ratio.max() - ratio.min()) ** 2 / 8


def measured_loss(noise: AnyNoise, moved: Ints) -> float:
    """The largest loss of one measurement whose exact values move so; infinite where no noise makes up for it."""
    change = np.abs(moved)
    if isinstance(noise, HistogramsNoise):
        sums = np.add.reduceat(moved, noise.starts)
        if (sums != (0 if noise.level else sums[0])).any():
            return math.inf
        return float(noise.norm(moved) / noise.scale)
    if isinstance(noise, CubeNoise):
        return float(change.max() / noise.scale)
    if isinstance(noise, DiscreteLaplace):
        return float(change.sum() / noise.scale)
    assert isinstance(noise, DiscreteGaussian)
    return float((change**2).sum() / (2 * noise.sigma_squared))


def run_loss(
    base: Run, other: Run, randomness: Randomness, *, pure: bool, wrap: Wrap = as_it_is, lean: int = 0
) -> Loss:
    """The largest loss of one random transcript of ``base`` against ``other``; infinite where something is revealed
    beside the door."""
    first = record(base, randomness, wrap, lean)
    second, differs = replay(other, first, wrap)
    return Loss(math.inf, 0.0) if differs or first.door.loose else transcript_loss(first, second, pure=pure)


def _no_source(_n: int) -> NoReturn:
    raise RuntimeError("a door has its own words")
