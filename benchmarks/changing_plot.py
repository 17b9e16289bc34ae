"""Draw an invented register over time: how many records there are and are released, and how wrong the tables are.

    python benchmarks/changing_plot.py [--out docs/images/changing-tables.svg]

The register is that of ``dpstream simulate stock --records 1000 --mean-stay 4 --steps 100`` (seed 0), with its seasons,
its reload at step 31 and its burst at step 41. Each mechanism runs once, with the configuration that ``dpstream init``
drafts: census protects a record's whole stay by epsilon 1; pooled, which counts events, an insert and a delete by 1/2
each. AvgWE: mean over all pairs of columns of the mean cell error of the released model, over the true table's size.
Takes about a minute.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from itertools import islice
from pathlib import Path

from changing_tables import Release, by_events, by_key, empty, moments
from keyed_streams import KeyedStream, changes_of

from dpstream.core.privacy import Randomness
from dpstream.core.tables import Workload
from dpstream.families.census import Census
from dpstream.families.tabular import Pooled
from dpstream.tools.evaluate import workload_errors
from dpstream.tools.simulate import Stock
from dpstream.tools.simulate.stock_folder import DELETE

OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "changing-tables.svg"
_RECORDS, _STAY, _STEPS = 1000, 4, 100
#: Distinct without colour, too.
_STYLES = {"census": ("#0072B2", "-"), "pooled": ("#D55E00", "--"), "empty table": ("#777777", ":")}


def register() -> KeyedStream:
    """As the simulator writes it."""
    stock = Stock(_RECORDS, _STAY)

    def changes() -> object:
        for step in islice(stock.steps(0), _STEPS):
            yield changes_of(step.keys, step.kinds != DELETE, step.codes)

    return KeyedStream("stock", stock.schema.domain, _STEPS, _RECORDS, _RECORDS / _STAY, changes)  # type: ignore[arg-type]


def curves(stream: KeyedStream) -> tuple[list[int], dict[str, tuple[list[float], list[float]]]]:
    """True numbers of records; and of each method the released numbers and the errors, step by step."""
    workload = Workload.all_k_way(stream.domain, 2)
    census = Census(workload, turnover=Fraction(_STAY)).calibrate(epsilon=1)
    pooled = Pooled(workload, deletions=True).calibrate(epsilon="1/2")
    seed = Randomness.seeded
    methods = {
        "census": by_key(census)(seed("census")),
        "pooled": by_events(pooled, deletions=True)(seed("pooled")),
        "empty table": empty,
    }
    true = list[int]()
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in methods}
    for _, moment in moments(stream, stream.steps, set()):
        size = len(moment.after)
        true.append(size)
        truth = moment.after.count(workload.cliques, 0)
        for name, step in methods.items():
            release: Release | None = step(moment)
            assert release is not None
            numbers, errors = found[name]
            numbers.append(max(release.total, 0.0))
            errors.append(
                workload_errors(truth, release.marginals(workload.cliques), size).as_dict()["AvgWE"]
            )
    return true, found


def draw(true: list[int], found: dict[str, tuple[list[float], list[float]]], out: Path) -> None:
    """Numbers on the left, errors on the right."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "dpstream"
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.5))
    steps = range(1, len(true) + 1)
    left.plot(steps, true, color="black", linewidth=1.0, label="true")
    for name, (numbers, errors) in found.items():
        colour, line = _STYLES[name]
        if any(numbers):
            left.plot(steps, numbers, line, color=colour, linewidth=1.5, label=name)
        right.plot(steps, errors, line, color=colour, linewidth=1.5, label=name)
    left.set_title("Records present, and released", fontsize=10)
    right.set_title("Error of all pairs (AvgWE)", fontsize=10)
    left.set_ylim(bottom=0)
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=9, frameon=False)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    """Run, draw, and print the means over all steps from the tenth on."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    out: Path = parser.parse_args().out
    true, found = curves(register())
    draw(true, found, out)
    for name, (numbers, errors) in found.items():
        apart = [abs(one - size) / size for one, size in zip(numbers, true, strict=True)][9:]
        late = errors[9:]
        print(f"{name}: AvgWE {sum(late) / len(late):.4f}, total wrong by {sum(apart) / len(apart):.1%}")


if __name__ == "__main__":
    main()
