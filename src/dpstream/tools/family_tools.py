"""Which module evaluates the releases of a family, and which draws its page: one table, loaded on use.

A family of another package names its own in ``Family.tools``; one that names none gets what works for any stream.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Final, Literal, TypeVar

from dpstream.core.contracts import Family
from dpstream.core.contracts.registry import family_of, is_built_in
from dpstream.core.errors import ConfigError

__all__ = ["tool_for", "tool_of"]

Tool = Literal["evaluation", "page"]
T = TypeVar("T")
_EVALUATION, _REPORT = "dpstream.tools.evaluate", "dpstream.tools.report"
_OURS: Final[dict[Tool, dict[str, str]]] = {
    "evaluation": {
        "": f"{_EVALUATION}.evaluation_files:ANY_TABLES",
        "tabular": f"{_EVALUATION}.evaluation_files:TABLES",
        "growing": f"{_EVALUATION}.evaluation_files:TABLES",
        "asked": f"{_EVALUATION}.evaluation_files:TABLES",
        "panel": f"{_EVALUATION}.panel_evaluation:PANEL",
        "points": f"{_EVALUATION}.points.point_files:POINTS",
    },
    "page": {
        "": f"{_REPORT}.plain_page:PLAIN",
        "tabular": f"{_REPORT}.table_page:TABLES",
        "growing": f"{_REPORT}.table_page:TABLES",
        "asked": f"{_REPORT}.table_page:TABLES",
        "panel": f"{_REPORT}.panel_page:PANEL",
        "points": f"{_REPORT}.points.points_page:POINTS",
    },
}


def tool_of(kind: Tool, contract: type[T], family: Family | None) -> T:
    """The evaluation or the page of a family; None: the one for any stream.

    Args:
        contract: what it has to be: ``FamilyEvaluation`` or ``FamilyPage``.

    Errors:
        ConfigError: a reference of another package that is none, or cannot be loaded.
    """
    own = None if family is None else family.tools.get(kind)
    if family is None or own is None:
        name = family.name if family is not None and is_built_in(family) else ""
        found: T = EntryPoint(kind, _OURS[kind].get(name, _OURS[kind][""]), "").load()
        return found
    try:
        loaded = EntryPoint(kind, own, "").load()
        what = f"is no {contract.__name__}"
    except Exception as error:  # noqa: BLE001 (somebody else's code may raise anything)
        loaded, what = None, f"cannot be loaded: {type(error).__name__}: {error}"
    if isinstance(loaded, contract):
        return loaded
    raise ConfigError(
        f"the {kind} of the family {family.name!r} ({own}) {what}",
        where=f"Family.tools[{kind!r}]",
        allowed="module:NAME, in a package that works with this version of dpstream",
    )


def tool_for(kind: Tool, contract: type[T], mechanism: str) -> T:
    """The same by the name of a mechanism, as in manifests; of one that is not installed: the one for any stream."""
    try:
        family = family_of(mechanism)
    except ConfigError:
        family = None
    return tool_of(kind, contract, family)
