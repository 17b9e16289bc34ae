"""What a step gives. Everything here is public post-processing: no data, no budget."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts.noisy_counts import NoisyCounts
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.law import Law, check_confidence
from dpstream.core.schema import Schema
from dpstream.core.schema.domain import Clique, Codes, Domain, Impossible


@dataclass(frozen=True)
class Packed:
    """State as versioned JSON and arrays; never pickle.

    Attributes:
        public: names of arrays that follow from released values and public facts alone. A store writes them again only
            where they changed, which is seen from outside; everything else is written at every step.
    """

    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    public: frozenset[str] = frozenset()


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
class PeopleEstimate:
    """The number of people in a panel to whom a condition applies; public.

    Attributes:
        count: estimated number of people, without padding.
        count_error: the standard error of ``unbiased`` where there is one, else of ``count``; from public noise scales.
        share, share_error: the same as a share of all people.
        bound: all such counts of all periods are within their bounds (people) with probability ``1 - failure``.
            None, like the errors, where the question goes beyond what the releases are right about.
        raw_share: share among the released synthetic people as they are, padding included.
        words: the question, and what the errors mean.
        unbiased: what was measured, where ``count`` differs from it because counts must never fall.
    """

    count: float
    count_error: float | None
    share: float
    share_error: float | None
    bound: float | None
    raw_share: float
    words: str
    unbiased: float | None = None


class GrowingTable(Protocol):
    """A table that only grows: what was released of a synthetic person is never changed."""

    def table(self, schema: Schema) -> Any:
        """One row a synthetic person, one column a period and variable, as a pyarrow Table."""
        ...

    def additions(self, schema: Schema) -> Any:
        """What this step adds to the table, one row a person and period; without rows where it adds nothing."""
        ...

    def facts(self) -> dict[str, Any]:
        """About people and periods, for the manifest; JSON-able."""
        ...


class PlacedRecords(Protocol):
    """Records with values of their own: nothing is drawn from a model.

    Attributes:
        fine: the columns whose codes the records have; finer than the declared ones.
    """

    @property
    def fine(self) -> Schema: ...

    def records(self, rows: int, seed: int) -> Codes:
        """Fine codes of a first release that later ones follow."""
        ...

    def follow(self, old: Codes, rows: int, seed: int) -> tuple[NDArray[np.bool_], Codes]:
        """Which records of the release before stay, and the fine codes of those that come."""
        ...


class Synthesis(ABC):
    """What a step releases. An attribute that only some families have is None for the others.

    Attributes:
        noun: what the release is, for the error where it has no answers.
        domain: the columns of the private records.
        total: the noisy number of records; may be negative.
        total_error: standard error of ``total``; 0 where it is public, None where public noise scales do not give it.
        passed: noisy numbers of the records that came and of those that left, as followed up to now; None where they
            are not followed apart, or not told.
        measured_up_to: the last step up to which all records are measured; None: this one. What came since is
            expected, and of that no error is known.
        total_measured_up_to: the same of the number of records, where that is another step.
    """

    passed: tuple[float, float] | None = None
    measured_up_to: int | None = None
    total_measured_up_to: int | None = None
    #: What this step measured. Published beside the release; not in ``pack``, so it is here only when a step is made.
    noisy_counts: Sequence[NoisyCounts] = ()
    noun: ClassVar[str] = "no table of records"

    if TYPE_CHECKING:
        # Some families have fields of these names, for which a property here would be the default.
        @property
        @abstractmethod
        def domain(self) -> Domain: ...

        @property
        @abstractmethod
        def total(self) -> float: ...

        @property
        @abstractmethod
        def total_error(self) -> float | None: ...

    @abstractmethod
    def pack(self) -> Packed:
        """Arrays and JSON from which the plan's ``unpack_synthesis`` gives an equal object."""

    @abstractmethod
    def released(self, schema: Schema, rows: int, seed: int) -> Any:
        """The released table as a pyarrow Table in the columns of ``StreamPlan.released_schema``; equal for equal
        arguments and program versions. Another number of rows, where there are answers, gives another draw."""

    def blocks(self, rows: int, seed: int, size: int) -> Iterable[Callable[[], Codes]] | None:
        """Another draw of ``rows`` synthetic records, as makers of blocks of ``size`` of them, in order; None where a
        table is drawn as a whole only. Equal arguments give equal blocks; a maker may be called in any thread.
        ``Dealing`` blocks may also be made on other machines.

        The records as a whole have no more sampling error than those of a table that is drawn at once.
        """
        return None

    def rows(self, schema: Schema, most: int) -> int:
        """Rows of the released table: the rounded noisy number of records, cut by a public rule."""
        return min(max(0, round(self.total)), most)

    def accuracy(self) -> dict[str, Any] | None:
        """Facts about its errors for the manifest, JSON-able, which the block ``accuracy`` of the plan's words says.

        None: they follow from the plan and from ``measured``.
        """
        return None

    def model(self) -> list[dict[str, Any]] | None:
        """The mixture of models that its records are drawn from, for readers: a weight and potentials each,
        JSON-able. None where that is something else, or too large to be published with each step."""
        return None

    @property
    def answers(self) -> SyntheticTable | None:
        """The table that counts are answered from, and records drawn."""
        return None

    @property
    def grows(self) -> GrowingTable | None:
        """The table, where it only grows."""
        return None


