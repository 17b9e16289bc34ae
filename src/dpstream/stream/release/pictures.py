"""The common style of all figures: colours that everybody can distinguish, quiet axes, a unit on each axis.

matplotlib is imported when a figure is made (``pip install 'dpstream[plot]'``), never pyplot: without window or
global state.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dpstream.core import durable
from dpstream.core.errors import ConfigError
from dpstream.core.foreign import from_extra
from dpstream.core.showing import shown
from dpstream.stream.store.store_database import file_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


INK: Final = "#222222"
QUIET: Final = "#6a6a6a"
WARNING: Final = "#a63603"
#: Okabe and Ito's colours without yellow, which is hard to see on white. The first is for synthetic data.
PALETTE: Final[Sequence[str]] = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")

#: Text stays text in vector files, so that it can be searched and set in another font.
_STYLE: Final[dict[str, Any]] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "dpstream",
}
#: Formats of files, and what is written into them besides the drawing: no date, so that equal pictures are equal files.
_FORMATS: Final[dict[str, dict[str, None]]] = {
    ".pdf": {"CreationDate": None},
    ".svg": {"Date": None},
    ".eps": {},
    ".png": {},
}


@dataclass(frozen=True, eq=False)
class Picture:
    """A finished figure. A notebook shows it as a vector drawing.

    Attributes:
        figure: matplotlib's own, for whoever wants to change it.
        private: whether it shows private truth; its file is then the owner's alone (mode 0600).
    """

    figure: Figure = field(repr=False)
    private: bool = False

    def save(self, path: str | Path) -> Path:
        """Write it to a file of the format that the name says: ``.pdf``, ``.svg``, ``.eps`` (vectors) or ``.png``.

        Errors:
            ConfigError: a name of another format. StoreError: a place that cannot be written.
        """
        out = Path(path)
        kind = out.suffix.lower()
        if kind not in _FORMATS:
            raise ConfigError(
                f"unknown format of a picture: {out.name!r}", where="save", allowed=", ".join(_FORMATS)
            )
        with file_errors("the picture could not be written", out):
            durable.replace_file(out, self._bytes(kind[1:]), mode=0o600 if self.private else 0o644)
        return out

    def _repr_svg_(self) -> str:
        return self._bytes("svg").decode("utf-8")

    def _bytes(self, kind: str) -> bytes:
        from matplotlib import rc_context

        held = io.BytesIO()
        with rc_context(_STYLE):
            self.figure.savefig(held, format=kind, metadata=_FORMATS[f".{kind}"])
        return held.getvalue()


@contextmanager
def figure(width: float, height: float) -> Iterator[Figure]:
    """A figure of ``width`` by ``height`` inches in the common style.

    Errors:
        ConfigError: matplotlib is not installed.
    """
    with from_extra("plot", "figures"):
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    with rc_context(_STYLE):
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


def plain_text(text: str, most: int = 24) -> str:
    """A label from data, shortened, in which nothing is taken for a formula.

    >>> plain_text("more than $100", 12)
    'more than \\\\$…'
    """
    cut = shown(text)
    cut = cut if len(cut) <= most else f"{cut[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
    return cut.replace("$", r"\$")
