"""A panel's releases as invented truth: the released synthetic people, less padding, report again.

Trusted base: invented (counts invented records).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema.domain import Clique, Domain
from dpstream.families.panel import CumulativePlan, WindowPlan
from dpstream.families.panel.people import PeoplePlan
from dpstream.io.sinks import read_table
from dpstream.tools.errors.contract import (
    FamilySimulation,
    Guess,
    Invented,
    InventedTable,
    Observation,
    Released,
)
from dpstream.tools.families.panel.panel_evaluation import released_people

if TYPE_CHECKING:
    from dpstream.project import Config

Symbols = NDArray[np.int64]


def _plan(config: Config) -> PeoplePlan:
    plan = config.plan()
    assert isinstance(plan, PeoplePlan)
    return plan


def _view(plan: PeoplePlan, period: int) -> tuple[Domain, tuple[Clique, ...]]:
    """What is compared of people: the reports of the last window, or how many times so far."""
    if isinstance(plan, CumulativePlan):
        return Domain(("times so far",), (plan.largest + 1,)), ((0,),)
    assert isinstance(plan, WindowPlan)
    many = min(period, plan.window)
    names = tuple("newest period" if back == 0 else f"{back} before" for back in range(many - 1, -1, -1))
    every = tuple((i,) for i in range(many))
    return Domain(names, (plan.codes,) * many), every if many == 1 else (*every, tuple(range(many)))


def panel_observation(plan: PeoplePlan, history: Symbols, period: int, *, padded: bool) -> Observation:
    """People by their symbols in all periods, with weights that take the padding out."""
    codes = np.asfortranarray(plan.summed_up(history, period))
    weights = plan.weights(history[:, :period].astype(np.uint8)) if padded else None
    return Observation(codes, None if weights is None else weights.values)


def _without_padding(plan: PeoplePlan, history: Symbols, seed: int) -> Symbols:
    """The people less as many of each kind as were invented at the first release."""
    generator = np.random.default_rng([seed, 12])
    # Padding is in every pattern of the first window; people counted at some period are real.
    first = history[:, : plan.window] if isinstance(plan, WindowPlan) else history
    groups, padding = plan.padded(first.astype(np.uint8))
    order = generator.permutation(len(history))
    order = order[np.argsort(groups[order], kind="stable")]
    rank = np.arange(len(order)) - np.searchsorted(groups[order], groups[order])
    kept = np.sort(order[rank >= padding[groups[order]]])
    people: Symbols = history[kept if plan.places is None else kept[: plan.places]]
    return people


def _invent(config: Config, released: Released, steps: Sequence[int], seed: int) -> Invented:
    plan = _plan(config)
    table = read_table(released.folder, released.last)
    history = released_people(table, plan, plan.released_schema(config.schema()))
    return _stream_of(plan, _without_padding(plan, history, seed), steps)


def _stream_of(plan: PeoplePlan, people: Symbols, steps: Sequence[int]) -> Invented:
    """People's histories as reports, period by period."""
    truth = {}
    for period in sorted({*steps} & {*range(1, people.shape[1] + 1)}):
        domain, cliques = _view(plan, period)
        labels = tuple(tuple(map(str, range(size))) for size in domain.sizes)
        seen = panel_observation(plan, people, period, padded=False)
        truth[period] = InventedTable(domain, labels, cliques, seen, np.array(period))
    return Invented([plan.invented(column) for column in people.T], truth)


def _observe(config: Config, synthesis: Any, truth: InventedTable, seed: int) -> Observation:
    history = synthesis.history.astype(np.int64)
    assert truth.fine is not None
    period = int(truth.fine)
    if history.shape[1] < period:
        return Observation(np.zeros((0, len(truth.domain)), np.int32))
    return panel_observation(_plan(config), history, period, padded=True)


def _imagine(config: Config, guess: Guess) -> Invented:
    """Uniform: every report by itself. Else skewed reports, and most people report what they did before."""
    plan, generator = _plan(config), np.random.default_rng([guess.seed, 15])
    symbols = plan.released.cells(tuple(range(len(plan.released))))
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
