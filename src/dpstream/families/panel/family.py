"""What a panel says about itself."""

from __future__ import annotations

from typing import Any

from dpstream.core.contracts import Alternative, Family, Limits
from dpstream.core.counters import ZCDP_COUNTER_NAMES
from dpstream.core.privacy import Unit
from dpstream.families.panel.extension import warm
from dpstream.families.panel.panel_plans import PanelCumulative, PanelWindow
from dpstream.families.panel.people_check import PeopleCheck


def _alternatives(recipe: Any, unit: Unit) -> tuple[Alternative, ...]:
    """Ways to count the same thing. A window and running numbers are different releases, so neither replaces the
    other; and a window has one way only."""
    if not isinstance(recipe, PanelCumulative):
        return ()
    name = "panel-cumulative"
    counters = (Alternative(name, {"counter": one}, named=True) for one in ("best", *ZCDP_COUNTER_NAMES))
    return (*counters, Alternative(name, {"split": "levels"}, named=True))


PANEL = Family(
    "panel",
    "a panel",
    {"panel-window": PanelWindow, "panel-cumulative": PanelCumulative},
    Limits(
        units=("individual", "individual-replace"),
        other_units="a panel cannot protect the unit {unit!r} alone: a person reports in every period",
        unit_reason="a panel follows people: all reports of one are protected together",
        bounded="a panel protects everything that a person reports, however much it is",
        deletes="reports of a panel do not leave",
        rows=(
            "a panel's steps are periods, which cannot be counted in rows",
            "a time_column, or period_columns, in place of rows",
        ),
        late={"next-step": "a late report would be the second one of its person in a period"},
        records=("persistent",),
        no_changes="holds whole tables of a panel",
        no_tables=("a panel of people", "; a panel's manifests tell its errors"),
    ),
    checks=PeopleCheck.of,
    warm=warm,
    draft={
        "mechanism": {"window": 3},
        "budget": {"rho": "0.005", "horizon": 12},
    },
    bins=False,
    alternatives=_alternatives,
)
