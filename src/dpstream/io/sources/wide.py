"""Files with one row a person and one column a period: each step is one period's column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpstream.core.errors import ConfigError, DataError
from dpstream.io.sources.files import FileSource
from dpstream.io.sources.pieces import Pieces
from dpstream.io.sources.positions import Position
from dpstream.io.sources.source import check_start
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.step import StepInput, apart_from_users

__all__ = ["WideSource"]

_PERIOD = re.compile(r"\{period(?::0([1-9]))?\}")


class WideSource(FileSource):
    """One period of reports after the other, from files of one row a person.

    Guarantee: which step a report belongs to is its column's name, a public fact. Several files hold several people.
    Which period columns are there is declared public; nothing else decides how many steps there are.

    Args:
        options: with ``period_columns``: the columns' names in order, or one text with ``{period}`` (1, 2, ...;
            ``{period:02}`` with leading zeros) and, for several variables, ``{column}``.
        base: folder that paths are relative to.
        columns: the variables' names, as the schema has them.

    Errors:
        DataError: a period that is missing while a later one is there, files that differ in their columns.
        ConfigError: names of several variables that cannot be told apart.

    Cost: a step reads the people's ids and its own columns (of Parquet; csv files are read whole, ndjson files twice).
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
        # Which periods there are is read off the records' keys: no record may count for being among the first.
        self._rules = replace(self._rules, all_keys=True)

    def steps(
        self, start_step: int = 1, *, seen: Position | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """The periods from ``start_step`` on. Nothing of earlier ones is read."""
        check_start(start_step)
        files = self._checked_files()
        periods = self._periods(self._columns_of(files[0]), self._name(files[0]))
        for step in range(start_step, len(periods) + 1):
            yield self._step(step, files, periods[step - 1])

    def _step(self, step: int, files: list[Path], columns: list[str]) -> StepInput:
        user = str(self.options.user_column)
        wanted = [user, *columns]
        names = [user, *self._variables]
        pieces = None
        for path in files:
            for block in self._blocks(path, wanted, counted=step == 1):
                table = block.select(wanted).rename_columns(names)
                pieces = pieces or Pieces(table.slice(0, 0))
                rows = table.num_rows
                pieces.add(table, np.zeros(rows, np.bool_), steps=np.full(rows, step))
        assert pieces is not None  # a file gives one block at least
        inserts, _ = pieces.take(step)
        return StepInput(step, f"period-{step}", None, *apart_from_users(inserts, None, user))

    def _periods(self, names: list[str], where: str) -> list[list[str]]:
        """The columns of each period that is there."""
        wanted = self.options.period_columns
        if isinstance(wanted, str):
            periods = self._numbered(wanted, names)
        else:
            if len(self._variables) != 1:
                raise ConfigError(
                    "a list of period columns is for one variable",
                    where="[source] period_columns",
                    allowed='a text with {column} and {period}, such as "{column}_{period}"',
                )
            periods = [[name] for name in wanted or ()]
        there = [all(name in names for name in period) for period in periods]
        last = max((number for number, present in enumerate(there, start=1) if present), default=0)
        if last == 0 or not all(there[:last]):
            gap = next(name for period in periods for name in period if name not in names) if periods else ""
            what = "later periods are there" if last else "no period is there"
            raise DataError(
                f"there is no column {gap!r}, and {what}",
                where=where,
                allowed="every period from the first one on",
            )
        return periods[:last]

    def _numbered(self, template: str, names: list[str]) -> list[list[str]]:
        """All periods up to the largest number that a column has."""
        numbered = _PERIOD.search(template)
        assert numbered is not None  # checked with the options
        width = int(numbered[1] or 1)
        if "{column}" not in template and len(self._variables) != 1:
            raise ConfigError(
                "the names of several variables' columns cannot be told apart",
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
