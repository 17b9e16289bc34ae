"""A release as a person sees it: in words, as a page of a notebook, and as pictures."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError, StoreDamagedError
from dpstream.core.privacy import ZCDP, Budget, PureDP
from dpstream.core.showing import notebook_page
from dpstream.io.objects import AnyPath
from dpstream.io.sinks.release_reader import as_released
from dpstream.io.sinks.simulated_errors import simulated_errors
from dpstream.stream.predecessor_cost import own_budget
from dpstream.stream.release.estimates import Estimate, Published
from dpstream.stream.release.folding import Group, fold, groups_of
from dpstream.stream.release.pictures import INK, PALETTE, QUIET, Picture, dress, figure, plain_text
from dpstream.stream.release.released_verdicts import table_measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpstream.core.schema import Column, Schema

_ROWS = 10


def spent_of(manifest: Mapping[str, Any]) -> Budget:
    """What all releases up to and including this one cost one unit of protection."""
    kind = PureDP if own_budget(manifest)["definition"] == "pure" else ZCDP
    return kind(manifest["spent"]["total"])


def release_html(manifest: Mapping[str, Any], table: Any | None) -> str:
    """A release as a notebook shows it; ``table`` is the released one as a pyarrow Table, or None."""
    facts = {
        "stream": manifest["stream"],
        "made from": manifest["holds"],
        "guarantee": manifest["guarantee"]["words"],
        "spent": spent_of(manifest),
        "errors": manifest["accuracy"].get("words"),
    }
    known = {key: value for key, value in facts.items() if value is not None}
    title = f"Release of step {manifest['step']}"
    if table is None:
        return notebook_page(title, known, below="The table is missing.")
    rows = [tuple(row.values()) for row in table.slice(0, _ROWS).to_pylist()]
    below = f"The first {len(rows)} of {table.num_rows} synthetic rows." if len(rows) < table.num_rows else ""
    return notebook_page(title, known, table.column_names, rows, below)


def estimate_html(columns: Sequence[str], cells: Any, ends: tuple[Any, Any] | None) -> str:
    """Estimated numbers of records as a notebook shows them.

    Args:
        cells: a pyarrow Table with ``columns`` and ``estimate``.
        ends: of the 95 % intervals; None where there are none.
    """
    head = [*columns, "estimate", *(() if ends is None else ("95 % from", "to"))]
    rows = [tuple(row.values()) for row in cells.slice(0, _ROWS).to_pylist()]
    shown = [(*row[:-1], f"{row[-1]:,.1f}") for row in rows]
    if ends is not None:
        low, high = (end.ravel() for end in ends)
        shown = [(*row, f"{low[i]:,.1f}", f"{high[i]:,.1f}") for i, row in enumerate(shown)]
    below = f"The first {len(rows)} of {cells.num_rows} cells." if len(rows) < cells.num_rows else ""
    return notebook_page(" x ".join(columns), {}, head, shown, below)


#: Bars of a column, and values of each of two columns; more are put together.
_BARS: Final = 12
_SQUARE: Final = 8
#: Columns that are drawn where none is named.
_MOST: Final = 12


@dataclass(frozen=True, eq=False)
class PicturedRelease:
    """What is drawn of a release.

    Attributes:
        manifest: of its step. table: the released one, as a pyarrow Table. schema: its columns.
        published: the noisy counts up to its step; None where there are none.
        folder: where errors by simulation may be; None where it is published nowhere.
    """

    manifest: dict[str, Any]
    table: Any
    schema: Schema
    published: Published | None
    folder: AnyPath | None


def draw_release(release: PicturedRelease, columns: str | Sequence[str] | None) -> Picture:
    """One column as bars, two as a map, none: up to twelve columns side by side.

    Errors:
        ConfigError: matplotlib is not installed, an unknown column, more than two, or a release without rows.
        StoreDamagedError: a table that does not fit its codebook.
    """
    there = [column.name for column in release.schema.columns if column.name in release.table.column_names]
    asked = [columns] if isinstance(columns, str) else list(columns or there[:_MOST])
    strange = [name for name in asked if name not in there]
    if strange or not asked:
        column = f" {strange[0]!r}" if strange else ""
        raise ConfigError(
            f"the released table has no column{column}",
            where="plot",
            allowed=", ".join(there) or "a release of records",
        )
    if columns is not None and (len(asked) > 2 or len(set(asked)) < len(asked)):
        raise ConfigError(f"{len(asked)} columns are named", where="plot", allowed="one, two or none")
    if not release.table.num_rows:
        raise ConfigError("the released table has no rows", where="plot", allowed="a release with rows")
    if columns is not None and len(asked) == 2:
        return _map(release, asked)
    down = math.ceil(len(asked) / 2)
    with figure(7.0 if len(asked) > 1 else 5.5, 0.5 + 2.9 * down) as made:
        axes = made.subplots(down, min(2, len(asked)), squeeze=False).ravel()
        notes: dict[str, list[str]] = {}
        for one, name in itertools.zip_longest(axes, asked):
            if name is None:
                one.set_visible(False)
            else:
                notes.setdefault(_bars(one, release, name), []).append(plain_text(name))
        _note(made, notes)
        made.suptitle(_title(release), x=0.01, ha="left", color=QUIET, fontsize=10)
        return Picture(made)


def _title(release: PicturedRelease) -> str:
    manifest = release.manifest
    return plain_text(
        f"{manifest['stream']}: synthetic data of step {manifest['step']}, {manifest['holds']}", 110
    )


def _note(made: Figure, notes: Mapping[str, Sequence[str]]) -> None:
    """What the lines are, once, below all bars; by column where it is not the same of all."""
    sentences = [note if len(notes) == 1 else f"{', '.join(names)}: {note}" for note, names in notes.items()]
    wide = round(14 * made.get_figwidth())
    lines = [line for text in sentences for line in textwrap.wrap(text, wide)]
    made.supxlabel("\n".join(lines), x=0.01, ha="left", color=QUIET, fontsize=9)
    made.set_figheight(made.get_figheight() + 0.17 * len(lines))


def _codes(release: PicturedRelease, name: str) -> tuple[Column, NDArray[np.int32]]:
    column = release.schema.columns[release.schema.names.index(name)]
    return column, codes_of(column, release.table)


def codes_of(column: Column, table: Any) -> NDArray[np.int32]:
    """The codes of a column of a released table.

    Errors:
        StoreDamagedError: the table does not fit its codebook.
    """
    try:
        return as_released(column).encode(table.column(column.name))
    except DataError:
        raise StoreDamagedError(
            "the table holds values outside of its codebook", where=f"column {column.name!r}"
        ) from None


def _bars(axes: Axes, release: PicturedRelease, name: str) -> str:
    """Draw a column, and say what its lines are."""
    column, codes = _codes(release, name)
    counts = np.bincount(codes, minlength=column.size)
    groups = groups_of(column, column.labels(), counts, _BARS)
    values = fold(counts.astype(np.float64), groups)
    middles, widths, how = _errors(release, name, groups, values)
    places = np.arange(len(groups))[::-1]
    axes.barh(places, values, 0.72, color=PALETTE[0], alpha=0.85)
    if widths is not None:
        axes.errorbar(middles, places, xerr=widths, fmt="none", ecolor=INK, elinewidth=1.1, capsize=2.5)
    dress(axes, x="records", y="", title=plain_text(name))
    axes.set_yticks(places, [plain_text(group.label) for group in groups])
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color="#ececec", linewidth=0.8, zorder=0)
    left = 0.0 if widths is None else min(0.0, float(np.min(middles - widths)))
    # Room for the cap of a line that begins below 0.
    axes.set_xlim(left=left - 0.03 * (axes.get_xlim()[1] - left) if left < 0 else 0.0)
    return how


def _errors(
    release: PicturedRelease, name: str, groups: Sequence[Group], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None, str]:
    """Middles and half widths of 95 % intervals, and what they are; no widths where none are known of this step."""
    masks = []
    for group in groups:
        mask = np.zeros(release.schema.columns[release.schema.names.index(name)].size, dtype=bool)
        mask[list(group.codes)] = True
        masks.append(mask)
    step = int(release.manifest["step"])
    found = None if release.published is None else release.published.estimate([name])
    # Old measurements give no error of a present count.
    fresh = (step, table_measured(release.manifest)[0])
    if isinstance(found, Estimate) and found.as_of in fresh:
        sums = np.array([found.values[mask].sum() for mask in masks])
        widths = np.array([found.law(mask).half_width(0.95) for mask in masks])
        told = (
            f"Lines: counts measured up to step {found.as_of}, with exact 95 % intervals. Bars: released counts, "
            "which combine several and may end outside."
        )
        return sums, widths, told
    simulated = None if release.folder is None else simulated_errors(release.folder, step)
    if simulated is not None:
        errors = [simulated.of_question([name], mask) for mask in masks]
        known = [error.half_width(0.95) for error in errors if error is not None]
        if len(known) == len(errors):
            return values, np.array(known), "Lines: 95 % intervals of the released counts, by simulation."
    return values, None, "The errors of the released counts are not known."


def _map(release: PicturedRelease, names: Sequence[str]) -> Picture:
    (one, first), (other, second) = (_codes(release, name) for name in names)
    counts = np.zeros((one.size, other.size))
    np.add.at(counts, (first, second), 1.0)
    rows = groups_of(one, one.labels(), counts.sum(axis=1).astype(np.int64), _SQUARE)
    columns = groups_of(other, other.labels(), counts.sum(axis=0).astype(np.int64), _SQUARE)
    shares = 100.0 * fold(counts, rows, columns) / counts.sum()
    with figure(max(5.5, 1.8 + 0.62 * len(columns)), 1.6 + 0.42 * len(rows)) as made:
        axes = made.subplots()
        axes.pcolormesh(shares[::-1], cmap="Blues", vmin=0.0, edgecolors="white", linewidth=1.5)
        top = float(shares.max())
        for i, j in itertools.product(range(len(rows)), range(len(columns))):
            axes.text(
                j + 0.5,
                len(rows) - i - 0.5,
                f"{shares[i, j]:.1f}",
                ha="center",
                va="center",
                fontsize=8,
                color="white" if shares[i, j] > 0.6 * top else INK,
            )
        dress(axes, x=plain_text(names[1]), y=plain_text(names[0]), title="Percent of the rows")
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.set_xticks(
            np.arange(len(columns)) + 0.5, [plain_text(g.label, 12) for g in columns], rotation=35, ha="right"
        )
        axes.set_yticks(np.arange(len(rows))[::-1] + 0.5, [plain_text(g.label) for g in rows])
        made.suptitle(_title(release), x=0.01, ha="left", color=QUIET, fontsize=10)
        return Picture(made)
