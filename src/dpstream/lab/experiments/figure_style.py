"""The common style of all figures: colours that everybody can distinguish, quiet axes, a unit on each axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from dpstream.core.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["INK", "PALETTE", "QUIET", "WARNING", "dress", "figure"]

INK: Final = "#222222"
QUIET: Final = "#6a6a6a"
WARNING: Final = "#a63603"
#: Okabe and Ito's colours without yellow, which is hard to see on white. The first is for synthetic data.
PALETTE: Final[Sequence[str]] = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")


@contextmanager
def figure(width: float, height: float) -> Iterator[Figure]:
    """A figure of ``width`` by ``height`` inches in the common style, without a window and without global state.

    Errors:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "matplotlib is not installed", where="figures", allowed="pip install 'dpstream[evaluate]'"
        ) from None
    with rc_context({"font.family": "DejaVu Sans", "font.size": 10, "axes.titlesize": 11}):
        made = Figure(figsize=(width, height), dpi=150, facecolor="white", layout="constrained")
        FigureCanvasAgg(made)
        yield made


def dress(axes: Axes, *, x: str, y: str, title: str = "") -> None:
    """Set the labels and the title, and draw a light grid and no box."""
    axes.set_xlabel(x, color=QUIET)
    axes.set_ylabel(y, color=QUIET)
    if title:
        axes.set_title(title, loc="left", color=INK, fontweight="bold")
    axes.grid(axis="y", color="#ececec", linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")
    axes.tick_params(length=0, colors=QUIET, labelsize=9)
