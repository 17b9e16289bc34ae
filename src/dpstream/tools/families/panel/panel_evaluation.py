"""A panel's releases against the private panel: the usual questions, period by period. For the owner's eyes only.

The released side is the published table alone: synthetic people are never rewritten, so the last table has all periods.

Trusted base: owner (compares with the private panel).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import StepError
from dpstream.core.schema import Schema
from dpstream.core.tables.contribution import ID_BYTES, read_owners
from dpstream.families.panel import (
    AtLeast,
    Consecutive,
    CumulativePlan,
    WindowPlan,
)
from dpstream.families.panel.people import PeoplePlan, seat
from dpstream.families.panel.queries import digits
from dpstream.io.sinks import read_table
from dpstream.io.sinks.period_tables import called, periods_of, wide_name
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
from dpstream.tools.evaluate.true_table import encoded_steps

if TYPE_CHECKING:
    from dpstream.project import Config

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
    if synthetic.shape[1] == 0:
        return []
    if isinstance(plan, CumulativePlan):
        return list(_cumulative(plan, synthetic, np.isin(true, plan.counted).astype(np.int64)))
    assert isinstance(plan, WindowPlan)
    return list(_window(plan, synthetic, true))


def panel_summary(found: list[PanelError], stream: str) -> dict[str, Any]:
    """For each question the root mean square error over the periods, beside the stated one."""
    questions = dict.fromkeys(one.question for one in found)
    lines = []
    for words in questions:
        own = [one for one in found if one.question == words]
        lines.append(
            {
                "question": words,
                "periods": len(own),
                "error": math.sqrt(sum(one.error**2 for one in own) / len(own)),
                "stated": math.sqrt(sum(one.standard_error**2 for one in own) / len(own)),
                "largest_in_standard_errors": max(
                    (abs(one.error) / one.standard_error for one in own if one.standard_error > 0),
                    default=0.0,
                ),
            }
        )
    return {"label": LABEL, "format": 1, "stream": stream, "unit": "people", "questions": lines}


def panel_measures(found: list[PanelError]) -> tuple[Measure, ...]:
    """Each usual question: the error over all periods as a share of the true number of people.

    The floor is the same of two samples of as many people: numbers of a binomial law each.
    """
    measures = []
    for place, words in enumerate(dict.fromkeys(one.question for one in found), 1):
        own = [one for one in found if one.question == words]
        true = sum(one.true for one in own) / len(own)
        error = math.sqrt(sum(one.error**2 for one in own) / len(own))
        chance = math.sqrt(
            sum(2.0 * one.true * (1.0 - one.true / max(1, one.people)) for one in own) / len(own)
        )
        share, floor = (value / true if true > 0 else math.nan for value in (error, chance))
        measures.append(
            Measure(
                f"question {place}",
                f"people: {words}",
                "of the true number",
                share,
                floor,
                math.nan,
                "The root mean square error over the periods, as a share of the mean true number of people.",
                f"counting people ({words})",
            )
        )
    return tuple(measures)


def _window(plan: WindowPlan, synthetic: Symbols, true: Symbols) -> Iterator[PanelError]:
    powers = plan.codes ** np.arange(plan.window - 1, -1, -1)
    for period in range(plan.window, synthetic.shape[1] + 1):
        span = slice(period - plan.window, period)
        counts = [
            np.bincount(table[:, span] @ powers, minlength=plan.patterns) for table in (synthetic, true)
        ]
        for words, weights in _questions(plan):
            released = float(weights @ counts[0] - plan.padding * weights.sum())
            spread = math.sqrt(plan.error_variance(weights, period))
            yield PanelError(period, words, released, float(weights @ counts[1]), spread, len(true))


def _questions(plan: WindowPlan) -> list[tuple[str, NDArray[np.float64]]]:
    """Of yes and no: how often, and in a row; of more symbols: each of them in the newest period."""
    if plan.codes == 2:
        width = plan.window
        asked = [AtLeast(times, width) for times in range(1, width + 1)]
        rows = [Consecutive(times, width) for times in range(2, width)]
        return [(query.describe(), query.weights(2)) for query in (*asked, *rows)]
    newest = digits(plan.window, plan.codes)[:, -1]
    return [
        (f"report {symbol} in the newest period", (newest == symbol).astype(np.float64))
        for symbol in range(plan.codes)
    ]


def _cumulative(plan: CumulativePlan, synthetic: Symbols, true: Symbols) -> Iterator[PanelError]:
    for period in range(1, synthetic.shape[1] + 1):
        for b in range(1, min(period, plan.largest, _MOST) + 1):
            released, truth = (float((t[:, :period].sum(axis=1) >= b).sum()) for t in (synthetic, true))
            yield PanelError(
                period,
                f"at least {b} so far",
                released,
                truth,
                math.sqrt(plan.variance(b, period)),
                len(true),
            )


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
    """The private people as the stream was fed them, shape (people or places, periods)."""
    absent = plan.absent or 0
    marks, steps = None, 0
    table = np.zeros((0, 0), np.int64)
    for entry, _, codes, _ in encoded_steps(config, last):
        assert entry.users is not None  # a panel's source has a user column
        place = f"step {entry.batch_id!r}"
        with named_step(entry.step, entry.batch_id):
            # Ids are compared within this call only: a fixed key does.
            owners = read_owners(entry.users, (len(codes), 0), key=bytes(32), where=place)
            given = np.frombuffer(b"".join(owners.ids), np.uint8).reshape(-1, ID_BYTES)
            found = seat(marks, given, places=plan.places, absent=plan.absent is not None)
        reports = np.full(len(found.marks), absent, np.int64)
        reports[found.rows[owners.inserts]] = np.ravel_multi_index(tuple(codes.T), plan.domain.sizes)
        known = np.where(found.before[:, None] >= 0, table[found.before], absent) if steps else table
        table = np.column_stack([known.reshape(len(reports), steps), reports])
        marks, steps = found.marks, steps + 1
    if steps < last:
        raise StepError(
            f"the source ends at step {steps}, and the releases at step {last}",
            where="source",
            allowed="the data as they were",
        )
    empty = (plan.places or len(table)) - len(table)
    return np.concatenate([table, np.full((empty, steps), absent, np.int64)])


def _find(config: Config, asked: EvaluationRequest) -> EvaluationResult:
    found = evaluate_panel(config, asked.releases)
    facts = panel_summary(found, config.name)
    measures = panel_measures(found)
    rows = [
        [one["question"], str(one["periods"]), number(one["error"]), number(one["stated"])]
        for one in facts["questions"]
    ]
    headings = ["people", "periods", "error", "stated standard error"]
    shown = SummaryTable("The usual questions", headings, rows, right=[1, 2, 3])
    answers = [
        {
            "step": one.step,
            "question": one.question,
            "released": one.released,
            "true": one.true,
            "error": one.error,
            "standard_error": one.standard_error,
        }
        for one in found
    ]
    summary: tuple[str | SummaryTable, ...] = (shown,)
    if measures:
        summary = (f"Verdict: {verdict_words(measures)}", measures_table(measures), shown)
    return EvaluationResult(config.name, facts, summary, answers, measures)


PANEL_EVALUATION: Final = FamilyEvaluation(
    options=(),
    refusal="the stream is a panel, whose periods are all compared, by the usual questions",
    find=_find,
)
