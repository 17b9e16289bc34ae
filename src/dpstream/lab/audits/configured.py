"""Audits of one configuration file: its counter and selector as its plan runs them, and attacks on its releases."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpstream.core.contracts import Part
from dpstream.core.counters import CalibratedCounter, SimpleCounter
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import (
    CubeNoise,
    DiscreteLaplace,
    Event,
    HistogramsNoise,
    InsertedRecord,
    PureDP,
    Randomness,
    Unit,
    User,
    noise_for,
)
from dpstream.families.tabular import BaselinePlan, Cells, DPStabsPlan, PooledPlan, Score
from dpstream.families.tabular.mwem_pgm import MWEMPGMPlan
from dpstream.families.tabular.pooled_run import Design
from dpstream.families.tabular.selector import Selector
from dpstream.lab.audits.attack_families import NothingToAttackError
from dpstream.lab.audits.attacks import MINUTES, attacks_of
from dpstream.lab.audits.controls import broken_quiet_counter, broken_quiet_selector
from dpstream.lab.audits.counters_audit import audit_counter
from dpstream.lab.audits.exact import exact_counter, exact_selector
from dpstream.lab.audits.finding import Audit, AuditFinding, AuditLength, AuditProgress
from dpstream.lab.audits.selection_audit import audit_selector

if TYPE_CHECKING:
    from dpstream.core.privacy import DiscreteGaussian
    from dpstream.core.privacy.noise import Noise
    from dpstream.project import Config

__all__ = ["configured_audits"]

#: The most ticks that are audited, also of longer streams: the claim of a counter holds for every prefix.
_EXACT_TICKS: dict[AuditLength, int] = {"short": 48, "long": 200}
_TICKS: dict[AuditLength, int] = {"short": 12, "long": 32}
_COUNTER_RUNS: dict[AuditLength, int] = {"short": 200_000, "long": 600_000}
_CHOICES: dict[AuditLength, int] = {"short": 20_000, "long": 300_000}


@dataclass(frozen=True)
class _Parts:
    """The parts of a plan that spend budget.

    Attributes:
        measure: the budget line of the measurements.
        counter: the counter that makes them.
        select: the budget line of the selections; None: nothing is selected.
        sensitivity: of the scores.
        joint: the loss of measurements by joint draws, of one protected unit.
        headline: the loss of headlines that are measured beside all else, of one protected unit.
    """

    measure: Part
    counter: CalibratedCounter
    select: Part | None
    sensitivity: Fraction
    joint: float = 0.0
    headline: float = 0.0


def configured_audits(config: Config, minutes: float = MINUTES) -> dict[str, Audit]:
    """Audits of one plan: of its parts, by the names of the general audits ("exact", "counters", "selection"), where
    the parts of the mechanism are known; and attacks on its releases ("attacks"), where it publishes tables.

    The counter with its noise, the selector's budget and the scores' sensitivity come from the plan. No data are read;
    scores and streams are invented. The exact audits have controls. The empirical ones have none, because few runs
    would not catch them at a small epsilon.

    Args:
        minutes: the limit of CPU of the attacks.

    Errors:
        ConfigError: the audit neither knows the parts of this mechanism nor can attack its releases; or a wrong limit.
    """
    audits: dict[str, Audit] = {}
    try:
        audits |= _audits_of_parts(config)
    except _UnknownPartsError:
        audits["attacks"] = attacks_of(config, minutes)
        return audits
    with contextlib.suppress(NothingToAttackError):
        audits["attacks"] = attacks_of(config, minutes)
    return audits


class _UnknownPartsError(ConfigError):
    """A mechanism whose parts the exact audits do not know."""


def _audits_of_parts(config: Config) -> dict[str, Audit]:
    plan = config.plan()
    parts = _parts(plan)

    def exact(length: AuditLength, randomness: Randomness, progress: AuditProgress) -> Iterator[AuditFinding]:
        began = time.perf_counter()
        progress("the configured counter")
        ticks = _ticks(parts.counter, _EXACT_TICKS[length])
        proof = exact_counter([(parts.counter, ticks)], f"configured counter {parts.counter.name}")
        yield proof
        loss = parts.measure.times * proof.found
        words = f"{parts.measure.times} x {proof.found:.6g} measured"
        if parts.joint:
            loss += parts.joint
            words += f" + {parts.joint:.6g} measured jointly"
        if parts.headline:
            loss += parts.headline
            words += f" + {parts.headline:.6g} for the headlines"
        if parts.select is not None:
            progress("the configured selector")
            selector = Selector(parts.select.budget)
            subject = f"configured {selector.describe()}"
            chosen = exact_selector(selector, parts.select.budget, subject, sensitivity=parts.sensitivity)
            yield chosen
            loss += parts.select.times * chosen.found
            words += f" + {parts.select.times} x {chosen.found:.6g} selected"
        yield AuditFinding.exact(
            began,
            subject=f"configured {plan.name}, {_who(plan.unit)} over the whole stream (sum of parts)",
            claimed=float(plan.budget.amount),
            found=loss,
            control=False,
            detail=words,
            unit=proof.unit,
        )
        yield from _controls(parts, ticks)

    def counters(
        length: AuditLength, randomness: Randomness, progress: AuditProgress
    ) -> Iterator[AuditFinding]:
        progress("the configured counter, many runs")
        ticks = _ticks(parts.counter, _TICKS[length])
        subject = f"configured counter {parts.counter.name}, {ticks} ticks"
        yield audit_counter(parts.counter, ticks, _COUNTER_RUNS[length], randomness, subject)

    def selection(
        length: AuditLength, randomness: Randomness, progress: AuditProgress
    ) -> Iterator[AuditFinding]:
        if parts.select is None:
            progress("nothing is selected: every marginal is measured at every step")
            return
        progress("the configured selector, many runs")
        selector = Selector(parts.select.budget)
        subject = f"configured {selector.describe()}, frequencies"
        yield audit_selector(
            selector,
            parts.select.budget,
            _CHOICES[length],
            randomness,
            subject,
            sensitivity=parts.sensitivity,
        )

    return {"exact": exact, "counters": counters, "selection": selection}


def _controls(parts: _Parts, ticks: int) -> Iterator[AuditFinding]:
    """The configured counter and selector with 2/3 of their noise, which the exact audits must catch."""
    quiet = broken_quiet_counter(parts.counter)
    yield exact_counter([(quiet, ticks)], "configured counter with 2/3 of its noise", control=True)
    if parts.select is not None:
        yield exact_selector(
            broken_quiet_selector(Selector(parts.select.budget)),
            parts.select.budget,
            "configured selector with 2/3 of its noise",
            sensitivity=parts.sensitivity,
            control=True,
        )


def _who(unit: Unit) -> str:
    """The protected unit to which the sum of a plan's parts refers, in words."""
    if isinstance(unit, InsertedRecord):
        return "one record's one insert"
    if isinstance(unit, User):
        return f"all {unit.max_events} events of one user (group privacy)"
    return "one event"


