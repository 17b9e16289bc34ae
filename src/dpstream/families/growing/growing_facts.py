"""What a scheduler says of its runs, and what a step gives: the last run's table at the present size; all public."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    UNPACKED,
    NoisyCounts,
    Packed,
    StreamPlan,
    SyntheticTable,
    pack_fields,
    unpack_fields,
)
from dpstream.core.graphical import Model
from dpstream.core.privacy import Budget, Event, PureDP, decimal_text
from dpstream.core.schema.domain import Clique, Domain, Impossible
from dpstream.families.growing.blackbox import BlackBox, LinearQuery
from dpstream.families.growing.run_schedule import (
    MAX_RECORDS,
    Growth,
    Improvement,
    Schedule,
    ScheduledRun,
    stale,
)
from dpstream.families.growing.tables import AnyTable, ModelTable
from dpstream.mechanisms import ModelSynthesis


@dataclass(frozen=True)
class LastRun:
    """The last run; all of it is public.

    Attributes:
        number: how many runs there were.
        t: number of records that it read.
        epochs: the first and the last epoch whose budgets it used.
        cost: of the stream's budget (epsilon or rho).
        spent: by all runs so far.
        alpha: what it promises, as a share of the records; None where nothing is known.
        beta: the probability that it misses that.
    """

    number: int
    t: int
    epochs: tuple[int, int]
    cost: Fraction
    spent: Fraction
    alpha: float | None
    beta: float

    def facts(self) -> dict[str, Any]:
        """JSON-able and exact."""
        exact = {"cost": str(self.cost), "spent": str(self.spent), "epochs": list(self.epochs)}
        return {"number": self.number, "t": self.t, "alpha": self.alpha, "beta": self.beta, **exact}


@dataclass(frozen=True)
class SharesSynthesis(SyntheticTable):
    """A released table at the present size, of which nothing is promised. Numbers of records are shares times ``t``.

    Attributes:
        table: of the last run, or what answers have taught.
        t: number of records now; public.
    """

    table: AnyTable
    t: int
    #: The number of records is public.
    total_error = 0.0

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.table.domain

    @property
    def total(self) -> float:
        """The number of records: public, not estimated."""
        return float(self.t)

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Many marginals at once, flat, in records."""
        return [share * self.t for share in self.table.shares(cliques)]

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """Draw records: public post-processing, repeatable for one seed."""
        return self.table.sample(rows, seed)

    def model(self) -> list[dict[str, Any]] | None:
        """See ``Synthesis.model``."""
        return self._mixture().model() if isinstance(self.table, ModelTable) else None

    def given(self, excluded: Sequence[Impossible]) -> tuple[SyntheticTable, float] | None:
        """See ``SyntheticTable.given``."""
        return (
            self._mixture().given(excluded) if isinstance(self.table, ModelTable) else super().given(excluded)
        )

    def _mixture(self) -> ModelSynthesis:
        assert isinstance(self.table, ModelTable)
        return ModelSynthesis((self.table.model,), self.total)

    def accuracy(self) -> dict[str, Any]:
        """What the manifest says."""
        return {"total_standard_error": 0.0, "measured_every_step": {"standard_error": None, "marginals": []}}

    def pack(self) -> Packed:
        """Arrays and JSON."""
        return pack_fields(self)


@dataclass(frozen=True)
class GrowingSynthesis(SharesSynthesis):
    """The last run's table at the present size; uniform before the first. Between runs only ``t`` changes.

    Attributes:
        made: the last run; None before the first.
        next_run: the size at which the next one is due.
    """

    made: LastRun | None
    next_run: int
    #: See ``Synthesis.noisy_counts``.
    noisy_counts: Sequence[NoisyCounts] = field(default=(), compare=False, repr=False, metadata=UNPACKED)

    @property
    def stale(self) -> float:
        """The most by which a share may have moved since the run."""
        return 1.0 if self.made is None else stale(self.made.t, self.t)

    @property
    def promise(self) -> float | None:
        """Every query of the mechanism's class is answered to within this, as a share; None: nothing is promised."""
        if self.made is None or self.made.alpha is None:
            return None
        bound = self.made.alpha + self.stale
        return bound if bound < 1.0 else None

    def answer(self, query: LinearQuery) -> float:
        """A linear query's share of the records, from the last run.

        Errors:
            ConfigError: the query is about other columns.
        """
        query.check(self.domain)
        return float(query.weights @ self.table.shares([query.clique])[0])

    def accuracy(self) -> dict[str, Any]:
        """What the manifest says: which run this is, what it cost, and what it promises."""
        return {
            **super().accuracy(),
            "records": self.t,
            "next_run_at": self.next_run,
            "run": None if self.made is None else self.made.facts(),
            "stale": self.stale,
            "promise": self.promise,
        }


