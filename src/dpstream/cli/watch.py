"""``dpstream run --watch``: takes steps as they become due, waits visibly, and stops cleanly."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from dpstream.cli.shared import INTERRUPTED
from dpstream.core.errors import StoreLockedError

if TYPE_CHECKING:
    from dpstream.io.sources import Source
    from dpstream.project import Config

#: A retry that fails with the same words is told again after so many attempts.
_REMIND = 20

#: Takes what is due from a source; whether released steps are compared. Whether it was stopped, and the last step.
Taker = Callable[["Source", bool], tuple[bool, int]]


def watch(
    config: Config,
    take: Taker,
    *,
    last_step: int,
    interval: float,
    until: int | None,
    recheck: bool,
) -> int:
    """Until the last step, or until Ctrl-C or SIGTERM. The stream is open only while steps are taken: other commands
    find it free while this one waits.

    Args:
        last_step: how many steps it has.

    Returns:
        0 at the last step, and when stopped while waiting (every due step is taken: a planned stop); 5 when
        stopped while due steps are left.
    """
    from dpstream.io.sources import UnreadableError
    from dpstream.project import Watch

    watched, retry, waiting = Watch(config, until), _Retry(interval), False
    while not watched.finished(last_step):
        source = watched.source()
        failing = True
        try:
            if watched.worth_reading(last_step, source):
                before = last_step
                stopped, last_step = take(source, recheck)
                if stopped:
                    return INTERRUPTED
                recheck = config.source_options.always_compared
                waiting = waiting and last_step == before
                retry.forget()
                if watched.finished(last_step):
                    break
        except UnreadableError as error:
            watched.look_again()
            retry.tell(f"cannot be read yet: {error}")
            waiting = False
        except StoreLockedError:
            watched.look_again()
            retry.tell("another command has the stream open")
            waiting = False
        else:
            failing = False
        try:
            if not (waiting or failing):
                click.echo(
                    f"waiting for {watched.next_step(last_step)}; looking every {interval:g} s, Ctrl-C stops",
                    err=True,
                )
                waiting = True
            _pause(interval)
        except KeyboardInterrupt:
            if failing:
                raise
            click.echo(f"stopped after step {last_step}; every due step is released", err=True)
            return 0
    return 0


class _Retry:
    """Says what stands in the way: at once, and again when it lasts."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._text, self._times = "", 0

    def tell(self, text: str) -> None:
        self._times = self._times + 1 if text == self._text else 1
        self._text = text
        if self._times == 1 or self._times % _REMIND == 0:
            count = "" if self._times == 1 else f" (attempt {self._times})"
            click.echo(f"{text}; next try in {self._interval:g} s{count}", err=True)

    def forget(self) -> None:
        self._text, self._times = "", 0


def _pause(seconds: float) -> None:
    """Sleep, in pieces of a second: a signal that arrives after Python's last look for one, or in another thread, does
    not end a sleep."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 1))
