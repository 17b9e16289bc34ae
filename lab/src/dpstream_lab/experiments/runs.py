"""One run: one stream, one method, one budget, one repetition. For evaluation only."""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import dataclass
from typing import Any

from dpstream.core.privacy import Randomness
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.core.version import __version__
from dpstream.tools.evaluate.metrics import METRICS, workload_errors
from dpstream.tools.evaluate.private_folder import LABEL
from dpstream.tools.evaluate.true_table import TrueTable
from dpstream_lab.experiments.methods import Method
from dpstream_lab.experiments.offline_ceiling import Offline
from dpstream_lab.experiments.replayed_streams import Replay, StreamSource

RUN_FORMAT = 1
#: Errors are taken at every tenth step and at each of the last ten, over which the tables average.
EVALUATE_EVERY = 10
EVALUATE_LAST = 10


@dataclass(frozen=True)
class Task:
    """One run of a grid. It is small, so that it can be sent to other processes.

    Attributes:
        steps: run only this many first steps; None: the whole stream. The horizon is the whole stream's
            length all the same.
        workload: the marginals that errors are taken on, as in ``[mechanism] workload``.
        repeat: 0, 1, 2, ...
    """

    source: StreamSource
    method: Method | Offline
    epsilon: str
    repeat: int
    steps: int | None = None
    workload: Any = "all-2-way"

    @property
    def once(self) -> bool:
        """Whether the method runs once, on the final table."""
        return isinstance(self.method, Offline)

    @property
    def name(self) -> str:
        """The name of the run, which is also that of its file."""
        epsilon = self.epsilon.replace("/", "-over-")
        return f"{self.source.label}--{self.method.label}--epsilon-{epsilon}--{self.repeat + 1}"

    def facts(self) -> tuple[dict[str, Any], float]:
        """See ``task_facts``."""
        return task_facts(self)

    def run(self) -> dict[str, Any]:
        """See ``run_task``."""
        return run_task(self)


def evaluated_steps(steps: int) -> list[int]:
    """Every tenth step, and the last ten.

    >>> evaluated_steps(31)
    [10, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]
    >>> evaluated_steps(1)
    [1]
    """
    return [
        step for step in range(1, steps + 1) if step % EVALUATE_EVERY == 0 or step > steps - EVALUATE_LAST
    ]


def task_facts(task: Task) -> tuple[dict[str, Any], float]:
    """Everything that the result depends on (JSON-able), and a guess of the run's cost (for the order of runs).

    Errors:
        ConfigError and others: a method that does not fit the stream.
    """
    stream = task.source.load(task.repeat)
    workload = Workload.parse(stream.domain, task.workload)
    steps = _steps(stream, task)
    facts = {
        "format": RUN_FORMAT,
        "program": __version__,
        "stream": task.source.label,
        "data": stream.fingerprint,
        "steps": steps,
        "horizon": len(stream),
        "workload": workload.as_option(),
        "unit": stream.unit.name,
        "epsilon": task.epsilon,
        "repetition": task.repeat + 1,
        "method": task.method.label,
    }
    if isinstance(task.method, Offline):
        options = task.method.facts(stream.domain, workload, task.epsilon, stream.unit)
        # A peer may take minutes: the first to start, so that nothing waits for it at the end.
        cost = 1e6 if task.method.is_peer else 50.0 * len(workload)
        return {**facts, "mechanism": "offline", "options": options}, cost
    plan = task.method.plan(stream, task.epsilon, task.workload)
    weight = 0.7 if plan.name == "baseline" else 1.0
    return {**facts, "mechanism": plan.name, "options": plan.options()}, weight * steps * len(workload)


def settings_hash(facts: dict[str, Any]) -> str:
    """A hash of the facts, which does not depend on their order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def run_task(task: Task) -> dict[str, Any]:
    """Do a run with real noise from the operating system. The result has JSON values, and is private.

    Cost: the mechanism's steps; errors at every tenth step and the last ten cost one count of the new records
    and one answer to the workload each.
    """
    facts, _ = task_facts(task)
    stream = task.source.load(task.repeat)
    workload = Workload.parse(stream.domain, task.workload)
    clock, begin = time.perf_counter(), time.process_time()
    points = (_once if task.once else _stepwise)(task, stream, workload)
    used, wall = time.process_time() - begin, time.perf_counter() - clock
    steps = facts["steps"]
    last = [values for step, values in points if step > steps - EVALUATE_LAST]
    return {
        "label": LABEL,
        "settings": facts,
        "settings_hash": settings_hash(facts),
        "program": __version__,
        "points": {
            "step": [step for step, _ in points],
            **{metric: [_blank(values[metric]) for _, values in points] for metric in METRICS},
        },
        "final": {metric: _blank(_mean([values[metric] for values in last])) for metric in METRICS},
        "seconds": round(wall, 3),
        "cpu_seconds": round(used, 3),
    }


def _steps(stream: Replay, task: Task) -> int:
    return len(stream) if task.steps is None else min(task.steps, len(stream))


def _stepwise(task: Task, stream: Replay, workload: Workload) -> list[tuple[int, dict[str, float]]]:
    assert isinstance(task.method, Method)
    plan = task.method.plan(stream, task.epsilon, task.workload)
    state, randomness, table = plan.start(), Randomness.system(), TrueTable(stream.domain)
    steps = _steps(stream, task)
    wanted, points = set(evaluated_steps(steps)), []
    for step in range(1, steps + 1):
        batch = stream.batch(step)
        table.add(batch)
        synthesis = plan.step(state, batch, randomness).answers
        if step in wanted:
            assert synthesis is not None
            truth, found = table.marginals(workload.cliques), synthesis.marginals(workload.cliques)
            points.append((step, workload_errors(truth, found, table.records).as_dict()))
    return points


def _once(task: Task, stream: Replay, workload: Workload) -> list[tuple[int, dict[str, float]]]:
    assert isinstance(task.method, Offline)
    table, steps = TrueTable(stream.domain), _steps(stream, task)
    for step in range(1, steps + 1):
        table.add(stream.batch(step))
    found = task.method.run(table, workload, task.epsilon, stream.unit, task.repeat)
    # The truth of the same multiset: rows, where deletes without a row cannot take one away.
    truth = TrueTable(stream.domain)
    truth.add(EncodedBatch(stream.domain, table.rows()))
    errors = workload_errors(truth.marginals(workload.cliques), found, truth.records)
    return [(steps, errors.as_dict())]


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _blank(value: float) -> float | None:
    return None if math.isnan(value) else value
