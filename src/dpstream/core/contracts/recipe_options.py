"""Dataclasses whose fields say what a configuration file may hold: reader, key table and JSON Schema come from them.

A field of a recipe, or of another section, is declared with ``option(...)``: what is allowed, what it means, why its
default is what it is. The type of the field says what it may hold, and its JSON Schema within which bounds; an option
that needs more brings its own reader. A field whose value is another recipe (the black box of a scheduler, say) names
the recipes that it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from types import NoneType
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

from dpstream.core.contracts.public_prior import PublicPrior
from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.periods import EACH_STEP, Periods
from dpstream.core.schema import Schema
from dpstream.core.schema.domain import Domain

# Fragments of JSON Schema.
TEXT: Mapping[str, Any] = {"type": "string", "minLength": 1}
TEXTS: Mapping[str, Any] = {"type": "array", "items": TEXT}
COUNT: Mapping[str, Any] = {"type": "integer", "minimum": 1}
FLAG: Mapping[str, Any] = {"type": "boolean"}
#: Exact numbers may be written as texts, such as "1/3".
NUMBER: Mapping[str, Any] = {"type": ["number", "string"]}

#: Marginals by the names of their columns.
Headline = tuple[tuple[str, ...], ...]
#: The part of a budget that headline marginals get where nothing else is said.
HEADLINE_SHARE = Fraction(1, 5)
#: The part of a budget that the number of records gets without headlines.
NUMBER_SHARE = Fraction(1, 20)


def words(*choices: str | int) -> Mapping[str, Any]:
    """The JSON Schema of a key that takes one of some words."""
    return {"enum": list(choices)}


@dataclass(frozen=True)
class Key:
    """One key of ``dpstream.toml``: what it accepts, what stands in for it, and why.

    ``default`` is None where the key has to be written, and a text for people otherwise. ``mechanisms``
    names those that have the option (``[mechanism]`` only). ``fragment`` is what JSON Schema says of its value.
    """

    section: str
    name: str
    allowed: str
    default: str | None
    reason: str
    meaning: str
    mechanisms: tuple[str, ...] = ()
    fragment: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def about(self) -> str:
        """What it means, what it accepts and why its default is what it is, in sentences."""
        default = "" if self.default is None else f" Default: {self.default} ({self.reason})."
        return f"{self.meaning} Allowed: {self.allowed}.{default}"


@dataclass(frozen=True)
class RecipeContext:
    """What a recipe may take from the rest of the configuration; all of it public.

    Attributes:
        domain: names and sizes of the columns.
        schema: the columns themselves; None where only the domain is known.
        deletions: whether the source declares deletes.
        stated: the (epsilon, delta) that the budget was derived from.
        turnover: the table's size by the records that come in a step, where the file says both ([expect]).
        horizon: how many steps there will be; None: no end is planned.
        step_name: how the period of a step is called, by its number; None where nothing public says so before the
            step is there.
        budget: of whatever the stream protects; None where the recipe may not depend on it.
        records_per_step: how many records come in a step, where the file says both ([expect]).
        first_records: the same, of whatever unit, where the owner guesses it; None: nobody guesses.
        cancels: whether the source can leave out equal rows that come and go within a step.
        prior: public knowledge of the table ([prior]).
        headline, headline_share: [accuracy]: marginals that are measured whenever anything is, and their part of the
            budget.
        periods, number: how long periods of headlines, and of the number of records, are; None: it has none.
        number_share: the part of the budget for the number of records, without headlines.
        season: steps after which what comes repeats itself, as the owner says; None: nobody says so.
        discovery: how values of open columns are discovered; None: all values are declared.
    """

    domain: Domain
    schema: Schema | None = None
    deletions: bool = False
    stated: tuple[Fraction, Fraction] | None = None
    turnover: Fraction | None = None
    horizon: int | None = None
    step_name: Callable[[int], str | None] | None = None
    headline: Headline = ()
    headline_share: Fraction = HEADLINE_SHARE
    periods: Periods = EACH_STEP
    number: Periods | None = None
    number_share: Fraction = NUMBER_SHARE
    budget: Budget | None = None
    records_per_step: int | None = None
    season: Fraction | None = None
    prior: PublicPrior | None = None
    first_records: int | None = None
    cancels: bool = True
    discovery: Any = None


class SectionReader(Protocol):
    """``[mechanism]`` of a file, as readers of options see it: every method names file, section and key in errors.

    Attributes:
        variant: the word that picks the reason of a default which differs between mechanisms.
    """

    variant: str

    def has(self, key: str) -> bool:
        """Whether the file has the key."""
        ...

    def raw(self, key: str) -> Any:
        """The value as written, or None."""
        ...

    def required(self, key: str) -> Any:
        """The value; ConfigError where there is none."""
        ...

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty."""
        ...

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        """One of some words."""
        ...

    def file_path(self, key: str, kind: Literal["file", "folder"], default: str | None = None) -> Path:
        """A path, relative to the folder of the file."""
        ...

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        ...

    def count(self, key: str, default: int | None = None) -> int | None:
        """A whole number within the key's bounds, or ``default``."""
        ...

    def share(self, key: str, default: Fraction) -> Fraction:
        """An exact number strictly between 0 and 1."""
        ...

    def number(self, key: str, default: float) -> float:
        """A decimal number from 0."""
        ...

    def columns(self, key: str, absent: str = "none") -> tuple[str, ...] | None:
        """A list of columns; None where the file has none, which is noted as ``absent``."""
        ...

    def note(self, key: str, value: str, *, default: bool, reason: str | None = None) -> None:
        """Remember a value that the plan rests on."""
        ...

    def wrong(self, key: str, what: str, allowed: str | None = None) -> ConfigError:
        """The error for one key's value."""
        ...

    def place(self, key: str | None = None) -> str:
        """File, section and key for messages."""
        ...


