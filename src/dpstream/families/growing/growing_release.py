"""What one step of a growing database gives: the last run's table, for the public number of records now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts, Packed, SyntheticTable
from dpstream.core.schema.domain import Clique, Domain
from dpstream.families.growing.blackbox import LinearQuery
from dpstream.families.growing.distributions import AnyTable, answer, unpack_table
from dpstream.families.growing.run_schedule import stale


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

    def pack(self) -> dict[str, Any]:
        """JSON-able and exact."""
        exact = {"cost": str(self.cost), "spent": str(self.spent), "epochs": list(self.epochs)}
        return {"number": self.number, "t": self.t, "alpha": self.alpha, "beta": self.beta, **exact}

    @classmethod
    def unpack(cls, meta: Mapping[str, Any]) -> LastRun:
        """The inverse of ``pack``."""
        first, last = meta["epochs"]
        amounts = Fraction(meta["cost"]), Fraction(meta["spent"])
        return cls(meta["number"], meta["t"], (first, last), *amounts, meta["alpha"], meta["beta"])


@dataclass(frozen=True)
class GrowingSynthesis(SyntheticTable):
    """The last run's table at the present size.

    Shares of records are the run's; numbers of records are shares times ``t``, which is public. Between runs only
    ``t`` changes.

    Attributes:
        table: of the last run; the uniform distribution before the first.
        t: number of records now.
        made: the last run; None before the first.
        n: the size at which the first run is made.
        next_run: the size at which the next one is due.
    """

    table: AnyTable
    t: int
    made: LastRun | None
    n: int
    next_run: int
    #: See ``Synthesis.noisy_counts``.
    noisy_counts: Sequence[NoisyCounts] = field(default=(), compare=False, repr=False)
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
        """A linear query's share of the records, from the last run."""
        return answer(self.table, query)

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Many marginals at once, flat, in records."""
        return [share * self.t for share in self.table.shares(cliques)]

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """Draw records: public post-processing, repeatable for one seed."""
        return self.table.sample(rows, seed)

    def accuracy(self) -> dict[str, Any]:
        """What the manifest says: which run this is, what it cost, and what it promises."""
        facts: dict[str, Any] = {
            "total_standard_error": 0.0,
            "measured_every_step": {"standard_error": None, "marginals": []},
            "records": self.t,
            "next_run_at": self.next_run,
            "run": None,
            "stale": self.stale,
            "promise": self.promise,
        }
        if self.made is None:
            words = (
                f"Nothing yet: the first run is made at {self.n} records. The table is uniform and says nothing about "
                "the data."
            )
            return {**facts, "words": words}
        made = self.made
        return {**facts, "run": made.pack(), "words": f"{self._run_words(made)} {self._promise_words(made)}"}

    def _run_words(self, made: LastRun) -> str:
        if made.t == self.t:
            return f"Run {made.number} on all {self.t} records."
        return (
            f"Run {made.number} was made at {made.t} records and is repeated at {self.t}: a share may have moved by "
            f"{self.stale:.3g} since. The next run is due at {self.next_run} records."
        )

    def _promise_words(self, made: LastRun) -> str:
        if made.alpha is None:
            return "The mechanism promises no accuracy."
        if self.promise is None:
            return f"Theory promises nothing here (its bound is {made.alpha + self.stale:.3g}, and shares are below 1)."
        return (
            f"Every query that the mechanism is made for is answered to within {self.promise:.3g} of the records, "
            f"but for a probability of {made.beta:.3g}."
        )

    def pack(self) -> Packed:
        """Arrays and JSON."""
        packed = self.table.pack()
        made = None if self.made is None else self.made.pack()
        meta = {"table": packed.meta, "t": self.t, "made": made, "n": self.n, "next_run": self.next_run}
        return Packed(meta, packed.arrays)

    @classmethod
    def unpack(cls, packed: Packed) -> GrowingSynthesis:
        """The inverse of ``pack``."""
        meta = packed.meta
        table = unpack_table(Packed(meta["table"], packed.arrays))
        made = None if meta["made"] is None else LastRun.unpack(meta["made"])
        return cls(table, meta["t"], made, meta["n"], meta["next_run"])
