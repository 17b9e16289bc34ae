"""``dpstream up``: a service's worker and pages, as two processes that end together."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from dpstream.cli.interrupt import signalled
from dpstream.cli.types import FilePath
from dpstream.core.errors import ConfigError

_POLL = 0.2
#: Seconds in which the server of pages ends, once the worker has.
_PAGES_END = 30
#: Of Linux (linux/prctl.h): which signal a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1


@click.command("up", short_help="Keep streams running, with pages for their people.")
@click.argument("folder", type=FilePath("folder"))
@click.argument("configs", metavar="[CONFIG]...", nargs=-1, type=FilePath("file"))
@click.option("--init", "draft", is_flag=True, help="Write FOLDER/service.toml, and stop.")
@click.option("--worker-only", is_flag=True, help="Without pages.")
@click.option("--listen", metavar="HOST:PORT", help="Address, instead of service.toml.")
def command(folder: str, configs: tuple[str, ...], draft: bool, worker_only: bool, listen: str | None) -> int:
    """Start the worker and the pages of the service in FOLDER; Ctrl-C or SIGTERM ends both, after the step under way.
    If one ends, so does the other, with its exit code.

    The worker takes due steps and carries out what people decide on the pages. It logs JSON lines on standard
    error.

    \b
    Examples:
      dpstream up service --init evictions/dpstream.toml jobs/dpstream.toml
      dpstream up service
    """
    if draft != bool(configs):
        raise ConfigError(
            "a service is drafted from configurations",
            where="up",
            allowed="--init with one or more CONFIG, or neither",
        )
    if draft:
        from dpstream.service.desk.settings import draft_service

        click.echo(f"wrote {draft_service(Path(folder), [Path(one) for one in configs])}")
        click.echo(f"next: dpstream serve people add {folder} NAME --role owner")
        return 0
    if worker_only:
        if listen is not None:
            raise ConfigError("--worker-only has no pages", where="--listen", allowed="no --worker-only")
        return _work(folder)
    return _both(folder, listen)


def _work(folder: str) -> int:
    from dpstream.service.desk import Desk
    from dpstream.service.desk.worker import Worker

    worker = Worker(Desk.open(folder))
    with contextlib.closing(worker), signalled(lambda _number, _frame: worker.stop()):
        worker.run()
    return 0


def _both(folder: str, listen: str | None) -> int:
    """Two children of this process; gives the exit code of the one that ended first.

    The worker is waited for however long its step takes; pages that do not end are killed.
    """
    from dpstream.service.desk import Desk

    desk = Desk.open(folder)  # what is wrong with the settings is said once, here
    if not desk.people(desk.operator("command line")):
        click.echo(f"nobody can sign in yet: dpstream serve people add {folder} NAME --role owner", err=True)
    address = ["--listen", listen] if listen is not None else []
    ended: list[int] = []
    with signalled(lambda _number, _frame: ended.append(0)):
        children = [
            # A group of its own each: Ctrl-C comes to this process, which ends them.
            subprocess.Popen(
                [sys.executable, "-m", "dpstream", *words],
                start_new_session=True,
                preexec_fn=_end_with_parent(),
            )
            for words in (["up", folder, "--worker-only"], ["serve", "pages", folder, *address])
        ]
        try:
            while not ended:
                for name, child in zip(("the worker", "the server of pages"), children, strict=True):
                    code = child.poll()
                    if code is not None:
                        click.echo(f"error: {name} ended (exit code {code}), and so does the rest", err=True)
                        ended.append(code if code > 0 else 1)
                        break
                else:
                    time.sleep(_POLL)
        finally:
            for child in children:
                child.terminate()
            worker, pages = children
            worker.wait()
            try:
                pages.wait(_PAGES_END)
            except subprocess.TimeoutExpired:
                pages.kill()
                pages.wait()
    return ended[0]


def _end_with_parent() -> Callable[[], None] | None:
    """What a child does first, so that it ends (as at SIGTERM) when this process is killed; None where only Linux can.

    Made before the child is: between fork and exec it loads nothing.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it was killed before that
            os.kill(os.getpid(), signal.SIGTERM)

    return before_exec
