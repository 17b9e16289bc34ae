"""Certificates: the true cost of a counter, computed from its running code."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import CalibratedCounter
from dpstream.core.counters.counter import FactoredCounter, check_count
from dpstream.core.errors import ConfigError
from dpstream.core.foreign import from_extra
from dpstream.core.privacy import AnyNoise, DiscreteGaussian, DiscreteLaplace, Noise, PureDP, Randomness
from dpstream.core.privacy.unit import NeighbourRelation

_MAX_TICKS = 2048
#: The most ticks where cells are not independent (each impulse then needs its own run), and for pairs of ticks.
_MAX_SLOW = 512


@dataclass(frozen=True)
class Certificate:
    """The claimed and the true loss of a counter over its first ``ticks`` ticks.

    Attributes:
        subject: the counter's name. definition: "pure" (losses are epsilons) or "zCDP" (rhos).
        relation: "add-remove", "replace", or "pairs" (see ``certify``). ticks: how many ticks are certified.
        claimed: the cost that the counter claims.
        certified: a proved upper bound on the cost; infinite where no shift of the noise hides some change.
        lower: a lower bound; ``certified`` where ``exact``.
        worst_step: the first tick whose change costs most. worst_partner: with "pairs", the other tick.
        per_step: the certified loss of each tick (of pairs in the order of ``itertools.combinations``).
        adaptive: whether changes whose tick depends on earlier outputs are covered: always under pure DP; under zCDP
            if no noise is used before the increments that it hides (``docs/theory/counters.md``).
        holds: ``certified <= claimed``, exactly, and ``adaptive``. Where not ``exact``, a true claim may fail.
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

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        symbol = "epsilon" if self.definition == "pure" else "rho"
        bound = "" if self.exact else f" (at least {self.lower:.6g})"
        bound += "" if self.adaptive else " for changes fixed beforehand only"
        return (
            f"{self.subject}, {self.relation}, {self.ticks} ticks: claimed {symbol} {self.claimed:.6g} "
            f"{verdict}; certified {self.certified:.6g}{bound}, worst at tick {self.worst_step}"
        )


def certify(calibrated: CalibratedCounter, horizon: int, *, pairs: bool = False) -> Certificate:
    """Certify the cost of the first ``horizon`` ticks of a counter, whatever its documentation says.

    The code runs with unit impulses in place of noise, which gives the matrices of ``outputs = A z + L noise``. A
    tick's loss is the cost of the cheapest integer shift of the noise that hides the change (docs/theory/auditing.md).

    Args:
        calibrated: the counter.
        horizon: how many ticks to certify. The loss may reach the claim only at later ticks.
        pairs: certify one unit that moves from tick ``j`` to tick ``i`` in one cell: the claim is 2 epsilon (4 rho).

    Cost: 0.05 s for 64 ticks, seconds for 1,500; with dependent noise ``4 ticks^2`` steps, at most 512 ticks.

    Errors:
        ConfigError: not a calibrated counter, not linear, or noise of another kind. HorizonError: it ends before.
    """
    if not isinstance(calibrated, CalibratedCounter):
        raise ConfigError(
            f"expected a calibrated counter, got {type(calibrated).__name__}",
            where="certificate",
            allowed="counter.calibrate(budget, unit), such as counters.Tree(64).calibrate(PureDP(1), Event())",
        )
    ticks = check_count(horizon, what="ticks to certify", least=1, most=_MAX_TICKS)
    if pairs:
        check_count(ticks, what="ticks to certify", least=1, most=_MAX_SLOW)
    cell = read_cell(calibrated, ticks)
    recorded = cell or read_map(
        calibrated,
        check_count(ticks, what="ticks to certify", least=1, most=_MAX_SLOW),
        width=2,
    )
    pure = isinstance(calibrated.budget, PureDP)
    if any(isinstance(law, DiscreteLaplace) is not pure for law in recorded.laws):
        raise ConfigError(
            "the counter draws noise of another kind than its budget",
            where="certificate",
            allowed="one kind",
        )
    claimed = calibrated.budget.amount
    changed = calibrated.unit.changed_cells
    # Column t - 1: +1 in cell 0 of tick t, and -1 in cell 1 if two cells change that may not be independent.
    targets = -recorded.inputs_map[:, :: recorded.width]
    if changed == 2 and not (pairs or cell):
        targets = targets + recorded.inputs_map[:, 1 :: recorded.width]
    if pairs:
        if ticks < 2:
            raise ConfigError("a pair needs two ticks", where="certificate", allowed="a horizon from 2 on")
        claimed = claimed * (2 if pure else 4) / changed
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
    uppers = [cost.upper for cost in costs]
    worst = int(np.argmax(uppers))
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


