"""What the baseline stream says before any data are read, and its synthetic table: all of it public."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    ExpectedErrors,
    ExpectedTable,
    Nested,
    Packed,
    StartTable,
    StreamPlan,
    check_words,
    option,
)
from dpstream.core.contracts.expectations import check_steps, with_table
from dpstream.core.graphical import Model
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.unit import EventUnit
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload
from dpstream.mechanisms import options
from dpstream.mechanisms.aim import AIM
from dpstream.mechanisms.description import TICKS, table_facts
from dpstream.mechanisms.mwem_pgm import MWEMPGM, MWEMPGMPlan, OfflineMechanism, OfflinePlan
from dpstream.mechanisms.recipe_checks import check_domain
from dpstream.mechanisms.table_release import TableSynthesis, pack_models, unpack_models

Prior = Literal["previous", "uniform"]
#: Offline mechanisms by their names in files; the first is the default.
OFFLINE = {"mwem-pgm": Nested(MWEMPGM), "aim": Nested(AIM)}
BatchPart = Literal["inserts", "deletes"]


@dataclass(frozen=True)
class BaselineOptions:
    """What may be chosen; see ``Baseline``."""

    workload: Workload = option(of=options.WORKLOAD)
    offline: OfflineMechanism | None = option(None, options.OFFLINE, one_of=OFFLINE)
    deletions: bool = False
    prior: Prior = option("previous", options.PRIOR)

    def __post_init__(self) -> None:
        check_words(self)


@dataclass
class BaselineState:
    """The synthetic table so far (all of it public).

    A noisy total is a real number and can be negative; rows are whole. What is not paid out in rows at one
    step is owed at the next, so that rounding and clipping do not add up. ``variance`` is that of ``total``;
    None where a run does not tell.
    """

    step: int
    codes: NDArray[np.int32]
    total: float
    owed_inserts: float
    owed_deletes: float
    models: dict[BatchPart, Model]
    variance: float | None = 0.0


@dataclass(frozen=True)
class BaselineFacts(StreamPlan):
    """What a calibrated ``Baseline`` says; see ``BaselinePlan``."""

    recipe: BaselineOptions
    offline: OfflinePlan
    budget: Budget
    unit: EventUnit
    horizon: int | None
    name = "baseline"
    follows_constraints = True

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.recipe.workload.domain

    def options(self) -> dict[str, Any]:
        """All options, JSON-able."""
        return {
            "deletions": self.recipe.deletions,
            "prior": self.recipe.prior,
            "workload": self.recipe.workload.as_option(),
            **self.offline.options(),
        }

    def facts(self) -> dict[str, Any]:
        """The noise of a run. Every step adds an independent one, so the variances add up."""
        variance = self.offline.cell_variance if isinstance(self.offline, MWEMPGMPlan) else None
        sums = {} if variance is None else {str(n): math.sqrt(variance) * math.sqrt(n) for n in TICKS}
        facts = table_facts(self.recipe.workload, sums.get("1"), sums)
        numbers = self.offline.numbers()
        if numbers is not None:
            first, most = (number * (2 if self.recipe.deletions else 1) for number in numbers)
            facts["noisy_counts"] = {"first": first, "most": most, "at": "every_step"}
        return facts

    def start(self) -> BaselineState:
        """The state before the first step: an empty table."""
        return BaselineState(0, np.empty((0, len(self.domain)), dtype=np.int32), 0.0, 0.0, 0.0, {})

    def start_from(self, base: StartTable) -> BaselineState:
        """The state that begins with the base's records; what its noisy number of records has more is owed."""
        check_domain(base, self.domain)
        codes = base.records()
        variance = None if base.total_error is None else base.total_error**2
        return BaselineState(0, codes, base.total, base.total - len(codes), 0.0, {}, variance)

    def expected_errors(
        self, steps: Sequence[int], expected: ExpectedTable | None = None
    ) -> tuple[ExpectedErrors, ...] | None:
        """See ``StreamPlan.expected_errors``: of sums of what independent runs measure, not of their models."""
        asked, cliques = check_steps(steps, self.horizon), self.recipe.workload.cliques
        if not isinstance(self.offline, MWEMPGMPlan):
            return None
        sides = 2 if self.recipe.deletions else 1
        cell, total = self.offline.cell_variance * sides, self.offline.total_variance() * sides
        errors = []
        for step in asked:
            turns = max(1, round(step * self.offline.k / len(cliques)))
            every, even, whole = (math.sqrt(v * n) for v, n in ((cell, step), (cell, turns), (total, step)))
            errors.append(
                ExpectedErrors(step, 0.0, whole, every_step=every, even_share=even, measurements=turns)
            )
        return with_table(errors, self.domain, cliques if self.offline.k >= len(cliques) else (), expected)

    def pack_state(self, state: BaselineState) -> Packed:
        """The table, what is owed, and the last models."""
        packed = table_synthesis(self.domain, state).pack()
        owed = [state.owed_inserts, state.owed_deletes]
        meta: dict[str, Any] = {"step": state.step, "owed": owed, "variance": state.variance}
        metas, arrays = pack_models(list(state.models.values()))
        meta["models"] = dict(zip(state.models, metas, strict=True))
        return Packed({**packed.meta, **meta}, {**packed.arrays, **arrays})

    def unpack_state(self, packed: Packed) -> BaselineState:
        """The inverse of ``pack_state``."""
        table = TableSynthesis.unpack(packed)
        meta = packed.meta
        models = unpack_models(list(meta["models"].values()), packed.arrays)
        named = dict(zip(meta["models"], models, strict=True))
        inserts, deletes = meta["owed"]
        return BaselineState(
            meta["step"], table.codes, table.records, inserts, deletes, named, meta["variance"]
        )

    def unpack_synthesis(self, packed: Packed) -> TableSynthesis:
        """The inverse of ``TableSynthesis.pack``."""
        return TableSynthesis.unpack(packed)


def table_synthesis(domain: Domain, state: BaselineState) -> TableSynthesis:
    error = None if state.variance is None else state.variance**0.5
    return TableSynthesis(domain, state.codes, state.total, error)


def remove_nearest(table: NDArray[np.int32], targets: NDArray[np.int32]) -> NDArray[np.int32]:
    """Take away, for every target, the row that agrees with it in the most columns.

    Public post-processing: a synthetic deletion seldom equals a synthetic record in every column, and a
    table cannot hold a negative record. Cost: targets x rows x columns.

    >>> remove_nearest(np.array([[0, 0], [0, 1], [1, 1]], dtype=np.int32), np.array([[1, 1]])).tolist()
    [[0, 0], [0, 1]]
    """
    kept = np.ones(len(table), dtype=bool)
    for target in targets:
        agreement = np.count_nonzero(table == target, axis=1)
        agreement[~kept] = -1
        kept[int(np.argmax(agreement))] = False
    return table[kept]
