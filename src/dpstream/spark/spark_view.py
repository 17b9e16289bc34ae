"""What a stream gets of records that stay in Spark: their counts, and their hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from dpstream.core.contracts import Events, Ungranted
from dpstream.core.errors import ConfigError
from dpstream.spark.passes import Passes

if TYPE_CHECKING:
    import numpy as np

    from dpstream.core.schema.domain import Clique


@dataclass(frozen=True, repr=False)
class SparkView(Ungranted):
    """Counts of records in Spark; a ``PrivateBatch``."""

    _passes: Passes

    def count(self, cliques: Sequence[Clique], part: Events = "net") -> list[NDArray[np.int64]]:
        """See ``PrivateBatch``. Both parts are counted in one pass, so that no reading comes after noise was drawn.

        Errors:
            DataError: the records changed since they were read first. LimitError: too many cells for the driver.
        """
        if part not in ("net", "inserts", "deletes"):
            raise ConfigError(f"unknown part {part!r}", where="count", allowed="net, inserts, deletes")
        found = self._passes.counts(cliques)
        if not self._passes.has_deletes:
            return [counts[0].copy() if part != "deletes" else 0 * counts[0] for counts in found]
        return [
            counts[0] - counts[1] if part == "net" else counts[int(part == "deletes")].copy()
            for counts in found
        ]

    @property
    def declares_deletes(self) -> bool:
        """See ``PrivateBatch``."""
        return self._passes.has_deletes


@dataclass(frozen=True, repr=False)
class SparkRows:
    """The records as a multiset; a ``BatchRows``."""

    _passes: Passes

    def fingerprint(self, key: bytes) -> bytes:
        """See ``BatchRows``. The half of ``key`` that rows are hashed with goes to the executors. The other half stays
        here; without it a stored hash says nothing."""
        return self._passes.fingerprint(key)
