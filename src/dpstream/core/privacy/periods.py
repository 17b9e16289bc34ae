"""Public periods, at whose ends headlines are measured, and for which users are protected.

Borders follow from step numbers and options alone, so an event is in one period whatever the records are.

Trusted base: kernel (which measurement reads an event, and which period).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol, Self

from dpstream.core.errors import ConfigError


class Periods(Protocol):
    """Periods of whole steps, one after the other."""

    @property
    def name(self) -> str:
        """How long they are: ``quarter``, ``13 steps``. Two objects of one stream with one name are equal."""
        ...

    @property
    def length(self) -> str:
        """How long they are, as readers ask for them."""
        ...

    @property
    def related(self) -> tuple[Self, ...]:
        """All lengths of periods that readers of the stream may ask for, this one among them."""
        ...

    def number(self, step: int) -> int:
        """Which period a step belongs to; it never falls from one step to the next."""
        ...

    def label(self, step: int) -> str:
        """What the period of a step is called."""
        ...


@dataclass(frozen=True)
class StepPeriods:
    """Periods of so many steps.

    >>> ends(StepPeriods(3), 3), next_end(StepPeriods(3), 3), StepPeriods(1).name
    (True, 6, '1 step')
    """

    steps: int

    def __post_init__(self) -> None:
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise ConfigError(f"a period of {self.steps!r} steps", where="periods", allowed="1 step or more")

    @classmethod
    def named(cls, text: str) -> StepPeriods | None:
        """The periods that a file calls ``13 steps``; None for other texts."""
        found = re.fullmatch(r"([1-9][0-9]{0,5}) steps?", text)
        return None if found is None else cls(int(found[1]))

    @property
    def name(self) -> str:
        """Their length."""
        return "1 step" if self.steps == 1 else f"{self.steps} steps"

    @property
    def length(self) -> str:
        """The same."""
        return self.name

    @property
    def related(self) -> tuple[StepPeriods]:
        """This one."""
        return (self,)

    def number(self, step: int) -> int:
        """See ``Periods``."""
        return (step - 1) // self.steps

    def label(self, step: int) -> str:
        """See ``Periods``."""
        first = self.number(step) * self.steps + 1
        return f"steps {first} to {first + self.steps - 1}"


#: A period is a step.
EACH_STEP = StepPeriods(1)


def ends(periods: Periods, step: int) -> bool:
    """Whether a period ends with a step."""
    return periods.number(step + 1) != periods.number(step)


def next_end(periods: Periods, step: int) -> int:
    """The first end of a period after a step (0: before the first one)."""
    end = step + 1
    while not ends(periods, end):
        end += 1
    return end


def first_step(periods: Periods, step: int) -> int:
    """The first step of the period that holds a step."""
    while step > 1 and not ends(periods, step - 1):
        step -= 1
    return step
