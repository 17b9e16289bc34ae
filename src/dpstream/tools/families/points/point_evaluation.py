"""A point stream's releases against the private points, step by step. For the owner's eyes only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpstream.core.errors import ConfigError
from dpstream.tools.evaluate.array_types import Codes
from dpstream.tools.evaluate.called import EvaluationProgress
from dpstream.tools.evaluate.evaluation import choose_steps
from dpstream.tools.evaluate.label import LABEL
from dpstream.tools.evaluate.prediction import SEED
from dpstream.tools.evaluate.run_folder import releases_of, thin
from dpstream.tools.families.points.point_releases import PointRun, collect_points
from dpstream.tools.families.points.point_truth import true_codes, uniform_places
from dpstream.tools.families.points.transport import Distance, w1

if TYPE_CHECKING:
    from dpstream.project import Config

#: Steps that are evaluated where none are asked for.
_STEPS = 12
#: Categories whose own distances are computed, the largest first.
MOST_CATEGORIES_COMPARED = 12


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
        floor, floor_cells: at the last step, distance and errors of cells of two samples of the true points.
        categories: at the last step: name, true and released number, and W1 within the category (None where one of the
            two is empty); the largest first.
    """

    stream: str
    guarantee: str
    steps: tuple[PointStep, ...]
    released: int
    categories: tuple[tuple[str, int, int, Distance | None], ...]
    floor: Distance
    floor_cells: tuple[CellError, ...]
    label: str = field(default=LABEL, init=False)


def evaluate_points(
    config: Config,
    *,
    releases: Path | None = None,
    steps: Sequence[int] | None = None,
    every: int | None = None,
    progress: EvaluationProgress | None = None,
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
        floor=w1(run.view.places(one), run.view.places(other), periodic=run.view.periodic),
        floor_cells=_cell_errors(run, one, other, last.depth),
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


def _categories(run: PointRun, true: Codes) -> tuple[tuple[str, int, int, Distance | None], ...]:
    view, made = run.view, run.tables[-1].codes
    if not view.categorical:
        return ()
    many = view.space.categories
    theirs, ours = view.categories(true), view.categories(made)
    counts, released = (np.bincount(which, minlength=many) for which in (theirs, ours))
    order = np.argsort(-counts, kind="stable")
    found = []
    for rank, category in enumerate(order.tolist()):
        distance = None
        if rank < MOST_CATEGORIES_COMPARED and counts[category] and released[category]:
            pair = (view.places(true[theirs == category]), view.places(made[ours == category]))
            distance = w1(*pair, periodic=view.periodic)
        found.append((view.category_name(category), int(counts[category]), int(released[category]), distance))
    return tuple(found)
