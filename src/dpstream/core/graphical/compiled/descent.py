"""Mirror descent on noisy marginals: the whole fit in one compiled call."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import numpy as np

from dpstream.core.compiling import njit
from dpstream.core.graphical.compiled.inference import add_factor, begin, downward, project_factor, upward
from dpstream.core.graphical.compiled.inner import copy, inner

#: Growth of the step while no step has failed yet, and afterwards.
_GROW_FIRST = 2.0
_GROW = 1.1
_SHRINK = 0.5


@inner()
def _objective(tree, factors, active, base, work, point, weights, target, penalty, origin):
    """Fills ``work.mu`` and ``work.gradient`` at ``point``; returns the loss and the penalty's part."""
    tables, messages, separators, scratch, mu, gradient = work
    copy(base, tables)
    for f in active:
        add_factor(tables, tree, factors, f, point)
    log_z = upward(tables, messages, scratch, tree)
    downward(tables, separators, tree)
    loss = 0.0
    divergence = -log_z
    for f in active:
        project_factor(tables, tree, factors, f, mu)
        weight = weights[f]
        for j in range(factors.table_off[f], factors.table_off[f + 1]):
            residual = mu[j] - target[j]
            loss += 0.5 * weight * residual * residual
            moved = point[j] - origin[j]
            divergence += moved * mu[j]
            gradient[j] = weight * residual + penalty * moved
    return loss, divergence


@njit(cache=True)
def descend(tree, factors, potentials, active, weights, target, penalty, iterations, tolerance, step, report):
    """Minimise sum_f weights[f]/2 |mu_f - target_f|^2 + penalty KL(model | start) over the potentials.

    ``mu`` are probabilities. Changes ``potentials`` (flat, of all factors) in place, only those of the
    ``active`` factors. ``report``: loss, divergence, iterations used, last step.

    One inference per iteration. Steps are mirror-descent steps from an extrapolated point (Nesterov's
    weights); an extrapolation that does not lower the objective is undone and the momentum restarted
    from rest, a plain step that fails the Armijo test halves the step: the objective never rises.
    """
    base = np.empty(tree.cell_off[-1])
    begin(base, tree)
    is_active = np.zeros(len(factors.clique), dtype=np.bool_)
    for f in active:
        is_active[f] = True
    for f in range(len(factors.clique)):
        if not is_active[f]:
            add_factor(base, tree, factors, f, potentials)
    n = len(potentials)
    mu = np.zeros(n)
    gradient = np.zeros(n)
    work = (
        np.empty(len(base)),
        np.empty(tree.sep_off[-1]),
        np.empty(tree.sep_off[-1]),
        np.empty(len(base)),
        mu,
        gradient,
    )
    origin = potentials.copy()
    point = potentials  # the evaluated (extrapolated) point; accepted points are written back here
    rest = potentials.copy()  # the last point before extrapolation
    trial = potentials.copy()
    trial_rest = potentials.copy()
    old_mu = np.zeros(n)
    old_gradient = np.zeros(n)
    loss, divergence = _objective(tree, factors, active, base, work, point, weights, target, penalty, origin)
    start_log_z = -divergence
    value = loss + penalty * (divergence + start_log_z)
    copy(mu, old_mu)
    copy(gradient, old_gradient)
    grow = _GROW_FIRST
    momentum = 0.0
    used = 1
    small = 0
    while used < iterations:
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
        beta = (momentum - 1.0) / following if momentum > 0.0 else 0.0
        for f in active:
            for j in range(factors.table_off[f], factors.table_off[f + 1]):
                moved = point[j] - step * old_gradient[j]
                trial_rest[j] = moved
                trial[j] = moved + beta * (moved - rest[j])
        trial_loss, trial_divergence = _objective(
            tree, factors, active, base, work, trial, weights, target, penalty, origin
        )
        used += 1
        trial_value = trial_loss + penalty * (trial_divergence + start_log_z)
        promised = 0.0
        for f in active:
            for j in range(factors.table_off[f], factors.table_off[f + 1]):
                promised += old_gradient[j] * (old_mu[j] - mu[j])
        if beta > 0.0:
            accepted = trial_value < value
        else:
            accepted = promised > 0.0 and value - trial_value >= 0.5 * promised
        if accepted:
            gain = value - trial_value
            for f in active:
                for j in range(factors.table_off[f], factors.table_off[f + 1]):
                    point[j] = trial[j]
                    rest[j] = trial_rest[j]
                    old_mu[j] = mu[j]
                    old_gradient[j] = gradient[j]
            value = trial_value
            loss = trial_loss
            divergence = trial_divergence
            momentum = following if momentum > 0.0 else 1.0
            step *= grow
            small = small + 1 if gain < tolerance else 0
            if small >= 3:
                break
        elif beta > 0.0:
            momentum = 0.0
            for f in active:
                for j in range(factors.table_off[f], factors.table_off[f + 1]):
                    rest[j] = point[j]
        else:
            momentum = 0.0
            grow = _GROW
            step *= _SHRINK
            if promised <= 0.0 or step < 1e-300:
                # At rounding level there is nothing left to gain.
                small += 1
                if small >= 3:
                    break
    report[0] = loss
    report[1] = divergence + start_log_z
    report[2] = used
    report[3] = step


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
