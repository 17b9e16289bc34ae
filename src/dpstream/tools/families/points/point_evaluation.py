"""A point stream's releases against the private points, step by step. For the owner's eyes only.

Trusted base: owner (compares with the private points).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dpstream.core.errors import ConfigError
from dpstream.tools.evaluate.array_types import Codes
from dpstream.tools.evaluate.contract import (
    EvaluationRequest,
    EvaluationResult,
    FamilyEvaluation,
    SummaryTable,
    measures_table,
    number,
)
from dpstream.tools.evaluate.evaluation import choose_steps
from dpstream.tools.evaluate.measures import Measure, verdict_words
from dpstream.tools.evaluate.metrics import SEED
from dpstream.tools.evaluate.private_folder import LABEL
from dpstream.tools.evaluate.run_folder import releases_of, thin
from dpstream.tools.families.points.point_releases import PointRun, collect_points, true_codes
from dpstream.tools.families.points.transport import w1

if TYPE_CHECKING:
    from dpstream.project import Config


#: Steps that are evaluated where none are asked for.
_STEPS = 12
#: Categories that are listed for people, the largest first.
_MAX_CATEGORIES = 12


@dataclass(frozen=True)
class CellError:
    """Released counts of the cells of one depth against the true ones; private.

    Attributes:
        cells: with a point, true or released.
        mean_error: mean absolute error of their counts, in points.
        variation: total variation distance: the share of points that are in a wrong cell.
    """

    depth: int
    cells: int
    mean_error: float
    variation: float


@dataclass(frozen=True)
class PointStep:
    """One release against the truth of its step; private.

    Attributes:
        true_points, released_points: equal: their number is public.
        depth: of the partition.
        w1, w1_lower, w1_upper, how: of the true points to the released ones; see ``Distance``.
        w1_uniform: to as many points spread over the whole space.
        cells: errors of counts at each depth of the partition.
    """

    step: int
    period: str | None
    true_points: int
    released_points: int
    depth: int
    w1: float
    w1_lower: float
    w1_upper: float
    how: str
    w1_uniform: float
    cells: tuple[CellError, ...]

    def numbers(self) -> dict[str, Any]:
        """All but the cells."""
        return {name: value for name, value in vars(self).items() if name != "cells"}


@dataclass(frozen=True, eq=False)
class PointEvaluation:
    """What ``evaluate_points`` found. Evaluation only, not releasable: ``label`` has to stand beside every number.

    Attributes:
        floor, floor_cells: at the last step, W1 and errors of cells of two samples of the true points.
        categories: at the last step: name, true and released number; the largest first.
    """

    stream: str
    guarantee: str
    steps: tuple[PointStep, ...]
    released: int
    categories: tuple[tuple[str, int, int], ...]
    floor: float
    floor_cells: tuple[CellError, ...]
    label: str = field(default=LABEL, init=False)


def evaluate_points(config: Config, asked: EvaluationRequest) -> PointEvaluation:
    """Compare the released points of a run with the private ones: without asked steps, of twelve, evenly spaced with
    the first and the last.

    Guarantee: none. The result holds exact private numbers: it must not be published, and options that are chosen by it
    are outside every guarantee.

    Errors:
        ConfigError: no releases, those of another plan, unknown steps. StepError: a source that ends before the
        releases do. DataError: a source that cannot be read. StoreError: damaged releases.

    Cost: one pass over the source, and seconds a step for its distances.
    """
    folder = releases_of(config, asked.releases)
    readable = folder.readable
    if not readable:
        raise ConfigError(
            "released tables are missing", where=str(folder.releases), allowed="one step, or more"
        )
    wanted = thin(readable, _STEPS)
    if asked.steps is not None or asked.every is not None:
        wanted = choose_steps(readable, asked.steps, asked.every)
    run = collect_points(folder, wanted)
    if not run.tables:
        raise ConfigError("no released table has points", where=str(folder.releases), allowed="a later step")
    truth = true_codes(config, run.view, {table.step: table.points for table in run.tables})
    found = []
    for i in range(len(run.tables)):
        found.append(_compare(run, i, truth[i], folder.manifest_of(run.tables[i].step)["period"]))
        if asked.progress is not None:
            asked.progress(len(found), len(run.tables))
    last = run.tables[-1]
    rng = np.random.default_rng(SEED)
    one, other = (
        truth[-1][rng.integers(0, len(truth[-1]), size)] for size in (len(truth[-1]), len(last.codes))
    )
    return PointEvaluation(
        stream=config.name,
        guarantee=str(folder.manifest["guarantee"]["words"]),
        steps=tuple(found),
        released=readable[-1],
        categories=_categories(run, truth[-1]),
        floor=w1(run.view.places(one), run.view.places(other), periodic=run.view.periodic).value,
        floor_cells=_cell_errors(run, one, other, last.depth),
    )


def _compare(run: PointRun, number: int, true: Codes, period: str | None) -> PointStep:
    table, view = run.tables[number], run.view
    places = view.places(true)
    found = w1(places, view.places(table.codes), periodic=view.periodic)
    return PointStep(
        table.step,
        period,
        len(true),
        len(table.codes),
        table.depth,
        found.value,
        found.lower,
        found.upper,
        found.how,
        # Points spread over the whole space, from a fixed seed: what a release is worth that knows nothing.
        w1(places, np.random.default_rng(1).random(places.shape), periodic=view.periodic).value,
        _cell_errors(run, true, table.codes, table.depth),
    )


def _cell_errors(run: PointRun, true: Codes, released: Codes, depth: int) -> tuple[CellError, ...]:
    space, found = run.view.space, []
    fine = [space.cells_of(codes) for codes in (true, released)]
    for level in range(1, depth + 1):
        cells = [one >> (space.depth - level) for one in fine]
        names, place = np.unique(np.concatenate(cells), return_inverse=True)
        own, made = (
            np.bincount(part, minlength=len(names)) for part in np.split(place.reshape(-1), [len(true)])
        )
        off = np.abs(own - made)
        variation = float(np.abs(own / max(1, len(true)) - made / max(1, len(released))).sum()) / 2.0
        found.append(CellError(level, len(names), float(off.mean()), variation))
    return tuple(found)


def _categories(run: PointRun, true: Codes) -> tuple[tuple[str, int, int], ...]:
    view, many = run.view, run.view.space.categories
    if not view.categorical:
        return ()
    counts, released = (
        np.bincount(view.categories(codes), minlength=many) for codes in (true, run.tables[-1].codes)
    )
    order = np.argsort(-counts, kind="stable").tolist()
    return tuple((view.category_name(one), int(counts[one]), int(released[one])) for one in order)


# A stream of points against its truth, as sentences, tables and files.

#: Depths whose cells are judged: quarters or so, and neighbourhoods.
_DEPTHS: Final = (2, 6)


def _find(config: Config, asked: EvaluationRequest) -> EvaluationResult:
    found = evaluate_points(config, asked)
    return EvaluationResult(
        found.stream,
        points_summary(found),
        tuple(_summary_parts(found)),
        [one.numbers() for one in found.steps],
        point_measures(found),
    )


POINTS_EVALUATION: Final = FamilyEvaluation(options=("steps", "every"), find=_find)


def point_measures(found: PointEvaluation) -> tuple[Measure, ...]:
    """Of the last step: how far released points are from the true ones, and how many are in a wrong cell."""
    last = found.steps[-1]
    even = last.w1_uniform
    moved, floor = (one / even if even > 0 else math.nan for one in (last.w1, found.floor))
    measures = [
        Measure(
            "distance",
            "places of the points",
            "of the way to points spread evenly",
            moved,
            floor,
            math.nan,
            "The 1-Wasserstein distance (W1), beside that of evenly spread points.",
            "the places of points",
        )
    ]
    for one, real in zip(last.cells, found.floor_cells, strict=True):
        if one.depth in _DEPTHS:
            measures.append(
                Measure(
                    f"cells {one.depth}",
                    f"points in {2**one.depth} cells",
                    "of the points are in a wrong cell",
                    one.variation,
                    real.variation,
                    math.nan,
                    "Total variation of the cells' shares.",
                    f"counts of points in {2**one.depth} cells",
                )
            )
    return tuple(measures)


def points_summary(found: PointEvaluation) -> dict[str, Any]:
    """The main numbers for programs, JSON-able."""
    return {
        "label": found.label,
        "format": 1,
        "stream": found.stream,
        "guarantee": found.guarantee,
        "unit": "sides of the space, from lower to upper bound",
        "released_steps": found.released,
        "steps": [{**one.numbers(), "cells": [vars(cell) for cell in one.cells]} for one in found.steps],
        "categories": [
            {"category": name, "true_points": true, "released_points": made}
            for name, true, made in found.categories
        ],
    }


def _summary_parts(found: PointEvaluation) -> Iterator[str | SummaryTable]:
    last = found.steps[-1]
    measures = point_measures(found)
    yield f"Step {last.step}: {verdict_words(measures)}"
    yield measures_table(measures)
    yield f"{len(found.steps)} of the steps up to {found.released} are compared."
    yield f"What the releases promise: {found.guarantee}"
    yield ("W1: mean distance of released to true points (largest coordinate), in sides of the space.")
    rows = [
        [
            *map(str, (one.step, one.true_points, one.depth)),
            *map(number, (one.w1, one.w1_lower, one.w1_upper, one.w1_uniform)),
        ]
        for one in found.steps
    ]
    headings = ["step", "points", "depth", "W1, in sides", "at least", "at most", "spread evenly"]
    yield SummaryTable("Distances", headings, rows, right=range(7))
    cells = [
        [str(one.depth), str(one.cells), number(one.mean_error), f"{100 * one.variation:.3g}"]
        for one in last.cells
    ]
    headings = ["depth", "cells with points", "mean error, points", "in a wrong cell, %"]
    yield SummaryTable(f"Cells at step {last.step}", headings, cells, right=range(4))
    if found.categories:
        shown = [[name, str(true), str(made)] for name, true, made in found.categories[:_MAX_CATEGORIES]]
        headings = ["category", "true points", "released points"]
        yield SummaryTable(f"Categories at step {last.step}", headings, shown, right=(1, 2))
