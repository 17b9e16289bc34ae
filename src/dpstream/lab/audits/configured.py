"""Audits of one configuration file: what its plan draws, chooses, admits and publishes, and attacks on its releases."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpstream.core.privacy import PureDP, Randomness, User
from dpstream.families.census.census_plan import CensusPlan
from dpstream.families.tabular import BaselinePlan, DPStabsPlan, PooledPlan
from dpstream.lab.audits.attack_families import NothingToAttackError
from dpstream.lab.audits.attacks import MINUTES, attacks_of
from dpstream.lab.audits.controls import broken_quiet_counter
from dpstream.lab.audits.door import Door, Transcript, record, replay, transcript_loss
from dpstream.lab.audits.exact import exact_counter
from dpstream.lab.audits.finding import Audit, AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.lab.audits.invented_pairs import Pair, changed_records, invented_pairs
from dpstream.lab.audits.samplers_audit import audit_samplers

if TYPE_CHECKING:
    from dpstream.core.contracts import StartTable, StreamPlan
    from dpstream.project import Config

#: The most ticks that are audited of a counter, also of longer streams: its claim holds for every prefix.
_TICKS: dict[AuditLength, int] = {"short": 48, "long": 200}
#: Seconds of CPU for pairs of streams. Two of each kind are compared in any case.
_SECONDS: dict[AuditLength, float] = {"short": 30.0, "long": 300.0}
_LEAST = 2

#: What each audit of a configuration looks at.
_EXAMINED = {
    "transcripts": "what whole streams of invented records measure, choose, publish and lose",
    "samplers": "the laws of noise and of choices",
    "exact": "the counter's certificate",
    "attacks": "attacks on the releases",
}
#: What none of them does.
_NEVER = "what the source reads; the store; how releases become files; timing"


def configured_audits(config: Config, minutes: float = MINUTES) -> dict[str, Audit]:
    """Audits of one plan, by name: whole streams, where all that they reveal passes the door (``transcripts``); the
    laws of what is drawn and chosen (``samplers``); the counter's certificate, where it has one (``exact``); attacks on
    its releases, where it publishes tables (``attacks``). No data are read: streams are invented.

    Args:
        minutes: the limit of CPU of the attacks.

    Errors:
        ConfigError: there is nothing of this mechanism that could be audited; or a wrong limit.
    """
    plan, audits = config.plan(), dict[str, Audit]()
    try:
        audits["attacks"] = attacks_of(config, minutes)
    except NothingToAttackError:
        if not isinstance(plan, BaselinePlan | CensusPlan | DPStabsPlan | PooledPlan):
            raise
    else:
        audits["samplers"] = _samplers(config)
    if isinstance(plan, BaselinePlan | CensusPlan | PooledPlan):
        audits["transcripts"] = _transcripts(config)
    if isinstance(plan, DPStabsPlan):
        audits["exact"] = _counter(plan)
    return audits


def scope(config: Config, names: Sequence[str]) -> str:
    """What these audits of a configuration looked at, and what no audit looked at."""
    admission, plan, own = "how records are encoded and bounded", config.plan(), config.recipe
    seen = [words for name, words in _EXAMINED.items() if name in names]
    left = [words for name, words in _EXAMINED.items() if name not in names]
    if not isinstance(plan, DPStabsPlan):
        left.remove(_EXAMINED["exact"])
    (seen if "transcripts" in names and plan.reads == "counts" else left).insert(0, admission)
    if getattr(own, "deletions", False) and not getattr(plan, "cancels", True):
        left.append("the cancelling of equal rows, which this file does not use")
    return f"Examined: {'; '.join(seen)}. Not examined: {'; '.join([*left, _NEVER])}."


def _counter(plan: DPStabsPlan) -> Audit:
    def exact(length: AuditLength, randomness: Randomness, progress: AuditProgress) -> Iterator[AuditFinding]:
        progress("the configured counter")
        counter, most = plan.counter, _TICKS[length]
        ticks = most if counter.horizon is None else min(counter.horizon, most)
        yield exact_counter([(counter, ticks)], f"configured counter {counter.name}")
        quiet = broken_quiet_counter(counter)
        yield exact_counter([(quiet, ticks)], "configured counter with 2/3 of its noise", control=True)

    return exact


def _samplers(config: Config) -> Audit:
    def samplers(
        length: AuditLength, randomness: Randomness, progress: AuditProgress
    ) -> Iterator[AuditFinding]:
        progress("one run, for the laws of what it draws")
        base = _start(config)
        pair = next(iter(invented_pairs(config)))
        yield from audit_samplers(
            record(config.plan(), pair.base, randomness, base).door, randomness, progress
        )

    return samplers


def _transcripts(config: Config) -> Audit:
    def transcripts(
        length: AuditLength, randomness: Randomness, progress: AuditProgress
    ) -> Iterator[AuditFinding]:
        yield from _StreamAudit(config, randomness).findings(_SECONDS[length], progress)

    return transcripts


class _StreamAudit:
    """Compares pairs of streams under one plan."""

    def __init__(self, config: Config, randomness: Randomness) -> None:
        self.plan, self.start, self.config = config.plan(), _start(config), config
        self.randomness = randomness
        self._first: tuple[Any, Transcript] | None = None
        #: The largest losses of each kind, and how many pairs there were.
        self.worst = {kind: Largest() for kind in ("far", "near", "control", "leak", "admission")}
        self.compared = dict.fromkeys(self.worst, 0)

    def findings(self, seconds: float, progress: AuditProgress) -> Iterator[AuditFinding]:
        began, ends = time.perf_counter(), time.process_time() + seconds
        for pair in invented_pairs(self.config):
            if self.compared[pair.kind] >= _LEAST and time.process_time() > ends:
                continue
            progress(f"streams: {pair.name}")
            self._compare(pair)
        budget, name = self.plan.budget, self.plan.name
        for kind, subject, claimed, control in (
            (
                "far",
                f"configured {name}, other records behind the same measurements",
                0.0,
                False,
            ),
            ("near", f"configured {name}, neighbours", budget, False),
            ("admission", f"configured {name}, the bound on one user's records", budget, False),
            ("control", f"configured {name}, several changes for one", budget, True),
            ("leak", f"configured {name} with an exact count published", budget, True),
        ):
            if self.compared[kind]:
                yield AuditFinding.exact(
                    began,
                    subject=subject,
                    claimed=claimed,
                    unit="epsilon" if isinstance(budget, PureDP) else "rho",
                    found=self.worst[kind].loss,
                    control=control,
                    detail=f"{self.compared[kind]} pairs; most with {self.worst[kind].where}",
                )

    def _compare(self, pair: Pair) -> None:
        plan, start, pure = self.plan, self.start, isinstance(self.plan.budget, PureDP)
        if self._first is None or self._first[0] is not pair.base:
            self._first = (pair.base, record(plan, pair.base, self.randomness, start))
        first = self._first[1]
        second, differs = replay(plan, first, pair.other, start)
        if differs:
            self._see(pair.kind, math.inf, f"{pair.name}: {differs}")
            return
        if pair.kind == "far":
            self._see("far", 0.0, pair.name)
            if not self.compared["leak"]:
                leaking = _Leaking(plan)
                told = record(leaking, pair.base, self.randomness, start)
                words = replay(leaking, told, pair.other, start)[1]
                self._see("leak", math.inf if words else 0.0, words)
            return
        self._see(pair.kind, transcript_loss(first, second, pure=pure), pair.name)
        unit = plan.unit
        if pair.kind == "near" and isinstance(unit, User) and plan.reads == "counts":
            # A bound that lets one of a hundred more through would drown in the loss of a transcript.
            share = changed_records(pair) / unit.max_events
            self._see("admission", float(plan.budget.amount) * share ** (1 if pure else 2), pair.name)

    def _see(self, kind: str, loss: float, where: str) -> None:
        self.compared[kind] += 1
        self.worst[kind].see(loss, where)


class _Leaking:
    """BROKEN: publishes the exact values of a measurement beside its noisy ones."""

    def __init__(self, plan: StreamPlan) -> None:
        self._plan, self.budget = plan, plan.budget
        self.start, self.start_from = plan.start, plan.start_from

    def step(self, state: Any, batch: Any, randomness: Randomness, /) -> Any:
        """The plan's step."""
        made: Any = self._plan.step(state, batch, randomness)
        assert isinstance(randomness, Door)
        counts = made.noisy_counts
        if not counts:
            return made
        exact = next(
            one.exact for one in reversed(randomness.measured) if len(one.exact) == counts[-1].values.size
        )
        return replace(made, noisy_counts=(*counts[:-1], replace(counts[-1], values=exact)))


def _start(config: Config) -> StartTable | None:
    base = config.base()
    return None if base is None else base.table()
