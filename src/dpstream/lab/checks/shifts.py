"""The cheapest integer shift of the noise that hides a change of the data.

With ``outputs = A z + L noise``, the outputs on ``z + d`` under noise ``n + s`` are those on ``z`` under
noise ``n``, for every integer ``s`` with ``L s = -A d``. A shift by ``s`` costs ``sum |s_i|/b_i`` in epsilon
(Laplace) or ``sum s_i^2 / (2 sigma_i^2)`` in rho (Gaussian), so every such ``s`` proves an upper bound on
the loss.

* No such ``s``: the supports differ, and the loss is infinite.
* Exactly one (``L`` injective): its cost is the loss.
* Several, Laplace: the linear program over real ``s`` is a lower bound (by duality, attained far out in the
  tails); the integer program is an upper bound; where they agree it is the loss.
* Several, Gaussian: the real least-norm ``s`` is a lower bound up to the discreteness of the noise,
  an integer one near it an upper bound.

A Gaussian shift that moves noise which outputs before the change have (not ``ShiftCost.fresh``) costs so much for a
change that is fixed beforehand; for one that is picked while watching it is no proof. (``Echelon``: always fresh.)
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

__all__ = ["ShiftCost", "shift_costs"]

_MILP_SECONDS = 10.0
_SLACK = 1e-9
#: Pairs of ticks at a time, for memory's sake.
_CHUNK = 4096


@dataclass(frozen=True)
class ShiftCost:
    """Bounds on the loss of one change; ``upper`` is proved by an integer shift (infinite if none).

    ``shift_cost`` is ``upper`` as an exact number, or None if infinite. ``fresh``: the shift moves no noise that was in
    any output before the change is.
    """

    lower: float
    upper: float
    shift_cost: Fraction | None
    fresh: bool = True

    def times(self, cells: int) -> ShiftCost:
        """Of the same change in several independent cells."""
        whole = None if self.shift_cost is None else self.shift_cost * cells
        return ShiftCost(self.lower * cells, self.upper * cells, whole, self.fresh)


INFINITE = ShiftCost(math.inf, math.inf, None)


def shift_costs(
    noise_map: NDArray[np.int64],
    laws: tuple[Noise, ...],
    targets: NDArray[np.int64],
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> list[ShiftCost]:
    """The cost of hiding each column of ``targets`` (that is of solving ``noise_map @ s = target``).

    With ``pairs``, of hiding the differences of the columns ``pairs[0]`` and ``pairs[1]`` instead.
    """
    # Noise that reaches no output hides nothing, and is never shifted in the cheapest solution.
    used: list[int] = np.flatnonzero(noise_map.any(axis=0)).tolist()
    noise_map, laws = noise_map[:, used], tuple(laws[i] for i in used)
    costs = _Costs(laws)
    echelon = Echelon(noise_map)
    solved = echelon.solve(targets) if echelon.holds else None
    if pairs is not None and (solved is None or not solved[1].all()):
        # A difference may be hidden although its two parts cannot be.
        targets, pairs = targets[:, pairs[0]] - targets[:, pairs[1]], None
        solved = echelon.solve(targets) if echelon.holds else None
    if solved is not None:
        return _of_unique(costs, *solved, pairs)
    unique = unique_solutions(noise_map, targets)
    system: IntegerSystem | None = None
    result: list[ShiftCost] = []
    for column in range(targets.shape[1]):
        if unique is not None and unique[1][column]:
            found = unique[0][:, column]
            bounds = _exactly(costs.of(found))
        else:
            system = system or IntegerSystem(noise_map)
            bounds, found = _by_programs(noise_map, targets[:, column], system, costs)
        result.append(replace(bounds, fresh=_is_fresh(noise_map, found, targets[:, column])))
    return result


def _is_fresh(noise_map: NDArray[np.int64], shift: NDArray[Any], target: NDArray[np.int64]) -> bool:
    """Whether all noise that is moved first reaches an output where the change does, or later."""
    first = (noise_map != 0).argmax(axis=0)[shift != 0]
    return bool(first.min(initial=len(target)) >= (target != 0).argmax())


def _of_unique(
    costs: _Costs,
    shifts: NDArray[np.int64],
    exists: NDArray[np.bool_],
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
) -> list[ShiftCost]:
    """Costs of the only shifts that there are. A difference of targets is hidden by the difference of their shifts."""
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
    """Exact cost of a shift; all the laws are of one kind."""

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
        """Of each column: magnitudes are added up as integers for each law, and weighed as fractions."""
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
    """Bounds, and the shift that proves the upper one."""
    particular = system.solve(target)
    if particular is None:
        return INFINITE, np.zeros(matrix.shape[1], np.int64)
    best, found = costs.of(particular), particular
    if not system.kernel.shape[1]:
        return _exactly(best), found
    if costs.laplace:
        lower, candidates = _laplace_programs(matrix, target, costs, float(best))
    else:
        lower, candidates = _gaussian_programs(matrix, target, system, particular, costs)
    for candidate in candidates:
        shift = np.rint(candidate).astype(np.int64)
        if np.array_equal(matrix @ shift, target) and costs.of(shift) < best:
            best, found = costs.of(shift), shift
    upper = float(best)
    return ShiftCost(upper if lower >= upper - _SLACK * max(1.0, upper) else lower, upper, best), found


def _laplace_programs(
    matrix: NDArray[np.int64], target: NDArray[np.int64], costs: _Costs, known: float
) -> tuple[float, list[NDArray[np.float64]]]:
    """Lower bound and candidate shifts. ``s = p - q`` with ``p, q >= 0`` makes the cost linear."""
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
    # The known shift bounds every coordinate of a better one: the integer program is finite.
    most = np.ceil(known / weights)
    solved = milp(
        weights,
        constraints=LinearConstraint(both, target, target),
        integrality=np.ones(len(weights)),
        bounds=Bounds(0, most),
        options={"time_limit": _MILP_SECONDS, "mip_rel_gap": 0.0},
    )
    # The integer optimum bounds shifts, not the loss: mixtures over the fibre can cost less.
    candidates = [] if solved.x is None else [solved.x[:half] - solved.x[half:]]
    return float(relaxed.fun), candidates


def _gaussian_programs(
    matrix: NDArray[np.int64],
    target: NDArray[np.int64],
    system: IntegerSystem,
    particular: NDArray[Any],
    costs: _Costs,
) -> tuple[float, list[NDArray[np.float64]]]:
    """The real least-norm shift, and an integer one near it (rounded in the kernel's coordinates)."""
    root = np.sqrt(costs.weights)
    scaled = np.linalg.lstsq(matrix / root, target.astype(np.float64), rcond=None)[0]
    least = scaled / root
    kernel = system.kernel.astype(np.float64)
    start = particular.astype(np.float64)
    steps = np.linalg.lstsq(kernel * root[:, None], (least - start) * root, rcond=None)[0]
    return float((scaled**2).sum()), [least, start + kernel @ np.rint(steps)]
