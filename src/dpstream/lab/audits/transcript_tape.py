"""Records the choices and the noise of one run of a mechanism, and replays them in another run.

An exact audit runs a mechanism's own code twice: on a stream, where a ``Tape`` records every choice with its law and
every draw of noise; and on its neighbour, with the same choices and with the noise that makes every output the same.
The shift of the noise and the difference of the choices' laws give the loss. If a release differs all the same, private
information reached it other than through choices and noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import (
    AnyNoise,
    CubeNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    HistogramsNoise,
    Noise,
    PureDP,
    Randomness,
    exponential_probabilities,
    permute_and_flip_probabilities,
    selection_epsilon,
)
from dpstream.mechanisms.selector import Selector
from dpstream.tools.evaluate.array_types import Floats, Ints

#: (index of a draw, number of its values) -> what is added to the noise on the tape.
Shift = Callable[[int, int], Ints | int]
#: Draws noise where no tape gives it.
Fresh = Callable[[Noise, int], Ints]


class SameWords(Randomness):
    """Randomness with the random words of ``inner``; subclasses change the noise."""

    def __init__(self, inner: Randomness) -> None:
        super().__init__(lambda n: inner.words(-(-n // 8)).tobytes()[:n])
        self._inner = inner

    def choose(self, choice: Callable[[], int], law: Callable[[], NDArray[np.float64]]) -> int:
        """The choice of ``inner``."""
        return self._inner.choose(choice, law)


class TapedChoice(NamedTuple):
    """One choice: the candidate, its place among the allowed ones, and the probabilities of these."""

    chosen: int
    place: int
    law: Floats


@dataclass
class Tape:
    """The choices and draws of one run, in order. With a script, the run replays those of another run."""

    script: Tape | None = None
    choices: list[TapedChoice] = field(default_factory=list)
    draws: list[tuple[AnyNoise, Ints]] = field(default_factory=list)

    def given_place(self, allowed: int) -> int | None:
        """The place of the next choice in the script, if it is below ``allowed``; None: the run chooses itself."""
        at = len(self.choices)
        if self.script is None or at >= len(self.script.choices):
            return None
        place = self.script.choices[at].place
        return place if place < allowed else None

    def given_noise(self, size: int) -> Ints | None:
        """The noise of the next draw in the script, if it has this size; None: the run draws itself."""
        at = len(self.draws)
        if self.script is None or at >= len(self.script.draws) or len(self.script.draws[at][1]) != size:
            return None
        return self.script.draws[at][1]

    def chosen_loss(self, other: Tape) -> float:
        """The signed log-ratio of the probabilities of the choices, on this tape over those on ``other``."""
        pairs = zip(self.choices, other.choices, strict=True)
        return float(sum(np.log(one.law[one.place]) - np.log(two.law[one.place]) for one, two in pairs))

    def matches(self, other: Tape) -> bool:
        """Whether both runs have the same number of choices among as many candidates, and draws of the same sizes."""
        return [len(choice.law) for choice in self.choices] == [
            len(choice.law) for choice in other.choices
        ] and ([len(values) for _, values in self.draws] == [len(values) for _, values in other.draws])


class TapedNoise(SameWords):
    """Records every draw on a tape. Where the tape has a script, gives the script's noise plus ``shift``."""

    def __init__(
        self, inner: Randomness, tape: Tape, shift: Shift = lambda at, size: 0, fresh: Fresh | None = None
    ) -> None:
        super().__init__(inner)
        self._tape, self._shift, self._fresh = tape, shift, fresh or inner.draw

    @classmethod
    def apart(cls, seed: bytes, tape: Tape, shift: Shift = lambda at, size: 0) -> Self:
        """Noise from its own seed, so that a run that replays noise uses as many random words as one that draws it."""
        return cls(Randomness.seeded(seed), tape, shift, Randomness.seeded(seed + b"noise").draw)

    def draw(self, noise: Noise, size: int) -> Ints:
        """Fresh noise, or the script's noise plus ``shift``."""
        given = self._tape.given_noise(size)
        drawn = (
            self._fresh(noise, size) if given is None else given + self._shift(len(self._tape.draws), size)
        )
        self._tape.draws.append((noise, drawn))
        return drawn

    def draw_joint(self, noise: CubeNoise | HistogramsNoise) -> Ints:
        """As ``draw``, of a whole vector."""
        size = noise.dimension if isinstance(noise, CubeNoise) else sum(noise.sizes)
        given = self._tape.given_noise(size)
        drawn = (
            self._inner.draw_joint(noise)
            if given is None
            else given + self._shift(len(self._tape.draws), size)
        )
        self._tape.draws.append((noise, drawn))
        return drawn


