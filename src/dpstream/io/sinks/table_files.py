"""Converts released tables to bytes and back, as Parquet or CSV. Equal tables give equal bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from dpstream.core.errors import ConfigError

__all__ = ["FORMATS", "Format", "csv_label", "from_bytes", "to_bytes"]

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


def from_bytes(data: bytes, form: Format, fields: Sequence[Mapping[str, Any]] = ()) -> Any:
    """The inverse of ``to_bytes``. ``fields``: the fields of the codebook, which give the types of CSV columns."""
    import pyarrow as pa

    source = pa.BufferReader(data)
    if form == "parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(source)
    import pyarrow.csv

    types = {str(field["name"]): _arrow_type(field) for field in fields}
    return pyarrow.csv.read_csv(
        source,
        # In a table of one column, a null is an empty line, and still a row.
        parse_options=pyarrow.csv.ParseOptions(ignore_empty_lines=False, newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


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