def _ticks(counter: CalibratedCounter, most: int) -> int:
    return most if counter.horizon is None else min(counter.horizon, most)


def _parts(plan: object) -> _Parts:
    if isinstance(plan, DPStabsPlan):
        score = Score(Cells(plan.recipe.workload), plan.recipe.score, plan.unit)
        lines = {part.name: part for part in plan.parts()}
        return _Parts(lines["measure"], plan.counter, lines.get("select"), score.grid_sensitivity)
    if isinstance(plan, BaselinePlan) and isinstance(plan.offline, MWEMPGMPlan):
        offline = plan.offline
        if offline.joint:
            return _together(offline, next(part for part in plan.parts() if part.name == "measure").times)
        score = Score(Cells(offline.workload), offline.recipe.score, offline.unit)
        lines = {part.name: part for part in plan.parts()}
        return _Parts(
            lines["measure"],
            _once(offline.noise, lines["measure"], offline.unit),
            lines.get("select"),
            score.grid_sensitivity,
        )
    if isinstance(plan, PooledPlan):
        return _pooled_parts(plan)
    raise _UnknownPartsError(
        f"the audit does not know the parts of the mechanism {getattr(plan, 'name', '')!r}", where="audit"
    )


def _together(plan: MWEMPGMPlan, times: int) -> _Parts:
    """The parts of runs that measure all marginals in groups, and select nothing; groups of one as a counter."""
    alone, loss = list[Fraction](), 0.0
    for _, noise in plan.draws:
        if isinstance(noise, HistogramsNoise):
            loss += times * float(1 / noise.scale)
        else:
            assert isinstance(noise, DiscreteLaplace), "under zCDP nothing is drawn together"
            alone.append(Fraction(plan.unit.changed_cells) / noise.scale)
    each = PureDP.of(alone[0] if alone else plan.budget.amount)
    score = Score(Cells(plan.workload), plan.recipe.score, plan.unit)
    noise = noise_for(each, plan.unit.changed_cells, plan.unit.changed_cells)
    measure = Part("measure", times * len(alone), each, noise.describe())
    return _Parts(measure, _once(noise, measure, plan.unit), None, score.grid_sensitivity, loss)


