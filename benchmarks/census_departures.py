"""What a census would gain if it counted who left *by value*: an experiment, not a mechanism of the library.

    python benchmarks/census_departures.py [--streams LIST] [--epsilons LIST] [--repeats 4]
        [--ways LIST] [--named COLUMNS]

Streams as in ``keyed_streams.py``, of real ones the first half only. AvgWE and TV (in brackets) of model marginals, and
the relative error of the number of records, as in ``changing_tables.py``; the mean TV of single columns beside them.

Beside the number of records that left from a level's cohorts, their values are counted, column by column. A stay leaves
once, so that it adds 1 to one cell of each column in one count: with a share q of the budget and d columns, noise of
scale d / (q epsilon) on each cell. What is counted is corrected towards what the plan expects (a variance for each
column, the likeliest of several), taken off the columns of the level's cohorts, and their models are raked to the rest.

* as it is: a tenth of the budget for numbers, at censuses.
* 1/5: all columns with that share, and a twentieth for numbers, at censuses; "each step": at every step.
* named: only some columns, which we chose by looking at true errors of these streams; an owner may know them.
* exact: values without noise, and for nothing: what this estimator would reach. NOT private.

The values are those that a record had last; what an update changed since its census is a bias of the estimate only.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from changing_tables import measure, moments
from keyed_streams import KeyedStream, is_there, load

from dpstream.core.graphical import Model
from dpstream.core.privacy import Randomness
from dpstream.core.privacy.noise import noise_for
from dpstream.core.tables import PresentBatch, PresentView, Workload
from dpstream.families.census import Census, CensusPlan
from dpstream.families.census.census_release import CensusSynthesis, mixture
from dpstream.families.census.census_schedule import last_of
from dpstream.families.census.census_state import CensusState
from dpstream.families.census.census_words import Told
from dpstream.families.census.cohorts import Cohort

LONG = "about twenty minutes"

STREAMS = ("hotel:week", "stock:50000:12:60", "stock:5000:60:200")
#: How far departures by value differ from what is expected, in parts of it; a column has the likeliest.
SPREADS = np.array([0.0, 0.1, 0.3, 1.0, 3.0])
#: Rounds of raking, and the least part of a cell that stays.
ROUNDS, LEAST = 3, 1e-3
NAMED = {
    "hotel:week": ("arrival_month", "lead_days", "rate", "market_segment"),
    "stock": ("region", "sector", "legal_form"),
}


@dataclass(frozen=True)
class Way:
    """One way to count departures: shares of the budget for numbers and for values."""

    name: str
    number: Fraction
    values: Fraction
    named: bool = False
    each_step: bool = False
    exact: bool = False


WAYS = (
    Way("as it is", Fraction(1, 10), Fraction(0)),
    Way("numbers at each step", Fraction(1, 10), Fraction(0), each_step=True),
    Way("1/10", Fraction(1, 20), Fraction(1, 10)),
    Way("1/5", Fraction(1, 20), Fraction(1, 5)),
    Way("1/5 each step", Fraction(1, 20), Fraction(1, 5), each_step=True),
    Way("1/10 named", Fraction(1, 20), Fraction(1, 10), named=True),
    Way("1/10 named, each step", Fraction(1, 20), Fraction(1, 10), named=True, each_step=True),
    Way("exact", Fraction(1, 10), Fraction(1, 1000), exact=True),
    Way("exact, each step", Fraction(1, 10), Fraction(1, 1000), exact=True, each_step=True),
)


@dataclass
class ValueState(CensusState):
    """Beside a census's own: values of who left at this step, counts of them by level, likelihoods, the last count."""

    gone: Any = None
    by_value: dict[int, np.ndarray] = field(default_factory=dict)
    spreads: Any = None
    counted_at: int = 0