#: Runs that an explanation shows where nobody asks for more, and at most where somebody does.
_SHOWN_RUNS, _MAX_SHOWN_RUNS = 8, 100_000


@dataclass(frozen=True)
class GrowingFacts(StreamPlan):
    """What a calibrated scheduler says before any data are read; see ``GrowingPlan``."""

    budget: Budget
    unit: Event
    horizon: int | None
    box: BlackBox[Any]
    schedule: Schedule
    word: str

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.box.reads.domain

    @property
    def name(self) -> str:
        """The mechanism's name in configuration files."""
        return self.word

    def runs(self, until: int | None = None, done: int = -1) -> Iterator[ScheduledRun]:
        """The coming runs, each made at the first size of its epoch: up to a size, or without end."""
        coming = self.schedule.coming(done)
        return coming if until is None else takewhile(lambda run: run.t <= until, coming)

    def options(self) -> dict[str, Any]:
        """All options."""
        schedule = self.schedule
        return {
            "black_box": {"name": self.box.name, **self.box.options()},
            "n": schedule.n,
            **schedule.options(),
            "beta": str(schedule.beta),
        }

    def promise(self, run: ScheduledRun) -> float | None:
        """What is promised from this run until the next: its alpha, and how stale it may get; None for nothing."""
        if run.alpha is None:
            return None
        last = max(run.t, self.schedule.time(run.last + 1) - 1)
        bound = run.alpha + stale(run.t, last)
        return bound if bound < 1.0 else None

    def facts(self) -> dict[str, Any]:
        """The first runs; of an improver, which runs at every step, those of steps that double the database."""
        if not isinstance(self.schedule, Improvement):
            return self._facts_of(list(islice(self.runs(), _SHOWN_RUNS)))
        runs, done = list[ScheduledRun](), -1
        for doubling in range(_SHOWN_RUNS):
            run = self.schedule.due(done, self.schedule.n << doubling)
            if run is not None and run.t <= MAX_RECORDS:
                runs.append(run)
                done = run.last
        return self._facts_of(runs, if_steps=True)

    def facts_until(self, records: int) -> dict[str, Any]:
        """All runs up to a number of records, at most 100,000."""
        return self._facts_of(list(islice(self.runs(records), _MAX_SHOWN_RUNS)))

    def _facts_of(self, runs: Sequence[ScheduledRun], *, if_steps: bool = False) -> dict[str, Any]:
        """
        Args:
            if_steps: whether there are these runs only where steps end at their sizes.
        """
        growing = {
            "black_box": self.box.describe(),
            "rule": self._rule(),
            "runs": [self._run_facts(run) for run in runs],
            "first": self._run_facts(next(self.runs())),
            "if_steps": if_steps,
            "classifier": self.classifier_facts(),
        }
        numbers = self.box.numbers()
        if numbers is None:
            return {"growing": growing}
        return {"growing": growing, "noisy_counts": {"first": numbers[0], "most": numbers[1], "at": "runs"}}

    def _run_facts(self, run: ScheduledRun) -> dict[str, Any]:
        return {
            "records": run.t,
            "cost": str(run.cost),
            "left": float(self.schedule.left(run.last)),
            "given": run.budget.as_dict(),
            "beta": float(run.beta),
            "alpha": run.alpha,
            "promise": self.promise(run),
        }

    def classifier_facts(self) -> dict[str, Any] | None:
        """What is guessed, and from which columns; None where a table is released."""
        return None

    def unpack_synthesis(self, packed: Packed) -> Any:
        """The inverse of ``GrowingSynthesis.pack``."""
        return unpack_fields(GrowingSynthesis, packed, **self._given)

    @property
    def _given(self) -> dict[str, Any]:
        """What is not packed, because the plan knows it."""
        return {"domain": self.domain}

    def _synthesis(self, table: Any, t: int, made: LastRun | None, done: int) -> Any:
        following = self.schedule.time(done + 1)
        return GrowingSynthesis(table, t, made, max(following, t + 1))

    def _blank(self) -> Any:
        """What is released before the first run."""
        return ModelTable(Model.uniform(self.domain, 1.0))

    def _rule(self) -> str:
        schedule, amount = self.schedule, decimal_text(self.budget.amount)
        unit = "epsilon" if isinstance(self.budget, PureDP) else "rho"
        if isinstance(schedule, Growth):
            grown = f"whenever the records have grown by a factor of {decimal_text(1 + schedule.gamma)}"
        else:
            grown = "at every step that brings records"
        return f"a run at {schedule.n} records and then {grown}; all together {unit} = {amount} at most"


def last_run(before: LastRun | None, run: ScheduledRun) -> LastRun:
    number, spent = (0, Fraction(0)) if before is None else (before.number, before.spent)
    epochs = (run.first, run.last)
    return LastRun(number + 1, run.t, epochs, run.cost, spent + run.cost, run.alpha, float(run.beta))
