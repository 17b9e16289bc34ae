"""How a stream is, in a word and a sentence: for cron, monitoring, and the service's pages."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError, InputError, StoreError
from dpstream.project.status import steps_words

if TYPE_CHECKING:
    from dpstream.project.config import Config
    from dpstream.stream import Sink

#: Every word there is.
WORDS = (
    "healthy",
    "not-started",
    "state",
    "begun",
    "unpublished",
    "releases",
    "held",
    "failed",
    "restored",
    "stale",
    "unfit",
    "used-up",
    "other-plan",
    "no-guarantee",
)
_LOCKS = Path("/proc/locks")
#: Where the codebook may say that a table is.
_TABLE = re.compile(r"(step-[0-9]{6,}/)?table[.][a-z]+")


def health(
    config: Config,
    facts: dict[str, Any],
    state: Path,
    max_age: float | None,
    *,
    out: str | None = None,
    deep: bool = False,
) -> tuple[str, str]:
    """A word and a sentence; the word is ``healthy`` where nobody has to act.

    Args:
        facts: what ``status`` knows.
        state: the state's folder, to see whether a run is at work.
        max_age: seconds that the newest release may be old.
        out: another place for the releases.
        deep: read all releases, and not only the last few.

    Errors:
        StoreError: a place of releases cannot be read.
        ConfigError: an age is asked for, and the releases are no files.
    """
    from dpstream.stream.store.store_status import wrong_state

    sink = config.publisher(out)
    older = wrong_state(state, sink, server=config.server)
    if older is not None:
        return "state", f"{older}; find the newest state before anything else"
    if not facts["started"]:
        return "not-started", "there is no state yet"
    if facts["failed"] is not None:
        return (
            "failed",
            f"step {facts['begun']} stopped with {facts['failed']} after noise was drawn: decide by hand",
        )
    if facts["restored"]:
        return "restored", "the store was restored from a copy: run --discard-reserved once, by hand"
    if not facts["same_plan"]:
        why = "the configuration is not the plan that the stream was started with"
        return "other-plan", why if facts["remedy"] is None else f"{why}: write {facts['remedy']}"
    if facts["made_with_test_seed"]:
        return "no-guarantee", "steps were made with a test seed"
    if facts["broken_borders"]:
        return (
            "no-guarantee",
            f"{'; '.join(facts['broken_borders'])}: records cost more than the manifests say",
        )
    wrong = _wrong_releases(config, state, sink, deep)
    if wrong is not None:
        return "releases", wrong
    if facts["steps_left"] == 0:
        return "used-up", "the planned steps are used up: renew the stream"
    running = is_running(state)
    if facts["unpublished"] and not running:
        return "unpublished", "committed steps wait to be published: run again"
    if facts["begun"] is not None and not running:
        return "begun", f"step {facts['begun']} was begun and did not end: run again"
    if facts.get("held"):
        return "held", "steps wait for approval"
    if max_age is not None and _too_old(config, Path(facts["releases"]), max_age):
        return "stale", "the newest release is older than it may be"
    if facts["unfit"] is not None:
        return "unfit", facts["unfit"]
    return "healthy", steps_words(facts) + ("; a run is at work" if running else "")


def is_running(state: Path) -> bool:
    """Whether some process holds the state's lock, as the kernel lists it (Linux; elsewhere False).

    Trying the lock would answer it everywhere, but for that moment a run that starts would find it taken.
    """
    try:
        folder = state.stat()
        locks = _LOCKS.read_text(encoding="ascii")
    except OSError:
        return False
    device = f"{os.major(folder.st_dev):02x}:{os.minor(folder.st_dev):02x}:{folder.st_ino}"
    return any(
        " FLOCK " in line and "->" not in line and f" {device} " in line for line in locks.splitlines()
    )


def _wrong_releases(config: Config, state: Path, sink: Sink, deep: bool) -> str | None:
    """What of the published steps, the catalogue or the codebook is not as it was published."""
    from dpstream.stream.store.store_status import compare_releases

    committed, differences = compare_releases(state, sink, server=config.server, deep=deep)
    left = sorted(place for place, how in differences.items() if how == "withdrawn")
    if left:
        step, name, more = _first(left)
        return (
            f"{name} is in the folder of step {step}, which was withdrawn{more}: move it away and run again"
        )
    if not committed:
        return None
    changed = sorted(place for place, how in differences.items() if how == "changed")
    if changed:
        step, name, more = _first(changed)
        return (
            f"{name} of step {step} is not what was published{more}: move it away and run again, which publishes "
            "it from the store"
        )
    if differences:
        step, name, more = _first(sorted(differences))
        return f"{name} of step {step} is missing{more}: run again, which publishes it from the store"
    return _wrong_index(config, sink, committed)


def _first(places: list[tuple[int, str]]) -> tuple[int, str, str]:
    """Step and file of the first place, and how many more there are, in words."""
    more = "" if len(places) == 1 else f" (and {len(places) - 1} more)"
    return (*places[0], more)


def _wrong_index(config: Config, sink: Sink, committed: dict[int, dict[str, str]]) -> str | None:
    """Whether readers find every published step in the catalogue, and their columns in the codebook."""
    from dpstream.core.paths import parse_json
    from dpstream.io.sinks import read_catalogue
    from dpstream.io.sinks.publisher import MANIFEST
    from dpstream.stream.release.manifest import describe_tables, pretty_json

    try:
        steps = {int(entry["step"]): entry for entry in read_catalogue(sink.directory)["steps"]}
        told = {
            step: entry["manifest_sha256"]
            for step, entry in steps.items()
            if entry["kept"] and entry["state"] in ("full", "change")
        }
    except (InputError, StoreError, KeyError, TypeError, ValueError):
        return "the catalogue is missing or cannot be read: move it away, if it is there, and run again"
    if any(told.get(step) != files[MANIFEST] for step, files in committed.items()):
        return (
            "the catalogue does not tell what was published: move it away and run again, which writes it anew"
        )
    plan, output = config.plan(), config.output
    with_ids = output.publishing.records == "persistent"
    columns = plan.released_schema(config.schema())
    path = sink.directory / "codebook.json"
    try:
        written = path.read_bytes()
        table = str(parse_json(written)["resources"][0]["path"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        written, table = b"", ""
    book = pretty_json(describe_tables(plan, columns, config.name, table, with_ids=with_ids))
    # Where no table is kept, the path is that of none.
    lost = table != sink.table_name and not (sink.directory / table).is_file()
    if written != book or not _TABLE.fullmatch(table) or lost:
        return "the codebook is missing, or not the one of this version: run again, which writes it anew"
    return None


def _too_old(config: Config, releases: Path, max_age: float) -> bool:
    if getattr(config.output, "sink", "folder") != "folder":
        raise ConfigError(
            "the age of a release is that of its files, and this stream's releases are none",
            where="--max-age",
            allowed="a stream whose releases go to a folder",
        )
    times = [path.stat().st_mtime for path in releases.glob("step-*/manifest.json")]
    # A file from the future (a clock that was wrong) tells no age.
    return not times or not 0 <= time.time() - max(times) <= max_age
