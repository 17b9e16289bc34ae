"""Which mechanism fits a stream, before it begins (``dpstream plan --compare``): a race on invented streams.

A family says which recipes could take a configuration's place (``Family.alternatives``), and how a stream is imagined
from the public guesses in ``[expect]`` (``FamilySimulation.imagine``). Each of them is calibrated to the same guarantee
and runs on the same imagined streams; what it releases is compared with them over tenths of the stream.

* It reads no data: the configuration, and the public table that the stream begins with, if there is one.
* Equal seeds give equal results, as far as equally many runs are done; a limit of CPU decides how many.
* The guarantee is the same for all: where a mechanism protects single events and the configured one a whole stay, its
  events share the budget (group privacy).
* Differences up to 10 % count as none, and then the configured mechanism stays.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpstream.core.contracts import Alternative, ExpectedTable
from dpstream.core.errors import ConfigError, DpstreamError, did_you_mean
from dpstream.core.privacy import Randomness, Record, User
from dpstream.families.registry import family_of, mechanisms
from dpstream.project.config import Config
from dpstream.project.keys import section_of
from dpstream.project.public_knowledge import check_taken, of_stays
from dpstream.project.schema_file import load_toml
from dpstream.project.sections import read_recipe
from dpstream.stream.release.verdicts import LITTLE
from dpstream.tools.errors.contract import (
    FamilySimulation,
    Guess,
    InventedTable,
    Observation,
    Resemblance,
    check_number,
    seed_of,
)
from dpstream.tools.errors.simulation import observations
from dpstream.tools.evaluate.metrics import workload_errors
from dpstream.tools.family_tools import tool_of


@dataclass(frozen=True)
class Contender:
    """A way to run the stream.

    Attributes:
        label: what it is called.
        config: the configuration with this mechanism: the same guarantee, stream and places. None where it cannot be.
        needs: what else the file would have to say; empty: nothing.
        why_not: why it cannot be; empty where it can.
    """

    label: str
    config: Config | None
    needs: str = ""
    why_not: str = ""


def contenders(config: Config, wanted: Sequence[str] = ()) -> tuple[Contender, ...]:
    """The configuration itself, then what its family says could take its place.

    Args:
        wanted: labels of those that are looked at beside the configured one; empty: all.

    Errors:
        ConfigError: an unknown mechanism, or none to compare with.
    """
    name = config.plan().name
    offered = config.family.alternatives
    listed = () if offered is None else offered(config.recipe, config.unit)
    own = Contender(name, config)
    found = [(one, _contender(config, one)) for one in listed]
    for _, made in found:
        # Else it would be named as left out, and the comparison as one without the configured mechanism.
        if made.label == name and made.config is None:
            raise _not_compared(
                config, f"the configured mechanism {name!r} cannot be compared: {made.why_not}"
            )
    others = {one.label: made for one, made in found if made.config is None or not _same(made.config, config)}
    if not others:
        raise _not_compared(config, f"no other mechanism publishes the same as {name!r}")
    # One word stands for all variants of a mechanism.
    known = {*others, *(one.mechanism for one, _ in found)}
    for word in wanted:
        if word not in known:
            what = f"the mechanism {word!r} cannot take the place of {name!r}"
            if word not in mechanisms():
                what = f"unknown mechanism {word!r}{did_you_mean(word, sorted(known))}"
            raise ConfigError(what, where="--against", allowed=", ".join([name, *others]))
    chosen = {
        word: made
        for word, made in others.items()
        if not wanted or word in wanted or word.partition(" (")[0] in wanted
    }
    if not chosen:
        raise ConfigError(
            f"nothing is left to compare with {name!r}",
            where="--against",
            allowed=", ".join(others),
        )
    return (own, *chosen.values())


def _same(one: Config, other: Config) -> bool:
    plan, known = one.plan(), other.plan()
    return plan.name == known.name and plan.options() == known.options()


def _contender(config: Config, one: Alternative) -> Contender:
    try:
        made = _with(config, one)
        made.plan()
    except DpstreamError as error:
        return Contender(one.label, None, one.needs, error.what)
    return Contender(one.label, made, one.needs)


def _with(config: Config, one: Alternative) -> Config:
    """The configuration with another recipe.

    Errors:
        DpstreamError: it cannot be; its sentence says why.
    """
    file, document = str(config.path), load_toml(config.path)
    written = document.get("mechanism", {})
    family, chosen = family_of(one.mechanism), written.get("name", config.plan().name)
    known = {key.name for key in family.keys if one.mechanism in key.mechanisms}
    kept = [key for key in written if key in known and (chosen == one.mechanism or key in one.keeps)]
    options: dict[str, Any] = {"name": one.mechanism, **{key: written[key] for key in kept}, **one.options}
    unit, budget = one.unit or config.unit, config.budget
    if one.events > 1:
        # What each of some events may cost, so that all of them together cost the budget (group privacy).
        each = User(one.events, cut_share=Fraction(0)).per_event(budget.budget)
        budget = replace(budget, budget=each, stated=None)
    context = replace(
        config.context, budget=budget.budget, stated=budget.stated, **of_stays(config.expected, unit)
    )
    recipe = read_recipe(section_of(file, "mechanism", options), context)
    # A season is a guess, which another mechanism may do without.
    check_taken(file, replace(context, season=None), recipe)
    return replace(config, recipe=recipe, family=family, unit=unit, budget=budget, context=context)


#: Errors that differ by less than this share of the smaller one count as equal: other invented tables, and other noise,
#: move them as much.
NO_DIFFERENCE = 0.10

_LIKE: Mapping[str, str] = {
    "uniform": "uniform, independent columns",
    "correlated": "skewed, dependent columns",
    "like the base": "columns like the first table",
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
        trivial: the same errors of a table without records, and of one with the number of records that the configured
            mechanism released, all alike; empty where another distance decides.
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
    trivial: tuple[MechanismErrors, ...]

    @property
    def words(self) -> str:
        """What was done, in sentences."""
        far = f"{self.steps} steps"
        if self.planned is not None and self.planned > self.steps:
            far = f"the first {self.steps} of {self.planned} steps"
        done = f"{self.runs} run{'s' if self.runs > 1 else ''}"
        if self.runs < self.wanted:
            done += f" of {self.wanted}, in {self.seconds:g} s of CPU,"
        return f"Invented streams of the expected size, {far}, {done} of each mechanism, seed {self.seed}."

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            **asdict(self),
            **{
                name: [{**asdict(one), "deciding": one.deciding, "spread": one.spread} for one in listed]
                for name, listed in (("errors", self.errors), ("trivial", self.trivial))
            },
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
        words = f"{configured} stays: other errors ({measure}) are at most {100 * NO_DIFFERENCE:g} % smaller {on}."
        best, ratio = configured, 1.0
    else:
        words = f"Take {best}: its error ({measure}) is {100 * ratio:.0f} % of that of {configured} {on}."
    return Recommendation(best, configured, ratio, words + _elsewhere(errors, best, deciding))


def _says_little(recommended: Recommendation, errors: Iterable[MechanismErrors]) -> Recommendation:
    """With a sentence more, where a uniform table is as good (``NO_DIFFERENCE``); ``errors``: with trivial tables."""
    own = {one.mechanism: one.avg_we for one in errors}
    if own.get("uniform", math.inf) > own[recommended.mechanism] * (1 + NO_DIFFERENCE):
        return recommended
    return replace(recommended, words=f"{recommended.words} {LITTLE}")


def _elsewhere(errors: Sequence[MechanismErrors], chosen: str, deciding: Resemblance) -> str:
    """Where another kind of stream says something else."""
    for kind in dict.fromkeys(one.columns for one in errors):
        own = {one.mechanism: one.deciding for one in errors if one.columns == kind}
        best = min(own, key=own.__getitem__)
        if kind != deciding and _ratio(own[best], own[chosen]) * (1 + NO_DIFFERENCE) < 1:
            return f" On {_LIKE[kind]} {best} would be better."
    return ""


def _times(name: str, error: float, least: float) -> str:
    if least <= 0 or error / least <= 1 + NO_DIFFERENCE:
        return f"{name} is as good within {100 * NO_DIFFERENCE:g} %"
    return f"that of {name} is {error / least:.2g} times as large"


def _ratio(one: float, other: float) -> float:
    if other > 0:
        return one / other
    return 1.0 if one <= 0 else math.inf


#: Steps that are run where nothing else is said: what comes later changes little of which mechanism is better.
MAX_STEPS = 100
#: More runs, and more records, are never needed to tell 10 % from nothing.
_MAX_RUNS, _MAX_RECORDS = 100, 1_000_000
#: Records times steps, where each step holds them all.
_MAX_FOLLOWED = 20_000_000
_TENTHS = 10
#: What needs no mechanism.
_TRIVIAL = ("empty", "uniform")
#: Errors that every family has: of a cell, of shares, of the number of records. Others are its distances.
AVG_WE, _TV, _TOTAL = "AvgWE", "AvgTV", "total"
#: The errors of one run by their names: means over tenths of the stream.
_Errors = Mapping[str, float]


def compare_mechanisms(
    config: Config,
    *,
    against: Sequence[str] = (),
    runs: int = 5,
    seconds: float = 60,
    steps: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> ComparedMechanisms:
    """Run the mechanisms that could run a stream on invented streams of the size in ``[expect]``. Reads no data.

    Args:
        against: mechanisms to compare the configured one with; empty: all that could take its place.
        runs: how many of each, each on a table of its own; equal runs of all mechanisms are on the same one.
        seconds: of CPU of this process: no further run of all mechanisms is begun that would not end before.
        steps: how many are run; None: as many as the stream has, by its horizon or its last day, ``MAX_STEPS`` at
            most.
        seed: of an ordinary generator; equal seeds give equal results, for as many runs as are done.
        progress: told how many runs are done, and how many there will be.

    Errors:
        ConfigError: no ``[expect]``, an unknown mechanism or none to compare with, or a stream too large to be
        invented. ComparisonTooLongError: a limit too small for one run of each.
    """
    check_number(runs, "runs", "--compare", 1, _MAX_RUNS)
    check_number(seed, "seed", "--compare", 0, 2**63 - 1)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise ConfigError(f"seconds = {seconds!r}", where="--compare", allowed="a number above 0")
    if config.expected is None:
        raise ConfigError(
            "the table's size is missing",
            where=str(config.path),
            allowed="[expect] with size and records_per_step"
            + (", not [mechanism] turnover" if isinstance(config.unit, Record) else ""),
        )
    chosen = contenders(config, against)
    far, planned = _steps(config, steps)
    table = config.expected
    check_size(config, table, far)
    runnable = [one for one in chosen if one.config is not None]
    left_out = {one.label: one.why_not for one in chosen if one.config is None}
    _left(config, runnable, left_out)
    race = _Race(config, table, far, seed, seconds)
    rounds: list[dict[tuple[str, Resemblance], _Errors]] = []
    each = len(runnable) * len(race.kinds)
    tell = progress or (lambda done, wanted: None)
    tell(0, runs * each)
    while len(rounds) < runs and not race.would_be_late(len(rounds)):
        rounds.append(race.round(len(rounds), runnable, left_out, lambda done: tell(done, runs * each)))
    names = _left(config, runnable, left_out)
    measure = race.tool.distance or AVG_WE
    errors, trivial = (
        tuple(
            _together(name, kind, [one[name, kind] for one in rounds], measure)
            for kind in race.kinds
            for name in listed
        )
        for listed in (names, () if race.tool.distance else _TRIVIAL)
    )
    return ComparedMechanisms(
        errors,
        left_out,
        {one.label: one.needs for one in runnable if one.needs},
        measure,
        far,
        planned,
        len(rounds),
        runs,
        seconds,
        seed,
        _says_little(recommend(errors, measure), [*errors, *trivial]),
        trivial,
    )


class _Race:
    """The runs of all mechanisms, under one limit of CPU."""

    def __init__(self, config: Config, table: ExpectedTable, steps: int, seed: int, seconds: float) -> None:
        self._table, self._steps, self._seed, self._seconds = table, steps, seed, seconds
        self._began = time.process_time()
        base = config.base()
        self._base = None if base is None else base.table()
        own: tuple[Resemblance, ...] = ("uniform", "correlated")
        self.kinds = own if self._base is None else (*own, "like the base")
        self.tool = tool_of("simulation", FamilySimulation, config.family)

    def would_be_late(self, rounds: int) -> bool:
        """Whether a further round would end after the limit, if it took as long as those before."""
        spent = time.process_time() - self._began
        return rounds > 0 and spent + spent / rounds > self._seconds

    def round(
        self,
        before: int,
        runnable: Sequence[Contender],
        left_out: dict[str, str],
        tell: Callable[[int], None],
    ) -> dict[tuple[str, Resemblance], _Errors]:
        """One run of each mechanism on each kind of stream; one that refuses the stream is left out from then on.

        Args:
            before: how many rounds are done. tell: gets how many runs are done.
        """
        found: dict[tuple[str, Resemblance], _Errors] = {}
        pairs = [(kind, one) for kind in self.kinds for one in runnable]
        for place, (kind, one) in enumerate(pairs, start=before * len(pairs) + 1):
            if one.label not in left_out:
                try:
                    made = self._run(one, kind, before + 1)
                    found |= {(name, kind): made[name] for name in _TRIVIAL if one is runnable[0]}
                    found[one.label, kind] = made["released"]
                except ComparisonTooLongError:
                    raise
                except DpstreamError as error:
                    if one is runnable[0]:
                        raise
                    left_out[one.label] = error.what
            tell(place)
        return found

    def _run(self, one: Contender, kind: Resemblance, number: int) -> Mapping[str, _Errors]:
        """The errors of what was released, and of trivial tables beside it."""
        config = one.config
        assert config is not None
        tool = tool_of("simulation", FamilySimulation, config.family)
        if tool.imagine is None:
            raise _not_compared(config, f"{config.family.noun} cannot be invented")
        compared = sorted({-(-self._steps * tenth // _TENTHS) for tenth in range(1, _TENTHS + 1)})
        seed = seed_of(self._seed, number, kind)
        guess = Guess(self._table, self._steps, tuple(compared), kind, self._base, seed)
        invented = tool.imagine(config, guess)
        truth = {step: table for step, table in invented.truth.items() if table.table.total > 0}
        invented = replace(invented, base=self._base, truth=truth)
        randomness = Randomness.seeded(f"comparing {self._seed} {number} {kind} {one.label}")
        errors: dict[str, list[_Errors]] = {name: [] for name in ("released", *_TRIVIAL)}
        for step, observed in observations(config, tool, invented, randomness, self._seed, number, kind):
            # Only the first round may be too long: whether there is time for another is asked before it begins.
            if number == 1 and time.process_time() - self._began > self._seconds:
                raise ComparisonTooLongError(
                    f"{self._seconds:g} s of CPU are too few for {self._steps} steps of each mechanism",
                    where="--compare",
                    allowed="more --seconds, fewer --steps, or fewer --against",
                )
            if observed is not None:
                for name, found in _errors(observed, truth[step]).items():
                    errors[name].append(found)
        return {name: _mean(found) for name, found in errors.items()}


class ComparisonTooLongError(ConfigError):
    """The limit of CPU does not do for one run of each mechanism."""


def _left(config: Config, runnable: Sequence[Contender], left_out: Mapping[str, str]) -> list[str]:
    """The labels of those that are not left out; ConfigError where it is only one."""
    names = [one.label for one in runnable if one.label not in left_out]
    if len(names) < 2:
        why = "; ".join(f"{name}: {what}" for name, what in left_out.items())
        raise _not_compared(config, f"other mechanisms cannot run the stream ({why})")
    return names


def _not_compared(config: Config, what: str) -> ConfigError:
    return ConfigError(what, where=str(config.path), allowed="plan without --compare")


def _steps(config: Config, steps: int | None) -> tuple[int, int | None]:
    """How many steps are run, and how many the stream has, where its file says so."""
    horizon = config.budget.horizon
    ends = (horizon, config.source_options.final_step())
    planned = min((end for end in ends if end is not None), default=None)
    if steps is None:
        return min(MAX_STEPS, planned or MAX_STEPS), planned
    check_number(steps, "steps", "--compare", 1, 10**6)
    if horizon is not None and steps > horizon:
        raise ConfigError(
            f"step {steps} lies beyond the horizon", where="--steps", allowed=f"a step up to {horizon}"
        )
    return steps, planned


def check_size(config: Config, table: ExpectedTable, steps: int) -> None:
    """ConfigError for a stream of more records than are invented."""
    grows, steady = table.change == "grows", table.change == "steady"
    records = table.size_at(steps) if grows else float(table.size)
    # Where records are followed, each step holds all of them.
    most = min(_MAX_RECORDS, _MAX_FOLLOWED // steps) if steady else _MAX_RECORDS
    if records > most:
        raise ConfigError(
            f"the stream has {records:,.0f} records; {most:,} at most can be invented for {steps} steps",
            where=f"{config.path} [expect]",
            allowed="fewer --steps, a smaller table" if grows or steady else "a smaller table",
        )


def _errors(observed: Observation, truth: InventedTable) -> Mapping[str, _Errors]:
    """The errors of a release, and of trivial tables."""
    widest = max(len(clique) for clique in truth.cliques)
    cliques = [clique for clique in truth.cliques if len(clique) == widest]
    real, made = (one.marginals(truth.domain, cliques) for one in (truth.table, observed))
    size, total = truth.table.total, observed.total
    alike = [np.full(len(counts), total / len(counts)) for counts in real]
    tables = {
        "released": (total, made),
        "empty": (0.0, [0 * counts for counts in real]),
        "uniform": (total, alike),
    }
    found = {}
    for name, (records, marginals) in tables.items():
        errors = workload_errors(
            [counts.astype(np.int64) for counts in real], marginals, max(1, round(size))
        ).as_dict()
        found[name] = {AVG_WE: errors[AVG_WE], _TV: errors[_TV], _TOTAL: abs(records - size) / size}
    found["released"] |= observed.distances
    return found


def _mean(errors: Sequence[_Errors]) -> _Errors:
    names = sorted({AVG_WE, _TV, _TOTAL}.union(*errors))
    values = {name: [one[name] for one in errors if name in one] for name in names}
    return {name: float(np.mean(known)) if known else 0.0 for name, known in values.items()}


def _together(name: str, kind: Resemblance, runs: Sequence[_Errors], measure: str) -> MechanismErrors:
    whole = dict(_mean(runs))
    deciding = tuple(one.get(measure, math.inf) for one in runs)
    return MechanismErrors(name, kind, whole.pop(AVG_WE), whole.pop(_TV), whole.pop(_TOTAL), whole, deciding)
