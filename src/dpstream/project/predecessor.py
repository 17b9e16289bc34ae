"""What a configured stream begins with: as the started stream knows it, or read from the predecessor's folder.

The facts (which release, by its hash; the declared rule; what both streams cost together) are pinned in the
stream's plan and printed in its manifests. Once the stream is started they are taken from there, and the table is in
its state: what happens to the predecessor's folder afterwards is of no consequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError
from dpstream.project.base_options import BaseOptions
from dpstream.project.base_reading import base_facts, base_table, read_predecessor
from dpstream.stream.predecessor_cost import Base

if TYPE_CHECKING:
    from dpstream.core.contracts import StartTable

# A ``config`` here is a ``Config``, whose module imports this one.
__all__ = ["find_base", "require_all_published", "require_border"]


def find_base(
    config: Any,
    options: BaseOptions,
    state: str | Path | None = None,
    told: Mapping[str, Any] | None = None,
) -> Base:
    """The base of a configuration's stream.

    Args:
        state: another place of the state than the file's.
        told: the pinned plan of the started stream; None: its state or its releases say it.

    Errors:
        ConfigError: no release to begin with, columns that do not fit, a border that does not hold.
        UnitError: the earlier stream protects another unit. StoreDamagedError: damaged releases.
    """
    if options.releases.resolve() == config.output.dir.resolve():
        raise ConfigError(
            "the stream would begin with its own releases",
            where=f"{options.place} releases",
            allowed="another [output] dir, or the folder of an earlier stream",
        )

    facts = _known(config, state) if told is None else told.get("base")
    # Under another declared rule it is another base; the stream will say so.
    known = facts is not None and facts["rule"] == options.rule() and options.step in (None, facts["step"])
    if facts is None or not known:
        predecessor = read_predecessor(options)
        facts = base_facts(options, predecessor, config.plan(), config.schema(), config.source_options)
    return Base(facts, partial(_table, config, options, facts["manifest_sha256"]), known)


def _table(config: Any, options: BaseOptions, digest: str) -> StartTable:
    """Read the table that the facts name; another release than theirs is refused."""
    if options.config is not None:
        require_all_published(type(config).load(options.config))
    predecessor = read_predecessor(options)
    if predecessor.digest != digest:
        raise StoreDamagedError(
            "the predecessor's last release is not the one that this stream begins with", where=options.place
        )
    return base_table(options, predecessor, config.schema())


def require_all_published(old: Any) -> None:
    """Refuse a predecessor that has steps which are not among its releases: published later, their records would be
    in both streams.

    Errors:
        ConfigError: a step is held, or its publication was interrupted.
    """
    from dpstream.stream import read_status
    from dpstream.stream.store.place import has_store

    if not has_store(old.state_dir, server=old.server):
        return
    stored = read_status(old.state_dir, server=old.server)
    waiting = sorted({*stored.held, *stored.unpublished})
    if waiting:
        raise ConfigError(
            f"step {waiting[0]} of {old.name!r} is not published yet",
            where=str(old.path),
            allowed="approving it, or finishing the run",
        )


def require_border(config: Any, state: str | Path | None = None) -> None:
    """Refuse a further step where the two streams were to share no event, and the predecessor went on.

    Only its public folder can show that, where it still is; without one there is nothing to compare.

    Errors:
        ConfigError: the predecessor has published a step after the border.
    """
    from dpstream.io.sinks import read_catalogue

    options = config.base_options
    if options is None or not (options.releases / "catalogue.json").is_file():
        return
    facts = find_base(config, options, state).facts
    try:
        catalogue = read_catalogue(options.releases)
        steps = [int(entry["step"]) for entry in catalogue["steps"]]
        same = catalogue["stream_id"] == facts["stream_id"]
    except (StoreError, KeyError, TypeError, ValueError):
        return  # damaged: the stream was started from it before
    later = [step for step in steps if step > max(facts["step"], *facts["withdrawn_since"], 0)]
    if same and later and facts["composition"]["rule"] == "parallel":
        raise ConfigError(
            f"the predecessor has published step {min(later)}, after the border: its records are in both streams, and "
            "cost more than the manifests say",
            where=options.place,
            allowed="no further step of this stream; a new one after the predecessor's last step",
        )


def _known(config: Any, state: str | Path | None) -> dict[str, Any] | None:
    """What the started stream is pinned to, or what its releases say."""
    from dpstream.io.sinks import read_catalogue, read_manifest
    from dpstream.stream import read_status
    from dpstream.stream.store.place import has_store

    folder = config.state_dir if state is None else Path(state)
    if has_store(folder, server=config.server):
        pinned: dict[str, Any] | None = read_status(folder, server=config.server).plan.get("base")
        return pinned
    if not (config.output.dir / "catalogue.json").is_file():
        return None
    steps = [int(entry["step"]) for entry in read_catalogue(config.output.dir)["steps"]]
    told = read_manifest(config.output.dir, max(steps)).get("base") if steps else None
    return None if told is None else {key: value for key, value in told.items() if key != "words"}
