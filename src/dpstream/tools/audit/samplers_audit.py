"""Whether noise and choices follow the laws of a plan: many draws of what one run drew, against the exact laws.

Transcripts replay noise, so a sampler that draws something else than its law would be invisible to them. Tested are,
for each law: values against their probabilities (independent noise) or the norm of the vector against its
probabilities (joint noise), the variances and covariances of all cells of one draw, and those of a draw with the
next one; for choices: outcomes against their probabilities.

Each test accuses an honest sampler with probability 1e-8 at most (chi-square: with as many expected values in each
class that its limit law holds there; covariances: 8 standard errors, far beyond what the exponential tails of the
products need). An audit has at most 40 tests.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dpstream.core.foreign import from_extra
from dpstream.core.privacy import (
    AnyNoise,
    CubeNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    HistogramsNoise,
    Randomness,
    Relay,
)
from dpstream.core.privacy.joint import ball_series
from dpstream.tools.audit.controls import QuietNoise
from dpstream.tools.audit.door import Choice, Door
from dpstream.tools.audit.finding import AuditFinding, AuditProgress

with from_extra("evaluate", "audit"):
    from scipy.stats import chi2

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: The probability that chance alone accuses one honest sampler. At most ``_MOST`` of them are tested in an audit.
ERROR, _MOST = 1e-8, 40
#: Values that are drawn of one law; vectors of a joint one at least, and seconds of CPU for more of all joint ones.
_VALUES, _LEAST, _SECONDS = 100_000, 1_000, 20.0
#: Joint laws, and choices, that are tested: others are drawn by the same code with other numbers.
_JOINT, _CHOICES = 5, 3
#: Values that a class of a chi-square test has at least, on average; classes at most.
_EXPECTED, _CLASSES = 50, 200
#: Standard errors of a mean product.
_STANDARD_ERRORS = 8.0
#: Cells of one draw whose covariances are tested.
_CELLS = 64
#: The least variance of noise whose faults are seen: smaller noise is almost always 0.
_VISIBLE = 0.01
#: Numbers of vectors that are computed for the law of a norm, at most.
_NORMS = 20_000


def audit_samplers(
    doors: Sequence[Door], randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """The laws and choices that passed doors; then two broken samplers."""
    sizes: dict[AnyNoise, int] = {}
    for door in doors:
        for one in door.measured:
            sizes[one.noise] = max(sizes.get(one.noise, 1), len(one.exact))
        for drawn in door.drawn:
            for law in (drawn.law, *(test.law for test in drawn.tests)):
                sizes.setdefault(law, 2)
    joint = [one for one in sizes.items() if isinstance(one[0], CubeNoise | HistogramsNoise)][:_JOINT]
    alone = [one for one in sizes.items() if isinstance(one[0], DiscreteLaplace | DiscreteGaussian)]
    laws = [*joint, *alone][: _MOST - _CHOICES]
    choices = [choice for door in doors for choice in door.choices]
    chosen = sorted(choices, key=_entropy, reverse=True)[:_CHOICES]
    seconds = _SECONDS / max(1, len(joint))
    for noise, size in laws:
        progress(f"draws of {noise.describe()}")
        began, words = time.perf_counter(), f"sampler of {noise.describe()}"
        yield _finding(began, words, *law_fault(noise, size, randomness, seconds))
    for number, choice in enumerate(chosen, 1):
        progress(f"repeated choice {number}")
        began, words = time.perf_counter(), f"choice {number} among {len(choice.law)}, repeated"
        yield _finding(began, words, *choice_fault(choice.law, choice.again))
    for name, broken in (("2/3 of the scale", QuietNoise), ("one draw for two cells", _SharedCells)):
        for noise, size in [one for one in laws if one[0].variance > _VISIBLE][:1]:
            progress(f"control: {name}")
            began, fault = time.perf_counter(), law_fault(noise, max(2, size), broken(randomness), 1.0)
            yield _finding(began, f"sampler with {name}", *fault, control=True)


def _finding(began: float, subject: str, runs: int, fault: str, *, control: bool = False) -> AuditFinding:
    return AuditFinding.of(
        began,
        subject=subject,
        claimed=0.0,
        found=math.inf if fault else 0.0,
        confidence=1 - ERROR,
        runs=runs,
        control=control,
        detail=fault or "as its law says",
    )


def _entropy(choice: Choice) -> float:
    law = choice.law[choice.law > 0]
    return float(-(law * np.log(law)).sum())


def law_fault(noise: AnyNoise, size: int, randomness: Randomness, seconds: float) -> tuple[int, str]:
    """How many draws were made, and what is wrong with them; an empty text: nothing.

    Args:
        size: of one draw of independent noise.
        seconds: of CPU, for joint draws.
    """
    values = _drawn(noise, size, randomness, seconds)
    if isinstance(noise, DiscreteLaplace | DiscreteGaussian):
        wrong = _wrong_frequencies(*_value_law(noise, values.ravel()))
    else:
        wrong = _off_support(noise, values) or _wrong_frequencies(*_norm_law(noise, values))
    return len(values), wrong or _wrong_covariances(noise, values)


def choice_fault(law: Floats, again: Callable[[], int]) -> tuple[int, str]:
    """As ``law_fault``, of a choice that is made again and again."""
    ends, outcomes = time.process_time() + _SECONDS / _CHOICES, list[int]()
    while len(outcomes) < _VALUES // 5 and (len(outcomes) < 500 or time.process_time() < ends):
        outcomes.append(again())
    counts = np.bincount(outcomes, minlength=len(law))
    if len(counts) > len(law) or counts[law == 0].any():
        return len(outcomes), "an impossible outcome"
    order = np.argsort(law)
    return len(outcomes), _wrong_frequencies(counts[order], law[order])


def _drawn(noise: AnyNoise, size: int, randomness: Randomness, seconds: float) -> Ints:
    """Draws as rows."""
    if isinstance(noise, DiscreteLaplace | DiscreteGaussian):
        cells = min(max(size, 2), _CELLS)
        return np.array([randomness.draw(noise, cells) for _ in range(_VALUES // cells)])
    ends, rows = time.process_time() + seconds, list[Ints]()
    while len(rows) < _VALUES and (len(rows) < _LEAST or time.process_time() < ends):
        rows.append(randomness.draw(noise, noise.cells))
    return np.array(rows)


def _value_law(noise: DiscreteLaplace | DiscreteGaussian, values: Ints) -> tuple[Ints, Floats]:
    """How often each class of values came, and its probability."""
    reach = math.ceil(40 * math.sqrt(noise.variance)) + 1
    step = max(1, reach // 20_000)
    places = np.arange(-reach, reach + 1)
    # Classes of ``step`` values in a row; a last one for all values beyond.
    probabilities = np.add.reduceat(np.asarray(noise.pmf(places)), np.arange(0, len(places), step))
    counts = np.bincount(
        np.clip((values + reach) // step, 0, len(probabilities) - 1), minlength=len(probabilities)
    )
    return counts, probabilities / probabilities.sum()


def _norm_law(noise: CubeNoise | HistogramsNoise, values: Ints) -> tuple[Ints, Floats]:
    """How often each norm of the vector came, and its probability; nothing where these are too many."""
    norms = (
        np.abs(values).max(axis=1)
        if isinstance(noise, CubeNoise)
        else np.array([noise.norm(row) for row in values])
    )
    most = math.ceil(4 * (noise.dimension + 10) * max(1.0, float(noise.scale)))
    if most > _NORMS:
        return np.zeros(0, np.int64), np.zeros(0)
    balls = _balls(noise, most)
    inside = [b - a for a, b in itertools.pairwise([0, *balls])]
    rate = 1 / float(noise.scale)
    logs = np.array([math.log(many) - r * rate if many else -math.inf for r, many in enumerate(inside)])
    law = np.exp(logs - logs.max())
    return np.bincount(np.minimum(norms, most), minlength=len(law)), law / law.sum()


def _balls(noise: CubeNoise | HistogramsNoise, most: int) -> list[int]:
    """How many vectors have a norm of at most 0, 1, ..., ``most``."""
    if isinstance(noise, CubeNoise):
        return [(2 * r + 1) ** noise.dimension for r in range(most + 1)]
    series, d = ball_series(noise.sizes, level=noise.level).vectors, noise.dimension
    ways = [math.comb(r + d, d) for r in range(most + 1)]
    return [sum(h * ways[r - j] for j, h in enumerate(series[: r + 1])) for r in range(most + 1)]


def _off_support(noise: CubeNoise | HistogramsNoise, values: Ints) -> str:
    if isinstance(noise, CubeNoise):
        return ""
    sums = np.add.reduceat(values, noise.starts, axis=1)
    wanted = np.zeros((len(sums), 1), np.int64) if noise.level else sums[:, :1]
    return "" if (sums == wanted).all() else "histograms differ in sum"


def _wrong_frequencies(counts: Ints, law: Floats) -> str:
    """A chi-square test; neighbouring classes are joined until each is large enough."""
    runs = int(counts.sum())
    if runs == 0:
        return ""
    wanted = max(_EXPECTED, runs / _CLASSES)
    group = np.floor(np.cumsum(law) * runs / wanted * (1 - 1e-12)).astype(np.int64)
    group = np.unique(group, return_inverse=True)[1]
    expected, seen = np.bincount(group, law * runs), np.bincount(group, counts)
    while len(expected) > 1 and expected[-1] < wanted:
        expected = np.append(expected[:-2], expected[-2:].sum())
        seen = np.append(seen[:-2], seen[-2:].sum())
    if len(expected) < 2:
        return ""
    distance = float(((seen - expected) ** 2 / np.maximum(expected, 1e-300)).sum())
    chance = float(chi2.sf(distance, len(expected) - 1))
    return "" if chance > ERROR else f"frequencies of probability {chance:.1g}"


def _wrong_covariances(noise: AnyNoise, values: Ints) -> str:
    own = values[:, :_CELLS].astype(np.float64)
    exact = _covariances(noise, own.shape[1])
    for other, law, what in (
        (own, exact, "two cells of one draw"),
        (np.roll(own, 1, axis=0), np.zeros_like(exact), "cells of two draws"),
    ):
        mean = own.T @ other / len(own)
        spread = np.sqrt(np.maximum((own**2).T @ (other**2) / len(own) - mean**2, 0) / len(own))
        away = np.abs(mean - law) > _STANDARD_ERRORS * np.maximum(spread, 1e-12) + 1e-9 * np.abs(law)
        # Noise that is almost always 0 has no spread that can be estimated.
        rare = (own != 0).mean() * len(own) < _EXPECTED
        if away.any() and not rare:
            one, two = (int(i) + 1 for i in np.argwhere(away)[0])
            return f"{what}, {one} and {two}, break the law of covariances"
    return ""


def _covariances(noise: AnyNoise, cells: int) -> Floats:
    """The exact covariances of the first cells."""
    if not isinstance(noise, HistogramsNoise):
        return np.eye(cells) * noise.variance
    block = np.repeat(np.arange(len(noise.sizes)), noise.sizes)[:cells]
    sizes = np.array(noise.sizes, np.float64)[block]
    # Cells of different blocks depend on each other through the common sum only.
    result: Floats = noise.sum_variance / np.outer(sizes, sizes)
    for number, size in enumerate(noise.sizes):
        inside = np.flatnonzero(block == number)
        result[np.ix_(inside, inside)] = noise.covariance_within(size)
    np.fill_diagonal(result, [noise.variances[b] for b in block])
    return result


class _SharedCells(Relay):
    """A control: the second cell gets the noise of the first one."""

    def draw(self, law: AnyNoise, size: int) -> Ints:
        """A draw but for the second cell."""
        return _shared(self._inner.draw(law, size))


def _shared(values: Ints) -> Ints:
    values[1:2] = values[:1]
    return values
