"""Invented streams of a configuration's schema and size, with targets: records that are planted or not.

All records are invented from public facts. A stream is the same in all runs, and the attackers know it; each run
differs in its targets only. A *member* is there or not (or, where numbers of records are public, in place of another
record). A *known* target is there for certain, and one of its values is drawn: all other values are known to the
attackers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstream.core.contracts import ExpectedTable, NoisyCounts
from dpstream.core.privacy import PureDP, Record, User
from dpstream.tools.evaluate.array_types import Codes, Floats, Ints

if TYPE_CHECKING:
    from dpstream.project import Config

#: Steps that are run where the stream has more: what was promised for all of them holds for the first ones.
_MAX_STEPS = 16
#: Records of a table whose size nobody guessed, and at most: among fewer records each one shows more.
RECORDS, _MOST = 1_000, 4_000
#: Targets of each kind in one run, at most.
_MEMBERS, _KNOWN = 16, 8
#: Fewer targets than these are too few: then they may be more alike.
_FEW = 6
#: Values that a known target may have in the unknown column, at most.
_MAX_VALUES = 6
#: Records among which targets are looked for.
TRIED = 2_000


@dataclass(frozen=True)
class Targets:
    """What is planted, and when.

    Attributes:
        members: codes, shape (targets, columns). fillers: what is there instead; None: nothing.
        known: shape (targets, values, columns): rows that differ in one column.
        copies: how often a target's row is planted: all that one protected unit may bring.
        at: the step.
    """

    members: Codes
    fillers: Codes | None
    known: Codes
    copies: int
    at: int

    def rows(self, there: Sequence[bool], values: Sequence[int]) -> Codes:
        """What a run plants: by whether each member is there, and which value each known target has."""
        chosen = [row for row, one in zip(self.members, there, strict=True) if one]
        if self.fillers is not None:
            chosen += [row for row, one in zip(self.fillers, there, strict=True) if not one]
        chosen += [rows[value] for rows, value in zip(self.known, values, strict=True)]
        codes = np.array(chosen, np.int32).reshape(len(chosen), self.members.shape[1])
        return np.repeat(codes, self.copies, axis=0)


class AttackedStream(ABC):
    """One family's invented stream.

    Attributes:
        config: what is attacked. steps: how many are run. records: how many are there in the end, about.
        targets: what is planted.
        base: the public table that it begins with. groups: see ``group``.
        reference: what an attacker without shadow models knows: as many records of the same kind, as ``seen`` ones.
        words: the stream in words.
    """

    config: Config
    steps: int
    records: int
    targets: Targets
    reference: Codes
    words: str
    base: Any = None
    groups: int = 1

    @abstractmethod
    def batches(self, planted: Codes) -> Iterator[Any]:
        """The steps, with these rows."""

    @abstractmethod
    def seen(self, synthesis: Any, step: int, seed: int) -> tuple[Codes, Floats | None]:
        """A released table as codes that are compared, and what each row stands for."""

    def shown(self, rows: Codes, step: int) -> Codes:
        """What of a target's rows would be in the table of a step, as codes of ``seen``."""
        return rows

    @abstractmethod
    def expected(self, noisy: NoisyCounts) -> Ints | None:
        """What was counted, without targets; None where attackers cannot tell."""

    @abstractmethod
    def added(self, noisy: NoisyCounts, row: Codes) -> Ints:
        """What one target's row adds to it."""

    def chance(self, noisy: NoisyCounts) -> float:
        """The probability that a target is among the records that were counted."""
        return 1.0

    def group(self, noisy: NoisyCounts) -> int:
        """Counts of one group are weighed alike; the number of groups is ``groups``."""
        return 0


def steps_of(config: Config) -> int:
    """How many steps are run."""
    ends = (config.budget.horizon, config.source_options.final_step())
    return min([_MAX_STEPS, *(end for end in ends if end is not None)])


def table_of(config: Config, steps: int) -> tuple[ExpectedTable, str]:
    """The size of the invented table, and where it comes from."""
    if config.expected is None:
        steady = isinstance(config.unit, Record)
        table = ExpectedTable(RECORDS, RECORDS / steps, "steady" if steady else "grows")
        return table, f"{RECORDS:,} records, because nothing says how many there are ([expect])"
    table = config.expected.table
    if table.size <= _MOST:
        return table, f"{table.size:,} records, as [expect] says"
    less = _MOST / table.size
    smaller = replace(table, size=_MOST, records_per_step=table.records_per_step * less)
    return smaller, f"{_MOST:,} records instead of {table.size:,}: among fewer each one shows more"


def copies_of(config: Config) -> int:
    """All that one protected unit may bring at one step."""
    return config.unit.max_events if isinstance(config.unit, User) else 1


def choose_targets(
    tried: Codes, base: Codes, at: int, config: Config, unknown: int, values: Sequence[int]
) -> Targets:
    """Rare records that have few values in common with each other, so that each can be told from the others.

    Args:
        tried: records to choose from. base: records of the stream: rare is what is unlike them.
        unknown: the column of known targets that is unknown. values: its values.
    """
    columns = tried.shape[1]
    common = np.zeros(len(tried))
    for column in range(columns):
        shares = np.bincount(base[:, column], minlength=int(tried[:, column].max()) + 1) / max(1, len(base))
        common += np.log(shares[tried[:, column]] + 1 / (len(base) + 1))
    chosen: list[int] = []
    for most_alike in range(max(1, columns // 3), max(1, columns // 2) + 1):
        chosen = _apart(tried, np.argsort(common, kind="stable"), most_alike if columns > 1 else 0)
        if len(chosen) >= _FEW:
            break
    known = max(1, len(chosen) // 3) if columns > 1 and len(chosen) > 1 else 0
    fillers = None
    if getattr(config.unit, "relation", "add-remove") == "replace":
        fillers = base[np.linspace(0, len(base) - 1, len(chosen) - known).astype(int)]
    options = np.repeat(tried[chosen[:known]][:, None, :], len(values), axis=1)
    if known:
        options[:, :, unknown] = values
    return Targets(tried[chosen[known:]], fillers, options, copies_of(config), at)


def _apart(tried: Codes, order: Ints, most_alike: int) -> list[int]:
    """The first ones that have at most so many values in common with each other."""
    chosen: list[int] = []
    for place in order.tolist():
        alike = (tried[chosen] == tried[place]).sum(axis=1)
        if not len(chosen) or alike.max() <= most_alike:
            chosen.append(place)
        if len(chosen) == _MEMBERS + _KNOWN:
            break
    return chosen


def unknown_column(sizes: Sequence[int], config: Config) -> tuple[int, list[int]]:
    """The column of few values whose value is attacked, and these values."""
    allowed = [i for i, size in enumerate(sizes) if size > 1] or [0]
    column = min(allowed, key=lambda i: (abs(sizes[i] - 4), -i))
    most = _MAX_VALUES if isinstance(config.budget.budget, PureDP) else 2
    return column, list(range(min(most, sizes[column])))
