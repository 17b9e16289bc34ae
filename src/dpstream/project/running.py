"""A run: every step of a source that is due, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from dpstream.project.pending import pending_steps

if TYPE_CHECKING:
    from dpstream.io.sources import Source
    from dpstream.project.pending import Pending
    from dpstream.stream import Release, Stream


def last_wanted(stream: Stream, until: int | None, steps: int | None) -> int | None:
    """The last step of a run that ends after step ``until``, or after so many new ``steps``; None: after all."""
    if steps is None:
        return until
    last = stream.last_step + steps
    return last if until is None else min(until, last)


def taken_steps(
    config: Any,
    stream: Stream,
    source: Source,
    *,
    until: int | None = None,
    recheck: bool = True,
    confirm: bool = False,
    during: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Generator[tuple[Pending, Release]]:
    """Take the steps that are due, and compare the released ones with the data; arguments as of ``pending_steps``.

    Args:
        during: entered while a step is taken, and left before it is handed out.

    Errors:
        As of ``pending_steps`` and ``Pending.take``.
    """
    for pending in pending_steps(config, stream, source, until=until, recheck=recheck, confirm=confirm):
        with during():
            release = pending.take()
        yield pending, release
