"""The conformance suite for counters, also for a user's own counter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv
from scipy.stats import chi2

from dpstream.checks.certificate import NoiseTape, RecordedMap, certify, read_map, run_on_tape
from dpstream.core.contracts import Packed, pack_fields, unpack_fields
from dpstream.core.counters import CalibratedCounter, Counter, CounterState, LinearMap
from dpstream.core.counters.counter import MAX_INCREMENT, FactoredCounter, check_count
from dpstream.core.errors import ConfigError, DpstreamError, HorizonError
from dpstream.core.privacy import AnyNoise, Budget, Event, Noise, PureDP, Randomness
from dpstream.core.tables import count_marginals
from dpstream.families.growing import BlackBox, Counts, Database
from dpstream.families.growing.tables import AnyTable

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
    """Run the conformance suite on a counter: exact sums, certificate, matrix, variance, law of errors, cells,
    resuming, clock, memory, refusals (each by its name in the report).

    Args:
        recipe: the counter.
        budget: by default epsilon = 1, pure. unit: by default one record inserted or deleted.
        ticks: how many ticks to run; at most the counter's horizon is used.
        cells: in the run that tests the errors. More cells show smaller deviations.
        seed: of increments and simulated noise. No private data are used.
        arrays: t -> the most int64 values per cell in the state after ``t`` ticks; by default ``5 + log2 t``.

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
            return CheckResult("matrix", False, "the code's estimates differ from the matrix's, rounded")
    elif not np.array_equal(tape.inputs_map, running_sum):
        return CheckResult("matrix", False, "the code's running sums are wrong")
    elif _keys(matrix.decoder, matrix.scales) != _keys(tape.noise_map, tape.laws):
        return CheckResult("matrix", False, "code and matrix differ in noise")
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
    return CheckResult("cells", same, f"each of {_WIDTH} cells has independent noise")


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

    def draw(self, law: AnyNoise, size: int) -> NDArray[np.int64]:
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
            return CheckResult("refusals", False, f"{what}: accepted, or refused after a change of the state")
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


# Tests whether a counter's errors follow the law that its matrix predicts.
#
# The error of an estimate is an integer combination of independent integer noises, so its law is known
# exactly (by characteristic functions on a grid). Cells are independent, so one run of many cells gives many
# errors. Pearson's chi-square compares them with the law.


_MIN_EXPECTED = 50.0
_MAX_BINS = 24


def error_p_values(predicted: LinearMap, errors: NDArray[np.int64]) -> NDArray[np.float64]:
    """The p-values of the errors at each tick, and of the differences between neighbouring ticks.

    Args:
        predicted: the counter's matrices for these ticks.
        errors: estimates minus exact running sums, shape (ticks, cells).

    Returns:
        ``2 ticks - 1`` p-values: first of the errors, then of the differences.
    """
    decoder = predicted.decoder
    rows = np.concatenate([decoder, np.diff(decoder, axis=0)])
    samples = np.concatenate([errors, np.diff(errors, axis=0)])
    laws = _Laws(predicted.scales, rows)
    return np.array([_p_value(laws.pmf(row), sample) for row, sample in zip(rows, samples, strict=True)])


def two_sample_p_values(expected: NDArray[np.int64], errors: NDArray[np.int64]) -> NDArray[np.float64]:
    """As ``error_p_values``, but for a second sample, shape (ticks, cells), in place of a law (chi-square,
    homogeneity)."""
    first = np.concatenate([expected, np.diff(expected, axis=0)])
    second = np.concatenate([errors, np.diff(errors, axis=0)])
    return np.array([_same_law(one, other) for one, other in zip(first, second, strict=True)])


def _same_law(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    both = np.sort(np.concatenate([one, other]))
    most = min(_MAX_BINS, int(len(both) / (4 * _MIN_EXPECTED)))
    edges = np.unique(both[np.linspace(0, len(both) - 1, most + 1)[1:-1].astype(np.int64)])
    counts = np.array(
        [np.bincount(np.searchsorted(edges, sample), minlength=len(edges) + 1) for sample in (one, other)]
    )
    counts = counts[:, counts.sum(axis=0) > 0]
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    if counts.shape[1] < 2:
        return 1.0  # both are the same constant
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), counts.shape[1] - 1))


