"""What a family says about itself (``dpstream.families.registry`` says which families there are)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from dpstream.core.contracts.recipe_options import Key, RecipeContext, SectionReader, build, keys_of_recipes

if TYPE_CHECKING:
    from dpstream.core.contracts.expectations import ExpectedTable
    from dpstream.core.contracts.stream_plan import StreamPlan, StreamRecipe
    from dpstream.core.privacy import Unit
    from dpstream.core.schema import Problem


@dataclass(frozen=True)
class Alternative:
    """Another way to run a configuration's stream, which publishes the same kind of release.

    Attributes:
        mechanism: its name in files; that of the configuration, where only options differ.
        options: what its ``[mechanism]`` says besides.
        keeps: which keys of the configuration's ``[mechanism]`` say what is wanted, and so hold for it too. Where only
            options differ, all keys are kept.
        unit: what it protects; None: the configuration's unit.
        events: one unit of the configuration's is up to so many of ``unit``: each of them gets less of the budget, so
            that the guarantee is the same.
        needs: what else its file would have to say, for readers; empty: nothing.
        named: whether its options are part of what it is called, because others differ in them alone.
    """

    mechanism: str
    options: Mapping[str, Any] = field(default_factory=dict)
    keeps: tuple[str, ...] = ("workload",)
    unit: Unit | None = None
    events: int = 1
    needs: str = ""
    named: bool = False

    @property
    def label(self) -> str:
        """What it is called beside others."""
        named = [f"{key} = {value}" for key, value in self.options.items()]
        return f"{self.mechanism} ({', '.join(named)})" if named and self.named else self.mechanism


@dataclass(frozen=True)
class Limits:
    """What a stream of a family can be. A text says why something is refused; an empty one refuses nothing.

    Attributes:
        units: names of the units that it can protect; the first one is the default. With ``individual`` among them it
            follows people, and then it protects nothing less.
        other_units: why no other one; ``{unit}`` is the one that the file asks for.
        unit_reason: why the default unit is what it is; empty: as the table of keys says.
        bounded: why a person's events cannot be bounded (``max_events``).
        deletes: why the source may not delete.
        rows: why steps may not be cut by numbers of rows, and what cuts them instead.
        late: rules for late records that it cannot follow, each with the reason.
        base: whether the stream may begin with another stream's table.
        records: kinds of released records, the first one is the default.
        no_records: kinds of records that this recipe cannot have, each with the reason.
        no_changes: why a database cannot be given changes only.
        no_tables: what the stream is, where releases are not tables; and where its errors are told.
    """

    units: tuple[str, ...] = ("event", "event-replace", "user")
    other_units: str = ""
    unit_reason: str = ""
    bounded: str = ""
    deletes: str = ""
    rows: tuple[str, str] | None = None
    late: Mapping[str, str] = field(default_factory=dict)
    base: bool = False
    records: tuple[str, ...] = ("fresh", "persistent")
    no_records: Mapping[str, str] = field(default_factory=dict)
    no_changes: str = ""
    no_tables: tuple[str, str] | None = None

    @property
    def people(self) -> bool:
        """Whether it follows people."""
        return any(unit.startswith("individual") for unit in self.units)


class Checks(Protocol):
    """Checks the steps of a source one after the other, before a run; may hold private ids."""

    def problems(self, ids: Any) -> list[Problem]:
        """What would stop the stream at this step; the sentences name nobody and no number.

        Args:
            ids: whose the rows are, as a pyarrow array of bytes.
        """
        ...


@dataclass(frozen=True)
class Family:
    """Mechanisms that share one contract.

    Attributes:
        name: a word for developers.
        noun: what a stream of it is, for sentences: "a panel".
        recipes: the recipe of each mechanism, by its name in files; its fields say which options there are.
        limits: which units, sources, bases and outputs it can take.
        narrow: the limits of one recipe, where its options make them narrower.
        checks: makes what ``dpstream check`` uses besides the columns, from a plan and the name of the column of ids.
        tools: of another package's family: where its ``evaluation``, its ``page`` of the report and its ``simulation``
            are, as ``module:NAME``; what is not named works with tables as for any stream.
        asked: whether its streams answer questions between their steps.
        draft: what ``dpstream init`` writes for it, section -> key -> value, where another value than the default
            is a better start; the owner is asked to look at each.
        bins: whether drafted columns have bins for nulls and for other values.
        bounds_only: whether all that it needs of a column's edges are the first and the last one, so that no others are
            drafted.
        alternatives: what could take the place of a recipe that protects a unit; the recipe itself may be among them.
        advice: what public guesses say against a recipe and its plan, in sentences.
    """

    name: str
    noun: str
    recipes: Mapping[str, type[Any]]
    limits: Limits = field(default_factory=Limits)
    narrow: Callable[[Any], Limits] | None = None
    checks: Callable[[StreamPlan, str], Checks] | None = None
    tools: Mapping[str, str] = field(default_factory=dict)
    asked: bool = False
    draft: Mapping[str, Mapping[str, str | int]] = field(default_factory=lambda: {"budget": {"epsilon": "1"}})
    bins: bool = True
    bounds_only: bool = False
    alternatives: Callable[[Any, Unit], Sequence[Alternative]] | None = None
    advice: Callable[[Any, StreamPlan, ExpectedTable], Sequence[str]] | None = None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Their names in files."""
        return tuple(self.recipes)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The rows of its options in the table of keys."""
        return keys_of_recipes("mechanism", self.recipes)

    def limits_of(self, recipe: StreamRecipe) -> Limits:
        """What a stream of this recipe can be."""
        return self.limits if self.narrow is None else self.narrow(recipe)

    def read(self, mechanism: str, section: SectionReader, given: RecipeContext) -> StreamRecipe:
        """The recipe that ``[mechanism]`` describes.

        Errors:
            ConfigError, LimitError: an option that is unusable.
        """
        recipe: StreamRecipe = build(section, self.recipes[mechanism], given)
        return recipe