#: Reads one option: from the section, what else is given, and the options that were read before it.
Reader = Callable[[SectionReader, RecipeContext, Mapping[str, Any]], Any]
_ORDER = count()


@dataclass(frozen=True, eq=False)
class Option:
    """What a field of a recipe or of another section says about its key.

    One object may stand on the fields of several recipes: one key, which all of them have.

    Attributes:
        allowed: the values in words; empty: the words of the field's type.
        meaning: what it does.
        reason: why the default is what it is; "... (WORD: ...)" where it differs for a mechanism.
        shown: the default in words; None: as the recipes have it.
        key: its name in files, where that is not the field's.
        words: the words that it takes, where the type does not tell.
        word: what a file says for None, the default.
        needs: another key, without which (or without whose value, which follows it) this one means nothing.
        place: whether a path is that of a file or of a folder.
        one_of: the recipes that the value may be, by their words; the first is the default.
        part: the recipe that the value is.
        placed: whether errors of ``one_of`` name the key.
        read: reads the value, where the type does not tell how.
        fragment: of JSON Schema, where the type does not tell it.
        order: options are shown in the order in which they were declared.
    """

    allowed: str = ""
    meaning: str = ""
    reason: str = ""
    shown: str | None = None
    key: str | None = None
    words: tuple[str, ...] = ()
    word: str | None = None
    needs: tuple[str, ...] = ()
    place: Literal["file", "folder"] = "file"
    one_of: Mapping[str, type[Any]] = field(default_factory=dict)
    part: type[Any] | None = None
    placed: bool = False
    read: Reader | None = None
    fragment: Mapping[str, Any] | None = None
    order: int = field(default_factory=_ORDER.__next__)


def option(default: Any = MISSING, of: Option | None = None, **declared: Any) -> Any:
    """Declare a field of a recipe as an option.

    Args:
        of: the option that several recipes have; without it, the field has one of its own.
        declared: as in ``Option``; beside ``of``, what is different here.
    """
    chosen = Option(**declared) if of is None else replace(of, **declared) if declared else of
    return field(default=default, metadata={"option": chosen})


@dataclass(frozen=True)
class _Declared:
    """One option of one recipe; ``label`` is the word under which its default is shown."""

    key: str
    option: Option
    hint: Any
    default: Any
    label: str

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it takes."""
        if self.option.words or self.option.one_of:
            return self.option.words or tuple(self.option.one_of)
        return next(
            (get_args(kind) for kind in (self.hint, *get_args(self.hint)) if get_origin(kind) is Literal), ()
        )

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that it may have, without None."""
        hint = get_origin(self.hint) if get_origin(self.hint) is tuple else self.hint
        return tuple(get_origin(kind) or kind for kind in get_args(hint) or (hint,) if kind is not NoneType)

    @property
    def fragment(self) -> Mapping[str, Any]:
        """What JSON Schema says of its values."""
        chosen = self.option
        if chosen.fragment is None and self.choices:
            return words(*self.choices)
        fragment = _VALUES.get(self.kinds, _SHARE)[0] if chosen.fragment is None else chosen.fragment
        return fragment if chosen.word is None else {"anyOf": [words(chosen.word), fragment]}


