"""The contract between mechanisms (families) and the streams that run them durably.

A *recipe* (for example ``DPStabs``) holds options only. ``recipe.calibrate(...)`` fixes every noise
scale and gives a frozen *plan*. A plan can be started, stepped and packed by anybody: the durable
stream (``dpstream.stream``) does it inside one transaction per step, a benchmark does it in a loop.

Private data reaches a plan only as the argument ``batch`` of ``step``, and only as counts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts.explanation import Explanation, counts_words
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.law import Law, check_confidence
from dpstream.core.privacy.unit import Unit
from dpstream.core.schema.domain import Clique, Domain

if TYPE_CHECKING:
    from pathlib import Path

    from dpstream.core.privacy.randomness import Randomness
    from dpstream.core.schema import Schema
    from dpstream.stream import Sink, Stream

__all__ = [
    "CellEstimate",
    "ClassifierRelease",
    "Measured",
    "Packed",
    "Part",
    "PeopleEstimate",
    "PeopleSynthesis",
    "PlacedSynthesis",
    "PredictedError",
    "PrivateBatch",
    "SaysAccuracy",
    "StartTable",
    "StreamPlan",
    "StreamRecipe",
    "Synthesis",
]


class PrivateBatch(Protocol):
    """One step's private records, seen only through counts (the seam for NumPy, DuckDB, Spark)."""

    def count(
        self, cliques: Sequence[Clique], part: Literal["net", "inserts", "deletes"] = "net"
    ) -> list[NDArray[np.int64]]:
        """Flat (C order) marginal counts, one array of ``domain.cells(clique)`` per clique.

        ``net`` is inserts minus deletes and may be negative.
        """
        ...

    @property
    def declares_deletes(self) -> bool:
        """Whether the batch was given deletes at all, an empty table included: a public fact of the source."""
        ...


@dataclass(frozen=True)
class Packed:
    """State as versioned JSON and arrays; never pickle."""

    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """One line of a plan: what is done at a step, what it costs, and how noisy it is."""

    name: str
    times: int
    budget: Budget
    detail: str

    @property
    def total(self) -> Fraction:
        """What the part costs one unit of protection over the whole stream."""
        return self.budget.amount * self.times


@dataclass(frozen=True)
class CellEstimate:
    """A marginal and the standard deviation of one of its cells, where public noise scales give it."""

    values: NDArray[np.float64]
    standard_error: float | None


@dataclass(frozen=True)
class Measured:
    """A marginal that was measured at every step: unbiased noisy counts, public.

    Attributes:
        values: one count per cell, in records, shape ``domain.shape(clique)``; negative ones are normal.
        standard_error: of one cell. Noise in different cells is independent and follows one symmetric law.
        law: that law; None where only its variance is known.
    """

    values: NDArray[np.float64]
    standard_error: float
    law: Law | None = None

    def error_of_sum(self, cells: int) -> float:
        """Standard error of the sum of some different cells: independent noise adds up in variance."""
        return self.standard_error * math.sqrt(cells)

    def half_width(self, cells: int, confidence: float) -> float:
        """The sum of ``cells`` different cells lies within this of the truth with that probability or more.

        From the law of the noise; where only the variance is known, by Chebyshev's inequality, which holds for
        every law and is about twice as wide.
        """
        check_confidence(confidence)
        if self.law is not None:
            return self.law.times(cells).half_width(confidence)
        return self.error_of_sum(cells) / math.sqrt(1.0 - confidence)


@dataclass(frozen=True)
class PredictedError:
    """Standard errors, in records, that a plan predicts for one step before any data is read.

    Attributes:
        step: which step.
        every_step: one cell of a marginal that is measured at every step.
        even_share: one cell of a marginal's running sum where all marginals take turns. Only the noise of
            what was measured: what a model books for the other steps is not in it.
        measurements: how many measurements that even share is by then (at least 1).
        total: the number of records, where all marginals take turns; 0 where the owner declared it public.

    None where the plan cannot say.
    """

    step: int
    every_step: float | None
    even_share: float | None
    measurements: int
    total: float | None


class Synthesis(Protocol):
    """What one step gives: everything here is public post-processing.

    ``total`` is the noisy number of records (a float; may be negative). Marginals are in records.
    """

    @property
    def domain(self) -> Domain: ...

    @property
    def total(self) -> float: ...

    @property
    def total_error(self) -> float | None:
        """Standard error of ``total``; 0 where it is public, None where public noise scales do not give it."""
        ...

    @property
    def measured(self) -> Mapping[Clique, Measured]:
        """The marginals that were measured at every step so far; empty where there are none."""
        ...

    def marginal(self, clique: Clique) -> CellEstimate:
        """The model's marginal of a clique, with shape ``domain.shape(clique)``."""
        ...

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Many marginals at once, flat in C order."""
        ...

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """``rows`` synthetic records as codes, shape (rows, columns); repeatable for one seed."""
        ...

    def pack(self) -> Packed:
        """Arrays and JSON from which the plan's ``unpack_synthesis`` gives an equal object."""
        ...


