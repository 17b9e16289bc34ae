"""What every source promises to the program that takes its steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from dpstream.core.errors import StepError
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.step import StepInput

__all__ = ["Source", "check_start"]


def check_start(start_step: int) -> None:
    """Refuse a first step below 1 (StepError)."""
    if start_step < 1:
        raise StepError(f"there is no step {start_step}", where="source", allowed="1 or more")


class Source(ABC):
    """Private records, step by step. Which step a record belongs to depends on that record and on public facts.

    Attributes:
        options: the ``[source]`` table.
        broken: how many of the records read so far could not be taken apart (``options.broken`` says what became of
            them). Private: for the owner's terminal only.
    """

    options: SourceOptions
    broken: int = 0

    @property
    @abstractmethod
    def position(self) -> dict[str, int]:
        """How far it was read, as of the step handed out last. Private: it is kept with the step."""

    @abstractmethod
    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """The steps from ``start_step`` on that are due.

        Args:
            start_step: first step that is not released yet.
            seen: ``position`` as saved with the last released step.
            key: secret key for fingerprints in ``position``.
        """

    def committed(self, position: Mapping[str, int]) -> None:  # noqa: B027 - most sources keep nothing back
        """The step that was saved with ``position`` is durable: what it needed need not be kept for us."""

    def resume(self, step: int, position: Mapping[str, int]) -> None:  # noqa: B027 - most sources read as before
        """Before ``steps``: a reading that was stopped had handed out ``step`` at ``position``; read it as it was
        then, whatever came in between."""

    def signature(self) -> Any:
        """Something cheap that changes when there may be new records; None where only reading tells."""
        return None