@runtime_checkable
class Dealing(Protocol):
    """Blocks that other machines can make (``Synthesis.blocks``)."""

    def dealt(self) -> Iterable[Callable[[], Codes]]:
        """The same makers, iterated as often as wanted, from an object that can be pickled. Nothing that is left to
        compute depends on a machine's own floating-point functions."""
        ...


class SyntheticTable(Synthesis):
    """Synthetic records: counts of them are answered, and more of them drawn. Marginals are in records."""

    @abstractmethod
    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Many marginals at once, flat in C order."""

    @abstractmethod
    def sample(self, rows: int, seed: int) -> Codes:
        """``rows`` synthetic records as codes, shape (rows, columns); repeatable for one seed."""

    def marginal(self, clique: Clique) -> CellEstimate:
        """One marginal, with shape ``domain.shape(clique)``, and its error where public noise scales give it."""
        return CellEstimate(self.marginals([clique])[0].reshape(self.domain.shape(clique)), None)

    def given(self, excluded: Sequence[Impossible]) -> tuple[SyntheticTable, float] | None:
        """The table's law outside some cells, and the share of records that are there; None where none are.

        Errors:
            ConfigError: the records are not drawn from a graphical model. LimitError: too many cells.
        """
        raise ConfigError(
            "the records have no graphical model",
            where="where",
            allowed="a selection of rows",
        )

    @property
    def measured(self) -> Mapping[Clique, Measured]:
        """The marginals that were measured at every step so far; empty where there are none."""
        return {}

    def own_answer(self, question: Any, codes_of: Callable[[str], tuple[int, ...]]) -> PeopleEstimate | None:
        """The answer to a question of the family's own kind; None: questions are predicates on records.

        Args:
            codes_of: reads a condition on the columns: the codes of the records that satisfy it.

        Errors:
            ConfigError: a question that cannot be read, or that this release cannot answer.
        """
        return None

    @property
    def answers(self) -> SyntheticTable:
        """The table itself."""
        return self

    @property
    def density(self) -> Callable[[Codes], NDArray[np.float64]] | None:
        """The logarithm of the probability of each of some records."""
        return None

    @property
    def placed(self) -> PlacedRecords | None:
        """The released records, where the release consists of records and no model."""
        return None

    def released(self, schema: Schema, rows: int, seed: int) -> Any:
        """Records, drawn and decoded."""
        # Another seed inside the bins: equal generators would tie a record to its place in the bin.
        inner = int.from_bytes(hashlib.sha256(b"decode:%d" % seed).digest()[:8], "little") >> 1
        return schema.decode(self.sample(rows, seed), inner)