@runtime_checkable
class SaysAccuracy(Protocol):
    """A ``Synthesis`` that says itself how wrong it may be."""

    def accuracy(self) -> dict[str, Any]:
        """For the manifest; JSON-able."""
        ...


@dataclass(frozen=True)
class PeopleEstimate:
    """How many people of a panel something holds for; public.

    Attributes:
        count: estimated number of people, without padding.
        count_error: its standard error, from public noise scales.
        share, share_error: the same as a share of all people.
        bound: all such counts of all periods are within their bounds (people) with probability ``1 - failure``.
            None, like the errors, where the question goes beyond what the releases are right about.
        raw_share: share among the released synthetic people as they are, padding included.
        words: the question, and what the errors mean.
    """

    count: float
    count_error: float | None
    share: float
    share_error: float | None
    bound: float | None
    raw_share: float
    words: str


@runtime_checkable
class PeopleSynthesis(Protocol):
    """A ``Synthesis`` of persistent synthetic people: the released table is part of it, no sample of it.

    What was released of a person is never changed. ``table`` has all periods so far, ``additions`` the new ones.
    """

    def table(self, schema: Schema) -> Any:
        """One row a synthetic person, one column a period and variable, as a pyarrow Table."""
        ...

    def additions(self, schema: Schema) -> Any:
        """What this step adds to the table, one row a person and period; without rows where it adds nothing."""
        ...

    def facts(self) -> dict[str, Any]:
        """About people and periods, for the manifest; JSON-able."""
        ...

    def accuracy(self) -> dict[str, Any]:
        """Errors, padding and clipping, for the manifest; JSON-able."""
        ...

    def answer(self, question: Any, codes_of: Callable[[str], tuple[int, ...]]) -> PeopleEstimate:
        """Answer a question, as an object of ``dpstream.families.panel`` or in words.

        Args:
            codes_of: reads a condition on the columns: the codes of the reports that satisfy it.

        Errors:
            ConfigError: a question that cannot be read, or that these releases cannot answer.
        """
        ...


@runtime_checkable
class ClassifierRelease(Protocol):
    """A ``Synthesis`` that is a classifier: its release is a table of coefficients, and nothing is sampled."""

    @property
    def classifier(self) -> Any: ...

    def whole_table(self, schema: Schema) -> Any:
        """The release in the columns of ``StreamPlan.released_schema``, as a pyarrow Table."""
        ...


