"""How values that nobody can list are discovered: which columns, their part of the budget, and ends of epochs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import Any

from dpstream.core.contracts import Part, PublicPrior, check_share, check_whole
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Budget, EventUnit, exact_amount
from dpstream.core.privacy.discovery import Threshold
from dpstream.core.privacy.entries import Entry, delta_of_periods
from dpstream.core.schema import Categorical, Clique, Domain, Found
from dpstream.core.schema.pattern import Pattern
from dpstream.mechanisms.discovery import Rule
from dpstream.mechanisms.grown_tables import room_of

#: Ends of discovery epochs that a plan lists.
_LISTED_ENDS = 8


@dataclass(frozen=True)
class OpenColumn:
    """What is public of a column whose values are discovered.

    Attributes:
        other: the code of the bin of all other values.
        known: labels that are there from the beginning, those of ``other`` and of nulls too.
        pattern: which values there may be; None: any.
        nulls: texts that mean null, which never enter.
    """

    name: str
    other: int = 0
    known: tuple[str, ...] = ()
    pattern: Pattern | None = None
    nulls: tuple[str, ...] = ()

    @classmethod
    def of(cls, column: Categorical, nulls: tuple[str, ...] = ()) -> OpenColumn:
        """Of a column before anything was discovered."""
        pattern = None if column.pattern is None else Pattern(column.pattern)
        return cls(column.name, column.other_code or 0, column.labels(), pattern, nulls)


@dataclass(frozen=True)
class Discovery:
    """How values are discovered.

    Args:
        columns: in which columns.
        share: of the budget, for all of them, in equal parts.
        delta: how likely at most a value is published that only one unit holds, in any column without a pattern.
        year: steps of a year, beyond which a discovery epoch does not grow; None: they grow for ever.
        at_most: values of a column, those of the beginning included; None: as many as fit.

    Errors: ConfigError: a delta is missing, or every column has a pattern.
    """

    columns: tuple[OpenColumn, ...]
    share: Fraction = Fraction(1, 10)
    delta: Fraction | None = None
    year: int | None = None
    at_most: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", check_share(self.share, "[discovery] share"))
        if not self.columns:
            raise ConfigError("a column is missing", where="[discovery]", allowed='values = "discover"')
        if self.delta is not None:
            object.__setattr__(self, "delta", exact_amount(self.delta, where="[discovery] delta"))
        if bool(self._without) != (self.delta is not None):
            what = "is missing" if self._without else "has no use"
            raise ConfigError(
                f"delta {what}", where="[discovery]", allowed="a pattern for each column, or delta"
            )
        for name, value in (("year", self.year), ("at_most", self.at_most)):
            if value is not None:
                check_whole(value, name, 1, 2**31)

    @property
    def _without(self) -> list[OpenColumn]:
        return [column for column in self.columns if column.pattern is None]

    def check(self, domain: Domain, prior: PublicPrior | None) -> None:
        """ConfigError: a column that the domain lacks, or that a prior has: its shares would be of fixed cells."""
        for column in self.columns:
            if domain.index(column.name) in (() if prior is None else prior.columns):
                what = f"the prior has the column {column.name!r}, whose values are discovered"
                raise ConfigError(what, where="[prior]", allowed="a prior without it, or a list of values")

    def up_to(self, steps: int) -> Discovery:
        """The same with epochs of so many steps at most."""
        return replace(self, year=steps if self.year is None else min(self.year, steps))

    def as_option(self) -> dict[str, Any]:
        """For manifests and the plan's hash."""
        plain = {"share": self.share, "delta": self.delta, "year": self.year, "at_most": self.at_most}
        columns = {c.name: {"known": c.known, "pattern": c.pattern and c.pattern.rows} for c in self.columns}
        given = {name: str(value) for name, value in plain.items() if value is not None}
        return {**given, "columns": columns}

    def thresholds(self, budget: Budget, unit: EventUnit) -> dict[str, Threshold]:
        """The law of each column; ``budget`` is a unit's, for all columns together."""
        own, parts = budget.scaled(Fraction(1, len(self.columns))), len(self._without)
        return {
            column.name: Threshold(own, unit, universe=column.pattern.size)
            if column.pattern is not None
            else Threshold(own, unit, (self.delta or Fraction(0)) / parts)
            for column in self.columns
        }


