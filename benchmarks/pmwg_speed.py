"""Questions to a growing table: easy ones, hard ones, a million arrivals, durable ones.

    python benchmarks/pmwg_speed.py [--out benchmarks/results/pmwg_speed.txt]

CPU of one process. The calibration loop is what any answer from a histogram needs: one product of the query with the
public histogram, and one with the private counts.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from made_by import write_result

from dpstream.core.privacy import Randomness
from dpstream.core.schema import Categorical, Schema
from dpstream.core.tables import EncodedBatch
from dpstream.families.growing import PMWG, LinearQuery, PMWGPlan
from dpstream.families.growing.pmwg_facts import matched, multiplied
from dpstream.stream import AskingStream, Batch, open_stream

QUESTIONS = 100_000
RECORDS = 3_000_000


def schema_of(cells: int) -> Schema:
    """Two columns."""
    first = round(cells**0.5)
    return Schema(
        [
            Categorical(name, [f"{name}{i}" for i in range(size)])
            for name, size in (("a", first), ("b", cells // first))
        ]
    )


def plan_of(schema: Schema, start: int = 1000) -> PMWGPlan:
    """A hundred hard questions, so that numbers are worth something."""
    return PMWG(schema.domain, "0.1", start, hard_questions=100, learning="matching").calibrate(epsilon=1)


def records(schema: Schema, rows: int) -> EncodedBatch:
    """Invented and uneven."""
    generator = np.random.default_rng(1)
    columns = [np.minimum(generator.geometric(0.05, rows), size) - 1 for size in schema.domain.sizes]
    return EncodedBatch(schema.domain, np.column_stack(columns).astype(np.int32))


def timed(work: Callable[[], object]) -> float:
    """CPU seconds."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def questions(cells: int, number: int) -> list[LinearQuery]:
    """Conditions that hold in a random half of the cells: after some hard ones the histogram knows them."""
    generator = np.random.default_rng(2)
    return [LinearQuery((0, 1), (generator.random(cells) < 0.5).astype(float)) for _ in range(number)]


SYSTEM = Randomness.system()


def easy(cells: int, number: int) -> tuple[float, float, Counter[str]]:
    """CPU of so many questions, of the products alone, and what kinds they were."""
    schema = schema_of(cells)
    plan = plan_of(schema, 10**6)
    state = plan.start()
    plan.arrive(state, records(schema, RECORDS))
    asked = questions(cells, 50)
    for query in asked * 4:
        plan.ask(state, query, SYSTEM)
    kinds: Counter[str] = Counter()

    def all_of_them() -> None:
        for i in range(number):
            kinds[plan.ask(state, asked[i % 50], SYSTEM).kind] += 1

    used = timed(all_of_them)
    weights = [np.rint(query.weights * 2**20).astype(np.int64) for query in asked]
    y, counts = np.full(cells, 1 / cells), np.ones(cells, np.int64)
    plain = timed(lambda: [(weights[i % 50] @ y, weights[i % 50] @ counts) for i in range(number)])
    return used, plain, kinds


def update(cells: int) -> tuple[float, float]:
    """Milliseconds of CPU of what a hard question adds: the published step, and matching."""
    y = np.random.default_rng(3).dirichlet(np.ones(cells))
    weights = np.rint((np.arange(cells) % 3 == 0) * 2.0**20).astype(np.int64)
    times = max(3, 10**6 // cells)
    step = timed(lambda: [multiplied(y, weights, down=True, rate=0.01) for _ in range(times)])
    match = timed(lambda: [matched(y, weights, 0.3, 1e-6) for _ in range(times)])
    return 1000 * step / times, 1000 * match / times


def arrivals(number: int) -> tuple[float, float]:
    """CPU of so many records at once, and of the question after them."""
    schema = schema_of(10_000)
    plan, query = plan_of(schema), questions(10_000, 1)[0]
    state = plan.start()
    plan.arrive(state, records(schema, 2000))
    plan.ask(state, query, SYSTEM)
    batch = records(schema, number)
    return timed(lambda: plan.arrive(state, batch)), timed(lambda: plan.ask(state, query, SYSTEM))


def durable(number: int) -> float:
    """Milliseconds of wall time of a question in a durable stream, its commit included."""
    schema = schema_of(10_000)
    with (
        tempfile.TemporaryDirectory() as home,
        open_stream(plan_of(schema), schema, Path(home) / "state") as stream,
    ):
        assert isinstance(stream, AskingStream)
        generator = np.random.default_rng(4)
        frame = {column.name: generator.choice(column.labels(), 2000).tolist() for column in schema.columns}
        stream.step(Batch(frame, None), "first")
        words = [f"a = 'a{i}' and not b = 'b{i}'" for i in range(number)]
        begin = time.perf_counter()
        for text in words:
            stream.ask(text)
        return 1000 * (time.perf_counter() - begin) / number


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    used, plain, kinds = easy(10_000, QUESTIONS)
    came, after = arrivals(10**6)
    lines = [
        f"python {platform.python_version()}, numpy {np.__version__}; CPU of one process",
        "",
        f"{QUESTIONS:,} questions on 10,000 cells, {RECORDS:,} records: {used:.2f} s, of which two products alone "
        f"{plain:.2f} s ({', '.join(f'{count:,} {kind}' for kind, count in kinds.most_common())})",
        f"a million records at once {came:.2f} s, the question after them {1000 * after:.2f} ms",
        f"a question to a durable stream, 10,000 cells: {durable(100):.1f} ms of wall time",
        "",
        "what a hard question adds, in ms:",
        "    cells         step   matching   step per million cells",
    ]
    for cells in (10**4, 10**5, 10**6, 10**7):
        step, match = update(cells)
        lines.append(f"    {cells:<12,}{step:>7.2f}{match:>11.2f}{step * 10**6 / cells:>25.1f}")
    text = "\n".join(lines)
    print(text)
    if arguments.out is not None:
        write_result(arguments.out, text + "\n")


if __name__ == "__main__":
    main()
