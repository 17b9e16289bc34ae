"""A panel's releases against the private panel: the usual questions, period by period. For the owner's eyes only.

The released side is the published table alone: synthetic people are never rewritten, so the last table has all periods.

Trusted base: owner (compares with the private panel).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema import Schema
from dpstream.core.tables.contribution import ID_BYTES, read_owners
from dpstream.families.panel import CumulativePlan, Pattern, WindowPlan
from dpstream.families.panel.people import PeoplePlan, seat
from dpstream.io.sinks import read_table
from dpstream.io.sinks.period_tables import called, periods_of, wide_name
from dpstream.project import Config
from dpstream.project.pending import named_step
from dpstream.tools.evaluate.contract import (
    EvaluationRequest,
    EvaluationResult,
    FamilyEvaluation,
    SummaryTable,
    measures_table,
    number,
)
from dpstream.tools.evaluate.measures import Measure, verdict_words
from dpstream.tools.evaluate.private_folder import LABEL
from dpstream.tools.evaluate.run_folder import releases_of
from dpstream.tools.evaluate.true_table import encoded_steps, source_ended

#: Thresholds that are compared at most.
_MOST = 12
Symbols = NDArray[np.int64]


@dataclass(frozen=True)
class PanelError:
    """One question at one period, in people; private.

    Attributes:
        released: from the published table, padding taken out.
        true: of the private panel.
        standard_error: as the release states it.
        people: in the private panel (of a panel of places: places).
    """

    step: int
    question: str
    released: float
    true: float
    standard_error: float
    people: int

    @property
    def error(self) -> float:
        """How far the release is off."""
        return self.released - self.true


def evaluate_panel(config: Config, releases: Path) -> list[PanelError]:
    """Every usual question at every released period. Reads the source and the releases, changes neither.

    Errors:
        ConfigError: no releases, or those of another plan. StepError: a source that ends before the releases do.
        DataError: a source that cannot be read, or people who do not fit.

    Guarantee: none; the result is private. Cost: one pass over the source; one byte a person and period.
    """
    plan = config.plan()
    assert isinstance(plan, PeoplePlan)
    last = releases_of(config, releases).states[-1][0]
    synthetic = released_people(read_table(releases), plan, plan.released_schema(config.schema()))
    true = true_people(config, plan, synthetic.shape[1] or last)
    errors = []
    for period in range(plan.first_release, synthetic.shape[1] + 1):
        both = synthetic[:, :period], true[:, :period]
        for question, error, padding, (released, truth) in _answers(plan, period, both):
            errors.append(PanelError(period, question, released - padding, truth, error, len(true)))
    return errors


def _answers(
    plan: PeoplePlan, period: int, both: tuple[Symbols, Symbols]
) -> Iterator[tuple[str, float, float, list[float]]]:
    """How often so far; or in the window, and in a row; of more than two symbols: each of them in the newest period.

    In words, the standard error, the padding among the people who are counted, and how many are in each of two tables.
    """
    if isinstance(plan, CumulativePlan):
        for b in range(1, min(period, plan.largest, _MOST) + 1):
            counted = [float((people.sum(axis=1) >= b).sum()) for people in both]
            yield f"at least {b} so far", math.sqrt(plan.variance(b, period)), 0.0, counted
        return
    assert isinstance(plan, WindowPlan)
    newest = [(f"report {code} in the newest period", Pattern((code,))) for code in range(plan.codes)]
    usual = [(query.describe(), query) for query in plan.usual_questions()]
    for words, query in usual or newest:
        weights = query.weights(plan.codes)[np.arange(plan.patterns) % plan.codes**query.width]
        error = math.sqrt(plan.error_variance(weights, period))
        counted = [float(query.of(people[:, -query.width :]).sum()) for people in both]
        yield words, error, float(plan.padding * weights.sum()), counted


def released_people(table: Any, plan: PeoplePlan, schema: Schema) -> Symbols:
    """The released people as symbols, shape (people, periods)."""
    periods = periods_of(table.column_names, schema.names[0], plan.period_names)
    columns = []
    for period in range(1, periods + 1):
        names = [wide_name(name, called(period, plan.period_names)) for name in schema.names]
        codes = schema.encode(table.select(names).rename_columns(schema.names), where=f"period {period}")
        columns.append(np.ravel_multi_index(tuple(codes.T), schema.domain.sizes))
    return np.array(columns, np.int64).reshape(periods, -1).T


def true_people(config: Config, plan: PeoplePlan, last: int) -> Symbols:
    """What is followed of the private people as the stream was fed them, shape (people or places, periods)."""
    marks, periods = None, list[Symbols]()
    for entry, _, codes, _ in encoded_steps(config, last):
        assert entry.users is not None  # a panel's source has a user column
        place = f"step {entry.batch_id!r}"
        with named_step(entry.step, entry.batch_id):
            # Ids are compared within this call only: a fixed key does.
            owners = read_owners(entry.users, (len(codes), 0), key=bytes(32), where=place)
            given = np.frombuffer(b"".join(owners.ids), np.uint8).reshape(-1, ID_BYTES)
            marks, seats = seat(marks, given, places=plan.places, absent=plan.absent is not None)
        reports = np.full(plan.places or len(marks), plan.absent or 0, np.int64)
        reports[seats[owners.inserts]] = np.ravel_multi_index(tuple(codes.T), plan.domain.sizes)
        periods.append(reports)
    if len(periods) < last:
        raise source_ended(len(periods), last)
    return np.asarray(plan.followed(np.stack(periods, axis=1)), np.int64)


def _by_question(errors: Sequence[PanelError]) -> dict[str, list[PanelError]]:
    questions = dict.fromkeys(error.question for error in errors)
    return {question: [error for error in errors if error.question == question] for question in questions}


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values))


def panel_summary(errors: Sequence[PanelError], stream: str) -> dict[str, Any]:
    """For each question the root mean square error over the periods, beside the stated one."""
    questions = [
        {
            "question": question,
            "periods": len(asked),
            "error": _root_mean_square([each.error for each in asked]),
            "stated": _root_mean_square([each.standard_error for each in asked]),
            "largest_in_standard_errors": max(
                (abs(each.error) / each.standard_error for each in asked if each.standard_error > 0),
                default=0.0,
            ),
        }
        for question, asked in _by_question(errors).items()
    ]
    return {"label": LABEL, "format": 1, "stream": stream, "unit": "people", "questions": questions}


def panel_measures(errors: Sequence[PanelError]) -> tuple[Measure, ...]:
    """Each usual question: the error over all periods as a share of the true number of people.

    The floor is the same of two samples of as many people: numbers of a binomial law each.
    """
    measures = []
    for place, (question, asked) in enumerate(_by_question(errors).items(), 1):
        true = sum(each.true for each in asked) / len(asked)
        error = _root_mean_square([each.error for each in asked])
        chance = math.sqrt(
            sum(2.0 * each.true * (1.0 - each.true / max(1, each.people)) for each in asked) / len(asked)
        )
        share, floor = (value / true if true > 0 else math.nan for value in (error, chance))
        measures.append(
            Measure(
                f"question {place}",
                f"people: {question}",
                "of the true number",
                share,
                floor,
                math.nan,
                "Root mean square error as a share of the mean true number.",
                f"counting people ({question})",
            )
        )
    return tuple(measures)


def _find(config: Config, asked: EvaluationRequest) -> EvaluationResult:
    errors = evaluate_panel(config, asked.releases)
    facts, measures = panel_summary(errors, config.name), panel_measures(errors)
    rows = [
        [each["question"], str(each["periods"]), number(each["error"]), number(each["stated"])]
        for each in facts["questions"]
    ]
    headings = ["people", "periods", "error", "stated standard error"]
    table = SummaryTable("The usual questions", headings, rows, right=[1, 2, 3])
    columns = ("step", "question", "released", "true", "error", "standard_error")
    answers = [{name: getattr(each, name) for name in columns} for each in errors]
    verdict = (f"Verdict: {verdict_words(measures)}", measures_table(measures)) if measures else ()
    return EvaluationResult(config.name, facts, (*verdict, table), answers, measures)


PANEL_EVALUATION: Final = FamilyEvaluation(options=(), find=_find)
