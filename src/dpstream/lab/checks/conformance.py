"""The conformance suite for counters, also for a user's own counter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import CalibratedCounter, Counter, CounterState, LinearMap
from dpstream.core.counters.counter import MAX_INCREMENT, FactoredCounter, check_count
from dpstream.core.errors import DpstreamError, HorizonError
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.noise import Noise
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event
from dpstream.lab.checks.certificate import certify
from dpstream.lab.checks.law_of_errors import error_p_values, two_sample_p_values
from dpstream.lab.checks.tape import NoiseTape, RecordedMap, read_map, run_on_tape

#: Probability that ``check_counter`` rejects a correct counter (only the check of the errors is random).
FALSE_ALARM = 1e-8
# Far out, Pearson's statistic has heavier tails than the chi-square law; with 50 expected runs a bin
# the ratio stays below this.
_TAIL = 1000
_WIDTH = 3


@dataclass(frozen=True)
class CheckResult:
    """The result of one check: its name, whether the subject passed, and details in words."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class ConformanceReport:
    """The results of all checks of one counter or black box; ``print`` shows them."""

    subject: str
    results: tuple[CheckResult, ...]
    kind: str = "counter"

    @property
    def passed(self) -> bool:
        """Whether the subject passed every check."""
        return all(result.passed for result in self.results)

    @property
    def failures(self) -> tuple[str, ...]:
        """The names of the failed checks."""
        return tuple(result.name for result in self.results if not result.passed)

    def __str__(self) -> str:
        lines = [f"{'ok  ' if r.passed else 'FAIL'} {r.name}: {r.detail}" for r in self.results]
        return "\n".join([f"{self.kind} {self.subject}", *lines])


@dataclass(frozen=True)
class _Subject:
    """A counter under test, and the settings of the checks."""

    recipe: Counter
    budget: Budget
    unit: Event
    ticks: int
    cells: int
    seed: int
    arrays: Callable[[int], int]

    def fresh(self) -> CalibratedCounter:
        return self.recipe.calibrate(self.budget, self.unit)

    def increments(self, width: int, salt: int) -> NDArray[np.int64]:
        rng = np.random.default_rng([self.seed, salt])
        return rng.integers(-50, 50, (self.ticks, width), endpoint=True)

    def noise_at(self, tick: int) -> Randomness:
        """The randomness of one tick, the same at every call."""
        return Randomness.seeded(f"conformance {self.seed} {tick}")


def check_counter(
    recipe: Counter,
    *,
    budget: Budget | None = None,
    unit: Event | None = None,
    ticks: int = 32,
    cells: int = 4000,
    seed: int = 0,
    arrays: Callable[[int], int] | None = None,
) -> ConformanceReport:
    """Run the conformance suite on a counter.

    The checks, by name:

    * ``exact-sums``: without noise the estimates are the exact running sums, negative increments included;
    * ``certificate``: the counter costs at most what it claims;
    * ``matrix``: ``materialize`` agrees with the code, and its loss is within the claim;
    * ``variance``: ``variance(t)`` agrees with the matrix;
    * ``errors``: the errors have the predicted law, by chi-square (a weak check where the noise is almost always 0);
    * ``cells``: each cell has its own noise;
    * ``resume``: a saved state continues exactly;
    * ``clock``: only its own steps change a state;
    * ``memory``: the state stays as small as promised;
    * ``refusals``: bad input is refused and does not change the state.

    Args:
        recipe: the counter.
        budget: by default epsilon = 1, pure.
        unit: by default one record inserted or deleted.
        ticks: how many ticks to run; at most the counter's horizon is used.
        cells: the number of cells in the run that tests the errors. More cells show smaller deviations.
        seed: the seed of increments and simulated noise. No private data are used.
        arrays: the promised memory: t -> the most int64 values per cell that the state may hold after ``t`` ticks; by
            default ``5 + log2 t``.

    Errors:
        ConfigError: the counter is not a linear map of increments and noise.
    """
    budget = budget or PureDP.of(1)
    unit = unit or Event()
    limit = recipe.calibrate(budget, unit).horizon
    ticks = check_count(ticks, what="the number of ticks to check", least=1, most=512)
    ticks = ticks if limit is None else min(ticks, limit)
    subject = _Subject(recipe, budget, unit, ticks, cells, seed, arrays or _default_arrays)
    return ConformanceReport(f"{recipe.name}, {budget}, {unit.name}", tuple(_checks(subject)))


def _default_arrays(t: int) -> int:
    return 5 + int(math.log2(max(t, 1)))


def _checks(subject: _Subject) -> Iterator[CheckResult]:
    counter = subject.fresh()
    single = read_map(counter, subject.ticks)
    matrix = counter.materialize(subject.ticks)
    yield _exact_sums(subject)
    proof = certify(counter, subject.ticks)
    yield CheckResult("certificate", proof.holds, str(proof))
    yield _matrix(counter, matrix, single)
    yield _variance(counter, matrix)
    yield _errors(subject, matrix)
    yield _cells(subject, single)
    yield _resume(subject)
    yield _clock(subject)
    yield _memory(subject)
    yield _refusals(subject)


