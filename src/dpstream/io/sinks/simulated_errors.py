"""Reads errors by simulation, which ``dpstream errors`` publishes beside the releases.

Of each step there is ``errors/step-000024.json`` (what was found, in words and numbers) and
``errors/step-000024.parquet`` (for each cell of each marginal the errors of all runs, from which the error of any
question on the columns of one marginal follows).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import StoreDamagedError
from dpstream.core.foreign import arrow_input
from dpstream.core.paths import parse_json, sha256_hex
from dpstream.core.privacy.law import check_confidence
from dpstream.io.objects import AnyPath, any_path, asking, read_place
from dpstream.io.sinks.target import step_name

#: Beside the steps' folders.
FOLDER = "errors"


@dataclass(frozen=True)
class SimulatedError:
    """How far the answer to a question is off, by simulation.

    Attributes:
        standard_error: root mean square error of the runs, in records; their bias is in it.
        bias: their mean error.
        hidden: where two columns or more meet, the part that no simulation can see is taken to be as large as the
            error of cells of that size (``unseen``); else 0.
        runs: how many there were.
        words: how it was found, and what it cannot see.
    """

    standard_error: float
    bias: float
    hidden: float
    runs: int
    words: str

    def half_width(self, confidence: float = 0.95) -> float:
        """Of an interval about the released number for that part of cases: as many standard errors as Student's t says
        for the number of runs, with ``hidden`` added in squares.

        Errors:
            ConfigError: a confidence that is not above 0 and below 1 (up to 0.999999).
        """
        check_confidence(confidence)
        return math.hypot(self.standard_error, self.hidden) * t_factor(self.runs, confidence)


@dataclass(frozen=True, eq=False)
class SimulatedErrors:
    """What was published about the errors of one step.

    Attributes:
        facts: the JSON file.
    """

    facts: dict[str, Any]
    _errors: dict[tuple[str, ...], NDArray[np.float32]]
    _invented: dict[tuple[str, ...], NDArray[np.float32]]

    @property
    def words(self) -> str:
        """How the errors were found, and what they cannot see."""
        return str(self.facts["words"])

    @property
    def total(self) -> SimulatedError:
        """Of the number of records."""
        return of_total(self.facts)

    def of_question(self, columns: Sequence[str], satisfied: NDArray[np.bool_]) -> SimulatedError | None:
        """The error of a count; None where no published marginal has all of its columns.

        Args:
            columns: those that the question is about, in the order of the schema.
            satisfied: which combinations of their codes are counted, one axis a column.
        """
        if not columns:
            return self.total if satisfied.all() else None
        wanted = set(columns)
        holding = [names for names in self._errors if wanted <= set(names)]
        if not holding:
            return None
        names = min(holding, key=lambda one: self._errors[one].size)
        errors = self._errors[names]
        shape = errors.shape[1:]
        axes = [satisfied.shape[columns.index(name)] if name in wanted else 1 for name in names]
        if any(given not in (1, size) for given, size in zip(axes, shape, strict=True)):
            return None
        chosen = np.broadcast_to(satisfied.reshape(axes), shape)
        sums = errors[:, chosen].sum(axis=1, dtype=np.float64)
        size = self._invented[names][chosen].sum(dtype=np.float64)
        hidden = float(unseen(np.array([size]), self.facts["sizes"])[0]) if len(columns) > 1 else 0.0
        return self._error(math.sqrt(float((sums**2).mean())), float(sums.mean()), hidden)

    def of_cells(self, columns: Sequence[str]) -> NDArray[np.float64] | None:
        """Standard errors of the cells of one marginal, in records, with the part that no simulation can see; None
        where it is not published.

        Args:
            columns: in the order of the schema.
        """
        names = tuple(columns)
        if names not in self._errors:
            return None
        squares = (self._errors[names].astype(np.float64) ** 2).mean(axis=0)
        if len(names) > 1:
            squares += unseen(self._invented[names], self.facts["sizes"]) ** 2
        found: NDArray[np.float64] = np.sqrt(squares)
        return found

    def _error(self, standard_error: float, bias: float, hidden: float = 0.0) -> SimulatedError:
        return SimulatedError(standard_error, bias, hidden, int(self.facts["runs"]), self.words)


def of_total(facts: Mapping[str, Any]) -> SimulatedError:
    """The error of the number of records, from the facts of a step."""
    found = facts["total"]
    return SimulatedError(
        float(found["standard_error"]), float(found["bias"]), 0.0, int(facts["runs"]), str(facts["words"])
    )


def of_marginal(facts: Mapping[str, Any], marginal: Mapping[str, Any]) -> SimulatedError:
    """The root mean square error of a marginal's cells, from the facts of a step alone; ``hidden`` is theirs, too.

    Args:
        marginal: one of ``facts["marginals"]``.
    """
    hidden, classes = 0.0, marginal["sizes"]
    if len(marginal["columns"]) > 1:
        errors = unseen(np.array([one["from"] for one in classes]), facts["sizes"])
        hidden = math.sqrt(float(np.average(errors**2, weights=[one["cells"] for one in classes])))
    bias = sum(one["cells"] * one["bias"] for one in classes) / sum(one["cells"] for one in classes)
    return SimulatedError(
        float(marginal["standard_error"]), bias, hidden, int(facts["runs"]), str(facts["words"])
    )


def t_within(ratio: NDArray[np.float64], runs: int) -> NDArray[np.float64]:
    """Student's t with ``runs`` degrees of freedom: the probability that it is at most ``ratio`` from 0.

    The finite sums for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    >>> t_within(np.array([2.0, np.inf]), 20).round(4).tolist()
    [0.9407, 1.0]
    """
    angle = np.arctan(np.asarray(ratio) / math.sqrt(runs))
    cosine = np.cos(angle)
    odd = runs % 2
    term = cosine if odd else np.ones_like(cosine)
    total = term if runs > 1 else np.zeros_like(cosine)
    for k in range(2 + odd, runs - 1, 2):
        term = term * cosine**2 * (k - 1) / k
        total = total + term
    inside: NDArray[np.float64] = np.sin(angle) * total
    return 2 / math.pi * (angle + inside) if odd else inside


@cache
def t_factor(runs: int, confidence: float = 0.95) -> float:
    """Standard errors on each side of an interval: Student's t with as many degrees of freedom as runs, because the
    standard error itself was estimated from them (about a known truth).

    >>> round(t_factor(20), 3), round(t_factor(1000), 2)
    (2.086, 1.96)
    """
    low, high = 0.0, math.pi / 2  # angles, since a quantile has no largest value
    for _ in range(60):
        middle = (low + high) / 2
        inside = float(t_within(np.array(math.sqrt(runs) * math.tan(middle)), runs))
        low, high = (middle, high) if inside < confidence else (low, middle)
    return math.sqrt(runs) * math.tan((low + high) / 2)


def unseen(counts: NDArray[Any], sizes: Sequence[dict[str, Any]]) -> NDArray[np.float64]:
    """The standard error of cells of like size, in records, for each of some counts of records.

    Args:
        sizes: classes of cells, as the facts of a step have them, the smallest first.

    >>> unseen(np.array([2, 70]), [{"from": 0, "standard_error": 3.0}, {"from": 20, "standard_error": 8.0}]).tolist()
    [3.0, 8.0]
    """
    if not sizes:
        return np.zeros(np.shape(counts))
    starts = [float(one["from"]) for one in sizes]
    place = np.maximum(np.searchsorted(starts, counts, side="right") - 1, 0)
    found: NDArray[np.float64] = np.array([float(one["standard_error"]) for one in sizes])[place]
    return found


def error_files(step: int) -> tuple[str, str]:
    """The names of a step's files, in ``FOLDER``.

    >>> error_files(24)
    ('step-000024.json', 'step-000024.parquet')
    """
    return f"{step_name(step)}.json", f"{step_name(step)}.parquet"


def error_steps(directory: str | AnyPath) -> tuple[int, ...]:
    """The steps of which errors by simulation were published, in order."""
    folder = any_path(directory) / FOLDER
    with asking(folder):
        found: list[AnyPath] = [*folder.glob("step-*.json")]
    names = [path.name.removeprefix("step-").removesuffix(".json") for path in found]
    return tuple(sorted(int(name) for name in names if name.isdigit()))


def simulated_errors(directory: str | AnyPath, step: int) -> SimulatedErrors | None:
    """What was published about the errors of a step; None where nothing was.

    Args:
        directory: the folder of releases.

    Errors:
        StoreDamagedError: files that cannot be read, or do not belong together.
    """
    facts_file, cells_file = (any_path(directory) / FOLDER / name for name in error_files(step))
    with asking(facts_file):
        there = facts_file.is_file()
    if not there:
        return None
    try:
        facts = parse_json(read_place(facts_file))
        data = read_place(cells_file)
        if facts["cells"]["sha256"] != sha256_hex(data):
            raise ValueError
        return SimulatedErrors(facts, *_cells(facts, data))
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        raise StoreDamagedError(
            "unreadable simulated errors",
            where=str(facts_file),
            allowed="run dpstream errors again",
        ) from None


_Cells = dict[tuple[str, ...], NDArray[np.float32]]


def _cells(facts: dict[str, Any], data: bytes) -> tuple[_Cells, _Cells]:
    """By the marginal's columns: errors, shape (runs, *codes of the columns), and invented counts."""
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(arrow_input(data)).read()
    runs = int(facts["runs"])
    errors = np.stack([table.column(f"run_{run}").to_numpy() for run in range(1, runs + 1)])
    invented, counts = table.column("invented").to_numpy(), {}
    found, start = {}, 0
    for entry in facts["cells"]["marginals"]:
        shape = tuple(int(size) for size in entry["shape"])
        end = start + math.prod(shape)
        names = tuple(map(str, entry["columns"]))
        found[names] = errors[:, start:end].reshape(runs, *shape)
        counts[names] = invented[start:end].reshape(shape)
        start = end
    if start != errors.shape[1]:
        raise ValueError
    return found, counts
