"""A user's own mechanism as a black box."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.schema.domain import Domain
from dpstream.families.growing.blackbox import BlackBox, BoxReads, Database, PowerLaw, Records
from dpstream.families.growing.distributions import AnyTable, RowsTable, WeightsTable, unpack_table
from dpstream.families.growing.mwem import check_universe

Function = Callable[[Budget, Database, Randomness], NDArray[Any]]


@dataclass(frozen=True)
class OwnMechanism(BlackBox[AnyTable]):
    """A function ``(budget, data, randomness) -> table``.

    Guarantee: none by itself. The function has to satisfy the budget it is given, for two databases of the same public
    size that differ in the value of one record, whatever was released before. Noise and private choices come from
    ``randomness`` only. It must not keep anything, write to the data, or let ``data.t`` differ from what it says:
    ``checks.check_black_box`` tries that, and looks for a broken guarantee on databases of your choice.

    It returns synthetic records, as int32 codes of shape (records, columns), or one weight (0 or more) for each cell of
    all columns, in C order.

    Args:
        function: see above.
        reads: what it finds in the data: ``Counts(domain, cliques)`` or ``Records(domain)``.
        version: a name of the function that is changed with it; it enters the plan's hash.
        definitions: the budgets it can be given; one that knows pure budgets only is given ``sqrt(2 rho)`` under zCDP.
        accuracy: its (p, g), where they are known.
    """

    function: Function
    reads_what: BoxReads
    version: str
    definitions: tuple[Literal["pure", "zcdp"], ...] = ("pure",)
    accuracy: PowerLaw | None = None
    name = "own"

    def __post_init__(self) -> None:
        if not self.version:
            raise ConfigError(
                "the function has no version", where="own mechanism", allowed='such as "mean 1"'
            )
        if "pure" not in self.definitions:
            raise ConfigError(
                "the function takes no pure budget",
                where="own mechanism",
                allowed="pure, or both",
            )

    @property
    def reads(self) -> BoxReads:
        """What the user declared that the function reads."""
        return self.reads_what

    def options(self) -> dict[str, Any]:
        """The version, and what it reads."""
        kind = "records" if isinstance(self.reads, Records) else "counts"
        cliques = [] if isinstance(self.reads, Records) else [list(clique) for clique in self.reads.cliques]
        return {"version": self.version, "reads": kind, "cliques": cliques}

    def describe(self) -> str:
        """The mechanism by its version."""
        return f"the user's own mechanism {self.version!r}"

    def run(self, budget: Budget, data: Database, randomness: Randomness) -> AnyTable:
        """See ``BlackBox.run``.

        Errors:
            ConfigError: the function returned something else than a table.
        """
        return _table(self.reads.domain, self.function(budget, data, randomness))

    def unpack(self, packed: Packed) -> AnyTable:
        """See ``BlackBox.unpack``."""
        return unpack_table(packed)


def _table(domain: Domain, values: NDArray[Any]) -> AnyTable:
    """The function's result as a table, checked. The result is public, so errors may name it."""
    columns = len(domain)
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == columns and values.dtype.kind in "iu" and len(values):
        if (values < 0).any() or (values >= np.array(domain.sizes)).any():
            raise ConfigError("the function returned codes outside the domain", where="own mechanism")
        return RowsTable(domain, values.astype(np.int32))
    if values.ndim == 1 and values.dtype.kind == "f":
        cells = check_universe(domain)
        total = float(values.sum())
        if len(values) == cells and (values >= 0.0).all() and 0.0 < total < float("inf"):
            return WeightsTable(domain, values / total)
    raise ConfigError(
        "the function returned no table",
        where="own mechanism",
        allowed=f"integer codes of shape (records, {columns}), or a float weight for each cell of all columns",
    )
