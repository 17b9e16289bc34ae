"""Draw an invented register over time: how many records there are and are released, and how wrong the tables are.

    python benchmarks/changing_plot.py [--out docs/images/changing-tables.svg]

The register is that of ``dpstream simulate stock --records 1000 --mean-stay 4 --steps 100`` (seed 0), with its seasons,
its reload at step 31 and its burst at step 41. Each mechanism runs once, with the configuration that ``dpstream init``
drafts: census protects a record's whole stay by epsilon 1; pooled, which counts events, an insert and a delete by 1/2
each. AvgWE: mean over all pairs of columns of the mean cell error of the released model, over the true table's size.
Takes about a minute.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench import documented_parser, drawing, save_figure
from keyed_streams import load
from targets import configuration, measure, mechanism, moments, trivial

from dpstream.core.privacy import Randomness

OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "changing-tables.svg"
STREAM = "stock:1000:4:100:simulated"
#: What each method is called, and its line; distinct without colour, too.
_STYLES = {
    "default": ("census", "#0072B2", "-"),
    "pooled": ("pooled", "#D55E00", "--"),
    "empty": ("empty table", "#777777", ":"),
}


def curves() -> tuple[list[int], dict[str, tuple[list[float], list[float]]]]:
    """True numbers of records; and of each method the released numbers and the errors, step by step."""
    methods = {"empty": trivial("empty")}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("default", "pooled"):
            plan = configuration(STREAM, name, "1", Path(folder)).plan()
            methods[name] = mechanism(plan, Randomness.seeded(name))
    true, found = list[int](), {name: (list[float](), list[float]()) for name in _STYLES}
    for moment in moments(load(STREAM, 0)):
        true.append(moment.table.records)
        for name, (numbers, errors) in found.items():
            release = methods[name](moment)
            numbers.append(max(release.total, 0.0))
            errors.append(measure(release, moment.table, moment.step)["we"])
    return true, found


def draw(true: list[int], found: dict[str, tuple[list[float], list[float]]], out: Path) -> None:
    """Numbers on the left, errors on the right."""
    figure, (left, right) = drawing().subplots(1, 2, figsize=(9.4, 3.5))
    steps = range(1, len(true) + 1)
    left.plot(steps, true, color="black", linewidth=1.0, label="true")
    for name, (numbers, errors) in found.items():
        label, colour, line = _STYLES[name]
        if any(numbers):
            left.plot(steps, numbers, line, color=colour, linewidth=1.5, label=label)
        right.plot(steps, errors, line, color=colour, linewidth=1.5, label=name)
    left.set_title("Records present, and released", fontsize=10)
    right.set_title("Error of all pairs (AvgWE)", fontsize=10)
    left.set_ylim(bottom=0)
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=9, frameon=False)
    save_figure(figure, out)


def main() -> None:
    """Run, draw, and print the means over all steps from the tenth on."""
    parser = documented_parser(__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    out: Path = parser.parse_args().out
    true, found = curves()
    draw(true, found, out)
    for name, (numbers, errors) in found.items():
        apart = [abs(count - size) / size for count, size in zip(numbers, true, strict=True)]
        late = statistics.fmean(errors[9:]), statistics.fmean(apart[9:])
        print(f"{_STYLES[name][0]}: AvgWE {late[0]:.4f}, total wrong by {late[1]:.1%}")


if __name__ == "__main__":
    main()
