"""What a counter truly costs, read off its running code."""

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

__all__ = ["Certificate", "certify"]

_MAX_TICKS = 2048
#: Where cells are not independent, each impulse needs a run of its own; and pairs of ticks are many.
_MAX_SLOW = 512


@dataclass(frozen=True)
class Certificate:
    """The claimed and the true loss of a counter over its first ``ticks`` ticks.

    Attributes:
        subject: the counter's name.
        definition: "pure" (losses are epsilons) or "zCDP" (rhos).
        relation: "add-remove", "replace", or "pairs" (see ``certify``).
        claimed: what the counter says it costs.
        certified: a proved upper bound on what it costs; infinite where nothing hides some change.
        lower: a lower bound on what it costs; equal to ``certified`` where ``exact``.
        worst_step: the tick whose change costs most (the first such).
        worst_partner: with "pairs", the other tick.
        per_step: the certified loss of each tick (each pair, in the order of ``itertools.combinations``).
        adaptive: whether that covers a change whose tick is picked while watching. Always under pure DP; under zCDP
            only where noise is not used before the increments that it hides (``docs/theory/counters.md``).
        holds: ``certified <= claimed``, compared as exact numbers, and ``adaptive``. Where not ``exact``, a claim may
            be true although this proof of it fails.
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
        bound += "" if self.adaptive else " for changes fixed beforehand only"
        return (
            f"{self.subject}, {self.relation}, {self.ticks} ticks: "
            f"claimed {symbol} {self.claimed:.6g} {verdict}; certified {self.certified:.6g}{bound}, "
            f"worst at tick {self.worst_step}"
        )


def certify(calibrated: CalibratedCounter, horizon: int, *, pairs: bool = False) -> Certificate:
    """Certify what the first ``horizon`` ticks of a counter cost, whatever its documentation says.

    The code is run on a tape of unit impulses instead of noise; this reads off ``outputs = A z + L noise``. The
    outputs are what the counter measures: its estimates, or where it is split into a private and a public half
    (``FactoredCounter``) what the private half gives out. For each tick the cheapest integer shift of the
    noise that hides the change is the loss: a change of 1 in one cell (add/remove), or of +1 in one cell and -1 in
    another (replace; with independent cells that is twice the loss of one, in epsilon and in rho).

    Args:
        calibrated: the counter.
        horizon: how many ticks to certify; a claim may be reached only later, or only at the horizon.
        pairs: instead, one unit moved from tick ``j`` to tick ``i`` in one cell. That is a group of two
            one-cell changes: its claim is 2 epsilon (4 rho) of one, and the counter may cost less.

    Cost: where cells are independent and each output has fresh noise, about ``20 ticks`` counter steps and a
    substitution: 0.05 s for 64 ticks, seconds for 1,500. Else ``4 ticks^2`` steps and an elimination (ticks up to
    512). A counter with more noise than outputs also costs a linear program per tick.

    Errors:
        ConfigError: it is no calibrated counter, is not linear, or mixes Laplace and Gaussian noise; too many ticks.
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
    # Column t - 1: +1 in cell 0 of tick t; where two cells change and are not known to be independent, -1 in cell 1.
    targets = -recorded.inputs_map[:, :: recorded.width]
    if changed == 2 and not (pairs or cell):
        targets = targets + recorded.inputs_map[:, 1 :: recorded.width]
    if pairs:
        if ticks < 2:
            raise ConfigError("a pair needs two ticks", where="certificate")
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
            # Noise of one cell hides nothing of another: each changed cell costs as much as one.
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
