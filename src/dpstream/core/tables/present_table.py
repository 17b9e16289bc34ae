"""The keyed records that are present at the end of a step, with the step that read each insert.

Trusted base: kernel (holds the records that are present).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PresentRecords, PrivateBatch, UndiscoveredCounts
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy.randomness import Exact
from dpstream.core.schema import Clique, CodeBlocks, Domain, Schema
from dpstream.core.tables.counting import add_counts, check_codes, count_plan, split
from dpstream.core.tables.undiscovered import PresentTexts

#: A key is a keyed hash of 16 bytes: two words, of which the first one sorts first.
KEY_WORDS = 2
#: Rows whose codes are widened for counting at once.
_BLOCK_ROWS = 2**18

Keys = NDArray[np.uint64]
Codes = NDArray[np.int32]


@dataclass(frozen=True, repr=False)
class KeyedChanges:
    """What one step changes: what each key that it names is at the step's end. Private.

    Attributes:
        keys: hashed keys, shape (changes, 2): ascending and different.
        present: whether the key is present at the end of the step.
        codes: values of those that are present (in their order), shape (present, columns).
        texts: what codes of texts stand for, those of the table before included; None: no value is discovered.
    """

    keys: Keys
    present: NDArray[np.bool_]
    codes: Codes
    texts: PresentTexts | None = None


@dataclass(frozen=True, repr=False, eq=False)
class PresentTable:
    """The present records; immutable, so that a step that fails leaves the committed one as it was. Private.

    Attributes:
        domain: the public domain of the codes.
        keys: hashed keys, shape (records, 2): ascending and different.
        first: the step that read each record's insert.
        codes: in the smallest integer type that holds them, shape (records, columns), column-major.
        texts: what codes of texts stand for; None: no value is discovered.

    Memory: 20 bytes a record beside its codes.
    """

    domain: Domain
    keys: Keys
    first: NDArray[np.int32]
    codes: NDArray[np.integer]
    texts: PresentTexts | None = None

    @classmethod
    def empty(cls, domain: Domain, texts: PresentTexts | None = None) -> Self:
        """No record."""
        kind = np.int32 if texts is not None else _smallest(domain)
        codes = np.zeros((0, len(domain.sizes)), kind, order="F")
        return cls(domain, np.zeros((0, KEY_WORDS), np.uint64), np.zeros(0, np.int32), codes, texts)

    def __len__(self) -> int:
        return len(self.first)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(columns={self.domain.names!r}, records hidden)"

    def under(self, schema: Schema) -> PresentTable:
        """The same records under a codebook that may have more values."""
        if self.texts is None:
            return self
        return replace(self, domain=schema.domain, texts=PresentTexts.of(schema, self.texts.texts))

    def find(self, keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Where each key is, or would be, and whether it is there. Any order of keys."""
        return search_keys(self.keys, keys)

    def after(self, changes: KeyedChanges, step: int) -> tuple[PresentTable, NDArray[np.int32]]:
        """The table after a step, and the first steps of the records that left at it.

        A key that was present and still is keeps its first step, whatever happened to it in between. One that was
        absent and still is leaves no trace.

        Errors:
            DataError: keys that do not ascend, or codes outside the domain.

        Cost: linear in the records and the changes.
        """
        texts = changes.texts
        codes = changes.codes if texts is None else texts.public(changes.codes)
        check_codes(codes, self.domain, "present records")
        _check_ascending(changes.keys)
        place, there = self.find(changes.keys)
        gone = there & ~changes.present
        stays = there & changes.present
        comes = ~there & changes.present
        row_of_change = np.cumsum(changes.present) - 1
        kept = np.ones(len(self), np.bool_)
        kept[place[gone]] = False
        departed = self.first[place[gone]]
        # Where the kept rows and the new ones go: both ascend already.
        before_new = np.searchsorted(place[comes], np.arange(len(self)), side="right")
        kept_before = np.concatenate([[0], np.cumsum(kept)])
        target = kept_before[:-1] + before_new
        target_old, target_changed = target[kept], target[place[stays]]
        target_new = kept_before[place[comes]] + np.arange(int(comes.sum()))
        size = len(target_old) + len(target_new)
        keys = np.empty((size, KEY_WORDS), np.uint64)
        first = np.empty(size, np.int32)
        merged = np.empty((size, self.codes.shape[1]), self.codes.dtype, order="F")
        keys[target_old], keys[target_new] = self.keys[kept], changes.keys[comes]
        first[target_old], first[target_new] = self.first[kept], step
        for column in range(merged.shape[1]):
            merged[target_old, column] = self.codes[kept, column]
            merged[target_changed, column] = changes.codes[row_of_change[stays], column]
            merged[target_new, column] = changes.codes[row_of_change[comes], column]
        held = None if texts is None else texts.used_by(merged)
        return PresentTable(self.domain, keys, first, merged, held), departed

    def count(self, cliques: Sequence[Clique], after: int) -> list[Exact]:
        """Flat marginal counts of the records whose first step is later than ``after``; see ``PresentRecords``.

        Errors:
            ConfigError: an unknown clique. LimitError: too many cells.
        """
        plan = count_plan(self.domain, tuple(cliques))
        out = np.zeros(plan.cells, np.int64)
        rows = np.flatnonzero(self.first > after)
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = np.asfortranarray(self.codes[rows[start : start + _BLOCK_ROWS]].astype(np.int32))
            if self.texts is not None:
                block = self.texts.public(block)
            add_counts(plan, CodeBlocks(len(self.domain), [block]), 1, out)
        return split(plan, out)


