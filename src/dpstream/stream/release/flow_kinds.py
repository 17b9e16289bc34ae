"""What each kind of stream's published measurements say of flows. No secret is needed.

In this order: censuses; running sums; windows of a panel; blocks of points; what is not known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.core.counters import COUNTER_NAMES, counter_by_name
from dpstream.core.counters.intervals import CalibratedIntervalCounter, IntervalCounter
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import ZCDP, Event, PureDP
from dpstream.io.sinks.release_reader import MeasuredStep
from dpstream.stream.release.combined import CellsOf, Coefficients, Combined, misfit, projected
from dpstream.stream.release.estimates import Estimate, Flowing, Missing, Published, sum_of


@dataclass(frozen=True)
class _Kind(Flowing):
    """What all kinds below share.

    Attributes:
        counts: the noisy counts. numbers: of records by step, where these are public.
        unpublished: steps that readers know nothing of, such as rejected ones.
    """

    counts: tuple[NoisyCounts, ...]
    numbers: Mapping[int, int]
    unpublished: tuple[int, ...]

    def reach(self, columns: Sequence[str]) -> int:
        """See ``Flowing``."""
        return max((one.end for one in self.counts), default=0)

    def gained(self, begin: int, end: int) -> Estimate | None:
        """The change of a public number of records."""
        if end not in self.numbers or (begin and begin not in self.numbers):
            return None
        number = self.numbers[end] - self.numbers.get(begin, 0)
        return Estimate((), (), np.array(float(number)), end, (), False, ())


@dataclass(frozen=True)
class _TableKind(_Kind):
    """Of a table of records."""

    published: Published

    def names(self, columns: Iterable[str]) -> tuple[str, ...]:
        """See ``Flowing``."""
        return self.published.names(columns)


# Censuses.

_RECORDS = {"net": "records", "came": "counted records", "left": "counted records"}
_PRESENT = "the records present were not counted at the end of step"
_NEVER = "was never published: what it counted of departures is missing"
_WHOLE = "from one count of the whole table to another"
_ONE_NUMBER = "departures are counted as one number, without values"


@dataclass(frozen=True)
class PresentFlows(_TableKind):
    """Flows of a table whose present records are counted by censuses: what two censuses say, less what both say by the
    same draws.

    A census counts those who came since the last one of its level; earlier records are those of earlier censuses, less
    the departures counted since. So a record is *counted* from its first census on; what came and left between two
    censuses is in no count.
    """

    def flow(
        self, columns: Sequence[str], begin: int, end: int, events: Any = "net", combine: Any = "reconciled"
    ) -> Estimate | Missing:
        """See ``Flowing``."""
        names = self.names(columns)
        if self.numbers and not names:
            gained = self.gained(begin, end) if events == "net" else None
            why = "the number of records is public; what came and left is not published"
            return Missing((), why, "events = net") if gained is None else gained
        if names and events != "net":
            return Missing((), _ONE_NUMBER, f"events = net, {_WHOLE}")
        if events == "left":
            nobody = Missing((), "no departures were counted in it", "a longer span")
            return self._left(begin, end) or nobody
        parts = list[tuple[float, Estimate]]()
        for weight, step in ((1.0, end), (-1.0, begin)):
            stock = self._stock(names, step, combine) if step else None
            if isinstance(stock, Missing):
                return replace(stock, instead=_WHOLE)
            parts += [] if stock is None else [(weight, stock)]
        if events == "came":
            left = self._left(begin, end)
            if isinstance(left, Missing):
                return left
            parts += [] if left is None else [(1.0, left)]
        return replace(sum_of(parts, parts[0][1]), records=_RECORDS[events])

    def borders(self, columns: Sequence[str], events: Any, combine: Any) -> list[int]:
        """See ``Flowing``."""
        steps = sorted({one.end for one in (*self._lines("present"), *self._lines("left"))})
        names = self.names(columns)
        if self.numbers and not names:
            return [0, *sorted(self.numbers)] if events == "net" else []
        if names and events != "net":
            return []
        if events == "left":
            found = [0, *steps]
        else:
            stocks = ((step, self._stock(names, step, combine)) for step in steps)
            found = [0, *(step for step, stock in stocks if isinstance(stock, Estimate))]
        if events == "net":
            return found
        # Counts of departures that were never published are missing in what lies around them.
        cut = max((step for step in self.unpublished), default=0)
        return [step for step in found if step >= cut]

    def stock(self, step: int | None, combine: Any) -> Estimate | Missing:
        """The number of records present at the end of a census; None: of the newest one that is known."""
        if self.numbers:
            return self.published.estimate((), step, combine)
        ends = sorted({one.end for one in self._lines("present")}, reverse=True) if step is None else [step]
        found = [self._stock((), end, combine) for end in ends]
        return next((one for one in found if isinstance(one, Estimate)), found[0])

    def _lines(self, counted: str) -> list[NoisyCounts]:
        return [one for one in self.counts if one.counted == counted]

    def _stock(self, names: tuple[str, ...], step: int, combine: Any) -> Estimate | Missing:
        """The records present at the end of a step."""
        if names:
            return self.published.estimate(names, step, combine)
        tiles, parts, end = list[tuple[int, int]](), list[tuple[float, Estimate]](), step
        while end:
            census = [one for one in self._lines("present") if one.end == end]
            # A census of level 1 counts a later window, too, that of level 0; the longer one holds it.
            census = [one for one in census if one.first == min(other.first for other in census)]
            found = self.published.counted((), census, combine) if census else None
            if found is None:
                return Missing(((step, step),), f"{_PRESENT} {step}")
            tiles.append((census[0].first, end))
            parts.append((1.0, found))
            end = census[0].first - 1
        gone = next((one for one in self.unpublished if tiles[-1][1] < one <= step), None)
        if gone is not None:
            return Missing(((gone, gone),), f"step {gone} {_NEVER}")
        for one in self._lines("left"):
            counted = next((last for first, last in tiles if first <= one.first <= last), step)
            if counted < one.end <= step:
                parts.append((-1.0, self._count(one)))
        return replace(sum_of(parts, parts[0][1]), as_of=step)

    def _left(self, begin: int, end: int) -> Estimate | Missing | None:
        """How many left that a census had counted; None where nobody was counted before."""
        lines = self._lines("left")
        borders = {0, *(one.end for one in (*lines, *self._lines("present")))}
        for step in (begin, end):
            if step not in borders:
                return Missing(((step, step),), f"departures were not counted at the end of step {step}")
        gone = next((one for one in self.unpublished if begin < one <= end), None)
        if gone is not None:
            return Missing(((gone, gone),), f"step {gone} {_NEVER}")
        parts = [(1.0, self._count(one)) for one in lines if begin < one.end <= end]
        if not parts:
            return None
        return replace(sum_of(parts, parts[0][1]), as_of=end, records=_RECORDS["left"])

    def _count(self, one: NoisyCounts) -> Estimate:
        found = self.published.counted((), [one], "mean")
        assert found is not None, "one number is measured"
        return found


# Running sums that are measured at every step.


@dataclass(frozen=True)
class RunningFlows(_TableKind):
    """Flows from running sums: an interval counter's estimate is the sum of a few noisy intervals, and those that two
    estimates have in common cancel.

    Attributes:
        counter: what every marginal's sum was measured by, read from the manifest.
    """

    counter: CalibratedIntervalCounter

    def borders(self, columns: Sequence[str], events: Any, combine: Any) -> list[int]:
        """See ``Flowing``."""
        names = self.names(columns)
        found = [self._sums(names, side) for side in self.published.sides(events)]
        ends = [{end for sums in own for end in sums} for own in found]
        return [0, *sorted(set.intersection(*ends))] if ends else []

    def flow(
        self, columns: Sequence[str], begin: int, end: int, events: Any = "net", combine: Any = "reconciled"
    ) -> Estimate | Missing:
        """See ``Flowing``."""
        names, parts = self.names(columns), list[tuple[float, Estimate]]()
        if self.numbers and not names and events == "net":
            return self.gained(begin, end) or Missing(((begin, end),), "a step was never published")
        draws = dict(enumerate(self.counter.draws(end), start=1))
        for side in self.published.sides(events):
            ways = list[Combined]()
            for sums in self._sums(names, side):
                if end in sums and (begin == 0 or begin in sums):
                    noises = set(draws[end]), set(draws.get(begin, ()))
                    ways.append(self._way(names, sums[end], sums.get(begin), noises))
            if not ways:
                what = f"{' x '.join(names) or 'the number of records'} was not measured at steps {begin} and {end}"
                return Missing((), what)
            away = side == "deletes" and events == "net"
            parts.append((-1.0 if away else 1.0, self.published.said(names, end, Combined.mean(ways))))
        if not parts:
            return Missing((), "no step measured what left", "events = came, or net")
        return sum_of(parts, parts[0][1])

    def _sums(self, names: tuple[str, ...], side: str) -> list[dict[int, NoisyCounts]]:
        """The running sums that hold these columns, by step."""
        found: dict[tuple[str, ...], dict[int, NoisyCounts]] = {}
        for one in self.counts:
            if one.counted == side and set(names) <= set(columns := one.columns or ()):
                found.setdefault(columns, {})[one.end] = one
        return list(found.values())

    def _way(
        self,
        names: tuple[str, ...],
        later: NoisyCounts,
        earlier: NoisyCounts | None,
        noises: tuple[set[int], set[int]],
    ) -> Combined:
        """What one counter says: the noise that its two estimates do not share, by the tick that drew it."""
        sizes = self.published.sizes
        values, (cells,) = projected(names, later, sizes).values, projected(names, later, sizes).parts
        assert isinstance(cells, CellsOf)
        if earlier is not None:
            values = values - projected(names, earlier, sizes).values
        parts = list[CellsOf]()
        for weight, ticks in ((1.0, noises[0] - noises[1]), (-1.0, noises[1] - noises[0])):
            for tick in sorted(ticks):
                noise = self.counter.noise(self.counter.recipe.interval(tick).share)
                draw = replace(later, draw=f"{later.series}, tick {tick}", noise=noise, series=None)
                parts.append(CellsOf(draw, weight, cells.each))
        return Combined(values, sum(part.each * part.source.variance for part in parts), tuple(parts))


def interval_counter(manifest: Mapping[str, Any]) -> CalibratedIntervalCounter | None:
    """The counter whose description a manifest holds, where it is one of the program's interval counters."""
    words = manifest["mechanism"]["options"].get("counter")
    part = next((part for part in manifest["mechanism"]["parts"] if part["name"] == "measure"), None)
    if words is None or part is None:
        return None
    budget = (PureDP if manifest["guarantee"]["definition"] == "pure" else ZCDP).of(part["amount"])
    for name in COUNTER_NAMES:
        try:
            recipe = counter_by_name(name, horizon=manifest["horizon"])
        except ConfigError:  # it needs a horizon, and the stream has none
            continue
        if isinstance(recipe, IntervalCounter) and words.startswith(f"{recipe.describe()}; "):
            counter = recipe.calibrate(budget, Event(manifest["relation"]))
            return counter if counter.describe() == words else None
    return None


