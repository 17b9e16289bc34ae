"""A stream of tables against its truth, as sentences, tables and files. Every file carries the label.

CSV files have it as their last column, in every row: they load without options, and a row that is copied out
keeps it. JSON files have it as their first key, Markdown in every heading.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dpstream.core.errors import ConfigError
from dpstream.core.tables import Workload
from dpstream.tools.evaluate.contract import (
    EvaluationRequest,
    EvaluationResult,
    FamilyEvaluation,
    SummaryTable,
    blank,
    csv_bytes,
    json_bytes,
    measures_told,
    number,
    write_result_files,
)
from dpstream.tools.evaluate.evaluation import Evaluation, StepEvaluation, evaluate_run
from dpstream.tools.evaluate.judgement import Judgement
from dpstream.tools.evaluate.metrics import METRICS
from dpstream.tools.evaluate.prediction import Prediction
from dpstream.tools.evaluate.utility import Utility

if TYPE_CHECKING:
    from dpstream.project import Config

FILES: Final = ("steps.csv", "workloads.csv", "association.csv", "utility.json")
#: The errors of papers in words; with mean and largest.
_ERRORS: Final = {
    "WE": "a cell's error / size of the table",
    "RelWE": "a filled cell's error / its count",
    "RelWEFloor": "a cell's error / its count or 1",
    "L1": "sum of the cells' errors / size of the table",
    "TV": "total variation",
}


def write_evaluation(evaluation: Evaluation, folder: Path) -> tuple[Path, ...]:
    """Write ``FILES`` and the summaries into a folder that ``open_private_folder`` gave; what is there is replaced.

    Files that this evaluation has nothing for (associations of an empty table) are removed.
    """
    return write_result_files(result_of(evaluation), folder, FILES)


def result_of(evaluation: Evaluation) -> EvaluationResult:
    """What is printed and written of an evaluation."""
    files = {"steps.csv": _steps(evaluation), "workloads.csv": _workloads(evaluation)}
    if evaluation.utility is not None:
        files["association.csv"] = _associations(evaluation.utility)
    files["utility.json"] = json_bytes(_utility(evaluation))
    told = tuple(_summary_parts(evaluation))
    measures = () if evaluation.judgement is None else evaluation.judgement.measures
    return EvaluationResult(evaluation.stream, tables_summary(evaluation), told, files, measures, evaluation)


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
            "the stream does not release the columns of its private table: there is nothing to compare",
            where=str(config.path),
            allowed="a stream that does, or a family that brings an evaluation of its own",
        )
    return _compare(config, asked, asked.workload or "all-1-way")


def _compare(config: Config, asked: EvaluationRequest, workload: str | None) -> EvaluationResult:
    found = evaluate_run(
        config,
        state=asked.state,
        out=asked.releases,
        workload=None if workload is None else Workload.parse(config.schema().domain, workload),
        steps=asked.steps,
        every=asked.every,
        synthetic="models" if asked.synthetic == "models" else "tables",
        target=asked.target,
        ceiling=asked.ceiling is not False,
        progress=asked.progress,
    )
    return result_of(found)


TABLES_EVALUATION: Final = FamilyEvaluation(
    options=("workload", "steps", "every", "synthetic", "target", "ceiling", "state"),
    refusal="the stream is one of tables",
    files=FILES,
    find=_find,
)
#: Of a family that brings no evaluation.
ANY_TABLES_EVALUATION: Final = replace(TABLES_EVALUATION, find=_find_any)


def tables_summary(evaluation: Evaluation) -> dict[str, Any]:
    """The main numbers for programs, JSON-able; a number that does not exist is None."""
    utility = evaluation.utility
    prediction = None if utility is None else utility.prediction
    summary = {
        "label": evaluation.label,
        "format": 1,
        "stream": evaluation.stream,
        "guarantee": evaluation.guarantee,
        "compared": evaluation.synthetic,
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
        "utility": None if utility is None else utility.as_dict(),
        "prediction": None if prediction is None else _prediction(prediction),
        "notes": list(evaluation.notes),
    }
    made: dict[str, Any] = blank(summary)
    return made


def _summary_parts(found: Evaluation) -> Iterator[str | SummaryTable]:
    last, ten = found.last, found.mean()
    period = f" ({last.period})" if last.period else ""
    yield (
        f"Stream {found.stream}: released {found.synthetic} against the private table, {found.workload} "
        f"({len(found.cliques)} marginals), {len(found.steps)} of {found.released} steps."
    )
    yield f"What the releases promise: {found.guarantee}"
    yield from (f"Note: {note}" for note in found.notes)
    if found.judgement is not None:
        yield f"Verdict on step {last.step}{period}: {found.judgement.words}"
        yield measures_told(found.judgement.measures)
        yield from (f"Note: {text}" for text in found.judgement.missing)
        yield from _broken_words(found.judgement)
    errors = last.errors.as_dict()
    rows = [
        [
            name,
            words,
            *(number(values[f"{kind}{name}"]) for values in (errors, ten) for kind in ("Avg", "Max")),
        ]
        for name, words in _ERRORS.items()
    ]
    headings = [
        "error",
        "what it is",
        f"step {last.step}: mean",
        "largest",
        f"{found.mean_words()}: mean",
        "largest",
    ]
    yield SummaryTable(
        f"Errors of {len(found.cliques)} marginals, as papers give them", headings, rows, right=[2, 3, 4, 5]
    )
    yield (
        f"True records {last.records}, synthetic rows {last.rows}; change against the release before (churn, from "
        f"releases alone): {number(last.churn)} (total variation)."
    )
    worst = [[" x ".join(found.columns[i]), number(error)] for i, error in found.worst(5)]
    yield SummaryTable(
        f"Marginals with the largest error at step {last.step}", ["marginal", "L1"], worst, right=[1]
    )
    if found.utility is not None:
        yield from _utility_parts(found.utility, last.step)


def _broken_words(judged: Judgement) -> Iterator[str]:
    if judged.broken:
        rows = sum(judged.broken.values())
        told = "every released row satisfies them" if not rows else f"{rows} times a released row breaks one"
        yield f"Declared constraints: {len(judged.broken)}; {told}."


def _utility_parts(utility: Utility, step: int) -> Iterator[str | SummaryTable]:
    facts = utility.as_dict()
    kinds = [
        ("total variation, single columns", "tv_one_way"),
        ("total variation, pairs of columns", "tv_two_way"),
        ("difference of associations (Cramer's V)", "association_difference"),
    ]
    rows = [[name, number(facts[f"mean_{key}"]), number(facts[f"max_{key}"])] for name, key in kinds]
    yield SummaryTable(f"Utility at step {step}", ["", "mean", "largest"], rows, right=[1, 2])
    prediction = utility.prediction
    if prediction is None:
        return
    scores = [
        [
            score.model,
            score.trained_on,
            *(number(v) for v in (score.accuracy, score.balanced_accuracy, score.macro_f1, score.roc_auc)),
            score.note,
        ]
        for score in prediction.scores
    ]
    headings = ["classifier", "trained on", "accuracy", "balanced", "macro F1", "ROC AUC", ""]
    yield SummaryTable(f"Predicting {prediction.target}", headings, scores, right=[2, 3, 4, 5])
    yield (
        f"Trained on {prediction.synthetic_rows} synthetic or {prediction.real_rows} real records, tested on the same "
        f"{prediction.test_rows} real records; seed {prediction.seed}."
    )
    if prediction.remark:
        yield f"Note: {prediction.remark}"


def _step(entry: StepEvaluation) -> dict[str, Any]:
    return {
        "step": entry.step,
        "period": entry.period,
        "true_records": entry.records,
        "synthetic_rows": entry.rows,
        **entry.errors.as_dict(),
        "churn": entry.churn,
    }


def _steps(evaluation: Evaluation) -> bytes:
    headings = ["step", "period", "true_records", "synthetic_rows", *METRICS, "churn"]
    return csv_bytes(headings, (list(_step(entry).values()) for entry in evaluation.steps))


def _workloads(evaluation: Evaluation) -> bytes:
    errors = evaluation.last.errors
    rows = zip(
        [evaluation.last.step] * len(evaluation.cliques),
        (" x ".join(names) for names in evaluation.columns),
        errors.we.tolist(),
        errors.rel_we.tolist(),
        errors.rel_we_floor.tolist(),
        errors.l1.tolist(),
        errors.tv.tolist(),
        strict=True,
    )
    return csv_bytes(["step", "workload", "WE", "RelWE", "RelWEFloor", "L1", "TV"], map(list, rows))


def _associations(utility: Utility) -> bytes:
    names = utility.columns
    rows = (
        [
            names[i],
            names[j],
            float(utility.true_association[i, j]),
            float(utility.synthetic_association[i, j]),
            float(utility.difference[i, j]),
        ]
        for i, j in itertools.product(range(len(names)), repeat=2)
    )
    return csv_bytes(["column", "other_column", "true", "synthetic", "difference"], rows)


def _utility(evaluation: Evaluation) -> dict[str, Any]:
    utility = evaluation.utility
    facts: dict[str, Any] = {"label": evaluation.label, "format": 1, "step": evaluation.last.step}
    if utility is None:
        return {**facts, "summary": None, "one_way": None, "two_way": None, "prediction": None}
    names = utility.columns
    return {
        **facts,
        "summary": utility.as_dict(),
        "one_way": dict(zip(names, utility.one_way.tolist(), strict=True)),
        "two_way": [
            {"columns": [names[i], names[j]], "total_variation": float(utility.two_way[i, j])}
            for i, j in utility.pairs
        ],
        "prediction": None if utility.prediction is None else _prediction(utility.prediction),
    }


def _prediction(prediction: Prediction) -> dict[str, Any]:
    return {
        "target": prediction.target,
        "classes": list(prediction.classes),
        "synthetic_rows": prediction.synthetic_rows,
        "real_rows": prediction.real_rows,
        "test_rows": prediction.test_rows,
        "seed": prediction.seed,
        "scores": [vars(score) for score in prediction.scores],
        "remark": prediction.remark,
    }
