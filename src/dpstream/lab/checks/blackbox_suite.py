"""The conformance suite for black boxes, also for a user's own mechanism."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.core.privacy import PureDP, Randomness
from dpstream.core.tables import count_marginals
from dpstream.families.growing import BlackBox, Counts, Database, ReleasedTable
from dpstream.lab.checks.conformance import FALSE_ALARM, CheckResult, ConformanceReport

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
        if not isinstance(reads, Counts):
            codes.flags.writeable = False
            return Database(t, records=codes)
        counts = tuple(count_marginals(codes, reads.domain, reads.cliques))
        for values in counts:
            values.flags.writeable = False
        return Database(t, counts)

    def run(self, data: Database, seed: object) -> ReleasedTable:
        released = self.box.run(_BUDGET, data, Randomness.seeded(f"{self.seed}/{seed}"))
        if not isinstance(released, ReleasedTable):
            raise ConfigError(
                f"{self.box.name} does not release a table",
                where="check_black_box",
                allowed="a black box whose ``run`` gives a ReleasedTable",
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
            "too little to see anything", where="check_black_box", allowed="t from 2, runs from 100"
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
            problem, detail = True, f"it stopped with {type(error).__name__}: {error}"
        yield CheckResult(name, not problem, detail)


Outcome = tuple[bool, str]


def _runs_at_every_size(subject: _BlackBoxSubject) -> Outcome:
    """The black box runs at every size and gives distributions. Its data are read-only, so writing to them fails."""
    for t in _SIZES:
        data = subject.database(t)
        share = subject.run(data, "size").shares([(subject.column,)])[0]
        if not (share >= 0).all() or abs(float(share.sum()) - 1.0) > 1e-6:
            return True, f"at {t} records its shares are not a distribution"
    return False, f"a distribution at {', '.join(map(str, _SIZES))} records"


def _repeats(subject: _BlackBoxSubject) -> Outcome:
    """The same database and randomness give the same release, whatever ran before and whatever other randomness is."""
    data = subject.database(subject.t)
    first = subject.run(data, "same").pack()
    subject.run(subject.database(subject.t, replaced=True), "between")
    if not _equal(first, subject.run(data, "same").pack()):
        return True, "the same database and the same randomness gave two different releases"
    return False, "a release depends on the database and the given randomness only"


def _packs(subject: _BlackBoxSubject) -> Outcome:
    released = subject.run(subject.database(subject.t), "packed").pack()
    if not _equal(released, subject.box.unpack(released).pack()):
        return True, "unpack(pack) gives another release"
    return False, "unpack(pack) gives the same release"


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
    from scipy.special import betaincinv

    thresholds = np.unique(np.quantile(np.concatenate([a[:half], b[:half]]), np.linspace(0.0, 1.0, 65)))

    def limits(x: NDArray[np.float64], y: NDArray[np.float64], h: float, error: float) -> float:
        hits, misses = int((x >= h).sum()), int((y >= h).sum())
        low = betaincinv(hits, len(x) - hits + 1, error) if hits else 0.0
        high = betaincinv(misses + 1, len(y) - misses, 1 - error) if misses < len(y) else 1.0
        return math.log(low / high) if low > 0 else -math.inf

    best = max(thresholds.tolist(), key=lambda h: limits(a[:half], b[:half], h, 1e-3))
    # Four directions with two limits each share the error.
    return limits(a[half:], b[half:], best, FALSE_ALARM / 8)


def _equal(one: Packed, other: Packed) -> bool:
    same = one.meta == other.meta and one.arrays.keys() == other.arrays.keys()
    return same and all(np.array_equal(array, other.arrays[name]) for name, array in one.arrays.items())


_CHECKS: dict[str, Callable[[_BlackBoxSubject], Outcome]] = {
    "runs at every size, on read-only data": _runs_at_every_size,
    "depends on data and randomness only": _repeats,
    "packs whole": _packs,
    "loses no more than it may": _loses_no_more,
}
