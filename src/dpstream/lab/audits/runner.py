"""Runs the audits by name, one after the other or in several processes."""

from __future__ import annotations

import multiprocessing
import queue
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.core.privacy import ZCDP, Randomness
from dpstream.lab.audits.aim_audit import aim_subjects, audit_aim
from dpstream.lab.audits.asking_audit import audit_asking
from dpstream.lab.audits.attacks import MINUTES, TooShortError
from dpstream.lab.audits.census_audit import audit_census
from dpstream.lab.audits.configured import configured_audits
from dpstream.lab.audits.counters_audit import audit_counters
from dpstream.lab.audits.door import record
from dpstream.lab.audits.erm_audit import audit_classifiers
from dpstream.lab.audits.exact import audit_exact
from dpstream.lab.audits.finding import Audit, AuditFinding, AuditLength, AuditProgress
from dpstream.lab.audits.growing_audit import audit_growing
from dpstream.lab.audits.panel_audit import audit_panels
from dpstream.lab.audits.points_audit import audit_points, far_plan, points_run
from dpstream.lab.audits.pooled_audit import audit_pooled, pooled_subjects
from dpstream.lab.audits.published_audit import audit_published
from dpstream.lab.audits.samplers_audit import audit_samplers
from dpstream.lab.audits.turnover_audit import audit_turnover

if TYPE_CHECKING:
    from pathlib import Path


def audit_drawn(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """The laws and choices of runs that use every kind: a pooled stream with joint draws, AIM under zCDP, points."""
    pairs = {subject.name: next(iter(subject.pairs())) for subject in (*pooled_subjects(), *aim_subjects())}
    names = ("pooled, headlines", "pooled, joint histograms", f"AIM, {ZCDP.of('1/2')}, event, pairs")
    runs = [pairs[name].base for name in names] + [points_run(far_plan("default", 2, 1), np.arange(100))]
    yield from audit_samplers([record(run, randomness).door for run in runs], randomness, progress)


#: The audits by name, the longest first, so that two processes end at about the same time.
AUDITS: dict[str, Audit] = {
    "counters": audit_counters,
    "samplers": audit_drawn,
    "exact": audit_exact,
    "panels": audit_panels,
    "census": audit_census,
    "points": audit_points,
    "pooled": audit_pooled,
    "turnover": audit_turnover,
    "aim": audit_aim,
    "schedulers": audit_growing,
    "classifiers": audit_classifiers,
    "questions": audit_asking,
    "published": audit_published,
}

#: Audits of a configuration file, the longest first.
_CONFIGURED = ("attacks", "samplers", "transcripts", "exact")
_POLL_SECONDS = 0.5


def audit_names(*, configured: bool) -> tuple[str, ...]:
    """The names of all audits; with ``configured``, of those that audit a configuration file."""
    return tuple(sorted(_CONFIGURED if configured else AUDITS))


def run_audits(
    names: Sequence[str] | None,
    length: AuditLength,
    progress: AuditProgress,
    *,
    config: str | Path | None = None,
    minutes: float = MINUTES,
    seed: int | None = None,
    processes: int = 2,
    left_out: Callable[[TooShortError], None] | None = None,
) -> Iterator[AuditFinding]:
    """Run some audits, and give findings as they come.

    Args:
        names: of ``audit_names``; None: all, of a configuration file those that there are for its mechanism.
        progress: is called with each subject.
        config: audit the parts of this file's plan instead of the program's own subjects.
        minutes: the limit of CPU of the attacks on a configuration.
        seed: for tests; None: the operating system's entropy.
        processes: how many processes to use.
        left_out: told where there is too little time for attacks, and the other parts go on; None: that is an error.

    Errors:
        ConfigError: no name, an unknown name, a name of an audit that no configuration file has, or a wrong file.
    """
    known = audit_names(configured=config is not None)
    for name in names or ():
        if name not in known:
            what = f"there is no audit {name!r}" + (" of a configuration file" if config is not None else "")
            raise ConfigError(what, where="audit", allowed=", ".join(known))
    if names is not None and not names:
        raise ConfigError("no audit is named", where="audit", allowed=", ".join(known))
    place = None if config is None else str(config)
    there = _audits(place, minutes)  # raises for a wrong file before anything starts
    for name in names or ():
        if name not in there:
            raise ConfigError(
                f"there is no audit {name!r} of this file's mechanism",
                where="audit",
                allowed=", ".join(there),
            )
    order = AUDITS if place is None else _CONFIGURED
    chosen = [name for name in order if name in (there if names is None else names)]
    if processes == 1 or len(chosen) == 1:
        for name in chosen:
            try:
                yield from there[name](length, _randomness(seed, name), progress)
            except TooShortError as error:
                if left_out is None:
                    raise
                left_out(error)
    else:
        yield from _parallel(chosen, length, place, minutes, seed, processes, progress, left_out)


def _audits(config: str | None, minutes: float) -> dict[str, Audit]:
    if config is None:
        return AUDITS
    from dpstream.project import Config

    return configured_audits(Config.load(config), minutes)


def _randomness(seed: int | None, name: str) -> Randomness:
    return Randomness.system() if seed is None else Randomness.seeded(f"{seed}/{name}")


def _parallel(
    names: list[str],
    length: AuditLength,
    config: str | None,
    minutes: float,
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
                running[name] = context.Process(
                    target=_work, args=(name, length, config, minutes, seed, results)
                )
                running[name].start()
            try:
                name, kind, value = results.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                _check_alive(running)
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


def _check_alive(running: dict[str, Any]) -> None:
    """Raise for a worker that died without a result: it was killed, or has a bug (see its traceback)."""
    for name, process in running.items():
        if process.exitcode:
            raise RuntimeError(f"the audit {name!r} ended with exit code {process.exitcode}")


def _work(
    name: str, length: AuditLength, config: str | None, minutes: float, seed: int | None, results: Any
) -> None:
    # Ctrl-C reaches all processes of the group; only the parent handles it, and ends its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        audit = _audits(config, minutes)[name]
        for finding in audit(
            length, _randomness(seed, name), lambda text: results.put((name, "progress", text))
        ):
            results.put((name, "finding", finding))
    except DpstreamError as error:
        results.put((name, "error", error))
    else:
        results.put((name, "done", None))
