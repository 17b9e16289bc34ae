"""Unbiased estimates from published noisy counts: sums over epochs with the law of their error. No secret is needed.

The pages docs/guide/measurements.md and docs/theory/measurements.md say what holds, and why.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Counted, NoisyCounts
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy.joint import HistogramCells
from dpstream.core.privacy.law import NoiseSum, WeightedSum, check_confidence
from dpstream.core.schema import Categorical, Predicate, Schema
from dpstream.core.schema.trees import Tree
from dpstream.io.sinks.release_reader import MeasuredStep, measured_steps
from dpstream.stream.release.combined import (
    CellsOf,
    Combined,
    Inside,
    OfTop,
    Part,
    SumOf,
    TreeCells,
    add_up,
    agreeing,
    decoded,
    identity,
    least_squares,
    misfit,
    projected,
    was_chosen,
    weights_of_spans,
)
from dpstream.stream.release.fieller import MeasuredCells
from dpstream.stream.release.manifest import COUNTED

#: Most cells of an estimated marginal.
MAX_CELLS = 2_000_000

#: What is made of the measurements of some steps: the mean, by inverse variance, of those that have the columns and
#: would have been made whatever was measured before (``mean``); the same, but for levels of a tree, and the number of
#: records with them, the least squares over the tree, which agree (``reconciled``); or the least squares of all that
#: overlap with the columns.
Combine = Literal["reconciled", "mean", "least squares"]


@dataclass(frozen=True)
class Estimate:
    """An unbiased estimate of a marginal, made of published noisy counts. Public.

    Attributes:
        columns: names, in the order asked for; none: the number of records.
        labels: one tuple of labels a column.
        values: numbers of records, one axis a column; negative ones are normal.
        as_of: the step at whose end the estimate holds.
        epochs: the groups of steps (first, last) that were added up.
        chosen: whether measurements enter that were chosen by what was measured before. Then the interval is None:
            what is chosen every time is what has unusual noise.
        about: what is counted, where that is not the records as of ``as_of``; ``epochs`` may be periods or numbers of
            points then.
        records: what the records that are counted are called: ``admitted records`` where a bound leaves some out.
        span: of a flow: its steps, with their first and last day.
        began: values that were discovered after its first step, with the first step that has them.
        left: the labels of the bins that held these values before.
        learnt: of a census: the steps at which its draws of level 0 up to then decided when it counts next.
        ends: of sums for means: the column, both ends, and how far a number may be from its place between them.
    """

    columns: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    values: NDArray[np.float64]
    as_of: int
    epochs: tuple[tuple[int, int], ...]
    chosen: bool
    _parts: tuple[Part, ...] = field(repr=False, compare=False)
    about: str = ""
    records: str = "records"
    span: Any = None
    began: tuple[tuple[str, int], ...] = ()
    left: tuple[str, ...] = ()
    learnt: tuple[int, ...] = field(default=(), repr=False, compare=False)
    ends: tuple[str, float, float, float] | None = None
    _kinds: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)

    def sum(self, cells: NDArray[np.bool_]) -> Estimate:
        """The sum of some cells as an estimate of its own, with its exact law.

        Args:
            cells: a mask shaped as ``values``.

        Errors:
            ConfigError: a mask of another shape.
        """
        mask = np.asarray(cells, dtype=bool)
        if mask.shape != self.values.shape:
            raise ConfigError(
                f"the mask has the shape {mask.shape}",
                where="sum",
                allowed=f"{self.values.shape}",
            )
        parts = tuple(SumOf(part, mask) for part in self._parts)
        total = np.array(self.values[mask].sum())
        return replace(self, columns=(), labels=(), values=total, _parts=parts, _kinds=None)

    def law(self, cells: NDArray[Any] | None = None) -> WeightedSum:
        """The law of the error of one cell, or of a sum of cells (a mask, or weights, shaped as ``values``).

        Cost: of one cell: computed for the first one; all cells have the same law, but for reconciled levels.
        """
        if cells is None:
            cells = np.zeros(self.values.shape, dtype=bool)
            cells.flat[0] = True
        return add_up(part.coefficients(cells) for part in self._parts)

    @property
    def standard_error(self) -> float:
        """Of one cell, in records; the same for all cells, but for reconciled levels: there the largest."""
        return float(self.standard_errors.max())

    @property
    def standard_errors(self) -> NDArray[np.float64]:
        """Of every cell, in records."""
        return self._each(lambda law: float(law.variance**0.5))

    def _each(self, number: Callable[[WeightedSum], float]) -> NDArray[np.float64]:
        """A number of each cell's law."""
        if self._kinds is None:
            return np.full(self.values.shape, number(self.law()))
        places, found = np.unique(self._kinds, return_index=True, return_inverse=True)[1:], []
        for first in places[0].tolist():
            cells = np.zeros(self.values.shape, dtype=bool)
            cells.flat[first] = True
            found.append(number(self.law(cells)))
        return np.array(found)[places[1]].reshape(self.values.shape)

    @property
    def exact(self) -> bool:
        """Whether intervals are those of the error's law. Else they are from its variance, which is wider, or
        ``approximate``."""
        return self.law().exact and not self.approximate

    @property
    def approximate(self) -> bool:
        """Whether some of its draws decided how many others it has. It is unbiased, and its squared error is its
        variance on average; intervals are those of as many draws (docs/theory/census.md)."""
        draws = [part.source for part in self._parts]
        return any(
            any(one.end > step for one in draws)
            and any(one.end <= step and "of level 0" in one.draw for one in draws)
            for step in self.learnt
        )

    @property
    def kind(self) -> str:
        """``exact``, ``approximate``, or ``least squares`` where ``chosen``."""
        return "least squares" if self.chosen else "approximate" if self.approximate else "exact"

    @property
    def shared(self) -> set[str]:
        """Draws, or series whose values share draws: an estimate that has none of them is independent."""
        return {identity(part.source) for part in self._parts}

    def interval(self, confidence: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Low and high ends for every cell: each cell's truth is inside with that probability or more, all together
        with less. None where ``chosen``.

        Errors:
            ConfigError: a confidence that is not above 0 and below 1 (up to 0.999999).
        """
        width = self.half_widths(confidence)
        return None if self.chosen else (self.values - width, self.values + width)

    def half_widths(self, confidence: float = 0.95) -> NDArray[np.float64]:
        """Half of the interval of every cell; not a number where ``chosen``."""
        check_confidence(confidence)
        return self._each(lambda law: math.nan if self.chosen else law.half_width(confidence))

    @property
    def note(self) -> str:
        """What the error means, in words."""
        return error_words(self, self.law())

    def to_table(self, confidence: float = 0.95) -> Any:
        """One row a cell: the labels, ``measured``, ``standard_error``, ``low`` and ``high``, as a pyarrow Table.

        They are null where the value was discovered later. Of sums: a row a group, with its mean."""
        import pyarrow as pa

        if self.ends is not None:
            found = [pa.array(own, pa.float64()) for own in zip(*self._means(confidence), strict=True)]
            names = ("measured", "standard_error", "low", "high")
            return pa.table({**label_columns(*self.groups), **dict(zip(names, found, strict=True))})
        interval, later = self.interval(confidence), self.begins > self.as_of
        nothing = np.zeros(self.values.size), np.ones(self.values.size, dtype=bool)
        numbers = {"measured": (self.values, later), "standard_error": (self.standard_errors, later)}
        for place, name in enumerate(("low", "high")):
            numbers[name] = nothing if interval is None else (interval[place], later)
        data = label_columns(self.columns, self.labels)
        data |= {name: pa.array(own.ravel(), mask=gone.ravel()) for name, (own, gone) in numbers.items()}
        return pa.table(data)

    @property
    def names(self) -> list[str]:
        """Of each cell its labels, joined by `` x ``."""
        return [" x ".join(cell) for cell in itertools.product(*self.groups[1])]

    @property
    def groups(self) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
        """The columns, with their labels, whose cells have counts; of sums: whose cells have means."""
        left = None if self.ends is None else self.ends[0]
        kept = [place for place, name in enumerate(self.columns) if name != left]
        return tuple(self.columns[i] for i in kept), tuple(self.labels[i] for i in kept)

    @property
    def places(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of sums: between which numbers lies what each code stands for."""
        _, low, high, error = self.ends or ("", math.nan, math.nan, 0.0)
        return np.array([low, high]) - error, np.array([low, high]) + error

    def _means(self, confidence: float) -> Iterator[tuple[float | None, None, float, float]]:
        """Of sums: each group's mean, and its interval."""
        axis = next(place for place, name in enumerate(self.columns) if name not in self.groups[0])
        for group in np.ndindex(*map(len, self.groups[1])):
            cells = np.zeros(self.values.shape, dtype=np.bool_)
            np.moveaxis(cells, axis, -1)[group] = True
            measured = MeasuredCells(self.values, self.law, axis, cells, sums=True)
            yield measured.mean(*self.places), None, *measured.mean_ends(*self.places, confidence)

    @property
    def begins(self) -> NDArray[np.int64]:
        """Of each cell the step from which on its records are counted; 0: all are."""
        found, steps = np.zeros(self.values.shape, dtype=np.int64), dict(self.began)
        for axis, labels in enumerate(self.labels):
            ahead = np.array([steps.get(label, 0) for label in labels], dtype=np.int64)
            shape = [1] * found.ndim
            shape[axis] = len(labels)
            found = np.maximum(found, ahead.reshape(shape))
        return found


def label_columns(columns: Sequence[str], labels: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """The labels of all cells of a marginal, as an Arrow array for each column."""
    import pyarrow as pa

    sizes = [len(own) for own in labels]
    cells = np.indices(sizes).reshape(len(sizes), math.prod(sizes))
    return {
        name: pa.array(np.array(own, dtype=object)[codes].tolist(), pa.string())
        for name, own, codes in zip(columns, labels, cells, strict=True)
    }


@dataclass(frozen=True)
class Missing:
    """Why an estimate is missing.

    Attributes:
        steps: the groups of steps (first, last) whose records nobody measured in this way; none where that is not why.
        reason: a sentence. instead: what would answer; empty: a headline.
        wider: the smallest known flow around it, where borders of steps and of measurements differ.
    """

    steps: tuple[tuple[int, int], ...]
    reason: str
    instead: str = ""
    wider: Estimate | None = None


class Flowing(Protocol):
    """What the published measurements of one kind of stream say of flows.

    Attributes:
        adds_up: whether the flow over two spans is the sum of both, came and left alike.
    """

    adds_up: ClassVar[bool] = True

    def names(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The columns of a flow, checked."""
        ...

    def flow(
        self, columns: Sequence[str], begin: int, end: int, events: Any = "net", combine: Any = "reconciled"
    ) -> Estimate | Missing:
        """What the steps after ``begin`` up to ``end`` brought, or why that is not known."""
        ...

    def borders(self, columns: Sequence[str], events: Any, combine: Any) -> list[int]:
        """Steps between any two of which a flow is known, in order."""
        ...

    def reach(self, columns: Sequence[str]) -> int:
        """The last step of which these columns are measured; 0 where there is none."""
        ...


def learnt_at(manifest: Mapping[str, Any]) -> list[int]:
    """The step of a manifest, where its noise decided when a census counts next: of a plan that learns stays."""
    last = (manifest.get("accuracy") or {}).get("last_census")
    if not last or not last["level"] or last["step"] != manifest["step"] or manifest["relation"] == "replace":
        return []
    return [] if "discovery" in manifest["mechanism"]["options"] else [int(last["step"])]


def sum_of(weighted: Iterable[tuple[float, Estimate]], like: Estimate) -> Estimate:
    """A weighted sum of estimates of one marginal. What two of them say by the same draw is added before variances
    are: it may cancel."""
    values, chosen, epochs = np.zeros(like.values.shape), False, list[tuple[int, int]]()
    joined: dict[Any, Part] = {}
    for weight, one in weighted:
        values, chosen = values + weight * one.values, chosen or one.chosen
        epochs += one.epochs
        for part in one._parts:
            key, own = part.key, part.scaled(weight)
            before = joined.pop(key, None)
            if (summed := own if before is None else before.plus(own)) is not None:
                joined[key] = summed
    epochs = list(dict.fromkeys(epochs))
    return replace(
        like, values=values, _parts=tuple(joined.values()), epochs=tuple(epochs), chosen=chosen, span=None
    )


_NO_PERIODS = Missing((), "No period lies in these steps.")


@dataclass(frozen=True)
class _Block:
    """What is known of the records of some steps."""

    first: int
    last: int
    combined: Combined


class Published(Flowing):
    """The noisy counts of a stream up to a step, ready to be added up.

    Args:
        counts: in the order of steps.
        public_numbers: the exact number of records by step, where the owner declared it public.
        records: what the records that are counted are called.
        learnt, ends: as of ``Estimate``.
    """

    def __init__(
        self,
        counts: Sequence[NoisyCounts],
        schema: Schema,
        public_numbers: Mapping[int, int] | None = None,
        records: str = "records",
        learnt: tuple[int, ...] = (),
        ends: tuple[str, float, float, float] | None = None,
    ) -> None:
        self.learnt, self.ends = learnt, ends
        self.counts = tuple(marginal for one in counts for marginal in one.marginals)
        self.schema = schema
        self._public, self.records = public_numbers, records
        released = schema.domain.released
        self.sizes = dict(zip(released.names, released.sizes, strict=True))
        self._open = [c for c in schema.columns if isinstance(c, Categorical) and c.found]
        self._known: dict[Any, Estimate | Missing] = {}
        self._joined: dict[Any, Combined | None] = {}
        self._agreed: dict[Any, dict[tuple[str, ...], Combined]] = {}

    @classmethod
    def read(cls, folder: str | Path, schema: Schema, step: int) -> Published:
        """What the folder of releases holds of the steps up to ``step``.

        Errors:
            ConfigError: no releases there. StoreDamagedError: files that are missing or differ from their published
            hashes.

        Cost: reads one manifest and one file a step.
        """
        return cls.of(schema, measured_steps(folder, step))

    @classmethod
    def of(cls, schema: Schema, steps: Iterable[MeasuredStep]) -> Published:
        """Those of some steps that follow each other from the first one on."""
        counts, public, records = list[NoisyCounts](), dict[int, int](), "records"
        learnt = list[int]()
        for manifest, own in steps:
            counts += own
            learnt += learnt_at(manifest)
            records = (manifest.get("accuracy") or {}).get(COUNTED, "records")
            if manifest["relation"] == "replace":
                public[int(manifest["step"])] = int(manifest["rows"])
        return cls(counts, schema, public or None, records, tuple(learnt))

    def estimate(
        self, columns: Sequence[str], as_of: int | None = None, combine: Combine = "reconciled"
    ) -> Estimate | Missing:
        """An unbiased estimate of a marginal, or why there is none.

        Args:
            columns: none, for the number of records.
            as_of: the step at whose end it holds; by default the last one by which anything was measured.

        Errors:
            SchemaError: an unknown column. ConfigError: a column twice; no such ``combine``, no step.
            LimitError: too many cells.

        Cost: reads every measurement of these columns once; remembered.
        """
        names = names_of(columns, self.schema)
        if combine not in get_args(Combine):
            raise ConfigError(
                f"combine = {combine!r}", where="measured", allowed=", ".join(get_args(Combine))
            )
        if as_of is not None and (isinstance(as_of, bool) or not isinstance(as_of, int) or as_of < 1):
            raise ConfigError(f"as_of = {as_of!r}", where="measured", allowed="a step, from 1")
        key = names, as_of, combine
        if key not in self._known:
            found = self._estimate(names, as_of, combine)
            for one in () if self.schema.constraints is None else self.schema.constraints.derived:
                if isinstance(found, Missing) and one.column.name in names:
                    sources = ", ".join(one.sources)
                    found = Missing((), f"{one.column.name} follows from {sources}, measured in its place")
            self._known[key] = found
        return self._known[key]

    def sums(self, columns: Sequence[str]) -> Published | None:
        """What was measured for a mean among some columns, such as ``mean(delay)``; None where there is nothing. The
        mean stands for two codes: how far numbers are from the upper end and from the lower one, in sum."""
        own = [
            one for one in self.counts if one.query["kind"] == "mean" and one.query["columns"][-1] in columns
        ]
        if not own:
            return None
        name, ends = own[0].query["columns"][-1], own[0].query["ends"]
        codes = Categorical(name, ("up", "down"))
        schema = Schema(tuple(codes if name == f"mean({one.name})" else one for one in self.schema.columns))
        counts = [replace(one, query={**one.query, "kind": "marginal"}) for one in own]
        return Published(counts, schema, None, self.records, ends=(name, *ends, own[0].query["error"]))

    def flow(
        self,
        columns: Sequence[str],
        begin: int,
        end: int,
        events: str = "net",
        combine: Combine = "reconciled",
    ) -> Estimate | Missing:
        """What the steps after ``begin`` up to ``end`` brought: the sum of the measurements that lie in them.

        Of a headline these are its periods alone, wherever they fill the span: months then add up to quarters.

        Args:
            events: ``came``, ``left``, or ``net``: the first less the second.

        Errors:
            As ``estimate``.
        """
        if combine not in get_args(Combine):
            raise ConfigError(f"combine = {combine!r}", where="flow", allowed=", ".join(get_args(Combine)))
        names = names_of(columns, self.schema)
        found = list[_Block]()
        for side in self.sides(events):
            own = [
                one for one in self.counts if one.counted == side and one.first > begin and one.last <= end
            ]
            headline = [
                one for one in own if names and "period" in one.query and set(one.columns or ()) == set(names)
            ]
            agreed = self._agreeing_periods(names, side, begin, end) if combine == "reconciled" else {}
            blocks: list[_Block] | Missing = _NO_PERIODS
            if headline:
                blocks = self._cover(names, headline, end, combine, begin, agreed)
            if isinstance(blocks, Missing):
                blocks = self._cover(names, own, end, combine, begin, {} if names else agreed)
            if isinstance(blocks, Missing):
                return blocks
            if not names:
                blocks = self._by_all_ways(blocks, own, begin, end, combine)
            away = side == "deletes" and events == "net"
            found += [replace(b, combined=b.combined.scaled(-1.0)) if away else b for b in blocks]
        if not found:
            return Missing((), "No step measured what left.", "events = came, or net")
        return self._sum(names, end, found)

    def names(self, columns: Iterable[str]) -> tuple[str, ...]:
        """See ``names_of``."""
        return names_of(columns, self.schema)

    def reach(self, columns: Sequence[str]) -> int:
        """See ``Flowing``."""
        return max((one.last for one in self.counts if set(columns) <= set(one.columns or ())), default=0)

    def borders(self, columns: Sequence[str], events: str, combine: Combine) -> list[int]:
        """Steps between any two of which a flow is known: the ends of periods at which the marginal is measured; where
        it has none, those of the cover that has the least noise."""
        names = names_of(columns, self.schema)
        found: list[set[int]] = []
        for side in self.sides(events):
            own = [one for one in self.counts if one.counted == side]
            by_periods = [
                one for one in own if "period" in one.query and set(names) <= set(one.columns or ())
            ]
            exact = [one for one in by_periods if set(one.columns or ()) == set(names)]
            own = exact or by_periods or own
            last = max((one.last for one in own), default=0)
            blocks = self._cover(names, own, last, combine) if own else []
            reach = {0} if isinstance(blocks, Missing) else {0, *(block.last for block in blocks)}
            found.append(reach)
        return sorted(set.intersection(*found)) if found else []

    def sides(self, events: str) -> list[Counted]:
        """What is counted of such events."""
        if events not in ("net", "came", "left"):
            raise ConfigError(f"events = {events!r}", where="flow", allowed="net, came, left")
        kinds = {one.counted for one in self.counts}
        if "net" in kinds:
            return ["net"] if events != "left" else []
        wanted: dict[str, list[Counted]] = {
            "came": ["inserts"],
            "left": ["deletes"],
            "net": ["inserts", "deletes"],
        }
        return [side for side in wanted[events] if side in kinds]

    def column_errors(self, step: int) -> dict[str, float]:
        """The standard error of a count of one value as of a step, of each column where one is known.

        An estimate as of another step is not about this table, and no error holds for what was chosen by its noise.
        """
        found = {name: self.estimate([name]) for name in self.schema.names}
        return {
            name: one.standard_error
            for name, one in found.items()
            if isinstance(one, Estimate) and one.as_of == step and not one.chosen
        }

    @property
    def counted_anew(self) -> bool:
        """Whether a census counts the records present, whose later tables have the values discovered since."""
        return any(one.counted == "present" for one in self.counts)

    def _estimate(self, names: tuple[str, ...], as_of: int | None, combine: Combine) -> Estimate | Missing:
        kinds = {one.counted for one in self.counts}
        if self.counted_anew:
            return self._present(names, as_of, combine)
        sides: list[Counted] = ["net"] if "net" in kinds else ["inserts", "deletes"]
        sides = [side for side in sides if side in kinds]
        if not sides:
            return Missing((), "No noisy counts of records are published for these steps.")
        border = min(max(one.last for one in self.counts if one.counted == side) for side in sides)
        end = border if as_of is None else as_of
        found: list[_Block] = []
        for side in sides:
            own = [one for one in self.counts if one.counted == side and one.last <= end]
            chosen = self._cover(names, own, end, combine)
            if isinstance(chosen, Missing):
                return chosen
            if not names:
                chosen = self._by_all_ways(chosen, own, 0, end, combine)
            if combine == "reconciled" and self._trees:
                agreed = self._agreeing(side, 0, end, periods=False).get(names)
                if agreed is not None and agreed.variance <= sum(b.combined.variance for b in chosen):
                    chosen = [_Block(1, end, agreed)]
            found += [
                replace(b, combined=b.combined.scaled(-1.0)) if side == "deletes" else b for b in chosen
            ]
        return self._sum(names, end, found)

    def _present(self, names: tuple[str, ...], as_of: int | None, combine: Combine) -> Estimate | Missing:
        """Of records that are present at one step: only what was counted as of that step may be added."""
        own = [one for one in self.counts if one.counted == "present"]
        ends = sorted({one.end for one in own}, reverse=True) if as_of is None else [as_of]
        newest: Missing | None = None
        for end in ends:
            now = [one for one in own if one.end == end]
            if not now:
                return Missing((), f"No census counted the records present at step {end}.")
            chosen = self._cover(names, now, end, combine)
            if not isinstance(chosen, Missing):
                return self._sum(names, end, chosen)
            newest = newest or chosen
        assert newest is not None
        words = (
            "No census counted this of all records: at the end of step "
            f"{ends[0]} records of steps {_step_words(newest.steps)} lack it."
        )
        return replace(newest, reason=words)

    def _cover(
        self,
        names: tuple[str, ...],
        counts: Sequence[NoisyCounts],
        end: int,
        combine: Combine,
        begin: int = 0,
        agreeing: Mapping[tuple[int, int], Combined] | None = None,
    ) -> list[_Block] | Missing:
        """The blocks of the steps after ``begin`` up to ``end``, each step in one of them, whose sum has the smallest
        variance.

        Args:
            agreeing: what is known of some spans, from more measurements.
        """
        known = self._spans(names, counts, combine) | dict(agreeing or {})
        best = _cheapest(known, begin, end)
        if end not in best:
            gaps = _gaps(names, known, max(best), end, begin)
            if combine != "least squares" and any(_chose(one, names) for one in counts):
                why = "or chosen by earlier measurements, which leaves no interval."
                return replace(gaps, reason=f"{gaps.reason.rstrip('.')}, {why}")
            if any(one.series is not None and one.first > 1 for one in counts):
                why = "Gains of steps that share noise are not added up."
                return replace(gaps, reason=f"{gaps.reason} {why}")
            return gaps
        return _path(best, known, end)

    def _spans(
        self, names: tuple[str, ...], counts: Sequence[NoisyCounts], combine: Combine
    ) -> dict[tuple[int, int], Combined]:
        """What measurements say of the steps that each of them is about."""
        spans: dict[tuple[int, int], list[NoisyCounts]] = {}
        for one in counts:
            if one.series is not None and one.first > 1:
                continue  # it shares draws with others of its series, which may stand in another group
            spans.setdefault((one.first, one.last), []).append(one)
        known = dict[tuple[int, int], Combined]()
        for span, measured in spans.items():
            key = names, span, combine, tuple(map(id, measured))
            if key not in self._joined:
                self._joined[key] = self._combined(names, span, measured, combine)
            if (combined := self._joined[key]) is not None:
                known[span] = combined
        return known

    def _by_all_ways(
        self, blocks: list[_Block], counts: Sequence[NoisyCounts], begin: int, end: int, combine: Combine
    ) -> list[_Block]:
        """The number of records from all spans instead of the blocks of one cover: what the stream's releases say."""
        if combine != "reconciled" or self._trees:
            return blocks
        known = self._spans((), counts, combine)
        weights = weights_of_spans(known, begin, end) if len(known) > len(blocks) else {}
        return [_Block(*span, known[span].scaled(own)) for span, own in weights.items()] or blocks

    def _sizes_at(self, step: int) -> Mapping[str, int]:
        """The columns' sizes in the codes of a step's records."""
        if not self._open:
            return self.sizes
        later = {c.name: sum(one.first > step for one in c.found) for c in self._open}
        return {name: size - later.get(name, 0) for name, size in self.sizes.items()}

    @cached_property
    def _trees(self) -> list[Tree]:
        """Trees of levels that were measured, each level by a draw of its own."""
        levels = [] if self.schema.constraints is None else list(self.schema.constraints.levels)
        drawn = {one.columns for one in self.counts if _alone(one)}
        grows = {column.name for column in self._open}
        levels = [t for t in levels if grows.isdisjoint(t.columns)]
        return [Tree.of(self.schema, t.columns) for t in levels if {(name,) for name in t.columns} <= drawn]

    def _agreeing(
        self, counted: Counted, begin: int, end: int, *, periods: bool
    ) -> dict[tuple[str, ...], Combined]:
        """The number of records and the levels of all trees in some steps, so that they agree; those that are missing
        were not measured, or not with independent noise in each cell.

        Args:
            periods: each level as headlines measured it in this period; else as ``estimate`` adds it up.
        """
        key = counted, begin, end, periods
        if key in self._agreed:
            return self._agreed[key]
        inside = [
            one for one in self.counts if one.counted == counted and one.first > begin and one.last <= end
        ]
        trees, levels, used = list[Tree](), list[list[Combined]](), set[str]()
        for tree in self._trees:
            found = list[Combined]()
            for name in tree.columns:
                own = [one for one in inside if one.columns == (name,) and _alone(one)] if periods else inside
                blocks = self._cover((name,), own, end, "mean", begin)
                if isinstance(blocks, Missing) or not blocks:
                    break
                found.append(Combined.sum([block.combined for block in blocks]))
            draws = set[str]().union(*(one.shared for one in found))
            independent = len(draws) == sum(len(one.shared) for one in found) and used.isdisjoint(draws)
            if len(found) == len(tree.columns) and independent and all(map(_is_plain, found)):
                trees.append(tree)
                levels.append(found)
                used |= draws
        number = self._number(begin + 1, end)
        known = None if number is None else Combined(np.array(float(number)), 0.0, ())
        if trees and known is None:
            rest = self._cover((), [one for one in inside if identity(one) not in used], end, "mean", begin)
            known = None if isinstance(rest, Missing) else Combined.sum([block.combined for block in rest])
        self._agreed[key] = agreeing(trees, levels, known)
        return self._agreed[key]

    def _agreeing_periods(
        self, names: tuple[str, ...], counted: Counted, begin: int, end: int
    ) -> dict[tuple[int, int], Combined]:
        """The same of all periods of trees that lie in some steps."""
        if names and not any(names == (name,) for tree in self._trees for name in tree.columns):
            return {}
        finest = {(tree.columns[-1],) for tree in self._trees}
        spans = {
            (one.first, one.last)
            for one in self.counts
            if one.columns in finest and _alone(one) and begin < one.first and one.last <= end
        }
        known = {span: self._agreeing(counted, span[0] - 1, span[1], periods=True) for span in sorted(spans)}
        return {span: own[names] for span, own in known.items() if names in own}

    def _combined(
        self, names: tuple[str, ...], span: tuple[int, int], counts: Sequence[NoisyCounts], combine: Combine
    ) -> Combined | None:
        """What the measurements of some steps say of a marginal; None where they do not say it."""
        number, sizes = self._number(*span), self._sizes_at(span[1])
        usable = [one for one in counts if _usable(one, sizes)]
        if combine == "least squares":
            return least_squares(names, usable, sizes, number)
        able = [one for one in usable if one.columns is not None and set(names) <= set(one.columns)]
        # The amounts of a census's other measurements follow the noise of its number, which is left out.
        able = [one for one in able if one.columns or one.counted != "present"] or able
        found = [projected(names, one, sizes) for one in able if not was_chosen(one) or _adds_up(names, one)]
        if all(sizes[name] == 2 for name in names):
            found += decoded(names, [one for one in usable if one.columns is None], number)
        if not found:
            return None
        taken, used = list[Combined](), set[str]()
        for way in sorted(found, key=lambda way: way.variance):
            if used.isdisjoint(way.shared):
                taken.append(way)
                used.update(way.shared)
        return Combined.mean(taken)

    def _number(self, first: int, last: int) -> int | None:
        """The public number of records of some steps; None where it is not public."""
        if self._public is None or last not in self._public or (first > 1 and first - 1 not in self._public):
            return None
        return self._public[last] - (self._public[first - 1] if first > 1 else 0)

    def counted(
        self, names: tuple[str, ...], counts: Sequence[NoisyCounts], combine: Combine
    ) -> Estimate | None:
        """What some measurements of the same records say of a marginal."""
        span = counts[0].first, counts[0].last
        combined = self._combined(names, span, counts, combine)
        return None if combined is None else self.said(names, counts[0].end, combined, span)

    def said(
        self, names: tuple[str, ...], end: int, combined: Combined, span: tuple[int, int] = (1, 1)
    ) -> Estimate:
        """The same as an estimate."""
        return self._sum(names, end, [_Block(*span, combined)])

    def _sum(self, names: tuple[str, ...], end: int, blocks: Sequence[_Block]) -> Estimate:
        columns = {column.name: column for column in self.schema.released_columns}
        chosen = [columns[name] for name in names]
        shape = tuple(self.sizes[name] for name in names)
        values, parts, times = np.zeros(shape), list[Part](), np.zeros(shape, dtype=np.int64)
        for block in blocks:
            own = block.combined.values.shape
            there = tuple(slice(size) for size in own)
            values[there] += block.combined.values
            times[there] += 1
            parts += [part if own == shape else Inside(part, own) for part in block.combined.parts]
        kinds = next((b.combined.kinds for b in blocks if b.combined.kinds is not None), None)
        # A block is measured in the codes of its last step: what a census counts has come before.
        least = min((block.last for block in blocks), default=1)
        opened = [
            (c, one) for c in chosen if isinstance(c, Categorical) for one in c.found if one.first > least
        ]
        return Estimate(
            names,
            tuple(column.labels() for column in chosen),
            values,
            end,
            tuple(dict.fromkeys((block.first, block.last) for block in blocks)),
            any(block.combined.chosen for block in blocks),
            tuple(parts),
            records=self.records,
            began=tuple((one.value, one.first) for _, one in opened),
            left=tuple(dict.fromkeys(str(column.other) for column, _ in opened)),
            learnt=self.learnt,
            ends=self.ends,
            _kinds=times if (times != len(blocks)).any() else kinds,
        )


_Best = dict[int, tuple[float, tuple[int, int] | None]]


def _cheapest(known: Mapping[tuple[int, int], Combined], begin: int, end: int) -> _Best:
    """The steps that spans reach from ``begin`` on: the least variance up to each, and the last span."""
    best: _Best = {begin: (0.0, None)}
    for first, last in sorted(known):
        if first - 1 in best and first <= last <= end:
            variance = best[first - 1][0] + known[first, last].variance
            if last not in best or variance < best[last][0]:
                best[last] = variance, (first, last)
    return best


def _path(best: _Best, known: Mapping[tuple[int, int], Combined], end: int) -> list[_Block]:
    path, at = list[_Block](), end
    while (span := best[at][1]) is not None:
        path.append(_Block(*span, known[span]))
        at = span[0] - 1
    return path[::-1]


def _is_plain(found: Combined) -> bool:
    """Whether all noise is independent in each cell."""
    parts = found.parts
    return all(isinstance(part, CellsOf) and isinstance(part.source.law, NoiseSum) for part in parts)


def _alone(one: NoisyCounts) -> bool:
    """Whether a period measured it by a draw of its own."""
    return "period" in one.query and one.columns is not None and not isinstance(one.noise, HistogramCells)


def names_of(columns: Iterable[str], schema: Schema) -> tuple[str, ...]:
    """The names of a marginal's columns.

    Errors:
        SchemaError: an unknown column. ConfigError: one twice. LimitError: more than ``MAX_CELLS`` cells.
    """
    names, domain = (columns,) if isinstance(columns, str) else tuple(columns), schema.domain.released
    clique = [domain.index(name) for name in names]
    if len(set(clique)) != len(clique):
        raise ConfigError("a column is named twice", where="measured", allowed="each column once")
    if (cells := domain.cells(clique)) > MAX_CELLS:
        raise LimitError(f"{' x '.join(names)} has {cells} cells", where="measured", allowed=f"{MAX_CELLS}")
    return names


def sum_of_cells(
    published: Published, predicate: Predicate, as_of: int | None = None
) -> tuple[Estimate, float, WeightedSum] | Missing:
    """The number of records that satisfy a question: the estimate of its columns' marginal, the sum of the cells that
    answer, and the law of its error; or why it is not known.

    Errors:
        As ``Published.estimate``.
    """
    found = published.estimate([published.schema.names[i] for i in predicate.columns], as_of)
    if isinstance(found, Missing):
        return found
    cells = predicate.mask()
    apart = as_of is None and published.counted_anew and _apart(found, cells)
    if found.began and not apart:
        axes = range(cells.ndim)
        asked = {
            own[code]
            for axis, own in enumerate(found.labels)
            for code in np.flatnonzero(cells.any(axis=tuple(other for other in axes if other != axis)))
        }
        found = replace(found, began=tuple(one for one in found.began if one[0] in asked))
    law = found.law(cells)
    if apart or (law.variance == 0.0 and found.began):
        return Missing((), f"Nothing such was counted as of step {found.as_of}{_began_words(found.began)}.")
    return found, float(found.values[cells].sum()), law


def _apart(found: Estimate, cells: NDArray[np.bool_]) -> bool:
    """Whether a question tells values that were discovered later from the bin that held them then."""
    later = {name for name, step in found.began if step > found.as_of}
    for axis, labels in enumerate(found.labels):
        new = [code for code, label in enumerate(labels) if label in later]
        held = [code for code, label in enumerate(labels) if label in found.left]
        if new and held and (np.take(cells, new, axis) != np.take(cells, held[:1], axis)).any():
            return True
    return False


def error_words(estimate: Estimate, law: WeightedSum) -> str:
    """What a standard error and an interval mean: how they were found, and as of which step they hold."""
    many = len(estimate._parts if estimate.about else estimate.epochs)
    about = estimate.about or f"the {estimate.records} as of step {estimate.as_of}"
    if estimate.chosen:
        return (
            f"standard error of the noise; about {about}. Earlier measurements chose some: no interval holds"
        )
    sums = "one measurement" if many == 1 else f"measurements of {many} groups of steps, added up"
    if estimate.about and many > 1:
        sums = f"{many} measurements, added up"
    if any(isinstance(part, TreeCells | OfTop) for part in estimate._parts):
        sums = "the measurements of all levels, by least squares"
    if estimate.approximate:
        how = f"about, by the law of noise in {sums}; some of them decided how many follow"
    elif law.variance == 0.0:
        how = f"exact: the number of {estimate.records} was declared public"
    elif law.exact:
        how = f"exact, by the law of noise in {sums}"
    else:
        how = f"from the exact noise variance in {sums}, by Chebyshev's inequality"
    return f"{how}; it is about {about}{_began_words(estimate.began)}"


#: Values that a note names.
_NAMED = 3


def _began_words(began: Sequence[tuple[str, int]]) -> str:
    """From which steps on discovered values are counted."""
    if not began:
        return ""
    named = ", ".join(f"{value} from step {step}" for value, step in began[:_NAMED])
    more = f" and {len(began) - _NAMED} more values from later steps" if began[_NAMED:] else ""
    return f". Counted: {named}{more}; before, these are in the bin for other values"


def _usable(one: NoisyCounts, sizes: Mapping[str, int]) -> bool:
    """Whether the measurement is about columns of the table (StoreDamagedError: it does not fit them)."""
    if one.columns is not None:
        if not set(one.columns) <= set(sizes):
            return False
        expected = int(np.prod([sizes[name] for name in one.columns]))
    elif one.query["kind"] == "signs":
        terms = one.query["terms"]
        if not all(name in sizes for term in terms for name in term):
            return False
        expected = len(terms)
    else:
        return False
    if one.values.shape != (expected,):
        raise misfit(one)
    return True


def _adds_up(names: Sequence[str], one: NoisyCounts) -> bool:
    """Whether a chosen measurement tells the number of records all the same: every marginal sums to it, and its noise
    was drawn after the choice, which decides only how many cells are added up. (A census's amounts follow its noise.)
    """
    return not names and one.counted != "present" and one.series is None


def _chose(one: NoisyCounts, names: Sequence[str]) -> bool:
    """Whether a measurement of these columns was chosen."""
    if "columns" in one.query:
        return set(names) <= set(one.query["columns"]) and was_chosen(one)
    return was_chosen(one, names)


def _gaps(
    names: Sequence[str], known: Iterable[tuple[int, int]], reach: int, end: int, begin: int = 0
) -> Missing:
    """The steps after ``begin`` of which nothing is known."""
    lacking = np.ones(end + 2, dtype=bool)
    lacking[[*range(begin + 1), end + 1]] = False
    for first, last in known:
        lacking[first : min(last, end) + 1] = False
    if not lacking.any():  # known, but in groups that overlap
        lacking[reach + 1 : end + 1] = True
    edges = np.flatnonzero(np.diff(lacking.astype(int))).tolist()
    steps = tuple((low + 1, high) for low, high in zip(edges[::2], edges[1::2], strict=True))
    what = "records were not counted"
    if names:
        several_columns = f"the columns {', '.join(names)} were not measured together"
        what = several_columns if len(names) > 1 else f"the column {names[0]} was not measured"
    several = "s" if len(steps) > 1 or steps[0][0] != steps[0][1] else ""
    return Missing(steps, f"In step{several} {_step_words(steps)} {what}.")


def _step_words(steps: Sequence[tuple[int, int]]) -> str:
    told = [f"{low}" if low == high else f"{low} to {high}" for low, high in steps]
    return ", ".join(told[:5]) + (f" and {len(told) - 5} more groups" if len(told) > 5 else "")
