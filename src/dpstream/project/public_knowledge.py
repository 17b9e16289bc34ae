"""What the owner knows of the table in public: ``[expect]``, guesses of its size from which errors are predicted;
``[prior]``, a public table that says what the private one may look like; and ``[stream] season``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    NUMBER_SHARE,
    ExpectedTable,
    Periods,
    PublicPrior,
    RecipeContext,
    StepPeriods,
    StreamRecipe,
    located,
    shown,
)
from dpstream.core.contracts.expectations import VARIES
from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.core.privacy import Budget, Event, Individual, InsertedRecord, Record, Unit, User, noise_for
from dpstream.core.schema import Categorical, Codes, Column, Domain, Schema
from dpstream.io.sources.calendar import CalendarPeriods, DayPeriods, Grid, MonthPeriods
from dpstream.mechanisms.discovery_plan import Discovery, OpenColumn
from dpstream.mechanisms.headlines import headline_folds
from dpstream.project.keys import Accuracy, DiscoveryKeys, ExpectKeys, PriorKeys
from dpstream.project.reader import Section

#: What is assumed of a table with keys of which its owner says nothing, and of one from which records leave.
_SIZE, _STEPS = 1000, 10
#: The largest share by which steps may be guessed to differ.
_MAX_VARIES = 10.0
#: Coarse guesses are three times too large or too small at most.
_COARSE = 3


def read_expected(
    section: Section, unit: Unit, mechanism: Section, *, deletions: bool, horizon: int | None
) -> ExpectedTable | None:
    """``[expect]``; None where the file has none and nothing rests on it.

    Args:
        deletions: whether records leave the table.

    Errors:
        ConfigError: numbers that cannot be used, or that contradict each other.
    """
    keys = section.read(ExpectKeys) if section.written else ExpectKeys()
    ordered = keys.order == "sorted"
    if ordered and isinstance(unit, Record | Individual):
        raise section.wrong("order", "whoever is followed is there in every step", "mixed")
    if keys.varies > _MAX_VARIES or (section.has("varies") and isinstance(unit, Individual)):
        raise section.wrong("varies", f"varies = {keys.varies:g} cannot be used")
    if isinstance(unit, Record):
        if mechanism.has("turnover"):
            if section.written:
                what, allowed = "turnover in [mechanism] says the same", "[expect], or turnover"
                raise ConfigError(what, where=section.place(), allowed=allowed)
            return None
        found = _with_defaults(section, keys, "steady")
    elif not section.written:
        return None
    elif isinstance(unit, Individual):
        return _of_people(section, mechanism, keys.size, keys.records_per_step)
    elif keys.size is None and keys.records_per_step is None:
        raise ConfigError(
            "the section holds no guess",
            where=section.place(),
            allowed="size, records_per_step, or both",
        )
    elif deletions and not isinstance(unit, InsertedRecord):
        found = _with_defaults(section, keys, "turns-over")
    else:
        found = _of_growing(section, keys.size, keys.records_per_step, horizon)
    return replace(found, ordered=ordered, varies=keys.varies)


def of_stays(expected: ExpectedTable | None, unit: Unit) -> dict[str, Any]:
    """What a recipe may take of the guesses where a unit is a record's whole stay."""
    if expected is None or not isinstance(unit, Record):
        return {"turnover": None, "records_per_step": None}
    turnover = Fraction(expected.size, int(expected.records_per_step))
    return {"turnover": turnover, "records_per_step": int(expected.records_per_step)}


#: What the owner says of the table, by its name in ``RecipeContext``: its place in a file, and who takes it not.
_TAKEN = {
    "headline": ("[accuracy] headline", "measures no headlines", 'name = "pooled" or "census"'),
    "prior": ("[prior]", "takes no prior", 'name = "pooled" or "census"'),
    "season": ("[stream] season", "knows no seasons", 'name = "pooled"'),
    "discovery": ('values = "discover"', "discovers no values", 'name = "pooled" or "census"; or a list'),
}


def check_taken(file: str, context: RecipeContext, recipe: StreamRecipe, *, periods: bool = False) -> None:
    """ConfigError where the file has headlines, periods, a prior, a season or a discovery, and the mechanism none."""
    if periods and not hasattr(recipe, "periods"):
        raise ConfigError(
            "the mechanism of this file measures nothing by periods",
            where=f"{file} [accuracy] periods",
            allowed='no periods, or name = "pooled" under [mechanism]',
        )
    for name, (place, what, allowed) in _TAKEN.items():
        value = getattr(context, name)
        # The baseline has a prior, which is a word.
        taken = getattr(recipe, name, None) is value if name == "prior" else hasattr(recipe, name)
        if value and not taken:
            raise ConfigError(
                f"the mechanism {what}", where=f"{file} {place}", allowed=f"[mechanism] {allowed}"
            )


