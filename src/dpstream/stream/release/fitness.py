"""What the newest table of a folder is fit for, and whether its rows can be believed: public numbers only.

A manifest holds the verdicts of its step. Errors by simulation, which come later, take the place of what was predicted
or not known; exact ones stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpstream.core.contracts.expectations import MarginalError
from dpstream.core.errors import DataError, InputError, StoreError
from dpstream.core.paths import parse_json
from dpstream.io.sinks import read_catalogue, read_manifest
from dpstream.io.sinks.simulated_errors import (
    FOLDER,
    SimulatedError,
    error_files,
    error_steps,
    of_marginal,
    of_total,
)
from dpstream.stream.release.manifest import COUNTED
from dpstream.stream.release.released_verdicts import NumberOfRecords, number_of_records
from dpstream.stream.release.verdicts import (
    MODELLED,
    NOT_KNOWN,
    PREDICTED,
    SIMULATED,
    Verdict,
    as_of,
    is_unfit,
    verdicts_from,
)

#: A number of records within so many of its standard errors of none may be noise alone.
_FROM_NONE = 2.0
#: A number of rows further than so many standard errors from the number that was counted is not explained by noise.
_FROM_COUNTED = 4.0


@dataclass(frozen=True)
class Fitness:
    """What a table is fit for.

    Attributes:
        verdicts: one for each use; empty where nothing is released, or no table.
        unfit: why nobody should use the table; None where nothing speaks against it.
    """

    verdicts: tuple[Verdict, ...] = ()
    unfit: str | None = None


def fitness_of(releases: str | Path) -> Fitness:
    """Of the newest table of a folder of releases.

    Withdrawn steps are passed over. Empty where nothing is released, or where the folder cannot be read: that is
    told elsewhere.
    """
    folder = Path(releases)
    try:
        catalogue = read_catalogue(folder)["steps"] if (folder / "catalogue.json").exists() else []
        steps = [int(entry["step"]) for entry in catalogue if entry["state"] != "withdrawn"]
        if not steps:
            return Fitness()
        return fitness_of_step(folder, lambda step: read_manifest(folder, step), max(steps))
    except (StoreError, KeyError, TypeError, ValueError):
        return Fitness()


def unfit_table(releases: str | Path) -> str | None:
    """Why nobody should use the newest table of a folder of releases; None where nothing speaks against it."""
    return fitness_of(releases).unfit


def fitness_of_step(folder: Path, manifest_of: Callable[[int], Mapping[str, Any]], step: int) -> Fitness:
    """Of one step's table: the verdicts of its manifest, errors by simulation, and whether its rows can be believed."""
    manifest, rows = manifest_of(step), unfit_rows(manifest_of, step)
    accuracy, number = manifest["accuracy"], number_of_records(manifest)
    if "panel" in accuracy and not accuracy["panel"]["answers"]:
        return Fitness()  # the first window is not over
    found = {one["use"]: Verdict.from_dict(one) for one in accuracy.get("verdicts", ())}
    for one in _simulated(folder, step, accuracy.get(COUNTED, "records")) if found else ():
        known = found[one.use]
        if one.use == "totals" and number.expected_since:
            continue  # nothing can be simulated of records that may come as no release lets expect
        # What the model gives is of this very table: invented tables that are easier must not make it look better.
        larger = known.how == MODELLED and (known.share or 0.0) > (one.share or 0.0)
        if (known.how in (PREDICTED, MODELLED) and not larger) or known.word == NOT_KNOWN:
            found[one.use] = one
    if number.error is None and number.expected_since and "totals" in found:
        known = found["totals"]
        found["totals"] = replace(known, why=f"{known.why}{_by_then(manifest_of, number)}")
    if rows is not None and "totals" in found:
        found["totals"] = Verdict("totals", "unfit", None, None, rows)
    judged = tuple(found.values())
    if rows is None and is_unfit(judged):
        bad = next(one for one in judged if is_unfit([one]))
        return Fitness(judged, f"the table of step {step}: {bad.clause}")
    return Fitness(judged, rows)


def _by_then(manifest_of: Callable[[int], Mapping[str, Any]], number: NumberOfRecords) -> str:
    """The number of records when it was measured last; empty where that release was withdrawn."""
    try:
        measured = number_of_records(manifest_of(number.measured_up_to))
    except (StoreError, InputError):
        return ""
    error = "" if measured.error is None else f", with a standard error of {measured.error:.3g}"
    return f". By then there were {measured.value:,}{error}"


def _simulated(folder: Path, step: int, records: str) -> tuple[Verdict, ...]:
    """The verdicts from the newest errors by simulation up to a step; empty where there are none that can be read."""
    known = [one for one in error_steps(folder) if one <= step]
    if not known:
        return ()
    try:
        facts = parse_json((folder / FOLDER / error_files(max(known))[0]).read_bytes())
        marginals = [
            MarginalError(tuple(one["columns"]), int(one["cells"]), _as_wide(of_marginal(facts, one)))
            for one in facts["marginals"]
        ]
        size, total = float(facts["total"]["invented"]), _as_wide(of_total(facts))
        found = verdicts_from(size, total, marginals, SIMULATED, records=records)
    except (OSError, InputError, DataError, KeyError, TypeError, ValueError, AttributeError):
        return ()
    simulated = tuple(one for one in found if one.share is not None)
    return simulated if max(known) == step else as_of(simulated, max(known), f"step {max(known)}")


def _as_wide(error: SimulatedError) -> float:
    """The standard error that a verdict rests on: two of them are as wide as the published 95 % interval.

    The bare one is too small for that: few runs estimate it, and no simulation sees what a release has lost.
    """
    return error.half_width(0.95) / 2


def unfit_rows(manifest_of: Callable[[int], Mapping[str, Any]], step: int) -> str | None:
    """Why the number of rows of a step's table cannot be believed; None where nothing speaks against it.

    There are none; there are so few that noise alone may have made them; or the mechanism itself counted another
    number. A step that was not measured has no standard error and no counted number: those of the last one that was
    are taken, which are as small or smaller.
    """
    newest, table = manifest_of(step), f"the table of step {step} has"
    own, number = newest["accuracy"], number_of_records(newest)
    if int(newest["rows_in_table"]) == 0:
        people = own.get("panel")
        # Before its first window is over a panel has no people by its plan, and nothing is wrong.
        return None if people is not None and not people["answers"] else f"{table} no rows"
    measured = manifest_of(number.measured_up_to) if number.expected_since else newest
    accuracy = measured["accuracy"]
    error, rows = number.error or number_of_records(measured).error, number.value
    if error is not None and rows <= _FROM_NONE * error:
        return f"{table} {rows} rows, within two standard errors of 0 (one is {error:.3g}): they may be noise alone"
    counted, rows = accuracy.get("counted"), int(measured["rows_in_table"])
    if counted is None or abs(rows - counted["records"]) <= _FROM_COUNTED * counted["standard_error"]:
        return None
    return (
        f"the table of step {measured['step']} has {rows} rows, and {counted['records']:.0f} records were "
        f"counted: over four standard errors apart (one is {counted['standard_error']:.3g})"
    )
