"""Reads a sample of a data file for drafting a schema. Streams read their batches elsewhere.

Text files are read as text: a reader that guesses types would turn the code 02139 into the number 2139.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import codecs
import glob
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.paths import check_file
from dpstream.io.sources.json_records import cells, parse_record, plain_text

#: Bytes that are looked at together.
_BLOCK = 2**20
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
            what, allowed = other_encoding(partial(_opened, file)) or ("the file cannot be read", ENDINGS)
            raise DataError(what, where=str(file), allowed=allowed) from None
        if left <= 0:
            break
    try:
        return pa.concat_tables([pa.Table.from_batches([b]) for b in batches], promote_options="permissive")
    except (pa.ArrowException, IndexError):
        raise DataError(
            "the files hold different columns, or none", where=str(path), allowed=ENDINGS
        ) from None


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
                        return "the file holds bytes that are not UTF-8", "UTF-8, as the rest of the file"
                    windows = any(0x80 <= byte < 0xA0 for byte in block)
                    return _convert(*(("Windows-1252", "WINDOWS-1252") if windows else ("Latin-1", "LATIN1")))
    except (OSError, EOFError, zlib.error):
        pass
    return None


def _convert(name: str, code: str) -> tuple[str, str]:
    return (
        f"the file is not UTF-8: it looks like {name}",
        f"UTF-8, which this makes: iconv -f {code} -t UTF-8 FILE > NEW",
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
        f"its columns are separated by {known[found]} ('{shown}')",
        f"commas, or a Parquet file, which this makes: duckdb -c \"COPY (FROM read_csv('{Path(path).name}', "
        f"delim = '{shown}', all_varchar = true)) TO 'data.parquet'\", and path = \"data.parquet\"",
    )


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def files_of(path: str | Path) -> list[Path]:
    """The file, all files of a folder, or those of a pattern, in the order of their names; ConfigError without one."""
    place = Path(path)
    if place.is_dir():
        names = sorted(p for p in place.iterdir() if _ending(p) is not None)
    elif place.exists():
        names = [place]
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
                raise DataError(
                    "a line is not a JSON object, or names a key twice",
                    where=str(path),
                    allowed="one object a line, each key once",
                )
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
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return cells([v if v is None or isinstance(v, str) else json.dumps(v) for v in values])


def _csv(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.csv as pc

    with pc.open_csv(path) as reader:
        names = reader.schema.names
    if separated := other_separator(names, path.name):
        raise DataError(separated[0], where=str(path), allowed=separated[1])
    options = pc.ConvertOptions(
        column_types={name: pa.string() for name in names}, null_values=[""], strings_can_be_null=True
    )
    with pc.open_csv(path, convert_options=options) as reader:
        yield from reader
