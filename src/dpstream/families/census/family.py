"""What a stream of censuses says about itself."""

from __future__ import annotations

from dpstream.core.contracts import Family, Limits
from dpstream.families.census.census_plan import Census

__all__ = ["CENSUS"]

CENSUS = Family(
    "census",
    "a table of keyed records",
    {"census": Census},
    Limits(
        units=("record", "record-replace"),
        other_units="a census cannot protect the unit {unit!r}: it follows keyed records, and what it protects is a "
        "record's whole stay",
        unit_reason="a census follows keyed records: all that one key does during a stay is protected together",
        bounded="a stay is protected whole, however many updates it has",
        rows=(
            "a step of keyed records is no number of rows: one record would move others to other steps",
            "a time_column, or the steps of the source",
        ),
    ),
    # Not the default: files of streams that began before there was this key do not name it.
    draft_deletes={"departures_every": "expected"},
)
