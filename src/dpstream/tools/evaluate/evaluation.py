"""A stream of tables against the private truth, step by step.

Trusted base: owner (compares with the private table).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Event, Randomness, User
from dpstream.core.schema import Categorical, Clique, Schema
from dpstream.core.tables import EncodedBatch, Workload, count_marginals
from dpstream.io.sinks.release_reader import released_alike, released_schema
from dpstream.mechanisms import AIM
from dpstream.mechanisms.grown_tables import grown_workload
from dpstream.stream.templates import said
from dpstream.tools.evaluate.array_types import Codes
from dpstream.tools.evaluate.judgement import Judgement, check_target, judge
from dpstream.tools.evaluate.measures import WORDS, EvaluationProgress
from dpstream.tools.evaluate.metrics import METRICS, SEED, WorkloadErrors, churn, workload_errors
from dpstream.tools.evaluate.private_folder import LABEL
from dpstream.tools.evaluate.run_folder import Folder, released_codes, releases_of
from dpstream.tools.evaluate.trends import ColumnCounts, find_trends
from dpstream.tools.evaluate.true_table import TrueStep, TrueTable, source_ended, true_steps

if TYPE_CHECKING:
    from dpstream.project import Config


def alike_together(counts: NDArray[Any], clique: Clique, schema: Schema) -> NDArray[Any]:
    """A marginal (flat) with ``other`` and ``missing`` in one cell, that of ``missing``, where a released table shows
    both as null."""
    shaped = counts.reshape(schema.domain.shape(clique))
    for axis, column in enumerate(clique):
        if released_alike(schema.columns[column]):
            view = np.moveaxis(shaped, axis, 0)
            view[-1] += view[-2]
            view[-2] = 0
    return shaped.ravel()


def alike_as_missing(codes: Codes, schema: Schema) -> Codes:
    """The same of codes."""
    found = codes.copy()
    for i, column in enumerate(schema.columns):
        if released_alike(column) and column.missing_code is not None:
            found[codes[:, i] == column.other_code, i] = column.missing_code
    return found


@dataclass(frozen=True, eq=False)
class StepEvaluation:
    """One release against the truth of its step.

    Attributes:
        records: of the true table (private).
        rows: of the released table.
        errors: NaN where the true table is empty and there is nothing to divide by.
        churn: mean total variation to the marginals of the release before; None at the first step, where that
            release was not kept, or where one of the two is empty. Public: computed from releases alone.
    """

    step: int
    period: str | None
    records: int
    rows: int
    errors: WorkloadErrors
    churn: float | None


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What ``evaluate_run`` found. Evaluation only, not releasable: ``label`` has to stand beside every number.

    Attributes:
        stream: name of the stream.
        guarantee: what the releases promise, in words, as the last one's manifest has it.
        workload: name of the workload, or how many marginals it has.
        cliques, columns: its marginals, by position and by column names; the order of all errors.
        steps: the evaluated steps, in order.
        released: number of the last released step.
        judgement: what its table is worth, in plain words beside two yardsticks; None where one of the two is empty, or
            where it was not asked for.
        notes: what a reader has to know beside the numbers.
    """

    stream: str
    guarantee: str
    workload: str
    cliques: tuple[Clique, ...]
    columns: tuple[tuple[str, ...], ...]
    steps: tuple[StepEvaluation, ...]
    released: int
    judgement: Judgement | None = None
    notes: tuple[str, ...] = ()
    label: str = field(default=LABEL, init=False)

    @property
    def last(self) -> StepEvaluation:
        """The last evaluated step."""
        return self.steps[-1]

    def among_last(self, last: int = 10) -> tuple[StepEvaluation, ...]:
        """The evaluated steps among the last ``last`` released ones."""
        return tuple(entry for entry in self.steps if entry.step > self.released - last)

    def mean_words(self, last: int = 10) -> str:
        """Which steps ``mean`` is over: fewer than ``last`` where others were asked for."""
        steps = [str(entry.step) for entry in self.among_last(last)]
        return f"mean of the last {last}" if len(steps) == last else f"mean of steps {', '.join(steps)}"

    def mean(self, last: int = 10) -> dict[str, float]:
        """Every metric's mean over the evaluated steps among the last ``last`` released ones.

        Steps without a number are left out; NaN where none has one.
        """
        chosen = self.among_last(last)
        table = np.array([list(entry.errors.as_dict().values()) for entry in chosen]).reshape(
            -1, len(METRICS)
        )
        known = ~np.isnan(table)
        means = [
            float(column[ok].mean()) if ok.any() else float("nan")
            for column, ok in zip(table.T, known.T, strict=True)
        ]
        return dict(zip(METRICS, means, strict=True))

    def worst(self, many: int = 15) -> list[tuple[int, float]]:
        """Positions of the workloads with the largest L1 errors at the last step, and these errors."""
        errors = self.last.errors.l1
        order = [int(i) for i in np.argsort(-errors, kind="stable") if not np.isnan(errors[i])]
        return [(i, float(errors[i])) for i in order[:many]]


