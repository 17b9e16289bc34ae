"""The constants of the buffered linear Toeplitz counter (``dpstream.core.counters.toeplitz.CONSTANTS``).

Weights ``c(x) = 1 + sum_i omega_i x / (1 - theta_i x)`` with ``0 < theta_i < 1`` and ``omega_i > 0``. Minimised is
the mean variance of the estimates at the ticks ``T/2 .. T``, with noise for the weights' sum of squares over all
ages: an unbounded counter that is best near tick T. No simulation: both are sums of geometric series.

The measurements are ``y = c z + N``; the estimates' noise has the coefficients ``d(x) = 1 / ((1 - x) c(x))``. ``1/c``
is of the same kind as c: its rates are the eigenvalues of ``diag(theta) - 1 omega^T``.

Run: python benchmarks/blt_constants.py (about a minute). Prints the constants and the standard deviations at
rho = 1/2, before rounding to a grid.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]
BUFFERS = {1000: 4, 10_000: 4, 1_000_000: 5}


def squared_norm(theta: Array, omega: Array) -> float:
    """The sum of the squared weights of all ages."""
    return float(1.0 + (np.outer(omega, omega) / (1.0 - np.outer(theta, theta))).sum())


def variances(theta: Array, omega: Array, ticks: Array) -> Array | None:
    """``sum_{k < t} d_k^2`` for noise of variance 1; None where a rate leaves (0, 1)."""
    rates, vectors = np.linalg.eig(np.diag(theta) - np.outer(np.ones_like(theta), omega))
    if np.iscomplexobj(rates) and np.abs(np.imag(rates)).max() > 1e-13:
        return None
    rates, vectors = np.real(rates), np.real(vectors)
    if rates.min() <= 0.0 or rates.max() >= 1.0:
        return None
    residues = -(omega @ vectors) * np.linalg.solve(vectors, np.ones_like(theta))
    # d_k = level - sum_j part_j rate_j^k
    parts = residues / (1.0 - rates)
    level = 1.0 + parts.sum()
    products = np.outer(rates, rates)
    crossed = np.outer(parts, parts) / (1.0 - products)
    powers = rates[None, :] ** ticks[:, None]
    linear = ((1.0 - powers) * (parts / (1.0 - rates))).sum(axis=1)
    square = crossed.sum() - np.einsum("ti,ij,tj->t", powers, crossed, powers)
    result: Array = level**2 * ticks - 2.0 * level * linear + square
    return result


def optimise(horizon: int, buffers: int) -> tuple[Array, Array, float]:
    """``1 - theta``, ``omega`` and the root mean square over ``T/2 .. T``, from several starts."""
    ticks = np.linspace(horizon / 2, horizon, 33)

    def split(point: Array) -> tuple[Array, Array]:
        return np.exp(point[:buffers]), np.exp(point[buffers:])

    def loss(point: Array) -> float:
        rates, omega = split(point)
        if rates.max() >= 1.0 or rates.min() < 1e-9 or omega.sum() >= 1.0:
            return 1e9
        found = variances(1.0 - rates, omega, ticks)
        return 1e9 if found is None else squared_norm(1.0 - rates, omega) * float(found.mean())

    best: tuple[float, Array] = (math.inf, np.zeros(2 * buffers))
    for first in (1.5, 3.0):
        ages = np.geomspace(first, 0.5 * horizon, buffers)
        # Weights fall like 1/sqrt(age): an exponential of each age, of that size.
        point = np.log(np.concatenate([1.0 / ages, 0.3 / np.sqrt(ages)]))
        for _ in range(8):
            found = minimize(
                loss,
                point,
                method="Nelder-Mead",
                options={"maxfev": 8000, "xatol": 1e-9, "fatol": 1e-13, "adaptive": True},
            )
            point = found.x
        best = min(best, (float(found.fun), point), key=lambda pair: pair[0])
    rates, omega = split(best[1])
    order = np.argsort(rates)
    return rates[order], omega[order], math.sqrt(best[0])


def main() -> None:
    """Print everything."""
    for horizon, buffers in BUFFERS.items():
        rates, omega, rms = optimise(horizon, buffers)
        print(f"    {horizon}: (")
        for values in (rates, omega):
            print(f"        ({', '.join(f'{value:.9g}' for value in values)}),")
        print("    ),")
        at = np.array([10.0, 100.0, horizon / 10, horizon / 2, horizon, 10 * horizon])
        found = variances(1.0 - rates, omega, at)
        assert found is not None
        deviations = np.sqrt(squared_norm(1.0 - rates, omega) * found)
        said = ", ".join(f"{s:.3f} at {t:g}" for t, s in zip(at, deviations, strict=True))
        print(f"    # RMS {rms:.4f}; standard deviation {said}")


if __name__ == "__main__":
    main()
