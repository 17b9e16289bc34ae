"""Charts of a page: the frame, the legend and the words in HTML; the lines as data for the page's script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.tools.report.markup import Html, element

__all__ = ["ChartLine", "Charts", "Unit", "spoken"]

#: Lines that can be told apart, by colour and by dashes (see report.css and report.js).
MOST_LINES = 5


@dataclass(frozen=True)
class Unit:
    """What an axis counts: ``records``, or a share that is shown in percents."""

    words: str
    share: bool = False

    def text(self, value: float) -> str:
        """A value for people.

        >>> Unit("rows").text(70120.0), Unit("share of rows", share=True).text(0.0312)
        ('70,120', '3.12 %')
        """
        if not math.isfinite(value):
            return "–"
        if self.share:
            return f"{100 * value:.3g} %" if abs(value) < 0.9995 else f"{100 * value:.0f} %"
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclass(frozen=True)
class ChartLine:
    """One curve; NaN leaves a gap. ``style`` fixes colour and dashes; ``truth`` is drawn thick and grey."""

    label: str
    values: NDArray[np.float64]
    style: int = 1
    truth: bool = False


@dataclass
class Charts:
    """Collects what the script draws. ``periods``: what the steps are called, where they have names."""

    periods: Mapping[int, str]
    specs: list[dict[str, Any]] = field(default_factory=list)

    def lines(
        self,
        title: str,
        steps: Sequence[int],
        lines: Sequence[ChartLine],
        unit: Unit,
        *,
        note: str | None = None,
        small: bool = False,
        from_zero: bool = True,
    ) -> Html:
        """A line chart over steps. Both axes name their unit; the values stand in a table behind it."""
        number = len(self.specs)
        self.specs.append(
            {
                "x": [int(step) for step in steps],
                "share": unit.share,
                "zero": from_zero,
                "small": small,
                "lines": [
                    {
                        "label": line.label,
                        "style": 0 if line.truth else line.style,
                        "values": _plain(line.values),
                    }
                    for line in lines
                ],
            }
        )
        described = "; ".join(spoken(line, steps, unit) for line in lines)
        plot = element("div", class_="plot", role="img", aria_label=f"{title}. {described}")
        at = element("li", element("output", class_="at"))
        legend = element("ul", at, [self._key(line) for line in lines], class_="legend")
        return element(
            "figure",
            element("figcaption", element("bdi", title)),
            element("p", f"↑ {unit.words}", class_="unit"),
            plot,
            element("p", "step →", class_="unit x"),
            legend,
            element("p", note, class_="note") if note else None,
            element("details", element("summary", "Values as a table"), element("div", class_="scroll")),
            class_="chart small" if small else "chart",
            data_chart=number,
            data_title=title,
        )

    @staticmethod
    def _key(line: ChartLine) -> Html:
        style = 0 if line.truth else line.style
        swatch = Html(
            f'<svg class="key s{style}" viewBox="0 0 30 8" aria-hidden="true"><path d="M1 4H29"/></svg>'
        )
        return element("li", swatch, element("bdi", line.label), element("output"))

    def as_json(self) -> dict[str, Any]:
        """For the page's data block."""
        return {"charts": self.specs, "periods": {str(k): v for k, v in self.periods.items()}}


def spoken(line: ChartLine, steps: Sequence[int], unit: Unit) -> str:
    """A curve in words, for who does not see it.

    >>> spoken(ChartLine("rows", np.array([10.0, 30.0, 20.0])), [1, 2, 3], Unit("rows"))
    'rows: 10 at step 1, 20 at step 3, between 10 and 30'
    """
    known = [
        (step, float(value)) for step, value in zip(steps, line.values, strict=True) if math.isfinite(value)
    ]
    if not known:
        return f"{line.label}: no value"
    (first, start), (last, end) = known[0], known[-1]
    low, high = min(v for _, v in known), max(v for _, v in known)
    if len(known) == 1:
        return f"{line.label}: {unit.text(start)} at step {first}"
    return (
        f"{line.label}: {unit.text(start)} at step {first}, {unit.text(end)} at step {last}, "
        f"between {unit.text(low)} and {unit.text(high)}"
    )


def _plain(values: NDArray[np.float64]) -> list[float | int | None]:
    """Four significant digits carry a chart; NaN becomes a gap."""
    plain: list[float | int | None] = []
    for value in values:
        number = float(value)
        if not math.isfinite(number):
            plain.append(None)
        elif number == int(number):
            plain.append(int(number))
        else:
            plain.append(float(f"{number:.4g}"))
    return plain
