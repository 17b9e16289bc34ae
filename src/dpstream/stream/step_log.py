"""What the log says of steps: each line carries a code, so that a sentence may change and what watches the log not."""

from __future__ import annotations

import logging
from enum import StrEnum

_log = logging.getLogger("dpstream.streams")


class StepEvent(StrEnum):
    """What happened to a step. The codes are documented (``run --log-json``)."""

    RESERVED = "reserved"
    COMMITTED = "committed"
    PUBLISHED = "published"
    RESTORED = "restored"
    REPEATED = "repeated"
    UNPUBLISHED = "unpublished"
    AWAY = "away"
    UNMADE = "unmade"
    KEPT = "kept"


def log_step(event: StepEvent, step: int, sentence: str, reason: Exception | None = None) -> None:
    """One line of the log, a warning where there is a reason: its record has ``event`` and ``step``."""
    level, text = logging.INFO, f"step {step}{sentence}"
    if reason is not None:
        level, text = logging.WARNING, f"{text}: {reason}"
    _log.log(level, "%s", text, extra={"event": event, "step": step})
