"""A released table made, decoded and written block by block, in several threads.

Only the blocks under way are in memory. The bytes do not depend on the number of threads: a block's records follow from
its counts and a seed of its own, and blocks are written in their order by one thread.
"""

from __future__ import annotations

from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts import Synthesis
from dpstream.core.threads import in_order
from dpstream.io.sinks.drawing import Drawing
from dpstream.io.sinks.publisher import Publisher
from dpstream.io.sinks.table_files import Content
from dpstream.stream.release.manifest import Label, labelled
from dpstream.stream.store.staging import Staging
from dpstream.stream.store.store_database import UNSEALED, Sealing

if TYPE_CHECKING:
    from dpstream.core.schema import Schema

#: A larger table is drawn in blocks of so many rows; a smaller one at once.
BLOCK = 2**18


def drawing(
    synthesis: Synthesis, schema: Schema, rows: int, seed: int, size: int | None, label: Label
) -> Drawing:
    """What a table is drawn from: in blocks of ``size`` rows, where that can be; else at once, as for None."""
    arrow = labelled(schema.arrow_schema().empty_table(), label).schema
    blocks = None if size is None else synthesis.blocks(rows, seed, size)
    if blocks is None:
        return Drawing(schema, arrow, rows, seed, None, None, partial(synthesis.released, schema, rows, seed))
    return Drawing(schema, arrow, rows, seed, size, blocks)


def whole_table(drawn: Drawing) -> Any:
    """All of it, as one pyarrow Table in memory."""
    import pyarrow as pa

    return pa.concat_tables(in_order(call, drawn.makers(dictionaries=False)))


def write_blocks(
    sink: Publisher, staging: Staging, step: int, drawn: Drawing, sealing: Sealing = UNSEALED
) -> dict[str, Content]:
    """The files of a table: the table itself staged, what lies beside it in memory.

    Args:
        sealing: of a file that waits to be published; without it, the file is ready for that.

    Errors:
        OSError: the disk is full or fails.
    """
    with staging.file(step, sink.table_name, sealing) as file:
        writer = sink.block_writer(drawn.arrow, file.put)
        for prepared in in_order(lambda block: writer.prepare(block()), drawn.makers(dictionaries=True)):
            writer.write(prepared)
        writer.close()
        return {**sink.render(drawn.arrow.empty_table()), sink.table_name: file.finish()}
