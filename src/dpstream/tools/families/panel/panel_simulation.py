"""A panel's releases as invented truth: the released synthetic people, less padding, report again.

Trusted base: invented (counts invented records).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import EncodedReports
from dpstream.core.tables.encoded_batch import MARK_BYTES
from dpstream.families.panel import CumulativePlan, WindowPlan
from dpstream.families.panel.people import PeoplePlan
from dpstream.families.panel.people_release import window_weights, zero_weights
from dpstream.io.sinks import read_table
from dpstream.tools.errors.contract import (
    FamilySimulation,
    Guess,
    Invented,
    InventedTable,
    Observation,
    Released,
)
from dpstream.tools.evaluate.array_types import Codes, Floats
from dpstream.tools.families.panel.panel_evaluation import released_people

if TYPE_CHECKING:
    from dpstream.project import Config

Symbols = NDArray[np.int64]


def panel_view(plan: PeoplePlan, period: int) -> tuple[Domain, tuple[Clique, ...]]:
    """What is compared of people: the reports of the last window, or how many times so far."""
    if isinstance(plan, CumulativePlan):
        return Domain(("times so far",), (plan.largest + 1,)), ((0,),)
    assert isinstance(plan, WindowPlan)
    many = min(period, plan.window)
    names = tuple("newest period" if back == 0 else f"{back} before" for back in range(many - 1, -1, -1))
    every = tuple((i,) for i in range(many))
    return Domain(names, (plan.codes,) * many), every if many == 1 else (*every, tuple(range(many)))


def panel_codes(plan: PeoplePlan, history: Symbols, period: int) -> Codes:
    """People as codes of ``panel_view``, from their symbols in all periods."""
    if isinstance(plan, CumulativePlan):
        times = np.minimum(history[:, :period].sum(axis=1), plan.largest)
        return np.asfortranarray(times[:, None].astype(np.int32))
    assert isinstance(plan, WindowPlan)
    many = min(period, plan.window)
    return np.asfortranarray(history[:, period - many : period].astype(np.int32))


def panel_weights(plan: PeoplePlan, history: Symbols, period: int) -> Floats | None:
    """What takes the padding out."""
    symbols = history[:, :period].astype(np.uint8)
    if isinstance(plan, CumulativePlan):
        return zero_weights(symbols, plan.padding).values if plan.padding else None
    assert isinstance(plan, WindowPlan)
    if period < plan.window:
        return None
    return window_weights(symbols, plan.window, plan.codes, plan.padding).values


def _without_padding(plan: PeoplePlan, history: Symbols, seed: int) -> Symbols:
    """The people less as many of each kind as were invented at the first release."""
    generator = np.random.default_rng([seed, 12])
    if isinstance(plan, WindowPlan):
        powers = plan.codes ** np.arange(plan.window - 1, -1, -1)
        groups, padding = history[:, : plan.window] @ powers, np.full(plan.patterns, plan.padding)
    else:
        groups, padding = np.where(history.any(axis=1), 1, 0), np.array([plan.padding, 0])
    order = generator.permutation(len(history))
    order = order[np.argsort(groups[order], kind="stable")]
    rank = np.arange(len(order)) - np.searchsorted(groups[order], groups[order])
    kept = np.sort(order[rank >= padding[groups[order]]])
    people: Symbols = history[kept if plan.places is None else kept[: plan.places]]
    return people


def _invent(config: Config, released: Released, steps: Sequence[int], seed: int) -> Invented:
    plan = config.plan()
    assert isinstance(plan, PeoplePlan)
    table = read_table(released.folder, released.last)
    history = released_people(table, plan, plan.released_schema(config.schema()))
    return _stream_of(plan, _without_padding(plan, history, seed), steps)


def _stream_of(plan: PeoplePlan, people: Symbols, steps: Sequence[int]) -> Invented:
    """People's histories as reports, period by period."""
    marks = np.zeros((len(people), MARK_BYTES), np.uint8)
    marks[:, -8:] = np.arange(len(people), dtype=">u8").view(np.uint8).reshape(-1, 8)
    batches, truth = [], {}
    for period in range(1, people.shape[1] + 1):
        codes = np.unravel_index(_reported(plan, people[:, period - 1]), plan.columns.sizes)
        batches.append(
            EncodedReports(plan.columns, np.asfortranarray(np.stack(codes, axis=1).astype(np.int32)), marks)
        )
        if period in steps:
            domain, cliques = panel_view(plan, period)
            labels = tuple(tuple(map(str, range(size))) for size in domain.sizes)
            truth[period] = InventedTable(
                domain, labels, cliques, Observation(panel_codes(plan, people, period)), np.array(period)
            )
    return Invented(batches, truth)


def _reported(plan: PeoplePlan, symbols: Symbols) -> Symbols:
    """A report that gives each symbol: its own code, or one that is counted (or not) where only that is told."""
    if not isinstance(plan, CumulativePlan):
        return symbols
    cells = int(np.prod(plan.columns.sizes))
    other = min(set(range(cells)) - set(plan.counted))
    return np.where(symbols > 0, plan.counted[0], other)


def _observe(config: Config, synthesis: Any, truth: InventedTable, seed: int) -> Observation:
    plan = config.plan()
    assert isinstance(plan, PeoplePlan)
    assert truth.fine is not None
    history = synthesis.history.astype(np.int64)
    period = int(truth.fine)
    if history.shape[1] < period:
        return Observation(np.zeros((0, len(truth.domain)), np.int32))
    return Observation(panel_codes(plan, history, period), panel_weights(plan, history, period))


def _imagine(config: Config, guess: Guess) -> Invented:
    """Uniform: every report by itself. Else skewed reports, and most people report what they did before."""
    plan = config.plan()
    assert isinstance(plan, PeoplePlan)
    generator = np.random.default_rng([guess.seed, 15])
    own = isinstance(plan, CumulativePlan)
    symbols = 2 if own else plan.codes
    shape = (guess.table.size if plan.places is None else min(guess.table.size, plan.places), guess.steps)
    if guess.columns == "uniform":
        return _stream_of(plan, generator.integers(symbols, size=shape), guess.compared)
    logs = generator.uniform(0.0, 2.5) * generator.standard_normal(symbols)
    shares = np.exp(logs - logs.max())
    people = generator.choice(symbols, shape, p=shares / shares.sum())
    stays = generator.random(shape) < generator.uniform(0.3, 0.95)
    for period in range(1, guess.steps):
        people[:, period] = np.where(stays[:, period], people[:, period - 1], people[:, period])
    return _stream_of(plan, people, guess.compared)


PANEL_SIMULATION: Final = FamilySimulation(_invent, _observe, questions=False, imagine=_imagine)
