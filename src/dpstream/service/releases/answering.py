"""Questions, answered from published files alone: they cost no budget."""

from __future__ import annotations

from typing import Any

from dpstream.io.sinks.simulated_errors import FOLDER, error_files
from dpstream.service.releases.forms import MOST_ROWS
from dpstream.service.releases.places import Place
from dpstream.service.releases.problems import Problem
from dpstream.stream.public_release import PublicRelease

__all__ = ["answer"]


def answer(
    place: Place, question: str, step: int | None, as_of: int | None, confidence: float
) -> dict[str, Any]:
    """How many records satisfy a question, as ``dpstream measured --question`` tells it."""
    release = _release(place, step)
    if place.codebook()["dpstream"].get("schema") not in (None, release.manifest()["schema"]):
        raise Problem(400, "questions are about tables of records, and this table is none")
    rows = int(release.manifest().get("rows_in_table") or 0)
    if rows > MOST_ROWS:
        raise Problem(
            413, f"the table of step {release.step} is too large to be counted here; ask dp.read(...)"
        )
    found = release.answer(question, as_of=as_of)
    interval = found.interval(confidence)
    return {
        "step": release.step,
        "question": question,
        "in_the_table": found.value,
        "measured": found.measured_value,
        "standard_error": found.standard_error,
        "error_kind": found.error_kind,
        "as_of": found.as_of,
        "confidence": confidence,
        "interval": None if interval is None else list(interval),
        "note": found.note,
    }


def _release(place: Place, step: int | None) -> PublicRelease:
    listing = place.listing()
    if step is None:
        if not listing.readable:
            raise Problem(404, "no step has a table that can be read")
        step = listing.readable[-1]
    place.standing(step)
    if step not in listing.readable:
        raise Problem(410, f"step {step} is a change, and a table that it builds on was withdrawn or dropped")
    # The library opens these by name, as it does the codebook.
    for name in error_files(step):
        place.plain(FOLDER, name)
    return PublicRelease(place.root, step)
