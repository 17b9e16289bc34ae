"""The invented streams that attacks run on: tables, points and panels.

Trusted base: invented (counts invented records).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstream.core.contracts import NoisyCounts
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import CubeNoise, DiscreteLaplace, HistogramsNoise
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedRecords
from dpstream.core.tables.encoded_batch import batch_codes
from dpstream.families.panel import CumulativePlan
from dpstream.families.panel.people import PeoplePlan
from dpstream.families.points.points_plan import PointsPlan
from dpstream.tools.audit.attack_streams import (
    RECORDS,
    TRIED,
    AttackedStream,
    Targets,
    choose_targets,
    copies_of,
    steps_of,
    table_of,
    unknown_column,
)
from dpstream.tools.errors.contract import FamilySimulation, Guess, InventedTable, Observation
from dpstream.tools.errors.invented_tables import (
    Changes,
    correlated_columns,
    imagined_changes,
    read_domain,
    stream_of,
)
from dpstream.tools.evaluate.array_types import Codes, Floats, Ints
from dpstream.tools.family_tools import tool_of

if TYPE_CHECKING:
    from dpstream.project import Config


def counts_of(query: Mapping[str, Any], codes: Codes, domain: Domain) -> Ints | None:
    """The exact answer to a query on records; None for a kind of query that attackers do not understand here."""
    kind = query["kind"]
    if kind == "marginal":
        return _marginal(query["columns"], codes, domain)
    if kind == "marginals":
        return np.concatenate([_marginal(columns, codes, domain) for columns in query["columns"]])
    if kind == "signs":
        signs = 2 * codes.astype(np.int64) - 1
        terms = [[domain.names.index(name) for name in term] for term in query["terms"]]
        return np.array([signs[:, term].prod(axis=1).sum() for term in terms], np.int64)
    return None


def _marginal(columns: Sequence[str], codes: Codes, domain: Domain) -> Ints:
    clique = [domain.names.index(name) for name in columns]
    if not clique:
        return np.array([len(codes)], np.int64)
    sizes = domain.shape(tuple(clique))
    cells = np.ravel_multi_index(tuple(codes[:, clique].T), sizes)
    return np.bincount(cells, minlength=int(np.prod(sizes))).astype(np.int64)


def log_likelihood_ratio(noisy: NoisyCounts, noise: Ints, added: Ints) -> float:
    """How much likelier the values are with ``added`` than without, as a logarithm.

    Exact for independent Laplace and Gaussian noise and for joint draws; sums of draws count as normal.

    Args:
        noise: the values less what was counted without the record.
    """
    law = noisy.noise
    if isinstance(law, CubeNoise):
        return float((np.abs(noise).max() - np.abs(noise - added).max()) / law.scale)
    if isinstance(law, HistogramsNoise):
        return float((law.norm(noise) - law.norm(noise - added)) / law.scale)
    touched = np.flatnonzero(added)
    own, more = noise[touched], added[touched]
    if isinstance(law, DiscreteLaplace):
        return float((np.abs(own) - np.abs(own - more)).sum() / law.scale)
    return float((2 * own * more - more**2).sum() / (2 * max(noisy.variance, 1e-9)))


#: Depths of the cells in which points are compared.
_DEPTHS = (2, 4, 6, 8, 10, 12)
#: The place of the depth among these in whose cells targets stand alone.
_APART = 2


class NothingToAttackError(ConfigError):
    """A stream that publishes no tables, or none that a stream can be invented for."""


def check_attackable(config: Config) -> None:
    """
    Errors:
        NothingToAttackError: it publishes no tables, or reads columns that are not the declared ones.
    """
    if config.family.asked:
        raise NothingToAttackError(
            "the tables of this stream are made of its answers, and the attacks are on other tables",
            where=str(config.path),
            allowed="dpstream lab audit --only questions, which attacks question streams of its own",
        )
    plan = config.plan()
    if not isinstance(plan, PeoplePlan | PointsPlan):
        try:
            read_domain(config)
        except ConfigError:
            raise NothingToAttackError(
                "its releases are no tables of the declared columns, and only such are attacked",
                where=str(config.path),
                allowed="dpstream lab audit, which attacks streams of its own",
            ) from None


def attacked_stream(config: Config, seed: int) -> AttackedStream:
    """The stream that a configuration is attacked on, after ``check_attackable``."""
    plan = config.plan()
    if isinstance(plan, PeoplePlan):
        return _Panel(config, plan, seed)
    if isinstance(plan, PointsPlan):
        return _Points(config, plan, seed)
    return _Table(config, seed)


class _Table(AttackedStream):
    """Tables, with deletes or keys too: whatever reads counts, records or present records."""

    def __init__(self, config: Config, seed: int) -> None:
        self.config, self.steps = config, steps_of(config)
        domain = read_domain(config)
        start = config.base()
        self.base = None if start is None else start.table()
        begin = np.zeros((0, len(domain)), np.int32) if self.base is None else self.base.records()
        table, size = table_of(config, self.steps)
        draw = correlated_columns(domain, np.random.default_rng([seed, 13]))
        self._domain, self._falling = domain, table.change != "grows"
        guess = Guess(table, self.steps, (), "correlated", self.base, seed)
        self._changes = list(imagined_changes(guess, draw, begin))
        at = 1 + self.steps // 4
        self._rows, self._came, self._left = _lives(self._changes, begin)
        self.records = len(self._changes[-1][3])
        generator = np.random.default_rng([seed, 21])
        tried = generator.integers(np.array(domain.sizes), size=(TRIED, len(domain))).astype(np.int32)
        base = self._changes[-1][3] if self.records else draw(RECORDS, generator)
        self.targets = choose_targets(tried, base, at, config, *unknown_column(domain.sizes, config))
        self.reference = draw(max(1, self.records), generator)
        self._tool = tool_of("simulation", FamilySimulation, config.family)
        self.words = f"a table of {size}, {self.steps} steps; targets come at step {at}"
        self._known: dict[str, Ints] = {}

    def batches(self, planted: Codes) -> Iterator[Any]:
        changes = self._with(planted)
        yield from stream_of(self.config, changes, (), falling=self._falling, base=self.base).batches

    def _with(self, planted: Codes) -> Changes:
        """The changes with rows that come at one step, and stay. They stand behind those who are there then."""
        many, behind = len(planted), 0
        for step, (come, left, gone, there) in enumerate(self._changes, start=1):
            if step == self.targets.at:
                behind = len(there)
                yield np.concatenate([come, planted]), left, gone, there
            elif step > self.targets.at:
                moved = gone + many * (gone >= behind)
                behind -= int((gone < behind).sum())
                yield come, left, moved, there
            else:
                yield come, left, gone, there

    def seen(self, synthesis: Any, step: int, seed: int) -> tuple[Codes, Floats | None]:
        truth = InventedTable(self._domain, (), (), Observation(np.zeros((0, len(self._domain)), np.int32)))
        observed = self._tool.observe(self.config, synthesis, truth, seed)
        return observed.codes, observed.weights

    def expected(self, noisy: NoisyCounts) -> Ints | None:
        at = self.targets.at
        if noisy.counted not in ("inserts", "net", "present") or not noisy.first <= at <= noisy.last:
            return None
        if noisy.counted == "present" and noisy.end < at:
            return None
        key = f"{noisy.counted} {noisy.first} {noisy.last} {noisy.as_of} {noisy.query}"
        if key not in self._known:
            came = (self._came >= noisy.first) & (self._came <= noisy.last)
            gone = (self._left >= noisy.first) & (self._left <= noisy.last)
            if noisy.counted == "present":
                came &= self._left > noisy.end
            found = counts_of(noisy.query, self._rows[came], self._domain)
            if found is None:
                return None
            if noisy.counted == "net":
                less = counts_of(noisy.query, self._rows[gone], self._domain)
                assert less is not None
                found = found - less
            self._known[key] = found
        return self._known[key]

    def added(self, noisy: NoisyCounts, row: Codes) -> Ints:
        found = counts_of(noisy.query, row[None, :], self._domain)
        assert found is not None
        return found


def _lives(changes: Sequence[tuple[Codes, Codes, Ints, Codes]], begin: Codes) -> tuple[Codes, Ints, Ints]:
    """All records, the step at which each came (0: it was there before), and at which it left (or one far away)."""
    rows, came = [begin], [np.zeros(len(begin), np.int64)]
    there, left, many = np.arange(len(begin)), {}, len(begin)
    for step, (come, _, gone, _) in enumerate(changes, start=1):
        left.update(dict.fromkeys(there[gone].tolist(), step))
        there = np.concatenate([np.delete(there, gone), many + np.arange(len(come))])
        many += len(come)
        rows.append(come)
        came.append(np.full(len(come), step))
    leaves = np.full(many, np.iinfo(np.int64).max)
    leaves[list(left)] = list(left.values())
    return np.concatenate(rows), np.concatenate(came), leaves


class _Points(AttackedStream):
    """Points: two are compared by the cells of several depths in which they lie."""

    def __init__(self, config: Config, plan: PointsPlan, seed: int) -> None:
        self.config, self.steps = config, steps_of(config)
        self._reading, self._space = plan.reading, plan.space
        domain = self._reading.domain
        table, size = table_of(config, self.steps)
        tool = tool_of("simulation", FamilySimulation, config.family)
        assert tool.imagine is not None
        far = replace(table, change="grows")
        guess = Guess(far, self.steps, tuple(range(1, self.steps + 1)), "correlated", None, seed)
        invented, other = tool.imagine(config, guess), tool.imagine(config, replace(guess, seed=seed + 1))
        self._come = [batch_codes(batch)[0] for batch in invented.batches]
        there = np.concatenate(self._come)
        self.records, at = len(there), 1 + self.steps // 4
        self.groups = self._space.depth
        self._depths = [depth for depth in _DEPTHS if depth <= self._space.depth]
        generator = np.random.default_rng([seed, 21])
        tried = generator.integers(np.array(domain.sizes), size=(TRIED, len(domain))).astype(np.int32)
        large = min(_APART, len(self._depths)) - 1
        cells = self.shown(tried, 1)[:, large]
        # One in each large cell, first where fewest points are.
        crowd = np.bincount(self.shown(there, 1)[:, large], minlength=2 ** self._depths[large])
        places = [
            int(np.flatnonzero(cells == cell)[0]) for cell in np.argsort(crowd) if (cells == cell).any()
        ]
        members = tried[places]
        unknown = int(np.argmax(domain.sizes))
        options = np.repeat(members[-1:][:, None, :], 2, axis=1)
        options[:, :, unknown] = [
            domain.sizes[unknown] // 8,
            domain.sizes[unknown] - domain.sizes[unknown] // 8,
        ]
        fillers = there[np.linspace(0, len(there) - 1, max(1, len(members) - 1)).astype(int)]
        self.targets = Targets(members[: max(1, len(members) - 1)], fillers, options, copies_of(config), at)
        self.reference = self.shown(np.concatenate([batch_codes(one)[0] for one in other.batches]), 1)
        self.words = f"points: {size}, {self.steps} steps; targets come at step {at}"

    def batches(self, planted: Codes) -> Iterator[Any]:
        domain = self._reading.domain
        for step, come in enumerate(self._come, start=1):
            rows = np.concatenate([come, planted]) if step == self.targets.at else come
            yield EncodedRecords(domain, np.asfortranarray(rows.astype(np.int32)))

    def seen(self, synthesis: Any, step: int, seed: int) -> tuple[Codes, Floats | None]:
        rows = max(0, round(synthesis.total))
        if not rows:
            return np.zeros((0, len(self._depths)), np.int32), None
        table = synthesis.released(self.config.schema(), rows, seed)
        return self.shown(self._reading.encode(table), step), None

    def expected(self, noisy: NoisyCounts) -> Ints | None:
        if noisy.counted != "points" or noisy.query["kind"] != "cells" or not self.chance(noisy):
            return None
        found = np.zeros(2 ** int(noisy.query["depth"]))
        for step, come in enumerate(self._come, start=1):
            if share := self._share(noisy, step):
                # The order of a step's points is drawn: of a part of them only its size is known.
                found += share * np.bincount(self._cells(noisy, come), minlength=len(found))
        return np.rint(found).astype(np.int64)

    def added(self, noisy: NoisyCounts, row: Codes) -> Ints:
        cells = self._cells(noisy, row[None, :])
        return np.bincount(cells, minlength=2 ** int(noisy.query["depth"])).astype(np.int64)

    def chance(self, noisy: NoisyCounts) -> float:
        return self._share(noisy, self.targets.at)

    def group(self, noisy: NoisyCounts) -> int:
        return int(noisy.query["depth"]) - 1

    def _share(self, noisy: NoisyCounts, step: int) -> float:
        """The share of a step's points that a count is about."""
        own = [len(come) for come in self._come]
        own[self.targets.at - 1] += len(self.targets.members) + len(self.targets.known)
        first = 1 + sum(own[: step - 1])
        last = first + own[step - 1] - 1
        inside = min(last, noisy.last) - max(first, noisy.first) + 1
        return max(0, inside) / max(1, own[step - 1])

    def _cells(self, noisy: NoisyCounts, rows: Codes) -> Ints:
        space = self._space
        return space.cells_of(np.asfortranarray(rows)) >> (space.depth - int(noisy.query["depth"]))

    def shown(self, rows: Codes, step: int) -> Codes:
        space = self._space
        cells = space.cells_of(np.asfortranarray(rows))
        found: Codes = np.stack([cells >> (space.depth - depth) for depth in self._depths], axis=1)
        return found.astype(np.int32)


