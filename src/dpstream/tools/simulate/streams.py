"""Invented streams: eviction notices by week, with withdrawals and a change of policy; a survey of adults whose
composition drifts in order, as in a table that arrives sorted; where rides in a city end, and when; and a panel of
households that are in poverty, month by month.

The shapes follow what cities and censuses publish; no number is taken from any of them.
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
    without_end,
    write_arrow,
)

SEX = np.array(["female", "male"])
EDUCATION = np.array(["none", "school", "college", "bachelor", "master", "doctorate"])
MARITAL = np.array(["single", "married", "divorced", "widowed"])
OCCUPATION = np.array(
    ["farming", "crafts", "transport", "service", "sales", "office", "technical", "management"]
)
REGION = np.array(["north", "east", "south", "west", "islands"])
#: Steps that the interviewers need for one round through the regions.
ROUND = 60
#: How much schooling (0 to 5) an occupation usually asks for.
_SCHOOLING = np.array([0.3, 1.0, 0.8, 1.2, 1.8, 2.2, 3.0, 3.6])


def _interviews(rows: int, step: int, generator: np.random.Generator) -> StepColumns:
    """The people who are interviewed at one step (here counted from 0, in the files from 1)."""
    count = int(generator.poisson(rows))
    reach = 1 - np.exp(-step / 150)
    where = (step / ROUND * len(REGION) - np.arange(len(REGION)) + len(REGION) / 2) % len(REGION)
    region = choose_rows(generator, np.tile(np.exp(-1.5 * np.abs(where - len(REGION) / 2)), (count, 1)))
    age = np.clip(np.round(18 + generator.gamma(2.2, 7 + 7 * reach, count)), 18, 99).astype(np.int64)
    sex = (generator.random(count) < 0.48).astype(np.int64)
    schooling = 1.4 + 1.4 * reach + 0.4 * (region == 1) - 0.02 * np.maximum(age - 40, 0)
    education = choose_rows(generator, np.exp(-0.5 * (np.arange(6) - schooling[:, None]) ** 2))
    marital = choose_rows(
        generator,
        np.column_stack(
            [
                np.exp(-(age - 18) / 12),
                np.full(count, 0.6),
                0.2 * (age > 28),
                0.02 + 0.5 * (age > 68),
            ]
        ),
    )
    occupation = choose_rows(
        generator,
        np.exp(-0.8 * (_SCHOOLING - education[:, None]) ** 2)
        * np.where(sex[:, None] == 1, [1.5, 2.0, 2.5, 0.8, 1.0, 0.5, 1.1, 1.1], 1.0),
    )
    full_time = generator.random(count) < 0.72 - 0.3 * (age > 65)
    hours = np.where(full_time, 40 + generator.poisson(3, count) * 3 - 9, generator.integers(5, 36, count))
    score = -5.2 + 0.9 * education + 0.04 * (hours - 30) + 0.6 * (marital == 1) + 0.02 * (age - 30)
    income = generator.random(count) < 1 / (1 + np.exp(-score))
    hours = np.where(generator.random(count) < 0.01, 98, hours)
    return {
        "step": np.full(count, step + 1, dtype=np.int64),
        "region": REGION[region],
        "age": with_odd_values(generator, age, missing=0.01),
        "sex": SEX[sex],
        "education": EDUCATION[education],
        "marital": MARITAL[marital],
        "occupation": with_odd_values(
            generator, OCCUPATION[occupation], missing=0.05, unknown=0.01, codes=("?",)
        ),
        "hours": with_odd_values(generator, hours, missing=0.02),
        "income_over_50k": income,
    }


CENSUS = Example(
    in_parts(without_end(_interviews), 50, {"age": "int64", "occupation": "string", "hours": "int64"}),
    rows_per_step=50,
)


#: A Monday: the first day of the first week.
_START = np.datetime64("2001-01-01")
#: Week, counted from 0, in which a new quarter opens.
OPENS_AT = 16
_WEEKS = 1200

#: Bounds of the city in degrees; some devices report places beyond.
_LOW, _HIGH = np.array([46.90, 7.30]), np.array([47.00, 7.50])
#: Places as parts of the city: market (moves), station, university, harbour (grows), new quarter.
_PLACES = np.array([[0.30, 0.25], [0.55, 0.50], [0.70, 0.62], [0.20, 0.80], [0.85, 0.20]])
_SPREAD = np.array([0.020, 0.012, 0.030, 0.045, 0.025])
#: Hours of the day of most rides to each place, and how sharp they are.
_HOUR = np.array([11.0, 8.0, 9.5, 23.0, 18.0])
_SHARP = np.array([2.0, 1.2, 1.0, 2.5, 2.0])
#: Share of rides that end anywhere, and of devices that are off.
_ANYWHERE, _OFF = 0.12, 0.003


def _weights(week: int) -> NDArray[np.float64]:
    """How much each place is visited."""
    term = 0.1 if week % 52 in range(26, 36) else 1.0
    opened = 1.0 - np.exp(-max(0, week - OPENS_AT) / 8)
    return np.array([1.0, 1.3, 0.8 * term, 0.5 + min(week, 150) / 100, 1.5 * opened])


def _rides(rows: int, week: int, generator: np.random.Generator) -> StepColumns:
    """One week's rides in the order of their days."""
    season = 1.0 - 0.3 * np.cos(2 * np.pi * week / 52)
    count = int(generator.poisson(rows * season))
    place = choose(generator, _weights(week), count)
    centres = _PLACES.copy()
    # The market: a slow circle around the middle of the city.
    angle = 2 * np.pi * week / 80
    centres[0] = 0.5 + 0.3 * np.array([np.sin(angle), np.cos(angle)])
    at = centres[place] + generator.normal(size=(count, 2)) * _SPREAD[place][:, None]
    anywhere = generator.random(count) < _ANYWHERE
    at[anywhere] = generator.random((int(anywhere.sum()), 2))
    hour = (_HOUR[place] + generator.normal(size=count) * _SHARP[place]) % 24.0
    off = generator.random(count) < _OFF
    at = np.where(off[:, None], at + 3.0, np.clip(at, 0.0, 1.0))
    where = np.round(_LOW + at * (_HIGH - _LOW), 6)
    days = np.sort(generator.integers(0, 7, size=count)).astype("timedelta64[D]")
    scooter = generator.random(count) < np.where(hour > 20, 0.6, 0.25)
    return {
        "day": _START + np.timedelta64(7 * week, "D") + days,
        "vehicle": np.where(scooter, "scooter", "bike"),
        "latitude": where[:, 0],
        "longitude": where[:, 1],
        "hour": np.round(hour, 3),
    }


