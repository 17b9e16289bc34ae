"""Exact audit of discovery: everything that a discovery epoch may publish, with its probability, for neighbours.

The code that publishes runs once for each way in which its noise may fall: not above the limit, one of the next two
numbers, or beyond. So the law of what it publishes is known, up to counts far above the limit, which are one outcome.
Of a rule with a delta the delta is computed that its epsilon leaves; of one with a pattern the largest ratio.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpstream.core.privacy import (
    AnyNoise,
    DiscreteLaplace,
    Event,
    EventUnit,
    Noisy,
    PureDP,
    Randomness,
    User,
)
from dpstream.core.privacy.discovery import Threshold
from dpstream.core.privacy.entries import Entry
from dpstream.core.schema.pattern import Pattern
from dpstream.mechanisms.discovery import Rule
from dpstream.tools.audit.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.tools.evaluate.array_types import Ints

#: What is published, with its probability.
Law = Mapping[tuple[tuple[str, int], ...], float]
#: The last outcome: beyond.
_MOST = 3
_EPSILON, _DELTA = PureDP(1), Fraction(1, 50)


class Outcomes(Randomness):
    """Gives the noisy counts of a list of outcomes, and says how likely these are."""

    def __init__(self, chosen: Sequence[int], threshold: Threshold) -> None:
        super().__init__(bytes)
        self._tau, self._entry = threshold.tau, Entry(threshold)
        self._left, self.used, self.chance = list(chosen), list[int](), 1.0

    def _noisy(self, count: int) -> int:
        outcome = self._left.pop(0) if self._left else 0
        self.used.append(outcome)
        above = [self._entry.passes(count - more) for more in range(_MOST)]
        self.chance *= [1 - above[0], above[0] - above[1], above[1] - above[2], above[2]][outcome]
        return self._tau + outcome

    def measure(self, exact: Ints, law: AnyNoise, drawn: Ints | None = None) -> Noisy:
        """Noisy counts of the list."""
        return Noisy(np.array([self._noisy(int(count)) for count in exact]))

    def exceeding(self, law: DiscreteLaplace, above: int, size: int) -> list[tuple[int, int]]:
        """Those of all draws that are above the limit."""
        noisy = [(number, self._noisy(0)) for number in range(size)]
        return [(number, value) for number, value in noisy if value > above]


def law_of(rule: Rule, counts: Mapping[str, int]) -> Law:
    """Of what a rule publishes of some counts, which come in this order."""
    law: dict[tuple[tuple[str, int], ...], float] = defaultdict(float)
    chosen = list[int]()
    while True:
        script = Outcomes(chosen, rule.threshold)
        law[tuple(rule.publish(counts.items(), script))] += script.chance
        chosen = script.used
        while chosen and chosen[-1] == _MOST:
            chosen.pop()
        if not chosen:
            return law
        chosen[-1] += 1


def exceeds(one: Law, other: Law, epsilon: float) -> float:
    """The delta that an epsilon leaves, in both directions."""
    factor = math.exp(epsilon)
    return max(
        sum(max(0.0, chance - factor * there.get(what, 0.0)) for what, chance in here.items())
        for here, there in ((one, other), (other, one))
    )


def ratio(one: Law, other: Law) -> float:
    """The largest loss, in both directions."""
    losses = [math.inf if (what in one) != (what in other) else 0.0 for what in {**one, **other}]
    losses += [abs(math.log(one[what] / other[what])) for what in one if what in other]
    return max(losses)


class _Low(Threshold):
    """BROKEN: a limit that is lower by the noise of a factor of two."""

    @property
    def tau(self) -> int:
        """Too low."""
        return self.higher - math.ceil(math.sqrt(self.noise.variance / 2) * math.log(2))

    @property
    def higher(self) -> int:
        """As it should be."""
        return Threshold(self.budget, self.unit, self.delta).tau


class _Late(Rule):
    """BROKEN: counts above the limit are published, with noise that comes afterwards."""

    def publish(self, counts: Iterable[tuple[str, int]], randomness: Randomness) -> list[tuple[str, int]]:
        """Those that pass without noise."""
        passing = [(value, count) for value, count in counts if count > 1]
        exact = np.array([count for _, count in passing], dtype=np.int64)
        noisy = randomness.measure(exact, self.threshold.noise).tolist()
        return [(value, number) for (value, _), number in zip(passing, noisy, strict=True)]


class _ByArrival(Rule):
    """BROKEN: values are published in the order in which they came."""

    def publish(self, counts: Iterable[tuple[str, int]], randomness: Randomness) -> list[tuple[str, int]]:
        """As they came."""
        came = list(counts)
        entered = dict(super().publish(came, randomness))
        return [(value, entered[value]) for value, _ in came if value in entered]


class _Remembered(Rule):
    """BROKEN: counts stay for the next discovery epoch, so an event is in two."""

    def publish(self, counts: Iterable[tuple[str, int]], randomness: Randomness) -> list[tuple[str, int]]:
        """What both epochs publish."""
        came = list(counts)
        return [*super().publish(came, randomness), *super().publish(came, randomness)]


#: Counts of a column with and without what one unit of three events did; in another order, as it may have come first.
_THREE = (
    ({"x": 4}, {"x": 1}),
    ({"n": 3, "x": 2}, {"x": 2}),
    ({"n": 1, "x": 2, "o": 1, "p": 1}, {"x": 2}),
    ({"n": 2, "x": 2, "o": 1}, {"x": 2}),
    ({"n": 2, "x": 3}, {"x": 2}),
)
_ONE = (({"n": 1, "x": 9, "y": 9}, {"y": 9, "x": 9}), ({"x": 3, "y": 2}, {"y": 2, "x": 2}))
_REPLACED = (
    ({"n": 1, "x": 2}, {"x": 2, "o": 1}),
    ({"x": 3, "y": 1}, {"y": 2, "x": 2}),
    ({"n": 1, "x": 2}, {"x": 3}),
)
_LETTERS: tuple[tuple[dict[str, int], dict[str, int]], ...] = (
    ({"a": 2, "b": 1}, {"a": 2}),
    ({"a": 3, "b": 1}, {"b": 1, "a": 2}),
    ({"c": 1}, {}),
)


@dataclass(frozen=True)
class _Subject:
    """A rule for one column, or for several alike, which is audited against the claims for a unit."""

    name: str
    rule: Rule
    pairs: Sequence[tuple[Mapping[str, int], Mapping[str, int]]]
    control: bool = False
    columns: int = 1

    def finding(self) -> AuditFinding:
        """The loss of all columns together, in the worst pair."""
        began, worst, laplace = time.perf_counter(), Largest(), self.rule.pattern is not None
        for base, other in self.pairs:
            one, two = (_several(law_of(self.rule, counts), self.columns) for counts in (base, other))
            loss = ratio(one, two) if laplace else exceeds(one, two, float(_EPSILON.epsilon))
            worst.see(loss, f"{dict(base)} and {dict(other)}")
        return AuditFinding.of(
            began,
            subject=f"discovery, {self.name}",
            claimed=float(_EPSILON.epsilon if laplace else _DELTA),
            found=worst.loss,
            control=self.control,
            detail=f"all that is published of {worst.where}",
            unit="epsilon" if laplace else "delta",
        )


def _several(law: Law, columns: int) -> Law:
    """Of columns alike, whose values go together."""
    whole: dict[tuple[tuple[str, int], ...], float] = {(): 1.0}
    for _ in range(columns):
        whole = {(*a, ("", 0), *b): p * q for a, p in whole.items() for b, q in law.items()}
    return whole


def discovery_subjects() -> Iterator[_Subject]:
    """Every kind of unit, with a delta and with a pattern, and the mistakes that are near at hand."""

    def rule(unit: EventUnit = Event(), columns: int = 1) -> Rule:  # noqa: B008
        part = Fraction(1, columns)
        return Rule(Threshold(_EPSILON.scaled(part), unit, _DELTA * part))

    one, letters = rule(), Pattern(("[abc]",))
    yield _Subject("one event", one, _ONE)
    yield _Subject("one event's value", rule(Event("replace")), _REPLACED)
    yield _Subject("a user of three events", rule(User(3)), _THREE)
    yield _Subject("two columns", rule(columns=2), _ONE, columns=2)
    pure = Threshold(_EPSILON, Event(), universe=3, invented=Fraction(1, 4))
    yield _Subject("a pattern", Rule(pure, pattern=letters), _LETTERS)
    low = _Low(_EPSILON, Event(), _DELTA)
    yield _Subject("a limit that is too low", Rule(low), _ONE, control=True)
    undivided = Rule(Threshold(_EPSILON.scaled(Fraction(1, 2)), Event(), _DELTA))
    yield _Subject("a delta for each of two columns", undivided, _ONE, control=True, columns=2)
    yield _Subject("three values taken for one", one, _THREE, control=True)
    yield _Subject("noise after the limit", _Late(one.threshold), _ONE, control=True)
    yield _Subject("the order of arrival", _ByArrival(one.threshold), _ONE, control=True)
    yield _Subject("an event in two epochs", _Remembered(one.threshold), _ONE, control=True)


def audit_discovery(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """The exact loss of each rule, and of broken ones."""
    for subject in discovery_subjects():
        progress(f"control: discovery, {subject.name}" if subject.control else f"discovery, {subject.name}")
        yield subject.finding()
