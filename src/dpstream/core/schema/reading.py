"""Reads a sample of a data file for drafting a schema. Streams read their batches elsewhere.

Text files are read as text: a reader that guesses types would turn the code 02139 into the number 2139.
"""

from __future__ import annotations

import glob
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.files import check_file
from dpstream.core.schema.cells import cells, parse_record, plain_text, typed

__all__ = ["ENDINGS", "files_of", "read_sample"]

ENDINGS = ".csv, .csv.gz, .parquet, .ndjson, .jsonl (and .gz of those)"


def read_sample(path: str | Path, rows: int) -> Any:
    """At most ``rows`` rows of a file, of all files of a folder, or of a pattern such as ``data/*.csv``.

    Errors: ``ConfigError`` for a path without readable files; ``DataError`` for a file that is not what its
    ending says (without quoting it).
    """
    import pyarrow as pa

    batches: list[Any] = []
    left = rows
    files = files_of(path)
    for file in files:
        check_file(file)
        try:
            for batch in _batches(file, left):
                _ = batch.schema.names  # decoded now: they may be no text
                batches.append(batch.slice(0, left))
                left -= len(batches[-1])
                if left <= 0:
                    break
        except (pa.ArrowException, OSError, EOFError, zlib.error, ValueError):
            # The original text quotes rows of the file.
            raise DataError("the file cannot be read", where=str(file), allowed=ENDINGS) from None
        if left <= 0:
            break
    try:
        return pa.concat_tables([pa.Table.from_batches([b]) for b in batches], promote_options="permissive")
    except (pa.ArrowException, IndexError):
        raise DataError(
            "the files hold different columns, or none", where=str(path), allowed=ENDINGS
        ) from None


def files_of(path: str | Path) -> list[Path]:
    """The file, all files of a folder, or those of a pattern, in the order of their names; ConfigError without one."""
    found = Path(path)
    if found.is_dir():
        names = sorted(p for p in found.iterdir() if _ending(p) is not None)
    elif found.exists():
        names = [found]
    else:
        names = sorted(Path(name) for name in glob.glob(str(path)))
    if not names:
        raise ConfigError(
            "there is no data file", where=str(path), allowed=f"a file, folder or pattern: {ENDINGS}"
        )
    for name in names:
        if _ending(name) is None:
            raise ConfigError("this file has an unknown ending", where=str(name), allowed=ENDINGS)
    return names


def _ending(path: Path) -> str | None:
    name = path.name.lower().removesuffix(".gz")
    return next((e for e in (".csv", ".parquet", ".ndjson", ".jsonl") if name.endswith(e)), None)


def _batches(path: Path, rows: int) -> Iterator[Any]:
    ending = _ending(path)
    if ending == ".csv":
        yield from _csv(path)
    elif ending == ".parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            yield from file.iter_batches()
    else:
        yield _ndjson(path, rows)


def _ndjson(path: Path, rows: int) -> Any:
    """The first records. Arrow's own reader ends the process at some lines that are no objects."""
    import pyarrow as pa

    opened = gzip.open if path.name.lower().endswith(".gz") else open
    records: list[dict[str, Any]] = []
    with opened(path, "rt", encoding="utf-8-sig", newline="") as stream:
        for line in filter(str.strip, stream):
            record = parse_record(line)
            if record is None:
                raise DataError("a line is not a JSON object", where=str(path), allowed="one object a line")
            records.append(record)
            if len(records) >= rows:
                break
    names = dict.fromkeys(key for record in records for key in record)
    if not names:
        raise DataError("the file is empty", where=str(path), allowed="one JSON object a line")
    return pa.record_batch(
        {plain_text(name): _one_type([record.get(name) for record in records]) for name in names}
    )


def _one_type(values: list[Any]) -> Any:
    """A column of a sample: of one type where it can be, or of texts."""
    import pyarrow as pa

    if any(isinstance(value, list | dict) for value in values):
        return pa.array([None if value is None else [] for value in values], pa.list_(pa.null()))
    column = typed(cells(values))
    if column is not None:
        return column
    return cells([v if v is None or isinstance(v, str) else json.dumps(v) for v in values]).field(0)


def _csv(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.csv as pc

    with pc.open_csv(path) as reader:
        names = reader.schema.names
    options = pc.ConvertOptions(
        column_types={name: pa.string() for name in names}, null_values=[""], strings_can_be_null=True
    )
    with pc.open_csv(path, convert_options=options) as reader:
        yield from reader
