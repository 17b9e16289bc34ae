"""The audit of transcripts, which serves every family: subjects with pairs of runs, honest or broken on purpose.

A family gives neighbouring inputs and its claims. Each pair is run through a door that records, in both orders of a
loss's sign: the largest loss over all values that the noise could have had (see ``door``). The loss of each transcript
is exact, so one above the claim is certain, and one below it proves nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpstream.core.privacy import Budget, PureDP, Randomness
from dpstream.tools.audit.door import (
    Run,
    Transcript,
    Wrap,
    as_it_is,
    record,
    replay,
    transcript_loss,
)
from dpstream.tools.audit.finding import AuditFinding, Largest


@dataclass(frozen=True)
class Pair:
    """Two runs.

    Attributes:
        where: what is different, in words.
        far: they are not neighbours: whatever they hold, nothing but measurements and choices may tell them apart.
        more: a loss of the pair beside that of its transcript, such as that of tests.
        of: what the first run is of, for whoever makes pairs.
    """

    where: str
    base: Run
    other: Run
    far: bool = field(default=False, kw_only=True)
    more: float = field(default=0.0, kw_only=True)
    of: Any = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Subject:
    """One mechanism to be audited.

    Attributes:
        budget: what it claims.
        pairs: makes the pairs of runs.
        wrap: replaces the door that the mechanism gets (for controls).
        control: whether it is broken on purpose.
        charged: what a run itself says it has spent: a larger loss is infinite.
        leans: signs of all noise, besides random noise: far outcomes, in which choices differ.
    """

    name: str
    budget: Budget
    pairs: Callable[[], Iterable[Pair]]
    wrap: Wrap = as_it_is
    control: bool = False
    leans: Sequence[int] = ()
    charged: Callable[[Transcript], float] | None = None


def audit_subject(subject: Subject, transcripts: int, randomness: Randomness) -> AuditFinding:
    """The largest loss over all pairs, and over so many random transcripts of each."""
    began, worst, tried = time.perf_counter(), Largest(), 0
    pure, base, first = isinstance(subject.budget, PureDP), None, dict[int, Transcript]()
    for pair in subject.pairs():
        if pair.base is not base:
            base, first = pair.base, {}
        leans = (0,) if pair.far else (*subject.leans, *[0] * transcripts)
        for number, lean in enumerate(leans):
            tried += 1
            if number not in first:
                first[number] = record(pair.base, randomness, subject.wrap, lean)
            second, words = replay(pair.other, first[number], subject.wrap)
            if words:
                loss = math.inf
            elif pair.far:
                loss = 0.0
            else:
                loss = transcript_loss(first[number], second, pure=pure).total + pair.more
                if subject.charged and loss > subject.charged(first[number]) * (1 + 1e-12):
                    loss = math.inf
            worst.see(loss, f"{pair.where}{', noise of one sign' if lean else ''}{words and f': {words}'}")
        if math.isinf(worst.loss):
            break  # nothing can be more
    return AuditFinding.of(
        began,
        subject=f"{subject.name}, transcripts",
        claimed=subject.budget,
        found=worst.loss,
        control=subject.control,
        detail=f"{tried} transcripts; most with {worst.where}",
    )