# Panels: who changed between two periods of one window.


@dataclass(frozen=True, eq=False)
class _Patterns:
    """Sums of a window's patterns: ``weights`` has a row a cell of the estimate."""

    source: NoisyCounts
    weights: NDArray[np.float64]

    @property
    def key(self) -> Any:
        """See ``Part``."""
        return self.source.draw, "patterns"

    def scaled(self, weight: float) -> _Patterns:
        """See ``Part``."""
        return replace(self, weights=weight * self.weights)

    def plus(self, other: _Patterns) -> _Patterns:
        """See ``Part``."""
        return replace(self, weights=self.weights + other.weights)

    def coefficients(self, cells: NDArray[np.bool_]) -> Coefficients:
        """See ``Part``."""
        entering = self.weights[cells.ravel()].sum(axis=0)
        sizes, counts = np.unique(np.round(np.abs(entering), 12), return_counts=True)
        pairs = zip(sizes.tolist(), counts.tolist(), strict=True)
        return Coefficients(self.source, tuple(pairs), float(entering.sum()))


@dataclass(frozen=True)
class WindowFlows(_Kind):
    """Of a panel: people who changed to a value (came), or from it (left), between two periods of one window.

    Attributes:
        labels: of the values of each column.
    """

    adds_up: ClassVar[bool] = False

    labels: Mapping[str, tuple[str, ...]]

    def names(self, columns: Iterable[str]) -> tuple[str, ...]:
        """See ``Flowing``."""
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        if not names or len(set(names)) < len(names) or not set(names) <= set(self.labels):
            what = f"{' x '.join(names)} cannot be followed" if names else "nobody joins or leaves a panel"
            allowed = f"columns, each once: {', '.join(self.labels)}"
            raise ConfigError(what, where="flow", allowed=allowed)
        return names

    def borders(self, columns: Sequence[str], events: Any, combine: Any) -> list[int]:
        """See ``Flowing``."""
        return sorted({period for one in self._windows() for period in range(one.first, one.last + 1)})

    def flow(
        self, columns: Sequence[str], begin: int, end: int, events: Any = "net", combine: Any = "reconciled"
    ) -> Estimate | Missing:
        """See ``Flowing``."""
        names = self.names(columns)
        # The oldest one, so that an answer stays the same when later windows are published.
        window = next((one for one in self._windows() if one.first <= begin and end <= one.last), None)
        if window is None:
            what = f"no published window holds both period {begin} and period {end}"
            return Missing((), what, f"periods that are less than {self._length} apart")
        own = tuple(window.query["columns"])
        periods = window.last - window.first + 1
        shape = [len(self.labels[name]) for _ in range(periods) for name in own]
        if window.values.shape != (int(np.prod(shape)),):
            raise misfit(window)
        sizes = [len(self.labels[name]) for name in names]
        before, after = (
            np.ravel_multi_index([codes[place] for place in places], sizes)
            for codes in [np.indices(shape).reshape(len(shape), -1)]
            for period in (begin, end)
            for places in [[(period - window.first) * len(own) + own.index(name) for name in names]]
        )
        cells = np.arange(int(np.prod(sizes)))[:, None]
        came, left = (
            ((here == cells) & (there != cells)) for here, there in ((after, before), (before, after))
        )
        kinds = {"came": came, "left": left, "net": came.astype(float) - left, "present": after == cells}
        weights = kinds[events].astype(np.float64)
        values = (weights @ window.values).reshape(sizes)
        labels = tuple(self.labels[name] for name in names)
        about = f"{_CHANGED[events]} from period {begin} to period {end}"
        part = _Patterns(window, weights)
        return Estimate(names, labels, values, end, ((begin, end),), False, (part,), about, "people")

    def _windows(self) -> list[NoisyCounts]:
        return [one for one in self.counts if one.query["kind"] == "patterns"]

    @property
    def _length(self) -> int:
        return max((one.last - one.first + 1 for one in self._windows()), default=1)


