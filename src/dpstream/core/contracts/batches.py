"""What a mechanism reads of a private batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema.domain import Clique

#: ``counts``: nothing but marginal counts. ``records``: the inserted records, too. ``reports``: whose they are, too.
#: ``present``: instead of what a step brings, the keyed records that are there at its end.
BatchReads = Literal["counts", "records", "reports", "present"]
#: Which records of a batch are counted: those that come less those that go, or one of the two.
Events = Literal["net", "inserts", "deletes"]


class PresentRecords(Protocol):
    """The keyed records that are present at the end of a step, each with its first step: the step that read its
    insert. Private."""

    def count(self, cliques: Sequence[Clique], after: int) -> list[NDArray[np.int64]]:
        """Flat (C order) marginal counts of the records whose first step is later than ``after``."""
        ...

    @property
    def departed(self) -> NDArray[np.int32]:
        """First steps of the records that were present at the end of the step before and are not now; any order."""
        ...


class PrivateBatch(Protocol):
    """One step's private records, as a mechanism sees them: what was not granted is None."""

    def count(self, cliques: Sequence[Clique], part: Events = "net") -> list[NDArray[np.int64]]:
        """Flat (C order) marginal counts, one array of ``domain.cells(clique)`` per clique.

        ``net`` is inserts minus deletes and may be negative.
        """
        ...

    @property
    def declares_deletes(self) -> bool:
        """Whether the batch was given deletes at all, an empty table included: a public fact of the source."""
        ...

    @property
    def records(self) -> NDArray[np.int32] | None:
        """Codes of the inserted records, shape (records, columns)."""
        ...

    @property
    def marks(self) -> NDArray[np.uint8] | None:
        """Keyed marks of the people whose ``records`` they are, shape (records, 16): ascending and different."""
        ...

    @property
    def present(self) -> PresentRecords | None:
        """What is there at the end of the step, where records have keys."""
        ...


class BatchBase:
    """Base of a ``PrivateBatch``: nothing beside its counts is granted but what a subclass grants."""

    __slots__ = ()

    @property
    def records(self) -> NDArray[np.int32] | None:
        """None: the records are not granted."""
        return None

    @property
    def marks(self) -> NDArray[np.uint8] | None:
        """None: whose records they are is not granted."""
        return None

    @property
    def present(self) -> PresentRecords | None:
        """None: the records have no keys, or what is present is not granted."""
        return None


@runtime_checkable
class CancellingBatch(Protocol):
    """A ``PrivateBatch`` that can leave out what comes and goes within it."""

    def without_cancelled(self) -> PrivateBatch:
        """Inserts without equal deletes, and deletes without equal inserts, as bags of whole rows."""
        ...
