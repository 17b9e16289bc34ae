"""What a panel says about itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from dpstream.core.contracts import Alternative, Family, Limits, StreamPlan
from dpstream.core.counters import ZCDP_COUNTER_NAMES
from dpstream.core.privacy import Unit
from dpstream.core.schema import Problem
from dpstream.families.panel.cumulative import PanelCumulative
from dpstream.families.panel.panel_options import OTHER_UNIT
from dpstream.families.panel.people import EVERYBODY, NO_OTHERS, PeoplePlan
from dpstream.families.panel.window import PanelWindow

# Who reports in which period of a panel, looked at before a run: what would stop the stream.


@dataclass
class PeopleCheck:
    """Compare the people of every period with those before. Holds private ids.

    Attributes:
        column: of the ids.
        everybody: whether each person has to report in every period.
        places: how many people there is room for; None where those of the first period are all.
    """

    column: str
    everybody: bool
    places: int | None
    _known: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, plan: StreamPlan, column: str) -> Self:
        """The check for the plan of a panel and the column of the ids."""
        assert isinstance(plan, PeoplePlan)
        return cls(column, plan.absent is None, plan.places)

    def problems(self, ids: Any) -> list[Problem]:
        """What would stop the stream at this period; the sentences name nobody and no number."""
        import pyarrow as pa
        import pyarrow.compute as pc

        here = pc.unique(ids)
        known = here if self._known is None else self._known
        new = here.filter(pc.invert(pc.is_in(here, value_set=known)))
        self._known = pa.concat_arrays([known, new])
        missing = self.everybody and len(here) - len(new) < len(known)
        crowded = self.places is not None and len(self._known) > self.places
        stops = (
            (len(here) != len(ids), "twice", "has two reports of a person", "one report per person"),
            (
                len(new) > 0 and self.places is None,
                "new",
                "has a person from outside the first period",
                NO_OTHERS,
            ),
            (missing, "absent", "lacks an earlier person", EVERYBODY),
            (crowded, "room", "has more people than places", f"people = {self.places}"),
        )
        return [
            Problem(self.column, kind, what, allowed) for stopped, kind, what, allowed in stops if stopped
        ]


def _alternatives(recipe: Any, unit: Unit) -> tuple[Alternative, ...]:
    """Ways to count the same thing. A window and running numbers are different releases, so neither replaces the
    other; and a window has one way only."""
    if not isinstance(recipe, PanelCumulative):
        return ()
    name = "panel-cumulative"
    counters = (Alternative(name, {"counter": one}, named=True) for one in ("best", *ZCDP_COUNTER_NAMES))
    return (*counters, Alternative(name, {"split": "levels"}, named=True))


_WHOLE = "a panel protects all reports of a person"
PANEL = Family(
    "panel",
    "a panel",
    {"panel-window": PanelWindow, "panel-cumulative": PanelCumulative},
    Limits(
        units=("individual", "individual-replace"),
        other_units=OTHER_UNIT,
        unit_reason=_WHOLE,
        bounded=_WHOLE,
        deletes="reports of a panel do not leave",
        rows=("a panel's steps are periods, not rows", "a time_column, or period_columns"),
        late={"next-step": "a late report would be the person's second in a period"},
        records=("persistent",),
        no_changes="holds tables of a panel",
        no_tables=("a panel of people", "; a panel's manifests give its errors"),
    ),
    checks=PeopleCheck.of,
    draft={"mechanism": {"window": 3}, "budget": {"rho": "0.005", "horizon": 12}},
    bins=False,
    alternatives=_alternatives,
)
