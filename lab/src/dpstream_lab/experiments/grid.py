"""Does many runs in a few processes, the longest first. Finished runs are kept, and are not repeated."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, Protocol

from dpstream.core.errors import ConfigError, StoreError
from dpstream.core.paths import parse_json
from dpstream_lab.experiments.private_output import PrivateFolder
from dpstream_lab.experiments.runs import Task, settings_hash

_RUNS = "runs"


class RunWatch(Protocol):
    """Shows the progress of the runs."""

    def expect(self, runs: int, done: int) -> None:
        """Called first, with the number of runs and the number of those that are finished already."""
        ...

    def started(self, name: str) -> None:
        """Called when a run begins."""
        ...

    def finished(self, name: str, seconds: float, left: float | None) -> None:
        """Called when a run is done and kept; ``left``: the estimated seconds for the rest."""
        ...


class Silent:
    """A ``RunWatch`` that shows nothing."""

    def expect(self, runs: int, done: int) -> None:
        """Nothing."""

    def started(self, name: str) -> None:
        """Nothing."""

    def finished(self, name: str, seconds: float, left: float | None) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Result:
    """A finished run: its task, and the result of ``run_task``."""

    task: Task
    values: dict[str, Any]


class Runnable(Protocol):
    """One run. It is small, so that it can be sent to other processes."""

    @property
    def name(self) -> str:
        """The name of the run, which is also that of its file."""
        ...

    def facts(self) -> tuple[dict[str, Any], float]:
        """Everything that the result depends on, with a table "options"; and an estimate of the cost."""
        ...

    def run(self) -> dict[str, Any]:
        """Do the run. The result has "settings" (the facts), "settings_hash", "points", "final" and "seconds"."""
        ...


@dataclass(frozen=True)
class _Planned:
    task: Runnable
    facts: dict[str, Any]
    cost: float


def run_grid(
    tasks: Sequence[Task], folder: PrivateFolder, *, jobs: int = 1, watch: RunWatch | None = None
) -> list[Result]:
    """Do all tasks, and return their results in the order of the tasks.

    Each finished run is a file ``runs/NAME.json``, written whole. A run whose file was made with equal settings
    (data, mechanism with all its options, budget, steps) is not repeated.

    Args:
        jobs: the number of processes; 1 runs everything in this one.
        watch: is told about the progress.

    Errors:
        ConfigError: a file of this name is from a run with other settings (the message names them); or two tasks have
            the same name, and so would share a file.
        StoreError: a process was killed; finished runs are kept.
    """
    values = run_all(tasks, folder, jobs=jobs, watch=watch)
    return [Result(task, found) for task, found in zip(tasks, values, strict=True)]


def run_all(
    tasks: Sequence[Runnable], folder: PrivateFolder, *, jobs: int = 1, watch: RunWatch | None = None
) -> list[dict[str, Any]]:
    """As ``run_grid``, for runs of any kind; returns the result of each ``run``."""
    if jobs < 1:
        raise ConfigError(f"jobs = {jobs}", where="jobs", allowed="1 or more")
    seen = watch or Silent()
    _check_names(tasks)
    plans = [_Planned(task, *task.facts()) for task in tasks]
    done: dict[str, dict[str, Any]] = {}
    for plan in plans:
        found = _kept(folder / _file(plan), plan)
        if found is not None:
            done[plan.task.name] = found
    todo = sorted((p for p in plans if p.task.name not in done), key=lambda p: -p.cost)
    seen.expect(len(plans), len(done))
    clock = _Clock(todo)
    finish = _alone(todo, seen) if jobs == 1 or len(todo) < 2 else _shared(todo, jobs, seen)
    for plan, values in finish:
        folder.write_json(_file(plan), values)
        done[plan.task.name] = values
        seen.finished(plan.task.name, values["seconds"], clock.left(plan))
    return [done[task.name] for task in tasks]


def _check_names(tasks: Sequence[Runnable]) -> None:
    """Check that no two tasks have the same name (ConfigError): labels may contain the sign that joins them."""
    known: set[str] = set()
    for task in tasks:
        if task.name in known:
            raise ConfigError(
                f"two runs would both be kept as {task.name!r}",
                where="runs",
                allowed="names of streams and methods that stay different when they are joined by '--'",
            )
        known.add(task.name)


def _file(plan: _Planned) -> str:
    return f"{_RUNS}/{plan.task.name}.json"


def _kept(path: Path, plan: _Planned) -> dict[str, Any] | None:
    """The result of a finished run; None if it is not finished."""
    try:
        values: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
        settings, stated = values["settings"], values["settings_hash"]
        settings["options"].items()
        intact = settings_hash(settings) == stated and {"final", "points"} <= set(values)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            "this is not the result of a run", where=str(path), allowed="remove it to run again"
        ) from None
    if intact and stated == settings_hash(plan.facts):
        return values
    then, now = _flat(settings), _flat(plan.facts)
    differ = [key for key in (*now, *then) if then.get(key) != now.get(key)]
    shown = "; ".join(
        f"{key}: {_short(then.get(key))} then, {_short(now.get(key))} now" for key in dict.fromkeys(differ)
    )
    raise ConfigError(
        f"a finished run was made with other settings ({shown or 'its file was changed'})",
        where=str(path),
        allowed="another --out, or removing the file to run again",
    )


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, with the mechanism's options on the same level."""
    return {
        **settings,
        **{f"options.{key}": value for key, value in settings["options"].items()},
        "options": None,
    }


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 120 else text[:117] + "..."


def _alone(todo: Sequence[_Planned], seen: RunWatch) -> Iterator[tuple[_Planned, dict[str, Any]]]:
    for plan in todo:
        seen.started(plan.task.name)
        yield plan, plan.task.run()


def _shared(todo: Sequence[_Planned], jobs: int, seen: RunWatch) -> Iterator[tuple[_Planned, dict[str, Any]]]:
    """Do tasks in several processes. A process gets a task only when it is free, so that "started" is true."""
    waiting = list(reversed(todo))
    running: dict[Future[dict[str, Any]], _Planned] = {}
    with _workers(min(jobs, len(todo))) as pool:
        while waiting or running:
            while waiting and len(running) < jobs:
                plan = waiting.pop()
                running[pool.submit(_run, plan.task)] = plan
                seen.started(plan.task.name)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                plan = running.pop(future)
                try:
                    values = future.result()
                except BrokenProcessPool:
                    raise StoreError(
                        "a process was killed (perhaps there was not enough memory)",
                        where=plan.task.name,
                        allowed="the same command again: finished runs are kept; --jobs 1 needs less memory",
                    ) from None
                yield plan, values


@contextmanager
def _workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """New processes, which are ended at once if this one stops early (Ctrl-C, an error)."""
    before = set(active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_worker)
    finished = False
    try:
        yield pool
        finished = True
    finally:
        if not finished:
            for child in set(active_children()) - before:
                child.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def _run(task: Runnable) -> dict[str, Any]:
    return task.run()


def _worker() -> None:
    # Ctrl-C reaches the whole group of processes; the first one decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Clock:
    """Estimates the time that is left from the time so far."""

    def __init__(self, todo: Sequence[_Planned]) -> None:
        self._begin = time.monotonic()
        self._left = sum(plan.cost for plan in todo)
        self._done = 0.0

    def left(self, plan: _Planned) -> float | None:
        """The estimated seconds after this run."""
        self._left -= plan.cost
        self._done += plan.cost
        if self._done <= 0.0:
            return None
        return max(0.0, self._left / self._done * (time.monotonic() - self._begin))
