"""Draw the tables of ``points_w1`` (W1 against t with the slope of the theory) and ``points_speed`` (time a point)."""

from __future__ import annotations

import argparse
import math
import re
from collections import defaultdict
from pathlib import Path

from bench import drawing, save_figure

Curve = tuple[list[int], list[float]]

RESULTS = Path(__file__).resolve().parent / "results"
#: Distinct without colour, too.
STYLES = {
    "paper": ("#D55E00", "o-"),
    "default": ("#0072B2", "s-"),
    "phdstream": ("#CC79A7", "^--"),
    "offline": ("#009E73", "v:"),
    "uniform": ("#999999", "x:"),
}


def read() -> dict[tuple[int, str, str], dict[str, Curve]]:
    """Curves by dimension, stream and epsilon."""
    found: dict[tuple[int, str, str], dict[str, Curve]] = defaultdict(dict)
    times: list[int] = []
    for line in (RESULTS / "points_w1.txt").read_text(encoding="utf-8").splitlines():
        head = re.match(r"# d=\d \w+: t = ([\d ]+);", line)
        row = re.match(r"d=(\d) epsilon=(\S+) (\w+) +(\w+) +([\d. ]+)$", line)
        if head:
            times = [int(t) for t in head[1].split()]
        elif row:
            values = [float(value) for value in row[5].split()]
            found[int(row[1]), row[3], row[2]][row[4]] = (times, values)
    return found


def slope(d: int, t: float) -> float:
    """The expected error of the theory, up to its constant, at epsilon 1."""
    return float(math.log(t) ** 4.5 / t if d == 1 else math.log(t) * t ** (-1.0 / d))


def draw(d: int, curves: dict[tuple[int, str, str], dict[str, Curve]], out: Path) -> None:
    """All streams of one dimension at epsilon 1."""
    kinds = [kind for dimension, kind, epsilon in curves if dimension == d and epsilon == "1"]
    columns = 3 if len(kinds) > 4 else 2
    rows = -(-len(kinds) // columns)
    figure, every = drawing().subplots(
        rows, columns, figsize=(3.6 * columns, 2.9 * rows), sharex=True, squeeze=False
    )
    for axes, kind in zip(every.flat, kinds, strict=False):
        for method, (times, values) in curves[d, kind, "1"].items():
            colour, style = STYLES[method]
            axes.plot(times, values, style, color=colour, label=method, linewidth=1.2, markersize=4)
        times, values = curves[d, kind, "1"]["default"]
        scale = values[-1] / slope(d, times[-1])
        axes.plot(
            times,
            [scale * slope(d, t) for t in times],
            "-",
            color="black",
            linewidth=0.6,
            label="theory's slope",
        )
        axes.set(xscale="log", yscale="log", title=kind)
        axes.grid(True, which="major", linewidth=0.3)
    for axes in every.flat[len(kinds) :]:
        axes.axis("off")
    every[0, 0].legend(fontsize=7)
    figure.supxlabel("points read", fontsize=9)
    figure.supylabel("W1 (sup norm)", fontsize=9)
    save_figure(figure, out / f"points-w1-d{d}.svg")


def draw_speed(out: Path) -> None:
    """Microseconds a point against t."""
    figure, axes = drawing().subplots(figsize=(7, 4))
    for line in (RESULTS / "points_speed.txt").read_text(encoding="utf-8").splitlines():
        name, split, numbers = line.partition(": microseconds a point up to t: ")
        if split:
            pairs = [pair.split() for pair in numbers.split(", ")]
            axes.plot(
                [int(t) for t, _ in pairs], [float(us) for _, us in pairs], "o-", label=name, linewidth=1.2
            )
    axes.set(xscale="log", yscale="log", xlabel="points read", ylabel="CPU microseconds a point")
    axes.grid(True, which="major", linewidth=0.3)
    axes.legend(fontsize=8)
    save_figure(figure, out / "points-speed.svg")


def main() -> None:
    """All pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    out, curves = parser.parse_args().out, read()
    for d in sorted({dimension for dimension, _, _ in curves}):
        draw(d, curves, out)
    draw_speed(out)
    print(f"wrote {out}/points-*.svg")


if __name__ == "__main__":
    main()
