"""Workloads and models over columns whose values were discovered: what ``other`` held is shared out. Public."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Model, junction_tree, tree_cells
from dpstream.core.schema import MAX_CODES, Clique, Domain, Found
from dpstream.core.tables import Workload

Plan = TypeVar("Plan")
#: What is left of a model's mass for new values where none came yet, and at least for ``other`` where they came.
_NOTHING, _LEAST_OTHER = 1e-12, 0.05


def _larger(domain: Domain, more: Mapping[str, int]) -> Domain:
    sizes = tuple(size + more.get(name, 0) for name, size in zip(domain.names, domain.sizes, strict=True))
    return replace(domain, sizes=sizes)


def _most(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The largest number from ``low`` to below ``high`` that fits, where ``low`` does."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def grown_workload(workload: Workload, more: Mapping[str, int], max_cells: int) -> Workload:
    """The workload over columns with so many more codes, without wide marginals that have become too large."""
    domain = _larger(workload.domain, more)
    kept = [
        (clique, weight)
        for clique, weight in zip(workload.cliques, workload.weights, strict=True)
        if len(clique) == 1 or tree_cells(domain, (clique,)) <= max_cells
    ]
    # A column whose wide marginals are all too large now is still measured by itself.
    before, after = ({i for clique in own for i in clique} for own in (workload.cliques, dict(kept)))
    kept += [((column,), Fraction(1)) for column in sorted(before - after)]
    return Workload(domain, tuple(clique for clique, _ in kept), tuple(weight for _, weight in kept))


def grown_plan(plan: Plan, found: Mapping[str, Sequence[Found]], *kept: str) -> Plan:
    """The plan over columns with these values: the same amounts, and all that is ``kept`` of it."""
    many = {name: len(values) for name, values in found.items()}
    own: Any = plan
    more = {name: size - own.many_found.get(name, 0) for name, size in many.items()}
    if not any(more.values()):
        return plan
    workload = grown_workload(own.recipe.workload, more, own.recipe.max_cells)
    prior = own.recipe.prior and replace(own.recipe.prior, domain=workload.domain)
    made = replace(own.recipe, workload=workload, prior=prior).calibrate(own.budget, own.unit, own.horizon)
    grown: Plan = replace(
        made, many_found=many, **{name: getattr(own, name) for name in ("discovery", *kept)}
    )
    return grown


def with_new(
    found: Mapping[str, Sequence[Found]], new: Mapping[str, Sequence[Found]]
) -> dict[str, list[Found]]:
    """All values that were discovered, in the order of their codes."""
    return {name: [*found.get(name, ()), *new.get(name, ())] for name in {**found, **new}}


def room_of(domain: Domain, column: str, headlines: Sequence[Clique], max_cells: int) -> int:
    """How many more values a column can have before the headlines, or the column, outgrow the table's model. Public."""
    place = domain.index(column)
    size, alone = domain.sizes[place], all(place not in clique for clique in headlines)

    def fits(many: int) -> bool:
        return alone or tree_cells(_larger(domain, {column: many - size}), headlines) <= max_cells

    return _most(size, min(max_cells, MAX_CODES) + 1, fits) - size


def fitting(
    domain: Domain, new: Mapping[str, Sequence[Found]], headlines: Sequence[Clique], max_cells: int
) -> dict[str, list[Found]]:
    """Those of the new values that the table's model takes together, the most frequent first: each column by itself has
    room (``room_of``), several need not have it at once. Public: it reads noisy counts."""
    ranked = sorted((-one.count, name, one.value) for name, values in new.items() for one in values)

    def chosen(most: int) -> dict[str, list[Found]]:
        kept = {(name, value) for _, name, value in ranked[:most]}
        own = {name: [one for one in new[name] if (name, one.value) in kept] for name in new}
        return {name: values for name, values in own.items() if values}

    def fits(most: int) -> bool:
        more = {name: len(values) for name, values in chosen(most).items()}
        return tree_cells(_larger(domain, more), headlines) <= max_cells

    return chosen(_most(0, len(ranked) + 1, fits))


def shares_of_other(
    model: Model, others: Mapping[int, int], new: Mapping[int, Sequence[Found]], records: float
) -> dict[int, tuple[int, NDArray[np.float64]]]:
    """Of each column that grew, the code of ``other``, and which shares of it new values let expect. Public.

    Args:
        records: of the epoch that published their noisy counts; infinite: new values have nothing yet.
    """
    found = dict[int, tuple[int, NDArray[np.float64]]]()
    for column, values in new.items():
        part = float(model.with_total(1.0).marginal((column,))[others[column]])
        shares = np.array([float(one.count) for one in values]) / max(max(part, _NOTHING) * records, 1.0)
        most = min(1.0, (1.0 - _LEAST_OTHER) / max(float(shares.sum()), 1e-9))
        found[column] = others[column], np.asarray(shares * most)
    return found


def split_other(
    table: NDArray[np.floating], axis: int, other: int, shares: NDArray[np.float64]
) -> NDArray[np.floating]:
    """A table whose ``other`` gives these shares to new values, at the end of an axis."""
    ahead = np.moveaxis(table, axis, -1).copy()
    more = ahead[..., other : other + 1] * shares
    ahead[..., other] *= 1.0 - float(shares.sum())
    return np.moveaxis(np.concatenate([ahead, more], axis=-1), -1, axis)


def grown_model(
    model: Model, domain: Domain, new: Mapping[int, tuple[int, NDArray[np.float64]]], max_cells: int
) -> Model:
    """A model over columns with more values, which are distributed as ``other`` is.

    Args:
        new: of each column that grew, the code of ``other``, and the shares of it that its new values get.
        max_cells: of its tree; marginals with new values that exceed it are left out.
    """
    kept = list[Clique]()
    for clique in model.cliques:
        if tree_cells(domain, (*kept, clique)) <= max_cells:
            kept.append(clique)
    tree = junction_tree(domain, tuple(kept))
    old, before = model.potentials, model.tree
    potentials = np.zeros(tree.parameters)
    for clique in (*((i,) for i in range(len(domain))), *kept):
        table = old[before.slot(clique)].reshape(model.domain.shape(clique))
        for axis, column in enumerate(clique):
            if column not in new:
                continue
            other, shares = new[column]
            more = np.repeat(table.take([other], axis=axis), len(shares), axis=axis)
            if len(clique) == 1:
                more = more + np.log(np.maximum(shares, _NOTHING))
                table = table.copy()
                table[other] += np.log1p(-float(shares.sum()))
            table = np.concatenate([table, more], axis=axis)
        potentials[tree.slot(clique)] = table.reshape(-1)
    return Model(tree, potentials, model.total, cliques=tuple(kept))