class _Laws:
    """Computes the laws of integer combinations of noises, modulo a power of two that exceeds 80 standard
    deviations."""

    def __init__(self, scales: tuple[Noise, ...], rows: NDArray[np.int64]) -> None:
        self._kinds = list(dict.fromkeys(scales))
        self._kind_of = np.array([self._kinds.index(noise) for noise in scales])
        variances = np.array([self._kinds[kind].variance for kind in self._kind_of])
        widest = float(np.sqrt(((rows.astype(np.float64) ** 2) @ variances).max()))
        self.size = 1 << max(8, int(np.ceil(np.log2(80 * widest + 80))))
        points = np.arange(self.size) - self.size // 2
        self._transforms = [
            np.fft.fft(np.fft.ifftshift(np.asarray(kind.pmf(points), dtype=np.float64))).real
            for kind in self._kinds
        ]
        self._frequencies = np.arange(self.size)

    def pmf(self, row: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probabilities of ``-size/2 .. size/2 - 1`` for the combination with these coefficients."""
        product = np.ones(self.size)
        for kind, transform in enumerate(self._transforms):
            mine = np.abs(row[self._kind_of == kind])
            for coefficient, count in zip(*np.unique(mine[mine > 0], return_counts=True), strict=True):
                product *= transform[int(coefficient) * self._frequencies % self.size] ** int(count)
        result: NDArray[np.float64] = np.fft.fftshift(np.fft.ifft(product).real)
        return np.maximum(result, 0.0)


def _p_value(pmf: NDArray[np.float64], sample: NDArray[np.int64]) -> float:
    cumulative = np.cumsum(pmf) / pmf.sum()
    edges = _edges(cumulative, len(sample))
    if not len(edges):
        return 1.0  # the law is nearly constant, or the sample is too small
    expected = np.diff(np.concatenate([[0.0], cumulative[edges], [1.0]])) * len(sample)
    bins = np.searchsorted(edges, sample + len(pmf) // 2, side="left")
    observed = np.bincount(bins, minlength=len(expected))
    return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), len(edges)))


def _edges(cumulative: NDArray[np.float64], runs: int) -> list[int]:
    """The last value of each bin but the last one. Each bin has at least ``_MIN_EXPECTED`` expected runs."""
    least = _MIN_EXPECTED / runs
    bins = min(_MAX_BINS, int(1 / least))
    edges: list[int] = []
    reached = 0.0
    for edge in np.unique(np.searchsorted(cumulative, np.arange(1, max(bins, 1)) / max(bins, 1))):
        mass = float(cumulative[edge])
        if mass - reached >= least and 1.0 - mass >= least:
            edges.append(int(edge))
            reached = mass
    return edges


# The conformance suite for black boxes, also for a user's own mechanism.

#: Probability that ``check_black_box`` rejects a black box that keeps its budget (only the check of the loss is random
#: in that way).
_BUDGET = PureDP(Fraction(1))
_SIZES = (1, 2, 50)


@dataclass(frozen=True)
class _BlackBoxSubject:
    box: BlackBox[Any]
    column: int
    t: int
    runs: int
    seed: int

    def database(self, t: int, *, replaced: bool = False) -> Database:
        """A database of ``t`` equal records, half of which differ in one column; ``replaced``: one more differs."""
        reads = self.box.reads
        codes = np.zeros((t, len(reads.domain)), np.int32)
        codes[: t // 2, self.column] = 1
        if replaced:
            codes[-1, self.column] = 1
        counts = tuple(count_marginals(codes, reads.domain, reads.cliques))
        for values in counts:
            values.flags.writeable = False
        return Database(t, counts)

    def run(self, data: Database, seed: object) -> AnyTable:
        released = self.box.run(_BUDGET, data, Randomness.seeded(f"{self.seed}/{seed}")).released
        if not isinstance(released, AnyTable):
            raise ConfigError(
                f"{self.box.name} must release a table",
                where="check_black_box",
                allowed="a black box whose ``run`` gives a ModelTable, WeightsTable or RowsTable",
            )
        return released


def check_black_box(box: BlackBox[Any], *, t: int = 20, runs: int = 1000, seed: int = 1) -> ConformanceReport:
    """Run all checks of a black box that are possible from outside, on small invented databases.

    Guarantee: none about privacy, since a mechanism that passes may still lose more than its budget. A mechanism that
    keeps its budget is rejected with probability ``FALSE_ALARM`` at most.

    Args:
        box: the black box.
        t: the number of records of the two neighbours whose releases are compared.
        runs: the number of runs on each neighbour, at epsilon = 1. More runs show a smaller excess.
        seed: the seed of the noise, so that a report can be repeated.

    Errors:
        ConfigError: the black box reads no column with two values, or ``t`` or ``runs`` is too small.

    Cost: two times ``runs`` runs.
    """
    if t < 2 or runs < 100:
        raise ConfigError(
            "too few runs to see anything", where="check_black_box", allowed="t from 2, runs from 100"
        )
    subject = _BlackBoxSubject(box.fitted(0.5), _column(box), t, runs, seed)
    return ConformanceReport(box.name, tuple(_results(subject)), "black box")


def _column(box: BlackBox[Any]) -> int:
    """The first column with at least two values that the black box reads (ConfigError: there is none)."""
    reads, columns = box.reads, set(range(len(box.reads.domain)))
    if isinstance(reads, Counts):
        columns = {i for clique in reads.cliques for i in clique}
    wide = [i for i in sorted(columns) if reads.domain.sizes[i] > 1]
    if not wide:
        raise ConfigError(
            "the black box reads no column with two values",
            where="check_black_box",
            allowed="a black box that does",
        )
    return wide[0]


def _results(subject: _BlackBoxSubject) -> Iterator[CheckResult]:
    for name, check in _CHECKS.items():
        try:
            problem, detail = check(subject)
        except (DpstreamError, ArithmeticError, ValueError, TypeError, LookupError) as error:
            problem, detail = True, f"stopped with {type(error).__name__}: {error}"
        yield CheckResult(name, not problem, detail)


Outcome = tuple[bool, str]


def _runs_at_every_size(subject: _BlackBoxSubject) -> Outcome:
    """The black box runs at every size and gives distributions. Its data are read-only, so writing to them fails."""
    for t in _SIZES:
        data = subject.database(t)
        share = subject.run(data, "size").shares([(subject.column,)])[0]
        if not (share >= 0).all() or abs(float(share.sum()) - 1.0) > 1e-6:
            return True, f"shares at {t} records are not a distribution"
    return False, f"a distribution at {', '.join(map(str, _SIZES))} records"


def _repeats(subject: _BlackBoxSubject) -> Outcome:
    """The same database and randomness give the same release, whatever ran before and whatever other randomness is."""
    data = subject.database(subject.t)
    first = pack_fields(subject.run(data, "same"))
    subject.run(subject.database(subject.t, replaced=True), "between")
    if not _equal_packs(first, pack_fields(subject.run(data, "same"))):
        return True, "one database and one randomness gave two releases"
    return False, "a release depends on the database and the given randomness only"


def _packs(subject: _BlackBoxSubject) -> Outcome:
    released = subject.run(subject.database(subject.t), "packed")
    packed = pack_fields(released)
    if not _equal_packs(
        packed, pack_fields(unpack_fields(type(released), packed, domain=subject.box.reads.domain))
    ):
        return True, "unpack_fields(pack_fields(...)) gives another release"
    return False, "a packed release reads back the same"


def _loses_no_more(subject: _BlackBoxSubject) -> Outcome:
    """The loss seen in one statistic: half of the runs choose a tail, and the others judge it by binomial limits."""
    sides = []
    for replaced in (False, True):
        data, name = subject.database(subject.t, replaced=replaced), "replaced" if replaced else "base"
        shares = [
            subject.run(data, f"{name}/{i}").shares([(subject.column,)])[0] for i in range(subject.runs)
        ]
        sides.append(np.array([share[1] - share[0] for share in shares]))
    half = subject.runs // 2
    largest = max(
        _bound(a, b, half) for a, b in (sides, sides[::-1], [-s for s in sides], [-s for s in sides[::-1]])
    )
    limit = float(_BUDGET.epsilon)
    what = f"the loss is at least {largest:.3g}" if largest > 0 else "no loss was seen"
    return largest > limit, f"{what}; allowed is {limit:g} ({subject.runs} runs on each of two databases)"


def _bound(a: NDArray[np.float64], b: NDArray[np.float64], half: int) -> float:
    """A lower bound on ``log(P_a(s >= h) / P_b(s >= h))``, with an error of at most a quarter of ``FALSE_ALARM``."""
    thresholds = np.unique(np.quantile(np.concatenate([a[:half], b[:half]]), np.linspace(0.0, 1.0, 65)))

    def limits(x: NDArray[np.float64], y: NDArray[np.float64], h: float, error: float) -> float:
        hits, misses = int((x >= h).sum()), int((y >= h).sum())
        low = betaincinv(hits, len(x) - hits + 1, error) if hits else 0.0
        high = betaincinv(misses + 1, len(y) - misses, 1 - error) if misses < len(y) else 1.0
        return math.log(low / high) if low > 0 else -math.inf

    best = max(thresholds.tolist(), key=lambda h: limits(a[:half], b[:half], h, 1e-3))
    # Four directions with two limits each share the error.
    return limits(a[half:], b[half:], best, FALSE_ALARM / 8)


def _equal_packs(one: Packed, other: Packed) -> bool:
    same = one.meta == other.meta and one.arrays.keys() == other.arrays.keys()
    return same and all(np.array_equal(array, other.arrays[name]) for name, array in one.arrays.items())


_CHECKS: dict[str, Callable[[_BlackBoxSubject], Outcome]] = {
    "runs at every size, on read-only data": _runs_at_every_size,
    "depends on data and randomness only": _repeats,
    "packs whole": _packs,
    "loses no more than it may": _loses_no_more,
}
