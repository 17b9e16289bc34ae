"""What a comparison of mechanisms found, and which one it would take."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpstream.tools.errors.contract import Resemblance

#: Errors that differ by less than this share of the smaller one count as equal: other invented tables, and other noise,
#: move them as much.
NO_DIFFERENCE = 0.10

_LIKE: Mapping[str, str] = {
    "uniform": "uniform, independent columns",
    "correlated": "skewed columns that depend on each other",
    "like the base": "columns like those of the public table that the stream begins with",
}


@dataclass(frozen=True)
class MechanismErrors:
    """The errors of one mechanism on the invented streams of one kind: means over tenths of the stream, then runs.

    Attributes:
        mechanism: what it is called.
        columns: what the invented records were like.
        avg_we: mean error of a cell of the widest marginals, as a share of the table.
        total_variation: of those marginals, as shares of each table's own size; 1 where a table has no records.
        total: error of the number of records, as a share of it.
        distances: other distances of the family, by name.
        runs: the error that decides, in each run.
    """

    mechanism: str
    columns: Resemblance
    avg_we: float
    total_variation: float
    total: float
    distances: Mapping[str, float]
    runs: tuple[float, ...]

    @property
    def deciding(self) -> float:
        """The error that decides: the mean of ``runs``."""
        return statistics.fmean(self.runs)

    @property
    def spread(self) -> float | None:
        """Standard deviation of ``runs``; None of one run."""
        return statistics.stdev(self.runs) if len(self.runs) > 1 else None


@dataclass(frozen=True)
class Recommendation:
    """Which mechanism a comparison would take.

    Attributes:
        mechanism: its name.
        configured: the name of the configuration's.
        ratio: its error, divided by that of the configured one.
        words: the same in sentences.
    """

    mechanism: str
    configured: str
    ratio: float
    words: str

    @property
    def stays(self) -> bool:
        """Whether it is the configured one."""
        return self.mechanism == self.configured


@dataclass(frozen=True)
class ComparedMechanisms:
    """What a comparison found; all of it public.

    Attributes:
        errors: of each mechanism on each kind of invented stream; the configured mechanism is the first one.
        left_out: mechanisms that could not be run, with the reason.
        needs: what the file of a mechanism would have to say besides, where it is anything.
        measure: the error that decides: ``AvgWE``, or a distance of the family.
        steps: how many were run. planned: how many the stream has; None: nobody knows.
        runs: how many were done of each. wanted: how many were asked for.
        seconds: the limit of CPU. seed: of all invented streams and all noise.
        recommendation: which one it would take.
    """

    errors: tuple[MechanismErrors, ...]
    left_out: Mapping[str, str]
    needs: Mapping[str, str]
    measure: str
    steps: int
    planned: int | None
    runs: int
    wanted: int
    seconds: float
    seed: int
    recommendation: Recommendation

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Those that were run; the configured one first."""
        return tuple(dict.fromkeys(one.mechanism for one in self.errors))

    @property
    def words(self) -> str:
        """What was done, in sentences."""
        far = f"{self.steps} steps"
        if self.planned is not None and self.planned > self.steps:
            far = f"the first {self.steps} of {self.planned} steps"
        done = f"{self.runs} run{'s' if self.runs > 1 else ''}"
        if self.runs < self.wanted:
            done += f" ({self.wanted} were asked for; {self.seconds:g} seconds of CPU did not do for more)"
        return (
            f"Invented streams of the size in [expect], {far}, {done} of each mechanism, seed {self.seed}. Errors are "
            "means over tenths of the stream. No data were read."
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            **asdict(self),
            "errors": [
                {**asdict(one), "deciding": one.deciding, "spread": one.spread} for one in self.errors
            ],
            "words": self.words,
        }


def recommend(errors: Sequence[MechanismErrors], measure: str) -> Recommendation:
    """The mechanism with the smallest error, where it is smaller by more than ``NO_DIFFERENCE``; else the first one.

    Args:
        errors: those of the configured mechanism first. The kind of stream that comes last decides: it is the one that
            is most like a real table.
    """
    deciding = errors[-1].columns
    own = {one.mechanism: one.deciding for one in errors if one.columns == deciding}
    configured = next(iter(own))
    best = min(own, key=own.__getitem__)
    ratio = _ratio(own[best], own[configured])
    on = f"on {_LIKE[deciding]}"
    if best == configured:
        others = sorted((value, name) for name, value in own.items() if name != configured)
        nearest, second = others[0]
        words = f"{configured} stays: its error ({measure}) is the smallest {on}; {_times(second, nearest, own[best])}."
    elif ratio * (1 + NO_DIFFERENCE) >= 1:
        words = (
            f"{configured} stays: no error ({measure}) is smaller by more than {100 * NO_DIFFERENCE:g} % {on}, which "
            "is no difference."
        )
        best, ratio = configured, 1.0
    else:
        words = f"Take {best}: its error ({measure}) is {100 * ratio:.0f} % of that of {configured} {on}."
    return Recommendation(best, configured, ratio, words + _elsewhere(errors, best, deciding))


def _elsewhere(errors: Sequence[MechanismErrors], chosen: str, deciding: Resemblance) -> str:
    """Where another kind of stream says something else."""
    for kind in dict.fromkeys(one.columns for one in errors):
        own = {one.mechanism: one.deciding for one in errors if one.columns == kind}
        best = min(own, key=own.__getitem__)
        if kind != deciding and _ratio(own[best], own[chosen]) * (1 + NO_DIFFERENCE) < 1:
            return f" It hangs on the columns: on {_LIKE[kind]} {best} would be better."
    return ""


def _times(name: str, error: float, least: float) -> str:
    if least <= 0 or error / least <= 1 + NO_DIFFERENCE:
        return f"{name} is as good within {100 * NO_DIFFERENCE:g} %"
    return f"that of {name} is {error / least:.2g} times as large"


def _ratio(one: float, other: float) -> float:
    if other > 0:
        return one / other
    return 1.0 if one <= 0 else math.inf
