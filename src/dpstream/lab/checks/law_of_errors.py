"""Tests whether a counter's errors follow the law that its matrix predicts.

The error of an estimate is an integer combination of independent integer noises, so its law is known exactly (by
characteristic functions on a grid). Cells are independent, so one run of many cells gives many errors. Pearson's
chi-square compares them with the law.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import LinearMap
from dpstream.core.privacy.noise import Noise

_LEAST_EXPECTED = 50.0
_MOST_BINS = 24


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
    from scipy.stats import chi2

    both = np.sort(np.concatenate([one, other]))
    most = min(_MOST_BINS, int(len(both) / (4 * _LEAST_EXPECTED)))
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
    from scipy.stats import chi2

    cumulative = np.cumsum(pmf) / pmf.sum()
    edges = _edges(cumulative, len(sample))
    if not len(edges):
        return 1.0  # the law is nearly constant, or the sample is too small
    expected = np.diff(np.concatenate([[0.0], cumulative[edges], [1.0]])) * len(sample)
    bins = np.searchsorted(edges, sample + len(pmf) // 2, side="left")
    observed = np.bincount(bins, minlength=len(expected))
    return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), len(edges)))


def _edges(cumulative: NDArray[np.float64], runs: int) -> list[int]:
    """The last value of each bin but the last one. Each bin has at least ``_LEAST_EXPECTED`` expected runs."""
    least = _LEAST_EXPECTED / runs
    bins = min(_MOST_BINS, int(1 / least))
    edges: list[int] = []
    reached = 0.0
    for edge in np.unique(np.searchsorted(cumulative, np.arange(1, max(bins, 1)) / max(bins, 1))):
        mass = float(cumulative[edge])
        if mass - reached >= least and 1.0 - mass >= least:
            edges.append(int(edge))
            reached = mass
    return edges
