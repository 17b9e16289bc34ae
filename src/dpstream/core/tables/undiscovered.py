"""Values that no public codebook has yet, of the columns whose values are discovered: what a step counts of them.

Only inserts are counted, after admission, and only values that may enter (``Categorical.undiscovered``). Which records
are admitted, and whether a batch comes again, depends on the values themselves, and not only on the code of ``other``.

Trusted base: kernel (holds private values).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Events, PrivateBatch
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.randomness import Exact
from dpstream.core.schema import arrow
from dpstream.core.schema.discrete import Categorical
from dpstream.core.schema.domain import Clique, Mask
from dpstream.core.schema.encoded_table import EncodedTable
from dpstream.core.tables.contribution import hash_ids, owner_words

if TYPE_CHECKING:
    from dpstream.core.schema import Schema

#: Of each column: the different texts, and how many records have each.
Counts = tuple[tuple[Any, NDArray[np.int64]], ...]
#: The counts of a column over a discovery epoch: each value once.
Counted = Iterable[tuple[str, int]]


@dataclass(frozen=True, repr=False)
class Undiscovered:
    """The undiscovered values of some records. Private.

    Attributes:
        texts: of each open column, each value once. places: which of them each record has; -1: none.
    """

    texts: tuple[Any, ...]
    places: tuple[NDArray[np.int32], ...]

    @classmethod
    def of(cls, frame: Any, schema: Schema, where: str) -> Undiscovered | None:
        """Those of a frame of records; None where no column of the schema is open.

        Errors:
            ConfigError: the records are there as codes, so that the values are gone.
        """
        columns = schema.open_columns
        if not columns:
            return None
        if frame is None:
            frame = {name: [] for name in columns}
        if isinstance(frame, np.ndarray | EncodedTable):
            raise ConfigError(
                f"the values of {', '.join(columns)} are discovered: records as codes lack them",
                where=where,
                allowed="records with their values",
            )
        table = arrow.to_table(frame, where)
        found = [
            column.undiscovered(table.column(column.name), schema.null_values)
            for column in schema.columns
            if isinstance(column, Categorical) and column.is_open
        ]
        return cls(*map(tuple, zip(*found, strict=True)))

    def words(self, key: bytes) -> NDArray[np.int64] | None:
        """Two integers a column for each record: keyed hashes of its values; zeros where it has none."""
        parts = []
        for texts, places in zip(self.texts, self.places, strict=True):
            hashes = np.zeros((len(texts) + 1, 2), np.int64)
            hashes[:-1] = owner_words(hash_values(texts, key))
            parts.append(hashes[places])
        return np.concatenate(parts, axis=1) if parts else None

    def counts(self, admitted: Mask | None = None) -> Counts:
        """How many of the (admitted) records have each value; values of none are left out."""
        import pyarrow as pa

        found = []
        for texts, places in zip(self.texts, self.places, strict=True):
            chosen = places if admitted is None else places[admitted]
            counts = np.bincount(chosen[chosen >= 0], minlength=len(texts)).astype(np.int64)
            found.append((texts.filter(pa.array(counts > 0)), counts[counts > 0]))
        return tuple(found)


def hash_values(texts: Any, key: bytes) -> NDArray[np.uint64]:
    """The keyed hashes of texts, two words each."""
    import pyarrow as pa

    return hash_ids(texts.cast(pa.large_binary()), key, b"value")


@dataclass(frozen=True, repr=False)
class EpochCounts:
    """What a batch adds to its discovery epoch, and what the whole epoch then holds. Private.

    Attributes:
        columns: names of the open columns. added: by this batch. whole: the counts of a column with those before.
    """

    columns: Sequence[str]
    added: Counts
    whole: Callable[[int, Counts], Counted] | None = None

    def of(self, column: str) -> Counted:
        """All counts of a column in the open discovery epoch, this batch's included."""
        assert self.whole is not None
        return self.whole(self.columns.index(column), self.added)


class DiscoveringBatch(PrivateBatch):
    """A batch that grants counts of undiscovered values, too."""

    __slots__ = ("_batch", "_undiscovered")

    def __init__(self, batch: PrivateBatch, undiscovered: EpochCounts) -> None:
        self._batch, self._undiscovered = batch, undiscovered

    def count(self, cliques: Sequence[Clique], part: Events = "net") -> list[Exact]:
        """See ``PrivateBatch``."""
        return self._batch.count(cliques, part)

    @property
    def declares_deletes(self) -> bool:
        return self._batch.declares_deletes

    @property
    def undiscovered(self) -> EpochCounts:
        """See ``PrivateBatch``."""
        return self._undiscovered

    def within(self, whole: Callable[[int, Counts], Counted]) -> DiscoveringBatch:
        """The same, with what the epoch held before."""
        own = self._undiscovered
        return DiscoveringBatch(self._batch, EpochCounts(own.columns, own.added, whole))
