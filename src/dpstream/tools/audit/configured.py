"""Audits of one configuration file: what its plan admits, draws, chooses and publishes; an attack on its releases."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dpstream.checks import certify
from dpstream.core.counters import CalibratedCounter
from dpstream.core.counters.forest import CalibratedForest
from dpstream.core.privacy import Randomness
from dpstream.families.tabular import DPStabsPlan
from dpstream.tools.audit.attack import MINUTES, NothingToAttackError, attack_of
from dpstream.tools.audit.controls import HeldTexts, quiet_counter
from dpstream.tools.audit.door import Door, Run, record, stream_run
from dpstream.tools.audit.finding import Audit, AuditFinding, AuditLength, AuditProgress
from dpstream.tools.audit.invented import NOBODY, InventedStream, StreamPair
from dpstream.tools.audit.samplers_audit import audit_samplers
from dpstream.tools.audit.transcripts import Pair, Subject, audit_subject

if TYPE_CHECKING:
    from dpstream.project import Config

#: The most ticks that are audited of a counter, also of longer streams: its claim holds for every prefix.
_TICKS: dict[AuditLength, int] = {"short": 48, "long": 200}
#: Seconds of CPU for pairs of streams; and how many come in any case.
_SECONDS: dict[AuditLength, float] = {"short": 40.0, "long": 300.0}
_LEAST = 6

#: What each audit of a configuration looks at.
_EXAMINED = {
    "transcripts": "encoding, bounds, measurements and publication",
    "samplers": "laws of noise and choices",
    "exact": "the counter's certificate",
    "attack": "an attack on the releases",
}
#: What none of them does.
_NEVER = "source, store, files of releases, timing"


def configured_audits(config: Config, minutes: float = MINUTES) -> dict[str, Audit]:
    """Audits of one plan, by name: whole streams, where all that they reveal passes the door (``transcripts``); the
    laws of what is drawn and chosen (``samplers``); the counter's certificate, where it has one (``exact``); an attack
    on its releases, where it publishes tables (``attack``). No data are read: streams are invented.

    Args:
        minutes: the limit of CPU of the attack.

    Errors:
        ConfigError: there is nothing of this mechanism that could be audited; or a wrong limit.
    """
    plan, audits = config.plan(), dict[str, Audit]()
    try:
        audits["attack"] = attack_of(config, minutes)
    except NothingToAttackError:
        if config.family.asked:
            raise
    # Least-squares trees draw ahead of their counts, beside the door; their certificate is exact.
    if not (isinstance(plan, DPStabsPlan) and isinstance(plan.counter, CalibratedForest)):
        audits["transcripts"] = _transcripts(config)
    audits["samplers"] = _samplers(config)
    if isinstance(plan, DPStabsPlan):
        audits["exact"] = _counter(plan)
    return audits


def scope(config: Config, names: Sequence[str]) -> str:
    """What these audits of a configuration looked at, and what no audit looked at."""
    plan, own = config.plan(), config.recipe
    seen = [words for name, words in _EXAMINED.items() if name in names]
    left = [words for name, words in _EXAMINED.items() if name not in names]
    if not isinstance(plan, DPStabsPlan):
        left.remove(_EXAMINED["exact"])
    if getattr(own, "deletions", False) and not getattr(plan, "cancels", True):
        left.append("the cancelling of equal rows, unused here")
    return f"Examined: {'; '.join(seen)}. Not examined: {'; '.join([*left, _NEVER])}."


def _counter(plan: DPStabsPlan) -> Audit:
    def exact(length: AuditLength, randomness: Randomness, progress: AuditProgress) -> Iterator[AuditFinding]:
        progress("the configured counter")
        counter, most = plan.counter, _TICKS[length]
        ticks = most if counter.horizon is None else min(counter.horizon, most)
        yield exact_counter([(counter, ticks)], f"configured counter {counter.name}")
        quiet = quiet_counter(counter)
        yield exact_counter([(quiet, ticks)], "configured counter with 2/3 of its noise", control=True)

    return exact


def exact_counter(
    counters: Sequence[tuple[CalibratedCounter, int]], subject: str, *, control: bool = False
) -> AuditFinding:
    """The largest certified loss of some counters with the same claim, each over its number of ticks."""
    began = time.perf_counter()
    proofs = [certify(counter, ticks) for counter, ticks in counters]
    worst = max(proofs, key=lambda proof: proof.certified)
    horizons = _ranges([proof.ticks for proof in proofs])
    return AuditFinding.of(
        began,
        subject=f"{subject}, certificate",
        claimed=worst.claimed,
        # A control must be caught by a loss that is proved, not by an upper bound that is too large.
        found=worst.lower if control else worst.certified,
        control=control,
        detail=f"ticks {horizons}; most at tick {worst.worst_step} of {worst.ticks}",
        unit="epsilon" if worst.definition == "pure" else "rho",
    )


def _ranges(numbers: Sequence[int]) -> str:
    """Rising numbers as a text, with three or more consecutive ones as a range.

    >>> _ranges([1, 2, 7, 8, 9, 33])
    '1, 2, 7 to 9, 33'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _samplers(config: Config) -> Audit:
    def samplers(
        length: AuditLength, randomness: Randomness, progress: AuditProgress
    ) -> Iterator[AuditFinding]:
        progress("laws of draws")
        stream = InventedStream(config)
        runs = [stream_run(stream.plan, stream.admit(steps), stream.base) for steps in stream.bases()]
        doors = [record(run, randomness).door for run in runs]
        yield from audit_samplers(doors, randomness, progress)

    return samplers


