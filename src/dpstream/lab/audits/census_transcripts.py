"""Transcripts of census streams: what a stream releases, and its exact loss against a neighbour's.

As for AIM (``aim_audit``): the plan's own code runs on a stream, recording choices and noise, and on its neighbour,
with the same choices and with the noise that makes every measurement and every count the same. If a release differs all
the same, the loss is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.core.graphical import Model
from dpstream.core.privacy import AnyNoise, DiscreteGaussian, HistogramsNoise, Noise, Randomness, Record
from dpstream.core.privacy.budget import Budget
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import KeyedChanges, PresentBatch, PresentTable, PresentView, Workload
from dpstream.families.census.census_plan import Census, CensusPlan
from dpstream.families.tabular.aim import AIMPlan, AIMRun
from dpstream.lab.audits.aim_audit import Transcript, cells_of, first_run, loss_between, run_again
from dpstream.lab.audits.published_list import released_arrays
from dpstream.lab.audits.transcript_tape import joint_loss

__all__ = [
    "TRANSCRIPT_DOMAIN",
    "TRANSCRIPT_STEPS",
    "KeyedStay",
    "census_loss",
    "drawn_and_published",
    "keyed_ends",
    "neighbours",
    "transcript_plan",
]

TRANSCRIPT_DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
#: Steps of a transcript: with a gap of 2 and a ratio of 2, level 1 comes at step 4 and every fourth step after it.
TRANSCRIPT_STEPS = 9


def transcript_plan(kind: type[CensusPlan], budget: Budget, unit: Record, **options: Any) -> CensusPlan:
    """A plan with a gap of 2 steps and small models, so that a run on a few records selects something."""
    workload = Workload.all_k_way(TRANSCRIPT_DOMAIN, 2)
    recipe = Census(workload, **{"turnover": 4, "ratio": 2, "iterations": 5, "max_cells": 8, **options})
    return kind(recipe, budget, unit, None)


@dataclass(frozen=True)
class KeyedStay:
    """A record: its stay, and step -> its values from this step on."""

    comes: int
    leaves: int | None
    values: dict[int, tuple[int, ...]]

    def at(self, step: int) -> tuple[int, ...] | None:
        """The record's values at the end of a step; None: it is absent."""
        if step < self.comes or (self.leaves is not None and step >= self.leaves):
            return None
        return self.values[max(when for when in self.values if when <= step)]


def keyed_ends(
    stays: Sequence[KeyedStay], steps: int, domain: Domain, *, renewed: bool = False
) -> list[PresentBatch]:
    """The batches with the table at the end of every step.

    Args:
        renewed: BROKEN: an update is read as a delete and an insert, which begins another stay.
    """
    table, batches = PresentTable.empty(domain), list[PresentBatch]()
    for step in range(1, steps + 1):
        now = {key: stay.at(step) for key, stay in enumerate(stays)}
        changed = [key for key, stay in enumerate(stays) if now[key] != stay.at(step - 1)]
        keys = np.array([[key, 0] for key in changed], np.uint64).reshape(-1, 2)
        present = np.array([now[key] is not None for key in changed], np.bool_)
        codes = [now[key] for key in changed if now[key] is not None]
        changes = KeyedChanges(keys, present, np.array(codes, np.int32).reshape(-1, len(domain.sizes)))
        gone = np.empty(0, np.int32)
        if renewed:
            none = KeyedChanges(keys, np.zeros(len(keys), np.bool_), changes.codes[:0])
            table, gone = table.after(none, step)
        table, departed = table.after(changes, step)
        batches.append(PresentBatch(PresentView(table, np.concatenate([gone, departed]))))
    return batches


def neighbours(
    plan: CensusPlan, comes: int, leaves: int | None, first: int, *, renewed: bool
) -> tuple[list[PresentBatch], list[PresentBatch]]:
    generator = np.random.default_rng(comes)

    def values() -> tuple[int, ...]:
        outer = int(generator.integers(0, 2))
        return outer, int(generator.integers(0, 3)), outer

    known = []
    for number in range(first + 60):
        start = 1 if number < first else int(generator.integers(2, TRANSCRIPT_STEPS + 1))
        end = start + 1 + int(generator.integers(0, TRANSCRIPT_STEPS))
        known.append(KeyedStay(start, end, {start: values(), start + 1: values()}))
    own = KeyedStay(comes, leaves, {comes: (1, 2, 0), comes + 2: (0, 0, 1)})
    twin = KeyedStay(comes, leaves, {comes: (0, 1, 1), comes + 2: (1, 1, 0)})
    more = [*known, own]
    less = [*known, twin] if plan.unit.relation == "replace" else known
    one, other = (
        keyed_ends(own, TRANSCRIPT_STEPS, TRANSCRIPT_DOMAIN, renewed=renewed) for own in (more, less)
    )
    return one, other


