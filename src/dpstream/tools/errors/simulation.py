"""Runs of a configuration on its own releases: seeded, kept one by one, in as many processes as wanted.

Only public files are read: the releases and the configuration. Every finished run is a file in a folder beside the
releases, so that a call that was interrupted goes on, and another number of processes gives the same files.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreError
from dpstream.core.paths import sha256_hex
from dpstream.core.privacy import Randomness
from dpstream.core.version import __version__
from dpstream.io.sinks import read_catalogue, read_manifest, readable_steps
from dpstream.project.base import base_table, read_predecessor
from dpstream.stream.release.released_verdicts import table_measured
from dpstream.tools.errors.contract import (
    FamilySimulation,
    Invented,
    Observation,
    Released,
    check_number,
    seed_of,
)
from dpstream.tools.evaluate.run_folder import require_same_plan
from dpstream.tools.family_tools import tool_of

if TYPE_CHECKING:
    from dpstream.core.contracts import StartTable
    from dpstream.project import Config

#: Fewer tell nothing about a spread; more are never needed.
MIN_RUNS, MAX_RUNS = 2, 1000
#: Of invented streams and of kept runs: another one makes all runs again.
_FORMAT = 3
_NEVER: Callable[[], bool] = lambda: False  # noqa: E731


@dataclass(frozen=True, eq=False)
class Simulation:
    """Finished runs, and the invented truth that they ran on; public.

    Attributes:
        releases: what was taken as the truth.
        invented: that truth.
        runs: what each run released at each compared step.
        seed: of all runs. plan_hash: of the configuration.
        wanted: runs that were asked for; fewer are there where a limit of time or a signal ended the call.
    """

    config: Config
    releases: Released
    invented: Invented
    runs: tuple[Mapping[int, Observation], ...]
    seed: int
    plan_hash: str
    wanted: int

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that are compared, in order."""
        return tuple(self.invented.truth)


def doubling_steps(last: int) -> tuple[int, ...]:
    """1, 2, 4, 8, ... and the last step.

    >>> doubling_steps(11)
    (1, 2, 4, 8, 11)
    """
    return tuple(sorted({last, *(2**power for power in range(last.bit_length()))}))


