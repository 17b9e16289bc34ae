"""Files with one row per person and one column per period: each step is the column of one period."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.objects import AnyPath
from dpstream.io.sources.files import FileSource
from dpstream.io.sources.pieces import Pieces
from dpstream.io.sources.positions import Position
from dpstream.io.sources.source import check_start
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.step import StepInput, apart_from_users

_PERIOD = re.compile(r"\{period(?::0([1-9]))?\}")


class WideSource(FileSource):
    """Reports of people, period by period, from files with one row per person.

    Guarantee: the name of its column, a public fact, decides the step of a report. No person is in two files. Which
    period columns the files have is declared public, and alone decides the number of steps.

    Args:
        options: with ``period_columns``: the columns' names in order, or one text with ``{period}`` (1, 2, ...;
            ``{period:02}`` with leading zeros) and, for several variables, ``{column}``.
        base: folder that paths are relative to.
        columns: the variables' names, as the schema has them.

    Errors:
        DataError: the files lack a period before the last one, or differ in their columns.
        ConfigError: ``period_columns`` does not name a column for each variable.

    Cost: a step reads the people's ids and its own columns of a Parquet file; csv files whole; ndjson files twice.
    """

    def __init__(
        self,
        options: SourceOptions,
        *,
        base: str | Path = ".",
        columns: Sequence[str] = (),
        ignored: Sequence[str] = (),
        reveal: bool = False,
    ) -> None:
        super().__init__(options, base=base, ignored=ignored, reveal=reveal)
        self._variables = tuple(columns)
        # The keys of all records decide which periods an NDJSON file has; the order of records must not.
        self._json_keys = replace(self._json_keys, all_keys=True)

    def steps(
        self, start_step: int = 1, *, seen: Position | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``: the periods from ``start_step`` on. The columns of earlier periods are not read."""
        check_start(start_step)
        return self._checked(self._period_steps(start_step))

    def _period_steps(self, start_step: int) -> Iterator[StepInput]:
        files = self._checked_files()
        periods = self._periods(self._columns_of(files[0]), self._name(files[0]))
        for step in range(start_step, len(periods) + 1):
            yield self._step(step, files, periods[step - 1])

    def _step(self, step: int, files: list[AnyPath], columns: list[str]) -> StepInput:
        user = str(self.options.user_column)
        wanted = [user, *columns]
        names = [user, *self._variables]
        pieces = None
        for path in files:
            for block in self._blocks(path, wanted):
                table = block.select(wanted).rename_columns(names)
                pieces = pieces or Pieces(table.slice(0, 0))
                rows = table.num_rows
                pieces.add(table, np.zeros(rows, np.bool_), steps=np.full(rows, step))
        assert pieces is not None  # a file gives one block at least
        inserts, _ = pieces.take(step)
        return StepInput(step, f"period-{step}", None, *apart_from_users(inserts, None, user))

    def _periods(self, names: list[str], where: str) -> list[list[str]]:
        """The columns of each period that the files have."""
        wanted = self.options.period_columns
        if isinstance(wanted, str):
            periods = self._numbered(wanted, names)
        else:
            if len(self._variables) != 1:
                raise ConfigError(
                    "a list of period columns fits one variable only",
                    where="[source] period_columns",
                    allowed='a text with {column} and {period}, such as "{column}_{period}"',
                )
            periods = [[name] for name in wanted or ()]
        complete = [all(name in names for name in period) for period in periods]
        last = max((number for number, whole in enumerate(complete, start=1) if whole), default=0)
        if last == 0 or not all(complete[:last]):
            gap = next(name for period in periods for name in period if name not in names) if periods else ""
            what = "but there are later periods" if last else "and no period is complete"
            raise DataError(
                f"there is no column {gap!r}, {what}",
                where=where,
                allowed="every period from the first one on",
            )
        return periods[:last]

    def _numbered(self, template: str, names: list[str]) -> list[list[str]]:
        """The columns of each period, up to the largest number in the name of a column."""
        numbered = _PERIOD.search(template)
        assert numbered is not None  # checked with the options
        width = int(numbered[1] or 1)
        if "{column}" not in template and len(self._variables) != 1:
            raise ConfigError(
                "period_columns names the same columns for several variables",
                where="[source] period_columns",
                allowed='{column} in it, such as "{column}_{period}"',
            )
        texts = [template.replace("{column}", name) for name in self._variables]
        largest = 1
        for text in texts:
            before, _, after = _PERIOD.sub("\0", text).partition("\0")
            pattern = re.compile(re.escape(before) + r"([0-9]{1,5})" + re.escape(after))
            numbers = (match[1] for name in names if (match := pattern.fullmatch(name)))
            largest = max([largest, *(int(n) for n in numbers if n == f"{int(n):0{width}}")])
        return [
            [_PERIOD.sub(f"{period:0{width}}", text) for text in texts] for period in range(1, largest + 1)
        ]
