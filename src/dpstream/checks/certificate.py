"""What a counter truly costs, read off its running code."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.checks.shifts import ShiftCost, shift_costs
from dpstream.checks.tape import RecordedMap, read_map
from dpstream.counters import CalibratedCounter
from dpstream.counters.base import check_count
from dpstream.errors import ConfigError
from dpstream.privacy.budget import PureDP
from dpstream.privacy.noise import DiscreteLaplace
from dpstream.privacy.unit import Relation

__all__ = ["Certificate", "certificate"]

_MAX_TICKS = 512


@dataclass(frozen=True)
class Certificate:
    """The claimed and the true loss of a counter over its first ``ticks`` ticks.

    Attributes:
        subject: the counter's name.
        definition: "pure" (losses are epsilons) or "zCDP" (rhos).
        relation: "add-remove", "replace", or "pairs" (see ``certificate``).
        claimed: what the counter says it costs.
        certified: a proved upper bound on what it costs; infinite where nothing hides some change.
        lower: a lower bound on what it costs; equal to ``certified`` where ``exact``.
        worst_step: the tick whose change costs most (the first such).
        worst_partner: with "pairs", the other tick.
        per_step: the certified loss of each tick (each pair, in the order of ``itertools.combinations``).
        holds: ``certified <= claimed``, compared as exact numbers. Where not ``exact``, a claim may be
            true although this proof of it fails.
    """

    subject: str
    definition: Literal["pure", "zCDP"]
    relation: Relation | Literal["pairs"]
    ticks: int
    claimed: float
    certified: float
    lower: float
    worst_step: int
    worst_partner: int | None
    per_step: tuple[float, ...]
    holds: bool

    @property
    def exact(self) -> bool:
        """Whether the certified loss is the true one, not only a bound."""
        return self.lower >= self.certified

    @property
    def wasted(self) -> float:
        """The part of the claimed budget that buys nothing (0 where the claim is tight or broken)."""
        return max(0.0, 1.0 - self.certified / self.claimed)

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        symbol = "epsilon" if self.definition == "pure" else "rho"
        bound = "" if self.exact else f" (at least {self.lower:.6g})"
        return (
            f"{self.subject}, {self.relation}, {self.ticks} ticks: "
            f"claimed {symbol} {self.claimed:.6g} {verdict}; certified {self.certified:.6g}{bound}, "
            f"worst at tick {self.worst_step}"
        )


def certificate(calibrated: CalibratedCounter, horizon: int, *, pairs: bool = False) -> Certificate:
    """Certify what the first ``horizon`` ticks of a counter cost, whatever its documentation says.

    Two cells are run on a tape of unit impulses instead of noise; this reads off ``outputs = A z + L noise``.
    For each tick the cheapest integer shift of the noise that hides the change is the loss: a change
    of 1 in one cell (add/remove), or of +1 in one cell and -1 in the other (replace; with
    independent cells that is twice the loss of one, in epsilon and in rho).

    Args:
        calibrated: the counter.
        horizon: how many ticks to certify; a claim may be reached only later, or only at the horizon.
        pairs: instead, one unit moved from tick ``j`` to tick ``i`` in one cell. That is a group of two
            one-cell changes: its claim is 2 epsilon (4 rho) of one, and the counter may cost less.

    Cost: about ``4 ticks^2`` counter steps and one elimination of a matrix of ``2 ticks`` rows: 0.1 s for 32
    ticks, 2 s for 256. A counter with more noise than outputs also costs a linear program per tick.

    Errors:
        ConfigError: the counter is not linear, or mixes Laplace and Gaussian noise.
        HorizonError: the counter ends before ``horizon``.
    """
    ticks = check_count(horizon, what="the number of ticks to certify", least=1, most=_MAX_TICKS)
    recorded = read_map(calibrated, ticks, width=2)
    _check_laws(recorded, calibrated)
    claimed = calibrated.budget.amount
    if pairs:
        labels: list[tuple[int, int | None]] = [
            (i, j) for i in range(1, ticks + 1) for j in range(i + 1, ticks + 1)
        ]
        if not labels:
            raise ConfigError("a pair needs two ticks", where="certificate")
        group = 2 if isinstance(calibrated.budget, PureDP) else 4
        claimed = claimed * group / calibrated.unit.changed_cells
        changes = _pair_changes(ticks)
    else:
        labels = [(i, None) for i in range(1, ticks + 1)]
        changes = _single_changes(ticks, calibrated.unit.changed_cells)
    costs = shift_costs(recorded.noise_map, recorded.laws, -recorded.inputs_map @ changes)
    return _report(calibrated, ticks, claimed, labels, costs, pairs)


def _report(
    calibrated: CalibratedCounter,
    ticks: int,
    claimed: Fraction,
    labels: list[tuple[int, int | None]],
    costs: list[ShiftCost],
    pairs: bool,
) -> Certificate:
    uppers = [cost.upper for cost in costs]
    worst = int(np.argmax(uppers))
    return Certificate(
        subject=calibrated.name,
        definition="pure" if isinstance(calibrated.budget, PureDP) else "zCDP",
        relation="pairs" if pairs else calibrated.unit.relation,
        ticks=ticks,
        claimed=float(claimed),
        certified=uppers[worst],
        lower=max(cost.lower for cost in costs),
        worst_step=labels[worst][0],
        worst_partner=labels[worst][1],
        per_step=tuple(uppers),
        holds=all(cost.shift_cost is not None and cost.shift_cost <= claimed for cost in costs),
    )


def _check_laws(recorded: RecordedMap, calibrated: CalibratedCounter) -> None:
    pure = isinstance(calibrated.budget, PureDP)
    if any(isinstance(law, DiscreteLaplace) is not pure for law in recorded.laws):
        raise ConfigError(
            "the counter draws noise of the other kind than its budget",
            where="certificate",
            allowed="one kind",
        )


def _single_changes(ticks: int, cells: int) -> NDArray[np.int64]:
    """Column ``t - 1``: +1 in cell 0 of tick ``t``, and with two cells -1 in cell 1."""
    changes = np.zeros((2 * ticks, ticks), np.int64)
    each = np.arange(ticks)
    changes[2 * each, each] = 1
    if cells == 2:
        changes[2 * each + 1, each] = -1
    return changes


def _pair_changes(ticks: int) -> NDArray[np.int64]:
    first, second = np.triu_indices(ticks, k=1)
    changes = np.zeros((2 * ticks, math.comb(ticks, 2)), np.int64)
    each = np.arange(len(first))
    changes[2 * first, each] = 1
    changes[2 * second, each] = -1
    return changes