# Computes the linear map of a counter from its running code.
#
# A tape with known values replaces the noise. Runs with a single 1 on the tape, or in one cell of one
# increment, give the two matrices of ``outputs = inputs_map @ z + noise_map @ noise``, whatever the counter's
# documentation says. The outputs are those of the counter's private half (``measure``, where it has one),
# otherwise its estimates. All other outputs are computed from them.

#: The sizes of the random values that test whether the code is linear and has the computed map. At the largest size the
#: test misses a wrong linear map with probability 2^-30 at most.
_SIZES = (2, 100, 10_000, 2**30)


class NoiseTape(Randomness):
    """Gives known values instead of noise, and records the law and the size of each draw.

    Values beyond the end of the tape are 0. Uniform words are refused (ConfigError): a counter needs additive noise
    only, and a choice by uniform words is not a linear map.
    """

    def __init__(self, values: NDArray[np.int64] | None = None) -> None:
        super().__init__(_no_words)
        self._values = np.zeros(0, np.int64) if values is None else values
        self._given = 0
        #: The law and the size of every draw so far.
        self.draws: list[tuple[Noise, int]] = []

    @property
    def laws(self) -> list[Noise]:
        """The law of every value so far."""
        return [noise for noise, size in self.draws for _ in range(size)]

    def draw(self, law: AnyNoise, size: int) -> NDArray[np.int64]:
        """The next ``size`` values of the tape."""
        if not isinstance(law, DiscreteLaplace | DiscreteGaussian):
            _no_words(size)
        result = np.zeros(size, np.int64)
        part = self._values[self._given : self._given + size]
        result[: len(part)] = part
        self._given += size
        self.draws.append((law, size))
        return result


@dataclass(frozen=True)
class RecordedMap:
    """``outputs = inputs_map @ z + noise_map @ noise`` for ``ticks`` ticks of ``width`` cells.

    Outputs and inputs are flattened tick by tick (cell ``c`` of input ``t`` is at ``(t - 1) width + c``).

    Attributes:
        noise_map: int64 (outputs, m).
        inputs_map: int64 (outputs, ticks width).
        laws: the noise of each of the ``m`` coordinates, in the order of the draws.
    """

    noise_map: NDArray[np.int64]
    inputs_map: NDArray[np.int64]
    laws: tuple[Noise, ...]
    ticks: int
    width: int


def run_on_tape(
    counter: CalibratedCounter, increments: NDArray[np.int64], tape: Randomness
) -> NDArray[np.int64]:
    """The estimates of a new run on ``increments``, both of shape (ticks, width)."""
    state = counter.init(increments.shape[1])
    return np.array([counter.step(state, row.copy(), tape) for row in increments], dtype=np.int64)


def measured_on_tape(
    counter: CalibratedCounter, increments: NDArray[np.int64], tape: Randomness
) -> NDArray[np.int64]:
    """The outputs of the private half of a new run, shape (outputs, width)."""
    if not isinstance(counter, FactoredCounter):
        return run_on_tape(counter, increments, tape)
    state = counter.init(increments.shape[1])
    return np.concatenate([counter.measure(state, row.copy(), tape) for row in increments])


