"""Workloads: which marginals count, and how much each."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, Self

from dpstream.core.errors import ConfigError, LimitError, SchemaError
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables.counting import check_cells

#: More tables than this are refused before they are listed.
MAX_TABLES = 10**6
#: Weights enter exact scores as integers over a common denominator; both ends stay small.
MAX_WEIGHT = 10**6

_ALL_K_WAY = re.compile(r"all-([0-9]+)-way")
#: What a workload may be, in words.
WORKLOADS = (
    'all-1-way, all-2-way, ..., or a list: ["zip", "rent"], {columns = ["zip", "rent"], weight = "1/2"}, '
    '{pairs_with = ["zip"]} (all pairs with a column of these), "all-1-way"'
)


@dataclass(frozen=True)
class Workload:
    """Marginals with positive weights over a public domain; each is a histogram of sensitivity 1 (replaced records:
    2).

    Attributes:
        cliques: distinct, not empty; each a strictly increasing tuple of positions.
        weights: of scores and their sensitivity; exact numbers up to 10^6 with denominators up to 10^6.

    Errors:
        ConfigError: no clique, a repeated or malformed one, or an unusable weight. LimitError: too many cells.

    >>> domain = Domain(("zip", "paid", "rent"), (29, 2, 4))
    >>> Workload.parse(domain, "all-2-way").cells
    182
    >>> Workload.parse(domain, ["all-1-way", {"columns": ["rent", "zip"], "weight": 2}]).labels
    ('zip', 'paid', 'rent', 'zip x rent')
    """

    domain: Domain
    cliques: tuple[Clique, ...]
    weights: tuple[Fraction, ...]
    #: The entries that name several tables at once, and all others, as ``parse`` reads them; empty where none does.
    entries: tuple[Mapping[str, Any] | str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.cliques:
            raise ConfigError("tables are missing", where="workload", allowed=WORKLOADS)
        if len(self.cliques) != len(self.weights):
            raise ConfigError("tables and weights differ in number", where="workload")
        seen: set[Clique] = set()
        for clique in self.cliques:
            if not clique or not self.domain.has(clique):
                raise ConfigError(
                    f"{clique!r}: expected a table of the domain",
                    where="workload",
                    allowed=f"increasing positions from 0 to {len(self.domain) - 1}",
                )
            if clique in seen:
                raise _twice(self.domain, clique)
            seen.add(clique)
        for weight in {id(one): one for one in self.weights}.values():
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
                f"all-{k}-way has {tables} tables, above the limit of {MAX_TABLES}",
                where="workload",
                allowed="a smaller k, or a list of tables",
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
            spec: ``"all-2-way"`` (any k), or a list. Its entries are lists of column names; mappings with ``columns``
                and an optional ``weight``; or groups: mappings with ``pairs_with`` (all pairs that contain one of
                these columns) and an optional ``weight``, and ``"all-k-way"``. A table that is listed by itself keeps
                its own weight; of several groups that hold a table the last one sets it.

        Errors:
            ConfigError: says which table is wrong and what is allowed.
        """
        if isinstance(spec, str):
            return cls.all_k_way(domain, _ways(spec))
        if not isinstance(spec, list | tuple):
            raise ConfigError("expected a workload", where="workload", allowed=WORKLOADS)
        tables: dict[Clique, Fraction] = {}
        alone: set[Clique] = set()
        entries = [_entry(domain, given, f"table {number}") for number, given in enumerate(spec, start=1)]
        for entry in entries:
            if not entry.grouped and entry.cliques[0] in alone:
                raise _twice(domain, entry.cliques[0])
            # What is listed by itself keeps its weight; of several groups the last one sets it.
            tables |= {clique: entry.weight for clique in entry.cliques if clique not in alone}
            alone.update(() if entry.grouped else entry.cliques)
        specs = tuple(entry.spec for entry in entries)
        return cls(domain, tuple(tables), tuple(tables.values()), specs if len(alone) < len(spec) else ())

    def as_option(self) -> str | list[Any]:
        """The shortest thing that ``parse`` reads back as this workload: its name where it has one."""
        k = len(self.cliques[0])
        everything = math.comb(len(self.domain), k) == len(self.cliques)
        plain = all(weight == 1 for weight in self.weights)
        if everything and plain and self == Workload.all_k_way(self.domain, k):
            return f"all-{k}-way"
        return [*self.entries] if self.entries else self.as_spec()

    def as_spec(self) -> list[dict[str, Any]]:
        """The workload as ``parse`` reads it: exact, JSON-able (for plans and manifests)."""
        return [
            {"columns": [self.domain.names[i] for i in clique], "weight": str(weight)}
            for clique, weight in zip(self.cliques, self.weights, strict=True)
        ]