def evaluate_run(
    config: Config,
    *,
    out: str | Path | None = None,
    workload: Workload | None = None,
    steps: Sequence[int] | None = None,
    every: int | None = None,
    target: str | None = None,
    judged: bool = True,
    ceiling: bool = True,
    progress: EvaluationProgress | None = None,
) -> Evaluation:
    """Compare a run's releases with the private table that they stand for.

    Guarantee: none. The result holds exact private numbers: it must not be published, and options that are
    chosen by it are outside every guarantee.

    Args:
        config: the run's own configuration file; the truth is read from its source.
        out: where the run left its releases, if elsewhere than the file says.
        workload: marginals to compare; by default those of the mechanism.
        steps: which ones; by default every tenth and the last ten.
        every: instead of ``steps``: every so many, and the last one.
        target: the only column whose prediction from the others is judged; by default each in turn.
        judged: whether to find ``Evaluation.judgement`` as well.
        ceiling: whether to compare that with one offline run on the last private table, too.
        progress: told after every evaluated step.

    Errors:
        ConfigError: no releases, those of another stream or plan, unknown steps, a workload over other
            columns, missing optional packages.
        SchemaError: an unknown target. DataError: a source that cannot be read, or a target that does not vary.
        StepError: a source that ends before the releases do.
        StoreError: damaged releases.

    Cost: one pass over the source; at each evaluated step two tables are read (the step's, and the one before
    for churn) and the new true rows counted; see ``judge`` for the last table. Memory: see ``TrueTable``.
    """
    domain = config.schema().domain
    chosen = config.table_recipe("evaluate").workload if workload is None else workload
    if chosen.domain != domain:
        raise ConfigError("the workload has other columns", where="workload", allowed=", ".join(domain.names))
    position = None if target is None else check_target(config.schema(), target)
    place = config.output.dir if out is None else Path(out)
    folder = releases_of(config, place)
    if not folder.full:
        raise ConfigError("released tables are missing", where=str(place), allowed="one step, or more")
    wanted = choose_steps(folder.full, steps, every)
    if config.schema().open_columns:
        config, chosen = _with_values(config, folder, chosen)
    run = _StepComparison(folder, config.schema(), chosen)
    true = None
    for true in true_steps(config, until=wanted[-1]):
        if true.step in wanted:
            run.compare(true)
            if progress is not None:
                progress(len(run.found), len(wanted))
    if true is None or true.step < wanted[-1]:
        raise source_ended(0 if true is None else true.step, wanted[-1])
    judgement = None
    if judged:
        judgement = _judgement(config, true, run, chosen, position, ceiling=ceiling)
    manifest = folder.manifest_of(wanted[-1])
    option = chosen.as_option()
    return Evaluation(
        stream=config.name,
        guarantee=str(manifest["guarantee"]["words"]),
        workload=option if isinstance(option, str) else f"{len(chosen)} chosen marginals",
        cliques=chosen.cliques,
        columns=tuple(tuple(domain.names[i] for i in clique) for clique in chosen.cliques),
        steps=tuple(run.found),
        released=folder.full[-1],
        judgement=judgement,
        notes=_notes(config, true.table, run.found, manifest, folder.states),
    )


def choose_steps(
    available: Sequence[int], asked: Sequence[int] | None, every: int | None = None
) -> tuple[int, ...]:
    """The steps to evaluate, in order: those asked for, or every tenth and the last ten.

    Args:
        available: steps with released data, in order; at least one.
        asked: which ones. every: or every so many, and the last one.

    Errors:
        ConfigError: none, one without released data, or both arguments.

    >>> choose_steps(range(1, 33), None)
    (10, 20, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32)
    >>> choose_steps(range(1, 33), None, every=13)
    (13, 26, 32)
    """
    last = available[-1]
    if every is not None and (asked is not None or every < 1):
        what = "steps and every are both given" if every >= 1 else f"every {every} steps cannot be done"
        raise ConfigError(what, where="steps", allowed="a list of steps, or every N-th")
    if every is not None:
        return tuple(step for step in available if step % every == 0 or step == last)
    if asked is None:
        return tuple(step for step in available if step % 10 == 0 or step > last - 10)
    missing = sorted(set(asked) - set(available))
    if missing or not asked:
        what = (
            f"released data are missing at step {missing[0]}" if missing else "steps to evaluate are missing"
        )
        first = available[0]
        span = f"step {last}" if first == last else f"steps {first} to {last}"
        full = len(available) == last - first + 1
        raise ConfigError(what, where="steps", allowed=span if full else f"kept ones among {span}")
    return tuple(sorted(set(asked)))


