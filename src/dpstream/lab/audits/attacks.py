"""Attacks on the whole sequence of releases of one configuration, as somebody would make them who knows all but one.

The stream is invented (``attack_streams``), the program is run on it again and again, and what is released is attacked.
The first half of the runs teaches the attackers (shadow runs: they know what was planted), the second half judges
them. The same is done with a control: the program without noise, which must be caught.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import CubeNoise, HistogramsNoise, Noise, Randomness
from dpstream.lab.audits.attack_families import attacked_stream, check_attackable
from dpstream.lab.audits.attack_guesses import (
    ERROR,
    Guesses,
    claimed_loss,
    guess_members,
    guess_values,
    needed_guesses,
    region,
)
from dpstream.lab.audits.attack_scores import (
    MEMBER_ATTACKS,
    NOISY_COUNTS,
    Run,
    Watcher,
    known_scores,
    member_scores,
)
from dpstream.lab.audits.attack_streams import AttackedStream
from dpstream.lab.audits.finding import Attacked, Audit, AuditFinding, AuditLength, AuditProgress
from dpstream.lab.audits.transcript_tape import SameWords
from dpstream.tools.evaluate.array_types import Codes, Floats

if TYPE_CHECKING:
    from dpstream.project import Config

#: The limit of CPU where nothing else is said, in minutes.
MINUTES = 2.0
RECONSTRUCTION = "a known person's row"
#: Runs at least, and at most: half of them teach, half are judged.
_LEAST_RUNS, _MOST_RUNS = 12, 2_000
#: Of the runs, those without noise: more where the claim is large.
_CONTROL_SHARE, _MOST_CONTROL_SHARE = 0.25, 0.6
#: Without noise not each guess is right.
_ROOM = 1.5
#: Parts into which shadow runs are cut, so that thresholds are chosen on scores of runs that were not learnt from.
_FOLDS = 4
#: False positive rates of the line that the claim draws.
_RATES = tuple(round(x, 3) for x in np.linspace(0, 1, 41).tolist())


class TooShortError(ConfigError):
    """The limit of CPU does not do for attacks that could prove anything."""


class Silence(SameWords):
    """BROKEN: no noise at all. Choices are made as they are."""

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        """Zeros."""
        return np.zeros(size, np.int64)

    def draw_joint(self, noise: CubeNoise | HistogramsNoise) -> NDArray[np.int64]:
        """Zeros."""
        return np.zeros(noise.dimension if isinstance(noise, CubeNoise) else sum(noise.sizes), np.int64)


def attacks_of(config: Config, minutes: float = MINUTES) -> Audit:
    """The attacks on a configuration, as an audit.

    Args:
        minutes: of CPU of this process. Runs are planned by the time that the first ones take.

    Errors (of this function, before anything runs):
        NothingToAttackError: see ``check_attackable``. ConfigError: a wrong limit.
    """
    if isinstance(minutes, bool) or not 0 < minutes < math.inf:
        raise ConfigError(f"minutes = {minutes!r}", where="--minutes", allowed="a number above 0")
    check_attackable(config)

    def attacks(
        length: AuditLength, randomness: Randomness, progress: AuditProgress
    ) -> Iterator[AuditFinding]:
        runner = Runner(attacked_stream(config, 0), randomness)
        real, silent = runner.plan_runs(minutes * 60, progress)
        yield from attack(runner, real, silent, progress)

    return attacks


@dataclass(frozen=True)
class _Half:
    """Runs of one kind: those that teach, and those that are judged."""

    taught: Sequence[Run]
    asked: Sequence[Run]


def attack(runner: Runner, real: int, silent: int, progress: AuditProgress) -> Iterator[AuditFinding]:
    """The findings of so many runs as configured, and so many without noise."""
    began, stream = time.perf_counter(), runner.stream
    many = len(stream.targets.members)
    runs = {}
    for control, wanted in ((False, real), (True, silent)):
        made = []
        for number in range(1, wanted + 1):
            what = "without noise" if control else "as it is configured"
            progress(f"attacks: run {number} of {wanted} {what}")
            made.append(runner.run(silent=control))
        runs[control] = _Half(made[: wanted // 2], made[wanted // 2 :])
    caught: list[AuditFinding] = []
    for name in (*MEMBER_ATTACKS, RECONSTRUCTION):
        progress(f"attacks: {name}")
        found = _judged(name, runs[False], stream)
        if found is None:
            continue
        broken = _judged(name, runs[True], stream) or Guesses(0, 0, 0, found.values)
        two = name == RECONSTRUCTION and not _replaces(stream)
        coins = (len(stream.targets.known) if name == RECONSTRUCTION else many) * len(runs[False].asked)
        claimed, error = claimed_loss(stream.config.budget.budget, coins, two=two)
        evidence = _evidence(stream, found, broken, claimed, error)
        what = "two changes" if two else "one unit"
        said = f"{_right(found)}; the claim allows {100 * _most(claimed, found.values):.1f} % for {what}"
        yield AuditFinding(
            f"attack: {name}",
            "attack",
            claimed,
            found.proved(error),
            1 - ERROR,
            len(runs[False].asked),
            False,
            said,
            time.perf_counter() - began,
            attack=evidence,
        )
        if not two:
            words = f"{name}: {_right(broken)}; {stream.words}"
            caught.append(
                AuditFinding(
                    "attack: the same without noise",
                    "attack",
                    claimed,
                    broken.proved(error),
                    1 - ERROR,
                    len(runs[True].asked),
                    True,
                    words,
                    time.perf_counter() - began,
                )
            )
    yield max(caught, key=lambda finding: finding.found)


def _right(found: Guesses) -> str:
    if not found.made:
        return "no guess was worth making"
    return f"{found.right:,} of {found.made:,} guesses right ({100 * found.share:.1f} %)"


def _most(claimed: float, values: int) -> float:
    """The largest share of right guesses that a loss allows."""
    return 1 / (1 + (values - 1) * math.exp(-claimed))


def _replaces(stream: AttackedStream) -> bool:
    return getattr(stream.config.unit, "relation", "add-remove") == "replace"


def _evidence(
    stream: AttackedStream, found: Guesses, broken: Guesses, claimed: float, error: float
) -> Attacked:
    budget = stream.config.budget.budget
    return Attacked(
        right=found.right,
        made=found.made,
        values=found.values,
        interval=found.interval(),
        without_noise=broken.share,
        allowed=_most(claimed, found.values),
        curve=found.curve,
        allowed_curve=tuple(zip(_RATES, region(budget, _RATES), strict=True)) if found.curve else (),
        stream=stream.words,
        blind=broken.proved(error) == 0,
    )


def _judged(name: str, half: _Half, stream: AttackedStream) -> Guesses | None:
    if name == RECONSTRUCTION:
        shape = stream.targets.known.shape[:2]
        if not shape[0] or shape[1] < 2:
            return None
        drawn, truth = (np.array([run.values for run in runs]) for runs in (half.taught, half.asked))
        taught = _folded(half.taught, lambda own, other: known_scores(own, other, shape))
        return guess_values(taught, drawn, known_scores(half.taught, half.asked, shape), truth)
    if name == NOISY_COUNTS and not any(run.counted for run in (*half.taught, *half.asked)):
        return None
    there, truth = (np.array([run.there for run in runs]) for runs in (half.taught, half.asked))
    asked = member_scores(name, half.taught, half.asked)
    taught = _folded(half.taught, lambda own, other: member_scores(name, own, other))
    return guess_members(taught, there, asked, truth)


def _folded(runs: Sequence[Run], score: Any) -> Floats:
    """Scores of shadow runs, each by what was learnt on other ones."""
    parts = np.array_split(np.arange(len(runs)), min(_FOLDS, len(runs)))
    found = []
    for part in parts:
        own = [run for place, run in enumerate(runs) if place not in set(part.tolist())]
        found.append(score(own, [runs[int(place)] for place in part]))
    return np.concatenate(found)


class Runner:
    """Runs the plan on the stream with its targets, again and again."""

    def __init__(self, stream: AttackedStream, randomness: Randomness) -> None:
        self.stream, self._randomness = stream, randomness
        self._plan, self._watcher = stream.config.plan(), Watcher(stream)
        self._kept: dict[bool, list[Run]] = {False: [], True: []}

    def plan_runs(self, seconds: float, progress: AuditProgress) -> tuple[int, int]:
        """How many runs there is time for, as configured and without noise.

        Errors:
            TooShortError: too few to prove anything.
        """
        progress("attacks: how long a run takes")
        self._kept[True].append(self._run(silent=True))  # compiles what is compiled
        began = time.process_time()
        self._kept[False].append(self._run(silent=False))
        each = max(1e-3, time.process_time() - began)
        stream = self.stream
        members = max(1, len(stream.targets.members))
        budget = stream.config.budget.budget
        claimed, error = claimed_loss(budget, members * _MOST_RUNS, two=False)
        needed = 2 * math.ceil(_ROOM * needed_guesses(claimed, error) / members)
        total = min(2 * _MOST_RUNS, int(seconds / each))
        control = max(_LEAST_RUNS, needed, math.ceil(_CONTROL_SHARE * total))
        if control > _MOST_CONTROL_SHARE * total or total - control < _LEAST_RUNS:
            wanted = max(control / _MOST_CONTROL_SHARE, control + _LEAST_RUNS)
            can = wanted <= 2 * _MOST_RUNS
            raise TooShortError(
                f"{seconds / 60:g} minutes of CPU do not do to catch a program without noise at a claim of "
                f"epsilon {claimed:.3g}"
                + ("" if can else f", and {2 * _MOST_RUNS:,} runs would not: so large a claim is hardly one"),
                where="audit",
                allowed=(f"--minutes {math.ceil(1.2 * wanted * each / 60)}, or " if can else "")
                + "the other parts of the audit (--only)",
            )
        return min(_MOST_RUNS, total - control), min(_MOST_RUNS, control)

    def run(self, *, silent: bool) -> Run:
        """One run; those that were made to see how long they take come first."""
        return self._kept[silent].pop() if self._kept[silent] else self._run(silent=silent)

    def _run(self, *, silent: bool) -> Run:
        stream, targets, randomness = self.stream, self.stream.targets, self._randomness
        there = np.array([randomness.below(2) == 1 for _ in targets.members])
        shape = targets.known.shape
        values = np.array([randomness.below(shape[1]) for _ in range(shape[0])], np.int64)
        plan, base = self._plan, stream.base
        state = plan.start() if base is None else plan.start_from(base)
        noise: Randomness = Silence(randomness) if silent else randomness
        released: list[tuple[int, Codes, Floats | None]] = []
        noisy: list[NoisyCounts] = []
        for step, batch in enumerate(stream.batches(targets.rows(there.tolist(), values.tolist())), start=1):
            synthesis = plan.step(state, batch, noise)
            noisy += synthesis.noisy_counts
            if step in self._watcher.looked:
                released.append((step, *stream.seen(synthesis, step, randomness.below(2**31))))
        empty = np.zeros(0)
        planted = Run(there, values, empty, empty, empty, empty, counted=False)
        return self._watcher.look(released, noisy, planted)
