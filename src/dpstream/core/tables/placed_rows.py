"""Records that a mechanism places by themselves: the rows of a batch, instead of its counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PrivateBatch
from dpstream.core.errors import DataError
from dpstream.core.tables.encoded_batch import EncodedBatch

__all__ = ["rows_of"]


def rows_of(batch: PrivateBatch) -> NDArray[np.int32]:
    """Codes of the inserted records, in the order given, shape (records, columns); private.

    Errors:
        DataError: records that leave, or a batch that holds counts only.
    """
    if batch.declares_deletes:
        raise DataError("the batch comes with deletes", where="points", allowed="points that come, and stay")
    if not isinstance(batch, EncodedBatch):
        raise DataError("the batch does not hold records", where="points", allowed="an EncodedBatch")
    return batch._inserts