class _Panel(AttackedStream):
    """Panels: a target is a person's whole history, as symbols."""

    def __init__(self, config: Config, plan: PeoplePlan, seed: int) -> None:
        self.config, self.steps, self._plan = config, steps_of(config), plan
        table, size = table_of(config, self.steps)
        tool = tool_of("simulation", FamilySimulation, config.family)
        assert tool.imagine is not None
        guess = Guess(table, self.steps, (), "correlated", None, seed)
        self._people, other = (
            self._symbols([batch_codes(batch)[0] for batch in tool.imagine(config, one).batches])
            for one in (guess, replace(guess, seed=seed + 1))
        )
        self._counted = isinstance(plan, CumulativePlan)
        symbols = 2 if self._counted else plan.codes
        generator = np.random.default_rng([seed, 21])
        many = 2 if self._counted else 6
        tried = generator.integers(symbols, size=(many, self.steps))
        if self._counted:
            # All that are counted at most periods look alike: one of them, whom everybody would notice.
            tried[:] = 1
        known = 1 if self._counted else 2
        options = np.repeat(tried[-known:][:, None, :], 2, axis=1)
        options[:, :, self.steps // 2] = [0, 1]
        fillers = None
        members = tried[:-known]
        if getattr(config.unit, "relation", "add-remove") == "replace":
            fillers = self._people[np.linspace(0, len(self._people) - 1, len(members)).astype(int)]
        own = len(members) + known
        if plan.places is not None and len(self._people) + own > plan.places:
            self._people = self._people[: plan.places - own]
        self.records = len(self._people)
        as_codes = [None if one is None else one.astype(np.int32) for one in (members, fillers, options)]
        self.targets = Targets(as_codes[0], as_codes[1], as_codes[2], 1, 1)  # type: ignore[arg-type]
        self.reference = self.shown(other[: self.records].astype(np.int32), self.steps)
        self.words = f"a panel of {self.records:,} people, {self.steps} periods; {size}"

    def _symbols(self, reports: Sequence[Codes]) -> Ints:
        cells = [np.ravel_multi_index(tuple(codes.T), self._plan.columns.sizes) for codes in reports]
        return np.asarray(self._plan.followed(np.stack(cells, axis=1)), np.int64)

    def batches(self, planted: Codes) -> Iterator[Any]:
        people = np.concatenate([self._people, planted.astype(np.int64)])
        return (self._plan.invented(people[:, period]) for period in range(self.steps))

    def seen(self, synthesis: Any, step: int, seed: int) -> tuple[Codes, Floats | None]:
        history = synthesis.history
        if history.shape[1] < step:  # nothing is released yet
            history = np.zeros((0, self.steps), np.int64)
        return self.shown(history.astype(np.int32), step), None

    def shown(self, rows: Codes, step: int) -> Codes:
        """The newest window of reports, or how many times so far."""
        return self._plan.summed_up(rows, step)

    def expected(self, noisy: NoisyCounts) -> Ints | None:
        kinds = ("at least",) if self._counted else ("patterns",)
        return self._counts(noisy, self._people) if noisy.query["kind"] in kinds else None

    def added(self, noisy: NoisyCounts, row: Codes) -> Ints:
        return self._counts(noisy, row[None, :].astype(np.int64))

    def _counts(self, noisy: NoisyCounts, people: Ints) -> Ints:
        own = people[:, noisy.first - 1 : noisy.last]
        if self._counted:
            return np.array([(own.sum(axis=1) >= noisy.query["times"]).sum()], np.int64)
        symbols = self._plan.codes
        patterns = own @ symbols ** np.arange(own.shape[1] - 1, -1, -1)
        return np.bincount(patterns, minlength=symbols ** own.shape[1]).astype(np.int64)