@runtime_checkable
class PlacedSynthesis(Protocol):
    """A ``Synthesis`` whose release is records with values of their own: nothing is drawn from a model.

    Attributes:
        fine: the columns whose codes the records have; finer than the declared ones.
    """

    @property
    def fine(self) -> Schema: ...

    def table(self, rows: int, seed: int) -> Any:
        """The release where it has so many rows, whatever the seed; else some of it."""
        ...

    def records(self, rows: int, seed: int) -> NDArray[np.int32]:
        """Fine codes of a first release that later ones follow."""
        ...

    def follow(
        self, old: NDArray[np.int32], rows: int, seed: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """Which records of the release before stay, and the fine codes of those that come."""
        ...

    def accuracy(self) -> dict[str, Any]:
        """For the manifest; JSON-able."""
        ...


class StartTable(Protocol):
    """A public table that a stream may begin with: the last release of another one, in this one's columns."""

    @property
    def domain(self) -> Domain: ...

    @property
    def total(self) -> float:
        """Number of records."""
        ...

    @property
    def total_error(self) -> float | None:
        """Standard error of ``total``; 0 where it is public, None where it is not known."""
        ...

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Marginals in records, flat in C order; they add up to ``total``."""
        ...

    def records(self) -> NDArray[np.int32]:
        """About ``total`` records as codes, shape (rows, columns); the same at every call."""
        ...


class StreamRecipe(Protocol):
    """The options of a mechanism, without data and without a budget."""

    def calibrate(
        self, budget: Budget | None = None, unit: Unit | None = None, horizon: int | None = None
    ) -> StreamPlan:
        """Fix every noise scale, so that all releases together cost one unit of protection ``budget``.

        Errors:
            BudgetError, UnitError, HorizonError: a guarantee that cannot be given. ConfigError, LimitError: options
            that cannot be used.
        """
        ...


class StreamPlan(ABC):
    """A calibrated mechanism: options, domain, budget and unit fixed; no data.

    ``state`` objects hold private counts (true sums inside counters): they are secret.
    A plan is frozen and may be shared; all change happens in the state.
    """

    budget: Budget
    unit: Unit
    #: Number of steps the plan pays for; None where it is unbounded.
    horizon: int | None
    #: Whether a stream of it is asked questions between its steps (``dpstream ask``).
    asked: ClassVar[bool] = False

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The columns: names and sizes."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the mechanism in configuration files."""

    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """What each part costs. The totals add up to ``budget`` (each unit is in one step)."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """All options, JSON-able and exact: they enter the plan's hash and the manifest."""

    def released_schema(self, schema: Schema) -> Schema:
        """The columns of released tables, from those of the private records; the same as a rule."""
        return schema

    def reading_schema(self, schema: Schema) -> Schema:
        """The columns as whose codes private records are read; the same as a rule."""
        return schema

    def declared_public(self) -> tuple[str, ...]:
        """What the mechanism itself leaves open to whoever watches the stream, in sentences for manifests."""
        return ()

    def composition(self) -> str | None:
        """How what is spent at single steps adds up, for manifests; None: as the unit's relation has it."""
        return None

    def predicted_errors(self, steps: Sequence[int]) -> tuple[PredictedError, ...] | None:
        """Standard errors at some steps (1, 2, ...), before any data is read; None where nothing can be said.

        Errors:
            HorizonError: a step beyond the horizon. ConfigError: no number of a step.
        """
        return None

    def explain(self) -> Explanation:
        """What texts say of the plan before any data are read; a mechanism replaces what it can say better."""
        return Explanation.usual(self.domain.names, self.unit, self.composition())

    def explain_until(self, records: int) -> Explanation | None:
        """With everything that is planned up to a number of records; None where nothing is scheduled by it."""
        return None

    def counts_words(self, step: int, measured: int, *, with_base: bool = False) -> str:
        """What a step's manifest says of counts, where the release does not say it itself.

        Args:
            measured: how many marginals were measured at every step so far.
            with_base: whether the stream began with another one's table.
        """
        return counts_words(measured, with_base=with_base)

    def step_facts(self, step: int) -> dict[str, Any]:
        """What else a step's manifest says of its accuracy; JSON-able."""
        return {}

    @abstractmethod
    def start(self) -> Any:
        """A fresh state before the first step."""

    def start_from(self, base: StartTable) -> Any:
        """A fresh state whose table is ``base`` before the first step.

        Guarantee: the plan's, for what comes in its own steps. The base is public and stays what it was: starting
        from it is post-processing.

        Errors:
            ConfigError: this mechanism cannot begin with a table.
        """
        raise ConfigError(
            f"the mechanism {self.name!r} cannot begin with another stream's table",
            where="base",
            allowed="pooled, dpstabs, baseline",
        )

    @abstractmethod
    def step(self, state: Any, batch: PrivateBatch, randomness: Randomness) -> Synthesis:
        """Advance ``state`` in place by one step and give the new synthesis.

        If it raises, the state is unusable: go back to the last packed one.
        """

    @abstractmethod
    def pack_state(self, state: Any) -> Packed:
        """The whole state as arrays and JSON."""

    @abstractmethod
    def unpack_state(self, packed: Packed) -> Any:
        """The inverse of ``pack_state``: continues exactly (given the same randomness)."""

    @abstractmethod
    def unpack_synthesis(self, packed: Packed) -> Synthesis:
        """The inverse of ``Synthesis.pack``."""

    def open(
        self,
        path: str | Path,
        *,
        schema: Schema,
        name: str = "stream",
        randomness: Randomness | None = None,
        publish_to: Sink | None = None,
        keep: Literal["all"] | int = "all",
        max_rows: int = 10_000_000,
        source: Mapping[str, Any] | None = None,
        declared_public: Sequence[str] = (),
        account: str | Path | None = None,
    ) -> Stream:
        """The durable stream whose secret state lives in ``path``: started there, or continued.

        ``dpstream.stream.open_stream`` with this plan; see there for guarantee, arguments and errors, and for what
        only it takes (a database server, persistent records, a key).
        """
        # The one import that goes upwards: plans open their streams, and streams know plans.
        from dpstream.stream import open_stream

        return open_stream(
            self,
            schema,
            path,
            name=name,
            randomness=randomness,
            publish_to=publish_to,
            keep=keep,
            max_rows=max_rows,
            source=source,
            declared_public=declared_public,
            account=account,
        )
