"""What halving and doubling each constant of pooled streams does to their errors.

    python benchmarks/constants.py [--runs 3] [--epsilon 2] [--only NAME ...]
        [--result benchmarks/results/constants.txt]

Two invented streams of records that only come (``inserted_streams.py``): shuffled, and with season and drift (the
season is declared). The mechanism is pooled as drafts have it. Each line: a constant, what half and twice of it
make of AvgWE and of total variation of pairs (means over every fourth step), as ratios to the constant as it is, in
paired runs: same records, same seed of the noise. In brackets the half width of a 95 % interval (t, of the logarithms),
the larger one of the two measures. Ratios within it are chance. For evaluation only.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from inserted_streams import ORDERS, SEASON, invented, real
from made_by import write_result

from dpstream.core.privacy import Budget, PureDP, Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled, joint_groups, pooled_walks
from dpstream.io.sinks.simulated_errors import t_factor

LONG = "about 4 minutes of one core"
#: Order, records, steps.
STREAMS = (("shuffled", 10_000, 30), ("both", 12_000, 24))
#: Every so many steps the release is compared with the truth.
_EVERY = 4
_FAMILY = "dpstream.families.tabular"
#: Constants by module; those that are not numbers are made by ``_values``.
CONSTANTS = {
    "pooled_run": (
        "_RECORDS_PER_NOISE", "_ANSWER_VARIANCE", "_NOISE_BIAS", "_SELECTION_ROUNDS",
    ),
    "pooled_table": (
        "_LEAST_WORTH", "_LEAST_BELIEVED", "_LARGEST_WEIGHT_RATIO", "_ENTERING_AT_ONCE", "_MOST_FITS",
    ),
    "pooled_walks": ("_DRIFTS", "_SWINGS", "_WAVES", "FLEETING_DRIFT", "_DRIFT_ROUNDS", "_STEADY_BELOW"),
    "pooled_estimates": ("_COLUMN_SWEEPS",),
    "pooled_ahead": ("_ITERATIONS",),
    "plans": ("PRIOR_BOUND",),
    "joint_groups": ("MOST_CELLS",),
}  # fmt: skip
#: Options of the recipe, and what they are where nothing is said.
OPTIONS: Mapping[str, Any] = {
    "staleness": Fraction(1, 10), "select_share": Fraction(1, 10), "iterations": 50, "max_cells": 10_000,
}  # fmt: skip
_Runs = np.ndarray


@dataclass(frozen=True)
class Stream:
    """An invented stream: its batches, and the true marginals after each step."""

    domain: Domain
    batches: tuple[EncodedBatch, ...]
    truth: np.ndarray


@lru_cache(maxsize=8)
def stream(order: str, records: int, steps: int, seed: int) -> Stream:
    """Invent or read it, and count."""
    own = real(order, "shuffled", seed) if order == "adult" else invented(order, records, steps, seed)
    cliques = Workload.all_k_way(own.domain, 2).cliques
    batches = tuple(
        EncodedBatch(own.domain, own.codes[first:last], None) for first, last in pairwise(own.borders)
    )
    return Stream(own.domain, batches, np.cumsum([np.concatenate(b.count(cliques)) for b in batches], axis=0))


def errors_along(
    order: str, records: int, steps: int, seed: int, budget: Fraction | Budget, **more: Any
) -> list[tuple[float, float]]:
    """AvgWE and total variation of one run, in the steps that are looked at."""
    own = stream(order, records, steps, seed)
    workload = Workload.all_k_way(own.domain, 2)
    sizes = np.array([own.domain.cells(clique) for clique in workload.cliques])
    starts = np.concatenate([[0], sizes.cumsum()[:-1]])
    season = {"season": Fraction(SEASON)} if ORDERS.get(order, (False,))[0] else {}
    plan = Pooled(workload, **season, **more).calibrate(
        budget if isinstance(budget, Budget) else PureDP.of(budget), horizon=steps
    )
    state, randomness = plan.start(), Randomness.seeded(f"{order} {seed}")
    found = []
    for step, batch in enumerate(own.batches, start=1):
        released = plan.step(state, batch, randomness)
        if step % _EVERY:
            continue
        truth, made = own.truth[step - 1], np.concatenate(released.marginals(workload.cliques))
        size, whole = float(truth[: sizes[0]].sum()), max(float(made[: sizes[0]].sum()), 1e-9)
        apart = np.add.reduceat(np.abs(made - truth), starts) / sizes / size
        shares = np.add.reduceat(np.abs(made / whole - truth / size), starts) / 2.0
        found.append((float(apart.mean()), float(shares.mean())))
    return found


@contextmanager
def replaced(module: str, name: str, times: float) -> Iterator[None]:
    """A constant times a number, wherever the family has it; whole numbers stay whole, and at least 1."""
    values = _values(getattr(sys.modules[f"{_FAMILY}.{module}"], name), name, times)
    changed = [
        (one, key, getattr(one, key))
        for title, one in list(sys.modules.items())
        if title.startswith(_FAMILY)
        for key in values
        if hasattr(one, key)
    ]
    try:
        for one, key, _ in changed:
            setattr(one, key, values[key])
        joint_groups._cut.cache_clear()  # it remembers groups
        yield
    finally:
        for one, key, before in changed:
            setattr(one, key, before)
        joint_groups._cut.cache_clear()


def _values(own: Any, name: str, times: float) -> dict[str, Any]:
    """What is set, by name."""
    if name == "_WAVES":
        return {name: own[: round(len(own) * times)] if times < 1 else tuple(range(1, 2 * len(own) + 1))}
    if name in ("_DRIFTS", "_SWINGS"):
        drifts = pooled_walks._DRIFTS * (times if name == "_DRIFTS" else 1.0)
        swings = pooled_walks._SWINGS * (times if name == "_SWINGS" else 1.0)
        make = pooled_walks.Hypotheses
        return {
            "PLAIN": make(drifts, np.zeros(len(drifts))),
            "SEASONAL": make(np.tile(drifts, len(swings)), np.repeat(swings, len(drifts))),
        }
    scaled = _scaled(own, times)
    return {
        name: max(scaled, 1.0) if name.startswith("_LEAST") else scaled
    }  # below 1 there is nothing to repair


def _scaled(own: Any, times: float) -> Any:
    if isinstance(own, int):
        return max(1, math.floor(own * times))
    return own * (Fraction(times) if isinstance(own, Fraction) else times)


def compared(before: _Runs, after: _Runs) -> str:
    """Ratios of both measures, and how far chance reaches."""
    apart = np.log(after / before)
    width = t_factor(len(apart) - 1) * apart.std(axis=0, ddof=1).max() / math.sqrt(len(apart))
    ratios = after.mean(axis=0) / before.mean(axis=0)
    return f"{ratios[0]:5.2f} {ratios[1]:5.2f} ({width:4.2f})"


def cases(only: Sequence[str]) -> Iterator[tuple[str, Callable[[float], Any]]]:
    """Names, and what gives a context and options for a factor."""
    for name, own in OPTIONS.items():
        if not only or name in only:
            yield name, lambda times, name=name, own=own: (None, {name: _scaled(own, times)})
    for module, names in CONSTANTS.items():
        for name in names:
            if not only or name in only:
                yield name, lambda times, module=module, name=name: (replaced(module, name, times), {})


def main() -> None:
    """Print one line for each constant, as it is done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epsilon", type=Fraction, default=Fraction(2))
    parser.add_argument("--only", nargs="+", default=())
    parser.add_argument("--result", type=Path)
    chosen = parser.parse_args()

    def runs(of: tuple[str, int, int], **more: Any) -> _Runs:
        along = [errors_along(*of, seed, chosen.epsilon, **more) for seed in range(chosen.runs)]
        return np.mean(along, axis=1)

    usual = {of: runs(of) for of in STREAMS}
    lines = [f"epsilon {chosen.epsilon}, {chosen.runs} runs", ""]
    lines += [
        f"{order}, {records} records, {steps} steps: AvgWE {own.mean(axis=0)[0]:.5f}, "
        f"total variation {own.mean(axis=0)[1]:.4f}"
        for (order, records, steps), own in usual.items()
    ]
    lines += [
        "",
        f"{'AvgWE and total variation, times':33}" + "".join(f"{of[0]:20}" for of in STREAMS).rstrip(),
    ]
    print("\n".join(lines), flush=True)
    for name, make in cases(chosen.only):
        for times, word in ((0.5, "half"), (2.0, "twice")):
            cells = []
            for of in STREAMS:
                context, more = make(times)
                if context is None:
                    cells.append(compared(usual[of], runs(of, **more)))
                else:
                    with context:
                        cells.append(compared(usual[of], runs(of)))
            lines.append(f"{name:25} {word:7}" + "  ".join(cells))
            print(lines[-1], flush=True)
    if chosen.result:
        write_result(chosen.result, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
