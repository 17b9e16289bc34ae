"""Converts released tables to bytes and back, as Parquet or CSV. Equal tables give equal bytes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from dpstream.core import durable
from dpstream.core.errors import ConfigError
from dpstream.core.foreign import arrow_input
from dpstream.core.paths import sha256_hex


@dataclass(frozen=True)
class StagedFile:
    """A file that was written block by block, and waits to be published.

    Attributes:
        size: in bytes.
        path: where it is.
    """

    sha256: str
    size: int
    path: Path


Content = bytes | StagedFile


def sha256_of(content: Content) -> str:
    """SHA-256 in hexadecimal."""
    return content.sha256 if isinstance(content, StagedFile) else sha256_hex(content)


def size_of(content: Content) -> int:
    """Number of bytes."""
    return content.size if isinstance(content, StagedFile) else len(content)


def file_sha256(path: Path) -> str | None:
    """The SHA-256 of a file, read in blocks; None where it is gone, or is something else."""
    if not path.is_file():  # a named pipe would not end
        return None
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


#: Bytes that are written at once.
CHUNK = 2**20


class FileToStage:
    """A new file that is hashed while it is written, a chunk at a time.

    Args:
        mode: of the file.
        seal: what the chunk of a number becomes on the disk.
    """

    def __init__(
        self, path: Path, mode: int = 0o600, seal: Callable[[bytes, int], bytes] = lambda data, _: data
    ) -> None:
        self._path, self._seal, self._hash = path, seal, hashlib.sha256()
        self._size = self._chunks = 0
        self._waiting = bytearray()
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)

    def put(self, data: bytes) -> None:
        """Append.

        Errors:
            ValueError: after the ``with`` block. Writers that are thrown away write their end then, and the number of
                the descriptor may be that of another file.
        """
        if self._descriptor is None:
            raise ValueError("file already closed")
        self._hash.update(data)
        self._size += len(data)
        self._waiting += data
        if len(self._waiting) >= CHUNK:
            self._flush(self._descriptor)

    def finish(self) -> StagedFile:
        """What was written, on the disk when this returns."""
        assert self._descriptor is not None
        self._flush(self._descriptor)
        durable.sync_file(self._descriptor)
        durable.sync_directory(self._path.parent)
        return StagedFile(self._hash.hexdigest(), self._size, self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
        if kind is not None:
            with suppress(OSError):  # it is removed at the next opening
                durable.unlink(self._path)

    def _flush(self, descriptor: int) -> None:
        if self._waiting:
            durable.write(descriptor, self._seal(bytes(self._waiting), self._chunks))
            self._chunks += 1
            self._waiting.clear()


Format = Literal["parquet", "csv"]
FORMATS: tuple[Format, ...] = ("parquet", "csv")


def to_bytes(table: Any, form: Format) -> bytes:
    """The bytes of a pyarrow Table in a format. They do not depend on the clock or on the machine.

    >>> import pyarrow as pa
    >>> to_bytes(pa.table({"zip": ["94102", None]}), "csv")
    b'"zip"\\n"94102"\\n\\n'
    """
    import pyarrow as pa

    buffer = pa.BufferOutputStream()
    if form == "parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, buffer, compression="zstd")
    elif form == "csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(table, buffer)
    else:
        raise ConfigError(f"unknown format {form!r}", where="output", allowed=", ".join(FORMATS))
    return bytes(buffer.getvalue().to_pybytes())


class BlockWriter:
    """Converts a table to bytes block by block (a row group of a Parquet file each). Equal blocks give equal bytes.

    Args:
        schema: the ``pyarrow.Schema`` that readers get. Blocks have its columns; those of texts may be dictionaries.
        put: takes the bytes, in order.

    Errors:
        ConfigError: an unknown format.
    """

    def __init__(self, schema: Any, form: Format, put: Callable[[bytes], None]) -> None:
        if form not in FORMATS:
            raise ConfigError(f"unknown format {form!r}", where="output", allowed=", ".join(FORMATS))
        self._schema = schema
        self._form = form
        self._put = put
        self._writer: Any = None
        if form == "csv":
            put(to_bytes(schema.empty_table(), "csv"))

    def prepare(self, block: Any) -> Any:
        """What ``write`` takes of a block; may be called in any thread, in any order."""
        if self._form == "parquet":
            return block.replace_schema_metadata(None)
        import pyarrow as pa
        import pyarrow.csv

        buffer = pa.BufferOutputStream()
        options = pyarrow.csv.WriteOptions(include_header=False)
        pyarrow.csv.write_csv(block.cast(self._schema), buffer, options)
        return buffer.getvalue()

    def write(self, prepared: Any) -> None:
        """Write the next block."""
        if self._form == "csv":
            self._put(prepared)
            return
        if self._writer is None:
            self._writer = self._parquet(prepared.schema)
        self._writer.write_table(prepared)

    def close(self) -> None:
        """Write what comes after the last block."""
        if self._form == "csv":
            return
        writer = self._parquet(self._schema.remove_metadata()) if self._writer is None else self._writer
        # Readers see plain columns of texts, whatever they were written from: the dictionaries are the file's own.
        arrow_schema = {"ARROW:schema": base64.b64encode(self._schema.serialize().to_pybytes())}
        writer.add_key_value_metadata({**(self._schema.metadata or {}), **arrow_schema})
        writer.close()

    def _parquet(self, schema: Any) -> Any:
        import pyarrow as pa
        import pyarrow.parquet

        numbers = [field.name for field in schema if not pa.types.is_dictionary(field.type)]
        return pyarrow.parquet.ParquetWriter(
            pa.PythonFile(_Bytes(self._put), mode="w"),
            schema,
            compression="zstd",
            store_schema=False,
            # A text's place in the order of texts helps no reader, and takes as long as writing it.
            write_statistics=numbers,
        )


class _Bytes:
    """The file that Arrow writes to."""

    closed = False

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put
        self._size = 0

    def write(self, data: bytes) -> int:
        self._put(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        self.closed = True


def csv_label(name: str, label: Mapping[str, Any]) -> bytes:
    """The metadata file beside a CSV file, with the table's label.

    Source: W3C, "Metadata Vocabulary for Tabular Data"; ``notes`` may hold anything.
    """
    described = {
        "@context": "http://www.w3.org/ns/csvw",
        "url": name,
        "dc:title": label["title"],
        "dc:description": label["words"],
        "notes": [dict(label)],
    }
    return (json.dumps(described, indent=1, ensure_ascii=False) + "\n").encode()


def from_bytes(data: bytes | Path, form: Format, fields: Sequence[Mapping[str, Any]] = ()) -> Any:
    """The inverse of ``to_bytes``, also for a file of its own. ``fields``: the fields of the codebook, which give the
    types of CSV columns."""
    if form == "parquet":
        import pyarrow.parquet

        return pyarrow.parquet.ParquetFile(_source(data)).read()
    import pyarrow.csv

    return pyarrow.csv.read_csv(_source(data), **_csv_options(fields))


def blocks_of(data: bytes | Path, form: Format, fields: Sequence[Mapping[str, Any]] = ()) -> Iterator[Any]:
    """As ``from_bytes``, block by block, as ``pyarrow.RecordBatch``."""
    if form == "parquet":
        import pyarrow.parquet

        yield from pyarrow.parquet.ParquetFile(_source(data)).iter_batches()
        return
    import pyarrow.csv

    yield from pyarrow.csv.open_csv(_source(data), **_csv_options(fields))


def _source(data: bytes | Path) -> Any:
    return str(data) if isinstance(data, Path) else arrow_input(data)


def _csv_options(fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    import pyarrow.csv

    types = {str(field["name"]): _arrow_type(field) for field in fields}
    return {
        # In a table of one column, a null is an empty line, and still a row.
        "parse_options": pyarrow.csv.ParseOptions(ignore_empty_lines=False, newlines_in_values=True),
        "convert_options": pyarrow.csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    }


def _arrow_type(field: Mapping[str, Any]) -> Any:
    import pyarrow as pa

    match field["type"]:
        case "integer":
            return pa.int64()
        case "number":
            return pa.float64()
        case "boolean":
            return pa.bool_()
        case "date":
            return pa.date32()
        case "datetime":
            return pa.timestamp("us", tz=field.get("dpstream", {}).get("timezone"))
        case _:
            return pa.string()
