"""An evaluation as files. Every file carries the label, in the place where its readers look.

CSV files have it as their last column, in every row: they load without options, and a row that is copied out
keeps it. JSON files have it as their first key, Markdown and pictures as a line of text.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from dpstream.core import durable
from dpstream.tools.evaluate.evaluation import Evaluation, StepEvaluation
from dpstream.tools.evaluate.label import LABEL
from dpstream.tools.evaluate.metrics import METRICS
from dpstream.tools.evaluate.prediction import Prediction
from dpstream.tools.evaluate.private_folder import write_private
from dpstream.tools.evaluate.utility import Utility

__all__ = [
    "FILES",
    "PICTURES",
    "blank",
    "csv_bytes",
    "json_bytes",
    "summarise",
    "summary_text",
    "write_evaluation",
]

FILES: Final = ("steps.csv", "workloads.csv", "association.csv", "utility.json", "summary.md", "summary.json")
PICTURES: Final = ("errors.png", "association.png", "workloads.png")


def write_evaluation(evaluation: Evaluation, folder: Path, *, pictures: bool = True) -> tuple[Path, ...]:
    """Write ``FILES`` and ``PICTURES`` into a folder that ``open_private_folder`` gave; what is there is replaced.

    Files that this evaluation has nothing for (associations of an empty table) are removed.

    Errors:
        ConfigError: pictures without matplotlib.
    """
    contents = {
        "steps.csv": _steps(evaluation),
        "workloads.csv": _workloads(evaluation),
        "utility.json": json_bytes(_utility(evaluation)),
        "summary.md": summary_text(evaluation).encode(),
        "summary.json": json_bytes(summarise(evaluation)),
    }
    if evaluation.utility is not None:
        contents["association.csv"] = _associations(evaluation.utility)
    written = [write_private(folder / name, contents[name]) for name in FILES if name in contents]
    if pictures:
        from dpstream.tools.evaluate.evaluation_pictures import draw

        written += draw(evaluation, folder)
    names = {path.name for path in written}
    for name in (*FILES, *PICTURES):
        if name not in names:
            durable.unlink(folder / name)
    return tuple(written)


def summarise(evaluation: Evaluation) -> dict[str, Any]:
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
        "utility": None if utility is None else utility.as_dict(),
        "prediction": None if prediction is None else _prediction(prediction),
        "notes": list(evaluation.notes),
    }
    made: dict[str, Any] = blank(summary)
    return made


def summary_text(evaluation: Evaluation) -> str:
    """The main numbers as Markdown."""
    last = evaluation.last
    period = f" ({last.period})" if last.period else ""
    ten = evaluation.mean()
    lines = [
        f"# {evaluation.stream}: {evaluation.label}",
        "",
        f"Compared with the private table: the released {evaluation.synthetic}, {len(evaluation.steps)} of "
        f"{evaluation.released} steps, {evaluation.workload} ({len(evaluation.cliques)} marginals).",
        "",
        f"What the releases promise: {evaluation.guarantee}",
        "",
        *(f"* {note}" for note in evaluation.notes),
        *([""] if evaluation.notes else []),
        f"## Errors of marginals: {evaluation.label}",
        "",
        f"| metric | step {last.step}{period} | {evaluation.mean_words()} |",
        "|---|---:|---:|",
        *(
            f"| {name} | {_shown(value)} | {_shown(ten[name])} |"
            for name, value in last.errors.as_dict().items()
        ),
        "",
        f"True records {last.records}, synthetic rows {last.rows}. Change against the release before "
        f"(churn, from releases alone): {_shown(last.churn)}.",
        "",
        "Largest errors (L1):",
        "",
        *(f"* {' x '.join(evaluation.columns[i])}: {_shown(error)}" for i, error in evaluation.worst(5)),
        "",
    ]
    if evaluation.utility is not None:
        lines += _utility_lines(evaluation)
    return "\n".join(lines)


def blank(value: Any) -> Any:
    """The same with None in the place of NaN, all the way down: JSON knows no NaN."""
    if isinstance(value, dict):
        return {key: blank(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [blank(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _utility_lines(evaluation: Evaluation) -> list[str]:
    utility = evaluation.utility
    assert utility is not None
    facts = {name: _shown(value) for name, value in utility.as_dict().items()}
    lines = [
        f"## Utility at step {evaluation.last.step}: {evaluation.label}",
        "",
        "| | mean | largest |",
        "|---|---:|---:|",
        f"| total variation, single columns | {facts['mean_tv_one_way']} | {facts['max_tv_one_way']} |",
        f"| total variation, pairs of columns | {facts['mean_tv_two_way']} | {facts['max_tv_two_way']} |",
        f"| difference of associations | {facts['mean_association_difference']} "
        f"| {facts['max_association_difference']} |",
        "",
    ]
    if utility.prediction is not None:
        lines += _prediction_lines(utility.prediction)
    return lines


def _prediction_lines(prediction: Prediction) -> list[str]:
    return [
        f"## Predicting {prediction.target}: {LABEL}",
        "",
        f"Trained on {prediction.synthetic_rows} synthetic or {prediction.real_rows} real records, tested on the same "
        f"{prediction.test_rows} real records; seed {prediction.seed}.",
        "",
        "| classifier | trained on | accuracy | balanced accuracy | macro F1 | ROC AUC | |",
        "|---|---|---:|---:|---:|---:|---|",
        *(
            f"| {s.model} | {s.trained_on} | {_shown(s.accuracy)} | {_shown(s.balanced_accuracy)} "
            f"| {_shown(s.macro_f1)} | {_shown(s.roc_auc)} | {s.note} |"
            for s in prediction.scores
        ),
        "",
        *([prediction.remark, ""] if prediction.remark else []),
    ]


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
        strict=True,
    )
    return csv_bytes(["step", "workload", "WE", "RelWE", "RelWEFloor", "L1"], map(list, rows))


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


def csv_bytes(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """A table whose last column is the label, in every row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*headings, "label"])
    for row in rows:
        cells = ["" if value is None else value for value in blank(list(row))]
        writer.writerow([*cells, LABEL])
    return text.getvalue().encode()


def json_bytes(value: Any) -> bytes:
    """JSON for people and programs; NaN becomes null."""
    return (json.dumps(blank(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _shown(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.4g}"