_Value = tuple[Mapping[str, Any], Callable[[SectionReader, _Declared, Any], Any]]


def _path(section: SectionReader, one: _Declared, default: Path | None) -> Path:
    return section.file_path(one.key, one.option.place, None if default is None else str(default))


#: What JSON Schema says of values of a type, and how they are read.
_VALUES: Mapping[tuple[Any, ...], _Value] = {
    (bool,): (FLAG, lambda section, one, default: section.flag(one.key, default)),
    (int,): (COUNT, lambda section, one, default: section.count(one.key, default)),
    (str,): (TEXT, lambda section, one, default: section.text(one.key, default)),
    (tuple,): (TEXTS, lambda section, one, default: section.columns(one.key) or ()),
    (float,): (NUMBER, lambda section, one, default: section.number(one.key, default or 0.0)),
    (Path,): (TEXT, _path),
}
#: The same of an exact number.
_SHARE: _Value = (NUMBER, lambda section, one, default: section.share(one.key, Fraction(default or 0)))


_hints: dict[type[Any], Mapping[str, Any]] = {}


def hints_of(kind: type[Any]) -> Mapping[str, Any]:
    """The types of a recipe's fields, which are evaluated once: every configuration asks for them."""
    if kind not in _hints:
        _hints[kind] = get_type_hints(kind)
    return _hints[kind]


def _declared(kind: type[Any], label: str = "") -> Iterator[_Declared]:
    """All options of a recipe, and of the recipes that its options name."""
    hints = hints_of(kind)
    for item in fields(kind):
        chosen: Option | None = item.metadata.get("option")
        if chosen is None:
            continue
        if chosen.part is not None:
            yield from _declared(chosen.part, label)
            continue
        yield _Declared(chosen.key or item.name, chosen, hints[item.name], item.default, label)
        for position, (word, nested) in enumerate(chosen.one_of.items()):
            yield from _declared(nested, word if position else label)


def keys_of_recipes(section: str, recipes: Mapping[str, type[Any]]) -> tuple[Key, ...]:
    """The rows of the key table that the recipes of some mechanisms make, in the order of declaration.

    Args:
        recipes: by mechanism; one with the name "" is that of a section that all mechanisms have.
    """
    uses_of_key: dict[str, list[tuple[str, _Declared]]] = {}
    for mechanism, kind in recipes.items():
        for one in _declared(kind, mechanism):
            uses_of_key.setdefault(one.key, []).append((mechanism, one))
    rows = []
    for _, (key, uses) in sorted(
        (min(u.option.order for _, u in uses), (k, uses)) for k, uses in uses_of_key.items()
    ):
        first = min((use for _, use in uses), key=lambda use: use.option.order)
        mechanisms = tuple(dict.fromkeys(mechanism for mechanism, _ in uses if mechanism))
        chosen = first.option
        allowed = chosen.allowed or ("true, false" if first.kinds == (bool,) else ", ".join(first.choices))
        default = chosen.shown if chosen.shown is not None else _default([use for _, use in uses])
        rows.append(
            Key(section, key, allowed, default, chosen.reason, chosen.meaning, mechanisms, first.fragment)
        )
    return tuple(rows)


def _default(uses: list[_Declared]) -> str | None:
    """The default as the table of keys shows it; where recipes differ, the others' in brackets."""
    if uses[0].option.one_of:
        return uses[0].choices[0]
    values = {use.label: _text(use.default) for use in uses if use.default not in (MISSING, None)}
    if not values:
        return None if uses[0].default is MISSING else uses[0].option.word or "not set"
    first = next(iter(values.values()))
    others = [f"{label}: {value}" for label, value in values.items() if value != first]
    return f"{first} ({', '.join(others)})" if others else first


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


# Reading.