def _with_values(config: Config, folder: Folder, chosen: Workload) -> tuple[Config, Workload]:
    """The configuration and the workload over columns with the values that the releases have, so that the truth has
    them, too, from the first step on."""
    found = {
        column.name: column.found
        for column in released_schema(folder.releases, folder.manifest).columns
        if isinstance(column, Categorical)
    }
    more = {name: len(values) for name, values in found.items()}
    own = config.table_recipe("evaluate")
    recipe = replace(own, workload=grown_workload(own.workload, more, own.max_cells))
    grown = replace(config, recipe=recipe, _schema=config.schema().grown(found))
    return grown, grown_workload(chosen, more, own.max_cells)


class _StepComparison:
    """Compares steps one after the other; remembers the marginals of the last release that was read."""

    def __init__(self, folder: Folder, schema: Schema, workload: Workload) -> None:
        self.found: list[StepEvaluation] = []
        self.columns: list[ColumnCounts] = []
        self._folder, self._schema = folder, schema
        self._cliques = workload.cliques
        self._singles = tuple((i,) for i in range(len(workload.domain)))
        self._before: tuple[int, Sequence[NDArray[Any]]] | None = None
        self._held: tuple[int, Codes] | None = None

    def codes(self, step: int) -> Codes:
        """The released table of a step, shape (rows, columns); ``missing`` where null may mean either bin."""
        if self._held is None or self._held[0] != step:
            self._held = step, released_codes(self._schema, self._folder.releases, step)
        return self._held[1]

    def _marginals(self, step: int, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """Counts of cliques in the released table, flat in C order."""
        return count_marginals(self.codes(step), self._schema.domain, cliques)

    def compare(self, true: TrueStep) -> None:
        """Compare one step with its release, and keep what was found."""
        before = self._earlier(true.step - 1)
        released = self._marginals(true.step, self._cliques)
        truth = self._true(true.table, self._cliques)
        errors = workload_errors(
            truth, [counts.astype(np.float64) for counts in released], true.table.records
        )
        moved = None if before is None else churn(before, released)
        known = None if moved is None or np.isnan(moved) else moved
        rows = len(self.codes(true.step))
        self.found.append(StepEvaluation(true.step, true.period, true.table.records, rows, errors, known))
        self._before = (true.step, released)
        singles = self._true(true.table, self._singles), self._marginals(true.step, self._singles)
        self.columns.append(ColumnCounts(true.step, *(np.concatenate(side) for side in singles)))

    def _true(self, table: TrueTable, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """The truth as a released table can tell it."""
        counts = zip(table.marginals(cliques), cliques, strict=True)
        return [alike_together(one, clique, self._schema) for one, clique in counts]

    def _earlier(self, step: int) -> Sequence[NDArray[Any]] | None:
        if self._before is not None and self._before[0] == step:
            return self._before[1]
        return self._marginals(step, self._cliques) if step in self._folder.full else None


def _judgement(
    config: Config,
    true: TrueStep,
    run: _StepComparison,
    workload: Workload,
    target: int | None,
    *,
    ceiling: bool,
) -> Judgement | None:
    """What the last step's table is worth; None where it, or the private one, is empty."""
    schema = config.schema()
    real, made = alike_as_missing(true.table.rows(), schema), run.codes(true.step)
    if not len(real) or not len(made):
        return None
    own = getattr(config.recipe, "workload", None)
    kept = own if isinstance(own, Workload) else workload

    def offline(table: Codes, rows: int) -> Codes:
        """One run of AIM on the whole table, with a fixed seed so that an evaluation can be repeated; private."""
        # Of other units a record stands for itself.
        unit = config.unit if isinstance(config.unit, Event | User) else Event()
        plan = AIM().calibrate(kept, unit.per_event(config.budget.budget), unit.event)
        batch = EncodedBatch(kept.domain, np.asfortranarray(table))
        return plan.run(batch, "inserts", Randomness.seeded(SEED)).model.sample(rows, SEED)

    trends = find_trends(schema, run.columns)
    return judge(schema, true.step, real, made, trends, offline if ceiling else None, target)


def _notes(
    config: Config,
    table: TrueTable,
    found: Sequence[StepEvaluation],
    manifest: dict[str, Any],
    states: Sequence[tuple[int, str]],
) -> tuple[str, ...]:
    schema, source = config.schema(), config.source_options
    return tuple(
        said(
            WORDS.paragraphs(
                "notes",
                alike=[column.name for column in schema.columns if released_alike(column)],
                test_seed=manifest["made_with_test_seed"],
                base=config.base_options is not None,
                late=source.late,
                left_out=[step for step, state in states if state == "withdrawn"],
                empty=sum(entry.records < 1 for entry in found),
                unmatched=table.unmatched_deletes if source.deletions else 0,
            )
        )
    )
