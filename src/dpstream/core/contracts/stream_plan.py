"""The contract between mechanisms (families) and the streams that run them durably.

A *recipe* (for example ``DPStabs``) holds options only. ``recipe.calibrate(...)`` fixes every noise
scale and gives a frozen *plan*. A plan can be started, stepped and packed by anybody: the durable
stream (``dpstream.stream``) does it inside one transaction per step, a benchmark does it in a loop.

A plan may also answer questions between the steps of its stream (``AskedPlan``;
``dpstream.stream.asking_stream``).

Private data reaches a plan only as the argument ``batch`` of ``step``, which grants what the plan ``reads``.

Trusted base: kernel (what a mechanism may read).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts.expectations import ExpectedErrors, ExpectedTable
from dpstream.core.contracts.releases import Packed, Synthesis
from dpstream.core.errors import ConfigError, counted
from dpstream.core.privacy.budget import Budget, amount_words
from dpstream.core.privacy.noise import Noise, noise_for
from dpstream.core.privacy.randomness import Exact
from dpstream.core.privacy.unit import Unit, User
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.showing import notebook_page

if TYPE_CHECKING:
    from dpstream.core.privacy.randomness import Randomness
    from dpstream.core.schema import Schema

#: ``counts``: nothing but marginal counts. ``records``: the inserted records, too. ``reports``: whose they are, too.
#: ``present``: instead of what a step brings, the keyed records that are there at its end.
BatchReads = Literal["counts", "records", "reports", "present"]
#: Which records of a batch are counted: those that come less those that go, or one of the two.
Events = Literal["net", "inserts", "deletes"]


class PresentRecords(Protocol):
    """The keyed records that are present at the end of a step, each with its first step: the step that read its
    insert. Private."""

    def count(self, cliques: Sequence[Clique], after: int) -> list[Exact]:
        """Flat (C order) marginal counts of the records whose first step is later than ``after``."""
        ...

    @property
    def departed(self) -> NDArray[np.int32]:
        """First steps of the records that were present at the end of the step before and are not now; any order."""
        ...


class PrivateBatch(Protocol):
    """One step's private records, as a mechanism sees them: what was not granted is None, as it is here."""

    __slots__ = ()

    @abstractmethod
    def count(self, cliques: Sequence[Clique], part: Events = "net") -> list[Exact]:
        """Flat (C order) marginal counts, one array of ``domain.cells(clique)`` per clique.

        ``net`` is inserts minus deletes and may be negative.
        """

    @property
    @abstractmethod
    def declares_deletes(self) -> bool:
        """Whether the batch was given deletes at all, an empty table included: a public fact of the source."""

    @property
    def records(self) -> NDArray[np.int32] | None:
        """Codes of the inserted records, shape (records, columns)."""
        return None

    @property
    def marks(self) -> NDArray[np.uint8] | None:
        """Keyed marks of the people whose ``records`` they are, shape (records, 16): ascending and different."""
        return None

    @property
    def present(self) -> PresentRecords | None:
        """What is there at the end of the step, where records have keys."""
        return None


@runtime_checkable
class CancellingBatch(Protocol):
    """A ``PrivateBatch`` that can leave out what comes and goes within it."""

    def without_cancelled(self) -> PrivateBatch:
        """Inserts without equal deletes, and deletes without equal inserts, as bags of whole rows."""
        ...


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

    @property
    def asks(self) -> AskedPlan | None:
        """The plan, where its stream answers questions between its steps."""
        return None

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


class QuestionAnswer(Protocol):
    """One answer; public.

    Attributes:
        kind: what the ledger calls the charge for such an answer, in a word.
        changes_memory: whether later answers depend on it.
    """

    @property
    def kind(self) -> str: ...

    @property
    def changes_memory(self) -> bool: ...

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        ...

    def of_complement(self) -> QuestionAnswer:
        """The answer to the complement of the question, which follows from this one."""
        ...

    def describe(self) -> str:
        """For people, in a few lines."""
        ...


class QuestionsSoFar(Protocol):
    """What was asked so far; public.

    Attributes:
        t: number of records. asked: number of questions. spent: of the budget. hard_left: how many more questions
            there may be now that cost a noisy number.
    """

    @property
    def t(self) -> int: ...

    @property
    def asked(self) -> int: ...

    @property
    def spent(self) -> Fraction: ...

    @property
    def hard_left(self) -> int: ...


class AskedPlan(Protocol):
    """A plan that answers questions. ``state`` is the plan's own; questions change its books and its memory."""

    def read_question(self, question: Any, schema: Schema) -> tuple[Any, str]:
        """Read a question; gives it as ``ask`` takes it, and in words.

        Errors:
            ConfigError, SchemaError: it cannot be read.
        """
        ...

    def question_bytes(self, query: Any) -> tuple[bytes, bytes]:
        """Bytes that are the same for a question in whatever words, and for no other question; and its complement's."""
        ...

    def ask(self, state: Any, query: Any, randomness: Randomness) -> QuestionAnswer:
        """Answer a question; advances ``state``. See the plan for guarantee and errors."""
        ...

    def with_books(self, answer: Any, state: Any) -> QuestionAnswer:
        """The answer that follows from an earlier one, with what is spent and asked by now."""
        ...

    def read_answer(self, stored: dict[str, Any]) -> QuestionAnswer:
        """The inverse of ``QuestionAnswer.as_dict``."""
        ...

    def standing(self, state: Any) -> QuestionsSoFar:
        """What was asked so far."""
        ...

    def most(self, state: Any) -> Fraction:
        """The most that the next question can spend; 0 where the budget pays for none that is not known already.
        Public."""
        ...

    def pack_books(self, state: Any) -> dict[str, Any]:
        """What every question changes, JSON-able. Secret."""
        ...

    def restore_books(self, state: Any, packed: dict[str, Any]) -> None:
        """The inverse of ``pack_books``, in place."""
        ...

    def pack_memory(self, state: Any) -> Packed:
        """What the plan has learned from answers."""
        ...

    def restore_memory(self, state: Any, packed: Packed) -> None:
        """The inverse of ``pack_memory``, in place."""
        ...
