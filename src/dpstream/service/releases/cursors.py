"""Where a reader of the changes is: up to which step it was told, and which steps were not there by then.

``12~3.7-9`` means: told up to step 12, but 3, 7, 8 and 9 were not published or could not be used. Nothing has to be
remembered for that reader, who is told of these steps when they come. A number alone is a cursor as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dpstream.service.releases.places import Listing

PATTERN = r"^[0-9]{1,18}(~[0-9]{1,18}(-[0-9]{1,18})?(\.[0-9]{1,18}(-[0-9]{1,18})?)*)?$"
#: Most ranges of a cursor, so that it fits into an address. The oldest are left out.
MOST = 200


@dataclass(frozen=True)
class Cursor:
    """Told up to ``step``, but for the steps in ``without``: ranges, first and last step.

    >>> str(Cursor.parse("12~7-9.3.4"))
    '12~3-4.7-9'
    """

    step: int
    without: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor that a text of ``PATTERN`` writes."""
        step, *pairs = re.findall(r"(\d+)(?:-(\d+))?", text)
        return cls(int(step[0]), _joined((int(first), int(last or first)) for first, last in pairs))

    def lacks(self, step: int) -> bool:
        """Whether it is one of the steps that were not there."""
        return any(first <= step <= last for first, last in self.without)

    def lacking(self, more: Iterable[tuple[int, int]]) -> Cursor:
        """The same, and more steps were not there."""
        return Cursor(self.step, _joined([*self.without, *more])[-MOST:])

    def __str__(self) -> str:
        told = (str(first) if first == last else f"{first}-{last}" for first, last in self.without)
        return f"{self.step}~{'.'.join(told)}" if self.without else str(self.step)


def waiting(listing: Listing, last: int) -> list[tuple[int, int]]:
    """The steps up to ``last`` that may still come: not published, or a change that follows such a step."""
    found: list[tuple[int, int]] = []
    before, follows = 0, False
    for step, entry in listing.entries.items():
        if step > last:
            break
        if step > before + 1:
            found.append((before + 1, step - 1))
            follows = True
        if entry["state"] != "change" or not entry["kept"]:
            follows = False
        elif follows:
            found.append((step, step))
        before = step
    return [*found, (before + 1, last)] if last > before else found


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """In order, and those that touch as one."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(one for one in ranges if one[0] <= one[1]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return tuple(joined)