#: Weeks without end.
rides = without_end(_rides)
RIDES = Example(in_parts(rides, 13), last_day(_START), rows_per_step=2000, most_steps=_WEEKS)


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


#: Households and months: those of the panel of Bun et al. (2024).
PEOPLE, PERIODS = 23_374, 12
#: Shares of households that are never poor, and always; the others go in and out.
NEVER, ALWAYS = 0.76, 0.06
#: Of these P(poor | poor in the month before), and P(poor | not poor in the month before).
STAY, ENTER = 0.86, 0.07


def poverty_panel(people: int = PEOPLE, periods: int = PERIODS, *, seed: int = 0) -> NDArray[np.uint8]:
    """1 where a household is poor in a month, shape (people, periods); equal seeds give equal panels.

    A longer panel of the same seed begins with the shorter one.
    """
    generator = np.random.default_rng(seed)
    kind = generator.random(people)
    always = kind >= 1.0 - ALWAYS
    moving = (kind >= NEVER) & ~always
    poor = generator.random(people) < ENTER / (1.0 - STAY + ENTER)
    series = np.zeros((people, periods), np.uint8)
    for month in range(periods):
        if month:
            poor = generator.random(people) < np.where(poor, STAY, ENTER)
        series[:, month] = always | (moving & poor)
    return series


def _write_panel(record: Record, folder: Path) -> None:
    """All months so far as one file; equal seeds give equal months, however many there are."""
    import pyarrow as pa

    people, months = record["rows_per_step"], record["steps"]
    poor = poverty_panel(people, months, seed=record["seed"])
    columns = {"household": pa.array(np.char.mod("h%06d", np.arange(1, people + 1)))}
    columns |= {f"poor_{month}": pa.array(poor[:, month - 1]) for month in range(1, months + 1)}
    write_arrow(pa.table(columns), folder / "data" / f"panel.{record['file_format']}")


#: A panel pays for a fixed number of periods, the horizon in its configuration.
PANEL = Example(_write_panel, rows_per_step=PEOPLE, most_steps=PERIODS)
