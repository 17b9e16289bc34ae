"""Values that no public codebook has yet, of the columns whose values are discovered: what a step counts of them.

Only inserts are counted, after admission, and only values that may enter (``Categorical.undiscovered``). Which records
are admitted, and whether a batch comes again, depends on the values themselves, and not only on the code of ``other``.

Trusted base: kernel (holds private values).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Events, PrivateBatch, UndiscoveredCounts
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.randomness import Exact
from dpstream.core.schema import Categorical, Schema, arrow
from dpstream.core.schema.domain import Clique, Codes, Mask
from dpstream.core.schema.encoded_table import EncodedTable
from dpstream.core.tables.contribution import hash_each, owner_words

_Counts = TypeVar("_Counts", bound=UndiscoveredCounts)
#: From here on, codes are numbers of texts that no codebook had when they came.
TEXTS = 1 << 30
#: Texts that are hashed at a time.
_HASHED = 1 << 20
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

    def words(self, key: bytes) -> NDArray[np.int64]:
        """Two integers a column for each record: keyed hashes of its values; zeros where it has none."""
        parts = []
        for texts, places in zip(self.texts, self.places, strict=True):
            hashes = np.zeros((len(texts) + 1, 2), np.int64)
            for first in range(0, len(texts), _HASHED):
                part = owner_words(hash_values(texts.slice(first, _HASHED), key))
                hashes[first : first + len(part)] = part
            parts.append(hashes[places])
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def number(self, codes: Codes, rows: NDArray[np.int64], schema: Schema) -> None:
        """Write the numbers of the records' texts into these rows of codes, in place of the code of ``other``."""
        for name, places in zip(schema.open_columns, self.places, strict=True):
            codes[rows[places >= 0], schema.domain.index(name)] = TEXTS + places[places >= 0]

    def counts(self, admitted: Mask | None = None) -> Counts:
        """How many of the (admitted) records have each value; values of none are left out."""
        import pyarrow as pa

        found = []
        for texts, places in zip(self.texts, self.places, strict=True):
            chosen = places if admitted is None else places[admitted]
            counts = np.bincount(chosen[chosen >= 0], minlength=len(texts)).astype(np.int64)
            held = counts > 0
            found.append((texts, counts) if held.all() else (texts.filter(pa.array(held)), counts[held]))
        return tuple(found)


