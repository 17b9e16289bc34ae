"""One door to other libraries: to those that may not be there, what they raise, and what their threads keep.

Arrow, DuckDB, csv, json, zlib and the codecs say which value they stumbled over. Wherever they touch private data,
this turns what they raise into a sentence of ours, which names the place and never a value.
"""

from __future__ import annotations

import contextlib
import csv
import sys
import zlib
from collections.abc import Iterator
from typing import Any

from dpstream.core.errors import ConfigError, DataError


def failures() -> tuple[type[Exception], ...]:
    """What libraries raise on data: all that Arrow, the codecs, csv, json and compression have.

    pyarrow is asked only if it is loaded: who has not loaded it gets none of its exceptions.
    """
    arrow = sys.modules.get("pyarrow")
    loaded: tuple[type[Exception], ...] = () if arrow is None else (arrow.ArrowException,)
    # ValueError: broken text (UnicodeError), broken JSON, and numbers that are too long are of this kind.
    return (*loaded, ValueError, OverflowError, RecursionError, EOFError, zlib.error, csv.Error)


@contextlib.contextmanager
def shielded(what: str, *, where: str | None = None, allowed: str | None = None) -> Iterator[None]:
    """Raise a ``DataError`` with our sentence instead of a foreign exception, which is neither its cause nor shown.

    >>> with shielded("the cells cannot be read", where="step 1"):
    ...     bytes([255]).decode()
    Traceback (most recent call last):
    dpstream.core.errors.DataError: step 1: the cells cannot be read
    """
    try:
        yield
    except failures():
        raise DataError(what, where=where, allowed=allowed) from None


@contextlib.contextmanager
def from_extra(extra: str, where: str) -> Iterator[None]:
    """Import what an extra of this package installs.

    Errors:
        ConfigError: it is not installed; names the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "a package").partition(".")[0]
        raise ConfigError(
            f"{package} is not installed", where=where, allowed=f"pip install 'dpstream[{extra}]'"
        ) from None


def cipher(extra: str, where: str) -> tuple[Any, Any]:
    """The class AESGCM, and the exception that it raises for a changed value. Errors as of ``from_extra``."""
    with from_extra(extra, where):
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    return AESGCM, InvalidTag


def arrow_input(data: bytes) -> Any:
    """Bytes as an open pyarrow file, in memory of Arrow's own.

    A thread of Arrow may let go of its input some time after the reading has returned. If Python owns the input, the
    thread waits for Python to free it, and a thread that waits while the program ends aborts the program.

    Cost: one copy.
    """
    import pyarrow as pa

    memory = pa.allocate_buffer(len(data))
    memoryview(memory).cast("B")[:] = data
    return pa.BufferReader(memory)
