"""Which mechanism fits a stream: those that could run it, on invented streams of the guessed size; reads no data."""

from dpstream.tools.choosing.comparing import MOST_STEPS, compare_mechanisms
from dpstream.tools.choosing.outcome import ComparedMechanisms, MechanismErrors, Recommendation

__all__ = ["MOST_STEPS", "ComparedMechanisms", "MechanismErrors", "Recommendation", "compare_mechanisms"]
