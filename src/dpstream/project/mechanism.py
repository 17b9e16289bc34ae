"""``[mechanism]``: the family that it names, and the recipe that the family reads from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpstream.core.contracts import Family, Given, StreamRecipe
from dpstream.core.contracts.registry import DEFAULT_MECHANISM, family_of, mechanisms
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Budget, Record, Unit
from dpstream.core.schema import Schema
from dpstream.project.expect_section import Expected
from dpstream.project.keys import keys_of
from dpstream.project.reader import Section


def named_family(section: Section, default: str = DEFAULT_MECHANISM) -> Family:
    """The family of the mechanism that the section names; a value that names none is told before anything else is.

    Errors:
        ConfigError: it names no mechanism, or one whose package is broken.
    """
    word = section.raw("name") if section.has("name") else default
    if word not in mechanisms():
        section.choice("name", mechanisms(), default)
    return family_of(word)


def read_recipe(
    section: Section, given: Given, default: str = DEFAULT_MECHANISM, why: str | None = None
) -> StreamRecipe:
    """The recipe.

    Args:
        default: the mechanism where the section names none, and ``why``; None: as the table of keys says.

    Errors:
        ConfigError, LimitError: an option that is unknown, unusable, or of another mechanism.
    """
    family = named_family(section, default)
    if section.has("name"):
        name = section.choice("name", mechanisms(), default)
    else:
        name = default
        section.note("name", name, default=True, reason=why)
    section.variant = name
    own = ["name", *(key.name for key in family.keys if name in key.mechanisms)]
    for key in section.table:
        if key not in own:
            raise _foreign(section, key, name, own)
    return family.read(name, section, given)


def facts_for(
    schema: Schema,
    unit: Unit,
    budget: Budget,
    expected: Expected | None,
    *,
    deletions: bool,
    horizon: int | None,
    **others: Any,
) -> Given:
    """What a recipe may take from the rest of a configuration, or from the arguments of ``dpstream.open``.

    Args:
        expected: the owner's guesses. Only a record's stay makes a mechanism depend on what is guessed of who leaves.
        others: further fields of ``Given``.
    """
    stays = expected if isinstance(unit, Record) else None
    return Given(
        schema.domain,
        schema,
        deletions,
        turnover=None if stays is None else stays.turnover,
        horizon=horizon,
        budget=budget,
        records_per_step=None if stays is None else stays.records_per_step,
        first_records=None if expected is None else expected.records_per_step,
        **others,
    )


def _foreign(section: Section, key: str, name: str, own: Sequence[str]) -> ConfigError:
    """An option of another mechanism; where the file names none, of another than the default."""
    if section.has("name"):
        return section.wrong(key, f"the mechanism {name!r} has no option {key!r}", ", ".join(own))
    having = keys_of("mechanism")[key].mechanisms
    remedy = " or ".join(f'name = "{other}"' for other in having)
    return section.wrong(
        key,
        f"no mechanism is named, so it is the default, {name!r}, which has no option {key!r}",
        f"{remedy}; or, of {name!r}, {', '.join(own)}",
    )
