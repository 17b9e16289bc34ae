"""Reads Parquet files block by block: groups of rows in a few threads, or one block after the other.

pyarrow is imported inside functions, because the command line must start quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dpstream.core.objects import AnyPath
from dpstream.core.schema.arrow import valid_text
from dpstream.core.threads import in_order
from dpstream.io.sources.file_opening import arrow_bytes, readable

#: A group of more rows is read by one thread, so that what was read of it does not wait for its end.
_GROUP_ROWS = 2**21
#: A block that something is made of has up to so many times the rows, while it has no more cells and bytes (as the file
#: has them before compression).
_LARGER, _MOST_CELLS, _MOST_BYTES = 4, 2**23, 2**25


def parquet_blocks(
    path: AnyPath, wanted: list[str], rows: int, each: Callable[[Any], Any] | None, coded: frozenset[str]
) -> Iterator[Any]:
    """What ``each`` makes of the blocks of a Parquet file.

    Args:
        rows: of a block. With ``each`` a block may have four times as many: each call into Arrow or NumPy gives up
            Python's lock and waits for it again, which costs threads more than their work on small blocks.
        each: what is kept of a block; it is called in several threads. None: the blocks are handed out as they are,
            and none is read ahead.
        coded: columns of texts that are read as dictionaries.
    """
    import pyarrow as pa
    import pyarrow.parquet

    # Opened once: another file of that name may take its place meanwhile, and its bytes do not belong to this metadata.
    # Reads at an offset may come from several threads at once.
    with (
        readable(path),
        arrow_bytes(path) as opened_once,
        pyarrow.parquet.ParquetFile(opened_once) as file,
    ):
        facts = file.metadata
        rows = rows if each is None else _larger(rows, facts, len(wanted))
        kinds = file.schema_arrow
        texts = [name for name in wanted if name in coded and _is_plain_text(kinds.field(name).type)]

        def opened() -> Any:
            return pyarrow.parquet.ParquetFile(opened_once, metadata=facts, read_dictionary=texts)

        def group(number: int) -> list[Any]:
            with opened() as own:
                return [work(batch) for batch in _batches(own, wanted, rows, number)]

        def work(batch: Any) -> Any:
            table = pa.Table.from_batches([batch]).select(wanted)
            # A text that is no UTF-8 becomes valid: the schema has bins for it, so it must not stop the stream.
            table = pa.table([valid_text(column) for column in table.columns], names=table.column_names)
            return table if each is None else each(table)

        with opened() as first:
            empty = first.schema_arrow.empty_table().select(wanted)
        yield empty if each is None else each(empty)
        if each is None:
            yield from map(work, file.iter_batches(batch_size=rows, columns=wanted, use_threads=False))
        elif all(facts.row_group(i).num_rows <= _GROUP_ROWS for i in range(facts.num_row_groups)):
            for made in in_order(group, range(facts.num_row_groups)):
                yield from made
        else:
            with opened() as whole:
                yield from in_order(work, _batches(whole, wanted, rows))


def _larger(rows: int, facts: Any, columns: int) -> int:
    groups = [facts.row_group(i) for i in range(facts.num_row_groups)]
    # The metadata gives the size of a group's columns together.
    widest = max((-(-group.total_byte_size // max(group.num_rows, 1)) for group in groups), default=1)
    return max(rows, min(_LARGER * rows, _MOST_CELLS // max(columns, 1), _MOST_BYTES // max(widest, 1)))


def _batches(file: Any, wanted: list[str], rows: int, *groups: int) -> Iterator[Any]:
    chosen = {"row_groups": list(groups)} if groups else {}
    yield from file.iter_batches(batch_size=rows, columns=wanted, use_threads=False, **chosen)


def _is_plain_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
