"""An answer to a question: a number of records, and how wrong it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from dpstream.core.contracts import PeopleEstimate
from dpstream.core.errors import LimitError
from dpstream.core.privacy.law import WeightedSum, check_confidence
from dpstream.core.schema import Clique, Domain, Predicate, Schema
from dpstream.core.showing import notebook_page
from dpstream.io.objects import AnyPath
from dpstream.io.sinks.simulated_errors import error_steps, simulated_errors
from dpstream.stream.release.estimates import Missing, Published, error_words, sum_of_cells

#: How an error was found: from the law of the noise; as an upper bound on that; or by simulation. The words are those
#: of verdicts; an answer has no predicted error, which is one from before there are data.
ErrorKind = Literal["exact", "bound", "simulated"]

#: Largest joint domain that ``marginal`` and ``answer`` evaluate.
MAX_ANSWER_CELLS = 2_000_000

#: What follows where the error is not known.
NOT_MEASURED = "Part of this number is modelled; that error is not known."


@dataclass(frozen=True)
class Answer:
    """An estimated number of records.

    Attributes:
        value: the model's answer, from all measurements: mostly nearer to the truth than ``measured_value``.
        standard_error: of its noise, or an upper bound; else of ``value``, by simulation; None: unknown.
        note: what the standard error means, and as of which step; or why there is none.
        measured_value: what published noisy counts of the question's columns, or of the smallest marginal measured at
            every step, add up to: unbiased.
        measured_error: its standard error, exactly. people: of a panel: the same with shares and a bound.
        as_of: the step that ``measured_value`` and ``interval`` are about; None where nothing was measured.
        error_kind: the kind of ``standard_error`` and ``interval``; None where there are none.
    """

    value: float
    standard_error: float | None
    note: str
    measured_value: float | None = None
    measured_error: float | None = None
    people: PeopleEstimate | None = None
    as_of: int | None = None
    error_kind: ErrorKind | None = None
    #: Confidence -> half of the interval's width.
    _half_width: Callable[[float], float] | None = field(default=None, repr=False, compare=False)

    def _repr_html_(self) -> str:
        ends = self.interval()
        facts = {
            "records": f"{self.value:,.1f}",
            "95 % interval": None if ends is None else f"{ends[0]:,.1f} to {ends[1]:,.1f}",
            "as of step": self.as_of,
            "error": self.note,
        }
        return notebook_page("Answer", {name: value for name, value in facts.items() if value is not None})

    def interval(self, confidence: float = 0.95) -> tuple[float, float] | None:
        """The true number lies between these with the stated probability or more; None where nothing was measured, and
        nothing simulated.

        It is about the records as of step ``as_of``, around ``measured_value``, from the exact law of the noise (not a
        normal limit). Take one question and one step: of many intervals some will miss. It says nothing about
        ``value``, which may lie outside.

        Where ``error_kind`` is ``simulated``, it is around ``value`` and about the step of the table, and the
        probability is approximate: a simulation cannot see what the releases have lost.

        Errors:
            ConfigError: a confidence that is not above 0 and below 1 (up to 0.999999).
        """
        check_confidence(confidence)
        middle = self.value if self.error_kind == "simulated" else self.measured_value
        if self._half_width is None or middle is None:
            return None
        width = self._half_width(confidence)
        return middle - width, middle + width

    def as_dict(self, question: str, confidence: float) -> dict[str, Any]:
        """The answer to a question with its interval, JSON-able."""
        interval = self.interval(confidence)
        return {
            "question": question,
            "in_the_table": self.value,
            "measured": self.measured_value,
            "standard_error": self.standard_error,
            "error_kind": self.error_kind,
            "as_of": self.as_of,
            "confidence": confidence,
            "interval": None if interval is None else list(interval),
            "note": self.note,
        }


def check_cells(domain: Domain, clique: Clique, where: str) -> None:
    """LimitError where these columns have too many cells together."""
    if domain.cells(clique) > MAX_ANSWER_CELLS:
        raise LimitError(
            f"{domain.label(clique)} has {domain.cells(clique)} cells",
            where=where,
            allowed=f"{MAX_ANSWER_CELLS}",
        )


def impossible_answer(predicate: Predicate, schema: Schema) -> Answer | None:
    """The answer 0 to a question that no possible record satisfies, by public constraints alone; None for others, and
    where its columns have more cells than are looked through."""
    domain = schema.domain
    if not domain.impossible or domain.cells(predicate.columns) > MAX_ANSWER_CELLS:
        return None
    from dpstream.core.graphical import Model

    possible = Model.uniform(domain, 1.0).marginals([predicate.columns])[0] > 0.0
    if (predicate.mask().ravel() & possible).any():
        return None
    note = "public constraints exclude all such records"
    if schema.constraints is not None and schema.constraints.repair:
        note += "; repair changed some arrivals that satisfied it"
    return Answer(0.0, 0.0, note, 0.0, 0.0, _half_width=WeightedSum().half_width, error_kind="exact")


def measured_answer(
    value: float, published: Published, predicate: Predicate, as_of: int | None = None
) -> Answer:
    """An answer with what the published noisy counts say; where they do not, ``note`` says why."""
    found = sum_of_cells(published, predicate, as_of)
    if isinstance(found, Missing):
        return Answer(value, None, f"{found.reason} {NOT_MEASURED}")
    estimate, measured, law = found
    error = law.variance**0.5
    return Answer(
        value,
        error,
        error_words(estimate, law),
        measured,
        error,
        as_of=estimate.as_of,
        _half_width=law.half_width,
        error_kind="exact",
    )


def with_bias(answer: Answer, manifest: Mapping[str, Any]) -> Answer:
    """An answer without an error, with what its release says of a systematic one."""
    bias = manifest["accuracy"].get("bias")
    if bias is None or answer.error_kind is not None:
        return answer
    return replace(answer, note=f"{answer.note} {bias}")


def with_simulated(
    answer: Answer, folder: AnyPath, step: int, predicate: Predicate, schema: Schema
) -> Answer:
    """An answer without an error, with the one by simulation where one was published for its step.

    Args:
        folder: of the releases. step: whose table the answer is from.

    Errors:
        StoreDamagedError: errors by simulation that cannot be read.
    """
    errors = simulated_errors(folder, step)
    if errors is None:
        others = [one for one in error_steps(folder) if one <= step]
        if not others:
            return answer
        return replace(answer, note=f"{answer.note} The last errors by simulation are of step {others[-1]}.")
    error = errors.of_question([schema.names[i] for i in predicate.columns], np.asarray(predicate.mask()))
    if error is None:
        return answer
    return replace(
        answer,
        standard_error=error.standard_error,
        note=error.words,
        error_kind="simulated",
        _half_width=error.half_width,
    )