def simulate_errors(
    config: Config,
    *,
    runs: int = 20,
    jobs: int = 1,
    seed: int = 0,
    until: int | None = None,
    seconds: float | None = None,
    stop: Callable[[], bool] = _NEVER,
    progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Run a configuration on its own releases. Reads neither the source nor the state, and costs no budget.

    Args:
        runs: how many. jobs: processes.
        seed: of an ordinary generator; equal seeds give equal results, whatever ``jobs`` is.
        until: take the releases up to this step only.
        seconds: begin no run after so many seconds of CPU of this process; at least two runs are done.
        stop: asked between runs; True ends the call.
        progress: told how many runs are done, and how many there will be.

    Errors:
        ConfigError: too few runs; no releases, none with a table, those of another plan, or of a stream that cannot be
        invented. StoreDamagedError: released files that differ from their hashes. StoreError: a process was killed.
    """
    if runs in (0, 1):
        raise ConfigError("too few runs", where="runs", allowed=f"{MIN_RUNS} or more; 20 are usual")
    check_number(runs, "runs", "errors", MIN_RUNS, MAX_RUNS)
    check_number(jobs, "jobs", "errors", 1, 256)
    check_number(seed, "seed", "errors", 0, 2**63 - 1)
    folder = config.output.dir
    released, digest, hashed = _released(config, folder, until)
    key = _hash([hashed, digest, seed, __version__, _FORMAT, released.last])[:16]
    place = folder.parent / f"{folder.name}-errors-cache" / key
    task = _Task(str(config.path), str(folder), released.last, seed, str(place))
    invented = _invented(task)
    done = [run for run in range(1, runs + 1) if _file(place, run).is_file()]
    todo = [run for run in range(1, runs + 1) if run not in done]
    tell = progress or (lambda finished, wanted: None)
    tell(len(done), runs)
    began = time.process_time()
    place.mkdir(parents=True, exist_ok=True)
    for finished, _ in enumerate(_all(task, todo, jobs), start=len(done) + 1):
        tell(finished, runs)
        late = seconds is not None and time.process_time() - began > seconds
        if finished >= MIN_RUNS and (late or stop()):
            break
    found = [run for run in range(1, runs + 1) if _file(place, run).is_file()]
    taken = tuple(_kept(_file(place, run), tuple(invented.truth)) for run in found)
    return Simulation(config, released, invented, taken, seed, hashed, runs)


def _released(config: Config, folder: Path, until: int | None) -> tuple[Released, str, str]:
    """The public folder up to a step, a digest of what is read of it, and the plan's hash."""
    catalogue = read_catalogue(folder) if (folder / "catalogue.json").is_file() else {"steps": []}
    if not catalogue["steps"]:
        raise ConfigError(
            "releases are missing",
            where=str(folder),
            allowed=f"dpstream run {config.path}",
        )
    if config.family.asked:
        raise ConfigError(
            "the stream gives answers",
            where=str(config.path),
            allowed="dpstream ask, which gives errors",
        )
    hashed = require_same_plan(config, catalogue, folder)
    base = read_manifest(folder, int(catalogue["steps"][-1]["step"])).get("base")
    readable = [step for step in readable_steps(folder) if until is None or step <= until]
    if not readable:
        raise ConfigError(
            "released tables are missing",
            where=str(folder),
            allowed="a step with a table",
        )
    last = readable[-1]
    rows, measured, hashes = {}, {}, []
    for entry in catalogue["steps"]:
        step = int(entry["step"])
        if step <= last and entry["state"] != "withdrawn":
            manifest = read_manifest(folder, step)
            rows[step], measured[step] = float(manifest["rows"]), table_measured(manifest)[0]
            hashes.append((step, entry["state"], bool(entry["kept"]), entry["manifest_sha256"]))
    begins = None if base is None else _base(config, base["manifest_sha256"])
    return Released(folder, tuple(readable), rows, measured, begins), _hash(hashes), hashed


def _base(config: Config, digest: str) -> StartTable:
    """The public table that the stream began with, from the earlier stream's folder.

    Errors:
        ConfigError: it is not there any more. StoreDamagedError: it differs from its hashes.
    """
    options = config.base_options
    assert options is not None  # the plan's hash is that of the releases, which have a base
    predecessor = read_predecessor(options)
    if predecessor.digest != digest:
        raise ConfigError(
            "the earlier stream's last release differs from [base]",
            where=options.place,
            allowed="the folder of releases as of then",
        )
    return base_table(options, predecessor, config.schema())


def _hash(value: Any) -> str:
    return sha256_hex(json.dumps(value, sort_keys=True).encode())


def _file(place: Path, run: int) -> Path:
    return place / f"run-{run:04d}.npz"


# One run.


@dataclass(frozen=True)
class _Task:
    """What a process needs to know; all of it public."""

    config: str
    folder: str
    last: int
    seed: int
    place: str

    def load(self) -> tuple[Config, FamilySimulation]:
        from dpstream.project import Config

        config = Config.load(self.config)
        return config, tool_of("simulation", FamilySimulation, config.family)


@lru_cache(maxsize=2)
def _invented(task: _Task) -> Invented:
    config, family = task.load()
    released, _, _ = _released(config, Path(task.folder), task.last)
    # Of what was not measured yet an invented stream that goes on as before would tell too small an error.
    compared = {released.measured.get(step, step) for step in doubling_steps(released.last)}
    steps = [step for step in sorted(compared) if released.rows.get(step, 1.0) > 0]
    return family.invent(config, released, steps or [released.last], task.seed)


def observations(
    config: Config, tool: FamilySimulation, invented: Invented, randomness: Randomness, *seed: object
) -> Iterator[tuple[int, Observation | None]]:
    """Runs a configuration on an invented stream: each step, and what it released where that is compared.

    Args:
        seed: parts of the public seed that observations are drawn from, beside the step.
    """
    plan = config.plan()
    state = plan.start() if invented.base is None else plan.start_from(invented.base)
    for step, batch in enumerate(invented.batches, start=1):
        synthesis, truth = plan.step(state, batch, randomness), invented.truth.get(step)
        yield step, None if truth is None else tool.observe(config, synthesis, truth, seed_of(*seed, step))


def _run(task: _Task, number: int) -> None:
    """One run, whose result becomes a file."""
    config, family = task.load()
    randomness = Randomness.seeded(f"errors by simulation {task.seed} {number}")
    arrays: dict[str, Any] = {}
    for step, seen in observations(config, family, _invented(task), randomness, task.seed, number):
        if seen is not None:
            largest = int(seen.codes.max()) if seen.codes.size else 0
            arrays[f"codes/{step}"] = seen.codes.astype(np.min_scalar_type(largest))
            if seen.weights is not None:
                arrays[f"weights/{step}"] = seen.weights
            for name, value in seen.distances.items():
                arrays[f"distance/{step}/{name}"] = np.array(value)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    durable.replace_file(_file(Path(task.place), number), content.getvalue(), mode=0o644, lasting=False)


def _kept(path: Path, steps: Sequence[int]) -> dict[int, Observation]:
    """What a run released, from its file.

    Errors:
        StoreError: the file cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {}
            for step in steps:
                codes = np.asfortranarray(arrays[f"codes/{step}"].astype(np.int32))
                weights = arrays.get(f"weights/{step}")
                start = f"distance/{step}/"
                names = [name for name in arrays.files if name.startswith(start)]
                far = {name.removeprefix(start): float(arrays[name]) for name in names}
                found[step] = Observation(codes, weights, far)
            return found
    except (OSError, ValueError, KeyError):
        raise StoreError(
            "the result of a run cannot be read", where=str(path), allowed="delete it and run again"
        ) from None


# All runs.


def _all(task: _Task, todo: Sequence[int], jobs: int) -> Iterator[int]:
    """The numbers of the runs, each when it is done."""
    if jobs == 1 or len(todo) < 2:
        for number in todo:
            _run(task, number)
            yield number
        return
    with ProcessPoolExecutor(min(jobs, len(todo)), mp_context=get_context("spawn")) as pool:
        waiting: dict[Future[None], int] = {pool.submit(_run, task, number): number for number in todo}
        try:
            while waiting:
                for ready in wait(waiting, return_when=FIRST_COMPLETED).done:
                    ready.result()
                    yield waiting.pop(ready)
        except BrokenProcessPool:
            raise StoreError(
                "a process was killed",
                where="errors",
                allowed="the same command, with fewer --jobs",
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
