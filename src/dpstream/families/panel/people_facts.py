"""What the plans of both synthesizers say in public: of a panel, of padding, of errors, of releases."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    Packed,
    PeopleEstimate,
    StreamPlan,
    unpack_fields,
)
from dpstream.core.privacy.budget import ZCDP, Amount, exact_amount
from dpstream.core.privacy.unit import Individual
from dpstream.core.schema.domain import Clique, Domain
from dpstream.families.panel.people_release import History, Ints, PanelSynthesis, Weights
from dpstream.io.sinks.period_tables import WEIGHT


@dataclass(frozen=True)
class PeopleFacts(StreamPlan):
    """What a plan of people says; see ``PeoplePlan``."""

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


def first_and_last(last: int) -> list[int]:
    """The first few numbers and the last: tables of hundreds of lines help nobody."""
    return list(range(1, last + 1)) if last <= 6 else [1, 2, 3, last // 2, last]
