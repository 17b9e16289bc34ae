"""Which module evaluates the releases of a family, simulates its errors, draws its page: one table, loaded on use.

A family of another package names its own in ``Family.tools``; one that names none gets what works for any stream.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Final, Literal, TypeVar

from dpstream.core.contracts import Family
from dpstream.core.errors import ConfigError
from dpstream.families.registry import family_of, is_built_in

Tool = Literal["evaluation", "page", "simulation"]
Contract = TypeVar("Contract")
#: What is a family's alone has a folder of that family's name; "" is what works for any stream.
_OWN_TOOLS: Final[dict[Tool, dict[str, str]]] = {
    "evaluation": {
        "": "dpstream.tools.evaluate.tables_evaluation:ANY_TABLES_EVALUATION",
        "tabular": "dpstream.tools.evaluate.tables_evaluation:TABLES_EVALUATION",
        "growing": "dpstream.tools.evaluate.tables_evaluation:TABLES_EVALUATION",
        "asked": "dpstream.tools.evaluate.tables_evaluation:TABLES_EVALUATION",
        "panel": "dpstream.tools.families.panel.panel_evaluation:PANEL_EVALUATION",
        "points": "dpstream.tools.families.points.point_evaluation:POINTS_EVALUATION",
    },
    "page": {
        "": "dpstream.tools.report.plain_page:PLAIN_PAGE",
        "tabular": "dpstream.tools.report.table_page:TABLES_PAGE",
        "growing": "dpstream.tools.families.growing.growing_page:GROWING_PAGE",
        "asked": "dpstream.tools.report.table_page:TABLES_PAGE",
        "census": "dpstream.tools.report.table_page:TABLES_PAGE",
        "panel": "dpstream.tools.families.panel.panel_page:PANEL_PAGE",
        "points": "dpstream.tools.families.points.points_page:POINTS_PAGE",
    },
    "simulation": {
        "": "dpstream.tools.errors.invented_tables:TABLES_SIMULATION",
        "panel": "dpstream.tools.families.panel.panel_simulation:PANEL_SIMULATION",
        "points": "dpstream.tools.families.points.point_simulation:POINTS_SIMULATION",
    },
}


def tool_of(kind: Tool, contract: type[Contract], family: Family | None) -> Contract:
    """The evaluation, the page or the simulation of a family; None: the one for any stream.

    Args:
        contract: what it has to be: ``FamilyEvaluation``, ``FamilyPage`` or ``FamilySimulation``.

    Errors:
        ConfigError: a reference of another package that is none, or cannot be loaded.
    """
    own = None if family is None else family.tools.get(kind)
    if family is None or own is None:
        name = family.name if family is not None and is_built_in(family) else ""
        found: Contract = EntryPoint(kind, _OWN_TOOLS[kind].get(name, _OWN_TOOLS[kind][""]), "").load()
        return found
    try:
        loaded = EntryPoint(kind, own, "").load()
        what = f"differs from {contract.__name__}"
    except Exception as error:  # noqa: BLE001 (somebody else's code may raise anything)
        loaded, what = None, f"cannot be loaded: {type(error).__name__}: {error}"
    if isinstance(loaded, contract):
        return loaded
    raise ConfigError(
        f"the {kind} of the family {family.name!r} ({own}) {what}",
        where=f"Family.tools[{kind!r}]",
        allowed="module:NAME for this version of dpstream",
    )


def tool_for(kind: Tool, contract: type[Contract], mechanism: str) -> Contract:
    """``tool_of`` by the name of a mechanism, as manifests have it; the one for any stream if it is not installed."""
    try:
        family = family_of(mechanism)
    except ConfigError:
        family = None
    return tool_of(kind, contract, family)