def joint_loss(noise: HistogramsNoise, moved: Ints) -> float:
    """The largest loss of one joint draw where its counts move so; infinite where no noise makes up for it."""
    sums = np.add.reduceat(moved, noise.starts)
    if (sums != (0 if noise.level else sums[0])).any():
        return math.inf
    return float(noise.norm(moved) / noise.scale)


def each_alone(noise: HistogramsNoise) -> HistogramsNoise:
    """BROKEN: the same noise with the loss of histograms that are each drawn as if they were the only one."""
    return _EachAlone(noise.scale, noise.sizes, noise.level)


@dataclass(frozen=True)
class _EachAlone(HistogramsNoise):
    def norm(self, moved: Ints) -> int:
        return int(np.abs(moved).sum())


def in_order(shifts: Sequence[Ints | None]) -> Shift:
    """The ``Shift`` that adds these in the order of draws, and nothing to a draw without one or of another size."""

    def shift(at: int, size: int) -> Ints | int:
        own = shifts[at] if at < len(shifts) else None
        return 0 if own is None or len(own) != size else own

    return shift


@dataclass(frozen=True)
class TapedSelector(Selector):
    """Records every choice with its law on a tape. Where the tape has a script, makes the script's choices."""

    tape: Tape = field(default_factory=Tape)

    def choose(
        self, numerators: Any, denominators: Any, allowed: Any, sensitivity: Any, randomness: Randomness
    ) -> int:
        """The script's choice, or the selector's own."""
        index = np.asarray(allowed)
        law = selection_probabilities(self, numerators[index], denominators[index], sensitivity)
        place = self.tape.given_place(len(index))
        if place is None:
            chosen = super().choose(numerators, denominators, allowed, sensitivity, randomness)
            place = int(np.flatnonzero(index == chosen)[0])
        self.tape.choices.append(TapedChoice(int(index[place]), place, law))
        return int(index[place])


def selection_probabilities(
    selector: Selector, numerators: Any, denominators: Any, sensitivity: Any
) -> NDArray[np.float64]:
    """The probabilities of ``selector.choose`` on these scores, if all candidates are allowed."""
    if isinstance(selector.budget, PureDP):
        return permute_and_flip_probabilities(
            numerators, denominators, epsilon=selector.budget.epsilon, sensitivity=sensitivity
        )
    epsilon = selection_epsilon(selector.budget.rho)
    return exponential_probabilities(numerators, denominators, epsilon=epsilon, sensitivity=sensitivity)


def worst_choice_loss(first: Tape, second: Tape, *, pure: bool) -> float:
    """The largest loss of the choices at the scores of this transcript.

    Pure: for each choice the largest log-ratio of an outcome. zCDP: the squared range of its privacy loss, divided by 8
    (Cesar, Rogers 2021).
    """
    loss = 0.0
    for one, other in zip(first.choices, second.choices, strict=True):
        ratio = np.log(one.law) - np.log(other.law)
        loss += float(np.abs(ratio).max()) if pure else float(ratio.max() - ratio.min()) ** 2 / 8
    return loss


def noise_loss(first: Tape, second: Tape, *, largest: bool = False) -> float:
    """The loss of the noise. Laplace: the signed log-ratio of its probabilities. Gaussian: ``shift^2 / 2 sigma^2``.

    Args:
        largest: for Laplace noise, take the largest loss over all values that it could have had.
    """
    loss = 0.0
    for (noise, drawn), (_, needed) in zip(first.draws, second.draws, strict=True):
        if isinstance(noise, DiscreteLaplace):
            moved = np.abs(needed - drawn) if largest else np.abs(needed) - np.abs(drawn)
            loss += float(moved.sum() / noise.scale)
        elif isinstance(noise, HistogramsNoise):
            most = joint_loss(noise, needed - drawn)
            own = (noise.norm(needed) - noise.norm(drawn)) / noise.scale
            loss += most if largest or math.isinf(most) else float(own)
        elif isinstance(noise, DiscreteGaussian):
            loss += float(((needed - drawn) ** 2).sum() / (2 * noise.sigma_squared))
    return loss
