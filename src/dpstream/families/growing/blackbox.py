"""Static mechanisms as black boxes: what they read, what they are given, what they release.

A black box runs on one fixed database. A schedule (``run_schedule.py``) runs it again as the database grows, each time
with its own budget, so that all runs together cost the budget of the stream.

Trusted base: kernel (what a black box reads).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PrivateBatch
from dpstream.core.errors import ConfigError
from dpstream.core.graphical import Measurement
from dpstream.core.privacy import Budget, Randomness
from dpstream.core.schema.domain import Clique, Domain
from dpstream.families.growing.tables import Law, PowerLaw
from dpstream.mechanisms.run_outputs import RunOutput


@dataclass(frozen=True)
class Counts:
    """What a black box needs: the marginals of some cliques of the records, and nothing else.

    The state of its stream is as large as these marginals, however many records there are.
    """

    domain: Domain
    cliques: tuple[Clique, ...]


@dataclass(frozen=True)
class Database:
    """The database as it is at one time. Everything but ``t`` is private.

    Attributes:
        t: number of records; public, because the relation is ``event-replace``.
        counts: marginals of the cliques that were asked for (flat, C order, int64).

    Errors:
        ConfigError: counts of another number of records than ``t``.
    """

    t: int
    counts: tuple[NDArray[np.int64], ...]

    def __post_init__(self) -> None:
        # Noise is made for t: with fewer records a replaced one would move more than is covered.
        if any(int(values.sum()) != self.t for values in self.counts):
            raise ConfigError("t differs from the number of records", where="database")


def refuse_deletes(batch: PrivateBatch) -> None:
    """A growing database only grows (ConfigError)."""
    if batch.declares_deletes:
        raise ConfigError(
            "a growing database takes no deletes",
            where="mechanism",
            allowed="batches without deletes; or pooled, dpstabs, baseline",
        )


@dataclass(frozen=True)
class LinearQuery:
    """The mean over the records of a function ``f`` of some columns, with values in [0, 1].

    Attributes:
        clique: the columns it depends on.
        weights: its value for every cell of their marginal, flat in C order.
    """

    clique: Clique
    weights: NDArray[np.float64]

    def __post_init__(self) -> None:
        if np.iscomplexobj(self.weights):
            raise ConfigError("a query has complex values", where="query", allowed="numbers from 0 to 1")
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.ndim != 1 or not (weights >= 0.0).all() or not (weights <= 1.0).all():
            raise ConfigError("a query's value lies outside [0, 1]", where="query", allowed="0 to 1")
        object.__setattr__(self, "weights", weights)

    def check(self, domain: Domain) -> None:
        """Refuse a query about other columns.

        Errors:
            ConfigError: columns that are not there, or another number of values than they have cells.
        """
        clique, columns = self.clique, range(len(domain))
        if list(clique) != sorted(set(clique)) or not set(clique) <= set(columns):
            raise ConfigError(
                "the query names unknown columns",
                where="query",
                allowed="sorted column positions",
            )
        if len(self.weights) != domain.cells(clique):
            raise ConfigError(
                f"the query has {len(self.weights)} values for {domain.cells(clique)} cells",
                where="query",
                allowed=f"{domain.cells(clique)}, one per cell",
            )


#: What one run gives, public: a dataclass that ``pack_fields`` takes apart.
Release = TypeVar("Release", covariant=True)


@dataclass(frozen=True)
class BoxRun(Generic[Release]):
    """One run; all of it is public.

    Attributes:
        released: what it gives.
        outputs: the noisy counts that it measured, as far as the black box hands them over.
        measured: the same of each marginal, for estimates.
    """

    released: Release
    outputs: tuple[RunOutput, ...] = ()
    measured: tuple[Measurement, ...] = ()


class BlackBox(ABC, Generic[Release]):
    """A static mechanism, without a budget yet.

    Guarantee, which every implementation has to give: for each budget, ``t`` and two databases of ``t`` records that
    differ in the value of one record (**replace-one, t public**), ``run`` satisfies ``budget``: ``PureDP`` is pure
    differential privacy, ``ZCDP`` is zero-concentrated. It holds for each call on its own, whatever was released
    before. Everything that depends on the data is drawn through the ``Randomness`` it is given.

    Public is a field, private is the argument ``data``. A black box is frozen.
    """

    #: Name in configuration files and manifests.
    name: str
    #: What is known of its accuracy; None: nothing, and then gamma has to be given.
    accuracy: PowerLaw | None = None
    #: Definitions of privacy it can be run under. One that knows pure budgets only is given ``sqrt(2 rho)``.
    definitions: tuple[Literal["pure", "zcdp"], ...] = ("pure", "zcdp")

    @property
    def law(self) -> Law | None:
        """What is promised of each run, with the options that it has; ``accuracy`` where they play no role."""
        return self.accuracy

    @property
    @abstractmethod
    def reads(self) -> Counts:
        """What ``run`` will find in ``data``."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """All options, JSON-able and exact: they enter the plan's hash and the manifest."""

    @abstractmethod
    def describe(self) -> str:
        """What one run does, in words; public."""

    def fitted(self, alpha: float | None) -> Self:
        """This black box for the accuracy that its first run promises; called once, before any data are read.

        Args:
            alpha: as a share of the records; None where nothing is promised.

        Errors: LimitError: it would be larger than can be run; the number is named.
        """
        return self

    def check(self, budget: Budget) -> None:
        """Refuse a budget that no run can be made with; called once, with that of the first run.

        Errors: ConfigError: the noise would be too large.
        """

    @abstractmethod
    def run(self, budget: Budget, data: Database, randomness: Randomness) -> BoxRun[Release]:
        """Spend ``budget`` once on the database.

        What it measured is published, as far as it tells. Only values that its proof counts as outputs may be among
        them: true counts and noise, never scores of a selection.
        """

    def following(self, made: BoxRun[Any], before: Any) -> Any:
        """What is released after a run, given the release before it; public post-processing. The run's own here."""
        return made.released

    def numbers(self) -> tuple[int, int] | None:
        """How many numbers a run measures and tells, at least and at most; None where it tells none."""
        return None
