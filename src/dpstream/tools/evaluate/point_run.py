"""A point stream's releases against the private points, step by step. For the owner's eyes only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dpstream.core import durable
from dpstream.core.errors import ConfigError
from dpstream.tools.evaluate.evaluation import choose_steps
from dpstream.tools.evaluate.evaluation_files import csv_bytes, json_bytes
from dpstream.tools.evaluate.label import LABEL
from dpstream.tools.evaluate.point_truth import true_codes, uniform_places
from dpstream.tools.evaluate.private_folder import write_private
from dpstream.tools.evaluate.transport import Distance, w1
from dpstream.tools.report.points_run import PointRun, collect_points
from dpstream.tools.report.run_folder import releases_of, thin

if TYPE_CHECKING:
    from dpstream.project import Config

__all__ = [
    "FILES",
    "PICTURES",
    "CellError",
    "PointEvaluation",
    "PointStep",
    "evaluate_points",
    "write_point_evaluation",
]

FILES: Final = ("steps.csv", "cells.csv", "categories.csv", "summary.md", "summary.json")
PICTURES: Final = ("maps.png", "distance.png", "cells.png")
#: Steps that are evaluated where none are asked for.
_STEPS = 12
#: Categories whose own distances are computed, the largest first.
_MOST_CATEGORIES = 12

Codes = NDArray[np.int32]
Progress = Callable[[int, int], None]


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


@dataclass(frozen=True, eq=False)
class PointStep:
    """One release against the truth of its step; private.

    Attributes:
        points: true ones, released ones (equal: their number is public).
        distance: W1 to the released points. uniform: to as many points spread over the whole space.
        depth: of the partition. cells: errors of counts at each depth up to it.
    """

    step: int
    period: str | None
    points: int
    released: int
    depth: int
    distance: Distance
    uniform: Distance
    cells: tuple[CellError, ...]


@dataclass(frozen=True, eq=False)
class PointEvaluation:
    """What ``evaluate_points`` found. Evaluation only, not releasable: ``label`` has to stand beside every number.

    Attributes:
        categories: at the last step: name, true and released number, and W1 within the category (None where one of the
            two is empty); the largest first.
        run, truth: what was compared, for pictures.
        left: categories without a distance.
    """

    stream: str
    guarantee: str
    steps: tuple[PointStep, ...]
    released: int
    categories: tuple[tuple[str, int, int, Distance | None], ...]
    left: int
    run: PointRun = field(repr=False)
    truth: tuple[Codes, ...] = field(repr=False)
    label: str = field(default=LABEL, init=False)


def evaluate_points(
    config: Config,
    *,
    releases: Path | None = None,
    steps: Sequence[int] | None = None,
    every: int | None = None,
    progress: Progress | None = None,
) -> PointEvaluation:
    """Compare the released points of a run with the private ones.

    Guarantee: none. The result holds exact private numbers: it must not be published, and options that are chosen by it
    are outside every guarantee.

    Args:
        releases: where the run left them, if elsewhere than the file says.
        steps: which ones; by default twelve, evenly spaced with the first and the last.
        every: instead of ``steps``: every so many, and the last one.
        progress: told after every evaluated step.

    Errors:
        ConfigError: no releases, those of another plan, unknown steps. StepError: a source that ends before the
        releases do. DataError: a source that cannot be read. StoreError: damaged releases.

    Cost: one pass over the source, and seconds a step for its distances.
    """
    folder = releases_of(config, releases)
    readable = folder.readable
    if not readable:
        raise ConfigError(
            "there is no released table", where=str(folder.releases), allowed="one step, or more"
        )
    wanted = thin(readable, _STEPS)
    if steps is not None or every is not None:
        wanted = choose_steps(readable, steps, every)
    run = collect_points(folder, wanted)
    if not run.tables:
        raise ConfigError("no released table has points", where=str(folder.releases), allowed="a later step")
    truth = true_codes(config, run.view, {table.step: table.points for table in run.tables})
    found = []
    for i in range(len(run.tables)):
        found.append(_compare(run, i, truth[i], folder.manifest_of(run.tables[i].step)["period"]))
        if progress is not None:
            progress(len(found), len(run.tables))
    categories, left = _categories(run, truth[-1])
    return PointEvaluation(
        stream=config.name,
        guarantee=str(folder.manifest["guarantee"]["words"]),
        steps=tuple(found),
        released=readable[-1],
        categories=categories,
        left=left,
        run=run,
        truth=tuple(truth),
    )


def _compare(run: PointRun, number: int, true: Codes, period: str | None) -> PointStep:
    table, view = run.tables[number], run.view
    places = view.places(true)
    even = uniform_places(*places.shape)
    return PointStep(
        table.step,
        period,
        len(true),
        len(table.codes),
        table.depth,
        w1(places, view.places(table.codes), periodic=view.periodic),
        w1(places, even, periodic=view.periodic),
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


def _categories(run: PointRun, true: Codes) -> tuple[tuple[tuple[str, int, int, Distance | None], ...], int]:
    view, made = run.view, run.tables[-1].codes
    if not view.categorical:
        return (), 0
    many = view.space.categories
    theirs, ours = view.categories(true), view.categories(made)
    counts, released = (np.bincount(which, minlength=many) for which in (theirs, ours))
    order = np.argsort(-counts, kind="stable")
    found = []
    for rank, category in enumerate(order.tolist()):
        distance = None
        if rank < _MOST_CATEGORIES and counts[category] and released[category]:
            pair = (view.places(true[theirs == category]), view.places(made[ours == category]))
            distance = w1(*pair, periodic=view.periodic)
        found.append((view.category_name(category), int(counts[category]), int(released[category]), distance))
    return tuple(found), max(0, many - _MOST_CATEGORIES)


def write_point_evaluation(
    found: PointEvaluation, folder: Path, *, pictures: bool = True
) -> tuple[tuple[Path, ...], dict[str, Any]]:
    """Write ``FILES`` and ``PICTURES`` into a folder that ``open_private_folder`` gave; and the summary.

    Errors:
        ConfigError: pictures without matplotlib.
    """
    facts = summarise(found)
    contents = {
        "steps.csv": _steps(found),
        "cells.csv": _cells(found),
        "summary.md": _text(found).encode(),
        "summary.json": json_bytes(facts),
    }
    if found.categories:
        contents["categories.csv"] = _category_table(found)
    written = [write_private(folder / name, contents[name]) for name in FILES if name in contents]
    if pictures:
        from dpstream.tools.evaluate.point_pictures import draw

        written += draw(found, folder)
    names = {path.name for path in written}
    for name in (*FILES, *PICTURES):
        if name not in names:
            durable.unlink(folder / name)
    return tuple(written), facts


def summarise(found: PointEvaluation) -> dict[str, Any]:
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


def _text(found: PointEvaluation) -> str:
    last = found.steps[-1]
    lines = [
        f"# {found.stream}: {found.label}",
        "",
        f"Compared with the private points: {len(found.steps)} of the steps up to {found.released}.",
        "",
        f"What the releases promise: {found.guarantee}",
        "",
        "W1 is the average way, in sides of the space (the largest coordinate counts), by which released points would "
        "have to be moved to become the true ones. Beside it: the same for points spread evenly.",
        "",
        "| step | points | depth | W1 | certainly between | spread evenly |",
        "|---:|---:|---:|---:|---|---:|",
        *(
            f"| {one.step} | {one.points} | {one.depth} | {one.distance.value:.4g} "
            f"| {one.distance.lower:.4g} and {one.distance.upper:.4g} | {one.uniform.value:.4g} |"
            for one in found.steps
        ),
        "",
        f"## Cells at step {last.step}: {found.label}",
        "",
        "| depth | cells with points | mean error, points | in a wrong cell, % |",
        "|---:|---:|---:|---:|",
        *(
            f"| {one.depth} | {one.cells} | {one.mean_error:.4g} | {100 * one.variation:.3g} |"
            for one in last.cells
        ),
        "",
    ]
    if found.categories:
        lines += [
            f"## Categories at step {last.step}: {found.label}",
            "",
            "| category | true points | released points | W1 within |",
            "|---|---:|---:|---:|",
            *(
                f"| {name} | {true} | {made} | {'' if distance is None else f'{distance.value:.4g}'} |"
                for name, true, made, distance in found.categories[:_MOST_CATEGORIES]
            ),
            "",
        ]
    return "\n".join(lines)
