"""``dpstream.open``: a durable stream from Python arguments, as a file's sections say them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from dpstream.core.contracts import Family, Limits
from dpstream.core.errors import BudgetError, ConfigError, SchemaError, UnitError
from dpstream.core.privacy import ZCDP, Budget, Event, Individual, PureDP, Randomness, Record, Unit, User
from dpstream.core.privacy.budget import Amount, amounts
from dpstream.core.schema import Schema
from dpstream.core.tables import Workload
from dpstream.families.registry import DEFAULT_MECHANISM, families, family_of
from dpstream.io.sinks import Publisher
from dpstream.project.keys import keys_of
from dpstream.project.public_knowledge import Expected, expected_words, facts_for, read_expected
from dpstream.project.reader import Section, did_you_mean
from dpstream.project.sections import DEFAULT_KEYED, read_recipe
from dpstream.stream import Publishing, StateKey, Stream, open_stream
from dpstream.stream.arguments import check_text

_WHERE = "dpstream.open"
_EVENT = Event()
_NAMES = "the name of a mechanism, or a recipe such as dpstream.tabular.Pooled(workload)"
#: As ``StreamRecipe`` has it. Recipes of single tables take something else.
_CALIBRATED_WITH = ["budget", "unit", "horizon"]


def open(
    place: str | Path,
    schema: Schema,
    *,
    epsilon: Amount | None = None,
    rho: Amount | None = None,
    budget: Budget | None = None,
    unit: Unit = _EVENT,
    mechanism: Any = DEFAULT_MECHANISM,
    horizon: int | None = None,
    deletions: bool = False,
    expect: Mapping[str, Any] | None = None,
    releases: str | Path | None = None,
    name: str = "stream",
    records: Literal["fresh", "persistent"] | None = None,
    publish: Literal["full", "changes", "both"] = "full",
    approve: bool = False,
    keep: Literal["all"] | int = "all",
    account: str | Path | None = None,
    same_unit: str | None = None,
    key: StateKey | None = None,
    randomness: Randomness | None = None,
    **options: Any,
) -> Stream:
    """Open the stream that lives in a folder, or start it there; then ``stream.step(frame, name=...)``.

    Guarantee: all releases together cost one ``unit`` the budget, crashes and repetitions included, as long as nobody
    restores an old copy of the state.

    Args:
        place: a folder. The secret state is in ``place/state``, the public releases are in ``place/releases``.
        schema: the public declaration of the columns.
        epsilon, rho, budget: what all releases together may cost; one of the three. A budget is ``PureDP(1)`` or
            ``ZCDP("1/2")``.
        unit: who is protected.
        mechanism: a name as in ``[mechanism] name`` of a file, or a recipe such as ``dpstream.tabular.Pooled(...)``. Of
            the unit ``Record`` it is ``census`` by default.
        horizon: the largest number of steps; some mechanisms need it.
        deletions: a public statement that records may leave (``stream.step(..., deletes=...)``); a recipe says it
            itself.
        expect: public guesses as in ``[expect]`` of a file, such as ``{"records_per_step": 300}``; they are published.
        releases: another folder for the releases.
        name: of the stream, in its manifests; it cannot change later.
        records: ``fresh`` draws every table anew, ``persistent`` changes as few records as the mechanism allows; as
            the mechanism has it by default.
        publish: ``full`` tables, ``changes`` between full ones, or ``both`` (with persistent records).
        approve: hold each release until ``stream.approve`` is called.
        keep: how many of the last steps keep their tables.
        account: a file in which several streams on one private source add up.
        same_unit: of an account with a unit of users or of records: why one of this stream is one of the others, which
            no column says here, such as "users are the column pid". Public.
        key: of an encrypted state.
        randomness: for tests; releases made with it say so.
        options: of the mechanism, as in ``[mechanism]`` of a file (``workload="all-3-way"``).

    Errors:
        ConfigError, SchemaError: an argument, named, with what is allowed. BudgetError, UnitError, HorizonError: a
        guarantee that cannot be given. StoreError: the state is locked, damaged, or cannot be written.
    """
    folder = _folder(place, "place")
    public = folder / "releases" if releases is None else _folder(releases, "releases")
    if not isinstance(schema, Schema):
        raise SchemaError(
            f"a {type(schema).__name__} is no schema",
            where=f"{_WHERE} schema",
            allowed="dpstream.Schema([dpstream.Boolean(...), ...]), dpstream.project.read_schema(...)",
        )
    for what, value, kind, allowed in (
        ("key", key, StateKey, "dpstream.stream.StateKey, or None"),
        ("randomness", randomness, Randomness, "None; dpstream.core.privacy.Randomness.seeded(7) in tests"),
        ("account", account, (str, Path), "a path, or None"),
    ):
        if value is not None and not isinstance(value, kind):
            raise ConfigError(
                f"a {type(value).__name__} cannot be used", where=f"{_WHERE} {what}", allowed=allowed
            )
    for what, flag in (("deletions", deletions), ("approve", approve)):
        if not isinstance(flag, bool):
            raise ConfigError(f"{flag!r} cannot be used", where=f"{_WHERE} {what}", allowed="True, False")
    if not isinstance(unit, Event | User | Individual | Record):
        allowed = "dpstream.Event(), Event('replace'), User(max_events), Individual(), Record()"
        raise UnitError(f"{unit!r} is no unit", where=f"{_WHERE} unit", allowed=allowed)
    if isinstance(unit, Record) and mechanism == DEFAULT_MECHANISM:
        mechanism = DEFAULT_KEYED
    if horizon is not None and (isinstance(horizon, bool) or not isinstance(horizon, int)):
        raise ConfigError(
            f"{horizon!r} is no number of steps",
            where=f"{_WHERE} horizon",
            allowed="a whole number from 1, or None",
        )
    amount = _budget(budget, epsilon, rho)
    family, recipe, expected = _recipe(
        mechanism, schema, options, expect, unit=unit, budget=amount, deletions=deletions, horizon=horizon
    )
    limits = Limits() if family is None else family.limits_of(recipe)
    if family is not None:
        _check_limits(family, limits, unit, deletions)
    kind_of_records = limits.records[0] if records is None else records
    if kind_of_records in limits.no_records:
        raise ConfigError(
            limits.no_records[kind_of_records], where=f"{_WHERE} records", allowed="another kind"
        )
    publishing = Publishing(records=kind_of_records, publish=publish, approve=approve)  # type: ignore[arg-type]
    if same_unit is not None:
        check_text(same_unit, "same_unit", longest=500)
    plan = recipe.calibrate(amount, unit, horizon)
    return open_stream(
        plan,
        schema,
        folder / "state",
        name=name,
        randomness=randomness,
        publish_to=Publisher(public),
        keep=keep,
        account=account,
        declared_public=expected_words(expected),
        source=None if same_unit is None else {"same_unit": same_unit},
        publishing=publishing,
        key=key,
    )


def _folder(path: object, name: str) -> Path:
    if not isinstance(path, str | Path) or not str(path):
        raise ConfigError(f"{path!r} is no folder", where=f"{_WHERE} {name}", allowed="a path")
    return Path(path)


def _budget(budget: Budget | None, epsilon: Amount | None, rho: Amount | None) -> Budget:
    """The one that is given.

    Errors:
        BudgetError: none, two, or one that cannot be used.
    """
    epsilon, rho = amounts(budget, epsilon, rho)
    if (epsilon is None) == (rho is None):
        what = "there is no budget" if epsilon is None else "the budget is given twice"
        raise BudgetError(what, where=_WHERE, allowed="one of epsilon, rho and budget")
    return PureDP.of(epsilon) if epsilon is not None else ZCDP.of(rho or 0)


def _recipe(
    mechanism: Any,
    schema: Schema,
    options: Mapping[str, Any],
    expect: Mapping[str, Any] | None,
    *,
    unit: Unit,
    budget: Budget,
    deletions: bool,
    horizon: int | None,
) -> tuple[Family | None, Any, Expected | None]:
    """The recipe, its family where it has one, and the guesses.

    Errors:
        ConfigError, LimitError: an unknown mechanism, or options that it does not have or cannot use.
    """
    if isinstance(mechanism, str):
        family = family_of(mechanism)
        own = [key.name for key in family.keys if mechanism in key.mechanisms]
        arguments = list(inspect.signature(open).parameters)[:-1]
        for option in options:
            if option not in own:
                raise ConfigError(
                    f"unknown argument {option!r}{did_you_mean(option, [*own, *arguments])}",
                    where=_WHERE,
                    allowed=", ".join([*arguments, *own]),
                )
        table = {"name": mechanism, **{option: _as_written(value) for option, value in options.items()}}
        section = Section(_WHERE, "mechanism", table)
        guesses = Section(_WHERE, "expect", _guesses(expect))
        expected = read_expected(
            guesses, unit, section, expect is not None, deletions=deletions, horizon=horizon
        )
        given = facts_for(schema, unit, budget, expected, deletions=deletions, horizon=horizon)
        return family, read_recipe(section, given), expected
    calibrate = None if isinstance(mechanism, type) else getattr(mechanism, "calibrate", None)
    if not callable(calibrate) or list(inspect.signature(calibrate).parameters)[:3] != _CALIBRATED_WITH:
        shown = (
            f"the class {mechanism.__name__}"
            if isinstance(mechanism, type)
            else f"an object of the type {type(mechanism).__name__}"
        )
        raise ConfigError(f"{shown} is no recipe of a stream", where=f"{_WHERE} mechanism", allowed=_NAMES)
    beside = [*options, *(["deletions"] if deletions else []), *(["expect"] if expect is not None else [])]
    if beside:
        raise ConfigError(
            f"{', '.join(beside)} beside a recipe", where=_WHERE, allowed="options inside the recipe"
        )
    known = (family for family in families() if type(mechanism) in family.recipes.values())
    return next(known, None), mechanism, None


def _guesses(expect: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if expect is None:
        return {}
    keys = list(keys_of("expect"))
    if not isinstance(expect, Mapping) or not set(expect) <= set(keys):
        what = f"a {type(expect).__name__}"
        if isinstance(expect, Mapping):
            what = f"the key {next(key for key in expect if key not in keys)!r}"
        raise ConfigError(
            f"{what} cannot be used", where=f"{_WHERE} expect", allowed=f"a dict with {', '.join(keys)}"
        )
    return {key: _as_written(value) for key, value in expect.items()}


def _check_limits(family: Family, limits: Limits, unit: Unit, deletions: bool) -> None:
    """Refuse a unit or deletions that the family cannot have, as the reader of a configuration file does."""
    if unit.name not in limits.units:
        why = limits.other_units or f"{family.noun} cannot protect the unit {{unit!r}}"
        raise UnitError(why.format(unit=unit.name), where=f"{_WHERE} unit", allowed=", ".join(limits.units))
    if deletions and limits.deletes:
        raise ConfigError(limits.deletes, where=f"{_WHERE} deletions", allowed="False")


def _as_written(value: Any) -> Any:
    """An option as a file would have it."""
    if isinstance(value, Workload):
        return value.as_option()
    if isinstance(value, Fraction | Decimal):
        return str(value)
    if isinstance(value, tuple):
        return list(value)
    return value