_CHANGED = {
    "came": "people who changed to the value",
    "left": "people who changed from the value",
    "net": "people who changed to the value, less those who changed from it,",
    "present": "people with the value",
}


# Points: whole blocks.


@dataclass(frozen=True)
class BlockFlows(_Kind):
    """Of points: how many came into each cell of one depth. Cells are counted in blocks of points that follow each
    other; the number of points of each step is public."""

    def names(self, columns: Iterable[str]) -> tuple[str, ...]:
        """See ``Flowing``: ``depth 5``, or nothing."""
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        depths = sorted({int(one.query["depth"]) for one in self.counts})
        if names and (len(names) > 1 or names[0] not in [f"depth {depth}" for depth in depths]):
            allowed = ", ".join(f"depth {depth}" for depth in depths) or "no depth was measured"
            raise ConfigError(f"points have no counts of {' x '.join(names)}", where="flow", allowed=allowed)
        return names

    def reach(self, columns: Sequence[str]) -> int:
        """See ``Flowing``."""
        return max(self.numbers, default=0)

    def borders(self, columns: Sequence[str], events: Any, combine: Any) -> list[int]:
        """See ``Flowing``."""
        names, steps = self.names(columns), [0, *sorted(self.numbers)]
        if not names:
            return steps
        ends = {one.last for one in self._blocks(names)} | {one.first - 1 for one in self._blocks(names)}
        return [step for step in steps if self.numbers.get(step, 0) in ends]

    def flow(
        self, columns: Sequence[str], begin: int, end: int, events: Any = "net", combine: Any = "reconciled"
    ) -> Estimate | Missing:
        """See ``Flowing``."""
        names, gained = self.names(columns), self.gained(begin, end)
        if events == "left" or gained is None:
            why = "points do not leave" if events == "left" else "its first or last step was never published"
            return Missing((), why, "events = net" if events == "left" else "another span")
        if not names:
            return replace(gained, records="points")
        first, last = self.numbers.get(begin, 0) + 1, self.numbers[end]
        blocks = [one for one in self._blocks(names) if one.last >= first and one.first <= last]
        whole = all(later.first == one.last + 1 for one, later in itertools.pairwise(blocks))
        if not blocks or not whole or blocks[0].first > first or blocks[-1].last < last:
            return Missing((), f"no blocks hold all of its points, number {first} to {last}", "another depth")
        found = self._sum(blocks, end)
        if (blocks[0].first, blocks[-1].last) == (first, last):
            return found
        numbers = f"points number {blocks[0].first} to {blocks[-1].last}"
        reason = f"its points, number {first} to {last}, are not whole blocks"
        return Missing((), reason, f"{numbers}, with cover", replace(found, about=numbers))

    def _blocks(self, names: tuple[str, ...]) -> list[NoisyCounts]:
        depth = int(names[0].removeprefix("depth "))
        found = [one for one in self.counts if int(one.query["depth"]) == depth]
        return sorted(found, key=lambda one: one.first)

    @staticmethod
    def _sum(blocks: Sequence[NoisyCounts], end: int) -> Estimate:
        depth = int(blocks[0].query["depth"])
        if any(one.values.shape != (1 << depth,) for one in blocks):
            raise misfit(blocks[0])
        return Estimate(
            (f"cell of depth {depth}",),
            (tuple(map(str, range(1 << depth))),),
            np.sum([one.values for one in blocks], axis=0).astype(np.float64),
            end,
            tuple((one.first, one.last) for one in blocks),
            False,
            tuple(CellsOf(one, 1.0, 1) for one in blocks),
            records="points",
        )