class ByValue(CensusPlan):
    """A census that counts departures by value, too."""

    way: Way
    columns: tuple[int, ...]

    @property
    def starts(self) -> list[int]:
        """Where each column's cells begin."""
        return np.concatenate([[0], np.cumsum(self.domain.sizes)]).tolist()

    def start(self) -> ValueState:
        state = ValueState(**vars(super().start()))
        state.spreads = np.zeros((len(self.domain.sizes), len(SPREADS)))
        return state

    def step(self, state: Any, batch: Any, randomness: Randomness) -> CensusSynthesis:
        present = batch.present
        state.step += 1
        self.note_departures(state, present)
        level = self.schedule.level(state.step, state.last)
        if level is not None or self.way.each_step:
            self.count_departures(state, randomness)
        if level is not None:
            self.books.enter(state, level, self.take_census(state, level, present, randomness))
        steps, parts = state.step - state.counted_at, []
        for cohort in state.cohorts:
            stays = state.totals[cohort.level].staying(steps)
            parts.append((self.books.left_of(state, cohort, steps), cohort.size * stays))
        since = state.step - last_of(state.last, 0)
        if since:
            hazard = math.exp(state.totals[0].log_hazard)
            parts.append((state.latest[0], state.newcomers.present(hazard, since)[0]))
        told = Told(self.terms).accuracy(state.step, 0.0, None)
        return mixture(parts, sum(number for _, number in parts), None, told)

    def note_departures(self, state: Any, present: Any) -> None:
        super().note_departures(state, present)
        cells = np.array(self.starts[:-1]) + state.gone
        for cohort in state.cohorts:
            held = (present.departed > cohort.low) & (present.departed <= cohort.high)
            own = np.bincount(cells[held].ravel(), minlength=self.starts[-1])
            state.by_value[cohort.level] = state.by_value.get(cohort.level, 0.0) + own

    def count_departures(self, state: Any, randomness: Randomness) -> None:
        noise, steps = noise_for(self.budget.scaled(self.way.number), 1, 1), state.step - state.counted_at
        state.counted_at = state.step
        for level in sorted({cohort.level for cohort in state.cohorts}):
            found = self.noisy(state.left[level], noise, randomness)
            state.left[level], own = 0, state.totals[level]
            before = [cohort for cohort in state.cohorts if cohort.level == level]
            kept = own.count(steps, float(found), noise.variance, full=True)
            after = [cohort.after(kept, own.exposure(steps)) for cohort in before]
            values = state.by_value[level]
            if self.way.values:
                after = self._without(state, before, after, values, randomness)
            others = [cohort for cohort in state.cohorts if cohort.level != level]
            state.cohorts = sorted([*others, *after], key=lambda cohort: cohort.low)
            number, spread = state.counted[level]
            state.counted[level] = (number - found, spread + noise.variance)
        state.by_value.clear()

    def _without(
        self,
        state: Any,
        before: list[Cohort],
        after: list[Cohort],
        values: np.ndarray,
        randomness: Randomness,
    ) -> list[Cohort]:
        """The cohorts of a level without those whose values were counted."""
        variance = 1.0
        if not self.way.exact:
            # One record changes one cell of each column: by 1 each, len(columns) together.
            noise = noise_for(self.budget.scaled(self.way.values), len(self.columns), len(self.columns))
            values, variance = values + randomness.draw(noise, len(values)), noise.variance
        aged = [state.attrition.aged(cohort.model, cohort.exposure) for cohort in after]
        were = [state.attrition.aged(cohort.model, cohort.exposure) for cohort in before]
        sizes, whole = [cohort.size for cohort in after], sum(cohort.size for cohort in after)
        left = sum(cohort.size for cohort in before) - whole
        if left <= 0.0:
            return after
        wanted = {}
        for column in self.columns:
            place = slice(self.starts[column], self.starts[column + 1])
            there = together(were, [cohort.size for cohort in before], column)
            expected = np.clip(there - together(aged, sizes, column), LEAST * there, there)
            expected *= left / expected.sum()
            there = np.maximum(there, expected)
            # The number that left is known better than from any column.
            surprise = values[place] + (left - values[place].sum()) / len(expected) - expected
            unlike = expected**2 * np.clip(1.0 - expected / np.maximum(there, 1e-9), 0.05, 1.0)
            seen = SPREADS[:, None] ** 2 * unlike + expected + variance
            state.spreads[column] -= 0.5 * (np.log(seen) + surprise**2 / seen).sum(axis=1)
            own = SPREADS[state.spreads[column].argmax()] ** 2 * unlike
            if own.any():
                gone = np.clip(expected + own / (own + variance) * surprise, 0.0, there)
                stays = np.maximum(there - gone, LEAST * there)
                wanted[column] = stays * whole / stays.sum()
        tilt, models = np.zeros(len(values)), aged
        for _ in range(ROUNDS):
            for column, target in wanted.items():
                now = together(models, sizes, column)
                move = np.log(np.maximum(target, 1e-9) / np.maximum(now, 1e-9))
                tilt[self.starts[column] : self.starts[column + 1]] += np.clip(move, -4.0, 4.0)
                models = [tilted(model, tilt) for model in aged]
        return [self._tilted(cohort, tilt) for cohort in after]

    def _tilted(self, cohort: Cohort, tilt: np.ndarray) -> Cohort:
        model, cliques = tilted(cohort.model, tilt), self.followed.cells.cliques
        now, then = (np.concatenate(m.with_total(1.0).marginals(cliques)) for m in (model, cohort.model))
        return replace(cohort, model=model, shares=(cohort.shares + (now - then)).astype(np.float32))


