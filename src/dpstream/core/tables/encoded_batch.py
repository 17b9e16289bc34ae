"""One step's private records as codes, seen only through counts.

Trusted base: kernel (holds one step's private records).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PrivateBatch
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy.randomness import Exact
from dpstream.core.schema import AnyCodes, Clique, CodeBlocks, Codes, Domain
from dpstream.core.tables.counting import add_counts, check_codes, count_plan, split

#: Of a keyed mark of a person's id.
MARK_BYTES = 16


class EncodedBatch(PrivateBatch):
    """Inserted and deleted records of one step, as codes; a ``PrivateBatch``.

    Guarantee: none by itself. The records stay inside; ``count`` gives exact, private integers that only
    a mechanism may read. The representation names columns and never a number of records.

    Args:
        domain: the public domain.
        inserts: int32 codes, shape (records, columns), column-major is fastest; or ``CodeBlocks``, whose codes may
            be narrower.
        deletes: the same; left out where nothing is deleted. A delete of a record that never was
            inserted is counted like any other: counts may go below zero.
    The codes are checked once and kept read-only (writable input is copied), because the compiled loops
    rely on the check.

    Errors:
        DataError: wrong shape or type, or a code outside its column's domain (the column is named, no value).

    >>> domain = Domain(("zip", "paid"), (3, 2))
    >>> batch = EncodedBatch(domain, np.array([[0, 1], [2, 0]], np.int32), np.array([[1, 1]], np.int32))
    >>> [counts.tolist() for counts in batch.count([(), (0,), (0, 1)])]
    [[1], [1, -1, 1], [0, 1, 0, -1, 1, 0]]
    >>> batch.count([(1,)], part="deletes")[0].tolist()
    [0, 1]
    """

    __slots__ = ("_came", "_domain", "_gone")

    def __init__(
        self,
        domain: Domain,
        inserts: NDArray[np.int32] | CodeBlocks,
        deletes: NDArray[np.int32] | CodeBlocks | None = None,
    ) -> None:
        self._domain = domain
        self._came = _own(inserts, domain, "inserts")
        self._gone = None if deletes is None else _own(deletes, domain, "deletes")

    @property
    def domain(self) -> Domain:
        """The public domain of the codes."""
        return self._domain

    def count(
        self, cliques: Sequence[Clique], part: Literal["net", "inserts", "deletes"] = "net"
    ) -> list[Exact]:
        """Flat (C order) marginal counts, one array of ``domain.cells(clique)`` per clique.

        ``net`` is inserts minus deletes and may be negative. The arrays are slices of one fresh buffer.

        Errors:
            ConfigError: an unknown part or clique.
            LimitError: more cells than ``MAX_COUNTED_CELLS``.
        """
        plan = count_plan(self._domain, tuple(cliques))
        out = np.zeros(plan.cells, np.int64)
        if part not in ("net", "inserts", "deletes"):
            raise ConfigError(f"unknown part {part!r}", where="count", allowed="net, inserts, deletes")
        if part != "deletes":
            add_counts(plan, self._came, 1, out)
        if part != "inserts" and self._gone is not None:
            add_counts(plan, self._gone, 1 if part == "deletes" else -1, out)
        return split(plan, out)

    def without_cancelled(self) -> EncodedBatch:
        """The batch without rows that it inserts and deletes: of each kind of row only the difference is left.

        One event more or less changes one row of one part: see ``docs/theory/turnover.md``.

        >>> domain = Domain(("zip", "paid"), (3, 2))
        >>> inserts, deletes = [[0, 1], [0, 1], [2, 0]], [[0, 1], [1, 1]]
        >>> batch = EncodedBatch(domain, np.array(inserts, np.int32), np.array(deletes, np.int32))
        >>> left = batch.without_cancelled()
        >>> [left.count([(0,)], part)[0].tolist() for part in ("inserts", "deletes", "net")]
        [[1, 0, 1], [0, 1, 0], [1, -1, 1]]

        Cost: sorts the rows of both parts.
        """
        if self._gone is None:
            return self
        parts = [self._came.whole(), self._gone.whole()]
        rows, kinds = np.unique(np.concatenate(parts), axis=0, return_inverse=True)
        came, kinds = len(self._came), kinds.reshape(-1)
        more = np.bincount(kinds[:came], minlength=len(rows)) - np.bincount(kinds[came:], minlength=len(rows))
        inserts, deletes = (np.repeat(rows, np.maximum(sign * more, 0), axis=0) for sign in (1, -1))
        return EncodedBatch(self._domain, inserts, deletes)

    @property
    def declares_deletes(self) -> bool:
        """Whether ``deletes`` was given, an empty table included: a public fact of the source, not of the data."""
        return self._gone is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(columns={self._domain.names!r}, records hidden)"


class EncodedRecords(EncodedBatch):
    """A batch that grants its inserted records, too, in the order given."""

    __slots__ = ()

    @property
    def records(self) -> NDArray[np.int32]:
        """Codes of the inserted records, shape (records, columns); private."""
        return self._came.whole()


def batch_codes(batch: EncodedBatch) -> tuple[Codes, Codes | None]:
    """The inserts and deletes of a batch, for the owner's evaluation against the truth; private.

    It stands outside the batch, so that a mechanism, which gets the batch, does not come by its records.
    """
    return batch._came.whole(), None if batch._gone is None else batch._gone.whole()


def _own(codes: Codes | CodeBlocks, domain: Domain, where: str) -> CodeBlocks:
    given = codes.blocks if isinstance(codes, CodeBlocks) else (codes,)
    return CodeBlocks(len(domain), [_own_block(block, domain, where) for block in given])


def _own_block(codes: AnyCodes, domain: Domain, where: str) -> AnyCodes:
    check_codes(codes, domain, where)
    if codes.flags.writeable or not (codes.flags.f_contiguous and codes.flags.aligned):
        codes = np.array(codes, order="F")
        codes.flags.writeable = False
    return codes


class EncodedReports(EncodedRecords):
    """One period's reports, one a person, as codes with a keyed mark of the person; a ``PrivateBatch``.

    Args:
        domain: the public domain.
        codes: int32 codes, shape (people, columns).
        marks: uint8, shape (people, ``MARK_BYTES``), ascending and different.

    Errors:
        DataError: wrong shapes or types, a code outside its column's domain, or marks that do not ascend.
    """

    __slots__ = ("_marks",)

    def __init__(self, domain: Domain, codes: NDArray[np.int32], marks: NDArray[np.uint8]) -> None:
        super().__init__(domain, codes)
        if marks.dtype != np.uint8 or marks.shape != (len(codes), MARK_BYTES):
            raise DataError("expected one mark per report", where="panel")
        texts = as_texts(marks)
        if (texts[1:] <= texts[:-1]).any():
            raise DataError("marks of people must ascend", where="panel")
        self._marks = marks

    @property
    def marks(self) -> NDArray[np.uint8]:
        """Whose reports they are; private."""
        return self._marks


def as_texts(marks: NDArray[np.uint8]) -> NDArray[np.bytes_]:
    """Marks as fixed-length byte strings, which NumPy can sort and search.

    NumPy drops trailing zeros of such strings. All have one length, so no two become equal by that.
    """
    return np.ascontiguousarray(marks).view(f"S{MARK_BYTES}").ravel()
