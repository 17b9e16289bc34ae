"""The compiled loop over the bytes of csv text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpstream.core.compiling import njit

_NEWLINE, _RETURN, _QUOTE, _COMMA = 10, 13, 34, 44


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def scan_lines(
    data: NDArray[np.uint8], cells: int, most: int, broken_records: NDArray[np.int64]
) -> tuple[int, int, int]:
    """Find the lines that are no records of ``cells`` cells, in the way in which Arrow splits lines; see
    ``lines.Scan``.

    Args:
        data: uint8[n].
        cells: the number of cells of a record.
        most: the most bytes that a line may have.
        broken_records: int64[k, 6], which is filled with the first ``k`` broken records.

    Returns:
        The numbers of lines, of records, and of broken records.
    """
    size = data.size
    i = lines = records = broken = 0
    while i < size:
        start, count = i, 1
        quoted, begin = False, True
        while i < size:
            byte = data[i]
            if byte in (_NEWLINE, _RETURN):
                break
            if quoted:
                if byte == _QUOTE:
                    if i + 1 < size and data[i + 1] == _QUOTE:
                        i += 1
                    else:
                        quoted = False
            elif byte == _COMMA:
                count += 1
                begin = True
                i += 1
                continue
            elif begin and byte == _QUOTE:
                quoted = True
            begin = False
            i += 1
        lines += 1
        # With one column an empty line is a record with an empty cell; otherwise it is left out.
        if i > start or cells == 1:
            why = 0
            if i - start > most:
                why = 3
            elif quoted:
                why = 1
            elif count != cells:
                why = 2
            if why:
                if broken < broken_records.shape[0]:
                    broken_records[broken, 0] = start
                    broken_records[broken, 1] = i
                    broken_records[broken, 2] = why
                    broken_records[broken, 3] = records
                    broken_records[broken, 4] = lines
                    broken_records[broken, 5] = count
                broken += 1
            records += 1
        if i < size:
            i += 2 if data[i] == _RETURN and i + 1 < size and data[i + 1] == _NEWLINE else 1
    return lines, records, broken
