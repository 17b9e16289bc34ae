"""One step's private records, as a mechanism sees them: what is granted, and nothing beyond it.

Trusted base: kernel (what a mechanism may read).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy.randomness import Exact
from dpstream.core.schema.domain import Clique

#: ``counts``: nothing but marginal counts. ``records``: the inserted records, too. ``reports``: whose they are, too.
#: ``present``: instead of what a step brings, the keyed records that are there at its end.
BatchReads = Literal["counts", "records", "reports", "present"]
#: Which records of a batch are counted: those that come less those that go, or one of the two.
Events = Literal["net", "inserts", "deletes"]


class PresentRecords(Protocol):
    """The keyed records that are present at the end of a step, each with its first step: the step that read its
    insert. Private."""

    def count(self, cliques: Sequence[Clique], after: int) -> list[Exact]:
        """Flat (C order) marginal counts of the records whose first step is later than ``after``."""
        ...

    @property
    def departed(self) -> NDArray[np.int32]:
        """First steps of the records that were present at the end of the step before and are not now; any order."""
        ...


class UndiscoveredCounts(Protocol):
    """Counts of values that no public codebook has yet. Private."""

    def of(self, column: str, after: int) -> Iterable[tuple[str, int]]:
        """Of the inserts since step ``after``, at which the last discovery epoch ended, this step's included; where
        records have keys, of those that are still present. Each value once, and how many have it."""
        ...


class PrivateBatch(Protocol):
    """One step's private records, as a mechanism sees them: what was not granted is None, as it is here."""

    __slots__ = ()

    @abstractmethod
    def count(self, cliques: Sequence[Clique], part: Events = "net") -> list[Exact]:
        """Flat (C order) marginal counts, one array of ``domain.cells(clique)`` per clique.

        ``net`` is inserts minus deletes and may be negative.
        """

    @property
    @abstractmethod
    def declares_deletes(self) -> bool:
        """Whether the batch was given deletes at all, an empty table included: a public fact of the source."""

    @property
    def records(self) -> NDArray[np.int32] | None:
        """Codes of the inserted records, shape (records, columns)."""
        return None

    @property
    def marks(self) -> NDArray[np.uint8] | None:
        """Keyed marks of the people whose ``records`` they are, shape (records, 16): ascending and different."""
        return None

    @property
    def present(self) -> PresentRecords | None:
        """What is there at the end of the step, where records have keys."""
        return None

    @property
    def undiscovered(self) -> UndiscoveredCounts | None:
        """Counts of values that no public codebook has yet, where values are discovered."""
        return None


@runtime_checkable
class CancellingBatch(Protocol):
    """A ``PrivateBatch`` that can leave out what comes and goes within it."""

    def without_cancelled(self) -> PrivateBatch:
        """Inserts without equal deletes, and deletes without equal inserts, as bags of whole rows."""
        ...
