"""Questions to a growing table over time: errors of answers, by noise, learning and what arrivals are taken to be.

    python benchmarks/pmwg_error.py [--repeats 5] [--out benchmarks/results/pmwg_error.txt]

An invented table of 120 cells grows from 5,000 to 50,000 records; its distribution drifts slowly. At each of ten sizes
20 analysts' questions are asked: random conditions on one column or two. Errors are those of shares, mean over
questions; the calibration is the uniform histogram, and one that is told every answer without noise.
"""

from __future__ import annotations

import argparse
import platform
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from made_by import write_result
from numpy.typing import NDArray

from dpstream.core.privacy import Randomness
from dpstream.core.schema import Categorical, Schema
from dpstream.core.tables import EncodedBatch
from dpstream.families.growing import PMWG, LinearQuery

START, STEP, STEPS, QUESTIONS = 5_000, 5_000, 10, 20
SCHEMA = Schema([Categorical(n, [f"{n}{i}" for i in range(k)]) for n, k in (("a", 6), ("b", 5), ("c", 4))])
SIZES = SCHEMA.domain.sizes
SHOWN = (1, 2, 4, 7, 10)

WAYS: dict[str, dict[str, Any]] = {
    "published": {"alpha": "0.1", "noise": "published", "learning": "text"},
    "largest": {"alpha": "0.1", "learning": "text"},
    "30 hard, text": {"alpha": "0.1", "hard_questions": 30, "learning": "text"},
    "30 hard, matching": {"alpha": "0.1", "hard_questions": 30},
}


def batches(generator: np.random.Generator) -> list[NDArray[np.int32]]:
    """Records of every step; what is likely drifts."""
    weights = [generator.dirichlet(np.full(size, 0.5)) for size in SIZES]
    found = []
    for _ in range(STEPS):
        weights = [0.9 * w + 0.1 * generator.dirichlet(np.full(len(w), 0.5)) for w in weights]
        columns = [generator.choice(len(w), STEP, p=w) for w in weights]
        columns[2] = np.where(generator.random(STEP) < 0.5, columns[0] % 4, columns[2])
        found.append(np.column_stack(columns).astype(np.int32))
    return found


def question(generator: np.random.Generator) -> LinearQuery:
    """A random half of the labels of one column or two."""
    clique = tuple(sorted(generator.choice(3, generator.integers(1, 3), replace=False).tolist()))
    weights = np.ones(1)
    for column in clique:
        weights = np.outer(weights, generator.random(SIZES[column]) < 0.5).ravel()
    return LinearQuery(clique, weights.astype(float))


def truth(counts: NDArray[np.int64], query: LinearQuery) -> float:
    """The share among the records."""
    others = tuple(i for i in range(3) if i not in query.clique)
    return float(query.weights @ counts.sum(axis=others).ravel() / counts.sum())


def run(options: dict[str, Any], epsilon: int, seed: int) -> tuple[list[float], Counter[str]]:
    """Mean error at every step, and kinds of answers."""
    generator = np.random.default_rng(seed)
    plan = PMWG(
        SCHEMA.domain, options["alpha"], START, **{k: v for k, v in options.items() if k != "alpha"}
    ).calibrate(epsilon=epsilon)
    state, system = plan.start(), Randomness.system()
    counts, errors, kinds = np.zeros(SIZES, np.int64), [], Counter[str]()
    for codes in batches(generator):
        plan.arrive(state, EncodedBatch(SCHEMA.domain, codes))
        np.add.at(counts, tuple(codes.T), 1)
        found = []
        for _ in range(QUESTIONS):
            query = question(generator)
            answer = plan.ask(state, query, lambda noise: int(system.draw(noise, 1)[0]))
            kinds[answer.kind] += 1
            found.append(abs(min(max(answer.value, 0.0), 1.0) - truth(counts, query)))
        errors.append(float(np.mean(found)))
    return errors, kinds


def uniform(seed: int) -> list[float]:
    """The errors of a histogram that never learns."""
    generator = np.random.default_rng(seed)
    counts, errors = np.zeros(SIZES, np.int64), []
    for codes in batches(generator):
        np.add.at(counts, tuple(codes.T), 1)
        asked = [question(generator) for _ in range(QUESTIONS)]
        errors.append(float(np.mean([abs(q.weights.mean() - truth(counts, q)) for q in asked])))
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    seeds = range(arguments.repeats)
    lines = [
        f"python {platform.python_version()}, numpy {np.__version__}; mean of {arguments.repeats} runs; "
        "evaluation only",
        "",
        f"mean error of a share, in %, with so many thousand records; {QUESTIONS} new questions at every size",
        f"{'':36}" + "".join(f"{STEP * step // 1000:>8}" for step in SHOWN) + "    kinds of all answers",
    ]
    plain = np.mean([uniform(seed) for seed in seeds], axis=0)
    lines.append(f"{'uniform':36}" + "".join(f"{100 * plain[step - 1]:>8.2f}" for step in SHOWN))
    for epsilon in (1, 4):
        for name, options in WAYS.items():
            runs = [run(options, epsilon, seed) for seed in seeds]
            errors = np.mean([one for one, _ in runs], axis=0)
            kinds = sum((kinds for _, kinds in runs), Counter[str]())
            told = ", ".join(
                f"{100 * count / kinds.total():.0f} % {kind}" for kind, count in kinds.most_common()
            )
            shown = "".join(f"{100 * errors[step - 1]:>8.2f}" for step in SHOWN)
            lines.append(f"{f'epsilon {epsilon}, {name}':36}{shown}    {told}")
    text = "\n".join(lines)
    print(text)
    if arguments.out is not None:
        write_result(arguments.out, text + "\n")


if __name__ == "__main__":
    main()