def build(
    section: SectionReader,
    kind: type[Any],
    given: RecipeContext | None = None,
    earlier: Mapping[str, Any] | None = None,
    *,
    place: str | None = None,
) -> Any:
    """Make a recipe, or the values of another section: its options come from the section, its other fields (``schema``,
    ``domain``, ...) from ``given``.

    Args:
        earlier: options that were read before it.
        place: of its errors; the section's as a rule.

    Errors:
        ConfigError: an option that is unusable; and what the recipe itself refuses.
    """
    hints, values = hints_of(kind), dict[str, Any]()
    for item in fields(kind):
        chosen: Option | None = item.metadata.get("option")
        if chosen is not None:
            declared = _Declared(chosen.key or item.name, chosen, hints[item.name], item.default, "")
            values[item.name] = _read(section, declared, given, {**(earlier or {}), **values})
        elif hasattr(given, item.name):
            values[item.name] = getattr(given, item.name)
            if values[item.name] is None and item.default is MISSING:
                what = f"{kind.__name__} needs a {item.name}: labels and bins"
                raise ConfigError(what, where=section.place(), allowed=f"a file with [{item.name}]")
    with located(place or section.place()):
        return kind(**values)


def _read(section: SectionReader, one: _Declared, given: Any, earlier: Mapping[str, Any]) -> Any:
    chosen, key = one.option, one.key
    if chosen.needs and not _is_needed(section, key, chosen.needs, earlier):
        return one.default
    if chosen.part is not None:
        return build(section, chosen.part, given, earlier)
    if chosen.one_of:
        return _read_choice(section, one, given, earlier)
    if chosen.read is not None:
        return chosen.read(section, given, earlier)
    default = one.default
    if default is MISSING:
        section.required(key)
        default = None
    elif chosen.word is not None and section.raw(key) in (None, chosen.word):
        section.note(key, chosen.word, default=not section.has(key))
        return None
    elif default is None and not section.has(key):
        return None
    if one.choices:
        return section.choice(key, one.choices, default)
    return _VALUES.get(one.kinds, _SHARE)[1](section, one, default)


def _is_needed(section: SectionReader, key: str, needs: tuple[str, ...], earlier: Mapping[str, Any]) -> bool:
    """Whether the key that this one needs was read with the right value; ConfigError where it is written anyway."""
    other, *values = needs
    value = earlier[other]
    if value in values or (value and not values):
        return True
    if section.has(key):
        what = f"{key} has no meaning " + (f"with {other} = {value!r}" if values else f"without {other}")
        raise section.wrong(key, what, f"only with {other}" + (f' = "{values[0]}"' if values else ""))
    return False


def _read_choice(section: SectionReader, one: _Declared, given: Any, earlier: Mapping[str, Any]) -> Any:
    """Read the recipe that the key names; ConfigError for an option that only another recipe has."""
    key, recipes = one.key, one.option.one_of
    first = next(iter(recipes))
    word = section.choice(key, tuple(recipes), first)
    section.variant = section.variant if word == first else word
    own = {name: {use.key for use in _declared(nested)} for name, nested in recipes.items()}
    for name, keys in own.items():
        for other in sorted(keys - own[word]):
            if section.has(other):
                what = f"{key} = {word!r} has no option {other!r}"
                raise section.wrong(other, what, f'with {key} = "{name}"')
    place = section.place(key) if one.option.placed else None
    return build(section, recipes[word], given, earlier, place=place)


# For messages.


@contextmanager
def located(place: str) -> Iterator[None]:
    """Name file and section in errors of the parts below, which do not know of files."""
    try:
        yield
    except DpstreamError as error:
        inner = (error.where or "").removeprefix("workload, ")
        if error.where is not None and error.where.startswith(place.split(" [")[0]):
            raise
        if inner.startswith("[") and " " in inner:  # a key of another table of the same file
            raise type(error)(
                error.what, where=f"{place.split(' [')[0]} {inner}", allowed=error.allowed
            ) from None
        # The parts name their own table; the place names it already.
        inner = "" if inner.strip("[]") in ("mechanism", "budget", "workload", "source", "output") else inner
        where = f"{place} {inner}".rstrip()
        raise type(error)(error.what, where=where, allowed=error.allowed) from None


def shown(value: Any) -> str:
    """A value of the file for a message, cut where it is long."""
    if isinstance(value, Mapping):
        return "a table"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
