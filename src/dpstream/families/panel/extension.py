"""What people report is checked; synthetic people are extended, never rewritten: who of them gets which symbol next.

Public post-processing of noisy counts; an ordinary generator, seeded from the one door to entropy, is enough.

Trusted base: kernel (checks private reports).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import check_unit, check_whole
from dpstream.core.errors import ConfigError, DataError, HorizonError
from dpstream.core.privacy.unit import Individual, Unit

# What people report in one period, and checks that both synthesizers make.

#: People of a panel: their counts stay far below 2^53.
MAX_PEOPLE = 2**31 - 1
MAX_SYMBOLS = 255


def check_reports(reports: NDArray[np.integer], people: int, symbols: int) -> NDArray[np.int32]:
    """One period's reports as int32; messages name no value and no number of people.

    Errors:
        DataError: no array of whole numbers, another number of people, or a symbol outside.
    """
    array = np.asarray(reports)
    if isinstance(reports, np.ma.MaskedArray):
        raise DataError(
            "a masked array hides reports", where="panel", allowed="a symbol of its own for missing reports"
        )
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            "the reports of a period are not one whole number for each person",
            where="panel",
            allowed="a 1-d integer array",
        )
    if len(array) != people:
        raise DataError(
            "the period has reports of another number of people than the panel has",
            where="panel",
            allowed="one report a person",
        )
    if len(array) and not (int(array.min()) >= 0 and int(array.max()) < symbols):
        raise DataError(
            "a report lies outside the alphabet of symbols", where="panel", allowed=f"0 to {symbols - 1}"
        )
    return array.astype(np.int32)


def check_people(people: object) -> int:
    """A number of people; it may be private, so the message does not say it.

    Errors:
        ConfigError: the number of people cannot be used.
    """
    try:
        return check_whole(people, "people", 0, MAX_PEOPLE, "panel")
    except ConfigError as error:
        raise ConfigError(
            "the number of people cannot be used", where="panel", allowed=error.allowed
        ) from None


def check_period(period: int, periods: int) -> None:
    """There is a period left to read.

    Errors:
        HorizonError: all were read.
    """
    if period >= periods:
        raise HorizonError(
            f"period {period + 1} lies beyond the horizon", where="panel", allowed=f"up to {periods} periods"
        )


def individual(unit: Unit | None) -> Individual:
    """The unit of a panel.

    Errors:
        UnitError: no whole person.
    """
    reason = "a panel cannot protect the unit {unit!r} alone: a person reports in every period"
    return check_unit(unit, Individual(), ("individual", "individual-replace"), reason)


def split_whole(
    wanted: NDArray[np.int64], available: NDArray[np.int64], generator: np.random.Generator
) -> tuple[NDArray[np.int64], int]:
    """Whole numbers of people for each symbol, whose rows add up to ``available``, as near to ``wanted`` as can be.

    Args:
        wanted: noisy counts, shape (groups, symbols).
        available: synthetic people of each group, shape (groups,).

    Gives the numbers and how many groups had to be clipped into ``0 .. available``. The difference between a row
    of ``wanted`` and the people who are there is shared evenly; what is left of a division goes to symbols drawn
    at random, so that no symbol gains from it on average.
    """
    symbols = wanted.shape[1]
    share, rest = np.divmod(available - wanted.sum(axis=1), symbols)
    numbers = wanted + share[:, None]
    order = generator.permuted(np.tile(np.arange(symbols), (len(wanted), 1)), axis=1)
    numbers += order < rest[:, None]
    bad = np.flatnonzero((numbers < 0).any(axis=1))
    for group in bad:
        numbers[group] = _nearest(numbers[group], int(available[group]))
    return numbers, len(bad)


def _nearest(numbers: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Nonnegative numbers with the sum ``total``: what negative ones lack is taken from the others evenly."""
    numbers = numbers.copy()
    while (numbers < 0).any():
        missing = -int(numbers[numbers < 0].sum())
        numbers[numbers < 0] = 0
        positive = np.flatnonzero(numbers)
        each, rest = divmod(missing, len(positive))
        numbers[positive] -= each
        # The largest gives first; equal ones give in the order of the symbols.
        numbers[positive[np.argsort(-numbers[positive], kind="stable")[:rest]]] -= 1
    assert int(numbers.sum()) == total
    return numbers


def extend(
    groups: NDArray[np.int32], numbers: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.uint8]:
    """A symbol for every synthetic person: ``numbers[group, symbol]`` people of each group get each symbol.

    Args:
        groups: the group of each person.
        numbers: shape (groups, symbols); every row adds up to the people of its group.

    Every assignment is equally likely, up to 2^-32 a person. Cost: 32 random bits a person.
    """
    from dpstream.families.panel._dealing_kernel import deal

    words = generator.integers(0, 2**32, size=len(groups), dtype=np.uint32)
    symbols: NDArray[np.uint8] = deal(groups, numbers.copy(), numbers.sum(axis=1), words)
    return symbols


def warm() -> None:
    """Run the compiled loop once."""
    extend(np.zeros(1, np.int32), np.array([[1, 0]]), np.random.default_rng(1))


def first_and_last(last: int) -> list[int]:
    """The first few numbers and the last: tables of hundreds of lines help nobody."""
    return list(range(1, last + 1)) if last <= 6 else [1, 2, 3, last // 2, last]
