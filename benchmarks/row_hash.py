"""The content of a batch: the sum of a keyed function of its rows against a keyed hash of the sorted rows.

    python benchmarks/row_hash.py [--rows 1000000] [--out benchmarks/results/row_hash.txt]

All data is random. Times are CPU seconds of this process on one core, best of three; memory is what Python and NumPy
hold at most beside the batch. Ratios carry over between machines, absolute times do not.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from counting import ADULT, best, table
from made_by import write_result

from dpstream.core.schema.domain import Domain
from dpstream.stream.batch_content import BatchContent, RecordRows
from dpstream.stream.store.stored import StoreReader


def peak(action: Callable[[], object]) -> float:
    """Megabytes."""
    tracemalloc.start()
    action()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found / 1e6


def compare(name: str, sizes: tuple[int, ...], rows: int, owned: bool = False) -> str:
    codes = table(sizes, rows)
    store = StoreReader()
    store.meta = {"key": bytes(32)}
    domain = Domain(tuple(f"c{i}" for i in range(len(sizes))), sizes)
    words = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, (rows, 2))
    owners = (words, words[:0]) if owned else None

    def content() -> BatchContent:
        return BatchContent(store, RecordRows(domain, codes, codes[:0], owners))  # type: ignore[arg-type]

    def summed() -> object:
        return content().stored

    def sorting() -> object:
        return store.fingerprint(RecordRows(domain, codes, codes[:0], owners).in_order())

    new, old = best(summed, 3), best(sorting, 3)
    return (
        f"{name:<40}{new / rows * 1e9:>8.0f} ns {old / rows * 1e9:>8.0f} ns {old / new:>8.1f} x"
        f"{peak(summed):>10.1f} MB {peak(sorting):>8.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    start = time.process_time()
    importlib.import_module("dpstream.core.tables._siphash")
    loading = time.process_time() - start
    rows = arguments.rows
    lines = [
        f"python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}",
        f"{rows:,} rows; CPU time a row",
        f"loading Numba and the compiled loop (cached on disk) {loading * 1e3:10.0f} ms",
        "",
        f"{'case':<40}{'sum':>11} {'sort':>11} {'ratio':>10}{'memory':>13} {'(sort)':>11}",
        compare("20 columns of 10", (10,) * 20, rows),
        compare("20 columns of 10, with owners", (10,) * 20, rows, owned=True),
        compare("Adult's 13 columns", ADULT, rows),
        compare("3 columns of 50", (50,) * 3, rows),
    ]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if arguments.out:
        write_result(arguments.out, text)


if __name__ == "__main__":
    main()
