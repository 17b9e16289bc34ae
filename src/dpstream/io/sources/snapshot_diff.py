"""Computes the changes between two snapshots of a table: the rows that leave and the rows that arrive."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpstream.core import durable
from dpstream.core.errors import ConfigError, DataError, counted
from dpstream.core.foreign import shielded
from dpstream.io.sources.file_opening import file_format, readable
from dpstream.io.sources.formats import blocks, column_names
from dpstream.io.sources.rowhash import row_hashes

#: The size of a partition, in bytes of text.
_PARTITION_BYTES = 2**25
_MOST_PARTITIONS = 256
#: A gzip or parquet file is about so many times smaller than its rows as text.
_COMPRESSED = 6
_SIGN = "__sign__"
_SIDES = (("old", -1), ("new", 1))


@dataclass(frozen=True)
class Diff:
    """How two snapshots are compared, and which columns the result gets.

    Attributes:
        key: columns that name a row. Without them, tables are compared as multisets of rows. With them, a changed row
            whose key is in both snapshots becomes an ``update-before`` and an ``update-after``.
        op_column: the name of the result's operation column.
        step: the name of a column with the step of all changes, and its text; None: no such column.
    """

    key: tuple[str, ...] = ()
    op_column: str = "op"
    step: tuple[str, str] | None = None

    def added(self) -> list[str]:
        """The names of the result's columns that the snapshots do not have."""
        return [*([self.step[0]] if self.step else []), self.op_column]


