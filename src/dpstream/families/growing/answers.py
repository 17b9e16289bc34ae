"""Answers to questions, and the in-memory object that is asked."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from dpstream.core.errors import StepError, StoreDamagedError
from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.core.privacy.randomness import Randomness
from dpstream.families.growing.linear_queries import Question, linear_query

if TYPE_CHECKING:
    from dpstream.core.contracts import PrivateBatch
    from dpstream.core.schema import Schema
    from dpstream.families.growing.pmwg_plan import PMWGPlan, PMWGState

__all__ = ["Answer", "Asker", "Kind", "Standing"]

Kind = Literal["easy", "hard", "refused", "unchecked"]

#: Draws of one law that are made at a time in memory: one at a time, the calls would cost more than the noise.
_DRAWS = 256
_FROM_COMPLEMENT = "one minus the answer to the complement"


@dataclass(frozen=True)
class Answer:
    """One answer. Public, like everything that led to it except the data.

    Attributes:
        value: share of the records; a hard one may lie outside [0, 1].
        kind: ``easy``: the public histogram's value, which a private test let pass. ``hard``: a noisy number, from
            which the histogram then learned. ``refused``: the test found the histogram wrong, but the limit of hard
            questions is reached; the value is the histogram's. ``unchecked``: the histogram's value, and the data was
            not asked.
        half_width: with 95 % the truth is within this of the value, by public noise alone (of an easy answer: or the
            question would have been hard); None where nothing was asked.
        promised: the theorem's accuracy for all answers together; None where it promises nothing.
        promise: that in words, with the alpha from which on it would promise something.
        t: number of records.
        spent, left: of the budget, exact.
        hard_asked, hard_left: hard questions so far, and how many more there may be now.
        reason: why the data was not asked, or the value is not corrected, or that the answer follows from another one;
            empty otherwise.
    """

    value: float
    kind: Kind
    half_width: float | None
    promised: float | None
    promise: str
    t: int
    spent: Fraction
    left: Fraction
    hard_asked: int
    hard_left: int
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON-able; amounts as exact text."""
        return {**asdict(self), "spent": str(self.spent), "left": str(self.left)}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Answer:
        """The inverse of ``as_dict``.

        Errors:
            StoreDamagedError: it is none.
        """
        try:
            return cls(**{**stored, "spent": Fraction(stored["spent"]), "left": Fraction(stored["left"])})
        except (KeyError, TypeError, ValueError):
            raise StoreDamagedError("a stored answer cannot be read", where="pmwg") from None

    @property
    def changes_memory(self) -> bool:
        """Whether the histogram learned from it."""
        return self.kind == "hard"

    def of_complement(self) -> Answer:
        """The answer to the complement, ``1 - f``: it follows from this one, as answers are shares."""
        return replace(self, value=1.0 - self.value, reason=_FROM_COMPLEMENT)

    def describe(self) -> str:
        """For people, in a few lines."""
        within = "" if self.half_width is None else f" +- {self.half_width:.4g} (95 %, by the noise alone)"
        lines = [f"{self.value:.6g}{within}: {self.kind}" + (f" ({self.reason})" if self.reason else "")]
        lines.append(
            f"spent {float(self.spent):.4g}, left {float(self.left):.4g}; hard questions {self.hard_asked}, "
            f"{self.hard_left} left; {self.t} records"
        )
        return "\n".join([*lines, self.promise])


@dataclass(frozen=True)
class Standing:
    """What was asked so far; public.

    Attributes:
        t: number of records. asked, hard: questions, and hard ones. spent, left: of the budget.
    """

    t: int
    asked: int
    hard: int
    spent: Fraction
    left: Fraction


class Asker:
    """A growing database in memory that answers linear queries.

    Guarantee: the plan's, for all answers together, while the object lives. Nothing is durable: after a crash it must
    not be made anew on the same data, nor be used on after a fork by both processes (``open_stream`` keeps everything
    in a store).

    Cost of a question: linear in the number of cells; a record that arrives costs nothing until the next question.
    """

    def __init__(self, plan: PMWGPlan, schema: Schema, randomness: Randomness | None = None) -> None:
        self._plan, self._schema = plan, schema
        self._state: PMWGState = plan.start()
        self._noise = _Buffered(randomness or Randomness.system())
        #: What stopped a question after it had drawn noise.
        self._stopped: str | None = None
        #: Answers since the last arrival, by what was asked, not by its words.
        self._answers: dict[bytes, Answer] = {}

    def arrive(self, batch: PrivateBatch) -> None:
        """Records that arrive together; free.

        Errors:
            ConfigError: the batch has deletes.
        """
        self._plan.arrive(self._state, batch)
        self._answers.clear()

    def ask(self, question: Question) -> Answer:
        """Answer one question; see ``PMWGPlan.ask``.

        Between two arrivals a question has one answer, whatever its words: asked again it gives the same answer, and
        its complement gives one minus it. Nothing is drawn or spent then.

        Errors: those of ``PMWGPlan.ask``.
            StepError: an earlier question was stopped after noise was drawn for it. The state is then in between: a
            test may have said yes in a run that goes on, and only one yes a run is paid for.
        """
        if self._stopped is not None:
            raise StepError(
                f"a question was stopped by {self._stopped} after noise was drawn for it",
                where="ask",
                allowed="no further question to this object; open_stream keeps a state that can go on",
            )
        query = linear_query(question, self._schema)
        own, complement = self._plan.universe.identity(query)
        if complement in self._answers and own not in self._answers:
            self._answers[own] = self._answers[complement].of_complement()
        if own in self._answers:
            return self._answers[own]
        handed_out = self._noise.handed_out
        try:
            self._answers[own] = self._plan.ask(self._state, query, self._noise.draw)
        except BaseException as error:
            if self._noise.handed_out > handed_out:
                self._stopped = type(error).__name__
            raise
        return self._answers[own]

    @property
    def standing(self) -> Standing:
        """What was asked so far."""
        return self._plan.standing(self._state)


class _Buffered:
    """Samples drawn in blocks and handed out once each."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._drawn: dict[int, list[int]] = {}
        self.handed_out = 0

    def draw(self, noise: DiscreteLaplace) -> int:
        """One sample."""
        self.handed_out += 1
        # By identity: the plan keeps its laws, and hashing its fraction takes longer than all the rest.
        ready = self._drawn.get(id(noise))
        if not ready:
            ready = self._randomness.draw(noise, _DRAWS).tolist()
            self._drawn[id(noise)] = ready
        return int(ready.pop())
