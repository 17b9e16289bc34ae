"""An invented stream of eviction notices: weekly, seasonal, with withdrawals and a change of policy.

The shape follows what cities publish (one row a notice, flags for the causes, an area code that is
sometimes missing or wrong); no number is taken from any city.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpstream.core import durable
from dpstream.tools.simulate.example import (
    Example,
    Record,
    StepColumns,
    choose,
    choose_rows,
    in_parts,
    last_day,
    with_odd_values,
)

#: A Monday: the first day of the first week.
FIRST_DAY = np.datetime64("2001-01-01")
#: Week, counted from 0, in which notices for unpaid rent are suspended.
CHANGE_AT = 40

AREAS = np.array(["10101", "10102", "10103", "10104", "10105", "10106", "10107", "10108", "10109", "10110"])
DISTRICTS = np.array(["1", "2", "3", "4"])
#: Share of notices, yearly growth of that share, district, and typical rent of each area.
_SHARE = np.array([0.20, 0.16, 0.14, 0.11, 0.10, 0.09, 0.07, 0.06, 0.04, 0.03])
_GROWTH = np.array([-0.35, -0.15, 0.0, 0.05, 0.25, -0.05, 0.5, 0.1, 0.4, 0.0])
_DISTRICT = np.array([0, 0, 1, 1, 1, 2, 2, 3, 3, 3])
_RENT = np.array([1100, 1250, 1500, 1400, 1900, 1700, 2600, 2300, 3100, 2000], dtype=np.float64)
#: Weeks after which a notice is no longer withdrawn.
_OPEN_WEEKS = 12

_DISTRICTS_BY_ZIP = "zip,district\n" + "".join(
    f"{area},{DISTRICTS[k]}\n" for area, k in zip(AREAS, _DISTRICT, strict=True)
)


def _suspended(week: int) -> float:
    """How much of the ordinary level of non-payment notices is suspended (0 to 0.8)."""
    if week < CHANGE_AT:
        return 0.0
    return float(0.8 * np.exp(-max(0, week - CHANGE_AT - 26) / 26))


def _notices(rows: int, week: int, generator: np.random.Generator) -> StepColumns:
    """The notices that are filed in one week."""
    # Years of drift up to a week: it slows down, and never passes five years' worth.
    years = float(5 * (1 - np.exp(-week / 260)))
    season = 1 + 0.35 * np.cos(2 * np.pi * (week - 30) / 52)
    count = int(generator.poisson(rows * season * (1 - 0.3 * _suspended(week))))
    area = choose(generator, _SHARE * np.exp(_GROWTH * years), count)
    # Some notices carry the neighbouring district.
    shift = (generator.random(count) < 0.04).astype(np.int64)
    district = (_DISTRICT[area] + shift) % len(DISTRICTS)
    rent = np.round(_RENT[area] * 1.05**years * generator.lognormal(0.0, 0.35, count), 2)
    bedrooms = choose_rows(generator, np.exp(-np.abs(np.arange(7) - 0.6 - rent[:, None] / 1500)))
    flags = _causes(area, rent, week, generator)
    place = with_odd_values(
        generator, AREAS[area], missing=0.02, unknown=0.01, codes=("00000", "1010", "1010?")
    )
    known = DISTRICTS[district].astype(object)
    # Where the area is missing the district mostly is too: missing values are correlated in real tables.
    known[(place == None) & (generator.random(count) < 0.8)] = None  # noqa: E711
    return {
        "zip": place,
        "district": known,
        **flags,
        "bedrooms": bedrooms,
        "rent": with_odd_values(generator, rent, missing=0.05),
    }


def _causes(
    area: NDArray[np.int64], rent: NDArray[np.float64], week: int, generator: np.random.Generator
) -> StepColumns:
    """Flags: one main cause, and nuisance often beside a breach."""
    suspended = _suspended(week)
    dear = _RENT[area] / _RENT.max()
    weights = np.column_stack(
        [
            (1 - suspended) * (0.9 - 0.4 * dear),
            0.3 + 0.1 * (rent < _RENT[area]),
            np.full(len(area), 0.2),
            (0.1 + 0.5 * dear) * (1 + suspended),
        ]
    )
    main = choose_rows(generator, weights)
    breach = main == 1
    nuisance = (main == 2) | (breach & (generator.random(len(area)) < 0.35))
    return {"non_payment": main == 0, "breach": breach, "nuisance": nuisance, "owner_move_in": main == 3}


def _steps(rows: int, generator: np.random.Generator) -> Iterator[StepColumns]:
    """Weeks without end; withdrawals repeat the values of the notice they withdraw."""
    still_open: list[StepColumns] = []
    week = 0
    while True:
        filed = _notices(rows, week, generator)
        withdrawn: list[StepColumns] = []
        for i, notices in enumerate(still_open):
            hazard = 0.008 + 0.03 * _suspended(week) * notices["non_payment"]
            leaves = generator.random(len(hazard)) < hazard
            withdrawn.append({name: values[leaves] for name, values in notices.items()})
            still_open[i] = {name: values[~leaves] for name, values in notices.items()}
        still_open = [*still_open, filed][-_OPEN_WEEKS:]
        yield _dated([filed, *withdrawn], week, generator)
        week += 1


def _dated(parts: list[StepColumns], week: int, generator: np.random.Generator) -> StepColumns:
    """One week's rows in the order of their days; the first part holds the inserts."""
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    inserted = len(parts[0]["zip"])
    total = len(columns["zip"])
    day = np.sort(generator.integers(0, 7, size=total))
    order = generator.permutation(total)
    op = np.where(np.arange(total) < inserted, "insert", "delete")
    dates = FIRST_DAY + np.timedelta64(7 * week, "D") + day.astype("timedelta64[D]")
    return {"file_date": dates, "op": op[order], **{name: values[order] for name, values in columns.items()}}


def _write(record: Record, folder: Path) -> None:
    in_parts(_steps, 13, {"zip": "string", "district": "string", "rent": "double"})(record, folder)
    durable.replace_file(folder / "districts.csv", _DISTRICTS_BY_ZIP.encode(), mode=0o644, lasting=False)


EVICTIONS = Example(
    _write,
    last_day(FIRST_DAY),
    rows_per_step=120,
    most_steps=1200,
)
