"""The exact privacy loss of whole DP-STabS streams, on transcripts.

A transcript is everything that a stream reveals: the selected marginals and the outputs of the counters. For a stream,
its neighbour and one transcript, the log-ratio of the transcript's probabilities is known exactly: from the
probabilities of the selections, and from the noise that each stream needs for the same outputs. It must stay within the
budget for every transcript.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.checks import NoiseTape
from dpstream.core.contracts import PrivateBatch, StartTable
from dpstream.core.counters import CalibratedCounter
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import DiscreteLaplace, PureDP, Randomness
from dpstream.families.tabular import DPStabsPlan
from dpstream.lab.audits.door import published_lines
from dpstream.lab.audits.transcript_tape import (
    Tape,
    TapedChoice,
    TapedNoise,
    TapedSelector,
    in_order,
    noise_loss,
)
from dpstream.mechanisms.plans import read_events


@dataclass(frozen=True)
class TranscriptLoss:
    """The log-ratio of one transcript's probabilities, on a stream over its neighbour.

    Attributes:
        selections: the part of the choices.
        noise: the part of the counters' outputs.
    """

    selections: float
    noise: float

    @property
    def total(self) -> float:
        """The log-ratio; its absolute value is the loss."""
        return self.selections + self.noise


def transcript_loss(
    plan: DPStabsPlan,
    base: Sequence[PrivateBatch],
    neighbour: Sequence[PrivateBatch],
    randomness: Randomness,
    starts: tuple[StartTable, StartTable] | None = None,
) -> TranscriptLoss:
    """The log-ratio of one random transcript of ``base`` against ``neighbour``.

    The plan's own code runs twice: on ``base``, recording choices and noise; and on ``neighbour``, with the same
    choices and with the noise that gives the same outputs of the counters. If a release differs all the same, private
    information reached it other than through selections and counters, and the loss is infinite.

    Args:
        plan: a plan with a pure budget and a linear counter; broken parts run as they are.
        base, neighbour: two streams with the same number of steps; they may differ anywhere.
        randomness: for the transcript. The claim holds for every transcript, so it may be seeded, or lean to one side.
        starts: the tables with which the two streams begin, if they do.

    Cost: two runs, and the counters' matrices.

    Errors:
        ConfigError: the budget is not pure, or a step made fewer selections because the model was full.
    """
    if not isinstance(plan.budget, PureDP):
        raise ConfigError("transcripts are compared in epsilon", where="audit", allowed="a pure budget")
    first, (one, other) = Tape(), (None, None) if starts is None else starts
    ended = _run(plan, base, first, TapedNoise(randomness, first), one)
    shifts = _shifts(plan, base, neighbour, [choice.chosen for choice in first.choices])
    second = Tape(script=first)
    again = _run(plan, neighbour, second, TapedNoise(randomness, second, in_order(shifts)), other)
    # Compare the numbers of releases first: one stream may have released more.
    same = len(ended) == len(again) and all(map(np.array_equal, ended, again))
    if not same or not first.matches(second):
        return TranscriptLoss(0.0, math.inf)
    if not all(isinstance(law, DiscreteLaplace) for law, _ in first.draws):
        raise ConfigError(
            "the plan has a pure budget, but drew noise that is not Laplace",
            where="audit",
            allowed="discrete Laplace noise",
        )
    return TranscriptLoss(first.chosen_loss(second), noise_loss(first, second))


def _run(
    plan: DPStabsPlan,
    batches: Sequence[PrivateBatch],
    tape: Tape,
    randomness: Randomness,
    begin: StartTable | None,
) -> list[NDArray[Any]]:
    """Everything that is released: totals, the models' marginals, the counters' outputs, the packed synthesis with its
    stated errors and measurements, and the published noisy counts."""
    rounds = plan.recipe.rounds * len(plan.recipe.sides)
    if plan.selector is not None:
        plan = replace(plan, selector=TapedSelector(plan.selector.budget, tape))
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
        released.append(published_lines(synthesis))
        if plan.selector is None:
            everything = [TapedChoice(index, 0, np.ones(1)) for index in range(plan.recipe.rounds)]
            tape.choices += everything * len(plan.recipe.sides)
        if len(tape.choices) != step * rounds:
            raise ConfigError(
                "a step made fewer selections, because the model was full",
                where="audit",
                allowed="a larger max_cells",
            )
    return released


def _shifts(
    plan: DPStabsPlan, base: Sequence[PrivateBatch], neighbour: Sequence[PrivateBatch], choices: list[int]
) -> list[NDArray[np.int64]]:
    """The shift of each noise on ``neighbour`` that gives the same outputs of the counters, draw by draw."""
    cliques, sides = plan.cells.cliques, plan.recipe.sides
    base, neighbour = ([_as_read(plan, batch) for batch in stream] for stream in (base, neighbour))
    encoder = plan.counter.materialize(len(base)).encoder
    changes = [
        [
            [before - after for before, after in zip(a.count(cliques, s), b.count(cliques, s), strict=True)]
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
    # Noise may be drawn ahead, so its shift depends on later changes too.
    moved = {key: encoder[:, : len(own)] @ np.array(own) for key, own in history.items()}
    drawn = rows_drawn(plan.counter, len(base))
    ticks, rows = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    result = []
    for key in asked:
        for count in drawn[ticks[key]]:
            result.append(moved[key][rows[key] : rows[key] + count].ravel())
            rows[key] += count
        ticks[key] += 1
    return result


def _as_read(plan: DPStabsPlan, batch: PrivateBatch) -> PrivateBatch:
    """The batch without what its plan leaves out."""
    return read_events(batch, deletions=plan.recipe.deletions, cancels=plan.cancels)


def rows_drawn(counter: CalibratedCounter, ticks: int) -> list[list[int]]:
    """For each tick, the number of values of each draw for one cell."""
    state, zero, sizes = counter.init(1), np.zeros(1, np.int64), []
    for _ in range(ticks):
        tape = NoiseTape()
        counter.step(state, zero, tape)
        sizes.append([size for _, size in tape.draws])
    return sizes
