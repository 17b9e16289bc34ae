"""Finds the integer solutions of ``L s = target`` exactly.

Noise is integer-valued, so only an *integer* shift ``s`` of the noise can hide a change of the data. This module uses
exact arithmetic only; ``shifts`` adds linear programming.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_PRIME = 2**31 - 1
#: The largest entry of a solution that is lifted from residues: products with small matrices then fit 64 bits.
_LIFT = 2**20
#: The largest intermediate value of a substitution, so that nothing overflows.
_LARGEST = 2**62


class Echelon:
    """A matrix whose columns begin in different rows, so that substitution finds the only possible solution.

    A counter that draws fresh noise for each output has this form: a diagonal where outputs are measurements, a
    triangle where they are sums of measurements. ``holds``: whether the given matrix has the form.
    """

    def __init__(self, matrix: NDArray[np.int64]) -> None:
        self._matrix = matrix
        columns = np.arange(matrix.shape[1])
        first = (matrix != 0).argmax(axis=0)
        self.holds = bool((matrix[first, columns] != 0).all() and len(np.unique(first)) == len(first))
        order = np.argsort(first, kind="stable")
        self._steps = [(int(first[column]), int(column)) for column in order]

    def solve(self, targets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
        """The integer solution for each column of ``targets``, and whether there is one (bool[columns]).

        None where a value might not fit 64 bits.
        """
        rest = targets.copy()
        bound = int(np.abs(targets).max(initial=0))
        solutions = np.zeros((self._matrix.shape[1], targets.shape[1]), np.int64)
        solved = np.ones(targets.shape[1], bool)
        for row, column in self._steps:
            coefficients = self._matrix[:, column]
            live = np.flatnonzero(rest[row])
            if not len(live):
                continue
            quotients, remainders = np.divmod(rest[row, live], coefficients[row])
            solved[live[remainders != 0]] = False
            solutions[column, live] = quotients
            rows = np.flatnonzero(coefficients)
            bound += int(np.abs(quotients).max()) * int(np.abs(coefficients[rows]).max())
            if bound >= _LARGEST:
                return None
            rest[np.ix_(rows, live)] -= np.outer(coefficients[rows], quotients)
        return solutions, solved & ~rest.any(axis=0)


def unique_solutions(
    matrix: NDArray[np.int64], targets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
    """Integer solutions of ``matrix @ s = target`` for each column of ``targets``, where unique.

    None unless the columns of ``matrix`` are proved to be independent over the rationals, by elimination modulo a prime
    (a rank modulo a prime is at most the rational rank). Otherwise the solutions and, for each, whether it was verified
    exactly. A verified one is the only rational solution.
    """
    variables = matrix.shape[1]
    table = np.concatenate([matrix, targets], axis=1) % _PRIME
    if not _eliminate(table, variables):
        return None
    residues = table[:variables, variables:]
    solutions = np.where(residues > _PRIME // 2, residues - _PRIME, residues)
    small = (np.abs(solutions) <= _LIFT).all(axis=0)
    product = matrix @ np.where(small, solutions, 0)
    return solutions, small & (product == targets).all(axis=0)


def _eliminate(table: NDArray[np.int64], variables: int) -> bool:
    """Gauss-Jordan modulo the prime, in place; False if a column has no pivot."""
    for column in range(variables):
        candidates = np.flatnonzero(table[column:, column])
        if not len(candidates):
            return False
        pivot = column + int(candidates[0])
        if pivot != column:
            table[[column, pivot]] = table[[pivot, column]]
        inverse = pow(int(table[column, column]), -1, _PRIME)
        table[column] = table[column] * inverse % _PRIME
        others = np.flatnonzero(table[:, column])
        others = others[others != column]
        table[others] = (table[others] - table[others, column][:, None] * table[column]) % _PRIME
    return True


class IntegerSystem:
    """All integer solutions of ``matrix @ s = target``, by a column-style Hermite form.

    ``matrix @ transform`` is in echelon form with ``transform`` unimodular; Python integers throughout.
    Cost: about ``rows columns^2`` operations on big integers; meant for some hundred columns.
    """

    def __init__(self, matrix: NDArray[np.int64]) -> None:
        columns = matrix.shape[1]
        self._form: NDArray[Any] = matrix.astype(object)
        self._transform: NDArray[Any] = np.array(
            [[int(i == j) for j in range(columns)] for i in range(columns)], dtype=object
        ).reshape(columns, columns)
        self._pivots: list[int] = []  # the row of each echelon column
        for row in range(matrix.shape[0]):
            self._reduce(row)

    @property
    def kernel(self) -> NDArray[Any]:
        """A basis of the integer vectors ``s`` with ``matrix @ s = 0`` (columns)."""
        result: NDArray[Any] = self._transform[:, len(self._pivots) :]
        return result

    def solve(self, target: NDArray[np.int64]) -> NDArray[Any] | None:
        """One integer solution (Python integers), or None: a proof that there is none."""
        rest: NDArray[Any] = target.astype(object)
        coordinates: list[int] = []
        for column, row in enumerate(self._pivots):
            quotient, remainder = divmod(rest[row], self._form[row, column])
            if remainder:
                return None
            rest = rest - quotient * self._form[:, column]
            coordinates.append(quotient)
        if any(rest):
            return None
        used = self._transform[:, : len(coordinates)]
        result: NDArray[Any] = (used * np.array(coordinates, dtype=object)).sum(axis=1)
        return result

    def _reduce(self, row: int) -> None:
        """Euclid's algorithm on the entries of ``row`` in the columns that have no pivot yet."""
        first = len(self._pivots)
        while True:
            live = [j for j in range(first, self._form.shape[1]) if self._form[row, j]]
            if not live:
                return
            smallest = min(live, key=lambda j: abs(self._form[row, j]))
            self._swap(first, smallest)
            if len(live) == 1:
                self._pivots.append(row)
                return
            for j in range(first + 1, self._form.shape[1]):
                quotient = self._form[row, j] // self._form[row, first]
                if quotient:
                    self._form[:, j] -= quotient * self._form[:, first]
                    self._transform[:, j] -= quotient * self._transform[:, first]

    def _swap(self, i: int, j: int) -> None:
        for table in (self._form, self._transform):
            table[:, [i, j]] = table[:, [j, i]]
