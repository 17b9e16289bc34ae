"""``[mechanism]``: the family that it names, and the recipe that the family reads from it."""

from __future__ import annotations

from collections.abc import Sequence

from dpstream.core.contracts import Family, Given, StreamRecipe
from dpstream.core.contracts.registry import DEFAULT_MECHANISM, EARLIER_DEFAULT, family_of, mechanisms
from dpstream.core.errors import ConfigError
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


def _foreign(section: Section, key: str, name: str, own: Sequence[str]) -> ConfigError:
    """An option of another mechanism. Where the file names none, it may have been written for an earlier default."""
    if section.has("name"):
        return section.wrong(key, f"the mechanism {name!r} has no option {key!r}", ", ".join(own))
    having = keys_of("mechanism")[key].mechanisms
    if EARLIER_DEFAULT in having:
        remedy = f'name = "{EARLIER_DEFAULT}", which was the default before'
    else:
        remedy = " or ".join(f'name = "{other}"' for other in having)
    return section.wrong(
        key,
        f"no mechanism is named, so it is the default, {name!r}, which has no option {key!r}",
        f"{remedy}; or, of {name!r}, {', '.join(own)}",
    )
