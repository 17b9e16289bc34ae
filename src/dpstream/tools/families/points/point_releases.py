"""What a report about a point stream is made of: its public folder, and the private points if their owner asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpstream.core.errors import ConfigError, InputError, StoreDamagedError
from dpstream.core.privacy import PureDP
from dpstream.families.points.points_plan import Points
from dpstream.io.sinks import read_table, released_schema
from dpstream.tools.evaluate.array_types import Codes
from dpstream.tools.evaluate.run_folder import Folder, Told, thin
from dpstream.tools.families.points.point_truth import true_codes, uniform_places
from dpstream.tools.families.points.point_view import PointView
from dpstream.tools.families.points.transport import Distance, w1

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.project import Config

#: Tables that are read: points are many, and pictures few.
MOST_TABLES = 8
#: For the distances of a page: samples, and how many.
_SAMPLE, _REPEATS = 500, 4


@dataclass(frozen=True, eq=False)
class PointTable:
    """One released table: its records as codes, the depth of their partition, and how many points the step had."""

    step: int
    points: int
    codes: Codes
    depth: int


@dataclass(frozen=True, eq=False)
class PointRun(Told):
    """Everything public that the page of a point stream shows.

    Attributes:
        releases: the folder. config: the configuration, if it was named.
        view: how records are read.
        tables: of a few steps, evenly spaced with the first and the last; the first one with points of all.
        partition: of each of ``shown``: depth, and the number of cells.
    """

    releases: Path
    config: Config | None
    view: PointView
    tables: tuple[PointTable, ...]
    partition: tuple[tuple[int, int], ...]

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self.view.schema


@dataclass(frozen=True, eq=False, repr=False)
class PointTruth:
    """Private: the true records at each of a run's tables, and how far these and uniform points are from them."""

    codes: tuple[Codes, ...]
    distances: tuple[Distance, ...]
    uniform: tuple[Distance, ...]


def collect_points(folder: Folder, steps: Sequence[int] | None = None) -> PointRun:
    """Read the manifests and some tables of a point stream. Reads nothing private.

    Args:
        steps: whose tables; by default a few, evenly spaced with the first and the last.

    Errors:
        StoreDamagedError, StoreFormatError: files that differ from their published hashes, or cannot be read.
    """
    view = released_view(folder)
    tables = []
    for step in thin(folder.readable, MOST_TABLES) if steps is None else steps:
        depth = _partition(folder, step)[0]
        try:
            codes = view.schema.encode(read_table(folder.releases, step), where=f"the table of step {step}")
        except InputError as error:
            raise StoreDamagedError(
                f"the table of step {step} does not fit the codebook: {error.what}",
                where=str(folder.releases),
            ) from None
        if len(codes):
            points = int(folder.manifest_of(step)["rows"])
            tables.append(PointTable(step, points, codes, depth))
    partition = tuple(_partition(folder, step) for step in folder.steps)
    return PointRun(
        folder.manifest,
        folder.states,
        folder.facts(),
        folder.releases,
        folder.config,
        view,
        tuple(tables),
        partition,
    )


def released_view(folder: Folder) -> PointView:
    """How records are read, from the codebook and the manifest's options alone.

    Errors:
        StoreDamagedError: these do not fit each other.
    """
    schema, manifest = released_schema(folder.releases, folder.manifest), folder.manifest
    try:
        options = manifest["mechanism"]["options"]
        recipe = Points(
            schema,
            options["variant"],
            options["max_depth"],
            tuple(options["log"]),
            tuple(options["periodic"]),
        )
        plan = recipe.calibrate(PureDP.of(manifest["guarantee"]["epsilon"]))
    except (InputError, KeyError, TypeError, ValueError):
        raise StoreDamagedError(
            "the manifest's options do not fit the columns", where=str(folder.releases)
        ) from None
    return PointView(plan.reading, plan.space)


def _partition(folder: Folder, step: int) -> tuple[int, int]:
    try:
        entry = folder.manifest_of(step)["accuracy"]["points"]
        return int(entry["depth"]), int(entry["cells"])
    except (KeyError, TypeError, ValueError):
        raise StoreDamagedError(
            f"the manifest of step {step} does not tell its partition", where=str(folder.releases)
        ) from None


def collect_point_truth(run: PointRun) -> PointTruth:
    """The private points at the step of every table that was read, and their distances.

    Guarantee: none; the result is private.

    Cost: reads the data once; some seconds for each table.

    Errors:
        ConfigError: a run without any table.
        StepError: data that end before the releases do. DataError, SchemaError: data that do not fit.
    """
    assert run.config is not None
    if not run.tables:
        raise ConfigError("no release has a table to compare with", where=str(run.releases))
    codes = true_codes(run.config, run.view, {one.step: one.points for one in run.tables})
    found: list[Distance] = []
    even: list[Distance] = []
    for table, own in zip(run.tables, codes, strict=True):
        true = run.view.places(own)
        for where, other in ((found, run.view.places(table.codes)), (even, uniform_places(*true.shape))):
            where.append(w1(true, other, periodic=run.view.periodic, sample=_SAMPLE, repeats=_REPEATS))
    return PointTruth(tuple(codes), tuple(found), tuple(even))
