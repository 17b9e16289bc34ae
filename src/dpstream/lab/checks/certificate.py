"""Certificates: the true cost of a counter, computed from its running code."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from dpstream.core.counters import CalibratedCounter
from dpstream.core.counters.counter import check_count
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.budget import PureDP
from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.core.privacy.unit import NeighbourRelation
from dpstream.lab.checks.shifts import ShiftCost, shift_costs
from dpstream.lab.checks.tape import RecordedMap, read_cell, read_map

_MAX_TICKS = 2048
#: The most ticks where cells are not independent (each impulse then needs its own run), and for pairs of ticks.
_MAX_SLOW = 512


@dataclass(frozen=True)
class Certificate:
    """The claimed and the true loss of a counter over its first ``ticks`` ticks.

    Attributes:
        subject: the counter's name.
        definition: "pure" (losses are epsilons) or "zCDP" (rhos).
        relation: "add-remove", "replace", or "pairs" (see ``certify``).
        ticks: how many ticks are certified.
        claimed: the cost that the counter claims.
        certified: a proved upper bound on the cost; infinite where no shift of the noise hides some change.
        lower: a lower bound on the cost; equal to ``certified`` where ``exact``.
        worst_step: the first tick whose change costs most.
        worst_partner: with "pairs", the other tick of the pair.
        per_step: the certified loss of each tick (of each pair, in the order of ``itertools.combinations``).
        adaptive: whether the certificate covers a change whose tick depends on earlier outputs. Always under pure DP;
            under zCDP only if no noise is used before the increments that it hides (``docs/theory/counters.md``).
        holds: whether ``certified <= claimed`` as exact numbers, and ``adaptive``. Where not ``exact``, a claim may be
            true although this proof fails.
    """

    subject: str
    definition: Literal["pure", "zCDP"]
    relation: NeighbourRelation | Literal["pairs"]
    ticks: int
    claimed: float
    certified: float
    lower: float
    worst_step: int
    worst_partner: int | None
    per_step: tuple[float, ...]
    adaptive: bool
    holds: bool

    @property
    def exact(self) -> bool:
        """Whether the certified loss is the true loss, not only an upper bound."""
        return self.lower >= self.certified

    @property
    def wasted(self) -> float:
        """The part of the claimed budget that the counter does not use (0 where the claim is tight or does not
        hold)."""
        return max(0.0, 1.0 - self.certified / self.claimed)

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        symbol = "epsilon" if self.definition == "pure" else "rho"
        bound = "" if self.exact else f" (at least {self.lower:.6g})"
        bound += "" if self.adaptive else " for changes fixed beforehand only"
        return (
            f"{self.subject}, {self.relation}, {self.ticks} ticks: "
            f"claimed {symbol} {self.claimed:.6g} {verdict}; certified {self.certified:.6g}{bound}, "
            f"worst at tick {self.worst_step}"
        )


def certify(calibrated: CalibratedCounter, horizon: int, *, pairs: bool = False) -> Certificate:
    """Certify the cost of the first ``horizon`` ticks of a counter, whatever its documentation says.

    The code runs with unit impulses in place of noise, which gives the matrices in ``outputs = A z + L noise``. The
    outputs are the counter's estimates; for a counter with a private and a public half (``FactoredCounter``), the
    outputs of the private half. For each tick the loss is the cost of the cheapest integer shift of the noise that
    hides the change: 1 in one cell (add-remove), or +1 in one cell and -1 in another (replace; with independent cells
    that is twice the loss of one cell, in epsilon and in rho).

    Args:
        calibrated: the counter.
        horizon: how many ticks to certify. The loss may reach the claim only at later ticks.
        pairs: certify one unit that moves from tick ``j`` to tick ``i`` in one cell instead. That is a group of two
            changes of one cell, so the claim is 2 epsilon (or 4 rho) of one change; the true cost may be less.

    Cost: where cells are independent and each output has fresh noise, about ``20 ticks`` counter steps and a
    substitution: 0.05 s for 64 ticks, seconds for 1,500. Otherwise ``4 ticks^2`` steps and an elimination (at most 512
    ticks). A counter with more noises than outputs also needs a linear program per tick.

    Errors:
        ConfigError: it is not a calibrated counter, is not linear, or draws noise of the other kind than its budget; or
            there are too many ticks.
        HorizonError: the counter ends before ``horizon``.
    """
    if not isinstance(calibrated, CalibratedCounter):
        raise ConfigError(
            f"a {type(calibrated).__name__} is no calibrated counter",
            where="certificate",
            allowed="counter.calibrate(budget, unit), such as counters.Tree(64).calibrate(PureDP(1), Event())",
        )
    ticks = check_count(horizon, what="the number of ticks to certify", least=1, most=_MAX_TICKS)
    if pairs:
        check_count(ticks, what="the number of ticks to certify in pairs", least=1, most=_MAX_SLOW)
    cell = read_cell(calibrated, ticks)
    recorded = cell or read_map(
        calibrated,
        check_count(ticks, what="the number of ticks to certify", least=1, most=_MAX_SLOW),
        width=2,
    )
    _check_laws(recorded, calibrated)
    claimed = calibrated.budget.amount
    changed = calibrated.unit.changed_cells
    # Column t - 1: +1 in cell 0 of tick t, and -1 in cell 1 if two cells change that may not be independent.
    targets = -recorded.inputs_map[:, :: recorded.width]
    if changed == 2 and not (pairs or cell):
        targets = targets + recorded.inputs_map[:, 1 :: recorded.width]
    if pairs:
        if ticks < 2:
            raise ConfigError("a pair needs two ticks", where="certificate", allowed="a horizon from 2 on")
        claimed = claimed * (2 if isinstance(calibrated.budget, PureDP) else 4) / changed
        first, second = np.triu_indices(ticks, k=1)
        labels: list[tuple[int, int | None]] = [
            (int(i) + 1, int(j) + 1) for i, j in zip(first, second, strict=True)
        ]
        costs = shift_costs(recorded.noise_map, recorded.laws, targets, (first, second))
    else:
        labels = [(i, None) for i in range(1, ticks + 1)]
        costs = shift_costs(recorded.noise_map, recorded.laws, targets)
        if cell:
            # Cells are independent, so the costs of the changed cells add up.
            costs = [cost.times(changed) for cost in costs]
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
    pure = isinstance(calibrated.budget, PureDP)
    adaptive = pure or all(cost.fresh for cost in costs)
    return Certificate(
        subject=calibrated.name,
        definition="pure" if pure else "zCDP",
        relation="pairs" if pairs else calibrated.unit.relation,
        ticks=ticks,
        claimed=float(claimed),
        certified=uppers[worst],
        lower=max(cost.lower for cost in costs),
        worst_step=labels[worst][0],
        worst_partner=labels[worst][1],
        per_step=tuple(uppers),
        adaptive=adaptive,
        holds=adaptive and all(cost.shift_cost is not None and cost.shift_cost <= claimed for cost in costs),
    )


def _check_laws(recorded: RecordedMap, calibrated: CalibratedCounter) -> None:
    pure = isinstance(calibrated.budget, PureDP)
    if any(isinstance(law, DiscreteLaplace) is not pure for law in recorded.laws):
        raise ConfigError(
            "the counter draws noise of the other kind than its budget",
            where="certificate",
            allowed="one kind",
        )
