"""The released people with all their periods: one table that grows, and questions about any number of periods."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError
from dpstream.families.panel.cumulative import CumulativeRelease
from dpstream.families.panel.queries import WindowQuery
from dpstream.families.panel.window import WindowAnswer, WindowRelease

_WIDER_NOTE = (
    "looks back on more periods than the synthetic people are right about in a row: it may be wrong by any amount, and "
    "the padding is still in it"
)
_CUMULATIVE_NOTE = "a cumulative panel is right about numbers of ones so far, not about when"


@dataclass
class People:
    """Synthetic people as they were released; public. Columns are added at the end, nothing is ever changed.

    >>> People().periods
    0
    """

    _last: WindowRelease | CumulativeRelease | None = None
    _columns: list[NDArray[np.uint8]] = field(default_factory=list)

    @property
    def periods(self) -> int:
        """How many periods were released."""
        return sum(columns.shape[1] for columns in self._columns)

    def add(self, release: WindowRelease | CumulativeRelease) -> None:
        """Extend everybody by the newest period.

        Errors:
            DataError: a release of another panel, one that was added before, or one after a release left out.
        """
        last = self._last
        if self.periods + release.columns.shape[1] != release.period or (
            last is not None and (last.plan != release.plan or last.people != release.people)
        ):
            raise DataError(
                f"the release of period {release.period} does not follow",
                where="panel",
                allowed=f"the releases of one panel in order; {self.periods} periods are here",
            )
        self._columns.append(release.columns)
        self._last = release

    def wide(self) -> NDArray[np.uint8]:
        """The symbols of all people, shape (people, periods): a fresh array."""
        return np.hstack(self._columns) if self._columns else np.zeros((0, 0), np.uint8)

    def long(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
        """The person (from 0), period (from 1) and symbol of every report, by person and then by period."""
        table = self.wide()
        person, period = np.indices(table.shape)
        return person.ravel(), period.ravel() + 1, table.ravel()

    def answer(self, query: WindowQuery, *, people: int | None = None) -> WindowAnswer:
        """Answer a question about the last ``query.width`` periods.

        Up to the window this is ``WindowRelease.answer``. A wider question, and any about the periods of a cumulative
        panel, is answered from the synthetic people as they are: with a note, and without errors.

        Args:
            people: as in ``WindowRelease.answer``; not used where there are no errors.

        Errors:
            ConfigError: there are fewer periods, or no such symbol. Also those of ``WindowRelease.answer``.
        """
        last = self._last
        if isinstance(last, WindowRelease):
            if query.width <= last.plan.recipe.window:
                return last.answer(query, people=people)
            return answer_wider(query, self.wide(), last.plan.recipe.symbols)
        return answer_wider(query, self.wide(), 2, _CUMULATIVE_NOTE)


def answer_wider(
    query: WindowQuery, table: NDArray[np.uint8], symbols: int, note: str = _WIDER_NOTE
) -> WindowAnswer:
    """Answer a question that the noise scales say nothing about, from the released people as they are.

    Args:
        table: their symbols, shape (people, periods).
        note: why there are no errors.

    Errors:
        ConfigError: there are fewer periods, or no such symbol.
    """
    periods = table.shape[1]
    if query.width > periods:
        raise ConfigError(
            f"the question looks back {query.width} periods",
            where="panel",
            allowed=f"up to {periods}, the periods so far",
        )
    query.check(symbols)
    count = float(query.of(table[:, -query.width :]).sum())
    share = count / len(table) if len(table) else math.nan
    return WindowAnswer(share, share, count, None, None, None, f"{query.describe()}: {note}")
