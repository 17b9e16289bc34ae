"""What simulating a family's errors means, so that nobody above asks which family it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import ExpectedTable, StartTable
from dpstream.core.errors import ConfigError
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import count_marginals
from dpstream.tools.evaluate.array_types import Codes, Floats

if TYPE_CHECKING:
    from dpstream.project import Config

#: What the columns of an imagined table are like: all values alike and independent; skewed, and dependent on each
#: other; or those of the public table that the stream begins with.
Resemblance = Literal["uniform", "correlated", "foreseen", "like the base"]


def check_number(value: object, name: str, where: str, least: int, most: int) -> None:
    """ConfigError for anything but a whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(
            f"{name} = {value!r}", where=where, allowed=f"a whole number from {least} to {most}"
        )


def seed_of(*parts: object) -> int:
    """A public seed that differs for every choice of parts."""
    digest = hashlib.sha256(" ".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:7], "little")


@dataclass(frozen=True)
class Released:
    """The public folder that a simulation starts from.

    Attributes:
        folder: of the releases.
        readable: steps whose table can be read, up to ``last``; the last one among them.
        rows: released number of records of each step that was published, up to ``last``.
        measured: the last step that was measured by then, of each of these steps.
        base: the public table of an earlier stream that this one began with; None for an empty one.
    """

    folder: Path
    readable: tuple[int, ...]
    rows: Mapping[int, float]
    measured: Mapping[int, int]
    base: StartTable | None = None

    @property
    def last(self) -> int:
        """The step that the simulation goes up to."""
        return self.readable[-1]


@dataclass(frozen=True, eq=False)
class Observation:
    """A table as a reader takes it: records with weights.

    Attributes:
        codes: shape (rows, columns).
        weights: what each row stands for; None: one record.
        distances: of a run's release: its distances to the invented truth, by their name.
    """

    codes: Codes
    weights: Floats | None = None
    distances: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Number of records."""
        return float(len(self.codes)) if self.weights is None else float(self.weights.sum())

    def marginals(self, domain: Domain, cliques: Sequence[Clique]) -> list[Floats]:
        """Counts, flat in C order, in records."""
        if self.weights is None:
            return [counts.astype(np.float64) for counts in count_marginals(self.codes, domain, cliques)]
        found = []
        for clique in cliques:
            sizes = domain.shape(clique)
            cells = np.ravel_multi_index(tuple(self.codes[:, list(clique)].T), sizes)
            found.append(np.bincount(cells, self.weights, minlength=domain.cells(clique)).astype(np.float64))
        return found


@dataclass(frozen=True, eq=False)
class InventedTable:
    """The invented truth at one step.

    Attributes:
        domain: columns of ``table``. labels: of their codes.
        cliques: the marginals that are compared.
        fine: what the family needs besides to compare a release with it.
    """

    domain: Domain
    labels: tuple[tuple[str, ...], ...]
    cliques: tuple[Clique, ...]
    table: Observation
    fine: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class Invented:
    """An invented stream.

    Attributes:
        batches: one a step, from the first step to the last, as a mechanism gets them. Those of a forecast are made
            while they are read, once.
        truth: what they add up to, at each step that is compared, as far as batches are made.
        base: the public table that a run begins with, and whose records are part of ``truth``; None for an empty one.
    """

    batches: Iterable[Any]
    truth: Mapping[int, InventedTable]
    base: StartTable | None = None


@dataclass(frozen=True, eq=False)
class Guess:
    """What is publicly guessed about a stream that has no release yet.

    Attributes:
        table: how large the table is, and how it changes.
        steps: how many there are.
        compared: which of them are compared.
        columns: what the records are like.
        base: the public table that the stream begins with; None for an empty one.
        seed: of an ordinary generator.
    """

    table: ExpectedTable
    steps: int
    compared: tuple[int, ...]
    columns: Resemblance
    base: StartTable | None
    seed: int


@dataclass(frozen=True)
class FamilySimulation:
    """How the releases of a family become an invented stream, and how a run's releases are read.

    Attributes:
        invent: from a configuration, its releases, the steps to compare and a public seed. Reads nothing private.
        observe: what a run released at a step: from the configuration, its synthesis, the invented truth and a seed.
        questions: whether a table has the columns of the schema, so that predicates can be asked of it.
        imagine: an invented stream before the first release: from a configuration and a guess, the same records
            for every mechanism. None where the family has no way to.
        distance: which of an observation's distances says how good a release is; empty: the mean error of cells.
    """

    invent: Callable[[Config, Released, Sequence[int], int], Invented]
    observe: Callable[[Config, Any, InventedTable, int], Observation]
    questions: bool = True
    imagine: Callable[[Config, Guess], Invented] | None = None
    distance: str = ""
