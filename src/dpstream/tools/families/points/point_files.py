"""A stream of points against its truth, as sentences, tables and files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from dpstream.tools.evaluate.contract import (
    EvaluationRequest,
    EvaluationResult,
    FamilyEvaluation,
    SummaryTable,
    csv_bytes,
    measures_told,
    number,
)
from dpstream.tools.evaluate.measures import Measure, verdict_words
from dpstream.tools.families.points.point_evaluation import (
    MOST_CATEGORIES_COMPARED,
    PointEvaluation,
    PointStep,
    evaluate_points,
)
from dpstream.tools.families.points.transport import Distance

if TYPE_CHECKING:
    from dpstream.project import Config

#: Depths whose cells are judged: quarters or so, and neighbourhoods.
_DEPTHS: Final = (2, 6)


def _find(config: Config, asked: EvaluationRequest) -> EvaluationResult:
    found = evaluate_points(
        config, releases=asked.releases, steps=asked.steps, every=asked.every, progress=asked.progress
    )
    files = {"steps.csv": _steps(found), "cells.csv": _cells(found)}
    if found.categories:
        files["categories.csv"] = _category_table(found)
    measures = point_measures(found)
    return EvaluationResult(
        found.stream, points_summary(found), tuple(_summary_parts(found)), files, measures
    )


POINTS_EVALUATION: Final = FamilyEvaluation(
    options=("steps", "every"),
    refusal="the stream is one of points, whose distances are compared, and not marginals",
    files=("steps.csv", "cells.csv", "categories.csv"),
    find=_find,
)


def point_measures(found: PointEvaluation) -> tuple[Measure, ...]:
    """Of the last step: how far released points are from the true ones, and how many are in a wrong cell."""
    last = found.steps[-1]
    even = last.uniform.value
    own, floor = (one.value / even if even > 0 else math.nan for one in (last.distance, found.floor))
    measures = [
        Measure(
            "distance",
            "places of the points",
            "of the way to points spread evenly",
            own,
            floor,
            math.nan,
            "The average way by which released points have to be moved to become the true ones (the 1-Wasserstein "
            "distance, W1), as a share of the same for points that are spread evenly over the space.",
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
                    "Total variation: half the sum of all differences of the cells' shares.",
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
        "unit": "sides of the space, each from a coordinate's lower to its upper bound on its scale",
        "released_steps": found.released,
        "steps": [_step(one) for one in found.steps],
        "categories": [
            {"category": name, "true_points": true, "released_points": made, "w1": _value(distance)}
            for name, true, made, distance in found.categories
        ],
    }


def _step(one: PointStep) -> dict[str, Any]:
    return {
        "step": one.step,
        "period": one.period,
        "true_points": one.points,
        "released_points": one.released,
        "depth": one.depth,
        "w1": one.distance.value,
        "w1_lower": one.distance.lower,
        "w1_upper": one.distance.upper,
        "how": one.distance.how,
        "w1_uniform": one.uniform.value,
    }


def _value(distance: Distance | None) -> float | None:
    return None if distance is None else distance.value


def _steps(found: PointEvaluation) -> bytes:
    rows = [_step(one) for one in found.steps]
    return csv_bytes(list(rows[0]), (list(row.values()) for row in rows))


def _cells(found: PointEvaluation) -> bytes:
    rows = (
        [step.step, one.depth, one.cells, one.mean_error, one.variation]
        for step in found.steps
        for one in step.cells
    )
    return csv_bytes(["step", "depth", "cells_with_points", "mean_absolute_error", "total_variation"], rows)


def _category_table(found: PointEvaluation) -> bytes:
    step = found.steps[-1].step
    rows = ([step, name, true, made, _value(distance)] for name, true, made, distance in found.categories)
    return csv_bytes(["step", "category", "true_points", "released_points", "w1"], rows)


def _summary_parts(found: PointEvaluation) -> Iterator[str | SummaryTable]:
    last = found.steps[-1]
    yield f"Compared with the private points: {len(found.steps)} of the steps up to {found.released}."
    yield f"What the releases promise: {found.guarantee}"
    measures = point_measures(found)
    yield f"Verdict on step {last.step}: {verdict_words(measures)}"
    yield measures_told(measures)
    yield (
        "W1 is the average way, in sides of the space (the largest coordinate counts), by which released points would "
        "have to be moved to become the true ones. Beside it: the same for points spread evenly."
    )
    rows = [
        [
            *map(str, (one.step, one.points, one.depth)),
            *map(number, (one.distance.value, one.distance.lower, one.distance.upper, one.uniform.value)),
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
        shown = [
            [name, str(true), str(made), number(_value(distance))]
            for name, true, made, distance in found.categories[:MOST_CATEGORIES_COMPARED]
        ]
        headings = ["category", "true points", "released points", "W1 within"]
        yield SummaryTable(f"Categories at step {last.step}", headings, shown, right=(1, 2, 3))
