"""What people report in one period, and checks that both synthesizers make."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import check_unit, check_whole
from dpstream.core.errors import ConfigError, DataError, HorizonError
from dpstream.core.privacy.unit import Individual, Unit

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
