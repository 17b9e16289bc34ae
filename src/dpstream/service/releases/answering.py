"""Questions, answered from published files alone: they cost no budget."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from dpstream.io.sinks.simulated_errors import FOLDER, error_files
from dpstream.service.releases.forms import check_whole
from dpstream.service.releases.places import ReleaseFolder
from dpstream.service.releases.problems import Problem
from dpstream.stream.public_release import PublicRelease
from dpstream.stream.release.flows import AskedFlow, answer_facts


def answer(
    place: ReleaseFolder, question: str, step: int | None, as_of: int | None, confidence: float
) -> dict[str, Any]:
    """How many records satisfy a question, as ``dpstream measured --question`` tells it."""
    step, digest = _standing(place, step)
    if place.codebook()["dpstream"].get("schema") not in (None, place.manifest(step)[1]["schema"]):
        raise Problem(400, "questions need a table of records")
    for name in error_files(step):
        place.plain(FOLDER, name)  # the library opens it by name
    release = _release(place.root, step, digest)
    found = release.answer(question, as_of=as_of)
    return {"step": release.step, **found.as_dict(question, confidence)}


def over_time(place: ReleaseFolder, asked: AskedFlow, confidence: float) -> dict[str, Any]:
    """A flow, a change or a series, as ``dpstream measured --json`` tells it."""
    step, digest = _standing(place, None)
    return answer_facts(asked.of(_release(place.root, step, digest)), confidence)


def _standing(place: ReleaseFolder, step: int | None) -> tuple[int, str]:
    """The step, by default the newest one, and the digest of the catalogue."""
    listing = place.listing()
    if step is None:
        if not listing.readable:
            raise Problem(404, "no step has a readable table")
        step = listing.readable[-1]
    place.standing(step)
    check_whole(place, step)
    return step, listing.digest


@functools.lru_cache(maxsize=4)
def _release(root: Path, step: int, _digest: str) -> PublicRelease:
    """The release, which remembers what was measured; another one when the catalogue has changed."""
    return PublicRelease(root, step)
