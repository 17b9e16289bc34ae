"""What benchmarks share: a clock, memory, a process of its own, and how results are printed, written and drawn."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from made_by import write_result


def documented_parser(text: str | None) -> argparse.ArgumentParser:
    """A parser of arguments whose help is a module's text, line by line."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of this process, and what the work gave."""
    begin = time.process_time()
    given = work()
    return time.process_time() - begin, given


def peak() -> float:
    """The highest memory of this process so far, in MB. ``ru_maxrss`` would begin with that of its parent."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def fresh(work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function in a process of its own, whose memory and caches are its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def drawing() -> Any:
    """Matplotlib's pyplot, for SVG files that do not differ from run to run."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "dpstream"
    import matplotlib.pyplot as plt

    return plt


def open_frame(axes: Any) -> None:
    """Thin lines at the numbers of both axes, and no frame above and on the right."""
    axes.grid(True, which="major", linewidth=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def save_figure(figure: Any, path: Path, below: float = 0.0) -> None:
    """Write a figure as SVG, with room ``below`` for a legend, and close it."""
    figure.tight_layout(rect=(0, below, 1, 1))
    figure.savefig(path, metadata={"Date": None})
    drawing().close(figure)


def show_result(text: str, out: Path | None) -> None:
    """Print a result, and write it where that was asked for."""
    print(text, end="")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_result(out, text)