def _exact_sums(subject: _Subject) -> CheckResult:
    z = subject.increments(_WIDTH, 1)
    same = np.array_equal(run_on_tape(subject.fresh(), z, NoiseTape()), z.cumsum(axis=0))
    return CheckResult("exact-sums", same, "without noise, estimates against exact running sums")


def _matrix(counter: CalibratedCounter, matrix: LinearMap, tape: RecordedMap) -> CheckResult:
    n = tape.ticks
    running_sum = np.tril(np.ones((n, n), np.int64))
    if not np.allclose(matrix.decoder @ matrix.encoder, running_sum, rtol=0.0, atol=1e-9):
        return CheckResult("matrix", False, "decoder @ encoder is not the running sum")
    if isinstance(counter, FactoredCounter):
        if not _decodes(counter, matrix, tape):
            return CheckResult(
                "matrix", False, "the estimates of the code are not those of the matrix, rounded"
            )
    elif not np.array_equal(tape.inputs_map, running_sum):
        return CheckResult("matrix", False, "the code does not compute the running sum of the increments")
    elif _keys(matrix.decoder, matrix.scales) != _keys(tape.noise_map, tape.laws):
        return CheckResult("matrix", False, "the noise of the code is not the noise of the matrix")
    loss = matrix.loss(counter.unit)
    within = loss <= counter.budget.amount
    return CheckResult("matrix", within, f"loss by sensitivity {float(loss):.6g}, claim {counter.budget}")


def _decodes(counter: CalibratedCounter, matrix: LinearMap, tape: RecordedMap) -> bool:
    """Whether the code's estimates are those of the matrix, for some values of the noise in the order of the draws."""
    if matrix.scales != tape.laws:
        return False
    rng = np.random.default_rng(21)
    for size in (1, 100, 10_000):
        noise = rng.integers(-size, size, len(tape.laws), endpoint=True)
        estimates = run_on_tape(counter, np.zeros((tape.ticks, 1), np.int64), NoiseTape(noise)).ravel()
        if np.abs(estimates - matrix.decoder @ noise).max() > 0.5 + 1e-9 * size:
            return False
    return True


def _keys(columns: NDArray[Any], laws: tuple[Noise, ...]) -> list[tuple[str, bytes]]:
    """The columns of the noise with their laws, sorted, so that the order of the draws does not matter."""
    used = [i for i in range(len(laws)) if columns[:, i].any()]
    return sorted((repr(laws[i]), columns[:, i].tobytes()) for i in used)


def _variance(counter: CalibratedCounter, matrix: LinearMap) -> CheckResult:
    stated = np.array([counter.variance(t + 1) for t in range(len(matrix.decoder))])
    same = bool(np.allclose(stated, matrix.variances(), rtol=1e-9, atol=0.0)) and counter.variance(0) == 0.0
    return CheckResult("variance", same, "variance(t) against the matrix")


def _errors(subject: _Subject, matrix: LinearMap) -> CheckResult:
    z = np.repeat(subject.increments(1, 2), subject.cells, axis=1)
    errors = run_on_tape(subject.fresh(), z, subject.noise_at(0)) - z.cumsum(axis=0)
    if np.issubdtype(matrix.decoder.dtype, np.integer):
        values = error_p_values(matrix, errors)
    else:
        # The law of a weighted mean is not computed here, so the errors are compared with draws from the matrix.
        source = subject.noise_at(-1)
        noise = np.array([source.draw(law, subject.cells) for law in matrix.scales])
        exact = matrix.decoder @ noise
        # A counter may round halves in either direction, so ticks at which halves are frequent are left out.
        halves = np.abs(exact - np.floor(exact) - 0.5) < 1e-6
        clear = halves.mean(axis=1) < 1e-3
        values = two_sample_p_values(np.rint(exact[clear]).astype(np.int64), errors[clear])
    threshold = FALSE_ALARM / (_TAIL * max(len(values), 1))
    return CheckResult(
        "errors",
        bool(len(values)) and bool((values > threshold).all()),
        f"smallest p-value {values.min(initial=1.0):.3g} of {len(values)}, rejected below {threshold:.3g}",
    )


def _cells(subject: _Subject, single: RecordedMap) -> CheckResult:
    ticks = min(subject.ticks, 8)
    wide = read_map(subject.fresh(), ticks, _WIDTH)
    noise = wide.noise_map.reshape(-1, _WIDTH, len(wide.laws))
    if (noise.any(axis=0).sum(axis=0) > 1).any():
        return CheckResult("cells", False, "one draw of noise reaches two cells")
    alone = single.noise_map[: len(noise)]
    expected = _keys(alone, single.laws)
    same = all(_keys(np.ascontiguousarray(noise[:, c]), wide.laws) == expected for c in range(_WIDTH))
    return CheckResult("cells", same, f"each of {_WIDTH} cells has its own noise, as a single cell has")


