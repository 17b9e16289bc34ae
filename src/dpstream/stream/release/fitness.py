"""Whether the number of rows of a released table can be believed, as far as manifests tell: public numbers only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dpstream.core.errors import StoreError
from dpstream.io.sinks import read_catalogue, read_manifest

__all__ = ["unfit_rows", "unfit_table"]

#: A number of records within so many of its standard errors of none may be noise alone.
_FROM_NONE = 2.0
#: A number of rows further than so many standard errors from the number that was counted is not explained by noise.
_FROM_COUNTED = 4.0


def unfit_table(releases: str | Path) -> str | None:
    """Why the newest table of a folder of releases cannot be believed; None where nothing speaks against it.

    Withdrawn steps are passed over. None also where nothing is released, or where the folder cannot be read: that is
    told elsewhere.
    """
    folder = Path(releases)
    try:
        catalogue = read_catalogue(folder)["steps"] if (folder / "catalogue.json").exists() else []
        steps = [int(entry["step"]) for entry in catalogue if entry["state"] != "withdrawn"]
        return unfit_rows(lambda step: read_manifest(folder, step), max(steps)) if steps else None
    except (StoreError, KeyError, TypeError, ValueError):
        return None


def unfit_rows(manifest_of: Callable[[int], Mapping[str, Any]], step: int) -> str | None:
    """Why the number of rows of a step's table cannot be believed; None where nothing speaks against it.

    There are none; there are so few that noise alone may have made them; or the mechanism itself counted another
    number. A step that was not measured has no standard error and no counted number: those of the last one that was
    are taken, which are no larger.
    """
    newest = manifest_of(step)
    if int(newest["rows_in_table"]) == 0:
        return f"the table of step {step} has no rows"
    own = newest.get("accuracy") or {}
    last = _last_measured(own)
    measured = newest if last is None or last == step else manifest_of(last)
    told = measured.get("accuracy") or {}
    error, rows = _error(own) or _error(told), int(newest["rows"])
    if error is not None and rows <= _FROM_NONE * error:
        return (
            f"the table of step {step} has {rows} rows, which is within two standard errors of none (one is "
            f"{error:.3g}): they may be noise alone"
        )
    counted, rows = told.get("counted"), int(measured["rows_in_table"])
    if counted is None or abs(rows - counted["records"]) <= _FROM_COUNTED * counted["standard_error"]:
        return None
    return (
        f"the table of step {measured['step']} has {rows} rows, and {counted['records']:.0f} records were counted "
        f"then: more than four standard errors apart (one is {counted['standard_error']:.3g})"
    )


def _last_measured(accuracy: Mapping[str, Any]) -> int | None:
    """The last step that was measured; None where all are."""
    taken = accuracy.get("last_census")
    return accuracy.get("measured_up_to_step") if taken is None else int(taken["step"])


def _error(accuracy: Mapping[str, Any]) -> float | None:
    """Of the number of records: from noise alone, or else by a model. None where neither is told."""
    error = accuracy.get("total_standard_error")
    return accuracy.get("total_model_standard_error") if error is None else error
