"""What a configured stream begins with: as the started stream knows it, or read from the predecessor's folder.

The facts (which release, by its hash; the declared rule; what both streams cost together) are pinned in the
stream's plan and printed in its manifests. Once the stream is started they are taken from there, and the table is in
its state: the predecessor's folder may go. Where it stays, each opening looks whether the earlier streams went on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError
from dpstream.project.base_options import BaseOptions
from dpstream.project.base_reading import base_facts, base_table, read_predecessor
from dpstream.stream.ledger.limit import budget_from_dict
from dpstream.stream.predecessor_cost import Base, Broken
from dpstream.stream.stream import broken_border

if TYPE_CHECKING:
    from dpstream.core.contracts import StartTable

# A ``config`` here is a ``Config``, whose module imports this one.


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

    facts = _known(config, options, state) if told is None else told.get("base")
    # Under another declared rule it is another base; the stream will say so.
    known = facts is not None and facts["rule"] == options.rule() and options.step in (None, facts["step"])
    if facts is None or not known:
        predecessor = read_predecessor(options)
        before = None if options.config is None else _before(config, options, predecessor.manifest["stream"])
        facts = base_facts(
            options, predecessor, config.plan(), config.schema(), config.source_options, before
        )
    broken = broken_borders(config, options, facts)
    return Base(facts, partial(_table, config, options, facts["manifest_sha256"]), known, broken)


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


def broken_borders(config: Any, options: BaseOptions, facts: Mapping[str, Any]) -> tuple[Broken, ...]:
    """Why what ``facts`` say of this stream and the earlier ones together does not hold: an earlier stream has
    published a step after a border, or has drawn again what a later one began with.

    Public folders show that where they still are; those before the last one are found through ``[base] config``.
    Without a folder there is nothing to compare.

    Errors:
        ConfigError: ``[base] config`` is the file of another stream.
    """
    found = list(_since(options.releases, facts))
    if options.config is not None and options.config.is_file():
        found += _before(config, options, facts["stream"])
    # Where all budgets are added up, a record may be in all of the streams.
    added = facts["composition"]["rule"] == "sum"
    return tuple(one for one in found if one.again is not None or not added)


def _before(config: Any, options: BaseOptions, stream: str) -> tuple[Broken, ...]:
    """The broken borders between the streams before this one."""
    old = type(config).load(options.config)
    if old.name != stream:
        raise ConfigError(
            f"the file is that of the stream {old.name!r}, and this one begins with {stream!r}",
            where=f"{options.place} config",
            allowed=f"the configuration of {stream!r}",
        )
    # Where neither its state nor its releases are left, nothing says what it began with.
    if old.base_options is None or _known(old, old.base_options, None) is None:
        return ()
    base = old.base()
    return () if base is None else base.broken


def _since(folder: Path, facts: Mapping[str, Any]) -> Iterator[Broken]:
    """What has happened in the earlier stream's folder since."""
    from dpstream.io.sinks import read_catalogue

    if not (folder / "catalogue.json").is_file():
        return
    try:
        catalogue = read_catalogue(folder)
        steps = {int(entry["step"]): str(entry["manifest_sha256"]) for entry in catalogue["steps"]}
        same = catalogue["stream_id"] == facts["stream_id"]
    except (StoreError, KeyError, TypeError, ValueError):
        return  # damaged: the stream was started from it before
    name, last = facts["stream"], max(int(facts["step"]), *facts["withdrawn_since"], 0)
    again = budget_from_dict(facts["composition"]["periods"][-1]["budget"])
    if not same:
        # A folder may go, and another stream's may take its place.
        if catalogue.get("stream") == name:
            yield Broken(f"the stream {name!r} has begun anew in {str(folder)!r}", again)
        return
    # Whoever draws an earlier step again draws this one, too.
    if steps.get(last) != facts["last_manifest_sha256"]:
        yield Broken(
            f"the stream {name!r} has drawn step {last} again, from an older copy of its state", again
        )
    later = [number for number in steps if number > last]
    if later and facts["composition"]["rule"] == "parallel":
        yield Broken(f"the stream {name!r} has published step {min(later)}, after the border")


def require_border(config: Any, state: str | Path | None = None) -> None:
    """Refuse a further step where a border between the streams is broken.

    Errors:
        ConfigError: see ``broken_borders``.
    """
    base = config.base(state)
    if base is not None and base.broken:
        raise broken_border(base.broken, config.base_options.place)


def _known(config: Any, options: BaseOptions, state: str | Path | None) -> dict[str, Any] | None:
    """What the started stream is pinned to, or what its releases say."""
    from dpstream.io.sinks import read_catalogue, read_manifest
    from dpstream.stream import read_status
    from dpstream.stream.store.place import has_store

    folder = config.state_dir if state is None else Path(state)
    if has_store(folder, server=config.server):
        stored = read_status(folder, server=config.server)
        # Of a state without a step another plan may take the place: while the earlier folder is there, it is looked at.
        if not stored.unspent or not (options.releases / "catalogue.json").is_file():
            pinned: dict[str, Any] | None = stored.plan.get("base")
            return pinned
    if not (config.output.dir / "catalogue.json").is_file():
        return None
    steps = [int(entry["step"]) for entry in read_catalogue(config.output.dir)["steps"]]
    told = read_manifest(config.output.dir, max(steps)).get("base") if steps else None
    return None if told is None else {key: value for key, value in told.items() if key != "words"}
