"""Numbers of rows that cannot be believed: the rule on manifests, and the same words wherever a steward looks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from dpstream.core.contracts import MarginalError
from dpstream.io.sinks.simulated_errors import t_factor
from dpstream.stream.release.fitness import fitness_of_step, unfit_rows, unfit_table
from dpstream.stream.release.verdicts import MODELLED, PREDICTED, is_unfit, verdicts_from


def manifest(step: int, rows: int, error: float | None = 1.0, **accuracy: Any) -> dict[str, Any]:
    facts = {"total_standard_error": error, **accuracy}
    return {"step": step, "rows": rows, "rows_in_table": rows, "accuracy": facts}


def simulated(folder: Path, total: float, runs: int, **facts: Any) -> None:
    """The errors of step 3, by simulation."""
    (folder / "errors").mkdir()
    whole = {"invented": total, "standard_error": facts.pop("error"), "bias": 0.0}
    written = {"runs": runs, "words": "", "total": whole, "marginals": [], **facts}
    (folder / "errors" / "step-000003.json").write_text(json.dumps(written))


def found(*manifests: dict[str, Any]) -> str | None:
    return unfit_rows(lambda step: {one["step"]: one for one in manifests}[step], manifests[-1]["step"])


def test_a_table_without_rows_is_never_fit() -> None:
    assert found(manifest(3, 0)) == "the table of step 3 has no rows"
    assert found(manifest(3, 0, 0.0)) == "the table of step 3 has no rows", "a public number, too"
    panel = {"answers": [], "patterns": 4}
    assert found(manifest(3, 0, None, panel=panel)) is None, "a panel before its first window is over"
    assert found(manifest(3, 0, None, panel={**panel, "answers": [{"count": 0}]})) is not None


@pytest.mark.parametrize("rows", [1, 20, 21])
def test_a_number_within_two_standard_errors_of_none_is_not_fit(rows: int) -> None:
    words = None if rows > 20 else (
        f"the table of step 3 has {rows} rows, within two standard errors of 0 (one is 10): they may "
        "be noise alone"
    )  # fmt: skip
    assert found(manifest(3, rows, 10.0)) == words
    # By a model where noise alone tells none; of the last measured step where this one was not measured.
    assert (found(manifest(3, rows, None, total_model_standard_error=10.0)) is None) == (words is None)
    before = manifest(2, 100, 10.0, measured_up_to_step=2)
    assert (found(before, manifest(3, rows, None, measured_up_to_step=2)) is None) == (words is None)
    assert found(manifest(3, rows, None, measured_up_to_step=3)) is None, "nothing is known"
    assert found(manifest(3, rows, 0.0)) is None, "a public number"


@pytest.mark.parametrize(
    ("rows", "fit"), [(363, True), (362, False), (459, True), (460, False), (943, False)]
)
def test_rows_far_from_what_was_counted_are_not_fit(rows: int, fit: bool) -> None:
    census = {"measured_up_to_step": 6, "total_model_standard_error": 3.0}
    at = manifest(6, rows, None, counted={"records": 411.0, "standard_error": 12.0}, **census)
    words = None if fit else (
        f"the table of step 6 has {rows} rows, and 411 records were counted: over four standard errors apart "
        "(one is 12)"
    )  # fmt: skip
    assert found(at) == words
    # Until the next census nothing better is known.
    assert found(at, manifest(7, rows, None, **census)) == words


@pytest.mark.parametrize(
    ("model", "drawn", "share", "how"),
    [
        (20.0, 5.0, 0.2, "(by its model)"),
        (5.0, 20.0, 0.2 * t_factor(20) / 2, "(by simulation, widened)"),
        (20.0, None, 0.2, "(by its model)"),
    ],
)
def test_of_an_error_by_a_model_and_one_by_simulation_the_larger_is_told(
    tmp_path: Path, model: float, drawn: float | None, share: float, how: str
) -> None:
    if drawn is not None:
        simulated(tmp_path, 100.0, 20, error=drawn)
    told = [one.as_dict() for one in verdicts_from(100.0, model, (), MODELLED)]
    newest = manifest(3, 100, None, total_model_standard_error=model, verdicts=told)
    total = fitness_of_step(tmp_path, lambda _: newest, 3).verdicts[0]
    assert total.share == pytest.approx(share)
    assert how in total.words
    assert "predicted by the plan" not in total.words


def test_the_verdict_on_columns_is_about_the_worst_one_and_names_it() -> None:
    errors = [
        MarginalError(("carrier",), 10, 5.0),
        MarginalError(("dest",), 106, 5.0),
        MarginalError(("day",), 7, 5.0),
    ]
    columns = verdicts_from(1000.0, 1.0, errors, PREDICTED)[1]
    assert (columns.word, columns.share, columns.half) == ("unfit", pytest.approx(0.53), pytest.approx(0.05))
    assert (
        "53 % of a typical count of one column in dest, the worst of 3 columns, and 5 % in half"
        in columns.words
    )
    # The table as a whole is unfit where half of its columns are.
    assert not is_unfit([columns])
    assert is_unfit([verdicts_from(130.0, 1.0, errors, PREDICTED)[1]])
    alone = verdicts_from(1000.0, 1.0, errors[1:2], PREDICTED)[1]
    assert alone.half is None
    assert is_unfit([alone])


def test_a_verdict_by_simulation_is_as_wide_as_the_published_interval(tmp_path: Path) -> None:
    """Two standard errors of a verdict are Student's t times the error of a cell, with what no simulation can see."""
    cells = [{"from": 0, "cells": 6, "bias": 0.0}, {"from": 20, "cells": 2, "bias": 0.0}]
    marginals = [
        {"columns": columns, "cells": 8, "standard_error": 14.0, "sizes": cells}
        for columns in (["a"], ["a", "b"])
    ]
    sizes = [{"from": 0, "standard_error": 4.0}, {"from": 20, "standard_error": 10.0}]
    simulated(tmp_path, 800.0, 5, error=39.0, sizes=sizes, marginals=marginals)
    told = [one.as_dict() for one in verdicts_from(800.0, None, (), PREDICTED)]
    newest = manifest(3, 800, None, verdicts=told)
    totals, columns, pairs, small = fitness_of_step(tmp_path, lambda _: newest, 3).verdicts
    hidden = math.sqrt((6 * 4.0**2 + 2 * 10.0**2) / 8)
    wide = t_factor(5) * math.hypot(14.0, hidden)
    halves = [39.0 * t_factor(5) / 800, 14.0 * t_factor(5) / 100, wide / 100, wide / 8]
    assert [2 * (one.share or 0.0) for one in (totals, columns, pairs, small)] == pytest.approx(halves)
    # Bare standard errors, 4.9 and 14 %, would be good and usable.
    assert [one.word for one in (totals, columns, pairs, small)] == ["usable", "poor", "poor", "unfit"]


def test_a_folder_that_cannot_be_read_is_told_elsewhere(tmp_path: Any) -> None:
    assert unfit_table(tmp_path / "none") is None
    (tmp_path / "catalogue.json").write_text("{}")
    assert unfit_table(tmp_path) is None
