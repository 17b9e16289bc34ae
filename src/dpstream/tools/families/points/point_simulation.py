"""A point stream's releases as invented truth: the released points come again, step by step.

Trusted base: invented (counts invented records).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dpstream.core.schema.domain import Clique
from dpstream.core.tables import EncodedRecords
from dpstream.families.points.points_plan import PointsPlan
from dpstream.tools.errors.contract import (
    FamilySimulation,
    Guess,
    Invented,
    InventedTable,
    Observation,
    Released,
)
from dpstream.tools.errors.invented_tables import (
    Draw,
    Grouping,
    choose,
    imagined_changes,
    totals_of,
    uniform_columns,
    without,
)
from dpstream.tools.evaluate.array_types import Codes, Ints
from dpstream.tools.evaluate.run_folder import released_codes
from dpstream.tools.families.points.point_releases import PointView
from dpstream.tools.families.points.transport import w1

if TYPE_CHECKING:
    from dpstream.project import Config

#: For each step: the points that come, and all so far.
Arrivals = Iterable[tuple[Codes, Codes]]
#: Depths of the cells by which a step's points are chosen.
_DEPTHS = (3, 6, 9, 12)
#: Imagined points lie about so many centres.
_CENTRES = 12
#: W1 is estimated from samples: of so many points, so often.
_SAMPLE, _REPEATS = 400, 2


def point_view(config: Config) -> PointView:
    plan = config.plan()
    assert isinstance(plan, PointsPlan)
    return PointView(plan.reading, plan.space)


def _cells(view: PointView) -> Grouping:
    def groups(codes: Codes) -> list[tuple[Ints, int]]:
        cells = view.space.cells_of(codes)
        depths = [depth for depth in _DEPTHS if depth <= view.space.depth]
        return [(cells >> (view.space.depth - depth), 2**depth) for depth in depths]

    return groups


def _arrivals(
    targets: dict[int, Codes], totals: Ints, grouping: Grouping, seed: int
) -> Iterator[tuple[Codes, Codes]]:
    """For each step: the points that come, so that all of them follow the releases; and all so far.

    From the first step to the last, unlike tables: small cells are measured of late points only, so that an invented
    stream without the moves of its places from release to release would have too small errors.
    """
    generator, steps = np.random.default_rng([seed, 11]), sorted(targets)
    there = targets[steps[0]][:0]
    for step, total in enumerate(totals.tolist(), start=1):
        target = targets[steps[int(np.searchsorted(steps, step))]]
        pool = without(target, there)
        come = pool[choose(pool, total - len(there), target, there, grouping, generator)]
        there = np.concatenate([there, come])
        yield come, there


def _invent(config: Config, released: Released, steps: Sequence[int], seed: int) -> Invented:
    view = point_view(config)
    targets = {step: released_codes(view.schema, released.folder, step) for step in released.readable}
    totals = totals_of(released, falling=False)
    return _stream_of(config, _arrivals(targets, totals, _cells(view), seed), steps, seed)


def _stream_of(config: Config, arrivals: Arrivals, steps: Sequence[int], seed: int) -> Invented:
    """Points that come, as batches, and the truth at the steps that are compared."""
    view, schema = point_view(config), config.schema()
    domain = schema.domain
    pairs = itertools.combinations(range(len(domain)), 2)
    cliques: tuple[Clique, ...] = (*((i,) for i in range(len(domain))), *pairs)
    labels = tuple(tuple(map(str, column.labels())) for column in schema.columns)
    batches, truth = [], {}
    for step, (come, there) in enumerate(arrivals, start=1):
        batches.append(EncodedRecords(view.schema.domain, np.asfortranarray(come.astype(np.int32))))
        if step in steps:
            binned = schema.encode(view.schema.decode(there, seed))
            truth[step] = InventedTable(domain, labels, cliques, Observation(binned), there.astype(np.int32))
    return Invented(batches, truth)


def _observe(config: Config, synthesis: Any, truth: InventedTable, seed: int) -> Observation:
    view, schema = point_view(config), config.schema()
    rows = round(synthesis.total)
    if rows == 0:
        return Observation(np.zeros((0, len(schema)), np.int32))
    table = synthesis.released(schema, rows, seed)
    distances = {}
    assert truth.fine is not None
    if len(truth.fine):
        ours, theirs = view.places(view.schema.encode(table)), view.places(truth.fine)
        found = w1(
            theirs,
            ours,
            periodic=view.periodic,
            method="samples",
            sample=_SAMPLE,
            repeats=_REPEATS,
            seed=seed,
        )
        distances["W1"] = found.value
    return Observation(schema.encode(table), None, distances)


def _imagine(config: Config, guess: Guess) -> Invented:
    view = point_view(config)
    domain = view.schema.domain
    tree = np.random.default_rng([guess.seed, 13])
    draw = uniform_columns(domain) if guess.columns == "uniform" else _clusters(view, tree)
    changes = imagined_changes(guess, draw, np.zeros((0, len(domain)), np.int32))
    arrivals = ((come, there) for come, _, _, there in changes)
    return _stream_of(config, arrivals, guess.compared, guess.seed)


def _clusters(view: PointView, generator: np.random.Generator) -> Draw:
    """Points about a few centres, of different weights and widths; each centre has its own shares of categories."""
    sizes = np.array(view.schema.domain.sizes)
    coordinate = ~np.array(view.space.categorical)
    weights = generator.dirichlet(np.full(_CENTRES, 0.5))
    centres = generator.random((_CENTRES, len(sizes)))
    widths = np.exp(generator.uniform(np.log(0.005), np.log(0.2), (_CENTRES, len(sizes))))
    shares = {
        column: generator.dirichlet(np.full(int(sizes[column]), 0.5), _CENTRES)
        for column in np.flatnonzero(~coordinate).tolist()
    }

    def draw(rows: int, generator: np.random.Generator) -> Codes:
        own = generator.choice(_CENTRES, rows, p=weights)
        places = centres[own] + widths[own] * generator.standard_normal((rows, len(sizes)))
        # What falls over an edge comes back at it, as in a mirror.
        places = 1.0 - np.abs(1.0 - np.mod(np.abs(places), 2.0))
        codes = np.minimum((places * sizes).astype(np.int64), sizes - 1)
        for column, own_shares in shares.items():
            ends = own_shares.cumsum(axis=1)
            ends[:, -1] = np.inf
            codes[:, column] = (generator.random(rows)[:, None] >= ends[own]).sum(axis=1)
        found: Codes = codes.astype(np.int32)
        return found

    return draw


POINTS_SIMULATION: Final = FamilySimulation(_invent, _observe, imagine=_imagine, distance="W1")