def write_diff(old: Path, new: Path, out: Path, options: Diff | None = None) -> None:
    """Write the changes that turn ``old`` into ``new`` to a private file (mode 0600), all or nothing.

    Applying them (remove each deleted row once, add each inserted row once) to the rows of ``old`` gives the
    rows of ``new``. A row that is in both snapshots equally often is not in the result.

    Args:
        old, new: csv (cells are texts) or parquet files with the same columns.
        out: a .csv or .parquet file that does not exist yet; .csv only between csv files, as csv has no types and no
            nulls.

    Errors:
        DataError: a file is damaged, the columns differ, or a key names two rows. The message quotes no value.
        ConfigError: names clash, the format cannot hold the result, or ``out`` exists already.

    Cost: both files are read once and cut into partitions of about 32 MB by a hash of the rows, in a folder
    of mode 0700 beside ``out``; memory is one partition. 10^7 rows of 5 columns: see docs/guide/data-in.md.
    """
    chosen = options or Diff()
    schema = _schema(old, new, out, chosen)
    parts = _partitions(old, new)
    descriptor, name = tempfile.mkstemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".parts", dir=out.parent))
    try:
        with os.fdopen(descriptor, "wb") as file:
            with (
                _writer(out, file, _result_schema(schema, chosen)) as writer,
                shielded("the snapshots cannot be compared", where=f"{old}, {new}", allowed="sound files"),
            ):
                for table in _spread((old, new), schema, chosen, parts, work):
                    writer.write_table(_changes(table, chosen, new))
            file.flush()
            durable.sync_file(file.fileno())
        durable.rename(Path(name), out)
        durable.sync_directory(out.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        durable.unlink(Path(name))


def _schema(old: Path, new: Path, out: Path, options: Diff) -> Any:
    """The columns of both snapshots, with common types."""
    import pyarrow as pa

    kinds = _formats(old, new, out)
    names = column_names(old)
    others = column_names(new)
    odd = sorted(set(names) ^ set(others))
    if odd:
        raise DataError(
            f"only one of the snapshots has {counted(len(odd), 'column')}",
            where=f"{old}, {new}",
            allowed="the same columns in both",
        )
    for column in options.key:
        if column not in names:
            raise ConfigError(
                f"there is no column {column!r}",
                where="--key",
                allowed=f"columns of the snapshots, which have {counted(len(names), 'column')}",
            )
    added = options.added()
    for column in added:
        if column in names or column == _SIGN or added.count(column) > 1:
            raise ConfigError(
                f"the name {column!r} is taken", where="diff", allowed="a name that no other column has"
            )
    tables = [next(iter(blocks(path, columns=names))).schema for path in (old, new)]
    if "csv" in kinds[:2] and kinds[0] != kinds[1]:
        raise ConfigError(
            "one snapshot is csv and the other parquet, and their cells cannot be compared",
            where=f"{old}, {new}",
            allowed="two files of one format",
        )
    plain = [_without_metadata(schema) for schema in tables]
    for number, column in enumerate(names, start=1):
        try:
            pa.unify_schemas([pa.schema([s.field(column)]) for s in plain], promote_options="permissive")
        except pa.ArrowException:
            raise DataError(
                f"column {number} has different types in the two snapshots",
                where=f"{old}, {new}",
                allowed="the same type in both",
            ) from None
    schema = pa.unify_schemas(plain, promote_options="permissive")
    for number, field in enumerate(schema, start=1):
        if pa.types.is_nested(field.type):
            raise DataError(
                f"column {number} holds lists or objects",
                where=str(old),
                allowed="texts, numbers, booleans, days and times",
            )
    return schema


def _without_metadata(schema: Any) -> Any:
    """The fields without metadata, and with the value types of dictionaries, because each file has its own
    dictionary."""
    import pyarrow as pa

    fields = []
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def _formats(old: Path, new: Path, out: Path) -> list[str]:
    kinds = []
    for path in (old, new, out):
        kind = file_format(path)
        if kind == "ndjson" or (path is out and path.suffix not in (".csv", ".parquet")):
            raise ConfigError(
                f"{kind} cannot be used here"
                if path is not out
                else "the changes cannot be written in this format",
                where=str(path),
                allowed=".csv, .parquet" if path is out else ".csv, .csv.gz, .parquet",
            )
        kinds.append(kind)
    if kinds[2] == "csv" and "parquet" in kinds[:2]:
        raise ConfigError(
            "csv has no types and no nulls, so changes between parquet files would not be exact",
            where=str(out),
            allowed="a name that ends in .parquet",
        )
    if not out.parent.is_dir():
        raise ConfigError("the folder does not exist", where=str(out.parent), allowed="a folder that exists")
    if out.exists():
        raise ConfigError("there is a file already", where=str(out), allowed="another name")
    return kinds


def _partitions(old: Path, new: Path) -> int:
    total = sum(path.stat().st_size * (1 if path.suffix == ".csv" else _COMPRESSED) for path in (old, new))
    return min(_MOST_PARTITIONS, 1 + total // _PARTITION_BYTES)


def _signed(path: Path, sign: int, schema: Any) -> Iterator[Any]:
    """The rows of a snapshot in the common types, with the column ``_SIGN`` (-1: old, 1: new)."""
    import pyarrow as pa

    for block in blocks(path, columns=schema.names):
        with readable(path):
            table = block.cast(schema)
        yield table.append_column(_SIGN, pa.array(np.full(table.num_rows, sign, np.int8)))


def _spread(paths: tuple[Path, Path], schema: Any, options: Diff, parts: int, work: Path) -> Iterator[Any]:
    """The rows of both snapshots, partition by partition. Equal rows (with ``key``: rows of one key) share a
    partition."""
    import pyarrow as pa

    signed = (
        block for path, (_, sign) in zip(paths, _SIDES, strict=True) for block in _signed(path, sign, schema)
    )
    if parts == 1:
        yield pa.concat_tables(signed)
        return
    full = schema.append(pa.field(_SIGN, pa.int8()))
    names = [work / f"{part}.arrow" for part in range(parts)]
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(pa.ipc.new_file(str(name), full)) for name in names]
        for block in signed:
            partition = row_hashes(block.select(list(options.key) or schema.names)) % np.uint64(parts)
            order = np.argsort(partition, kind="stable")
            ends = np.searchsorted(partition[order], np.arange(parts + 1, dtype=np.uint64))
            for part, writer in enumerate(writers):
                rows = order[ends[part] : ends[part + 1]]
                if len(rows):
                    writer.write_table(block.take(rows))
    for name in names:
        with pa.OSFile(str(name)) as file, pa.ipc.open_file(file) as reader:
            table = reader.read_all()
        durable.unlink(name)
        yield table


def _changes(table: Any, options: Diff, new: Path) -> Any:
    """The deletes and inserts of one partition, with the added columns."""
    names = [name for name in table.column_names if name != _SIGN]
    # Rows with all columns equal are one group; null equals null.
    net = table.group_by(names, use_threads=False).aggregate([(_SIGN, "sum"), (_SIGN, "count")])
    signs = net.column(f"{_SIGN}_sum").to_numpy().astype(np.int64)
    if options.key:
        _check_keys(table, options.key, new)
    rows = np.repeat(np.arange(len(signs)), np.abs(signs))
    changed = net.select(names).take(rows)
    arrives = np.repeat(signs > 0, np.abs(signs))
    order = np.argsort(arrives, kind="stable")
    return _marked(changed.take(order), arrives[order], options)


def _check_keys(table: Any, key: Sequence[str], new: Path) -> None:
    """Check that no key names two rows of a snapshot (DataError)."""
    groups = (
        table.select([*key, _SIGN]).group_by([*key, _SIGN], use_threads=False).aggregate([([], "count_all")])
    )
    counts = groups.column("count_all").to_numpy()
    if len(counts) and int(counts.max()) > 1:
        raise DataError(
            f"a key ({', '.join(key)}) names more than one row of a snapshot",
            where=str(new),
            allowed="columns that name one row each, or no --key (then whole rows are compared)",
        )


def _marked(changed: Any, arrives: Any, options: Diff) -> Any:
    import pyarrow as pa

    updated = _has_partner(changed, options.key) if options.key else np.zeros(len(arrives), np.bool_)
    words = np.array(["delete", "insert", "update-before", "update-after"])
    operations = pa.array(words[arrives.astype(int) + 2 * updated].tolist(), pa.string())
    columns = {name: changed.column(name) for name in changed.column_names}
    if options.step is not None:
        columns[options.step[0]] = pa.array([options.step[1]] * changed.num_rows, pa.string())
    columns[options.op_column] = operations
    return pa.table(columns)


def _has_partner(changed: Any, key: Sequence[str]) -> Any:
    """Whether each change is half of an update: its key leaves and arrives. No key names two rows of a snapshot."""
    import pyarrow as pa

    place = "__place__"
    keyed = changed.select(list(key)).append_column(place, pa.array(np.arange(changed.num_rows)))
    pairs = keyed.group_by(list(key), use_threads=False).aggregate([(place, "min"), (place, "max")])
    first, last = (pairs.column(f"{place}_{end}").to_numpy() for end in ("min", "max"))
    updated = np.zeros(changed.num_rows, np.bool_)
    both = first != last
    updated[first[both]] = True
    updated[last[both]] = True
    return updated


def _result_schema(schema: Any, options: Diff) -> Any:
    import pyarrow as pa

    for name in options.added():
        schema = schema.append(pa.field(name, pa.string()))
    return schema


def _writer(out: Path, file: Any, schema: Any) -> Any:
    import pyarrow.csv
    import pyarrow.parquet

    if out.suffix == ".csv":
        return pyarrow.csv.CSVWriter(file, schema)
    return pyarrow.parquet.ParquetWriter(file, schema)
