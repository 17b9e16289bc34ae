"""Files of private records, with errors that name the file and no value.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from dpstream.core.errors import DataError
from dpstream.core.foreign import failures
from dpstream.io.objects import UNANSWERED, AnyPath, ObjectPath

_ENDINGS = {
    "csv": (".csv", ".csv.gz"),
    "parquet": (".parquet",),
    "ndjson": (".ndjson", ".ndjson.gz", ".jsonl", ".jsonl.gz"),
}
FORMATS = ", ".join(ending for endings in _ENDINGS.values() for ending in endings)
_RENAMED = "write under another name, then rename"
#: Bytes that are looked at together.
_BLOCK = 2**20


class UnreadableError(DataError):
    """A source cannot be read now; perhaps it can later. It has handed out nothing."""


def format_of(name: str) -> str | None:
    """``csv``, ``parquet`` or ``ndjson``, by the ending of a file's name; None for any other."""
    return next((kind for kind, endings in _ENDINGS.items() if name.lower().endswith(endings)), None)


def file_format(path: AnyPath) -> str:
    """The format of a file (DataError: an unknown ending)."""
    kind = format_of(path.name)
    if kind is None:
        raise DataError("unknown file format", where=str(path), allowed=FORMATS)
    return kind


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
        raise UnreadableError("file missing", where=str(path), allowed="an existing file") from None
    except PermissionError:
        raise UnreadableError("file access denied", where=str(path), allowed="readable file") from None
    except (OSError, *failures()) as error:  # type: ignore[misc]
        if isinstance(path, ObjectPath) and type(error) is OSError:
            raise UnreadableError(
                UNANSWERED,
                where=str(path),
                allowed="its region or endpoint, and read access",
            ) from None
        # Readers' messages quote private values, so they are dropped.
        encoded = None if file_format(path) == "parquet" else other_encoding(partial(binary, path))
        if encoded is not None:
            raise UnreadableError(encoded[0], where=str(path), allowed=encoded[1]) from None
        raise UnreadableError(
            f"the file cannot be read as {kind or file_format(path)}: damaged, half-written or inconsistent",
            where=str(path),
            allowed=f"a complete file ({_RENAMED})",
        ) from None


def _require_same(path: AnyPath) -> None:
    if isinstance(path, ObjectPath) and not path.same():
        raise changed_file(str(path))


def changed_file(where: str) -> UnreadableError:
    """The refusal of a file that changes while it is read."""
    return UnreadableError(
        "the file changed during reading",
        where=where,
        allowed=f"finished files ({_RENAMED}); run again",
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

    return path.system.open_input_file(path.at) if isinstance(path, ObjectPath) else pa.OSFile(str(path))


def other_encoding(opened: Callable[[], IO[bytes]]) -> tuple[str, str] | None:
    """Of a text file that could not be read: which encoding it seems to have, and how UTF-8 is made of it; None where
    that is not why.

    Args:
        opened: gives the file's bytes, after decompression.
    """
    decoder, seen = codecs.getincrementaldecoder("utf-8")(), False
    try:
        with opened() as stream:
            while block := stream.read(_BLOCK):
                marked = block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                if not seen and (marked or block[:200].count(0) > len(block[:200]) // 4):
                    return _convert("UTF-16", "UTF-16")
                try:
                    seen = not decoder.decode(block).isascii() or seen
                except UnicodeDecodeError as error:
                    if seen or not block[: error.start].isascii():
                        return "some bytes are not UTF-8", "UTF-8 everywhere"
                    windows = any(0x80 <= byte < 0xA0 for byte in block)
                    return _convert(*(("Windows-1252", "WINDOWS-1252") if windows else ("Latin-1", "LATIN1")))
    except (OSError, EOFError, zlib.error):
        pass
    return None


def _convert(name: str, code: str) -> tuple[str, str]:
    return (
        f"expected UTF-8, found {name}",
        f"convert: iconv -f {code} -t UTF-8 FILE > NEW",
    )


def other_separator(names: Sequence[str], path: str) -> tuple[str, str] | None:
    """What separates the columns of a csv file that seems to have a single one, and how to make a file that can be
    read; None where nothing does."""
    known = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
    found = next((sign for sign in known if len(names) == 1 and sign in names[0]), None)
    if found is None:
        return None
    shown = {"\t": "\\t"}.get(found, found)
    return (
        f"columns are separated by {known[found]} ('{shown}')",
        (
            f"commas, or Parquet from: duckdb -c \"COPY (FROM read_csv('{Path(path).name}', "
            f"delim = '{shown}', all_varchar = true)) TO 'data.parquet'\", then path = "
            '"data.parquet"'
        ),
    )
