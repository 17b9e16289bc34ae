"""A door that records what passes it, and the exact loss of whole streams between two runs through such doors.

All that a stream reveals follows from its measurements, its choices and public facts. The plan's own code runs twice:
on a stream, through a door that records the exact values and the law of each measurement and the law of each choice;
and on another stream, through a door that gives the same noisy values and makes the same choices. Every release must
then be the same, bit for bit, *whatever* the two streams hold: else private information reached it other than through
the door. For neighbours the loss is known exactly, too: from the difference of the exact values and of the laws.

Noise that is drawn beside the door (``loose``), as counters and tests of thresholds do, is only recorded: what it
costs is known to the audits of these parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts, StartTable, Synthesis
from dpstream.core.privacy import (
    AnyNoise,
    Budget,
    CubeNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    HistogramsNoise,
    PureDP,
    Randomness,
)
from dpstream.lab.audits.transcript_tape import joint_loss


def only_drawn(drawn: Iterable[tuple[AnyNoise, NDArray[np.int64]]], counts: Sequence[NoisyCounts]) -> bool:
    """Whether noisy counts are what an audit recorded, value by value and in this order, under names of their own.

    Args:
        drawn: the noise and the released values of every draw.
    """
    recorded = list(drawn)
    return (
        len(recorded) == len(counts)
        and len({one.draw for one in counts}) == len(counts)
        and all(
            one.noise == noise and np.array_equal(one.values, values)
            for (noise, values), one in zip(recorded, counts, strict=True)
        )
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


class Door(Randomness):
    """Records measurements and choices; with a script, gives those of the script.

    Public random words come from a seed of their own, so that both runs have the same ones.
    """

    def __init__(self, seed: bytes, script: Door | None = None) -> None:
        super().__init__(_no_source)
        self._public, self._noise = Randomness.seeded(seed), Randomness.seeded(seed + b"noise")
        self._choosing, self._script = False, script
        self.measured: list[Measured] = []
        self.choices: list[Choice] = []
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

    def measure(self, exact: Ints, noise: AnyNoise) -> Ints:
        """A fresh measurement, or the script's."""
        if self._script is None:
            noisy = self._noise.measure(exact, noise)
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


def _as_it_is(randomness: Randomness) -> Randomness:
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


@dataclass(frozen=True)
class Transcript:
    """One run: what passed its door, and everything that each step released."""

    seed: bytes
    door: Door
    released: list[list[NDArray[Any]]]


def record(
    plan: Streamed,
    batches: Iterable[Any],
    randomness: Randomness,
    base: StartTable | None = None,
    wrap: Wrap = _as_it_is,
) -> Transcript:
    """A random transcript of a stream.

    Args:
        base: the table that it begins with.
        wrap: replaces the door that the plan gets (for controls).
    """
    seed = randomness.words(4).tobytes()
    door = Door(seed)
    return Transcript(seed, door, list(_releases(plan, batches, wrap(door), base)))


def replay(
    plan: Streamed,
    first: Transcript,
    batches: Iterable[Any],
    base: StartTable | None = None,
    wrap: Wrap = _as_it_is,
) -> tuple[Transcript, str]:
    """The run of another stream with the measurements and choices of the first one; and what it reveals all the same,
    or an empty text."""
    door = Door(first.seed, first.door)
    released: list[list[NDArray[Any]]] = []
    again = Transcript(first.seed, door, released)
    try:
        for own in _releases(plan, batches, wrap(door), base):
            expected = first.released[len(released)]
            released.append(own)
            if len(own) != len(expected) or not all(map(np.array_equal, own, expected)):
                return again, f"the release of step {len(released)} differs"
    except _OtherTranscriptError:
        return again, f"step {len(released) + 1} measures or chooses something else"
    one, two = first.door, door
    if (
        len(one.measured) != len(two.measured)
        or len(one.choices) != len(two.choices)
        or one.loose != two.loose
    ):
        return again, "the numbers of measurements or choices differ"
    return again, ""


def transcript_loss(first: Transcript, second: Transcript, *, pure: bool) -> float:
    """The loss of one transcript of neighbours.

    Of each measurement the largest over all values that its noise could have had; of each choice (pure) the largest
    log-ratio of an outcome, or (zCDP) the squared range of its privacy loss, divided by 8 (Cesar, Rogers 2021).
    """
    loss = 0.0
    for one, other in zip(first.door.measured, second.door.measured, strict=True):
        loss += _measured_loss(one.noise, other.exact - one.exact)
    for here, there in zip(first.door.choices, second.door.choices, strict=True):
        ratio = np.log(here.law) - np.log(there.law)
        loss += float(np.abs(ratio).max()) if pure else float(ratio.max() - ratio.min()) ** 2 / 8
    return loss


def stream_loss(
    plan: Streamed,
    base: Iterable[Any],
    neighbour: Iterable[Any],
    randomness: Randomness,
    wrap: Wrap = _as_it_is,
) -> float:
    """The largest loss of one random transcript of ``base`` against ``neighbour``, in the unit of the plan's budget;
    infinite where something is revealed beside the door."""
    first = record(plan, base, randomness, wrap=wrap)
    second, differs = replay(plan, first, neighbour, wrap=wrap)
    pure = isinstance(plan.budget, PureDP)
    return math.inf if differs or first.door.loose else transcript_loss(first, second, pure=pure)


def beside_the_door(
    plan: Streamed,
    base: Sequence[Any],
    others: Iterable[Sequence[Any]],
    randomness: Randomness,
    wrap: Wrap = _as_it_is,
) -> str:
    """What streams with other records reveal though their measurements and choices are those of ``base``; empty:
    nothing."""
    first = record(plan, base, randomness, wrap=wrap)
    return next((words for other in others if (words := replay(plan, first, other, wrap=wrap)[1])), "")


def drawn_and_published(
    plan: Streamed, batches: Iterable[Any], randomness: Randomness
) -> tuple[list[tuple[AnyNoise, Ints]], list[NoisyCounts]]:
    """What a stream measures, as its door has it; and what it publishes of it."""
    door, state, published = Door(randomness.words(4).tobytes()), plan.start(), list[NoisyCounts]()
    for batch in batches:
        published += plan.step(state, batch, door).noisy_counts
    return [(one.noise, one.noisy) for one in door.measured], published


def _measured_loss(noise: AnyNoise, moved: Ints) -> float:
    change = np.abs(moved)
    if isinstance(noise, HistogramsNoise):
        return joint_loss(noise, moved)
    if isinstance(noise, CubeNoise):
        return float(change.max() / noise.scale)
    if isinstance(noise, DiscreteLaplace):
        return float(change.sum() / noise.scale)
    assert isinstance(noise, DiscreteGaussian)
    return float((change**2).sum() / (2 * noise.sigma_squared))


def _releases(
    plan: Streamed, batches: Iterable[Any], door: Randomness, base: StartTable | None
) -> Iterable[list[NDArray[Any]]]:
    state = plan.start() if base is None else plan.start_from(base)  # type: ignore[attr-defined]
    for batch in batches:
        yield released_arrays(plan.step(state, batch, door))


def _no_source(_n: int) -> NoReturn:
    raise RuntimeError("a door has its own words")
