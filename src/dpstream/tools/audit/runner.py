"""Runs audits by name, one after the other or in several processes."""

from __future__ import annotations

import multiprocessing
import queue
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.core.privacy import Randomness
from dpstream.tools.audit.attack import MINUTES, TooShortError
from dpstream.tools.audit.configured import configured_audits
from dpstream.tools.audit.finding import Audit, AuditFinding, AuditLength, AuditProgress

if TYPE_CHECKING:
    from pathlib import Path

#: The names of all audits of a configuration file.
FILE_AUDITS = ("attack", "exact", "samplers", "transcripts")
#: Makes audits by name, the longest first, so that two processes end together. Each process makes its own.
Audits = Callable[[], Mapping[str, Audit]]
_POLL_SECONDS = 0.5


def audit_file(
    config: str | Path,
    names: Sequence[str] | None,
    length: AuditLength,
    progress: AuditProgress,
    *,
    minutes: float = MINUTES,
    seed: int | None = None,
    processes: int = 2,
    left_out: Callable[[TooShortError], None] | None = None,
) -> Iterator[AuditFinding]:
    """Audit the mechanism as a configuration file has it.

    Args:
        names: of ``FILE_AUDITS``; None: those that there are for its mechanism.
        minutes: the limit of CPU of the attacks.
        left_out: told where there is too little time for attacks, and the other parts go on; None: that is an error.
        progress, seed, processes: see ``run_audits``.

    Errors:
        ConfigError: no name, an unknown name, a name of an audit that this mechanism does not have, or a wrong file.
    """
    check_names(names, FILE_AUDITS, " of a configuration file")
    audits = partial(_audits_of_file, str(config), minutes)
    there = tuple(audits())  # raises for a wrong file before anything starts
    check_names(names, there, " of this file's mechanism")
    yield from run_audits(audits, names, length, progress, seed=seed, processes=processes, left_out=left_out)


def _audits_of_file(config: str, minutes: float) -> Mapping[str, Audit]:
    from dpstream.project import Config

    return configured_audits(Config.load(config), minutes)


def check_names(names: Sequence[str] | None, known: Sequence[str], whose: str = "") -> None:
    """Refuse names of audits that are not known, and an empty list of names (ConfigError)."""
    for name in names or ():
        if name not in known:
            what = f"unknown audit {name!r}{whose}"
            raise ConfigError(what, where="audit", allowed=", ".join(known))
    if names is not None and not names:
        raise ConfigError("no audit is named", where="audit", allowed=", ".join(known))


def run_audits(
    audits: Audits,
    names: Sequence[str] | None,
    length: AuditLength,
    progress: AuditProgress,
    *,
    seed: int | None = None,
    processes: int = 2,
    left_out: Callable[[TooShortError], None] | None = None,
) -> Iterator[AuditFinding]:
    """Run some audits, and give findings as they come.

    Args:
        names: which of them, all of which are there; None: all.
        progress: is called with each subject.
        seed: for tests; None: the operating system's entropy.
        processes: how many processes to use.
        left_out: see ``audit_file``.
    """
    there = audits()
    chosen = [name for name in there if names is None or name in names]
    if processes == 1 or len(chosen) == 1:
        for name in chosen:
            try:
                yield from there[name](length, _randomness(seed, name), progress)
            except TooShortError as error:
                if left_out is None:
                    raise
                left_out(error)
    else:
        yield from _parallel(audits, chosen, length, seed, processes, progress, left_out)


def _randomness(seed: int | None, name: str) -> Randomness:
    return Randomness.system() if seed is None else Randomness.seeded(f"{seed}/{name}")


def _parallel(
    audits: Audits,
    names: list[str],
    length: AuditLength,
    seed: int | None,
    processes: int,
    progress: AuditProgress,
    left_out: Callable[[TooShortError], None] | None = None,
) -> Iterator[AuditFinding]:
    # Fresh interpreters, because a fork would copy locks that threads of numerical libraries hold.
    context: Any = multiprocessing.get_context("spawn")
    results = context.Queue()
    waiting = list(names)
    running: dict[str, Any] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                name = waiting.pop(0)
                running[name] = context.Process(target=_work, args=(audits, name, length, seed, results))
                running[name].start()
            try:
                name, kind, value = results.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                # A worker that died without a result was killed, or has a bug (see its traceback).
                for name, process in running.items():
                    if process.exitcode:
                        raise RuntimeError(
                            f"the audit {name!r} ended with exit code {process.exitcode}"
                        ) from None
                continue
            if kind == "finding":
                yield value
            elif kind == "progress":
                progress(value)
            elif kind == "error" and isinstance(value, TooShortError) and left_out is not None:
                left_out(value)
                running.pop(name).join()
            elif kind == "error":
                raise value
            else:
                running.pop(name).join()
    finally:
        for process in running.values():
            process.terminate()
            process.join()


def _work(audits: Audits, name: str, length: AuditLength, seed: int | None, results: Any) -> None:
    # Ctrl-C reaches all processes of the group; only the parent handles it, and ends its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        audit = audits()[name]
        for finding in audit(
            length, _randomness(seed, name), lambda text: results.put((name, "progress", text))
        ):
            results.put((name, "finding", finding))
    except DpstreamError as error:
        results.put((name, "error", error))
    else:
        results.put((name, "done", None))
