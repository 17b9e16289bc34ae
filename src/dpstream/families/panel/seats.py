"""Who of a panel is who: people are found again by keyed marks of their ids.

Guarantee: which report goes to which person follows from the person's own mark. The refusals tell that somebody came,
stayed away, or found no place; whether they happen is declared public (``PeoplePlan.declared_public``), and the
messages name nobody and no number of people.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.tables.report_tables import as_texts

Marks = NDArray[np.uint8]


@dataclass(frozen=True)
class Seating:
    """Which place each report of a period belongs to.

    Attributes:
        marks: of everybody so far, ascending.
        before: for each of them the position before this period; -1 for who is new.
        rows: for each report the position of its person in ``marks``.
    """

    marks: Marks
    before: NDArray[np.int64]
    rows: NDArray[np.int64]

    @property
    def joined(self) -> bool:
        """Whether somebody is new."""
        return bool((self.before < 0).any())


def seat(known: Marks | None, given: Marks, *, places: int | None, absent: bool) -> Seating:
    """Find everybody who reports.

    Args:
        known: marks of the panel, ascending; None at the first period, whose people are the panel.
        given: marks of those who report, ascending and different.
        places: how many people the panel has room for; None where it is complete after the first period.
        absent: whether somebody may have no report.

    Errors:
        DataError: somebody is new in a complete panel, has no report where everybody needs one, or has no place.

    Cost: one sort of the marks where somebody is new, else one search.
    """
    if known is None:
        here = np.arange(len(given), dtype=np.int64)
        seating = Seating(given, np.full(len(given), -1, np.int64), here)
    else:
        seating = _find(known, given, places)
        if not absent and len(given) != len(known):
            raise DataError(
                "somebody of the panel has no report",
                where="panel",
                allowed='one report a person, or missing = "..." declared for every column',
            )
    if places is not None and len(seating.marks) > places:
        raise DataError(
            "more people report than the panel has places",
            where="panel",
            allowed=f"up to people = {places}, as declared",
        )
    return seating


def _find(known: Marks, given: Marks, places: int | None) -> Seating:
    texts, wanted = as_texts(known), as_texts(given)
    spots = np.searchsorted(texts, wanted)
    new = spots >= len(texts)
    new[~new] = texts[spots[~new]] != wanted[~new]
    if not new.any():
        return Seating(known, np.arange(len(known)), spots)
    if places is None:
        raise DataError(
            "somebody reports who was not in the panel at its first period",
            where="panel",
            allowed="the people of the first period, or room for others: people = N under [mechanism]",
        )
    everybody = np.concatenate([known, given[new]])
    order = np.argsort(as_texts(everybody))
    before = np.where(order < len(known), order, -1)
    marks = everybody[order]
    return Seating(marks, before, np.searchsorted(as_texts(marks), wanted))