def _transcripts(config: Config) -> Audit:
    def transcripts(
        length: AuditLength, randomness: Randomness, progress: AuditProgress
    ) -> Iterator[AuditFinding]:
        ends, stream = time.process_time() + _SECONDS[length], InventedStream(config)
        plan, name = stream.plan, f"configured {stream.plan.name}"
        controls: dict[str, Pair] = {}

        def pairs() -> Iterator[Pair]:
            last: Pair | None = None
            for number, pair in enumerate(stream.pairs()):
                if number >= _LEAST and time.process_time() > ends:
                    return
                progress(f"streams: {pair.name}")
                if pair.kind == "control":
                    controls["several changes for one"] = _compared(stream, plan, pair)
                    continue
                if number == 0:
                    controls["an exact count published"] = _leaking(_compared(stream, plan, pair))
                last = _compared(stream, plan, pair, last)
                yield last

        yield audit_subject(Subject(name, plan.budget, pairs, leans=(1, -1)), 1, randomness)
        if plan.open_columns and not plan.delta:
            first = next(_compared(stream, plan, pair) for pair in stream.pairs() if pair.name == NOBODY)
            words = f"{name}, only texts that somebody holds get noise"
            yield audit_subject(
                Subject(words, plan.budget, partial(_only, first), wrap=HeldTexts, control=True),
                1,
                randomness,
            )
        for words, pair in controls.items():
            control = Subject(f"{name}, {words}", plan.budget, partial(_only, pair), control=True)
            yield audit_subject(control, 1, randomness)

    return transcripts


def _compared(stream: InventedStream, plan: Any, pair: StreamPair, last: Pair | None = None) -> Pair:
    """The runs of a pair; that of its first stream is the last one's where this is the same stream."""
    base = (
        last.base if last is not None and last.of is pair.base else stream_run(plan, pair.base, stream.base)
    )
    other = stream_run(plan, pair.other, stream.base)
    # A bound that lets one event of a hundred more through would drown in the loss of a transcript.
    more = float("inf") if pair.excess else 0.0
    return Pair(pair.name, base, other, far=pair.kind == "far", more=more, of=pair.base)


def _only(pair: Pair) -> list[Pair]:
    return [pair]


def _leaking(pair: Pair) -> Pair:
    """A control: the exact values of each step's measurements are published, too."""

    def leak(run: Run) -> Run:
        def leaking(randomness: Randomness) -> Iterator[list[NDArray[Any]]]:
            assert isinstance(randomness, Door)
            seen = 0
            for part in run(randomness):
                yield [*part, *(measured.exact for measured in randomness.measured[seen:])]
                seen = len(randomness.measured)

        return leaking

    return replace(pair, base=leak(pair.base), other=leak(pair.other))
