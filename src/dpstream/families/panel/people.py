"""Panels as streams: who is who from period to period, and what the plans of both synthesizers share.

Trusted base: kernel (holds exact histories).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    Option,
    Packed,
    PrivateBatch,
    RecipeContext,
    SectionReader,
    StreamPlan,
    Terms,
    check_share,
    check_whole,
    located,
    pack_fields,
    shown,
    unpack_fields,
)
from dpstream.core.contracts.explanation import Explanation, PrintedTable, sentence
from dpstream.core.counters import CounterState
from dpstream.core.errors import ConfigError, DataError, HorizonError, StoreDamagedError
from dpstream.core.privacy.budget import ZCDP, Amount, exact_amount
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Individual
from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.core.schema.column import Column
from dpstream.core.schema.domain import Domain
from dpstream.core.tables.encoded_batch import MARK_BYTES, as_texts
from dpstream.families.panel.extension import (
    MAX_PEOPLE,
    check_people,
    check_period,
    check_reports,
    individual,
)
from dpstream.families.panel.people_release import WEIGHING, PanelSynthesis
from dpstream.io.sinks.period_tables import PERIOD, PERSON, WEIGHT, wide_name

# The options of both recipes, in the order in which they are shown.


def _period_names(
    section: SectionReader, given: RecipeContext, earlier: Mapping[str, Any]
) -> tuple[str, ...] | None:
    """The names of all periods, as listed or as the source has them; None where they are numbers from 1 anyway."""
    listed = section.raw("period_names")
    if listed is not None:
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise section.wrong("period_names", f"{shown(listed)} is not a list of names")
        section.note("period_names", ", ".join(listed), default=False)
        return tuple(listed)
    if given.horizon is None or given.step_name is None:
        return None
    names, periods = [], range(1, given.horizon + 1)
    for period in periods:
        with located(section.place()):
            name = given.step_name(period)
        if name is None:
            return None
        names.append(name)
    return None if names == [str(period) for period in periods] else tuple(names)


FAILURE = Option(
    "an exact number between 0 and 1",
    "The probability that the stated bound fails anywhere; of a window it also sets the padding.",
    "the bound holds for all periods at once in 95 of 100 streams",
    "1/20",
)
PEOPLE = Option(
    "a number of places from 1, with unit = individual-replace",
    "How many people there is room for, declared public, so that others may join later. Who has not joined, or has "
    "no report, has the value `missing`, which every column then has to declare.",
    "those who report in the first period are the panel",
    "not set",
)
PERIOD_NAMES = Option(
    "a list of names, one for each period of the horizon",
    "What published tables call the periods (`poor_2005-04`). A stream keeps what it began with.",
    "what readers call them",
    "names of the calendar, or what stands for the period in the columns of the source; else numbers",
    read=_period_names,
    fragment={"type": "array", "minItems": 1, "items": {"type": "string"}},
)


# Who of a panel is who: people are found again by keyed marks of their ids.
#
# Guarantee: which report goes to which person follows from the person's own mark. The refusals tell that
# somebody came, stayed away, or found no place; whether they happen is declared public
# (``PeoplePlan.declared_public``), and the messages name nobody and no number of people.

Marks = NDArray[np.uint8]


@dataclass(frozen=True)
class Seating:
    """Which place each report of a period belongs to.

    Attributes:
        marks: of everybody so far, ascending.
        before: for each of them the position before this period; -1 for who is new.
        rows: for each report the position of its person in ``marks``.
    """

    marks: Marks
    before: NDArray[np.int64]
    rows: NDArray[np.int64]

    @property
    def joined(self) -> bool:
        """Whether somebody is new."""
        return bool((self.before < 0).any())


def seat(known: Marks | None, given: Marks, *, places: int | None, absent: bool) -> Seating:
    """Find everybody who reports.

    Args:
        known: marks of the panel, ascending; None at the first period, whose people are the panel.
        given: marks of those who report, ascending and different.
        places: how many people the panel has room for; None where it is complete after the first period.
        absent: whether somebody may have no report.

    Errors:
        DataError: somebody is new in a complete panel, has no report where everybody needs one, or has no place.

    Cost: one sort of the marks where somebody is new, else one search.
    """
    if known is None:
        here = np.arange(len(given), dtype=np.int64)
        seating = Seating(given, np.full(len(given), -1, np.int64), here)
    else:
        seating = _find(known, given, places)
        if not absent and len(given) != len(known):
            raise DataError(
                "somebody of the panel has no report",
                where="panel",
                allowed='one report a person, or missing = "..." declared for every column',
            )
    if places is not None and len(seating.marks) > places:
        raise DataError(
            "more people report than the panel has places",
            where="panel",
            allowed=f"up to people = {places}, as declared",
        )
    return seating


def _find(known: Marks, given: Marks, places: int | None) -> Seating:
    texts, wanted = as_texts(known), as_texts(given)
    spots = np.searchsorted(texts, wanted)
    new = spots >= len(texts)
    new[~new] = texts[spots[~new]] != wanted[~new]
    if not new.any():
        return Seating(known, np.arange(len(known)), spots)
    if places is None:
        raise DataError(
            "somebody reports who was not in the panel at its first period",
            where="panel",
            allowed="the people of the first period, or room for others: people = N under [mechanism]",
        )
    everybody = np.concatenate([known, given[new]])
    order = np.argsort(as_texts(everybody))
    before = np.where(order < len(known), order, -1)
    marks = everybody[order]
    return Seating(marks, before, np.searchsorted(as_texts(marks), wanted))


@dataclass
class PanelState:
    """What is remembered between periods. Secret: ``marks``, ``private`` and ``counters`` are about private people.

    Attributes:
        private: for each person, in the order of all periods: the code of the last (up to k) symbols, or how many times
            so far.
        counters: private; of a cumulative panel, a counter's state for each threshold.
        reached: public; of a cumulative panel, synthetic people with at least b counted reports, for b = 0 .. B.
        marks: private; of everybody so far, ascending, shape (people, 16); None before the first period.
        history: public; symbols of the synthetic people, shape (synthetic people, periods so far); no periods
            before the first release.
        period: t, how many periods were read.
        clipped: public; how many groups of synthetic people had to be clipped so far.
    """

    private: NDArray[np.int32]
    counters: list[CounterState] = field(default_factory=list)
    reached: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    marks: Marks | None = None
    history: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    period: int = 0
    clipped: int = 0


@dataclass(frozen=True)
class PeoplePlan(StreamPlan):
    """What the plans of both synthesizers share.

    Guarantee: the synthesizer's, for one person's whole history. Reports are matched to people by keyed marks of
    their ids; nothing else of a person is read. With ``places`` the panel has that many members, declared
    public; one who has not joined, or stays away, reports ``absent``. Joining is then a change of one member's
    history, so the relation is ``replace``, and its noise covers it.

    Attributes:
        horizon: T, how many periods there will be.
        columns: what a person reports.
        absent: code of the report of somebody who does not report; None where everybody has to.
        places: how many people there is room for; None where those of the first period are all.
        period_names: how published tables call the periods, one name for each; None: by their numbers.
        failure: beta, the probability that the stated bound fails anywhere.
    """

    budget: ZCDP
    unit: Individual
    horizon: int
    columns: Domain
    absent: int | None
    places: int | None
    period_names: tuple[str, ...] | None
    failure: Amount
    reads = "reports"

    @property
    def domain(self) -> Domain:
        """The columns of the private reports."""
        return self.columns

    @property
    def codes(self) -> int:
        """How many different reports there are."""
        return self.columns.cells(tuple(range(len(self.columns))))

    @property
    def beta(self) -> float:
        """``failure`` as a number."""
        return float(exact_amount(self.failure, where="failure"))

    @property
    @abstractmethod
    def padding(self) -> int:
        """Invented people: of each pattern, or of those who have had none so far; public."""

    @abstractmethod
    def describe(self) -> str:
        """The plan in words."""

    @abstractmethod
    def _advance(
        self, state: PanelState, reports: NDArray[np.int32], randomness: Randomness
    ) -> PanelSynthesis:
        """Run one period, ``state.period``, of the synthesizer, which extends ``state.history``."""

    def _explained(
        self, deviation: float, panel: Mapping[str, Any], errors: Sequence[tuple[str, float]]
    ) -> Explanation:
        """What both synthesizers have in common.

        Args:
            deviation: of one noisy count, in people.
            panel: for programs: the period of the ``first_release``, and the ``padding`` in it; the ``bound`` of
                ``PeopleEstimate``.
            errors: questions about the last period, and the standard errors of their answers, in people.
        """
        headings = {"question": "people, at the last period", "standard_error": "standard error of the count"}
        told = [{"question": asked, "standard_error": error} for asked, error in errors]
        padding_words = self._padding_words(panel["padding"])
        row = (
            "Synthetic people: no row is a person. A row is one of them, with a column for each period so far; new "
            "periods are added, and what is there is never changed."
        )
        row = f"{padding_words} {row}"
        facts = {"words": self.describe(), "rows": padding_words, **panel, "errors": told}
        facts["weight"] = WEIGHT if panel["padding"] else None
        if self.period_names is not None:
            row += f" Columns end in the names of the periods, which are {_run(self.period_names)}."
            facts["period_names"] = list(self.period_names)
        return replace(
            super().explain(),
            published=(
                "Synthetic people are published, and ",
                f" what they report is added: {', '.join(self.domain.names)}. They are invented by a program from "
                "noisy counts, and persist: what was published of one of them is never changed. None is copied from a "
                "person; one may look like a person by chance.",
            ),
            number_told="how wrong answers about the people may be",
            counts_told="",
            row=row,
            warning=padding_words,
            says=(
                sentence(self.describe()),
                f"The first synthetic people come with period {panel['first_release']}; {panel['padding']} of them are "
                "padding, which answers leave out. They persist: later periods are added, and nothing of them is "
                "changed.",
                PrintedTable(headings, told),
            ),
            facts={"panel": facts},
            deviation=deviation,
            growth="then about 20 bytes a person, and a byte a synthetic person and period",
        )

    def about_rows(self) -> str:
        """See ``StreamPlan.about_rows``."""
        return WEIGHING if self.padding else ""

    def _padding_words(self, padding: int) -> str:
        """What a reader of the table has to know of padding."""
        return WEIGHING if padding else "The published rows hold no padding, and need no weights."

    # The stream.

    def start(self, people: int | None = None) -> PanelState:
        """A fresh state; the first period tells who is in the panel.

        Args:
            people: how many are in it, told apart by their place in the arrays that ``advance`` gets.

        Errors:
            ConfigError: the number of people cannot be used.
        """
        return PanelState(np.zeros(0 if people is None else check_people(people), np.int32))

    def step(self, state: PanelState, batch: PrivateBatch, randomness: Randomness) -> PanelSynthesis:
        """Read one period of reports.

        Errors (before anything is drawn): DataError: reports without marks of people, or as ``seat`` says; and those of
        ``advance``.
        """
        if batch.records is None or batch.marks is None:
            raise DataError(
                "the batch does not say whose reports they are",
                where="panel",
                allowed="Batch(..., users=...)",
            )
        seating = seat(state.marks, batch.marks, places=self.places, absent=self.absent is not None)
        if state.marks is None:
            people = len(seating.marks) if self.places is None else self.places
            state.private = np.zeros(check_people(people), np.int32)
        elif seating.joined:
            state.private = _reseated(state.private, seating)
        state.marks = seating.marks
        reports = np.full(len(state.private), self.absent or 0, np.int64)
        reports[seating.rows] = np.ravel_multi_index(tuple(batch.records.T), self.columns.sizes)
        return self.advance(state, reports, randomness)

    def advance(
        self, state: PanelState, reports: NDArray[np.integer], randomness: Randomness
    ) -> PanelSynthesis:
        """Read one period and extend the synthetic people by it.

        Args:
            reports: private; the code of one report for each person, in the order of all periods.

        Errors (before anything is drawn or changed):
            HorizonError: all periods were read. DataError: another number of people, or codes outside.
        """
        check_period(state.period, self.horizon)
        checked = check_reports(reports, len(state.private), self.codes)
        state.period += 1
        return self._advance(state, checked, randomness)

    def public_people(self, state: PanelState) -> int | None:
        """The number of people where it is public, else None."""
        return len(state.private) if self.unit.relation == "replace" else None

    def pack_state(self, state: PanelState) -> Packed:
        """The whole state; it holds what people reported."""
        return pack_fields(state)

    def unpack_state(self, packed: Packed) -> PanelState:
        """The inverse of ``pack_state``.

        Errors: StoreDamagedError: parts that do not fit each other.
        """
        state = unpack_fields(PanelState, packed)
        if state.marks is not None:
            people, marked = len(state.private), len(state.marks)
            wanted = marked if self.places is None else self.places
            if state.marks.shape != (marked, MARK_BYTES) or people != wanted or marked > people:
                raise StoreDamagedError("the stored people of the panel do not fit each other", where="state")
        return state

    def _given(self, domain: Domain) -> dict[str, Any]:
        """What a release is not packed with, because the plan knows it."""
        return {"domain": domain, "plan": self, "period_names": self.period_names}

    def declared_public(self) -> tuple[str, ...]:
        """What the panel does not protect, in sentences for manifests."""
        facts = []
        if self.places is None:
            facts.append(
                "a person who was not in the first period stops the stream, and that it stopped is visible, so whether "
                "there is one is not protected"
            )
        else:
            facts.append(
                f"that the panel has {self.places} places, taken or not, is declared public; a person who finds none "
                "stops the stream, and that it stopped is visible"
            )
        if self.absent is None:
            facts.append(
                "a person of the panel without a report stops the stream, and that it stopped is visible, so "
                'whether there is one is not protected (a declared missing = "..." in every column takes such reports)'
            )
        facts.append(
            "a person with two reports in one period stops the stream, and that it stopped is visible"
        )
        return tuple(facts)


def _reseated(values: NDArray[np.int32], seating: Seating) -> NDArray[np.int32]:
    """What is kept of each place after somebody joined; empty places all have the value of the last one."""
    empty = values[-1]
    taken = np.where(seating.before >= 0, values[seating.before], empty)
    return np.concatenate([taken, np.full(len(values) - len(taken), empty, np.int32)]).astype(np.int32)


def common_fields(
    terms: Terms, schema: Schema, people: int | None, period_names: tuple[str, ...] | None, failure: Amount
) -> dict[str, Any]:
    """The fields of a ``PeoplePlan``, checked.

    Errors:
        BudgetError: pure epsilon. HorizonError: no number of periods. UnitError: no individual. ConfigError: names,
        places or a failure that cannot be used.
    """
    budget = terms.concentrated("the noise of a panel is Gaussian, which has no pure guarantee")
    if terms.horizon is None:
        raise HorizonError(
            "a panel needs to know how many periods there will be: its noise depends on it",
            where="horizon",
            allowed="a number of periods",
        )
    unit, absent = individual(terms.unit), absent_code(schema)
    check_share(failure, "failure", "panel")
    check_names(schema)
    check_places(people, unit, absent)
    return {
        "budget": budget,
        "unit": unit,
        "horizon": int(terms.horizon),
        "columns": schema.domain,
        "absent": absent,
        "places": people,
        "period_names": check_period_names(period_names, terms.horizon, schema),
        "failure": failure,
    }


def check_places(people: int | None, unit: Individual, absent: int | None) -> None:
    """Check that a panel with room for people who come later has what that needs.

    Errors:
        ConfigError: under add/remove, or where somebody who is not there has no report to be counted with.
    """
    if people is None:
        return
    check_whole(people, "people", 1, MAX_PEOPLE, "panel")
    if unit.relation != "replace":
        raise ConfigError(
            f"people = {people} declares the number of places public, and under add/remove it is private",
            where="people",
            allowed="unit = 'individual-replace' (joining is then a change of one place's history)",
        )
    if absent is None:
        raise ConfigError(
            "a place that nobody has taken needs a report to be counted with",
            where="people",
            allowed='missing = "..." declared for every column',
        )


def readable_schema(schema: Schema) -> Schema:
    """The columns as panels release them: bins of numbers and dates are released by their labels, so nothing is
    drawn."""
    return Schema(tuple(_readable(column) for column in schema.columns))


def _readable(column: Column) -> Column:
    if isinstance(column, Boolean | Categorical):
        return column
    return Categorical(column.name, column.bin_labels(), other=column.other, missing=column.missing)


def absent_code(schema: Schema) -> int | None:
    """The code of a report in which every column is missing; None where a column declares no such bin."""
    if any(column.missing is None for column in schema.columns):
        return None
    return schema.domain.cells(tuple(range(len(schema)))) - 1


def check_names(schema: Schema) -> None:
    """ConfigError where a column has a name that released tables need."""
    for name in (PERSON, PERIOD, WEIGHT):
        if name in schema.names:
            raise ConfigError(
                f"the column {name!r} has a name that released panels need for a column of their own",
                where="schema",
                allowed=f"another name than {PERSON}, {PERIOD} and {WEIGHT}",
            )


def check_period_names(names: tuple[str, ...] | None, periods: int, schema: Schema) -> tuple[str, ...] | None:
    """The names of the periods, with which columns of released tables have to differ from each other.

    Errors:
        ConfigError: not one for each period, one that cannot be used, or two columns with the same name.
    """
    if names is None:
        return None
    usable = not isinstance(names, str) and all(
        isinstance(name, str) and name.isprintable() and 0 < len(name) <= 100 for name in names
    )
    if not usable or len(names) != periods:
        what = f"{len(names)} names, and {periods} periods" if usable else "a name cannot be used"
        raise ConfigError(
            what,
            where="period_names",
            allowed="for each period of the horizon one printable text, to 100 characters",
        )
    columns = [wide_name(column, name) for name in names for column in (*schema.names, WEIGHT)]
    if len(set(columns)) != len(columns):
        raise ConfigError(
            "two periods, or a column and another one with its period, have the same name",
            where="period_names",
            allowed="different names",
        )
    return tuple(names)


def _run(names: Sequence[str]) -> str:
    """Some names in words; of many the first, the second and the last.

    >>> _run(["jan", "feb", "mar", "apr"])
    'jan, feb, ..., apr'
    """
    shown = names if len(names) <= 3 else (*names[:2], "...", names[-1])
    return ", ".join(shown)
