"""A door that records what passes it, and the exact loss of whole runs between two such doors.

All that a mechanism reveals follows from its measurements, its choices and public facts. The mechanism's own code runs
twice: on its records, through a door that records the exact values and the law of each measurement and the law of each
choice; and on other records, through a door that gives the same noisy values and makes the same choices. Everything
that is released must then be the same, bit for bit, *whatever* the records are: else private information reached it
other than through the door. For neighbours the loss is known exactly, too: from the difference of the exact values and
of the laws.

Noise that is drawn before its use is given again. Where a count is measured with it, or it is in the limit of tests,
the loss is computed there; a count that is published with it beside the door differs between neighbours. Of a limit the
second run gets another noise than the first: it must differ by just that, else it holds no noise, or an older one.

Waiting tests never say yes here, which is possible whatever the records are; only their laws are recorded. What they
may tell follows from the laws (``dpstream_lab`` adds that to the losses of points).

Values that are discovered get noise by their text. With a pattern each of its texts has a count, most of them 0: the
second run gives each text what it got in the first one, whether or not somebody holds it there. Without one, a text
that only one of the runs holds passes with probability delta, which the loss leaves out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Events, PresentRecords, PrivateBatch, StartTable, StreamPlan, Synthesis
from dpstream.core.privacy import (
    AnyNoise,
    Budget,
    CubeNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    HistogramsNoise,
    Noisy,
    Randomness,
    Relay,
    Selection,
)
from dpstream.core.privacy.discovery import Threshold
from dpstream.core.privacy.randomness import Exact
from dpstream.core.privacy.select import Integers
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.schema.pattern import Pattern
from dpstream.core.tables.undiscovered import DiscoveringBatch
from dpstream.stream.cut_users import NONE_CUT, published_cut


def released_arrays(synthesis: Synthesis) -> list[NDArray[Any]]:
    """All that one step releases: its packed form (totals, standard errors, whole models), what its manifest says of
    errors, and its noisy counts."""
    packed = synthesis.pack()
    facts = np.frombuffer(repr((packed.meta, synthesis.accuracy())).encode(), np.uint8)
    return [facts, *packed.arrays.values(), published_lines(synthesis)]


def published_lines(synthesis: Synthesis) -> NDArray[np.uint8]:
    """The file of noisy counts of one step, as bytes that an audit compares."""
    lines = "\n".join(one.line() for one in synthesis.noisy_counts)
    return np.frombuffer(lines.encode(), np.uint8)


#: Replaces the randomness that a plan gets.
Wrap = Callable[[Randomness], Randomness]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Measured:
    """One measurement: its law, the exact values, and what came out."""

    noise: AnyNoise
    exact: Ints
    noisy: Noisy


@dataclass(frozen=True)
class Choice:
    """One selection: its outcome, the probabilities of all outcomes, and how it is made again."""

    chosen: int
    law: Floats
    again: Callable[[], int]


@dataclass(frozen=True)
class Tested:
    """One test: its law, the private number, the limit with its noise, and what it said."""

    law: DiscreteLaplace
    exact: int
    limit: int
    said: bool


@dataclass(frozen=True)
class Drawn:
    """Noise that was drawn before its use, and the tests since then: it is in their limit."""

    law: AnyNoise
    values: Ints
    tests: list[Tested] = field(default_factory=list)


@dataclass
class Discovered:
    """One discovery epoch of a column: the counts that got noise, and the noise that passed of texts nobody holds.

    ``other_law``: whether noise or its limit was another than the threshold's.
    """

    threshold: Threshold
    pattern: Pattern | None
    exact: dict[str, int] = field(default_factory=dict)
    noisy: dict[str, int] = field(default_factory=dict)
    invented: dict[str, int] = field(default_factory=dict)
    other_law: bool = False

    def got(self, text: str) -> int:
        """The noisy count of a text; the threshold, where it did not pass and nobody holds it."""
        return self.noisy.get(text, self.invented.get(text, self.threshold.tau))

    def loss(self, other: Discovered, *, pure: bool) -> float:
        """The loss of the noisy counts, whose exact values differ from another run's."""
        texts = self.exact.keys() | other.exact.keys()
        if self.pattern is None:
            texts = self.exact.keys() & other.exact.keys()
        if self.other_law or other.other_law:
            return math.inf
        moved = [other.exact.get(text, 0) - self.exact.get(text, 0) for text in texts]
        return measured_loss(self.threshold.noise, np.array(moved, np.int64), pure=pure)


class _OtherTranscriptError(Exception):
    """The second stream asks for what the first one never measured, tested or chose."""


