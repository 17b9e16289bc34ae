"""Many values in few groups: what a chart can hold without becoming a wall."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema import Column, Ordered


@dataclass(frozen=True)
class Group:
    """Some codes of a column under one label."""

    label: str
    codes: tuple[int, ...]


def groups_of(
    column: Column, labels: tuple[str, ...], weights: NDArray[np.int64], most: int
) -> tuple[Group, ...]:
    """At most about ``most`` groups: neighbours together where values have an order, else the commonest
    values and the rest. Declared bins for nulls and strangers stay alone. ``weights`` are public counts.

    >>> from dpstream.core.schema import Categorical, Integer
    >>> age = Integer("age", min=1, max=6, missing="missing")
    >>> [group.label for group in groups_of(age, age.labels(), np.zeros(7, int), 4)]
    ['1 to 2', '3 to 4', '5 to 6', 'missing']
    >>> city = Categorical("city", ["a", "b", "c", "d"])
    >>> [group.label for group in groups_of(city, city.labels(), np.array([1, 5, 0, 7]), 3)]
    ['d', 'b', '2 further values']
    """
    if column.size <= most:
        return tuple(Group(label, (code,)) for code, label in enumerate(labels))
    ordinary = column.ordinary()
    own = [Group(labels[code], (code,)) for code in range(column.size) if code not in ordinary]
    if isinstance(column, Ordered):
        return (*_neighbours(labels[: column.bins], max(1, most - len(own))), *own)
    order = [ordinary[i] for i in top_codes(weights[ordinary], max(1, most - 1 - len(own)))]
    rest = tuple(code for code in ordinary if code not in order)
    return (
        *(Group(labels[code], (code,)) for code in order),
        Group(f"{len(rest)} further values", rest),
        *own,
    )


def top_codes(weights: NDArray[np.int64], most: int) -> list[int]:
    """The commonest codes, ties in the order of the codes."""
    return [int(code) for code in np.argsort(-weights, kind="stable")[:most]]


def fold(values: NDArray[np.float64], *axes: tuple[Group, ...]) -> NDArray[np.float64]:
    """Sum an array over groups along its last axes."""
    for place, groups in enumerate(axes):
        axis = values.ndim - len(axes) + place
        parts = [values.take(list(group.codes), axis=axis).sum(axis=axis) for group in groups]
        values = np.stack(parts, axis=axis)
    return values


def _neighbours(labels: tuple[str, ...], most: int) -> list[Group]:
    pieces = np.array_split(np.arange(len(labels)), min(most, len(labels)))
    return [Group(_span([labels[i] for i in piece]), tuple(int(i) for i in piece)) for piece in pieces]


def _span(labels: list[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}"
