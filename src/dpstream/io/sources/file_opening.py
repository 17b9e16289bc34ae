"""Files of private records, with errors that name the file and no value.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterator
from functools import partial
from typing import IO, Any, cast

from dpstream.core.errors import DataError
from dpstream.core.foreign import failures
from dpstream.io.objects import AnyPath, ObjectPath
from dpstream.io.sources.sample import other_encoding

FORMATS = ".csv, .csv.gz, .parquet, .ndjson, .ndjson.gz, .jsonl, .jsonl.gz"


class UnreadableError(DataError):
    """A source cannot be read now; perhaps it can later. It has handed out nothing."""


def file_format(path: AnyPath) -> str:
    """``csv``, ``parquet`` or ``ndjson``, by the file's ending.

    Errors:
        DataError: an unknown ending.
    """
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return "csv"
    if name.endswith(".parquet"):
        return "parquet"
    if name.endswith((".ndjson", ".ndjson.gz", ".jsonl", ".jsonl.gz")):
        return "ndjson"
    raise DataError("the file has an unknown format", where=str(path), allowed=FORMATS)


@contextlib.contextmanager
def readable(path: AnyPath, kind: str | None = None) -> Iterator[None]:
    """Replace what readers raise on a bad file by an UnreadableError about the file.

    Args:
        kind: the format, where the file's name need not say it.

    Errors:
        UnreadableError: also, an object that was replaced since it was found, before or during the reading.
    """
    try:
        _require_same(path)
        yield
        _require_same(path)
    except (FileNotFoundError, IsADirectoryError):
        raise UnreadableError(
            "there is no such file", where=str(path), allowed="a file that exists"
        ) from None
    except PermissionError:
        raise UnreadableError(
            "the file may not be read", where=str(path), allowed="a readable file"
        ) from None
    except (OSError, *failures()) as error:  # type: ignore[misc]
        if isinstance(path, ObjectPath) and type(error) is OSError:
            raise UnreadableError(
                "the object store cannot be reached, or refuses",
                where=str(path),
                allowed="a store that answers, its region or endpoint, and a right to read (the store's own "
                "variables and files say who asks)",
            ) from None
        # Readers' messages quote private values, so they are dropped.
        encoded = None if file_format(path) == "parquet" else other_encoding(partial(binary, path))
        if encoded is not None:
            raise UnreadableError(encoded[0], where=str(path), allowed=encoded[1]) from None
        raise UnreadableError(
            f"the file cannot be read as {kind or file_format(path)}: it is damaged, half-written or inconsistent",
            where=str(path),
            allowed="a complete file (write it under another name, then rename it)",
        ) from None


def _require_same(path: AnyPath) -> None:
    if isinstance(path, ObjectPath) and not path.same():
        raise changed_file(str(path))


def changed_file(where: str) -> UnreadableError:
    """The refusal of a file that changes while it is read."""
    return UnreadableError(
        "the file changed while it was read",
        where=where,
        allowed="finished files: write each under another name, rename it, and run again",
    )


def binary(path: AnyPath) -> IO[bytes]:
    """A file's bytes, after decompression."""
    # Python's gzip, because it notices a truncated file and reads concatenated members.
    if path.name.lower().endswith(".gz"):
        return cast("IO[bytes]", gzip.open(path.open("rb") if isinstance(path, ObjectPath) else path, "rb"))
    return cast("IO[bytes]", path.open("rb"))


def arrow_bytes(path: AnyPath) -> Any:
    """An open pyarrow file that reads at any place and calls no Python. It does not decompress.

    Arrow reads ahead in a thread; one that waits for Python while the program ends aborts the program.
    """
    import pyarrow as pa

    return path.open_arrow() if isinstance(path, ObjectPath) else pa.OSFile(str(path))
