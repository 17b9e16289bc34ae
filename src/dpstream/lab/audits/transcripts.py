"""The exact privacy loss of whole streams, on transcripts.

A transcript is everything that a DP-STabS stream reveals: which workloads were selected and what the counters said.
For a stream, its neighbour, and one and the same transcript, the log-ratio of the probabilities is known exactly:
selections through their probabilities, counters through the noise that each stream would have needed. It must
stay within the budget for every transcript.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PrivateBatch, StartTable
from dpstream.core.counters import CalibratedCounter
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import (
    DiscreteLaplace,
    Noise,
    PureDP,
    Randomness,
    exponential_probabilities,
    permute_and_flip_probabilities,
    selection_epsilon,
)
from dpstream.families.tabular import DPStabsPlan
from dpstream.families.tabular.selector import Selector

__all__ = ["TranscriptLoss", "selection_probabilities", "transcript_loss"]


@dataclass(frozen=True)
class TranscriptLoss:
    """Log-ratio of one transcript's probabilities, on a stream over its neighbour.

    Attributes:
        selections: what the choices contribute.
        noise: what the counters' outputs contribute.
    """

    selections: float
    noise: float

    @property
    def total(self) -> float:
        """The log-ratio; its absolute value is the loss."""
        return self.selections + self.noise


def selection_probabilities(
    selector: Selector, numerators: Any, denominators: Any, sensitivity: Any
) -> NDArray[np.float64]:
    """The law of ``selector.choose`` on these scores (all of them allowed)."""
    if isinstance(selector.budget, PureDP):
        return permute_and_flip_probabilities(
            numerators, denominators, epsilon=selector.budget.epsilon, sensitivity=sensitivity
        )
    epsilon = selection_epsilon(selector.budget.rho)
    return exponential_probabilities(numerators, denominators, epsilon=epsilon, sensitivity=sensitivity)


def transcript_loss(
    plan: DPStabsPlan,
    base: Sequence[PrivateBatch],
    neighbour: Sequence[PrivateBatch],
    randomness: Randomness,
    starts: tuple[StartTable, StartTable] | None = None,
) -> TranscriptLoss:
    """The log-ratio of one random transcript of ``base``, against ``neighbour``.

    The plan's own code runs twice: once on ``base``, writing down choices and noise; once on ``neighbour``, with
    the choices given and with the noise that makes the counters say the same. Where any release differs all the
    same, something private reached it past selections and counters, and the loss is infinite.

    Args:
        plan: pure, with a linear counter; any wrapped or broken parts are run as they are.
        base, neighbour: two streams of the same number of steps; they may differ anywhere.
        randomness: makes the transcript. The bound holds for every transcript, so a seeded one will do, or one
            whose noise leans to one side.
        starts: the tables that the two streams begin with, if they do.

    Cost: two runs, and the counters' matrices.

    Errors:
        ConfigError: a budget that is not pure, or a step that was cut short because the model was full.
    """
    if not isinstance(plan.budget, PureDP):
        raise ConfigError("transcripts are compared in epsilon", where="audit", allowed="a pure budget")
    first = _Taped(randomness)
    one, other = (None, None) if starts is None else starts
    choices, ended = _run(plan, base, first, None, one)
    asked = [choice for choice, _ in choices]
    second = _Taped(randomness, first.draws, _shifts(plan, base, neighbour, asked))
    again, ended_again = _run(plan, neighbour, second, asked, other)
    # One of them may have released more than the other.
    if len(ended) != len(ended_again) or not all(map(np.array_equal, ended, ended_again)):
        return TranscriptLoss(0.0, math.inf)
    selections = sum(p - q for (_, p), (_, q) in zip(choices, again, strict=True))
    noise = 0.0
    for (law, drawn), (_, needed) in zip(first.draws, second.draws, strict=True):
        if not isinstance(law, DiscreteLaplace):
            raise ConfigError("a pure plan drew noise that is not Laplace", where="audit")
        noise += float((np.abs(needed) - np.abs(drawn)).sum()) / float(law.scale)
    return TranscriptLoss(selections, noise)


class _Taped(Randomness):
    """Writes down every draw; with a tape, gives that noise less the ``shifts``."""

    def __init__(
        self,
        inner: Randomness,
        tape: list[tuple[Noise, NDArray[np.int64]]] | None = None,
        shifts: list[NDArray[np.int64]] | None = None,
    ) -> None:
        super().__init__(lambda n: inner.words(-(-n // 8)).tobytes()[:n])
        self._inner, self._tape, self._shifts = inner, tape, shifts or []
        self.draws: list[tuple[Noise, NDArray[np.int64]]] = []

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        """Fresh noise, or what makes the same output."""
        position = len(self.draws)
        if self._tape is None:
            drawn = self._inner.draw(noise, size)
        else:
            drawn = self._tape[position][1] - self._shifts[position]
        self.draws.append((noise, drawn))
        return drawn


@dataclass(frozen=True)
class _Scripted(Selector):
    """Writes down every choice and its log-probability; with a script, takes the choices from there."""

    script: Sequence[int] | None = None
    log: list[tuple[int, float]] = field(default_factory=list)

    def choose(
        self, numerators: Any, denominators: Any, allowed: Any, sensitivity: Any, randomness: Randomness
    ) -> int:
        if self.script is None:
            choice = super().choose(numerators, denominators, allowed, sensitivity, randomness)
        else:
            choice = self.script[len(self.log)]
        index = np.asarray(allowed)
        law = selection_probabilities(self, numerators[index], denominators[index], sensitivity)
        self.log.append((choice, math.log(law[list(allowed).index(choice)])))
        return choice


def _run(
    plan: DPStabsPlan,
    batches: Sequence[PrivateBatch],
    randomness: Randomness,
    script: Sequence[int] | None,
    begin: StartTable | None,
) -> tuple[list[tuple[int, float]], list[NDArray[Any]]]:
    """Choices with log-probabilities, and everything released: totals, models' marginals, counters' outputs, and
    the synthesis as it is kept, stated errors and measurements included."""
    rounds = plan.recipe.rounds * len(plan.recipe.sides)
    log: list[tuple[int, float]] = []
    if plan.selector is not None:
        plan = replace(plan, selector=_Scripted(plan.selector.budget, script, log))
    state = plan.start() if begin is None else plan.start_from(begin)
    released: list[NDArray[Any]] = []
    for step, batch in enumerate(batches, 1):
        synthesis = plan.step(state, batch, randomness)
        released.append(np.array([synthesis.total]))
        released.extend(synthesis.marginals(plan.cells.cliques))
        released.extend(side.estimates.copy() for side in state.sides)
        packed = synthesis.pack()
        released.append(np.frombuffer(json.dumps([packed.meta, list(packed.arrays)]).encode(), np.uint8))
        released.extend(packed.arrays.values())
        if plan.selector is None:
            log.extend((index, 0.0) for _ in plan.recipe.sides for index in range(plan.recipe.rounds))
        if len(log) != step * rounds:
            raise ConfigError("a step was cut short: the model was full", where="audit", allowed="max_cells")
    return log, released


def _shifts(
    plan: DPStabsPlan, base: Sequence[PrivateBatch], neighbour: Sequence[PrivateBatch], choices: list[int]
) -> list[NDArray[np.int64]]:
    """By how much each noise must fall on ``neighbour`` for the counters to say the same, draw by draw."""
    cliques, sides = plan.cells.cliques, plan.recipe.sides
    encoder = plan.counter.materialize(len(base)).encoder
    changes = [
        [
            [after - before for before, after in zip(a.count(cliques, s), b.count(cliques, s), strict=True)]
            for s in sides
        ]
        for a, b in zip(base, neighbour, strict=True)
    ]
    asked, history = [], defaultdict(list)
    for number, choice in enumerate(choices):
        step, within_step = divmod(number, plan.recipe.rounds * len(sides))
        side = within_step // plan.recipe.rounds
        asked.append((side, choice))
        history[side, choice].append(changes[step][side][choice])
    # Noise may be drawn ahead: it must make up for later changes, too.
    moved = {key: encoder[:, : len(own)] @ np.array(own) for key, own in history.items()}
    drawn = _rows_drawn(plan.counter, len(base))
    ticks, rows = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    result = []
    for key in asked:
        for count in drawn[ticks[key]]:
            result.append(moved[key][rows[key] : rows[key] + count].ravel())
            rows[key] += count
        ticks[key] += 1
    return result


def _rows_drawn(counter: CalibratedCounter, ticks: int) -> list[list[int]]:
    """For each tick, how many values a cell gets in each of its draws."""
    state, zero, found = counter.init(1), np.zeros(1, np.int64), []
    for _ in range(ticks):
        silent = _Silent()
        counter.step(state, zero, silent)
        found.append(silent.sizes)
    return found


class _Silent(Randomness):
    """No noise; notes how much was asked for."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        """Zeros."""
        self.sizes.append(size)
        return np.zeros(size, np.int64)