@dataclass(frozen=True, repr=False, eq=False)
class PresentTexts:
    """Texts of keyed records that no codebook had when they came: in codes, ``TEXTS`` and their numbers. Private.

    A text is kept while a present record has it: nothing else is, of what the records had before. A number stays with
    its text as long. What a text counts as follows from the public codebook of the step: ``other``, or its own code.

    Attributes:
        columns: places of the open columns.
        texts: of each column, by number; null: the number is free.
        codes: of each column, what the codebook says of them, by number.
    """

    columns: tuple[int, ...]
    texts: tuple[Any, ...]
    codes: tuple[Codes, ...]

    @classmethod
    def of(cls, schema: Schema, texts: Sequence[Any]) -> PresentTexts:
        """Texts under a codebook."""
        places, codes = [schema.domain.index(name) for name in schema.open_columns], []
        for place, own in zip(places, texts, strict=True):
            column = schema.columns[place]
            known = column.codes_of_dictionary(own, ())[:-1].copy()
            column.resolve(known)
            codes.append(known)
        return cls(tuple(places), tuple(texts), tuple(codes))

    @classmethod
    def stored(cls, schema: Schema, numbered: Iterable[Counted]) -> PresentTexts:
        """What a store has: of each open column texts, with their numbers plus 1."""
        import pyarrow as pa

        texts = []
        for pairs in numbered:
            known = {number - 1: text for text, number in pairs}
            texts.append(pa.array(map(known.get, range(max(known, default=-1) + 1)), pa.large_string()))
        return cls.of(schema, texts)

    def rows(self, codes: Codes) -> Undiscovered:
        """Which of the texts each of some records has."""
        held = (codes[:, place] for place in self.columns)
        return Undiscovered(self.texts, tuple(np.where(own >= TEXTS, own - TEXTS, -1) for own in held))

    def public(self, codes: Codes) -> Codes:
        """The codes of the codebook."""
        codes = codes.copy(order="F")
        for place, own in zip(self.columns, self.codes, strict=True):
            held = codes[:, place] >= TEXTS
            codes[held, place] = own[codes[held, place] - TEXTS]
        return codes

    def with_rows(self, texts: Sequence[Any], codes: Codes, schema: Schema) -> tuple[PresentTexts, Codes]:
        """All these texts and those of a batch; and the batch's codes, with the numbers that its texts have here."""
        import pyarrow as pa
        import pyarrow.compute as pc

        joined, codes = [], codes.copy(order="F")
        for place, own, new in zip(self.columns, self.texts, texts, strict=True):
            at = pc.index_in(new, value_set=own)
            fresh = np.flatnonzero(at.is_null())
            free = np.concatenate([np.flatnonzero(own.is_null()), len(own) + np.arange(len(fresh))])
            numbers = pc.fill_null(at, 0).to_numpy(zero_copy_only=False).astype(np.int32)
            numbers[fresh] = free[: len(fresh)]
            source = np.arange(max(len(own), int(numbers.max(initial=-1)) + 1))
            source[numbers[fresh]] = len(own) + fresh
            joined.append(pa.concat_arrays([own, new]).take(pa.array(source)))
            held = codes[:, place] >= TEXTS
            codes[held, place] = TEXTS + numbers[codes[held, place] - TEXTS]
        return PresentTexts.of(schema, joined), codes

    def used_by(self, codes: Codes) -> PresentTexts:
        """Those that some codes name; of others nothing is left."""
        import pyarrow as pa

        texts, kept = [], []
        for place, own, known in zip(self.columns, self.texts, self.codes, strict=True):
            column = codes[:, place]
            used = np.bincount(column[column >= TEXTS] - TEXTS, minlength=len(own)) > 0
            end = int(np.flatnonzero(used).max(initial=-1)) + 1
            texts.append(own.take(pa.array(np.arange(end), mask=~used[:end])))
            kept.append(known[:end])
        return PresentTexts(self.columns, tuple(texts), tuple(kept))

    def since(self, before: PresentTexts) -> Counts:
        """What a store adds to the numbers of texts (plus 1; 0: it has none of them)."""
        import pyarrow as pa

        changes = []
        for old, new in zip(before.texts, self.texts, strict=True):
            size = max(len(old), len(new))
            first, then = (pa.concat_arrays([one, pa.nulls(size - len(one), one.type)]) for one in (old, new))
            same = np.array(first.is_null()) & np.array(then.is_null())
            same |= np.array(pa.compute.fill_null(pa.compute.equal(first, then), False))
            gone, come = (np.flatnonzero(~same & ~np.array(one.is_null())) for one in (first, then))
            texts = pa.concat_arrays([first.take(pa.array(gone)), then.take(pa.array(come))])
            changes.append((texts, np.concatenate([-1 - gone, 1 + come])))
        return tuple(changes)

    def counts(self, column: int, codes: NDArray[np.integer]) -> Counted:
        """How many of some records have each text of a column that has no code yet."""
        order = self.columns.index(column)
        held = codes[codes[:, column] >= TEXTS, column] - TEXTS
        counts = np.bincount(held, minlength=len(self.texts[order]))
        places = np.flatnonzero(counts)
        return zip(self.texts[order].take(places).to_pylist(), counts[places].tolist(), strict=True)


def hash_values(texts: Any, key: bytes) -> NDArray[np.uint64]:
    """The keyed hashes of different texts, two words each."""
    import pyarrow as pa

    return hash_each(texts.cast(pa.large_binary()), key, b"value")


@dataclass(frozen=True, repr=False)
class EpochCounts:
    """What a batch adds to its discovery epoch, and what the whole epoch then holds. Private.

    Attributes:
        columns: names of the open columns. added: by this batch. whole: the counts of a column with those before.
    """

    columns: Sequence[str]
    added: Counts
    whole: Callable[[int, Counts], Counted] | None = None

    def of(self, column: str, after: int) -> Counted:
        """See ``UndiscoveredCounts``: what is stored is of the open epoch alone."""
        assert self.whole is not None
        return self.whole(self.columns.index(column), self.added)


class DiscoveringBatch(PrivateBatch, Generic[_Counts]):
    """A batch that grants counts of undiscovered values, too."""

    __slots__ = ("_batch", "_undiscovered")

    def __init__(self, batch: PrivateBatch, undiscovered: _Counts) -> None:
        self._batch, self._undiscovered = batch, undiscovered

    def count(self, cliques: Sequence[Clique], part: Events = "net") -> list[Exact]:
        """See ``PrivateBatch``."""
        return self._batch.count(cliques, part)

    @property
    def declares_deletes(self) -> bool:
        return self._batch.declares_deletes

    @property
    def undiscovered(self) -> _Counts:
        """See ``PrivateBatch``."""
        return self._undiscovered

    def within(
        self: DiscoveringBatch[EpochCounts], whole: Callable[[int, Counts], Counted]
    ) -> DiscoveringBatch[EpochCounts]:
        """The same, with what the epoch held before."""
        own = self._undiscovered
        return DiscoveringBatch(self._batch, EpochCounts(own.columns, own.added, whole))
