"""Estimates of what is no marginal of records: people of a panel, records that left, points in cells of the plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpstream.core.contracts import NoisyCounts
from dpstream.core.objects import AnyPath
from dpstream.io.sinks.release_reader import MeasuredStep, panel_labels
from dpstream.stream.release.estimates import Estimate
from dpstream.stream.release.measured_parts import CellsOf, misfit


@dataclass(frozen=True)
class OtherKinds:
    """Noisy counts of a stream up to a step that are about people, departures or points.

    Attributes:
        lines: with the step that published each.
        labels: of the values of a panel's columns.
        public_people: the exact number of people, where the owner declared it public.
        missing: steps that readers know nothing of, such as rejected ones: what they measured is missing.
    """

    lines: tuple[tuple[int, NoisyCounts], ...]
    labels: Mapping[str, tuple[str, ...]]
    public_people: int | None = None
    missing: tuple[int, ...] = ()

    @classmethod
    def of(cls, folder: str | AnyPath, steps: Sequence[MeasuredStep]) -> OtherKinds:
        """Those of some steps of a folder of releases.

        Errors:
            StoreDamagedError: a panel's codebook cannot be read.
        """
        lines = [(int(manifest["step"]), one) for manifest, counts in steps for one in counts]
        manifest = steps[-1][0] if steps else {}
        is_panel = any(one.counted == "people" for _, one in lines)
        public = is_panel and manifest["accuracy"]["total_standard_error"] == 0.0
        there = {int(manifest["step"]) for manifest, _ in steps}
        return cls(
            tuple(lines),
            panel_labels(folder) if is_panel else {},
            int(manifest["rows"]) if public else None,
            tuple(step for step in range(1, max(there, default=0)) if step not in there),
        )

    def people(self, times: int | None = None) -> Estimate | None:
        """The number of people in the panel; or, of a panel that counts, of those who reported one of the counted
        values at least so many times so far."""
        if times is not None:
            found = self._newest("at least", times=times)
            words = f"the people who reported it at least {times} times"
            return None if found is None else _one(*found, f"{words} up to period {found[1].last}")
        if self.public_people is not None:
            step = max(step for step, one in self.lines if one.counted == "people")
            return Estimate((), (), np.array(float(self.public_people)), step, (), False, (), "the people")
        if (patterns := self.patterns()) is not None:
            return patterns.sum(np.ones(patterns.values.shape, bool))
        found = self._newest("marginal", counted="people")
        return None if found is None else _one(*found, "the people")

    def patterns(self) -> Estimate | None:
        """Of a panel of windows: how many people reported what in each of the newest periods; an axis for each column
        of each period, the first period first."""
        found = self._newest("patterns")
        if found is None:
            return None
        step, one = found
        columns, periods = one.query["columns"], range(one.first, one.last + 1)
        try:
            labels = tuple(self.labels[name] for _ in periods for name in columns)
            values = one.values.reshape([len(own) for own in labels]).astype(np.float64)
        except (KeyError, ValueError):
            raise misfit(one) from None
        names = tuple(f"{name}, period {period}" for period in periods for name in columns)
        about = f"the people in periods {one.first} to {one.last}"
        return Estimate(
            names, labels, values, step, ((one.first, one.last),), False, (CellsOf(one, 1.0, 1),), about
        )

    def departures(self, since: int = 0) -> Estimate | None:
        """How many records left that a census had counted, up to the last count, or up to the last one before the first
        step that is missing: who was counted then is in no other count.

        Args:
            since: count only those that left after this census (a step).
        """
        missing = next((step for step in self.missing if step > since), None)
        own = [
            one
            for step, one in self.lines
            if one.counted == "left" and one.end > since and (missing is None or step < missing)
        ]
        if not own:
            return None
        last = max(one.end for one in own)
        values = np.array(float(sum(int(one.values.sum()) for one in own)))
        about = f"the records that were counted and have left, up to step {last}"
        if since:
            about += f", but for those known to have left at step {since}"
        if missing is not None:
            about += (
                f" (step {missing} was never published, so what was counted then and since cannot be added)"
            )
        epochs = tuple(dict.fromkeys((one.first, one.last) for one in own))
        parts = tuple(CellsOf(one, 1.0, one.values.size) for one in own)
        return Estimate((), (), values, last, epochs, False, parts, about)

    def cells(self, depth: int) -> Estimate | None:
        """How many points are in each cell of one depth: the sum over blocks of points that follow each other, up to
        the newest one that was measured."""
        own = [
            (step, one)
            for step, one in self.lines
            if one.query["kind"] == "cells" and one.query["depth"] == depth
        ]
        blocks: list[NoisyCounts] = []
        for _, one in reversed(own):
            if blocks and one.last + 1 != blocks[-1].first:
                break  # what a step measured that was rejected is missing
            if one.values.shape != (1 << depth,):
                raise misfit(one)
            blocks.append(one)
        if not blocks:
            return None
        blocks.reverse()
        return Estimate(
            (f"cell of depth {depth}",),
            (tuple(map(str, range(1 << depth))),),
            np.sum([one.values for one in blocks], axis=0).astype(np.float64),
            own[-1][0],
            tuple((one.first, one.last) for one in blocks),
            False,
            tuple(CellsOf(one, 1.0, 1) for one in blocks),
            f"points number {blocks[0].first} to {blocks[-1].last}",
        )

    def _newest(self, kind: str, **wanted: Any) -> tuple[int, NoisyCounts] | None:
        """The newest line of a kind of query, whose query (or what it counts) has these values."""
        for step, one in reversed(self.lines):
            facts = {"counted": one.counted, **one.query}
            if facts["kind"] == kind and all(facts.get(key) == value for key, value in wanted.items()):
                return step, one
        return None


def kinds_there(kinds: OtherKinds) -> dict[str, Estimate]:
    """All that can be estimated, by its name: ``people``, ``at least 2``, ``patterns``, ``departures``, ``depth 5``."""
    queries = [one.query for _, one in kinds.lines]
    times = sorted({int(query["times"]) for query in queries if query["kind"] == "at least"})
    depths = sorted({int(query["depth"]) for query in queries if query["kind"] == "cells"})
    found = {
        "people": kinds.people(),
        "patterns": kinds.patterns(),
        **{f"at least {number}": kinds.people(number) for number in times},
        "departures": kinds.departures(),
        **{f"depth {depth}": kinds.cells(depth) for depth in depths},
    }
    return {name: one for name, one in found.items() if one is not None}


def _one(step: int, one: NoisyCounts, about: str) -> Estimate:
    """A single number."""
    if one.values.shape != (1,):
        raise misfit(one)
    value = np.array(float(one.values[0]))
    return Estimate((), (), value, step, ((one.first, one.last),), False, (CellsOf(one, 1.0, 1),), about)