def _next(script: Sequence[_T], number: int) -> _T:
    if number >= len(script):
        raise _OtherTranscriptError
    return script[number]


#: Noise that leans to one side is moved by so many standard deviations.
_LEAN = 4


class Door(Randomness):
    """Records what passes; with a script, gives the noisy values, answers and choices of the script.

    Public coins come from a seed of their own, so that both runs have the same ones.

    Args:
        lean: the sign that all independent noise gets: rare outcomes, but possible ones. 0: as drawn.
        says: what all tests say; None: as drawn.
    """

    def __init__(
        self, seed: bytes, script: Door | None = None, lean: int = 0, says: bool | None = None
    ) -> None:
        public = Randomness.seeded(seed)
        super().__init__(lambda n: public.words(-(-n // 8)).tobytes()[:n])
        self._noise, self._script, self._lean = Randomness.seeded(seed + b"noise"), script, lean
        self._says = says
        self.measured: list[Measured] = []
        self.choices: list[Choice] = []
        self.drawn: list[Drawn] = []
        #: Laws of waiting tests.
        self.waited = set[DiscreteLaplace]()
        self.discovered: list[Discovered] = []
        self._texts: list[str] = []
        self._unused: Counter[tuple[AnyNoise, int]] = Counter()
        #: Whether a noise was used twice, or never drawn.
        self.reused = False

    def draw(self, law: AnyNoise, size: int) -> Ints:
        """Fresh noise, or the script's."""
        if self._script is None:
            values = self._fresh(law, size)
        else:
            given = _next(self._script.drawn, len(self.drawn))
            if given.law != law or len(given.values) != size:
                raise _OtherTranscriptError
            values = given.values + self._moved(len(self.drawn))
        self.drawn.append(Drawn(law, values))
        self._unused.update((law, value) for value in values.tolist())
        return values.copy()

    def measure(self, exact: Ints, law: AnyNoise, drawn: Ints | None = None) -> Noisy:
        """A fresh measurement, or the script's."""
        if isinstance(law, HistogramsNoise):
            law.check(exact)
        if self._texts:
            return self._measure_texts(exact, law)
        if drawn is not None:
            self._unused.subtract((law, value) for value in drawn.tolist())
            self.reused |= any(self._unused[law, value] < 0 for value in drawn.tolist())
        if self._script is None:
            noisy = Noisy(exact + (self._fresh(law, len(exact)) if drawn is None else drawn))
        else:
            given = _next(self._script.measured, len(self.measured))
            if given.noise != law or given.noisy.shape != exact.shape:
                raise _OtherTranscriptError
            noisy = given.noisy
        self.measured.append(Measured(law, exact.copy(), Noisy(noisy.copy())))
        return noisy

    def follow(
        self,
        threshold: Threshold,
        pattern: Pattern | None,
        known: set[str],
        counts: Iterable[tuple[str, int]],
    ) -> Iterator[tuple[str, int]]:
        """The counts of a column's discovery epoch, whose texts the door follows to their noise."""
        self.discovered.append(Discovered(threshold, pattern))

        def followed() -> Iterator[tuple[str, int]]:
            for text, count in counts:
                if text not in known:
                    self._texts.append(text)
                    yield text, count

        return followed()

    def _measure_texts(self, exact: Ints, law: AnyNoise) -> Noisy:
        texts, self._texts, own = self._texts, [], self.discovered[-1]
        if self._script is None:
            noisy = exact + self._noise.draw(law, len(exact))
        else:
            given = _next(self._script.discovered, len(self.discovered) - 1)
            noisy = np.array([given.got(text) for text in texts], np.int64)[: len(exact)]
        own.other_law |= law != own.threshold.noise or len(texts) != len(exact)
        own.exact.update(zip(texts, exact.tolist(), strict=False))
        own.noisy.update(zip(texts, noisy.tolist(), strict=False))
        return Noisy(noisy)

    def exceeding(self, law: DiscreteLaplace, above: int, size: int) -> list[tuple[int, int]]:
        """Fresh noise of a pattern's texts, or all that passed in the script."""
        own = self.discovered[-1]
        assert own.pattern is not None
        own.other_law |= (law, above, size) != (own.threshold.noise, own.threshold.tau, own.pattern.size)
        if self._script is None:
            drawn = self._noise.exceeding(law, above, size)
            own.invented.update((own.pattern.value(rank), noisy) for rank, noisy in drawn)
            return drawn
        given = _next(self._script.discovered, len(self.discovered) - 1)
        passed = {**given.invented, **given.noisy}
        ranks = [(own.pattern.rank(text), noisy) for text, noisy in passed.items() if noisy > above]
        return [(rank, noisy) for rank, noisy in ranks if rank is not None]

    def _fresh(self, law: AnyNoise, size: int) -> Ints:
        noise = self._noise.draw(law, size)
        if self._lean and isinstance(law, DiscreteLaplace | DiscreteGaussian):
            noise = self._lean * (np.abs(noise) + math.ceil(_LEAN * law.variance**0.5))
        return noise

    def _moved(self, number: int) -> int:
        """By how much a noise is moved from the script's, where tests follow it: their limit must move with it, and
        with no other one. That a limit holds its noise is thus not assumed. Their answers stay the script's."""
        return number + 1 if self._script is not None and self._script.drawn[number].tests else 0

    def test(self, exact: int, limit: int, law: DiscreteLaplace) -> bool:
        """A fresh test, or the script's."""
        tests = self.drawn[-1].tests
        if self._script is None:
            said = self._noise.test(exact, limit, law) if self._says is None else self._says
        else:
            number = len(self.drawn) - 1
            given = _next(self._script.drawn[number].tests, len(tests))
            if given.law != law or limit - self._moved(number) != given.limit:
                raise _OtherTranscriptError
            said, limit = given.said, given.limit
        tests.append(Tested(law, exact, limit, said))
        return said

    def waiting_times(self, gaps: Ints, law: DiscreteLaplace, most: int) -> Ints:
        """Never, for all."""
        self.waited.add(law)
        return np.zeros(len(gaps), np.int64)

    def reaches(self, known: int, gap: int, law: DiscreteLaplace) -> bool:
        """No."""
        return False

    def select(self, numerators: Integers, denominators: Integers | int, law: Selection) -> int:
        """A fresh choice, or the script's."""

        def again() -> int:
            return law.choose(numerators, denominators, self._noise.words)

        probabilities = law.probabilities(numerators, denominators)
        if self._script is None:
            chosen = again()
        else:
            given = _next(self._script.choices, len(self.choices))
            if len(given.law) != len(probabilities):
                raise _OtherTranscriptError
            chosen = given.chosen
        self.choices.append(Choice(chosen, probabilities, again))
        return chosen


#: What is released, part by part, by one run with this randomness.
Run = Callable[[Randomness], Iterable[Sequence[NDArray[Any]]]]


def as_it_is(randomness: Randomness) -> Randomness:
    """No wrap."""
    return randomness


class Streamed(Protocol):
    """A plan, or what stands for it in a control."""

    @property
    def budget(self) -> Budget:
        """What it claims."""
        ...

    def start(self) -> Any:
        """The state before the first step."""
        ...

    def step(self, state: Any, batch: Any, randomness: Randomness, /) -> Synthesis:
        """One step."""
        ...


class Batches(list[Any]):
    """The batches of a stream; ``cut``: at each step, how many users had their first event beyond the bound."""

    cut: Sequence[int] = ()


def stream_run(plan: Streamed, batches: Iterable[Any], base: StartTable | None = None) -> Run:
    """A run of a stream: everything that each step releases.

    Args:
        base: the table that it begins with.
    """

    def run(randomness: Randomness) -> Iterator[list[NDArray[Any]]]:
        state = plan.start() if base is None else plan.start_from(base)  # type: ignore[attr-defined]
        values = _Discovery(cast("Any", plan), randomness) if getattr(plan, "open_columns", ()) else None
        books, counts = NONE_CUT, batches.cut if isinstance(batches, Batches) else ()
        for step, batch in enumerate(batches, start=1):
            if values is None:
                released = released_arrays(plan.step(state, batch, randomness))
            else:
                released = [*released_arrays(values.step(state, batch)), values.published(state)]
            if counts:
                before, books = (
                    books,
                    books.after(cast("StreamPlan", plan), step, counts[step - 1], randomness),
                )
                told = published_cut(cast("StreamPlan", plan), before, books, step)
                released.append(np.frombuffer(repr(told).encode(), np.uint8))
            yield released

    return run


class _Discovery:
    """A run of a stream whose values are discovered: its counts, and its plan, which grows."""

    def __init__(self, plan: Any, randomness: Randomness) -> None:
        self._root, self._plan, self._randomness = plan, plan, randomness
        while isinstance(randomness, Relay):
            randomness = randomness._inner
        self._door, self._known = cast("Door", randomness), dict[str, set[str]]()
        self._counts, self._present = [Counter[str]() for _ in plan.open_columns], cast("Any", None)

    def step(self, state: Any, batch: Any) -> Synthesis:
        """One step. Records keep the codes that they had before anything was discovered."""
        if batch.present is None:
            for counts, (texts, numbers) in zip(self._counts, batch.undiscovered.added, strict=True):
                counts.update(dict(zip(texts.to_pylist(), numbers.tolist(), strict=True)))
        self._present = batch.undiscovered
        grown = _GrownBatch(batch, self, self._root.domain, self._plan.domain)
        return cast("Synthesis", self._plan.step(state, grown, self._randomness))

    def of(self, column: str, after: int) -> Iterable[tuple[str, int]]:
        """See ``UndiscoveredCounts``."""
        counts: Mapping[str, int] = self._counts[self._root.open_columns.index(column)]
        if self._root.reads == "present":
            counts = dict(self._present.of(column, after))
        rule, known = self._root.discovery.rule(column), self._known.get(column, set())
        return self._door.follow(rule.threshold, rule.pattern, known, sorted(counts.items()))

    def published(self, state: Any) -> NDArray[np.uint8]:
        """What was discovered so far; a plan that grew goes on with it."""
        found = self._plan.found(state)
        if self._plan.discovers(state):
            self._counts = [Counter() for _ in self._counts]
            self._known = {name: {one.value for one in values} for name, values in found.items()}
            self._plan = self._root.grown(found)
        return np.frombuffer(repr(found).encode(), np.uint8)


class _GrownBatch(DiscoveringBatch[_Discovery]):
    """A batch as columns with more values count it: nothing has the new ones."""

    __slots__ = ("_before", "_now")

    def __init__(self, batch: PrivateBatch, values: _Discovery, before: Domain, now: Domain) -> None:
        super().__init__(batch, values)
        self._before, self._now = before, now

    def count(self, cliques: Sequence[Clique], part: Events = "net") -> list[Exact]:
        """See ``PrivateBatch``."""
        return self._padded(cliques, super().count(cliques, part))

    def _padded(self, cliques: Sequence[Clique], counts: Sequence[Exact]) -> list[Exact]:
        padded = []
        for clique, cells in zip(cliques, counts, strict=True):
            before, now = self._before.shape(clique), self._now.shape(clique)
            more = [(0, size - old) for old, size in zip(before, now, strict=True)]
            padded.append(np.pad(cells.reshape(before), more).reshape(-1))
        return cast("list[Exact]", padded)

    @property
    def present(self) -> PresentRecords | None:
        """See ``PrivateBatch``."""
        own = self._batch.present
        return None if own is None else _GrownRecords(own, self)


@dataclass(frozen=True)
class _GrownRecords:
    """The same of the records that are present."""

    _records: PresentRecords
    _batch: _GrownBatch

    @property
    def departed(self) -> NDArray[np.int32]:
        return self._records.departed

    def count(self, cliques: Sequence[Clique], after: int) -> list[Exact]:
        """See ``PresentRecords``."""
        return self._batch._padded(cliques, self._records.count(cliques, after))


@dataclass(frozen=True)
class Transcript:
    """One run: what passed its door, and everything that was released, part by part."""

    seed: bytes
    door: Door
    released: list[Sequence[NDArray[Any]]]


@dataclass(frozen=True)
class Loss:
    """The loss of one transcript: of its measurements, of its choices, and of its tests."""

    measured: float
    chosen: float
    tested: float = 0.0

    @property
    def total(self) -> float:
        """Of all together."""
        return self.measured + self.chosen + self.tested


def record(run: Run, randomness: Randomness, wrap: Wrap = as_it_is, lean: int = 0) -> Transcript:
    """A random transcript of a run.

    Args:
        wrap: replaces the door that the mechanism gets (for controls).
        lean: see ``Door``.
    """
    seed = randomness.coins("the seed of a transcript", 4).tobytes()
    door = Door(seed, lean=lean)
    return Transcript(seed, door, [_copied(part) for part in run(wrap(door))])


def replay(run: Run, first: Transcript, wrap: Wrap = as_it_is) -> tuple[Transcript, str]:
    """A run on other records with the measurements and choices of the first one; and what it reveals all the same, or
    an empty text."""
    door = Door(first.seed, first.door)
    released: list[Sequence[NDArray[Any]]] = []
    second = Transcript(first.seed, door, released)
    try:
        for part in run(wrap(door)):
            expected = first.released[len(released)]
            released.append(_copied(part))
            if len(part) != len(expected) or not all(map(np.array_equal, part, expected)):
                return second, f"the release of step {len(released)} differs"
    except _OtherTranscriptError:
        return second, f"step {len(released) + 1} measures or chooses something else"
    one, two = first.door, door
    if one.reused or two.reused:
        return second, "a noise is used twice"
    if (
        len(one.measured) != len(two.measured)
        or len(one.choices) != len(two.choices)
        or [len(drawn.tests) for drawn in one.drawn] != [len(drawn.tests) for drawn in two.drawn]
        or one.waited != two.waited
        or len(one.discovered) != len(two.discovered)
    ):
        return second, "another number of measurements, tests or choices"
    return second, ""


def _copied(part: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    return [array.copy() for array in part]


def transcript_loss(first: Transcript, second: Transcript, *, pure: bool) -> Loss:
    """The loss of one transcript of neighbours.

    Of each measurement the largest over all values that its noise could have had; of each choice (pure) the largest
    log-ratio of an outcome, or (zCDP) the squared range of its privacy loss, divided by 8 (Cesar, Rogers 2021); of the
    tests that share a limit a bound, by moving the noise of the limit and of the tests (``tests_loss``).
    """
    measured = sum(
        measured_loss(one.noise, other.exact - one.exact, pure=pure)
        for one, other in zip(first.door.measured, second.door.measured, strict=True)
    )
    chosen = sum(
        choice_loss(here.law, there.law, pure=pure)
        for here, there in zip(first.door.choices, second.door.choices, strict=True)
    )
    tested = sum(
        tests_loss(one, other, pure=pure)
        for one, other in zip(first.door.drawn, second.door.drawn, strict=True)
    )
    discovered = sum(
        one.loss(other, pure=pure)
        for one, other in zip(first.door.discovered, second.door.discovered, strict=True)
    )
    return Loss(measured + discovered, chosen, tested)


def tests_loss(one: Drawn, other: Drawn, *, pure: bool) -> float:
    """A bound on the loss of all tests that share a limit; infinite where the limit served beyond its first yes, or
    where it was drawn with others.

    Let each tested number rise by ``d`` against its limit. Where the noise of the limit is moved by ``s``, at least
    ``d`` of every no, all of these stay no; the yes stays where its own noise is moved by ``s - d``, if that is
    positive. The cost of both moves is convex in ``s``, with corners at 0, at the largest ``d`` of a no, and at that
    of the yes.
    """
    if not one.tests:
        return 0.0
    assert isinstance(one.law, DiscreteLaplace)
    if len(one.values) > 1 or any(test.said for test in one.tests[:-1]):
        return math.inf
    rises = [
        (there.exact - there.limit) - (here.exact - here.limit)
        for here, there in zip(one.tests, other.tests, strict=True)
    ]
    last = one.tests[-1]
    least = max((rise for rise, test in zip(rises, one.tests, strict=True) if not test.said), default=None)
    corners = [0, rises[-1]] if least is None else [max(at, least) for at in (0, least, rises[-1])]
    loss = min(
        Fraction(abs(s)) / one.law.scale + (max(0, s - rises[-1]) / last.law.scale if last.said else 0)
        for s in corners
    )
    return float(loss if pure else loss**2 / 2)


#: Outcomes that are less likely than this on both sides are left out: floats have no ratio of what is next to 0.
_UNLIKELY = 1e-200


def choice_loss(law: Floats, other: Floats, *, pure: bool) -> float:
    """The loss of a choice with these probabilities on two neighbours (see ``transcript_loss``)."""
    likely = np.maximum(law, other) > _UNLIKELY
    with np.errstate(divide="ignore"):
        ratio = np.log(law[likely]) - np.log(other[likely])
    return float(np.abs(ratio).max()) if pure else float(ratio.max() - ratio.min()) ** 2 / 8


def measured_loss(noise: AnyNoise, moved: Ints, *, pure: bool = True) -> float:
    """The largest loss of one measurement whose exact values move so; infinite where no noise makes up for it.

    Args:
        pure: as epsilon; otherwise as rho. Gaussian noise has rho only.
    """
    change = np.abs(moved)
    if isinstance(noise, DiscreteGaussian):
        return float((change**2).sum() / (2 * noise.sigma_squared))
    if isinstance(noise, HistogramsNoise):
        sums = np.add.reduceat(moved, noise.starts)
        if (sums != (0 if noise.level else sums[0])).any():
            return math.inf
        norm = noise.norm(moved)
    else:
        norm = int(change.max() if isinstance(noise, CubeNoise) else change.sum())
    epsilon = norm / noise.scale
    return float(epsilon if pure else epsilon**2 / 2)
