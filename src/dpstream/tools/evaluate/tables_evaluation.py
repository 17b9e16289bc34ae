"""What is said and written of a stream of tables against its truth: sentences, tables, and the rows of its files.

Trusted base: owner (compares with the private table).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dpstream.core.errors import ConfigError
from dpstream.core.tables import Workload
from dpstream.stream.templates import said
from dpstream.tools.evaluate.contract import (
    EvaluationRequest,
    EvaluationResult,
    FamilyEvaluation,
    SummaryTable,
    blank,
    measures_table,
    number,
)
from dpstream.tools.evaluate.evaluation import Evaluation, StepEvaluation, evaluate_run
from dpstream.tools.evaluate.measures import WORDS
from dpstream.tools.evaluate.metrics import ERRORS

if TYPE_CHECKING:
    from dpstream.project import Config


def result_of(evaluation: Evaluation) -> EvaluationResult:
    """What is printed and written of an evaluation."""
    return EvaluationResult(
        evaluation.stream,
        tables_summary(evaluation),
        tuple(_summary_parts(evaluation)),
        [_step(entry) for entry in evaluation.steps],
        () if evaluation.judgement is None else evaluation.judgement.measures,
        evaluation,
    )


def _find(config: Config, asked: EvaluationRequest) -> EvaluationResult:
    """Of our own mechanisms for tables: by default the marginals that they were asked for."""
    config.table_recipe("evaluate")
    return _compare(config, asked, asked.workload)


def _find_any(config: Config, asked: EvaluationRequest) -> EvaluationResult:
    """Of any stream whose released columns are the private ones: by default single columns.

    Errors:
        ConfigError: others are released.
    """
    schema = config.schema()
    if config.plan().released_schema(schema) != schema:
        raise ConfigError(
            "the stream releases other columns",
            where=str(config.path),
            allowed="a stream that releases its columns",
        )
    return _compare(config, asked, asked.workload or "all-1-way")


def _compare(config: Config, asked: EvaluationRequest, workload: str | None) -> EvaluationResult:
    found = evaluate_run(
        config,
        out=asked.releases,
        workload=None if workload is None else Workload.parse(config.schema().domain, workload),
        steps=asked.steps,
        every=asked.every,
        target=asked.target,
        ceiling=asked.ceiling is not False,
        progress=asked.progress,
    )
    return result_of(found)


TABLES_EVALUATION: Final = FamilyEvaluation(
    options=("workload", "steps", "every", "target", "ceiling"),
    find=_find,
)
#: Of a family that brings no evaluation.
ANY_TABLES_EVALUATION: Final = replace(TABLES_EVALUATION, find=_find_any)


def tables_summary(evaluation: Evaluation) -> dict[str, Any]:
    """The main numbers for programs, JSON-able; a number that does not exist is None."""
    summary = {
        "label": evaluation.label,
        "format": 1,
        "stream": evaluation.stream,
        "guarantee": evaluation.guarantee,
        "workload": evaluation.workload,
        "marginals": len(evaluation.cliques),
        "released_steps": evaluation.released,
        "evaluated_steps": [entry.step for entry in evaluation.steps],
        "last": _step(evaluation.last),
        "mean_of_last_ten": evaluation.mean(),
        "steps_in_mean": [entry.step for entry in evaluation.among_last()],
        "worst_workloads": [
            {"columns": list(evaluation.columns[i]), "L1": error} for i, error in evaluation.worst()
        ],
        "judgement": None if evaluation.judgement is None else evaluation.judgement.as_dict(),
        "notes": list(evaluation.notes),
    }
    made: dict[str, Any] = blank(summary)
    return made


def _summary_parts(found: Evaluation) -> Iterator[str | SummaryTable]:
    last, ten, judged = found.last, found.mean(), found.judgement
    yield from said(WORDS.paragraphs("before", found=found, last=last, verdict=judged and judged.words))
    if judged is not None:
        alone = judged.targets[0] if len(judged.targets) == 1 else None
        yield from said(WORDS.paragraphs("judged", missing=judged.missing, alone=alone, broken=judged.broken))
        yield measures_table(judged.measures)
    yield from said(WORDS.paragraphs("compared", found=found))
    errors = last.errors.as_dict()
    rows = [
        [
            name,
            words,
            *(number(values[f"{kind}{name}"]) for values in (errors, ten) for kind in ("Avg", "Max")),
        ]
        for name, words in ERRORS.items()
    ]
    headings = ["error", "what it is", f"step {last.step}: mean", "largest"]
    headings += [f"{found.mean_words()}: mean", "largest"]
    yield SummaryTable(
        f"Errors of {len(found.cliques)} marginals, as papers give them", headings, rows, right=[2, 3, 4, 5]
    )
    yield WORDS.text("sizes", last=last, churn=number(last.churn))
    worst = [[" x ".join(found.columns[i]), number(error)] for i, error in found.worst(5)]
    yield SummaryTable(
        f"Marginals with the largest error at step {last.step}", ["marginal", "L1"], worst, right=[1]
    )


def _step(entry: StepEvaluation) -> dict[str, Any]:
    return {
        "step": entry.step,
        "period": entry.period,
        "true_records": entry.records,
        "synthetic_rows": entry.rows,
        **entry.errors.as_dict(),
        "churn": entry.churn,
    }