def _pooled_parts(plan: PooledPlan) -> _Parts:
    """The parts of one run, with one selection if there is something to select (released values decide how many)."""
    runner, times = plan.runner, plan.unit.factor(plan.budget)
    selections = int(runner.followed.choosable > 0)
    design = Design(runner.followed.columns, selections, 0.0)
    joint = runner.joint_draws(design)
    groups = [(group, noise) for group, noise in runner.column_draws(design) if len(group) > 1]
    alone = runner.division.histograms(design) - sum(len(group) for group, _ in groups)
    noise, share = runner.noise(design), runner.select_share * selections
    measure = Part("measure", alone * times, runner.division.histogram_budget(design), noise.describe())
    select = Part("select", times, runner.budget.scaled(share), "") if selections else None
    score = Score(plan.cells, "sum-noise", runner.unit)
    loss = times * sum(_joint_loss(draw, runner.unit.changed_cells, n) for draw, n in joint)
    loss += times * sum(float(1 / drawn.scale) for _, drawn in groups if isinstance(drawn, HistogramsNoise))
    heads = times * sum(_alone_loss(drawn, runner.unit.changed_cells) for _, drawn in runner.headline_noises)
    return _Parts(measure, _once(noise, measure, runner.unit), select, score.grid_sensitivity, loss, heads)


def _alone_loss(noise: Noise | HistogramsNoise, change: int) -> float:
    """The loss of one draw of headlines: a record moves each histogram by 1 in ``change`` cells."""
    if isinstance(noise, HistogramsNoise):
        return float(1 / noise.scale)
    if isinstance(noise, DiscreteLaplace):
        return float(change / noise.scale)
    return float(change / (2 * noise.sigma_squared))


def _joint_loss(noise: CubeNoise | DiscreteGaussian, change: int, sums: int) -> float:
    """The loss of one joint draw, if one record moves each of its sums by ``change``, the most that it can."""
    if isinstance(noise, CubeNoise):
        return float(change / noise.scale)
    return float(sums * change**2 / (2 * noise.sigma_squared))


def _once(noise: Noise, measure: Part, unit: Event) -> CalibratedCounter:
    """A measured histogram as a counter that is used once, with the same noise and the same claim."""
    counter = SimpleCounter().calibrate(measure.budget, unit)
    if counter.materialize(1).scales[0] != noise:
        raise ConfigError(
            "the noise of a measurement does not fit its budget",
            where="audit",
            allowed="noise of the budget that the plan states",
        )
    return counter
