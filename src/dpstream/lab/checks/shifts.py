"""Finds the cheapest integer shift of the noise that hides a change of the data.

With ``outputs = A z + L noise``, the outputs on ``z + d`` with noise ``n + s`` equal those on ``z`` with noise ``n``,
for every integer ``s`` with ``L s = -A d``. A shift by ``s`` costs ``sum |s_i|/b_i`` in epsilon (Laplace) or ``sum
s_i^2 / (2 sigma_i^2)`` in rho (Gaussian), so every such ``s`` proves an upper bound on the loss.

* No such ``s``: the supports differ, and the loss is infinite.
* Exactly one (``L`` injective): its cost is the loss.
* Several, Laplace: the linear program over real ``s`` gives a lower bound (by duality; the loss reaches it far out in
  the tails), and the integer program an upper bound. Where they agree, that is the loss.
* Several, Gaussian: the real ``s`` of least norm gives a lower bound (up to the discreteness of the noise), and an
  integer ``s`` near it an upper bound.

A Gaussian shift may move noise that is already in outputs before the change (not ``ShiftCost.fresh``). Then its cost
bounds the loss of a change that is fixed beforehand, but not of a change that depends on earlier outputs. Shifts of an
``Echelon`` are always fresh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy.noise import DiscreteLaplace, Noise
from dpstream.lab.checks.lattice import Echelon, IntegerSystem, unique_solutions

_MILP_SECONDS = 10.0
_SLACK = 1e-9
#: How many pairs of ticks are computed at a time, to bound the memory.
_CHUNK = 4096


@dataclass(frozen=True)
class ShiftCost:
    """Bounds on the loss of one change.

    Attributes:
        lower: a lower bound.
        upper: an upper bound, proved by an integer shift; infinite if there is none.
        shift_cost: ``upper`` as an exact number; None if infinite.
        fresh: whether the shift moves no noise that is in an output before the change.
    """

    lower: float
    upper: float
    shift_cost: Fraction | None
    fresh: bool = True

    def times(self, cells: int) -> ShiftCost:
        """The cost of the same change in several independent cells."""
        whole = None if self.shift_cost is None else self.shift_cost * cells
        return ShiftCost(self.lower * cells, self.upper * cells, whole, self.fresh)


INFINITE = ShiftCost(math.inf, math.inf, None)


def shift_costs(
    noise_map: NDArray[np.int64],
    laws: tuple[Noise, ...],
    targets: NDArray[np.int64],
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> list[ShiftCost]:
    """The cost of hiding each column of ``targets``: of the cheapest integer ``s`` with ``noise_map @ s = target``.

    With ``pairs``, the targets are the differences of the columns ``pairs[0]`` and ``pairs[1]``.
    """
    # Noise that is in no output hides nothing, and the cheapest shift never moves it.
    used: list[int] = np.flatnonzero(noise_map.any(axis=0)).tolist()
    noise_map, laws = noise_map[:, used], tuple(laws[i] for i in used)
    costs = _Costs(laws)
    echelon = Echelon(noise_map)
    solved = echelon.solve(targets) if echelon.holds else None
    if pairs is not None and (solved is None or not solved[1].all()):
        # A shift may hide a difference although no shift hides its two parts.
        targets, pairs = targets[:, pairs[0]] - targets[:, pairs[1]], None
        solved = echelon.solve(targets) if echelon.holds else None
    if solved is not None:
        return _of_unique(costs, *solved, pairs)
    unique = unique_solutions(noise_map, targets)
    system: IntegerSystem | None = None
    result: list[ShiftCost] = []
    for column in range(targets.shape[1]):
        if unique is not None and unique[1][column]:
            shift = unique[0][:, column]
            bounds = _exactly(costs.of(shift))
        else:
            system = system or IntegerSystem(noise_map)
            bounds, shift = _by_programs(noise_map, targets[:, column], system, costs)
        result.append(replace(bounds, fresh=_is_fresh(noise_map, shift, targets[:, column])))
    return result


def _is_fresh(noise_map: NDArray[np.int64], shift: NDArray[Any], target: NDArray[np.int64]) -> bool:
    """Whether the shift moves no noise that is in an output before the change."""
    first = (noise_map != 0).argmax(axis=0)[shift != 0]
    return bool(first.min(initial=len(target)) >= (target != 0).argmax())


def _of_unique(
    costs: _Costs,
    shifts: NDArray[np.int64],
    exists: NDArray[np.bool_],
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
) -> list[ShiftCost]:
    """The costs where each target has at most one shift. The shift of a difference is the difference of the shifts."""
    if pairs is None:
        return [
            _exactly(cost) if ok else INFINITE for cost, ok in zip(costs.of_each(shifts), exists, strict=True)
        ]
    result: list[ShiftCost] = []
    for start in range(0, len(pairs[0]), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        moved = shifts[:, pairs[0][chunk]] - shifts[:, pairs[1][chunk]]
        result += [_exactly(cost) for cost in costs.of_each(moved)]
    return result


class _Costs:
    """Computes the exact cost of shifts of noises that are all Laplace or all Gaussian."""

    def __init__(self, laws: tuple[Noise, ...]) -> None:
        self.laplace = all(isinstance(law, DiscreteLaplace) for law in laws)
        self.rates = [_rate(law) for law in laws]
        self.weights = np.array([float(rate) for rate in self.rates], dtype=np.float64)
        self._rows: dict[Fraction, list[int]] = {}
        for row, rate in enumerate(self.rates):
            self._rows.setdefault(rate, []).append(row)

    def of(self, shift: NDArray[Any]) -> Fraction:
        """The cost of one shift."""
        power = 1 if self.laplace else 2
        moved = np.flatnonzero(shift != 0)
        return sum((self.rates[i] * abs(int(shift[i])) ** power for i in moved), Fraction(0))

    def of_each(self, shifts: NDArray[np.int64]) -> list[Fraction]:
        """The cost of each column. Sizes are added as integers for each law, and then weighed by fractions."""
        power = 1 if self.laplace else 2
        most = int(np.abs(shifts).max(initial=0))
        if most**power * len(shifts) >= 2**62:
            return [self.of(column) for column in shifts.T]
        totals = [Fraction(0)] * shifts.shape[1]
        for rate, rows in self._rows.items():
            magnitudes = (np.abs(shifts[rows]) ** power).sum(axis=0).tolist()
            totals = [
                total + rate * size if size else total for total, size in zip(totals, magnitudes, strict=True)
            ]
        return totals


def _rate(law: Noise) -> Fraction:
    return 1 / law.scale if isinstance(law, DiscreteLaplace) else 1 / (2 * law.sigma_squared)


def _exactly(cost: Fraction) -> ShiftCost:
    return ShiftCost(float(cost), float(cost), cost)


def _by_programs(
    matrix: NDArray[np.int64], target: NDArray[np.int64], system: IntegerSystem, costs: _Costs
) -> tuple[ShiftCost, NDArray[Any]]:
    """Bounds on the loss, and the shift that proves the upper one."""
    particular = system.solve(target)
    if particular is None:
        return INFINITE, np.zeros(matrix.shape[1], np.int64)
    best, best_shift = costs.of(particular), particular
    if not system.kernel.shape[1]:
        return _exactly(best), best_shift
    if costs.laplace:
        lower, candidates = _laplace_programs(matrix, target, costs, float(best))
    else:
        lower, candidates = _gaussian_programs(matrix, target, system, particular, costs)
    for candidate in candidates:
        shift = np.rint(candidate).astype(np.int64)
        if np.array_equal(matrix @ shift, target) and costs.of(shift) < best:
            best, best_shift = costs.of(shift), shift
    upper = float(best)
    return ShiftCost(upper if lower >= upper - _SLACK * max(1.0, upper) else lower, upper, best), best_shift


def _laplace_programs(
    matrix: NDArray[np.int64], target: NDArray[np.int64], costs: _Costs, known: float
) -> tuple[float, list[NDArray[np.float64]]]:
    """A lower bound and candidate shifts. With ``s = p - q`` and ``p, q >= 0`` the cost is linear."""
    from scipy.optimize import Bounds, LinearConstraint, linprog, milp

    weights = np.concatenate([costs.weights, costs.weights])
    both = np.concatenate([matrix, -matrix], axis=1).astype(np.float64)
    relaxed = linprog(weights, A_eq=both, b_eq=target, bounds=(0, None), method="highs")
    if relaxed.x is None:
        return 0.0, []
    half = len(costs.weights)
    shift = relaxed.x[:half] - relaxed.x[half:]
    if np.abs(shift - np.rint(shift)).max() < _SLACK:
        return float(relaxed.fun), [shift]
    # The cost of the known shift bounds every coordinate of a better one, so the integer program is finite.
    most = np.ceil(known / weights)
    solved = milp(
        weights,
        constraints=LinearConstraint(both, target, target),
        integrality=np.ones(len(weights)),
        bounds=Bounds(0, most),
        options={"time_limit": _MILP_SECONDS, "mip_rel_gap": 0.0},
    )
    # The integer optimum is the cheapest shift, but no lower bound on the loss: a mixture of shifts can cost less.
    candidates = [] if solved.x is None else [solved.x[:half] - solved.x[half:]]
    return float(relaxed.fun), candidates


def _gaussian_programs(
    matrix: NDArray[np.int64],
    target: NDArray[np.int64],
    system: IntegerSystem,
    particular: NDArray[Any],
    costs: _Costs,
) -> tuple[float, list[NDArray[np.float64]]]:
    """A lower bound from the real shift of least norm, and candidates: itself, and an integer shift near it."""
    root = np.sqrt(costs.weights)
    scaled = np.linalg.lstsq(matrix / root, target.astype(np.float64), rcond=None)[0]
    least = scaled / root
    kernel = system.kernel.astype(np.float64)
    start = particular.astype(np.float64)
    steps = np.linalg.lstsq(kernel * root[:, None], (least - start) * root, rcond=None)[0]
    return float((scaled**2).sum()), [least, start + kernel @ np.rint(steps)]
