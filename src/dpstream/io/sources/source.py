"""The contract of all sources."""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from dpstream.core.errors import StepError
from dpstream.io.sources.calendar import Grid
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.step import StepInput


def check_start(start_step: int) -> None:
    """Check that the first step is at least 1 (StepError)."""
    if start_step < 1:
        raise StepError(f"there is no step {start_step}", where="source", allowed="a step from 1 on")


class Source(ABC):
    """Private records, step by step.

    Guarantee: the step of a record depends on that record and on public facts.

    Attributes:
        options: the ``[source]`` table.
        ignored: names of columns that records may have and that are not read.
    """

    options: SourceOptions
    ignored: frozenset[str] = frozenset()

    @property
    def position(self) -> dict[str, int]:
        """How far the source had read when it handed out the last step, as JSON values. Private: kept with the step.

        Empty where the source does not read on from a position.
        """
        return {}

    @abstractmethod
    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """The steps from ``start_step`` on that are due.

        Args:
            start_step: first step that is not released yet.
            seen: ``position`` as saved with the last released step.
            key: secret key for fingerprints in ``position``, the same at every reading.

        Errors:
            StepError: ``start_step`` is below 1, or ``seen`` does not fit the source.
            DataError: the records cannot be read. UnreadableError: not now; perhaps later.
        """

    def committed(self, position: Mapping[str, int]) -> None:  # noqa: B027 - most sources keep nothing back
        """Called when the step that was saved with ``position`` is durable; the source may forget what it needed."""

    def resume(self, step: int, position: Mapping[str, int]) -> None:  # noqa: B027 - most sources read as before
        """Called before ``steps`` after an interrupted reading, which had handed out ``step`` at ``position``. The
        source gives this step as it was then, without what came in between."""

    def signature(self) -> Any:
        """A value, cheap to compute, that changes when there may be new records; None where only reading can tell."""
        return None


class PeriodSource(Source):
    """A source that can be asked for the records of any period again, as databases can."""

    #: The day that decides which periods are over; None: that of the options' clock.
    _today: datetime.date | None = None

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``."""
        check_start(start_step)
        return self._read(*self.options.due(self._today or self.options.clock()), start_step)

    @abstractmethod
    def _read(self, grid: Grid, last: int, first: int) -> Iterator[StepInput]:
        """The steps from ``first`` to ``last``."""
