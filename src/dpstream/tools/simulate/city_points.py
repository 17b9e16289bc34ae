"""An invented stream of points: where rides in a city end, and when; places move, grow, close and open."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpstream.tools.simulate.example import Example, StepColumns, choose, in_parts, last_day, without_end

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
