"""Which mechanism fits a stream: those that could run it, on invented streams of the guessed size; reads no data."""

from dpstream.tools.choosing.comparing import (
    MAX_STEPS,
    ComparedMechanisms,
    ComparisonTooLongError,
    MechanismErrors,
    Recommendation,
    compare_mechanisms,
)

__all__ = [
    "MAX_STEPS",
    "ComparedMechanisms",
    "ComparisonTooLongError",
    "MechanismErrors",
    "Recommendation",
    "compare_mechanisms",
]
