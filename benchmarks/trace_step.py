"""One step as the interpreter sees it: modules, functions, arrows between modules, and modules that call each other.

    python benchmarks/trace_step.py [--mechanism pooled] [--out benchmarks/results/trace_step.txt]

A step that measures is traced, on four columns with inserts and deletes, after the first one has been taken (caches
and compiled loops are warm). Modules of ``core``, ``mechanisms`` and ``families`` count; what runs compiled is not
seen. An *arrow* is a pair of modules of which one calls the other, directly or as a callback. Two modules that *call
each other* cannot be read one after the other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from bench import show_result

from dpstream.core.contracts import StreamPlan
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Categorical, Schema
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Baseline, DPStabs, Pooled

LONG = "a few seconds"

ROOMS = ("core", "mechanisms", "families")
COLUMNS = Schema(
    [
        Categorical(name, [*values])
        for name, values in (("a", "xyz"), ("b", "pq"), ("c", "klmn"), ("d", "uvwxy"))
    ]
)
STEPS, RECORDS = 24, 300
RECIPES = {"pooled": Pooled, "dpstabs": DPStabs, "baseline": Baseline}


@dataclass(frozen=True)
class Trace:
    """What ran in one step.

    Attributes:
        functions: module and qualified name.
        arrows: caller and called module.
    """

    calls: int
    functions: frozenset[tuple[str, str]]
    arrows: frozenset[tuple[str, str]]

    @property
    def modules(self) -> list[str]:
        return sorted({module for module, _ in self.functions})

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Modules that call each other."""
        return sorted((a, b) for a, b in self.arrows if a < b and (b, a) in self.arrows)


def module_of(frame: FrameType | None) -> str | None:
    """The module of ours that a frame runs in, without ``dpstream.``."""
    name = frame.f_globals.get("__name__", "") if frame is not None else ""
    room = name.removeprefix("dpstream.")
    return room if name.startswith("dpstream.") and room.split(".")[0] in ROOMS else None


def traced(work: Callable[[], Any]) -> Trace:
    """Run it, and see what it calls."""
    calls, functions, arrows = 0, set(), set()

    def seen(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        module = module_of(frame) if event == "call" else None
        if module is None or frame.f_code.co_name in ("<module>", "<genexpr>", "<listcomp>", "<lambda>"):
            return
        calls += 1
        functions.add((module, frame.f_code.co_qualname))
        caller = frame.f_back
        while caller is not None and module_of(caller) is None:
            caller = caller.f_back
        calling = module_of(caller)
        if calling is not None and calling != module:
            arrows.add((calling, module))

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return Trace(calls, frozenset(functions), frozenset(arrows))


def step_of(mechanism: str) -> Trace:
    """The last step of a stream, which every mechanism measures."""
    workload = Workload.all_k_way(COLUMNS.domain, 2)
    recipe = RECIPES[mechanism](workload, deletions=True, **({"k": 3} if mechanism == "dpstabs" else {}))
    plan: StreamPlan = recipe.calibrate(epsilon=1, horizon=STEPS)
    generator, randomness, state = np.random.default_rng(1), Randomness.seeded(1), plan.start()
    kept = np.zeros((0, 4), np.int32)
    for _ in range(STEPS - 1):
        came = np.column_stack(
            [generator.integers(0, size, RECORDS) for size in COLUMNS.domain.sizes]
        ).astype(np.int32)
        plan.step(state, EncodedBatch(COLUMNS.domain, came, kept[:100]), randomness)
        kept = came
    batch = EncodedBatch(COLUMNS.domain, came, kept[:100])
    return traced(lambda: plan.step(state, batch, randomness))


def table(traces: dict[str, Trace], pairs: bool = True) -> str:
    """A line for each mechanism, and the modules that call each other below."""
    lines = ["mechanism  modules  functions  calls  arrows  call each other"]
    for name, trace in traces.items():
        numbers = (len(trace.modules), len(trace.functions), trace.calls, len(trace.arrows), len(trace.pairs))
        lines.append(
            f"{name:<9}  {numbers[0]:>7}  {numbers[1]:>9}  {numbers[2]:>5}  {numbers[3]:>6}  {numbers[4]:>15}"
        )
    for name, trace in traces.items():
        lines += [f"{name}: {a} and {b} call each other" for a, b in trace.pairs]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--mechanism", choices=list(RECIPES), help="only this one, with the names of its modules"
    )
    parser.add_argument("--out", type=Path, help="file for the table")
    options = parser.parse_args()
    names = [options.mechanism] if options.mechanism else list(RECIPES)
    traces = {name: step_of(name) for name in names}
    text = table(traces)
    if options.mechanism:
        text += "\n".join(traces[options.mechanism].modules) + "\n"
    show_result(text, options.out)


if __name__ == "__main__":
    main()
