"""A released table that is drawn where its readers are, instead of in the folder of releases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from dpstream.core.schema import Schema
from dpstream.core.schema.domain import Codes
from dpstream.io.sinks.table_files import BlockWriter

#: In the place of a table's file.
DRAWN_TABLE = "table.json"


def drawn_table(step: int, rows: int, seed: int, block: int | None) -> bytes:
    """What lies in a step's folder instead of its table. Public."""
    facts = {
        "format": 1,
        "step": step,
        "rows": rows,
        "sampling_seed": seed,
        "drawn_in_blocks_of": block,
        "words": (
            f"The records are in partition step={step} of a table drawn, after the commit, from the "
            "step's model and this seed."
        ),
    }
    return (json.dumps(facts, indent=1) + "\n").encode()


@dataclass(frozen=True, eq=False)
class Drawing:
    """What the table of a committed step is drawn from: its noisy model and a seed. Post-processing of what the step
    released; nothing private, and no randomness that a guarantee rests on.

    Attributes:
        schema: the released columns.
        arrow: the ``pyarrow.Schema`` of the table, with its label.
        rows: of the table.
        seed: public at most as long as the table is: with an equal model of another step it gives the table again.
        block: rows of a block; None where it is drawn at once.
        blocks: makers of its blocks; None where it is drawn at once.
        whole: draws a table that is drawn at once, as a pyarrow Table.
    """

    schema: Schema
    arrow: Any
    rows: int
    seed: int
    block: int | None
    blocks: Iterable[Callable[[], Codes]] | None
    whole: Callable[[], Any] | None = None

    def makers(self, *, dictionaries: bool) -> Iterator[Callable[[], Any]]:
        """Makers of its blocks as pyarrow Tables, with other seeds inside the bins than for the codes.

        Args:
            dictionaries: see ``Schema.decode``; of a table that is drawn at once nothing.
        """
        if self.blocks is None:
            assert self.whole is not None
            yield self.whole
            return
        for number, codes in enumerate(self.blocks):
            yield partial(_decoded, self.schema, codes, self.seed, number, dictionaries)

    def write(self, first: int, last: int, put: Callable[[bytes], None]) -> int:
        """Write these blocks as a Parquet file, a row group each, and give its number of rows. Of all blocks it is the
        file that the folder of releases would have."""
        writer = BlockWriter(self.arrow, "parquet", put)
        rows = 0
        for make in islice(self.makers(dictionaries=True), first, last):
            table = make()
            writer.write(writer.prepare(table))
            rows += table.num_rows
        writer.close()
        return rows


def _decoded(schema: Schema, codes: Callable[[], Codes], seed: int, number: int, dictionaries: bool) -> Any:
    inner = int.from_bytes(hashlib.sha256(b"decode:%d:%d" % (seed, number)).digest()[:8], "little") >> 1
    return schema.decode(codes(), inner, dictionaries=dictionaries)
