"""Proximal-point fit of noisy marginals: the whole fit in one compiled call.

Each stage minimises ``F(mu) + epsilon KL(p | q)``, with ``F`` the weighted squared error and ``q`` the
stage's starting point. Its dual is a ridge-penalised maximum-likelihood problem in the potentials
``x = theta - theta_q``:

    G(x) = log Z(theta_q + x) - log Z(theta_q) - x.y + epsilon/2 sum_f |x_f|^2 / weight_f

smooth and strongly convex, solved by L-BFGS with the Hessian's diagonal as preconditioner. The duality
gap of the stage is ``sum_f weight_f/2 |gradient_f|^2``: a certificate, at no cost.

Arguments: ``TreeArrays`` and ``FactorArrays`` of ``junction_tree``.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import numpy as np

from dpstream.core.compiling import njit
from dpstream.core.graphical.compiled.inference import add_factor, begin, downward, project_factor, upward
from dpstream.core.graphical.compiled.inner import copy, inner

#: Pairs of the limited-memory Hessian.
_MEMORY = 6
#: First epsilon (in units of the largest weight), its decrease per stage, and the share of the stage's
#: own bias down to which the stage is solved. Chosen on Adult and on random clique sets.
_FIRST = 0.02
_SHRINK = 0.5
_INEXACT = 0.5
_ARMIJO = 1e-4
_BACKTRACK = 0.3


@inner(fastmath={"contract", "reassoc"})
def _sums(mu, wanted, x, ridge, gradient):
    squares = 0.0
    residuals = 0.0
    linear = 0.0
    moved = 0.0
    for j in range(len(mu)):
        residual = mu[j] - wanted[j]
        g = residual + ridge * x[j]
        gradient[j] = g
        squares += g * g
        residuals += residual * residual
        linear += x[j] * (0.5 * ridge * x[j] - wanted[j])
        moved += x[j] * mu[j]
    return squares, residuals, linear, moved


@inner()
def _evaluate(tree, factors, active, base, work, theta, x, wanted, ridge, weights, mu, gradient, numbers):
    """At ``theta``: fills ``mu``, ``gradient`` and ``numbers``: G, gap, F, KL, log Z.

    G and KL lack the stage's own constant: plus log Z of its origin, minus the same.
    """
    tables, messages, separators, scratch = work
    copy(base, tables)
    for f in active:
        add_factor(tables, tree, factors, f, theta)
    log_z = upward(tables, messages, scratch, tree)
    downward(tables, separators, tree)
    value = log_z
    gap = 0.0
    loss = 0.0
    inner = 0.0
    for f in active:
        project_factor(tables, tree, factors, f, mu)
        a, b = factors.table_off[f], factors.table_off[f + 1]
        squares, residuals, linear, moved = _sums(mu[a:b], wanted[a:b], x[a:b], ridge[f], gradient[a:b])
        gap += 0.5 * weights[f] * squares
        loss += 0.5 * weights[f] * residuals
        value += linear
        inner += moved
    numbers[0] = value
    numbers[1] = gap
    numbers[2] = loss
    numbers[3] = inner - log_z
    numbers[4] = log_z


@inner(fastmath={"contract", "reassoc"})
def _dot(a, b):
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@inner(fastmath={"contract"})
def _add(c, a, b):
    for j in range(len(a)):
        b[j] += c * a[j]


@inner(fastmath={"contract"})
def _invert(mu, ridge, out):
    for j in range(len(mu)):
        out[j] = 1.0 / (mu[j] + ridge)


@inner(fastmath={"contract", "reassoc"})
def _weighted_square(a, weight):
    total = 0.0
    for j in range(len(a)):
        total += a[j] * a[j] * weight[j]
    return total


@inner()
def _scale(c, a, b):
    for j in range(len(a)):
        b[j] *= c * a[j]


@inner(fastmath={"contract", "reassoc"})
def _moved(theta, start, mu):
    total = 0.0
    for j in range(len(mu)):
        total += (theta[j] - start[j]) * mu[j]
    return total


@inner()
def _difference(a, b, out):
    for j in range(len(a)):
        out[j] = a[j] - b[j]


@inner()
def _direction(gradient, mu, ridge, active, table_off, moves, changes, rho, stored, inverse, out):
    """L-BFGS two-loop recursion with the preconditioner 1/(mu + ridge); returns the slope."""
    coefficient = np.zeros(_MEMORY)
    first = max(stored - _MEMORY, 0)
    for j in range(len(out)):
        out[j] = -gradient[j]
    for k in range(stored - 1, first - 1, -1):
        i = k % _MEMORY
        coefficient[i] = rho[i] * _dot(moves[i], out)
        _add(-coefficient[i], changes[i], out)
    for f in active:
        _invert(mu[table_off[f] : table_off[f + 1]], ridge[f], inverse[table_off[f] : table_off[f + 1]])
    scale = 1.0
    if stored > 0:
        i = (stored - 1) % _MEMORY
        scale = 1.0 / (rho[i] * _weighted_square(changes[i], inverse))
    _scale(scale, inverse, out)
    for k in range(first, stored):
        i = k % _MEMORY
        _add(coefficient[i] - rho[i] * _dot(changes[i], out), moves[i], out)
    return _dot(gradient, out)


@inner()
def _next_stage(active, table_off, weights, wanted, epsilon, recentre, x, origin, ridge, gradient, numbers,
                moves, changes, rho, stored):  # fmt: skip
    """Change epsilon (and the stage's origin) in place: x, gradient, G and the stored curvature follow.

    Returns how many curvature pairs are still usable.
    """
    for f in active:
        new = epsilon / weights[f]
        change = new - ridge[f]
        for j in range(table_off[f], table_off[f + 1]):
            if recentre:
                numbers[0] -= x[j] * (0.5 * ridge[f] * x[j] - wanted[j])
                gradient[j] -= ridge[f] * x[j]
                origin[j] += x[j]
                x[j] = 0.0
            else:
                numbers[0] += 0.5 * change * x[j] * x[j]
                gradient[j] += change * x[j]
            for i in range(_MEMORY):
                changes[i, j] += change * moves[i, j]
        ridge[f] = new
    if recentre:
        numbers[3] = -numbers[0]
    for i in range(min(stored, _MEMORY)):
        curvature = _dot(moves[i], changes[i])
        if curvature <= 0.0:
            return 0
        rho[i] = 1.0 / curvature
    return stored


@inner()
def _static_tables(tree, factors, active, potentials):
    base = np.empty(tree.cell_off[-1])
    begin(base, tree)
    static = np.ones(len(factors.clique), dtype=np.bool_)
    for f in active:
        static[f] = False
    for f in range(len(factors.clique)):
        if static[f]:
            add_factor(base, tree, factors, f, potentials)
    return base


@njit(cache=True)
def fit_proximal(tree, factors, potentials, active, weights, target, penalty, iterations, tolerance):
    """Minimise sum_f weights[f]/2 |mu_f - target_f|^2 + penalty KL(p | start) over the potentials.

    ``mu`` are probabilities. Changes ``potentials`` (flat, of all factors) in place, only those of the
    ``active`` factors, to the best point met.

    Without a penalty every stage starts where the last one ended (proximal point: the limit is the
    exact minimiser); with one, epsilon falls to the penalty and the stages share their origin.
    """
    off = factors.table_off
    n = len(potentials)
    base = _static_tables(tree, factors, active, potentials)
    work = (
        np.empty(len(base)),
        np.empty(tree.sep_off[-1]),
        np.empty(tree.sep_off[-1]),
        np.empty(len(base)),
    )
    wanted = np.zeros(n)
    ridge = np.zeros(len(weights))
    largest = 0.0
    for f in active:
        largest = max(largest, weights[f])
    epsilon = max(_FIRST * largest, penalty)
    for f in active:
        ridge[f] = epsilon / weights[f]
        a, b = off[f], off[f + 1]
        # Only the part of the target that sums to one can be matched.
        shift = (1.0 - target[a:b].sum()) / (b - a)
        for j in range(a, b):
            wanted[j] = target[j] + shift
    start = potentials.copy()
    origin = potentials.copy()
    theta = potentials.copy()
    x = np.zeros(n)
    trial = np.zeros(n)
    mu = np.zeros(n)
    trial_mu = np.zeros(n)
    gradient = np.zeros(n)
    trial_gradient = np.zeros(n)
    numbers = np.zeros(5)
    trial_numbers = np.zeros(5)
    direction = np.zeros(n)
    inverse = np.zeros(n)
    moves = np.zeros((_MEMORY, n))
    changes = np.zeros((_MEMORY, n))
    rho = np.zeros(_MEMORY)
    stored = np.int64(0)
    _evaluate(tree, factors, active, base, work, theta, x, wanted, ridge, weights, mu, gradient, numbers)
    start_log_z = numbers[4]
    log_z = start_log_z
    used = 1
    best = numbers[2]
    while used < iterations:
        bias = epsilon * (numbers[3] + log_z)
        gap = numbers[1]
        if epsilon <= penalty or (penalty == 0.0 and bias <= tolerance):
            if gap <= tolerance:
                break
        elif gap <= max(_INEXACT * bias, tolerance):
            epsilon = max(_SHRINK * epsilon, penalty)
            stored = _next_stage(active, off, weights, wanted, epsilon, penalty == 0.0, x, origin, ridge,
                                 gradient, numbers, moves, changes, rho, stored)  # fmt: skip
            if penalty == 0.0:
                log_z = numbers[0]
        slope = _direction(gradient, mu, ridge, active, off, moves, changes, rho, stored, inverse, direction)
        length = 1.0 if stored > 0 else 1.0 / len(active)
        accepted = False
        while slope < 0.0 and not accepted and used < iterations and length > 1e-10:
            for f in active:
                for j in range(off[f], off[f + 1]):
                    trial[j] = x[j] + length * direction[j]
                    theta[j] = origin[j] + trial[j]
            _evaluate(tree, factors, active, base, work, theta, trial, wanted, ridge, weights, trial_mu,
                      trial_gradient, trial_numbers)  # fmt: skip
            used += 1
            divergence = start_log_z - trial_numbers[4] + _moved(theta, start, trial_mu)
            if trial_numbers[2] + penalty * divergence < best:
                best = trial_numbers[2] + penalty * divergence
                copy(theta, potentials)
            accepted = trial_numbers[0] <= numbers[0] + _ARMIJO * length * slope
            length *= _BACKTRACK
        if not accepted:
            if stored == 0:
                break
            stored = np.int64(0)
            continue
        i = stored % _MEMORY
        _difference(trial, x, moves[i])
        _difference(trial_gradient, gradient, changes[i])
        curvature = _dot(moves[i], changes[i])
        if curvature > 0.0:
            rho[i] = 1.0 / curvature
            stored += 1
        copy(trial, x)
        copy(trial_mu, mu)
        copy(trial_gradient, gradient)
        copy(trial_numbers, numbers)


@njit(cache=True)
def canonicalise(factors, starts, members, sizes, potentials):
    """Move constants and main effects of larger potentials into the attributes' own, in place.

    The distribution does not change. Without this, potentials that share an attribute drift apart
    without bound (their sum is all that matters), and dropping one of them would leave the drift behind.
    """
    p = len(sizes)
    for f in range(len(factors.clique)):
        first = factors.table_off[f]
        cells = factors.table_off[f + 1] - first
        mean = 0.0
        for j in range(cells):
            mean += potentials[first + j]
        mean /= cells
        for j in range(cells):
            potentials[first + j] -= mean
        if f < p:
            continue
        after = cells
        before = 1
        for k in range(starts[f], starts[f + 1]):
            attribute = members[k]
            size = sizes[attribute]
            after //= size
            own = factors.table_off[attribute]
            share = size / cells
            for v in range(size):
                effect = 0.0
                for outer in range(before):
                    row = first + (outer * size + v) * after
                    for j in range(row, row + after):
                        effect += potentials[j]
                effect *= share
                potentials[own + v] += effect
                for outer in range(before):
                    row = first + (outer * size + v) * after
                    for j in range(row, row + after):
                        potentials[j] -= effect
            before *= size
