"""Questions to linear queries: a condition in words, or a value in [0, 1] for every cell.

A linear query is the mean of ``f`` over the records, ``f`` in [0, 1]; replacing one of t records moves it by at most
1/t.

And their answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.schema.predicate import parse_predicate
from dpstream.families.growing.blackbox import LinearQuery

if TYPE_CHECKING:
    from dpstream.core.schema import Schema


#: Words, values for all cells, or a ``LinearQuery``.
Question = str | LinearQuery | Sequence[float] | NDArray[Any]


def linear_query(question: Question, schema: Schema) -> LinearQuery:
    """Read a question about ``schema``'s columns.

    Args:
        question: a condition such as ``age >= 65 and smoker = true`` (the grammar of ``Release.answer``); or an array
            with a value in [0, 1] for every cell of all columns (C order).

    Errors:
        ConfigError, SchemaError: an unknown column, label or word, or a value outside [0, 1].
    """
    if isinstance(question, LinearQuery):
        return question
    if isinstance(question, str):
        predicate = parse_predicate(question, schema)
        return LinearQuery(predicate.columns, predicate.mask().reshape(-1).astype(np.float64))
    try:
        query = LinearQuery(tuple(range(len(schema.domain))), np.asarray(question).reshape(-1))
    except (TypeError, ValueError):
        raise ConfigError("the question cannot be read", where="query", allowed="words, or numbers") from None
    query.check(schema.domain)
    return query


def describe_question(question: Question, schema: Schema) -> str:
    """The question as a text that tells it from every other one: what a store remembers of it.

    Words stay as they are; values are named by their hash.
    """
    if isinstance(question, str):
        return question.strip()
    query = linear_query(question, schema)
    digest = hashlib.sha256(np.ascontiguousarray(query.weights, "<f8").tobytes()).hexdigest()
    return f"values of {schema.domain.label(query.clique)}: sha256:{digest}"


Kind = Literal["easy", "hard", "refused", "unchecked", "exact"]

_FROM_COMPLEMENT = "one minus the answer to the complement"


@dataclass(frozen=True)
class QueryAnswer:
    """One answer. Public, like everything that led to it except the data.

    Attributes:
        value: share of the records; a hard one may lie outside [0, 1].
        kind: ``easy``: the public histogram's value, which a private test let pass. ``hard``: a noisy number, from
            which the histogram then learned. ``refused``: the test found the histogram wrong, but the limit of hard
            questions is reached; the value is the histogram's. ``unchecked``: the histogram's value, and the data was
            not asked. ``exact``: the question has one value in all cells, so that nothing has to be asked.
        half_width: with 95 % the truth is within this of the value, by public noise alone; None where nothing was
            asked. Of an easy answer: or the question would have been hard, for the first question of a run of tests. A
            run whose threshold has much noise lives longer, so that later easy answers miss more often.
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
        """The answer as JSON; amounts are exact text."""
        return {**asdict(self), "spent": str(self.spent), "left": str(self.left)}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> QueryAnswer:
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

    def of_complement(self) -> QueryAnswer:
        """The answer to the complement, ``1 - f``: it follows from this one, as answers are shares."""
        reason = f"{_FROM_COMPLEMENT}; {self.reason}" if self.reason else _FROM_COMPLEMENT
        return replace(self, value=1.0 - self.value, reason=reason)

    def describe(self) -> str:
        """The answer for people, in a few lines."""
        sure = "95 %, less after many easy answers" if self.kind == "easy" else "95 %, by the noise alone"
        within = f" +- {self.half_width:.4g} ({sure})" if self.half_width else ""
        lines = [f"{self.value:.6g}{within}: {self.kind}" + (f" ({self.reason})" if self.reason else "")]
        lines.append(
            f"spent {float(self.spent):.4g}, left {float(self.left):.4g}; hard questions {self.hard_asked}, "
            f"{self.hard_left} left; {self.t} records"
        )
        return "\n".join([*lines, self.promise])


@dataclass(frozen=True)
class Standing:
    """How many questions were asked so far, and what they cost; public.

    Attributes:
        t: number of records. asked, hard: questions, and hard ones. spent, left: of the budget. hard_left: how many
            more hard ones there may be now.
    """

    t: int
    asked: int
    hard: int
    spent: Fraction
    left: Fraction
    hard_left: int
