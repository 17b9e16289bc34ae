"""Workloads: which marginals count, and how much each."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Self

from dpstream.core.errors import ConfigError, LimitError, SchemaError
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables.counting import check_cells

__all__ = ["MAX_TABLES", "Workload"]

#: More tables than this are refused before they are listed.
MAX_TABLES = 10**6
#: Weights enter exact scores as integers over a common denominator; both ends stay small.
MAX_WEIGHT = 10**6

_ALL_K_WAY = re.compile(r"all-([0-9]+)-way")
_SPEC = (
    '"all-k-way" (such as "all-2-way"), or a list of tables: ["zip", "rent"] '
    'or {columns = ["zip", "rent"], weight = "1/2"}'
)


@dataclass(frozen=True)
class Workload:
    """Marginals with positive weights over a public domain.

    One record lies in exactly one cell of each marginal, so each is a histogram of sensitivity 1 (a
    replaced record: 2); weights multiply scores and their sensitivity, never the counts themselves.

    Attributes:
        cliques: distinct, not empty; each a strictly increasing tuple of positions.
        weights: one positive exact number per clique, up to 10^6 with a denominator up to 10^6.

    Errors:
        ConfigError: no clique, a repeated or malformed one, or an unusable weight.
        LimitError: more cells than can be counted at once.

    >>> domain = Domain(("zip", "paid", "rent"), (29, 2, 4))
    >>> workload = Workload.parse(domain, "all-2-way")
    >>> workload.cliques, workload.cells
    (((0, 1), (0, 2), (1, 2)), 182)
    >>> Workload.parse(domain, [["rent", "zip"], {"columns": ["paid"], "weight": "1/2"}]).labels
    ('zip x rent', 'paid')
    """

    domain: Domain
    cliques: tuple[Clique, ...]
    weights: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if not self.cliques:
            raise ConfigError("there is no table", where="workload", allowed=_SPEC)
        if len(self.cliques) != len(self.weights):
            raise ConfigError("tables and weights differ in number", where="workload")
        seen: set[Clique] = set()
        for clique in self.cliques:
            _check_table(self.domain, clique)
            if clique in seen:
                raise ConfigError(
                    f"the table {self.domain.label(clique)!r} occurs twice",
                    where="workload",
                    allowed="each table once, with a weight if it matters more",
                )
            seen.add(clique)
        for weight in self.weights:
            _check_weight(weight)
        check_cells(self.domain, self.cliques)

    def __len__(self) -> int:
        return len(self.cliques)

    @property
    def cells(self) -> int:
        """Cells of all marginals together."""
        return sum(self.domain.cells(clique) for clique in self.cliques)

    @property
    def labels(self) -> tuple[str, ...]:
        """The tables for people, in order."""
        return tuple(self.domain.label(clique) for clique in self.cliques)

    @classmethod
    def all_k_way(cls, domain: Domain, k: int) -> Self:
        """Every table of ``k`` columns, weight 1, in lexicographic order.

        Errors:
            ConfigError: ``k`` is not between 1 and the number of columns.
            LimitError: too many tables or cells.
        """
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= len(domain):
            columns = len(domain)
            hint = "all-1-way" if columns == 1 else f"all-1-way to all-{columns}-way"
            raise ConfigError(
                f"all-{k}-way needs {k} columns and the domain has {columns}", where="workload", allowed=hint
            )
        tables = math.comb(len(domain), k)
        if tables > MAX_TABLES:
            raise LimitError(
                f"all-{k}-way has {tables} tables, more than the limit of {MAX_TABLES}",
                where="workload",
                allowed="a smaller k, or a list of chosen tables",
            )
        cliques = tuple(itertools.combinations(range(len(domain)), k))
        return cls(domain, cliques, (Fraction(1),) * tables)

    @classmethod
    def of(
        cls, domain: Domain, tables: Iterable[Sequence[str]], weights: Iterable[Any] | None = None
    ) -> Self:
        """Chosen tables by their columns' names (in any order), with weights (default 1 each).

        Weights are integers, Fractions, Decimals, strings such as ``"1/2"``, or floats read through their
        shortest decimal form.

        Errors:
            ConfigError: an unknown or repeated column, a repeated table, an unusable weight.
        """
        cliques = tuple(_clique(domain, columns, f"table {i + 1}") for i, columns in enumerate(tables))
        if weights is None:
            return cls(domain, cliques, (Fraction(1),) * len(cliques))
        exact = tuple(_weight(weight, f"table {i + 1}") for i, weight in enumerate(weights))
        return cls(domain, cliques, exact)

    @classmethod
    def parse(cls, domain: Domain, spec: object) -> Self:
        """A workload from its value in a configuration file.

        Args:
            spec: ``"all-2-way"`` (any k), or a list whose entries are lists of column names or mappings
                with ``columns`` and an optional ``weight``.

        Errors:
            ConfigError: says which table is wrong and what is allowed.
        """
        if isinstance(spec, str):
            match = _ALL_K_WAY.fullmatch(spec)
            if match is None:
                raise ConfigError(f"unknown workload {spec!r}", where="workload", allowed=_SPEC)
            return cls.all_k_way(domain, int(match[1]))
        if not isinstance(spec, list | tuple):
            raise ConfigError("not a workload", where="workload", allowed=_SPEC)
        tables: list[Sequence[str]] = []
        weights: list[Any] = []
        for number, entry in enumerate(spec, start=1):
            columns, weight = _entry(entry, f"table {number}")
            tables.append(columns)
            weights.append(weight)
        return cls.of(domain, tables, weights)

    def as_option(self) -> str | list[dict[str, Any]]:
        """The shortest thing that ``parse`` reads back as this workload: its name where it has one."""
        k = len(self.cliques[0])
        everything = math.comb(len(self.domain), k) == len(self.cliques)
        plain = all(weight == 1 for weight in self.weights)
        if everything and plain and self == Workload.all_k_way(self.domain, k):
            return f"all-{k}-way"
        return self.as_spec()

    def as_spec(self) -> list[dict[str, Any]]:
        """The workload as ``parse`` reads it: exact, JSON-able (for plans and manifests)."""
        return [
            {"columns": [self.domain.names[i] for i in clique], "weight": str(weight)}
            for clique, weight in zip(self.cliques, self.weights, strict=True)
        ]


def _entry(entry: object, where: str) -> tuple[Sequence[str], Any]:
    if isinstance(entry, Mapping):
        unknown = sorted(str(key) for key in entry if key not in ("columns", "weight"))
        if unknown or "columns" not in entry:
            what = f"unknown key {unknown[0]!r}" if unknown else "the key 'columns' is missing"
            raise ConfigError(what, where=f"workload, {where}", allowed="columns, weight")
        return entry["columns"], entry.get("weight", 1)
    return entry, 1  # type: ignore[return-value]  # _clique checks it


def _clique(domain: Domain, columns: object, where: str) -> Clique:
    where = f"workload, {where}"
    if (
        not isinstance(columns, list | tuple)
        or not columns
        or not all(isinstance(name, str) for name in columns)
    ):
        raise ConfigError("not a list of column names", where=where, allowed='such as ["zip", "rent"]')
    try:
        clique = domain.clique(columns)
    except SchemaError as error:
        raise ConfigError(error.what, where=where, allowed=error.allowed) from None
    if len(clique) != len(columns):
        raise ConfigError("a column occurs twice", where=where, allowed="each column once")
    return clique


def _weight(value: object, where: str) -> Fraction:
    where = f"workload, {where}"
    if isinstance(value, bool) or not isinstance(value, int | str | float | Decimal | Fraction):
        raise ConfigError(f"the weight {value!r} is not a number", where=where, allowed='such as 2 or "1/2"')
    try:
        return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ConfigError(
            f"the weight {value!r} is not a number", where=where, allowed='such as 2 or "1/2"'
        ) from None


def _check_table(domain: Domain, clique: Clique) -> None:
    increasing = all(a < b for a, b in itertools.pairwise(clique))
    if not clique or not increasing or clique[0] < 0 or clique[-1] >= len(domain):
        raise ConfigError(
            f"{clique!r} is not a table of the domain",
            where="workload",
            allowed=f"increasing positions from 0 to {len(domain) - 1}",
        )


def _check_weight(weight: Fraction) -> None:
    if not isinstance(weight, Fraction) or not 0 < weight <= MAX_WEIGHT or weight.denominator > MAX_WEIGHT:
        raise ConfigError(
            f"the weight {weight!s} is not usable",
            where="workload",
            allowed=f"an exact positive number up to {MAX_WEIGHT} with a denominator up to {MAX_WEIGHT}",
        )