def read_cell(counter: CalibratedCounter, ticks: int) -> RecordedMap | None:
    """The map of one cell, from a single run in which every cell has another impulse.

    None unless the code is linear and the same in all cells, and each cell has its own noise. This is tested in runs of
    2 and 5 cells with random noise and increments, whose outputs must agree with the map.

    Cost: about ``5 ticks`` steps, the widest of ``m + ticks`` cells, where a cell draws ``m`` values in a run.
    """
    blank = NoiseTape()
    measured_on_tape(counter, np.zeros((ticks, 1), np.int64), blank)
    laws, m = tuple(blank.laws), len(blank.laws)
    width = m + ticks
    increments = np.zeros((ticks, width), np.int64)
    increments[np.arange(ticks), m + np.arange(ticks)] = 1
    outputs = measured_on_tape(counter, increments, _ImpulseSource(width))
    recorded = RecordedMap(outputs[:, :m], outputs[:, m:], laws, ticks, 1)
    rng = np.random.default_rng(20)
    sound = all(_superposes(counter, recorded, size, cells, rng) for size in _SIZES for cells in (2, 5))
    return recorded if sound else None


class _ImpulseSource(NoiseTape):
    """Gives cell ``i`` a 1 as its ``i``-th noise, and 0 otherwise."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def draw(self, law: AnyNoise, size: int) -> NDArray[np.int64]:
        result = np.zeros(size, np.int64)
        rows, rest = divmod(size, self._width)
        if not rest and self._given + rows <= self._width:
            result[np.arange(rows) * self._width + self._given + np.arange(rows)] = 1
        self._given += rows
        return result


def _superposes(
    counter: CalibratedCounter, recorded: RecordedMap, size: int, cells: int, rng: np.random.Generator
) -> bool:
    """Whether a run on random values agrees with the map, where each cell has its own noise."""
    z = rng.integers(-size, size, (recorded.ticks, cells), endpoint=True)
    noise = rng.integers(-size, size, (len(recorded.laws), cells), endpoint=True)
    tape = NoiseTape(noise.ravel())
    outputs = measured_on_tape(counter, z, tape)
    if any(n % cells for _, n in tape.draws):
        return False
    laws = [law for law, n in tape.draws for _ in range(n // cells)]
    expected = recorded.inputs_map @ z + recorded.noise_map @ noise
    return laws == list(recorded.laws) and np.array_equal(outputs, expected)


def read_map(counter: CalibratedCounter, ticks: int, width: int = 1) -> RecordedMap:
    """The map of ``width`` cells together in the first ``ticks`` ticks, impulse by impulse, without any assumption.

    Cost: ``ticks (m + ticks width)`` steps, where ``m`` values are drawn in a run.

    Errors:
        ConfigError: the draws depend on the data, uniform words are used, or the map is not linear.
    """
    zeros = np.zeros((ticks, width), np.int64)
    blank = NoiseTape()
    offset = measured_on_tape(counter, zeros, blank).ravel()
    laws = tuple(blank.laws)

    def outputs(increments: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
        tape = NoiseTape(values)
        result = measured_on_tape(counter, increments, tape).ravel() - offset
        if tape.draws != blank.draws:
            raise _not_linear("the noise depends on the data or on earlier noise")
        return result

    no_noise = np.zeros(len(laws), np.int64)
    noise_map = _columns(len(laws), offset.size, lambda unit: outputs(zeros, unit))
    inputs_map = _columns(zeros.size, offset.size, lambda unit: outputs(unit.reshape(zeros.shape), no_noise))
    # Impulses alone would not show a rounding or a threshold, so random values are tried too.
    rng = np.random.default_rng(20)
    for size in _SIZES:
        z = rng.integers(-size, size, zeros.shape, endpoint=True)
        values = rng.integers(-size, size, len(laws), endpoint=True)
        if not np.array_equal(outputs(z, values), inputs_map @ z.ravel() + noise_map @ values):
            raise _not_linear("outputs must be a linear map of increments and noise")
    return RecordedMap(noise_map, inputs_map, laws, ticks, width)


def _columns(
    count: int, rows: int, image: Callable[[NDArray[np.int64]], NDArray[np.int64]]
) -> NDArray[np.int64]:
    result = np.zeros((rows, count), np.int64)
    for column in range(count):
        unit = np.zeros(count, np.int64)
        unit[column] = 1
        result[:, column] = image(unit)
    return result


def _not_linear(what: str) -> ConfigError:
    return ConfigError(
        f"the counter cannot be certified: {what}",
        where="checks",
        allowed="a counter with noise on linear functions of its increments",
    )


def _no_words(n: int) -> NoReturn:
    raise _not_linear("uses uniform random words beside additive noise")


# Finds the cheapest integer shift of the noise that hides a change of the data.
#
# With ``outputs = A z + L noise``, the outputs on ``z + d`` with noise ``n + s`` equal those on ``z`` with
# noise ``n``, for every integer ``s`` with ``L s = -A d``. A shift by ``s`` costs ``sum |s_i|/b_i`` in
# epsilon (Laplace) or ``sum s_i^2 / (2 sigma_i^2)`` in rho (Gaussian), so every such ``s`` proves an upper
# bound on the loss.
#
# * No such ``s``: the supports differ, and the loss is infinite. * Exactly one (``L`` injective): its cost is
# the loss. * Several, Laplace: the linear program over real ``s`` gives a lower bound (by duality; the loss
# reaches it far out in   the tails), and the integer program an upper bound. Where they agree, that is the
# loss. * Several, Gaussian: the real ``s`` of least norm gives a lower bound (up to the discreteness of the
# noise), and an   integer ``s`` near it an upper bound.
#
# A Gaussian shift may move noise that is already in outputs before the change (not ``ShiftCost.fresh``). Then
# its cost bounds the loss of a change that is fixed beforehand, but not of a change that depends on earlier
# outputs. Shifts of an ``Echelon`` are always fresh.


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
    result: list[ShiftCost] = []
    if solved is not None:
        # Each target has at most one shift; that of a difference is the difference of the shifts.
        shifts, exists = solved
        if pairs is None:
            found = zip(costs.of_each(shifts), exists, strict=True)
            return [_exactly(cost) if ok else INFINITE for cost, ok in found]
        for start in range(0, len(pairs[0]), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            moved = shifts[:, pairs[0][chunk]] - shifts[:, pairs[1][chunk]]
            result += [_exactly(cost) for cost in costs.of_each(moved)]
        return result
    system = IntegerSystem(noise_map)
    for target in targets.T:
        bounds, shift = _by_programs(noise_map, target, system, costs)
        result.append(replace(bounds, fresh=_is_fresh(noise_map, shift, target)))
    return result


def _is_fresh(noise_map: NDArray[np.int64], shift: NDArray[Any], target: NDArray[np.int64]) -> bool:
    """Whether the shift moves no noise that is in an output before the change."""
    first = (noise_map != 0).argmax(axis=0)[shift != 0]
    return bool(first.min(initial=len(target)) >= (target != 0).argmax())


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
    with from_extra("evaluate", "certify"):
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


# Finds the integer solutions of ``L s = target`` exactly.
#
# Noise is integer-valued, so only an *integer* shift ``s`` of the noise can hide a change of the data. This
# module uses exact arithmetic only; ``shifts`` adds linear programming.


#: The largest intermediate value of a substitution, so that nothing overflows.
_LARGEST = 2**62


class Echelon:
    """A matrix whose columns begin in different rows, so that substitution finds the only possible solution.

    A counter that draws fresh noise for each output has this form: a diagonal where outputs are measurements, a
    triangle where they are sums of measurements. ``holds``: whether the given matrix has the form.
    """

    def __init__(self, matrix: NDArray[np.int64]) -> None:
        self._matrix = matrix
        columns = np.arange(matrix.shape[1])
        first = (matrix != 0).argmax(axis=0)
        self.holds = bool((matrix[first, columns] != 0).all() and len(np.unique(first)) == len(first))
        order = np.argsort(first, kind="stable")
        self._steps = [(int(first[column]), int(column)) for column in order]

    def solve(self, targets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
        """The integer solution for each column of ``targets``, and whether there is one (bool[columns]).

        None where a value might not fit 64 bits.
        """
        rest = targets.copy()
        bound = int(np.abs(targets).max(initial=0))
        solutions = np.zeros((self._matrix.shape[1], targets.shape[1]), np.int64)
        solved = np.ones(targets.shape[1], bool)
        for row, column in self._steps:
            coefficients = self._matrix[:, column]
            live = np.flatnonzero(rest[row])
            if not len(live):
                continue
            quotients, remainders = np.divmod(rest[row, live], coefficients[row])
            solved[live[remainders != 0]] = False
            solutions[column, live] = quotients
            rows = np.flatnonzero(coefficients)
            bound += int(np.abs(quotients).max()) * int(np.abs(coefficients[rows]).max())
            if bound >= _LARGEST:
                return None
            rest[np.ix_(rows, live)] -= np.outer(coefficients[rows], quotients)
        return solutions, solved & ~rest.any(axis=0)


class IntegerSystem:
    """All integer solutions of ``matrix @ s = target``, by a column-style Hermite form.

    ``matrix @ transform`` is in echelon form with ``transform`` unimodular; Python integers throughout.
    Cost: about ``rows columns^2`` operations on big integers; meant for some hundred columns.
    """

    def __init__(self, matrix: NDArray[np.int64]) -> None:
        columns = matrix.shape[1]
        self._form: NDArray[Any] = matrix.astype(object)
        self._transform: NDArray[Any] = np.array(
            [[int(i == j) for j in range(columns)] for i in range(columns)], dtype=object
        ).reshape(columns, columns)
        self._pivots: list[int] = []  # the row of each echelon column
        for row in range(matrix.shape[0]):
            self._reduce(row)

    @property
    def kernel(self) -> NDArray[Any]:
        """A basis of the integer vectors ``s`` with ``matrix @ s = 0`` (columns)."""
        result: NDArray[Any] = self._transform[:, len(self._pivots) :]
        return result

    def solve(self, target: NDArray[np.int64]) -> NDArray[Any] | None:
        """One integer solution (Python integers), or None: a proof that there is none."""
        rest: NDArray[Any] = target.astype(object)
        coordinates: list[int] = []
        for column, row in enumerate(self._pivots):
            quotient, remainder = divmod(rest[row], self._form[row, column])
            if remainder:
                return None
            rest = rest - quotient * self._form[:, column]
            coordinates.append(quotient)
        if any(rest):
            return None
        used = self._transform[:, : len(coordinates)]
        result: NDArray[Any] = (used * np.array(coordinates, dtype=object)).sum(axis=1)
        return result

    def _reduce(self, row: int) -> None:
        """Euclid's algorithm on the entries of ``row`` in the columns that have no pivot yet."""
        first = len(self._pivots)
        while True:
            live = [j for j in range(first, self._form.shape[1]) if self._form[row, j]]
            if not live:
                return
            smallest = min(live, key=lambda j: abs(self._form[row, j]))
            for table in (self._form, self._transform):
                table[:, [first, smallest]] = table[:, [smallest, first]]
            if len(live) == 1:
                self._pivots.append(row)
                return
            for j in range(first + 1, self._form.shape[1]):
                quotient = self._form[row, j] // self._form[row, first]
                if quotient:
                    self._form[:, j] -= quotient * self._form[:, first]
                    self._transform[:, j] -= quotient * self._transform[:, first]
