"""Which mechanism fits a stream: those that could run it, on invented streams of the guessed size; reads no data."""

from dpstream.tools.choosing.comparing import (
    MOST_STEPS,
    ComparedMechanisms,
    ComparisonTooLongError,
    MechanismErrors,
    Recommendation,
    compare_mechanisms,
)

__all__ = [
    "MOST_STEPS",
    "ComparedMechanisms",
    "ComparisonTooLongError",
    "MechanismErrors",
    "Recommendation",
    "compare_mechanisms",
]