def expected_words(expected: ExpectedTable | None) -> tuple[str, ...]:
    """What of it is published, for plans and manifests."""
    if expected is None:
        return ()
    numbers = [] if expected.change == "grows" else [f"size = {expected.size}"]
    if expected.records_per_step:
        numbers.append(f"records_per_step = {expected.records_per_step}")
    verb = "es {} are" if len(numbers) > 1 else " {} is"
    guesses = [verb.format(" and ".join(numbers))]
    if expected.ordered:
        guesses.append(" order = sorted is")
    if expected.varies != VARIES:
        guesses.append(f" varies = {expected.varies:g} is")
    return tuple(f"the owner's guess{guess} published ([expect])" for guess in guesses)


def _with_defaults(
    section: Section, keys: ExpectKeys, change: Literal["steady", "turns-over"]
) -> ExpectedTable:
    size, coming = keys.size, keys.records_per_step
    if size is None:
        size = _SIZE if coming is None else _STEPS * coming
        section.note("size", str(size), default=True)
    if coming is None:
        coming = max(1, size // _STEPS)
        section.note("records_per_step", str(coming), default=True)
    return ExpectedTable(size, coming, change)


def _of_people(section: Section, mechanism: Section, size: int | None, coming: int | None) -> ExpectedTable:
    """Every person is there in every period."""
    people = mechanism.raw("people")
    if coming is not None:
        raise section.wrong(
            "records_per_step",
            "in a panel everybody reports in every period",
            "size alone, the number of people",
        )
    if size is None:
        raise section.wrong("size", "the number of people is missing", "a whole number from 1")
    if isinstance(people, int) and people != size:
        raise _contradiction(section, f"[mechanism] declares {people} people", f"{people}, or no [expect]")
    return ExpectedTable(size, 0, "steady")


def _of_growing(section: Section, size: int | None, coming: int | None, horizon: int | None) -> ExpectedTable:
    """Nothing leaves, so the number of steps ties the two numbers to each other."""
    if coming is None:
        assert size is not None
        if horizon is None:
            raise section.wrong(
                "records_per_step",
                "nothing leaves, so size needs a horizon",
                "records_per_step, a whole number from 1; or [budget] horizon",
            )
        coming = max(1, size // horizon)
        section.note("records_per_step", str(coming), default=True, reason="size divided by the horizon")
    elif size is not None:
        if size < coming:
            raise _contradiction(
                section, f"{coming} records come in a step and stay", "at least records_per_step"
            )
        whole = coming * (horizon or 0)
        if horizon is not None and not whole <= _COARSE * size <= _COARSE**2 * whole:
            raise _contradiction(
                section,
                f"{horizon} steps bring {whole} records, which stay",
                f"about {whole}, or another records_per_step",
            )
    return ExpectedTable(coming * (horizon or 1), coming, "grows")


def _contradiction(section: Section, why: str, allowed: str) -> ConfigError:
    size = section.raw("size")
    return section.wrong("size", f"size = {size} contradicts other guesses: {why}", allowed)


#: The weights of several rows that add up to this or less are taken for shares.
_SHARES_UP_TO = 1.000_001
#: More records than anybody has; a column of such sums holds something else.
_MAX_RECORDS = 1e12


def read_prior(section: Section, schema: Schema) -> PublicPrior:
    """Read the section and its file.

    Errors:
        ConfigError: nobody confirmed that it is public; a file that cannot be read, has no column of the schema, holds
        values that the schema does not, or no record.

    Cost: the whole file is read.
    """
    keys = section.read(PriorKeys)
    path, weight = keys.file, keys.weight
    schema.require_exact(f"{section.file} [schema]")
    if weight is None:
        section.note("weight", "every row is one record", default=True)
    elif weight in schema.names:
        raise section.wrong("weight", f"column {weight!r} is declared in the schema as well")
    table, digest = _read(section, path)
    # Arrow's tables may name a column twice; whoever reads by name would get either.
    names = [name for name in schema.names if table.column_names.count(name) == 1]
    if not names:
        raise section.wrong(
            "file",
            f"{path.name!r} has none of the schema's columns",
            f"one or more of {', '.join(schema.names)}",
        )
    columns = tuple(schema.names.index(name) for name in names)
    # Constraints may read columns that the prior does not have; the model gives their cells no mass anyway.
    columns_only = tuple(schema.columns[i] for i in columns)
    own = replace(schema, columns=columns_only, ignore=(), constraints=None)
    try:
        # The prior is public: its values may be shown.
        codes = own.encode(table.select(names), where=path.name, reveal=True)
    except DpstreamError as error:
        raise ConfigError(
            error.what,
            where=f"{section.place('file')}, {path.name}",
            allowed=error.allowed or "values that the schema declares",
        ) from None
    weights = np.ones(len(codes)) if weight is None else _weights(section, table, weight)
    if not weights.sum() > 0.0:
        raise section.wrong("file", f"{path.name!r} holds no record", "one record or more")
    if weight is not None:
        _check_records(section, weight, weights)
    facts: dict[str, Any] = {"sha256": digest, "columns": names, "records": float(weights.sum())}
    if weight is not None:
        facts["weight"] = weight
    return PublicPrior(schema.domain, columns, codes, weights, facts, _unnamed(columns_only, codes, weights))


def _check_records(section: Section, name: str, weights: NDArray[np.float64]) -> None:
    """ConfigError where the weights can be no numbers of records."""
    total = float(weights.sum())
    shares = total < 1.0 or (total <= _SHARES_UP_TO and np.count_nonzero(weights) > 1)
    if shares or total > _MAX_RECORDS:
        what = f"column {name!r} adds up to {total:.3g}{', as shares do' if shares else ''}"
        raise section.wrong("weight", what, f"more than 1 record and at most {_MAX_RECORDS:.0e}")


def _unnamed(columns: Sequence[Column], codes: Codes, weights: NDArray[np.float64]) -> dict[str, float]:
    """The share of the prior's records in the bin ``other`` of each column that has any there."""
    found = {
        column.name: float(weights[codes[:, i] == column.other_code].sum() / weights.sum())
        for i, column in enumerate(columns)
        if column.other_code is not None
    }
    return {name: share for name, share in found.items() if share > 0.0}


def _read(section: Section, path: Path) -> tuple[Any, str]:
    """The file as a table, and the SHA-256 of its bytes."""
    from dpstream.io.sources.formats import read_table

    try:
        before = _digest(path)
        table = read_table(path)
        digest = _digest(path)
    except DpstreamError as error:
        raise section.wrong("file", f"{path.name!r}: {error.what}", error.allowed) from None
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise section.wrong("file", f"{path.name!r}: {reason}", "a readable file") from None
    if digest != before:
        raise section.wrong("file", f"{path.name!r} changed while it was read", "a file at rest")
    return table, digest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _weights(section: Section, table: Any, name: str) -> NDArray[np.float64]:
    """The numbers of records that rows stand for."""
    import pyarrow as pa

    if table.column_names.count(name) != 1:
        raise section.wrong("weight", f"the file has no column {name!r}", "a column of the file")
    try:
        weights = np.asarray(table.column(name).cast(pa.float64()).to_numpy(), dtype=np.float64)
    except (pa.ArrowException, ValueError):
        raise section.wrong("weight", f"column {name!r} holds values other than numbers") from None
    if not np.isfinite(weights).all() or (weights < 0.0).any():
        raise section.wrong("weight", f"column {name!r} holds empty cells or numbers below 0")
    return weights


_DAYS = {"year": Fraction(1461, 4), "week": Fraction(7)}
_MONTHS = 12


def read_season(section: Section, season: str | int | None, grid: Grid | None) -> Fraction | None:
    """How many steps a season has; None where the file names none.

    Args:
        grid: of the steps; None without a calendar.

    Errors:
        ConfigError: one of a calendar, where the steps follow none; or of fewer than two steps.
    """
    if season is None:
        return None
    steps = _of_calendar(section, season, grid) if isinstance(season, str) else Fraction(season)
    if steps < 2:
        raise section.wrong("season", "a season is shorter than two steps")
    return steps


def read_discovery(section: Section, schema: Schema, grid: Grid | None) -> Discovery | None:
    """How the open columns of a schema get their values; None where it has none.

    Errors:
        ConfigError: a key that cannot be used, or a section without such a column.
    """
    columns = [c for c in schema.columns if isinstance(c, Categorical) and c.is_open]
    if not columns and not section.written:
        return None
    keys, year = section.read(DiscoveryKeys), None
    if isinstance(grid, DayPeriods | MonthPeriods):
        length = _DAYS["year"] / grid.days if isinstance(grid, DayPeriods) else Fraction(_MONTHS, grid.months)
        year = max(1, int(length))
    with located(section.place()):
        opened = tuple(OpenColumn.of(column, schema.null_values) for column in columns)
        return Discovery(opened, keys.share, keys.delta, year, keys.at_most)


def _of_calendar(section: Section, word: str, grid: Grid | None) -> Fraction:
    if isinstance(grid, DayPeriods):
        return _DAYS[word] / grid.days
    if isinstance(grid, MonthPeriods):
        # A week is a part of a step then: whatever is below two is refused.
        return Fraction(_MONTHS if word == "year" else 0, grid.months)
    raise section.wrong(
        "season",
        f"season = {word!r} needs steps of a calendar",
        "the number of steps of a season; or [source] every with a time column",
    )


_WITHOUT_CALENDAR = 'a number of steps, such as "13 steps"; or [source] every with a time column'
#: Days of a period, about.
_PERIOD_DAYS = {"week": 7.0, "month": 365.25 / 12, "quarter": 365.25 / 4, "year": 365.25}
#: By default a period's mean count has so many standard errors.
_WORTH = 2.0
#: Without headlines the number of records gets this share where it is then known to so much of a period's records.
_LEAST_SHARE, _ENOUGH = Fraction(1, 50), 0.02


def read_periods(
    section: Section,
    keys: Accuracy,
    grid: Grid | None,
    unit: Unit,
    budget: Budget,
    expected: ExpectedTable | None,
    domain: Domain,
) -> dict[str, Any]:
    """The periods of headlines and of the number of records, for a ``RecipeContext``.

    Errors:
        ConfigError: an unknown length; a period of the calendar without a calendar, or shorter than a step.
    """
    if not isinstance(unit, Event | User):
        return {}
    calendar = grid if isinstance(grid, DayPeriods | MonthPeriods) else None
    own = None if keys.periods is None else _named(section, "periods", keys.periods, grid, keys)
    if isinstance(own, StepPeriods):
        return {"periods": own, "number": own if calendar is None else _fitting(calendar, "month", keys)}
    if calendar is None:
        return {}
    number = _fitting(calendar, "month", keys)
    if own is not None and not keys.headline:
        raise section.wrong("periods", "periods need a headline", 'headline = ["zip"], or no periods')
    if own is not None:
        return {"periods": own, "number": number}
    event, share = unit.per_event(budget), keys.headline_share
    rate = 0.0 if expected is None else expected.records_per_step / _step_days(calendar)
    if not keys.headline:
        error = math.sqrt(noise_for(event.scaled(_LEAST_SHARE), 1, 1).variance)
        known = isinstance(number, CalendarPeriods) and error <= _ENOUGH * rate * _PERIOD_DAYS[number.length]
        return {"number": number, "number_share": _LEAST_SHARE if known else NUMBER_SHARE}
    length = "quarter"
    if rate:
        # A mean is measured of each group, as a count is of each cell.
        columns = [tuple(name for name in names if not name.startswith("mean(")) for names in keys.headline]
        folds = headline_folds(domain, tuple(dict.fromkeys(filter(None, columns)))) or ((domain.fold(()),),)
        each = event.scaled(share * Fraction(9, 10) / (len(folds) * max(map(len, folds))))
        error = math.sqrt(noise_for(each, 1, 1).variance)
        cells = max(fold.size for group in folds for fold in group)
        counts = {name: rate * _PERIOD_DAYS[name] / cells for name in ("month", "quarter", "year")}
        length = next((name for name, mean in counts.items() if mean >= _WORTH * error), "year")
    return {"periods": _fitting(calendar, length, keys), "number": number}


def read_per(section: Section, per: str | None, unit: Unit, grid: Grid | None, keys: Accuracy) -> Unit:
    """The unit with the periods for which it is protected.

    Errors:
        ConfigError: another unit than ``user``; else those of ``read_periods``.
    """
    if per is None:
        return unit
    if not isinstance(unit, User) or isinstance(unit, InsertedRecord):
        raise section.wrong(
            "per", f"unit = {unit.name} is protected for its whole life", 'unit = "user", or no per'
        )
    return replace(unit, per=_named(section, "per", per, grid, keys))


def _named(section: Section, key: str, text: str, grid: Grid | None, keys: Accuracy) -> Periods:
    """The periods that a key names.

    Errors:
        ConfigError: as ``read_periods``.
    """
    steps = StepPeriods.named(text)
    if steps is not None:
        return steps
    if text not in _PERIOD_DAYS or (key, text) == ("per", "week"):
        raise section.wrong(key, f"{shown(text)} is unknown")
    if not isinstance(grid, DayPeriods | MonthPeriods):
        raise section.wrong(key, f"{shown(text)} needs a calendar", _WITHOUT_CALENDAR)
    periods = CalendarPeriods(text, grid, keys.year_begins)
    if not periods.fits:
        raise section.wrong(key, f"a {text} is shorter than a step", "a longer period")
    return periods


def _fitting(grid: DayPeriods | MonthPeriods, length: str, keys: Accuracy) -> Periods:
    """The periods of a length, or the next longer ones that no step is longer than; else every step."""
    names = list(_PERIOD_DAYS)
    longer = (CalendarPeriods(name, grid, keys.year_begins) for name in names[names.index(length) :])
    return next((periods for periods in longer if periods.fits), StepPeriods(1))


def _step_days(grid: DayPeriods | MonthPeriods) -> float:
    return float(grid.days) if isinstance(grid, DayPeriods) else grid.months * _PERIOD_DAYS["month"]