# What is not known.


@dataclass(frozen=True)
class NoFlows(_Kind):
    """Only the number of records is known, where it is public."""

    reason: str
    instead: str

    def names(self, columns: Iterable[str]) -> tuple[str, ...]:
        """See ``Flowing``: any, as none of them is known."""
        return (columns,) if isinstance(columns, str) else tuple(columns)

    def borders(self, columns: Sequence[str], events: Any, combine: Any) -> list[int]:
        """See ``Flowing``."""
        return [] if self.names(columns) else [0, *sorted(self.numbers)]

    def flow(
        self, columns: Sequence[str], begin: int, end: int, events: Any = "net", combine: Any = "reconciled"
    ) -> Estimate | Missing:
        """See ``Flowing``."""
        gained = None if self.names(columns) or events == "left" else self.gained(begin, end)
        return Missing((), self.reason, self.instead) if gained is None else gained


_AGAIN = "each run of a growing stream counts all records again, so flows are not known"
_SHARED = "its running sums share noise whose law is not published by draws"
_REPORTS = "a panel that counts reports says how many people reached a number so far"
_HEADLINES = "a stream whose headlines are measured every period"


def flowing(
    steps: Sequence[MeasuredStep],
    table: Callable[[], Published],
    labels: Callable[[], Mapping[str, tuple[str, ...]]],
) -> Flowing:
    """What the measurements of some steps say of flows.

    Args:
        table: the noisy counts of a table of records. labels: of a panel's columns.
    """
    manifests = [manifest for manifest, _ in steps]
    counts = tuple(marginal for _, own in steps for one in own for marginal in one.marginals)
    there = {int(manifest["step"]) for manifest in manifests}
    public = bool(manifests) and manifests[-1]["relation"] == "replace"
    numbers = {int(one["step"]): int(one["rows"]) for one in manifests} if public else {}
    unpublished = tuple(step for step in range(1, max(there, default=0)) if step not in there)
    facts, known = (counts, numbers, unpublished), {one.counted for one in counts}
    if "points" in known:
        return BlockFlows(*facts)
    if "people" in known:
        windows = any(one.query["kind"] == "patterns" for one in counts)
        return WindowFlows(*facts, labels()) if windows else NoFlows(*facts, _REPORTS, "a panel of windows")
    if "present" in known:
        return PresentFlows(*facts, table())
    running = [one for one in counts if one.first == 1 and one.last > 1]
    if any(one.series is not None for one in running):
        counter = interval_counter(manifests[-1])
        if counter is None:
            return NoFlows(*facts, _SHARED, f"an interval counter, or {_HEADLINES}")
        return RunningFlows(*facts, table(), counter)
    if len({one.last for one in running if "period" not in one.query}) > 1:
        return NoFlows(*facts, _AGAIN, _HEADLINES)
    return table() if counts else NoFlows(*facts, "no noisy counts are published", "[output] measurements")
