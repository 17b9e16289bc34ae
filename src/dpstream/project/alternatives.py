"""The mechanisms that could take the place of a configuration's, each as a configuration of its own. Reads no data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpstream.core.contracts import Alternative
from dpstream.core.errors import ConfigError, DpstreamError, did_you_mean
from dpstream.core.privacy import User
from dpstream.families.registry import family_of, mechanisms
from dpstream.project.config import Config
from dpstream.project.keys import section_of
from dpstream.project.public_knowledge import check_taken, of_stays
from dpstream.project.schema_file import load_toml
from dpstream.project.sections import read_recipe


@dataclass(frozen=True)
class Contender:
    """A way to run the stream.

    Attributes:
        label: what it is called.
        config: the configuration with this mechanism: the same guarantee, stream and places. None where it cannot be.
        needs: what else the file would have to say; empty: nothing.
        why_not: why it cannot be; empty where it can.
    """

    label: str
    config: Config | None
    needs: str = ""
    why_not: str = ""


def contenders(config: Config, wanted: Sequence[str] = ()) -> tuple[Contender, ...]:
    """The configuration itself, then what its family says could take its place.

    Args:
        wanted: labels of those that are looked at beside the configured one; empty: all.

    Errors:
        ConfigError: an unknown mechanism, or none to compare with.
    """
    name = config.plan().name
    offered = config.family.alternatives
    listed = () if offered is None else offered(config.recipe, config.unit)
    own = Contender(name, config)
    found = [(one, _contender(config, one)) for one in listed]
    for _, made in found:
        # Else it would be named as left out, and the comparison as one without the configured mechanism.
        if made.label == name and made.config is None:
            raise ConfigError(
                f"the configured mechanism {name!r} cannot be compared: {made.why_not}",
                where=str(config.path),
                allowed="plan without --compare",
            )
    others = {one.label: made for one, made in found if made.config is None or not _same(made.config, config)}
    if not others:
        raise ConfigError(
            f"no other mechanism publishes the same as {name!r}",
            where=str(config.path),
            allowed="plan without --compare",
        )
    # One word stands for all variants of a mechanism.
    known = {*others, *(one.mechanism for one, _ in found)}
    for word in wanted:
        if word not in known:
            what = f"the mechanism {word!r} cannot take the place of {name!r}"
            if word not in mechanisms():
                what = f"unknown mechanism {word!r}{did_you_mean(word, sorted(known))}"
            raise ConfigError(what, where="--against", allowed=", ".join([name, *others]))
    chosen = {
        word: made
        for word, made in others.items()
        if not wanted or word in wanted or word.partition(" (")[0] in wanted
    }
    if not chosen:
        raise ConfigError(
            f"nothing is left to compare with {name!r}",
            where="--against",
            allowed=", ".join(others),
        )
    return (own, *chosen.values())


def _same(one: Config, other: Config) -> bool:
    plan, known = one.plan(), other.plan()
    return plan.name == known.name and plan.options() == known.options()


def _contender(config: Config, one: Alternative) -> Contender:
    try:
        made = _with(config, one)
        made.plan()
    except DpstreamError as error:
        return Contender(one.label, None, one.needs, error.what)
    return Contender(one.label, made, one.needs)


def _with(config: Config, one: Alternative) -> Config:
    """The configuration with another recipe.

    Errors:
        DpstreamError: it cannot be; its sentence says why.
    """
    file, document = str(config.path), load_toml(config.path)
    written = document.get("mechanism", {})
    family, chosen = family_of(one.mechanism), written.get("name", config.plan().name)
    known = {key.name for key in family.keys if one.mechanism in key.mechanisms}
    kept = [key for key in written if key in known and (chosen == one.mechanism or key in one.keeps)]
    options: dict[str, Any] = {"name": one.mechanism, **{key: written[key] for key in kept}, **one.options}
    unit, budget = one.unit or config.unit, config.budget
    if one.events > 1:
        # What each of some events may cost, so that all of them together cost the budget (group privacy).
        budget = replace(budget, budget=User(one.events).per_event(budget.budget), stated=None)
    context = replace(
        config.context, budget=budget.budget, stated=budget.stated, **of_stays(config.expected, unit)
    )
    recipe = read_recipe(section_of(file, "mechanism", options), context)
    # A season is a guess, which another mechanism may do without.
    check_taken(file, replace(context, season=None), recipe)
    return replace(config, recipe=recipe, family=family, unit=unit, budget=budget, context=context)
