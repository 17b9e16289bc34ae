"""Panels as streams: who is who from period to period, and the plan that both synthesizers share.

Trusted base: kernel (holds exact histories, checks private reports).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    NoisyCounts,
    Packed,
    PeopleEstimate,
    PrivateBatch,
    StreamPlan,
    check_whole,
    pack_fields,
    unpack_fields,
)
from dpstream.core.counters import CounterState
from dpstream.core.errors import ConfigError, DataError, HorizonError, StoreDamagedError
from dpstream.core.privacy import ZCDP, Amount, Individual, Randomness, exact_amount
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import EncodedReports
from dpstream.core.tables.encoded_batch import MARK_BYTES, as_texts
from dpstream.families.panel.panel_options import MAX_PEOPLE
from dpstream.families.panel.people_release import History, Ints, PanelSynthesis, Weights
from dpstream.io.sinks.period_tables import WEIGHT

# Who of a panel is who: people are found again by keyed marks of their ids.
#
# Guarantee: which report goes to which person follows from the person's own mark. The refusals tell that
# somebody came, stayed away, or found no place; whether they happen is declared public
# (``words.j2``), and the messages name nobody and no number of people.

Marks = NDArray[np.uint8]

#: What is allowed where a stranger came, or somebody of the panel stayed away.
NO_OTHERS = "the people of the first period, or people = N"
EVERYBODY = 'every person, or missing = "..." in every column'


def seat(known: Marks | None, given: Marks, *, places: int | None, absent: bool) -> tuple[Marks, Ints]:
    """Find everybody who reports: the marks of all people so far, in the order in which they came, and for each report
    the place of its person among them.

    Args:
        known: marks of the panel; None at the first period, whose people are the panel.
        given: marks of those who report, ascending and different.
        places: how many people the panel has room for; None where it is complete after the first period.
        absent: whether somebody may have no report.

    Errors:
        DataError: somebody is new in a complete panel, has no report where everybody needs one, or has no place.

    Cost: one search for everybody who is known.
    """
    before = given[:0] if known is None else known
    texts, wanted = as_texts(given), as_texts(before)
    rows = np.searchsorted(texts, wanted)
    here = rows < len(texts)
    here[here] = texts[rows[here]] == wanted[here]
    seats = np.full(len(given), -1, np.int64)
    seats[rows[here]] = np.flatnonzero(here)
    new = seats < 0
    if known is not None and places is None and new.any():
        raise DataError(
            "a person reports who was absent in the first period",
            where="panel",
            allowed=NO_OTHERS,
        )
    if not absent and not here.all():
        raise DataError(
            "a person of the panel has no report",
            where="panel",
            allowed=EVERYBODY,
        )
    marks = np.concatenate([before, given[new]])
    if places is not None and len(marks) > places:
        raise DataError(
            "more people report than the panel has places",
            where="panel",
            allowed=f"people = {places}",
        )
    seats[new] = np.arange(len(before), len(marks))
    return marks, seats


def check_reports(reports: NDArray[np.integer], people: int, symbols: int) -> NDArray[np.int32]:
    """One period's reports as int32; messages name no value and no number of people.

    Errors:
        DataError: no array of whole numbers, another number of people, or a symbol outside.
    """
    array = np.asarray(reports)
    if isinstance(reports, np.ma.MaskedArray):
        what, allowed = "masked reports", "a symbol for missing reports"
    elif array.ndim != 1 or array.dtype.kind not in "iu":
        what, allowed = "expected one whole number per person", "a 1-d integer array"
    elif len(array) != people:
        what = "the period's reports and the panel differ in people"
        allowed = "one report per person"
    elif len(array) and not (int(array.min()) >= 0 and int(array.max()) < symbols):
        what, allowed = "a report lies outside the alphabet", f"0 to {symbols - 1}"
    else:
        return array.astype(np.int32)
    raise DataError(what, where="panel", allowed=allowed)


def _check_people(people: object) -> int:
    """A number of people; it may be private, so the message does not say it.

    Errors:
        ConfigError: the number of people cannot be used.
    """
    try:
        return check_whole(people, "people", 0, MAX_PEOPLE, "panel")
    except ConfigError as error:
        raise ConfigError("unusable number of people", where="panel", allowed=error.allowed) from None


@dataclass
class PanelState:
    """What is remembered between periods. Secret: ``marks``, ``private`` and ``counters`` are about private people.

    Attributes:
        private: for each person, in the order of all periods: the code of the last (up to k) symbols, or how many times
            so far.
        counters: private; of a cumulative panel, a counter's state for each threshold.
        marks: private; of everybody so far, in the order in which they came, shape (people, 16); None before the
            first period.
        history: public; symbols of the synthetic people, shape (synthetic people, periods so far); no periods
            before the first release.
        period: t, how many periods were read.
        clipped: public; how many groups of synthetic people had to be clipped so far.
    """

    private: NDArray[np.int32]
    counters: list[CounterState] = field(default_factory=list)
    marks: Marks | None = None
    history: History = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    period: int = 0
    clipped: int = 0


@dataclass(frozen=True)
class PeoplePlan(StreamPlan):
    """What the plans of both synthesizers share.

    Guarantee: the synthesizer's, for one person's whole history. Reports are matched to people by keyed marks of
    their ids; nothing else of a person is read. With ``places`` the panel has that many members, declared
    public; one who has not joined, or stays away, reports ``absent``. Joining is then a change of one member's
    history, so the relation is ``replace``, and its noise covers it.

    A synthesizer says how it reads a period (``_advance``), what its synthetic people are right about (``answer``), and
    how many of them are padding (``padded``).

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
    #: The period of the first release.
    first_release = 1
    #: Whether questions are about all periods so far, instead of the last few.
    so_far = False

    # Each synthesizer defines these.

    @abstractmethod
    def _advance(
        self, state: PanelState, reports: NDArray[np.int32], randomness: Randomness
    ) -> PanelSynthesis:
        """Run one period, ``state.period``, of the synthesizer, which extends ``state.history``."""

    # The stream.

    def invented(self, symbols: NDArray[np.integer]) -> EncodedReports:
        """One period of people who are numbered, and of whose reports this is followed, as a batch."""
        marks = np.zeros((len(symbols), MARK_BYTES), np.uint8)
        marks[:, -8:] = np.arange(len(symbols), dtype=">u8").view(np.uint8).reshape(-1, 8)
        codes = np.unravel_index(self.reported(symbols), self.columns.sizes)
        return EncodedReports(
            self.columns, np.asfortranarray(np.stack(codes, axis=1).astype(np.int32)), marks
        )

    def start(self, people: int | None = None) -> PanelState:
        """A fresh state; the first period tells who is in the panel.

        Args:
            people: how many are in it, told apart by their place in the arrays that ``advance`` gets.

        Errors:
            ConfigError: the number of people cannot be used.
        """
        return PanelState(np.zeros(0 if people is None else _check_people(people), np.int32))

    def step(self, state: PanelState, batch: PrivateBatch, randomness: Randomness) -> PanelSynthesis:
        """Read one period of reports.

        Errors (before anything is drawn): DataError: reports without marks of people, or as ``seat`` says; and those of
        ``advance``.
        """
        if batch.records is None or batch.marks is None:
            raise DataError(
                "the batch needs the people of its reports",
                where="panel",
                allowed="Batch(..., users=...)",
            )
        marks, seats = seat(state.marks, batch.marks, places=self.places, absent=self.absent is not None)
        if state.marks is None:
            people = len(marks) if self.places is None else self.places
            state.private = np.zeros(_check_people(people), np.int32)
        state.marks = marks
        # Places that nobody has taken are alike, so whoever joins finds the history of somebody who was absent.
        reports = np.full(len(state.private), self.absent or 0, np.int64)
        reports[seats] = np.ravel_multi_index(tuple(batch.records.T), self.columns.sizes)
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
        if state.period >= self.horizon:
            raise HorizonError(
                f"period {state.period + 1} lies beyond the horizon",
                where="panel",
                allowed=f"up to {self.horizon} periods",
            )
        checked = check_reports(reports, len(state.private), self.codes)
        state.period += 1
        return self._advance(state, checked, randomness)

    def _release(
        self,
        state: PanelState,
        counts: Ints,
        noisy_counts: Sequence[NoisyCounts],
        estimates: Ints | None = None,
    ) -> PanelSynthesis:
        people = len(state.private) if self.unit.relation == "replace" else None
        estimates = counts[:0] if estimates is None else estimates
        period, history, clipped = state.period, state.history, state.clipped
        return PanelSynthesis(
            self, period, history, people, counts, estimates, clipped, noisy_counts=noisy_counts
        )

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
                raise StoreDamagedError("the stored people contradict each other", where="state")
        return state

    # What is public.

    @property
    def domain(self) -> Domain:
        """The columns of the private reports."""
        return self.columns

    @property
    def released(self) -> Domain:
        """The columns of the synthetic reports."""
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

    @property
    @abstractmethod
    def padding_of_reports(self) -> NDArray[np.float64]:
        """How many invented people report what in the newest period, on average over the earlier ones."""

    @abstractmethod
    def padded(self, history: History) -> tuple[Ints, Ints]:
        """The group of each synthetic person after these periods, and how many of each group are padding."""

    @abstractmethod
    def total_variance(self, period: int) -> float:
        """Of the number of people, where it is not public."""

    def cell_error(self, clique: Clique, period: int) -> float | None:
        """Standard error of a cell of a marginal of the newest reports; None where it is not known."""
        return None

    def followed(self, reports: NDArray[np.integer]) -> NDArray[np.integer]:
        """What is followed of reports: their codes, or 1 where they are counted."""
        return reports

    def reported(self, symbols: NDArray[np.integer]) -> NDArray[np.integer]:
        """Reports of which that is followed; one of several."""
        return symbols

    @abstractmethod
    def summed_up(self, history: NDArray[np.integer], period: int) -> NDArray[np.int32]:
        """What the synthetic people are right about: the last periods up to this one, or how many times so far."""

    @abstractmethod
    def answer(self, release: PanelSynthesis, question: Any) -> PeopleEstimate:
        """The answer to a question that is not words. Errors: ConfigError: the release cannot answer it."""

    @abstractmethod
    def accuracy(self, release: PanelSynthesis) -> dict[str, Any]:
        """For the manifest: padding, bound, and answers to the usual questions; JSON-able."""

    def _panel_facts(self, errors: Sequence[tuple[str, float]], **facts: Any) -> dict[str, Any]:
        """What both synthesizers have in common.

        Args:
            errors: questions about the last period, and the standard errors of their answers, in people.
            facts: the synthesizer's: among them the ``padding`` in the first release, and the ``bound`` of
                ``PeopleEstimate``.
        """
        panel = {
            **facts,
            "first_release": self.first_release,
            "confidence": 1 - self.beta,
            "errors": [{"question": question, "standard_error": error} for question, error in errors],
            "weight": WEIGHT if facts["padding"] else None,
            "everybody_reports": self.absent is None,
        }
        if self.period_names is not None:
            panel["period_names"] = list(self.period_names)
        return panel

    def weights(self, history: History) -> Weights | None:
        """Those of the last of these periods; None without padding, or before the first release."""
        if not self.padding or history.shape[1] < self.first_release:
            return None
        return Weights.shared(*self.padded(history))

    def unpack_synthesis(self, packed: Packed) -> PanelSynthesis:
        """The inverse of ``PanelSynthesis.pack``."""
        return unpack_fields(PanelSynthesis, packed, plan=self)