def _copy(state: CounterState) -> CounterState:
    return {key: array.copy() for key, array in state.items()}


def _resume(subject: _Subject) -> CheckResult:
    z = subject.increments(_WIDTH, 3)
    counter = subject.fresh()
    state = counter.init(_WIDTH)
    saved: list[CounterState] = []
    outputs = []
    for tick, row in enumerate(z):
        saved.append(_copy(state))
        outputs.append(counter.step(state, row.copy(), subject.noise_at(tick)))
    for cut, restored in enumerate(saved):
        other = subject.fresh()
        other.check_state(restored, _WIDTH)
        for tick in range(cut, len(z)):
            again = other.step(restored, z[tick].copy(), subject.noise_at(tick))
            if not np.array_equal(again, outputs[tick]):
                return CheckResult("resume", False, f"saved after {cut} ticks, differs at tick {tick + 1}")
    return CheckResult("resume", True, f"saved after each of {len(z)} ticks, continued exactly")


def _clock(subject: _Subject) -> CheckResult:
    """Two states of one calibrated counter do not affect each other; the second makes every third step only."""
    z = subject.increments(_WIDTH, 4)
    shared = subject.fresh()
    often, seldom = shared.init(_WIDTH), shared.init(_WIDTH)
    mixed = []
    for step, row in enumerate(z):
        shared.step(often, row.copy(), subject.noise_at(step))
        if step % 3 == 2:
            mixed.append(shared.step(seldom, row.copy(), subject.noise_at(-1 - step)))
    alone = subject.fresh()
    state = alone.init(_WIDTH)
    steps = range(2, len(z), 3)
    expected = [alone.step(state, z[step].copy(), subject.noise_at(-1 - step)) for step in steps]
    return CheckResult("clock", np.array_equal(mixed, expected), "invoked at every third step only")


def _memory(subject: _Subject) -> CheckResult:
    counter = subject.fresh()
    ticks = 2000 if counter.horizon is None else min(2000, counter.horizon)
    state = counter.init(_WIDTH)
    tape, zeros = _Silence(), np.zeros(_WIDTH, np.int64)
    for tick in range(1, ticks + 1):
        counter.step(state, zeros, tape)
        held = sum(array.size for array in state.values())
        if held > subject.arrays(tick) * _WIDTH:
            return CheckResult("memory", False, f"{held} values after {tick} ticks of {_WIDTH} cells")
    return CheckResult("memory", True, f"at most {subject.arrays(ticks)} values a cell in {ticks} ticks")


class _Silence(NoiseTape):
    """Gives zeros, and records nothing, so that long runs need no memory."""

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)


def _refusals(subject: _Subject) -> CheckResult:
    counter = subject.fresh()
    state = counter.init(_WIDTH)
    fine = np.ones(_WIDTH, np.int64)
    bad: dict[str, object] = {
        "floats": fine.astype(np.float64),
        "32-bit integers": fine.astype(np.int32),
        "a list": [1] * _WIDTH,
        "another width": np.ones(_WIDTH + 1, np.int64),
        "two dimensions": np.ones((1, _WIDTH), np.int64),
        "a huge cell": np.array([0, 0, MAX_INCREMENT + 1]),
        "a hugely negative cell": np.array([0, -MAX_INCREMENT - 1, 0]),
        "the smallest integer": np.full(_WIDTH, np.iinfo(np.int64).min),
    }
    before = _copy(state)
    for what, increment in bad.items():
        if not _refused(counter, state, increment) or not _equal(before, state):
            return CheckResult("refusals", False, f"{what}: accepted, or refused after the state was changed")
    if counter.horizon is not None and not _stops(counter, counter.horizon):
        return CheckResult(
            "refusals", False, "a tick beyond the horizon raises no HorizonError, or changes the state"
        )
    return CheckResult("refusals", True, f"{', '.join(bad)}; ticks beyond a horizon")


def _refused(counter: CalibratedCounter, state: CounterState, increment: object) -> bool:
    tape = NoiseTape()
    try:
        counter.step(state, increment, tape)  # type: ignore[arg-type]  # wrong on purpose
    except DpstreamError:
        return not tape.laws
    return False


def _equal(a: CounterState, b: CounterState) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)


def _stops(counter: CalibratedCounter, horizon: int) -> bool:
    if horizon > 10_000:
        return True  # so many steps would take too long
    state, tape, one = counter.init(1), _Silence(), np.ones(1, np.int64)
    for _ in range(horizon):
        counter.step(state, one, tape)
    before = _copy(state)
    try:
        counter.step(state, one, tape)
    except HorizonError:
        return _equal(before, state)
    return False
