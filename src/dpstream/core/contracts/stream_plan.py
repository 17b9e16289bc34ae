"""The contract between mechanisms (families) and the streams that run them durably.

A *recipe* (for example ``DPStabs``) holds options only. ``recipe.calibrate(...)`` fixes every noise
scale and gives a frozen *plan*. A plan can be started, stepped and packed by anybody: the durable
stream (``dpstream.stream``) does it inside one transaction per step, a benchmark does it in a loop.

A plan may also answer questions between the steps of its stream (``asked_plan``; ``dpstream.stream.asking_stream``).

Private data reaches a plan only as the argument ``batch`` of ``step``, which grants what the plan ``reads``
(``private_batch``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts.expectations import ExpectedErrors, ExpectedTable
from dpstream.core.contracts.private_batch import BatchReads, PrivateBatch
from dpstream.core.contracts.releases import Packed, Synthesis
from dpstream.core.errors import ConfigError, counted
from dpstream.core.privacy import Budget, Noise, Unit, User, amount_words, noise_for
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.showing import notebook_page

if TYPE_CHECKING:
    from dpstream.core.contracts.asked_plan import AskedPlan
    from dpstream.core.privacy.randomness import Randomness
    from dpstream.core.schema import Found, Schema


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
    #: What a batch grants to ``step``.
    reads: ClassVar[BatchReads] = "counts"
    #: Whether what it releases satisfies a schema's public constraints.
    follows_constraints: ClassVar[bool] = False

    def __str__(self) -> str:
        lines = [f"Plan of {self.name}", self._promise()]
        lines += [f"  {part.name}: {part.times} x {part.budget}; {part.detail}" for part in self.all_parts()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [(part.name, part.times, part.budget, part.detail) for part in self.all_parts()]
        facts = {"guarantee": self._promise(), "columns": ", ".join(self.domain.names)}
        return notebook_page(f"Plan of {self.name}", facts, ("part", "times", "each costs", "how"), rows)

    def _promise(self) -> str:
        steps = "any number of steps" if self.horizon is None else f"at most {self.horizon} steps"
        protected, promised = self.unit.describe(), amount_words(self.budget, self.delta)
        return f"All releases together, of {steps}, satisfy {promised}; what is protected is {protected}."

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
        """What each part costs. The totals add up to ``budget`` (each unit is in one step), less what ``all_parts`` has
        beside them."""

    def all_parts(self) -> tuple[Part, ...]:
        """The parts, and the number of users whom the bound cuts, which the stream counts."""
        noise = self.cut_noise
        if noise is None or not isinstance(self.unit, User):
            return self.parts()
        detail = (
            f"users with more than {counted(self.unit.max_events, 'event')}, once each; {noise.describe()}"
        )
        return (*self.parts(), Part("cut users", 1, self.budget.scaled(self.unit.cut_share), detail))

    @property
    def cut_noise(self) -> Noise | None:
        """The noise of a period's number of users whom the bound cuts; None: it is not counted."""
        share = self.unit.cut_share if isinstance(self.unit, User) else 0
        return noise_for(self.budget.scaled(share), 1, 1) if share else None

    def ends_cut_period(self, step: int, begun: int) -> bool:
        """Whether that number is published at a step, by public numbers of steps: by default where a tenth of all steps
        came since.

        Args:
            begun: the step at which it was published last; 0: never.
        """
        return step > begun * 10 // 9 or step == self.horizon

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """All options, JSON-able and exact: they enter the plan's hash and the manifest."""

    def ending(self, last_step: int | None) -> StreamPlan:
        """The same plan for a stream whose last step is planned to be this one: where steps are measured together, it
        ends a group of them. The owner may move it, so that neither the plan's hash nor its budget depend on it.

        Args:
            last_step: public; None: none is planned.
        """
        return self

    def released_schema(self, schema: Schema) -> Schema:
        """The columns of released tables; by default those of the private records."""
        return schema

    def reading_schema(self, schema: Schema) -> Schema:
        """The columns whose codes stand for private records in a batch; by default ``schema`` itself."""
        return schema

    @property
    def delta(self) -> Fraction:
        """The probability with which the budget's guarantee may fail: 0, or of values that are discovered."""
        return Fraction(0)

    def delta_of(self, units: int) -> Fraction:
        """The same for somebody with the data of so many units; 1 where no bound is known."""
        return Fraction(bool(self.delta))

    @property
    def asks(self) -> AskedPlan | None:
        """The plan, where its stream answers questions between its steps."""
        return None

    @property
    def open_columns(self) -> tuple[str, ...]:
        """The columns whose values the plan discovers: domains that grow."""
        return ()

    def discovers(self, state: Any) -> bool:
        """Whether a discovery epoch ended with the state's step: what it published begins with the next one. Public."""
        return False

    def found(self, state: Any) -> Mapping[str, Sequence[Found]]:
        """What was discovered so far, by column, in the order of codes. Public."""
        return {}

    def grown(self, found: Mapping[str, Sequence[Found]]) -> StreamPlan:
        """The same plan over columns with these values, for the steps after they were found. ``unpack_state`` takes
        states of either."""
        return self

    def asked_cliques(self) -> Sequence[Clique]:
        """The cliques that ``step`` counts, where they are known before. An engine that keeps its records elsewhere
        counts them while it reads the records; every other clique costs it another pass."""
        return ()

    def expected_errors(
        self, steps: Sequence[int], expected: ExpectedTable | None = None
    ) -> tuple[ExpectedErrors, ...] | None:
        """Standard errors at some steps (1, 2, ...), before any data is read; None where nothing can be said.

        Of measured sums, from noise alone: a released table may be wrong by what its model adds to them.

        Args:
            expected: a table of a guessed size; None: what can be said without one.

        Errors:
            HorizonError: a step beyond the horizon. ConfigError: no number of a step.
        """
        return None

    def facts(self) -> dict[str, Any]:
        """What is known before any data are read, JSON-able and without sentences: all of it is public.

        A template says it in words: ``words.j2`` beside the module of the plan, or else ``stream/words.j2``, which has
        words for these facts, of which a mechanism gives what it has:

        ``noise``: ``one_measurement``, the deviation of a cell, None where it is unknown; ``running_sum``, that
        of a marginal's running sum, by the number of measurements. ``size``: ``marginals``, ``cells`` and
        ``largest_marginal``; about what a step needs for them, ``step_bytes`` and ``step_seconds`` of CPU.
        ``headline``, ``counter_choice``: see ``mechanisms.description``. ``turnover``: whether what comes and goes
        within a step is ``cancelled``. ``noisy_counts``: how many numbers are published, and ``at`` what.
        ``compares``: what ``--compare-epsilon`` shows in place of the deviation.
        """
        return {}

    def facts_until(self, records: int) -> dict[str, Any] | None:
        """``facts`` for a stream that grows to ``records`` records; None where no schedule depends on that number."""
        return None

    def step_facts(self, step: int, measured_up_to: int) -> dict[str, Any]:
        """What the words about the counts of a release need besides its own facts, by public numbers of steps."""
        return {}

    def periods_of(self, step: int) -> list[dict[str, Any]]:
        """The public periods that hold a step, one of each length that readers may ask for: its ``length``, its
        ``first`` and its ``last`` step; none where nothing is measured by periods."""
        return []

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
            allowed="an empty start, or a mechanism with base in its limits",
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