@dataclass(frozen=True, repr=False, eq=False)
class PresentView:
    """A table at the end of a step, and who left at it; ``PresentRecords``."""

    table: PresentTable
    departed: NDArray[np.int32]

    def count(self, cliques: Sequence[Clique], after: int) -> list[Exact]:
        """See ``PresentTable.count``."""
        return self.table.count(cliques, after)

    def of(self, column: str, after: int) -> Iterable[tuple[str, int]]:
        """See ``UndiscoveredCounts``."""
        table = self.table
        assert table.texts is not None
        return table.texts.counts(table.domain.index(column), table.codes[table.first > after])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(columns={self.table.domain.names!r}, records hidden)"


@dataclass(frozen=True, eq=False)
class PresentBatch(PrivateBatch):
    """The end of one step, for a mechanism that reads present records; a ``PrivateBatch`` that grants nothing else."""

    _present: PresentRecords
    _undiscovered: UndiscoveredCounts | None = None

    def count(
        self, cliques: Sequence[Clique], part: Literal["net", "inserts", "deletes"] = "net"
    ) -> list[Exact]:
        """Refused (ConfigError): what the step brings is not granted."""
        raise ConfigError(
            f"a mechanism of present records cannot have the {part} records of a step",
            where="count",
            allowed="the counts of present records",
        )

    @property
    def declares_deletes(self) -> bool:
        """True: keyed records may leave."""
        return True

    @property
    def present(self) -> PresentRecords:
        """The records at the end of the step, and who left at it."""
        return self._present

    @property
    def undiscovered(self) -> UndiscoveredCounts | None:
        """The values that present records have and no codebook has."""
        return self._undiscovered


def _smallest(domain: Domain) -> type[np.integer]:
    largest = max(domain.sizes) - 1
    return next(kind for kind in (np.int8, np.int16, np.int32) if largest <= np.iinfo(kind).max)


def search_keys(keys: Keys, wanted: Keys) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Position of each wanted key among ascending ones, and whether it is there."""
    place = np.searchsorted(keys[:, 0], wanted[:, 0])
    # Equal first words are as rare as a collision of 64 bits: a few steps at most.
    while True:
        inside = place < len(keys)
        at = np.minimum(place, max(len(keys) - 1, 0))
        if not len(keys):
            return place, inside
        behind = inside & (keys[at, 0] == wanted[:, 0]) & (keys[at, 1] < wanted[:, 1])
        if not behind.any():
            there = inside & (keys[at, 0] == wanted[:, 0]) & (keys[at, 1] == wanted[:, 1])
            return place, there
        place = place + behind


def holds(keys: Keys, wanted: Keys) -> bool:
    """Whether any of the wanted keys is among ascending ones."""
    return bool(search_keys(keys, wanted)[1].any())


def _check_ascending(keys: Keys) -> None:
    if keys.ndim != 2 or keys.shape[1] != KEY_WORDS:
        raise DataError("expected keys as hashes of two words", where="present records")
    high, low = keys[1:], keys[:-1]
    if not ((high[:, 0] > low[:, 0]) | ((high[:, 0] == low[:, 0]) & (high[:, 1] > low[:, 1]))).all():
        raise DataError("keys must ascend", where="present records")
