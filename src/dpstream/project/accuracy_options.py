"""``[accuracy]`` as values."""

from __future__ import annotations

from dataclasses import dataclass

from dpstream.project.reader import Section

__all__ = ["AccuracyOptions", "read_accuracy"]

_SECONDS = 600


@dataclass(frozen=True)
class AccuracyOptions:
    """The section as values.

    Attributes:
        simulate: runs of a simulation at each border that doubles; None for none.
        simulate_seconds: CPU seconds after which such a simulation begins no further run.
    """

    simulate: int | None = None
    simulate_seconds: int = _SECONDS


def read_accuracy(section: Section) -> AccuracyOptions:
    """``[accuracy]``.

    Errors:
        ConfigError: a number that cannot be used, or a limit of nothing.
    """
    simulate = section.count_or_word("simulate", "none")
    if simulate is not None and not 2 <= simulate <= 1000:
        what = "one run tells no spread" if simulate < 2 else f"{simulate} runs are more than are ever needed"
        raise section.wrong("simulate", what)
    if simulate is None and section.has("simulate_seconds"):
        raise section.wrong(
            "simulate_seconds", "it limits simulations, and there are none", "only with simulate"
        )
    seconds = _SECONDS if simulate is None else section.count("simulate_seconds", _SECONDS)
    return AccuracyOptions(simulate, seconds or _SECONDS)
