"""Rows in files of every format that a source reads, and the sources."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpstream.io.sources import ReadOptions, SourceOptions, open_source


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Path:
    """Rows in the format of the name's ending: ``.csv``, ``.ndjson``, ``.gz`` of these, ``.parquet`` or ``.duckdb``,
    whose only table ``t`` has them (its ``rowid`` is their order). What a row lacks is nothing there, or a null.
    """
    if path.suffix in (".parquet", ".duckdb"):
        import pyarrow as pa
        import pyarrow.parquet

        table = pa.table({name: [row.get(name) for row in rows] for name in names})
        if path.suffix == ".parquet":
            pyarrow.parquet.write_table(table, path, row_group_size=5)
            return path
        import duckdb

        with duckdb.connect(str(path)) as db:
            db.register("rows", table)
            db.execute("CREATE TABLE t AS FROM rows")
        return path
    if ".csv" in path.name:
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
        data = text.getvalue().encode()
    else:
        lines = ({name: row[name] for name in names if name in row} for row in rows)
        data = "".join(json.dumps(line, default=str) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def source_of(keys: Any, **reading: Any) -> Any:
    """The source that keys of ``[source]``, or read ones, describe; ``reading``: of ``ReadOptions``."""
    options = keys if isinstance(keys, SourceOptions) else SourceOptions.parse(keys)
    return open_source(options, ReadOptions(**reading))
