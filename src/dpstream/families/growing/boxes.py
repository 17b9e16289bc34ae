"""MWEM+PGM (family 1) as a black box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Events, Nested, Packed, Ungranted, option
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload
from dpstream.families.growing.blackbox import BlackBox, BoxRun, Counts, Database
from dpstream.families.growing.distributions import ModelTable, unpack_table
from dpstream.families.tabular import MWEMPGM
from dpstream.families.tabular.options import WORKLOAD


@dataclass(frozen=True)
class MWEMPGMBox(BlackBox[ModelTable]):
    """One run of ``tabular.MWEMPGM`` on the database.

    Guarantee: the budget, under replace-one with ``t`` public: it is calibrated for ``Event("replace")``. A replaced
    record moves a measured marginal in two cells by 1 (D1 = 2, D2^2 = 2) and a selection score by at most 2 of its
    weights; the number of records is not estimated, but is ``t``.

    Args:
        workload: the marginals to preserve.
        recipe: options of MWEM+PGM.

    Cost: ``k`` fits a run. No (p, g) is known of it: gamma has to be given.

    Reference: Liu, Vietri, Wu (2021); McKenna et al. (2019).
    """

    workload: Workload = option(of=WORKLOAD)
    recipe: MWEMPGM = option(MWEMPGM(), part=Nested(MWEMPGM, without=("prior_weight",)))
    name = "mwem-pgm"

    def __post_init__(self) -> None:
        # Refuses options that do not fit the workload; which budget plays no role.
        self.recipe.calibrate(self.workload, PureDP.of(1), Event("replace"))

    @property
    def reads(self) -> Counts:
        """The workload's marginals."""
        return Counts(self.workload.domain, self.workload.cliques)

    def options(self) -> dict[str, Any]:
        """All options."""
        plan = self.recipe.calibrate(self.workload, PureDP.of(1), Event("replace"))
        return {"workload": self.workload.as_option(), **plan.options()}

    def describe(self) -> str:
        """The number of marginals it measures."""
        plan = self.recipe.calibrate(self.workload, PureDP.of(1), Event("replace"))
        return f"MWEM+PGM measuring {plan.k} of {len(self.workload)} marginals"

    def check(self, budget: Budget) -> None:
        """See ``BlackBox.check``."""
        self.recipe.calibrate(self.workload, budget, Event("replace")).parts()

    def run(self, budget: Budget, data: Database, randomness: Randomness) -> ModelTable:
        """See ``BlackBox.run``."""
        return self.full_run(budget, data, randomness).released

    def full_run(self, budget: Budget, data: Database, randomness: Randomness) -> BoxRun[ModelTable]:
        """See ``BlackBox.full_run``: every marginal that was measured."""
        plan = self.recipe.calibrate(self.workload, budget, Event("replace"))
        made = plan.full_run(_Counted(self.reads, data), "net", randomness)
        return BoxRun(ModelTable(made.model), made.outputs)

    def numbers(self) -> tuple[int, int]:
        """See ``BlackBox.numbers``; which budget plays no role."""
        return self.recipe.calibrate(self.workload, PureDP.of(1), Event("replace")).numbers()

    def unpack(self, packed: Packed) -> ModelTable:
        """See ``BlackBox.unpack``."""
        table = unpack_table(packed)
        assert isinstance(table, ModelTable)
        return table


@dataclass(frozen=True)
class _Counted(Ungranted):
    """The database as a batch that came at once, for a mechanism that counts what it reads."""

    reads: Counts
    data: Database

    def count(self, cliques: Sequence[Clique], part: Events = "net") -> list[NDArray[np.int64]]:
        """The marginals that the black box declared to read.

        Errors:
            ConfigError: others.
        """
        if tuple(cliques) != self.reads.cliques or part != "net":
            raise ConfigError("these marginals were not declared to be read", where="black box")
        return list(self.data.counts)

    @property
    def declares_deletes(self) -> bool:
        """A growing database has none."""
        return False
