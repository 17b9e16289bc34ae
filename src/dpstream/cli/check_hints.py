"""What ``dpstream check`` tells besides problems: what fits the schema and is perhaps not meant."""

from __future__ import annotations

import datetime
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpstream.io.sources import StepInput
    from dpstream.project import Config

#: Rows that are looked at for identifiers.
_ROWS = 20_000
#: A last period is compared with so many others or more, and only where they hold so many rows.
_STEPS, _MANY = 4, 20


class Hints:
    """Sees the rows of all steps, and says what looks wrong although it fits. Private, but for what the file says."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._tables: list[Any] = []
        self._left = _ROWS
        self._step = 0
        self._rows: dict[int, int] = {}
        self._batch_id = ""

    def see(self, entry: StepInput, table: Any) -> None:
        """Take rows of a step."""
        self._step, self._batch_id = entry.step, entry.batch_id
        self._rows[entry.step] = self._rows.get(entry.step, 0) + table.num_rows
        whole = self._config.source_options.whole_tables
        if self._left > 0 and not (whole and self._tables):
            self._tables.append(table.slice(0, self._left))
            self._left -= table.num_rows

    def sentences(self, *, private: bool) -> list[str]:
        """What to look at, one sentence each; what only the records say where ``private`` sentences may be shown."""
        told = [*self._operations(), *self._ends_within()]
        return [*told, *self._identifiers(), *self._cut_off()] if private else told

    def _operations(self) -> list[str]:
        from dpstream.core.schema import Categorical
        from dpstream.project.keyed_draft import are_operations

        return [
            f"column {column.name!r} holds words of a change feed; if it says what happened to a record, name it as "
            "op_column in [source], and take it out of [schema.columns]"
            for column in self._config.schema().columns
            if isinstance(column, Categorical) and are_operations(column.name, column.bin_labels())
        ]

    def _identifiers(self) -> list[str]:
        import pyarrow as pa

        from dpstream.core.schema import Categorical, Integer
        from dpstream.project.column_draft import is_nearly_unique

        found = []
        for column in self._config.schema().columns:
            if isinstance(column, Categorical | Integer):
                parts = [
                    table.column(column.name) for table in self._tables if column.name in table.column_names
                ]
                chunks = [
                    chunk for part in parts for chunk in part.chunks if not pa.types.is_nested(chunk.type)
                ]
                same = [chunk for chunk in chunks if chunk.type == chunks[0].type]
                if same and is_nearly_unique(pa.chunked_array(same)):
                    found.append(
                        f"hardly a value of column {column.name!r} occurs twice; if it is an identifier, take it out "
                        "of [schema.columns] and name it in the list ignore of [schema]"
                    )
        return found

    def _ends_within(self) -> list[str]:
        options = self._config.source_options
        last, grid = options.final_step(), options.grid
        period = None if grid is None or last is None else grid.period(last)
        if period is not None and last == self._step and isinstance(options.end, datetime.date):
            final = period[1] - datetime.timedelta(days=1)
            if options.end < final:
                return [
                    f"end = {options.end} lies within the last period, which ends on {final}: step {last} "
                    f"({self._batch_id}) would be released before it is over, and later records of it come too late"
                ]
        return []

    def _cut_off(self) -> list[str]:
        options = self._config.source_options
        if self._ends_within():
            return []  # said already
        others = [rows for step, rows in self._rows.items() if step != self._step]
        usual = statistics.median(others) if len(others) >= _STEPS else 0
        whole = options.whole_tables or options.key_column is not None
        if not whole and usual >= _MANY and self._rows[self._step] < usual / 2:
            return [
                f"step {self._step} ({self._batch_id}), the last one, holds less than half of what is usual: if its "
                "period was cut off when the data were made, end the stream one step earlier until the rest is there"
            ]
        return []
