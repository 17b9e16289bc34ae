"""Questions about the last few periods of each person, as weights on the patterns of a window.

A pattern is a tuple of symbols, the oldest first. Its code is the number it spells in base ``symbols``, so that
the newest symbol is the last digit and a narrower window is what is left of a division.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError


def digits(width: int, symbols: int) -> NDArray[np.int64]:
    """All patterns of a width, shape (symbols^width, width), the oldest symbol first, in the order of codes.

    >>> digits(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    codes = np.arange(symbols**width)
    powers = symbols ** np.arange(width - 1, -1, -1)
    return codes[:, None] // powers % symbols


def spelled(patterns: NDArray[np.integer], symbols: int) -> NDArray[np.int64]:
    """The code of each row, shape (rows, width): symbols, the oldest first; the inverse of ``digits``."""
    codes = np.zeros(len(patterns), np.int64)
    for column in patterns.T:
        codes = codes * symbols + column
    return codes


class WindowQuery(ABC):
    """People whose last ``width`` periods are as the question says.

    Attributes:
        width: how many periods it looks back on.
        values: the symbols (codes) that it names.
    """

    width: int
    values: tuple[int, ...]

    @abstractmethod
    def describe(self) -> str:
        """The question in words."""

    @abstractmethod
    def of(self, patterns: NDArray[np.integer]) -> NDArray[np.float64]:
        """1 for each row, shape (rows, width), that is meant, else 0: symbols, the oldest first."""

    def weights(self, symbols: int) -> NDArray[np.float64]:
        """The same for each pattern of ``width`` symbols, by code. Errors: as ``check``."""
        self.check(symbols)
        return self.of(digits(self.width, symbols))

    def check(self, symbols: int) -> None:
        """Raise ConfigError where a symbol is asked for that an alphabet of so many does not have."""
        for value in self.values:
            if not (_is_whole(value) and 0 <= value < symbols):
                raise ConfigError(
                    f"unknown symbol {value!r}",
                    where="query",
                    allowed=f"0 to {symbols - 1} (codes of the values)",
                )


@dataclass(frozen=True)
class AtLeast(WindowQuery):
    """People with one of ``values`` in at least ``times`` of the last ``width`` periods.

    >>> AtLeast(2, width=3).weights(2).tolist()
    [0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0]
    """

    times: int
    width: int
    values: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if not (_is_whole(self.times) and _is_whole(self.width) and 1 <= self.times <= self.width):
            raise ConfigError(
                f"{self.times} of {self.width} periods cannot be asked for",
                where="query",
                allowed="1 <= times <= width",
            )
        if not (isinstance(self.values, tuple) and self.values):
            raise ConfigError(
                f"unreadable values = {self.values!r}",
                where="query",
                allowed="a tuple of symbols (codes)",
            )

    @property
    def _named(self) -> str:
        return " or ".join(str(value) for value in self.values)

    def describe(self) -> str:
        """The question in words."""
        return f"{self._named} in at least {self.times} of the last {self.width} periods"

    def of(self, patterns: NDArray[np.integer]) -> NDArray[np.float64]:
        """See ``WindowQuery.of``."""
        return _floats(np.isin(patterns, self.values).sum(axis=1) >= self.times)


@dataclass(frozen=True)
class Consecutive(AtLeast):
    """People with one of ``values`` in at least ``times`` periods in a row, within the last ``width``.

    >>> Consecutive(2, width=3).weights(2).tolist()
    [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    """

    def describe(self) -> str:
        """The question in words."""
        return f"{self._named} in at least {self.times} periods in a row, of the last {self.width}"

    def of(self, patterns: NDArray[np.integer]) -> NDArray[np.float64]:
        """See ``WindowQuery.of``."""
        hits = np.isin(patterns, self.values)
        starts = range(self.width - self.times + 1)
        runs = [hits[:, start : start + self.times].all(axis=1) for start in starts]
        return _floats(np.any(runs, axis=0))


@dataclass(frozen=True)
class Pattern(WindowQuery):
    """People whose last periods are as the pattern says, the oldest first; None stands for any symbol.

    >>> Pattern((1, None, 0)).weights(2).tolist()
    [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    """

    symbols: tuple[int | None, ...]
    width: int = field(init=False)
    values: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.symbols, tuple) and self.symbols):
            raise ConfigError(
                f"unreadable pattern {self.symbols!r}",
                where="query",
                allowed="a tuple of symbols or None",
            )
        object.__setattr__(self, "width", len(self.symbols))
        object.__setattr__(self, "values", tuple(symbol for symbol in self.symbols if symbol is not None))

    def describe(self) -> str:
        """The question in words."""
        return "pattern " + " ".join("*" if symbol is None else str(symbol) for symbol in self.symbols)

    def of(self, patterns: NDArray[np.integer]) -> NDArray[np.float64]:
        """See ``WindowQuery.of``."""
        places = [place for place, symbol in enumerate(self.symbols) if symbol is not None]
        return _floats((patterns[:, places] == self.values).all(axis=1))


def _floats(chosen: Any) -> NDArray[np.float64]:
    return np.asarray(chosen, dtype=np.float64)


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


# Questions about people in words.
#
# ::
#
# [CONDITION in] at least N of the last M [CONDITION in] at least N in a row of the last M [CONDITION in] at
# least N so far
#
# A condition is about the columns of one report, such as ``status = 'late'``; where a report is yes or no it
# may be left out.

_QUESTION = re.compile(
    r"(?:(?P<condition>.+?)\s+in\s+)?at\s+least\s+(?P<times>[0-9]{1,6})"
    r"(?:(?P<row>\s+in\s+a\s+row)?\s+of\s+the\s+last\s+(?P<width>[0-9]{1,6})|\s+so\s+far)",
    re.IGNORECASE | re.DOTALL,
)
_EXAMPLES = '"at least 2 of the last 3", "at least 2 in a row of the last 3", "at least 3 so far"'


def parse_question(
    text: str,
    codes_of: Callable[[str], tuple[int, ...]],
    default: tuple[int, ...] | None,
    *,
    so_far: int | None = None,
) -> WindowQuery:
    """The question as a query.

    Args:
        codes_of: reads a condition: the codes of the reports that satisfy it.
        default: those of a question without a condition; None where it has to say one.
        so_far: how many periods there were; None where only windows can be asked about.

    Errors:
        ConfigError: it cannot be read. Also those of ``codes_of``.

    >>> parse_question("at least 2 in a row of the last 3", lambda condition: (), (1,))
    Consecutive(times=2, width=3, values=(1,))
    """
    match = _QUESTION.fullmatch(" ".join(text.split()))
    if match is None:
        raise ConfigError(f"unreadable question {text!r}", where="panel", allowed=_EXAMPLES)
    values = default if match["condition"] is None else codes_of(match["condition"])
    if values is None:
        raise ConfigError(
            "the question lacks a condition on reports",
            where="panel",
            allowed="such as: status = 'late' in at least 2 of the last 3",
        )
    width = so_far if match["width"] is None else int(match["width"])
    if width is None:
        raise ConfigError(
            "a window does not know all periods so far", where="panel", allowed="the last M periods"
        )
    kind = Consecutive if match["row"] else AtLeast
    return kind(int(match["times"]), width, values)