def _twice(domain: Domain, clique: Clique) -> ConfigError:
    return ConfigError(
        f"the table {domain.label(clique)!r} occurs twice",
        where="workload",
        allowed="each table once, with a weight if needed",
    )


def _ways(text: str) -> int:
    """The k of ``all-k-way``."""
    match = _ALL_K_WAY.fullmatch(text)
    if match is None:
        raise ConfigError(f"unknown workload {text!r}", where="workload", allowed=WORKLOADS)
    return int(match[1])


class _Entry(NamedTuple):
    """An entry of a list: the tables that it names, one or a group of them, and how it is read back."""

    cliques: Sequence[Clique]
    weight: Fraction
    spec: Mapping[str, Any] | str
    grouped: bool


def _entry(domain: Domain, given: object, where: str) -> _Entry:
    if isinstance(given, str) and _ALL_K_WAY.fullmatch(given):
        return _Entry(Workload.all_k_way(domain, _ways(given)).cliques, Fraction(1), given, True)
    named = given if isinstance(given, Mapping) else {"columns": given}
    grouped = "pairs_with" in named
    key = "pairs_with" if grouped else "columns"
    unknown = sorted(str(name) for name in named if name not in (key, "weight"))
    if unknown or key not in named:
        what = f"unknown key {unknown[0]!r}{' beside pairs_with' if grouped else ''}" if unknown else ""
        raise ConfigError(
            what or "key 'columns' missing",
            where=f"workload, {where}",
            allowed="pairs_with, weight" if grouped else "columns, weight; or pairs_with, weight",
        )
    if grouped and len(domain) < 2:
        raise ConfigError("a column has no pairs", where=f"workload, {where}", allowed="all-1-way")
    columns, weight = _clique(domain, named[key], where), _weight(named.get("weight", 1), where)
    cliques = [columns]
    if grouped:
        cliques = sorted({(min(i, j), max(i, j)) for i in columns for j in range(len(domain)) if i != j})
    spec = {key: [domain.names[i] for i in columns], "weight": str(weight)}
    return _Entry(cliques, weight, spec, grouped)


def _clique(domain: Domain, columns: object, where: str) -> Clique:
    where = f"workload, {where}"
    if (
        not isinstance(columns, list | tuple)
        or not columns
        or not all(isinstance(name, str) for name in columns)
    ):
        raise ConfigError("expected column names", where=where, allowed='such as ["zip", "rent"]')
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
        raise ConfigError(f"weight {value!r}: expected a number", where=where, allowed='such as 2 or "1/2"')
    try:
        return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ConfigError(
            f"weight {value!r}: expected a number", where=where, allowed='such as 2 or "1/2"'
        ) from None


def _check_weight(weight: Fraction) -> None:
    if not isinstance(weight, Fraction) or not 0 < weight <= MAX_WEIGHT or weight.denominator > MAX_WEIGHT:
        raise ConfigError(
            f"unusable weight {weight!s}",
            where="workload",
            allowed=f"an exact positive number up to {MAX_WEIGHT}, with a denominator up to {MAX_WEIGHT}",
        )