def together(models: Sequence[Model], sizes: Sequence[float], column: int) -> np.ndarray:
    """A column of several models in these numbers."""
    parts = [
        model.with_total(size).marginals([(column,)])[0] for model, size in zip(models, sizes, strict=True)
    ]
    return np.sum(parts, axis=0)


def tilted(model: Model, tilt: np.ndarray) -> Model:
    """A model times exp(tilt) for each value."""
    potentials = model.potentials.copy()
    potentials[: len(tilt)] += tilt
    return Model(model.tree, potentials, model.total, cliques=model.cliques, report=model.report)


def run(stream: KeyedStream, way: Way, epsilon: str, repeat: int, named: Sequence[str]) -> dict[str, float]:
    """Mean errors of one run."""
    workload = Workload.all_k_way(stream.domain, 2)
    last = stream.steps // 2 if stream.real else stream.steps
    first = max(1, math.ceil(stream.steps / 10))
    compared = set(range(first, last + 1, max(1, (stream.steps - first) // 30)))
    turnover = Fraction(stream.size) / Fraction(stream.records_per_step)
    recipe = Census(workload, turnover=turnover, departures_share=way.number + way.values)
    known = recipe.calibrate(epsilon=epsilon, horizon=stream.steps)
    plan = ByValue(recipe, known.budget, known.unit, known.horizon)
    names = (named or NAMED[stream.name if stream.real else "stock"]) if way.named else stream.domain.names
    object.__setattr__(plan, "way", way)
    object.__setattr__(plan, "columns", tuple(stream.domain.names.index(name) for name in names))
    state, randomness = plan.start(), Randomness.seeded(f"{stream.name} census {epsilon} {repeat}")
    singles, found = [(i,) for i in range(len(stream.domain.sizes))], []
    for step, moment in moments(stream, last, compared):
        place, there = moment.before.find(moment.changes.keys)
        state.gone = moment.before.codes[place[there & ~moment.changes.present]].astype(np.int64)
        release = plan.step(state, PresentBatch(PresentView(moment.after, moment.departed)), randomness)
        if moment.compared and len(moment.after):
            own = measure(release, moment.after, workload, step)
            pairs = zip(moment.after.count(singles, 0), release.marginals(singles), strict=True)
            apart = [0.5 * np.abs(true / true.sum() - made / made.sum()).sum() for true, made in pairs]
            found.append(own | {"columns": float(np.mean(apart))})
    return {key: float(np.mean([one[key] for one in found])) for key in found[0]}


def main() -> None:
    """Run all, then print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", nargs="+", default=list(STREAMS))
    parser.add_argument("--epsilons", nargs="+", default=["1", "2"])
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--named", nargs="+", help="columns of the ways that count named ones")
    parser.add_argument("--ways", nargs="+", default=[way.name for way in WAYS])
    chosen = parser.parse_args()
    print("| stream | epsilon | departures by value | AvgWE (TV) | columns | number |\n|" + "---|" * 6)
    for name in chosen.streams:
        if not is_there(name):
            print(f"{name}: skipped, the data are not here (DPSTREAM_DATA)", flush=True)
            continue
        for epsilon in chosen.epsilons:
            for way in (way for way in WAYS if way.name in chosen.ways):
                runs = [
                    run(load(name, repeat), way, epsilon, repeat, chosen.named)
                    for repeat in range(chosen.repeats)
                ]
                mean = {key: np.mean([one[key] for one in runs]) for key in runs[0]}
                cells = f"{mean['we_model']:.4f} ({mean['tv_model']:.3f})"
                rest = f"{mean['columns']:.3f} | {mean['total']:.3f}"
                print(f"| {name} | {epsilon} | {way.name} | {cells} | {rest} |", flush=True)


if __name__ == "__main__":
    main()
