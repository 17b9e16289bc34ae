"""``[expect]``: the owner's public guesses about the table, from which errors are predicted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from dpstream.core.contracts import ExpectedTable
from dpstream.core.contracts.expectations import VARIES
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Individual, InsertedRecord, Record, Unit
from dpstream.project.reader import Section

#: What is assumed of a table with keys of which its owner says nothing, and of one from which records leave.
_SIZE, _STEPS = 1000, 10
#: The largest share by which steps may be guessed to differ.
_MOST_VARIES = 10.0
#: Coarse guesses are three times too large or too small at most.
_COARSE = 3


@dataclass(frozen=True)
class Expected:
    """The owner's public guesses: records in the table (or people), and records that come in a step.

    ``size`` is None where the table grows without an end.
    """

    size: int | None
    records_per_step: int
    table: ExpectedTable

    @property
    def turnover(self) -> Fraction:
        """Steps in which as many records come as the table holds."""
        return Fraction(self.size or 0, self.records_per_step)


def read_expected(
    section: Section, unit: Unit, mechanism: Section, given: bool, *, deletions: bool, horizon: int | None
) -> Expected | None:
    """``[expect]``; None where the file has none and nothing rests on it.

    Args:
        given: whether the file has the section.
        deletions: whether records leave the table.

    Errors:
        ConfigError: numbers that cannot be used, or that contradict each other.
    """
    ordered = given and section.choice("order", ("mixed", "sorted"), "mixed") == "sorted"
    if ordered and isinstance(unit, Record | Individual):
        raise section.wrong(
            "order", "those who are followed are there in every step, in whatever order they came", "mixed"
        )
    varies = VARIES
    if given and section.has("varies"):
        varies = section.number("varies", VARIES)
        if varies > _MOST_VARIES or isinstance(unit, Individual):
            raise section.wrong("varies", f"varies = {varies:g} cannot be used")
    if isinstance(unit, Record):
        followed = _of_records(section, mechanism, given)
        return None if followed is None else replace(followed, table=replace(followed.table, varies=varies))
    if not given:
        return None
    size, coming = section.count("size"), section.count("records_per_step")
    if isinstance(unit, Individual):
        return _of_people(section, mechanism, size, coming)
    if size is None and coming is None:
        raise ConfigError(
            "the section holds no guess",
            where=section.place(),
            allowed="size, records_per_step, or both; or a file without [expect]",
        )
    if deletions and not isinstance(unit, InsertedRecord):
        found = _with_defaults(section, size, coming, "turns-over")
    else:
        found = _of_growing(section, size, coming, horizon)
    return replace(found, table=replace(found.table, ordered=ordered, varies=varies))


def expected_words(expected: Expected | None) -> tuple[str, ...]:
    """What of it is published, for plans and manifests."""
    if expected is None:
        return ()
    order: tuple[str, ...] = ()
    if expected.table.ordered:
        order = ("the owner's guess order = sorted is published ([expect])",)
    if expected.table.varies != VARIES:
        order += (f"the owner's guess varies = {expected.table.varies:g} is published ([expect])",)
    if expected.table.change == "grows":
        return (
            f"the owner's guess records_per_step = {expected.records_per_step} is published ([expect])",
            *order,
        )
    if not expected.table.records_per_step:
        return (f"the owner's guess size = {expected.size} is published ([expect])",)
    return (
        f"the owner's guesses size = {expected.size} and records_per_step = {expected.records_per_step} are published "
        "([expect])",
        *order,
    )


def _of_records(section: Section, mechanism: Section, given: bool) -> Expected | None:
    if not mechanism.has("turnover"):
        return _with_defaults(section, section.count("size"), section.count("records_per_step"), "steady")
    if given:
        raise ConfigError(
            "turnover in [mechanism] says the same", where=section.place(), allowed="[expect], or turnover"
        )
    return None


def _with_defaults(section: Section, size: int | None, coming: int | None, change: str) -> Expected:
    if size is None:
        size = _SIZE if coming is None else _STEPS * coming
        section.note("size", str(size), default=True)
    if coming is None:
        coming = max(1, size // _STEPS)
        section.note("records_per_step", str(coming), default=True)
    steady = change == "steady"
    table = ExpectedTable(size, coming, "steady" if steady else "turns-over")
    return Expected(size, coming, table)


def _of_people(section: Section, mechanism: Section, size: int | None, coming: int | None) -> Expected:
    """Every person is there in every period."""
    people = mechanism.raw("people")
    if coming is not None:
        raise section.wrong(
            "records_per_step",
            f"records_per_step = {coming} does not fit a panel, where everybody reports in every period",
            "size alone, the number of people",
        )
    if size is None:
        raise section.wrong("size", "the number of people is missing", "a whole number from 1")
    if isinstance(people, int) and people != size:
        raise _contradiction(section, f"[mechanism] declares {people} people", f"{people}, or no [expect]")
    return Expected(size, size, ExpectedTable(size, 0, "steady"))


def _of_growing(section: Section, size: int | None, coming: int | None, horizon: int | None) -> Expected:
    """Nothing leaves, so the number of steps ties the two numbers to each other."""
    if coming is None:
        assert size is not None
        if horizon is None:
            raise section.wrong(
                "records_per_step",
                "records_per_step is missing: nothing leaves, so a stream without a horizon has no last size",
                "a whole number from 1; or [budget] horizon, the number of steps",
            )
        coming = max(1, size // horizon)
        section.note("records_per_step", str(coming), default=True, reason="size divided by the horizon")
    elif size is not None:
        if size < coming:
            raise _contradiction(
                section, f"{coming} records come in one step, and nothing leaves", "at least records_per_step"
            )
        whole = coming * (horizon or 0)
        if horizon is not None and not whole <= _COARSE * size <= _COARSE**2 * whole:
            raise _contradiction(
                section,
                f"nothing leaves, and {horizon} steps bring {whole} records",
                f"about {whole}, or another records_per_step",
            )
    last = coming * horizon if horizon is not None else None
    return Expected(last, coming, ExpectedTable(last or coming, coming, "grows"))


def _contradiction(section: Section, why: str, allowed: str) -> ConfigError:
    size = section.raw("size")
    return section.wrong("size", f"size = {size} contradicts what else is said: {why}", allowed)