def census_loss(
    plan: CensusPlan,
    base: Sequence[PresentBatch],
    neighbour: Sequence[PresentBatch],
    randomness: Randomness,
    lean: int = 0,
) -> float:
    """The largest loss of one random transcript of ``base`` against ``neighbour``, in the unit of the budget.

    The choices are those of the transcript. For each measurement and each count of departures the loss is the largest
    over all values that its noise could have had.
    """
    first = _Log(lean=lean)
    released = _releases(plan, first, base, randomness)
    second = _Log(script=first)
    again = _releases(plan, second, neighbour, randomness)
    if len(first.runs) != len(second.runs) or len(first.counts) != len(second.counts):
        return math.inf
    if len(first.headlines) != len(second.headlines):
        return math.inf
    loss = 0.0
    for (run, one), (_, other) in zip(first.runs, second.runs, strict=True):
        loss += loss_between(run, one[1], other[1], largest=True)
    for (noise, _, one_count), (_, _, other_count) in zip(first.counts, second.counts, strict=True):
        moved = abs(one_count - other_count)
        if noise is None:
            loss += math.inf if moved else 0.0
        elif isinstance(noise, DiscreteGaussian):
            loss += float(moved**2 / (2 * noise.sigma_squared))
        else:
            loss += float(moved / noise.scale)
    for (law, _, one_exact), (_, _, other_exact) in zip(first.headlines, second.headlines, strict=True):
        change = np.abs(one_exact - other_exact)
        if isinstance(law, HistogramsNoise):
            loss += joint_loss(law, one_exact - other_exact)
        elif isinstance(law, DiscreteGaussian):
            loss += float((change**2).sum() / (2 * law.sigma_squared))
        else:
            loss += float(change.sum() / law.scale)
    same = len(released) == len(again) and all(map(np.array_equal, released, again))
    return loss if same else math.inf


@dataclass
class _Log:
    """A record of a stream.

    Attributes:
        script: the record of the other stream, whose choices and outputs this stream follows; None: it makes its own.
        lean: the sign of all noise, or 0 for random noise.
        runs: each census, with the counts that it read and its transcript.
        counts: each count of departures: noise, output, exact count.
        headlines: each draw of headlines: noise, output, exact counts.
        drawn: the noise and the output of every draw, in order.
    """

    script: _Log | None = None
    lean: int = 0
    runs: list[tuple[AIMPlan, tuple[Sequence[NDArray[np.int64]], Transcript]]] = field(default_factory=list)
    counts: list[tuple[Noise | None, int, int]] = field(default_factory=list)
    headlines: list[tuple[Noise | HistogramsNoise, NDArray[np.int64], NDArray[np.int64]]] = field(
        default_factory=list
    )
    drawn: list[tuple[AnyNoise, NDArray[np.int64]]] = field(default_factory=list)


@dataclass(frozen=True)
class _ScriptedRun:
    """A census that records its choices and its noise, or follows the record of the other stream."""

    plan: AIMPlan
    log: _Log

    @property
    def counted(self) -> Any:
        return self.plan.counted

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plan, name)

    def run_on(
        self, counts: Sequence[NDArray[np.int64]], randomness: Randomness, prior: Model | None
    ) -> AIMRun:
        log = self.log
        if log.script is None:
            transcript = first_run(self.plan, counts, randomness, None, log.lean, prior)
        else:
            base, one = log.script.runs[len(log.runs)][1]
            transcript = run_again(self.plan, one, base, counts, randomness, None, prior)
        log.runs.append((self.plan, (counts, transcript)))
        exact = {(): counts[0].sum(keepdims=True)} | dict(zip(self.plan.counted, counts, strict=True))
        domain = self.plan.workload.domain
        for output, (noise, drawn) in zip(transcript.run.outputs, transcript.tape.draws, strict=True):
            log.drawn.append((noise, cells_of(domain, exact, output) + drawn))
        return transcript.run


def _releases(
    plan: CensusPlan,
    log: _Log,
    batches: Sequence[PresentBatch],
    randomness: Randomness,
    published: list[NoisyCounts] | None = None,
) -> list[NDArray[Any]]:
    """Everything that a stream releases, as arrays: totals, metadata, whole models, noisy counts.

    Args:
        published: gets the noisy counts, too.
    """
    own = type(plan)

    class Scripted(own):  # type: ignore[misc, valid-type]
        def run_of(self, level: int) -> Any:
            return _ScriptedRun(super().run_of(level), log)

        def noisy(self, exact: int, noise: Noise | None, randomness: Randomness) -> int:
            if log.script is None:
                output: int = super().noisy(exact, noise, randomness)
            else:
                output = log.script.counts[len(log.counts)][1]
                output = exact if noise is None else output
            log.counts.append((noise, output, exact))
            if noise is not None:
                log.drawn.append((noise, np.array([output], np.int64)))
            return output

        def noisy_cells(
            self, exact: NDArray[np.int64], noise: Noise | HistogramsNoise, randomness: Randomness
        ) -> NDArray[np.int64]:
            if log.script is None:
                output: NDArray[np.int64] = super().noisy_cells(exact, noise, randomness)
            else:
                output = log.script.headlines[len(log.headlines)][1]
            log.headlines.append((noise, output, exact))
            log.drawn.append((noise, output))
            return output

    scripted = Scripted(plan.recipe, plan.budget, plan.unit, plan.horizon)
    state, released = scripted.start(), list[NDArray[Any]]()
    for batch in batches:
        synthesis = scripted.step(state, batch, randomness)
        released += released_arrays(synthesis)
        if published is not None:
            published += synthesis.noisy_counts
    return released


def drawn_and_published(
    plan: CensusPlan, batches: Sequence[PresentBatch], randomness: Randomness
) -> tuple[list[tuple[AnyNoise, NDArray[np.int64]]], list[NoisyCounts]]:
    """What a stream drew, as the transcript has it; and what it publishes of it."""
    log, published = _Log(), list[NoisyCounts]()
    _releases(plan, log, batches, randomness, published)
    return log.drawn, published
