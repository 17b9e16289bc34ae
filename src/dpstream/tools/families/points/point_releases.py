"""What a report about a point stream is made of: its public folder.

Trusted base: owner (compares with the private points).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstream.core.errors import InputError, StepError, StoreDamagedError, unreadable
from dpstream.core.privacy import PureDP
from dpstream.core.schema import Schema
from dpstream.core.schema.fine import FineColumn
from dpstream.families.points.points_plan import Points
from dpstream.families.points.space import Space
from dpstream.io.sinks import released_schema
from dpstream.tools.evaluate.array_types import Codes, Floats, Ints
from dpstream.tools.evaluate.run_folder import Folder, PublishedRun, released_codes, thin
from dpstream.tools.evaluate.true_table import encoded_steps, source_ended

if TYPE_CHECKING:
    from dpstream.project import Config


@dataclass(frozen=True)
class PointView:
    """How codes are read: ``schema`` has a fine column for each coordinate, ``space`` its partition."""

    schema: Schema
    space: Space

    @cached_property
    def _axes(self) -> tuple[list[int], list[int]]:
        """The columns that are coordinates, in the order of the cube's, and the categorical ones."""
        first = np.array(self.space.categorical)
        return np.flatnonzero(~first).tolist(), np.flatnonzero(first).tolist()

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates, in the order of the cube's."""
        return tuple(self.schema.names[axis] for axis in self._axes[0])

    @property
    def categorical(self) -> tuple[str, ...]:
        """Names of the categorical columns."""
        return tuple(self.schema.names[axis] for axis in self._axes[1])

    def _fine(self, coordinate: int) -> FineColumn:
        column = self.schema.columns[self._axes[0][coordinate]]
        assert isinstance(column, FineColumn)
        return column

    @property
    def periodic(self) -> tuple[int, ...]:
        """Coordinates that are circles."""
        return tuple(place for place in range(self.space.dimension) if self._fine(place).periodic)

    def places(self, codes: Codes) -> Floats:
        """Middles of the records' parts, shape (records, coordinates), from 0 to 1 on each column's own scale."""
        axes = self._axes[0]
        places: Floats = (codes[:, axes] + 0.5) / np.array(self.space.sizes)[axes]
        return places

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(self.space.sizes[axis] for axis in self._axes[1])

    def categories(self, codes: Codes) -> Ints:
        """The number of each record's combination of categorical values; 0 for all where there are none."""
        if not self._shape:
            return np.zeros(len(codes), np.int64)
        return np.asarray(np.ravel_multi_index(tuple(codes[:, self._axes[1]].T), self._shape), np.int64)

    def category_name(self, category: int) -> str:
        """What people call a combination of categorical values, by its number."""
        if not self._shape:
            return ""
        codes = np.unravel_index(category, self._shape)
        return ", ".join(
            self.schema.columns[axis].labels()[int(code)]
            for axis, code in zip(self._axes[1], codes, strict=True)
        )

    def scale_words(self, coordinate: int) -> str:
        """What is special about a coordinate's scale, for people; empty for most."""
        column = self._fine(coordinate)
        return " (logarithmic)" if column.scale == "log" else " (a circle)" if column.periodic else ""

    def parts(self, coordinate: int, wanted: int) -> int:
        """Into how many parts a picture cuts a coordinate: one for each value where there are few, else ``wanted``."""
        size = self._fine(coordinate).size
        return size if size <= 2 * wanted else wanted

    def ends(self, coordinate: int) -> tuple[str, str]:
        """The first and the last value of a coordinate, as text."""
        low, high = self._values(coordinate)
        if isinstance(low, float):
            return _rounded(low, high - low), _rounded(high, high - low)
        return str(low), str(high)

    def _values(self, coordinate: int) -> tuple[Any, Any]:
        axis = self._axes[0][coordinate]
        codes = np.zeros((2, len(self.schema)), np.int32)
        codes[1, axis] = self.space.sizes[axis] - 1
        low, high = self.schema.decode(codes, 0).column(axis).to_pylist()
        return low, high


def _rounded(value: float, span: float) -> str:
    """A number as precise as a thousandth of the span.

    >>> _rounded(-73.9999999, 0.5), _rounded(3e-10, 1.0), _rounded(999999.9999, 1e6)
    ('-74', '0', '1,000,000')
    """
    digits = 3 - math.floor(math.log10(span))
    near = round(value, digits) + 0.0  # no -0
    return f"{near:,.{max(0, digits)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{near:,.0f}"


#: Tables that are read: points are many, and pictures few.
MAX_TABLES = 8


@dataclass(frozen=True, eq=False)
class PointTable:
    """One released table: how many points its step had, the depth of their partition, and its records as codes."""

    step: int
    points: int
    depth: int
    codes: Codes


@dataclass(frozen=True, eq=False)
class PointRun(PublishedRun):
    """Everything public that the page of a point stream shows.

    Attributes:
        view: how records are read.
        tables: of a few steps, evenly spaced with the first and the last; the first one with points of all.
    """

    view: PointView
    tables: tuple[PointTable, ...]


def collect_points(folder: Folder, steps: Sequence[int] | None = None) -> PointRun:
    """Read the manifests and some tables of a point stream. Reads nothing private.

    Args:
        steps: whose tables; by default a few, evenly spaced with the first and the last.

    Errors:
        StoreDamagedError, StoreFormatError: files that differ from their published hashes, or cannot be read.
    """
    view = released_view(folder)
    tables = []
    for step in thin(folder.readable, MAX_TABLES) if steps is None else steps:
        codes = released_codes(view.schema, folder.releases, step)
        if len(codes):
            tables.append(PointTable(step, *_size(folder, step), codes))
    return PointRun(folder.manifest, folder.states, folder.facts(), view, tuple(tables))


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


def _size(folder: Folder, step: int) -> tuple[int, int]:
    """How many points a release has, and the depth of its partition."""
    manifest = folder.manifest_of(step)
    with unreadable(f"the manifest of step {step} lacks its partition", str(folder.releases)):
        return int(manifest["rows"]), int(manifest["accuracy"]["points"]["depth"])


# The true points of a stream, step by step, as it was fed them. Private: for evaluation only.


def true_codes(config: Config, view: PointView, released: Mapping[int, int]) -> list[Codes]:
    """All records up to each of some steps, as codes of ``view``; private.

    Args:
        released: the steps, and how many points their releases say there were, which is public.

    Errors:
        ConfigError: records that can be read only once. StepError: a source that ends before the last of these
        steps, or has other numbers of records than the run read.
        DataError, SchemaError: files that cannot be read, or records that do not fit.

    Guarantee: none. Cost: one pass over the source; the records once for each of the steps.
    """
    parts, found, at = [], [], 0
    for entry, _, came, _ in encoded_steps(config, schema=view.schema):
        parts.append(came)
        at = entry.step
        if at in released:
            found.append(np.concatenate(parts))
            # Late records may have been released in another step than the one of their time.
            if config.source_options.late == "error" and len(found[-1]) != released[at]:
                raise StepError(
                    f"the source differs up to step {at}",
                    where="source",
                    allowed="the run's data",
                )
        if at == max(released):
            return found
    raise source_ended(at, max(released))
