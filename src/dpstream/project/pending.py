"""Feeds a stream from its source: what is released is compared or skipped, the rest is taken step by step.

Trusted base: kernel (hands private records to a stream).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError, DataError, SchemaError, StepError, UnconfirmedError
from dpstream.project.base import require_border

if TYPE_CHECKING:
    from dpstream.io.sources import Source, StepInput
    from dpstream.stream import Release, Stream


@dataclass(frozen=True)
class TakenStep:
    """One step of a source that the stream has.

    Attributes:
        released: whether the stream had it already: its records were compared with those of the release (by a keyed
            hash), and nothing was drawn and nothing spent.
    """

    step: int
    batch_id: str
    released: bool
    release: Release


def taken_steps(
    config: Any,
    stream: Stream,
    source: Source,
    *,
    until: int | None = None,
    recheck: bool = True,
    confirm: bool = False,
    during: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Generator[TakenStep]:
    """Take the steps of a source that are due, in order, and compare the released ones with the data.

    Args:
        confirm: the owner has confirmed that the first new step's table lost as many records as it did.
        during: entered while a step is taken, and left before it is handed out.

    With ``late = "error"`` everything is read from the first step on, so that a change in a released step
    is noticed; where each file is a step, files that were read must also be the first ones still. With another rule
    for late records, or without ``recheck``, reading begins after the last
    released step, at the position that was saved with it. Files that are cut by time may be gone then.

    Errors:
        ConfigError: a predecessor that went on after the border (``require_border``), or no ``recheck`` where every
        run must compare (``check_recheck``).
        DataError, SchemaError: files that cannot be read, or records that do not fit; nothing was spent. StepError:
        files that shrank or are out of order, released steps that the source no longer has, or whose records have
        changed since. HorizonError, StoreError: see ``Stream.step``.
    """
    if not recheck:
        check_recheck(config)
    require_border(config)
    compare = recheck and config.source_options.late == "error" and config.source_options.repeatable
    first = 1 if compare else stream.last_step + 1
    # Where each file is a step, a file that sorts before released ones would be taken as the newest step: the position
    # tells which files were read. Other sources read as at the first time, so that all that changed is noticed.
    by_files = config.source_options.every == "files"
    seen = None if compare and not by_files else stream.position
    last = first - 1
    begun = stream.begun
    if begun is not None:
        source.resume(*begun)
    for entry in source.steps(first, seen=seen, key=stream.source_key):
        if until is not None and entry.step > until:
            return
        last = entry.step
        released = entry.step <= stream.last_step
        if confirm and entry.step == stream.last_step + 1:
            entry = confirmed(entry)
            confirm = False
        if recheck or not released:
            with during():
                position = dict(source.position)
                release = _take(stream, entry, position, config.path)
                source.committed(position)
            yield TakenStep(entry.step, entry.batch_id, released, release)
        if entry.step == until:
            return  # what a later step would wait for, or stop at, is of no concern
    if compare and last < stream.last_step and (until is None or last < until):
        options = config.source_options
        behind = options.end == "today" and last == options.last_step(options.clock())
        clock = (
            f": by this machine's clock (day {options.clock()}, UTC) no later step is over" if behind else ""
        )
        raise StepError(
            f"the source ends at step {last}, and step {stream.last_step} is released{clock}",
            where="source",
            allowed="the right time"
            if behind
            else "the data as they were"
            if config.source_options.always_compared
            else "the data as they were, or --no-recheck, which does not compare released steps",
        )


def _take(stream: Stream, entry: StepInput, position: dict[str, int], config: Path) -> Release:
    """Give a step to the stream."""
    from dpstream.stream import Batch

    own = entry.keyed if entry.engine is None else entry.engine
    batch = Batch(entry.inserts, entry.deletes, entry.users) if own is None else own
    try:
        with named_step(entry.step, entry.batch_id):
            return stream.step(batch, entry.batch_id, period_text(entry), position=position)
    except UnconfirmedError as error:
        error.add_note(f"if so many records did leave: dpstream run {config} --confirm-shrink")
        raise
    except DataError as error:
        if error.outside_domain and stream.last_step:
            error.add_note(
                f"to count such values from now on: dpstream init --after {config} --out NEXT.toml"
            )
        raise


def check_recheck(config: Any) -> None:
    """That released steps may go uncompared.

    Errors:
        ConfigError: stays with ``late = "error"``: an end that is filled in late, or a row that is erased, would never
        be noticed, and its record would stay in the table for ever.
    """
    if config.source_options.always_compared:
        raise ConfigError(
            'stays with late = "error" need it: a record whose end came late would stay for ever',
            where="--no-recheck",
            allowed='a run without it, or a stream with late = "next-step"',
        )


def confirmed(entry: StepInput) -> StepInput:
    """The step with its table confirmed; unchanged unless it is a whole table."""
    from dpstream.core.tables import Snapshot

    whole = entry.keyed
    return replace(entry, keyed=replace(whole, confirmed=True)) if isinstance(whole, Snapshot) else entry


def expected_steps(config: Any, source: Source, until: int | None) -> int | None:
    """How many steps there will be, as far as public facts tell before the data are read."""
    from dpstream.io.sources import FileSource
    from dpstream.io.sources.keyed_source import KeyedSource

    options = config.source_options
    if isinstance(source, KeyedSource):
        source = source.beneath
    if isinstance(source, FileSource) and options.every == "files":
        known: int | None = len(source.files())
    else:
        known = options.last_step(options.clock())
    return min((last for last in (known, until) if last is not None), default=None)


def period_text(entry: StepInput) -> str | None:
    """First and last day as ISO 8601 has it, ``2020-01-06/2020-01-12``; None without a calendar."""
    if entry.period is None:
        return None
    first, after = entry.period
    return f"{first.isoformat()}/{(after - datetime.timedelta(days=1)).isoformat()}"


@contextmanager
def named_step(step: int, batch_id: str) -> Iterator[None]:
    """Say in an error about records at which step they are."""
    stream_says = f"step {batch_id!r}"
    try:
        yield
    except (DataError, SchemaError, StepError) as error:
        inner = (error.where or "").removeprefix(stream_says).removeprefix(", ")
        known = ("batch", "step")
        detail = "" if not inner or inner.startswith(known) else f", {inner}"
        where = f"step {step} ({batch_id}){detail}"
        named = type(error)(error.what, where=where, allowed=error.allowed)
        if isinstance(error, DataError) and isinstance(named, DataError):
            named.outside_domain = error.outside_domain
        raise named from None


def last_wanted(stream: Stream, until: int | None, steps: int | None) -> int | None:
    """The last step of a run that ends after step ``until``, or after so many new ``steps``; None: after all."""
    if steps is None:
        return until
    last = stream.last_step + steps
    return last if until is None else min(until, last)