@dataclass(frozen=True)
class Discoveries:
    """What a plan does to discover values.

    Guarantee: ``budget`` for a unit and for all columns, with ``delta``: whatever else is released, an event is in one
    discovery epoch. Ends follow from step numbers and options.
    """

    recipe: Discovery
    budget: Budget
    unit: EventUnit

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(column.name for column in self.recipe.columns)

    @cached_property
    def thresholds(self) -> dict[str, Threshold]:
        """The law of each column."""
        return self.recipe.thresholds(self.budget, self.unit)

    @property
    def delta(self) -> Fraction:
        """How likely at most a value is published that only one unit holds."""
        return self.recipe.delta or Fraction(0)

    def delta_of(self, units: int) -> Fraction:
        """The same for values that somebody with so many units holds alone; rounded up to three digits."""
        if units == 1:
            return self.delta
        total = sum((delta_of_periods(one, units) for one in self.thresholds.values()), Fraction(0))
        above = Context(prec=3, rounding=ROUND_CEILING)
        return min(Fraction(1), Fraction(above.divide(Decimal(total.numerator), Decimal(total.denominator))))

    def other_code(self, column: str) -> int:
        """The code of ``other`` in a column."""
        return self._column(column).other

    def due(self, step: int, last: int) -> bool:
        """Whether a discovery epoch ends at the first border from this step on; ``last``: the end before, or 0."""
        # Each is twice as long as all before: more values enter than where it is as long (docs/theory/discovery.md).
        length = 2 * last if self.recipe.year is None else min(2 * last, self.recipe.year)
        return step >= last + max(1, length)

    def ends(self, borders: Iterable[int]) -> Iterator[int]:
        """Those of the borders at which discovery epochs end."""
        last = 0
        for step in borders:
            if self.due(step, last):
                last = step
                yield step

    def rule(self, column: str, found: Iterable[str] = (), most: int | None = None) -> Rule:
        """How a discovery epoch of a column is published.

        Args:
            found: values that entered before. most: so many more values fit.
        """
        own, entered = self._column(column), set(found)
        if self.recipe.at_most is not None:
            left = max(0, self.recipe.at_most - len(own.known) - len(entered))
            most = left if most is None else min(most, left)
        return Rule(self.thresholds[column], frozenset({*entered, *own.known, *own.nulls}), own.pattern, most)

    def rules(
        self,
        domain: Domain,
        found: Mapping[str, Sequence[Found]],
        headlines: Sequence[Clique],
        max_cells: int,
    ) -> dict[str, Rule]:
        """How the epoch of each column is published, with as many values as the headlines and the table's model take.

        Args:
            domain: with all that was ``found`` before.
        """
        return {
            name: self.rule(
                name, [one.value for one in found.get(name, ())], room_of(domain, name, headlines, max_cells)
            )
            for name in self.columns
        }

    def part(self, times: int, budget: Budget) -> Part:
        """What an event of a unit with so many pays for it."""
        return Part("discover", times, budget, self.describe())

    def describe(self) -> str:
        """What it publishes, for plans."""
        laws = [f"{name}, {law.noise.describe()}, above {law.tau}" for name, law in self.thresholds.items()]
        return "counts of new values: " + "; ".join(laws)

    def facts(self, borders: Iterable[int]) -> dict[str, Any]:
        """Of each column the noise, and how often a value must occur in an epoch to enter; and the first epochs' ends,
        of these steps. Public."""
        columns = [
            {
                "column": name,
                "noise": threshold.noise.describe(),
                "above": threshold.tau,
                "even": Entry(threshold).needed(0.5),
                "sure": Entry(threshold).needed(0.99),
                "universe": threshold.universe,
            }
            for name, threshold in self.thresholds.items()
        ]
        ends = list(islice(self.ends(borders), _LISTED_ENDS))
        return {"columns": columns, "ends": ends, "year": self.recipe.year, "delta": str(self.delta)}

    def _column(self, name: str) -> OpenColumn:
        return next(column for column in self.recipe.columns if column.name == name)
