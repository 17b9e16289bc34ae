"""An evaluation as pictures for notebooks and papers. Each has the label on it: they show private truth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from dpstream.core.errors import ConfigError
from dpstream.stream.release.pictures import INK, PALETTE, QUIET, WARNING, Picture, dress, figure, plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpstream.tools.evaluate.judgement import Judgement

Drawing = Literal["measures", "errors", "changes", "groups"]
_DRAWINGS: Final = ("measures", "errors", "changes", "groups")
#: Grey for what is real, colours for what is not; of the measures' marks.
_REAL: Final = "#8a8a8a"


def draw_evaluation(
    title: str, errors: Mapping[int, tuple[float, float]], judged: Judgement | None, what: Drawing
) -> Picture:
    """See ``Evaluation.plot``.

    Args:
        title: with the label.
        errors: mean and largest total variation, by step.
    """
    if what not in _DRAWINGS:
        raise ConfigError(f"there is no picture {what!r}", where="plot", allowed=", ".join(_DRAWINGS))
    if what == "errors":
        with figure(7.0, 3.6) as made:
            _errors(made.subplots(), errors)
            return _labelled(made, title)
    if (
        judged is None
        or (what == "changes" and not judged.trends.moved)
        or (what == "groups" and not judged.groups)
    ):
        raise ConfigError(
            "there is nothing to draw: the evaluation has found none of it",
            where=f"plot {what!r}",
            allowed="an evaluation with judged=True of tables that are not empty; for changes of two steps or more",
        )
    if what == "measures":
        with figure(7.0, 0.9 + 0.42 * len(judged.measures)) as made:
            _measures(made.subplots(), judged)
            return _labelled(made, title)
    if what == "groups":
        with figure(6.0, 3.6) as made:
            _groups(made.subplots(), judged)
            return _labelled(made, title)
    many = len(judged.trends.moved)
    rows = math.ceil(many / 2)
    with figure(7.0, 0.8 + 2.2 * rows) as made:
        axes = made.subplots(rows, 2 if many > 1 else 1, squeeze=False).ravel()
        for one in axes[many:]:
            one.set_visible(False)
        _changes(list(axes[:many]), judged)
        made.supxlabel("Grey, thick: true. Blue, thin: released.", x=0.01, ha="left", color=QUIET, fontsize=9)
        return _labelled(made, title)


def _labelled(made: Figure, title: str) -> Picture:
    made.suptitle(plain_text(title, 90), x=0.01, ha="left", color=WARNING, fontsize=10, fontweight="bold")
    return Picture(made, private=True)


def _measures(axes: Axes, judged: Judgement) -> None:
    """What is wrong, measure by measure, on one scale; the line begins at what two samples have."""
    places = np.arange(len(judged.measures))[::-1]
    for place, one in zip(places, judged.measures, strict=True):
        if math.isnan(one.value):
            axes.text(0.0, place, " not known", va="center", color=QUIET, fontsize=9)
            continue
        begin = 0.0 if math.isnan(one.floor) else one.floor
        axes.plot([begin, one.value], [place, place], color=PALETTE[0], linewidth=2, alpha=0.5, zorder=2)
        axes.plot(begin, place, "|", color=_REAL, markersize=14, markeredgewidth=2.5, zorder=3)
        if not math.isnan(one.ceiling):
            axes.plot(one.ceiling, place, "D", color=PALETTE[1], markersize=5, zorder=4)
        axes.plot(one.value, place, "o", color=PALETTE[0], markersize=7, zorder=5)
        axes.annotate(
            f"{one.text(one.value)}  {one.word}",
            (max(value for value in (one.value, begin, one.ceiling) if not math.isnan(value)), place),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=INK,
        )
    dress(axes, x="share that is wrong: ● released, ❘ two real samples, ◆ one offline run", y="")
    axes.set_yticks(places, [one.question for one in judged.measures])
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color="#ececec", linewidth=0.8, zorder=0)
    right = max(
        (v for m in judged.measures for v in (m.value, m.floor, m.ceiling) if not math.isnan(v)), default=0.1
    )
    axes.set_xlim(-0.01 * right, 1.35 * right if right > 0 else 0.1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")


def _errors(axes: Axes, errors: Mapping[int, tuple[float, float]]) -> None:
    steps = list(errors)
    for place, (name, colour) in enumerate((("mean", PALETTE[0]), ("largest", PALETTE[1]))):
        values = [one[place] for one in errors.values()]
        axes.plot(steps, values, "o-", color=colour, markersize=3.5, linewidth=1.6)
        if not math.isnan(values[-1]):
            axes.annotate(
                name, (steps[-1], values[-1]), xytext=(6, 0), textcoords="offset points", color=colour
            )
    dress(axes, x="step", y="share of the table", title="Total variation of the marginals")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")


def _groups(axes: Axes, judged: Judgement) -> None:
    sizes = [one.words for one in judged.groups]
    places = np.arange(len(sizes))
    real = {one.words: one.typical for one in judged.floor_groups}
    axes.bar(places - 0.2, [one.typical for one in judged.groups], 0.38, color=PALETTE[0])
    axes.bar(places + 0.2, [real.get(size, math.nan) for size in sizes], 0.38, color=_REAL)
    for place, one in zip(places, judged.groups, strict=True):
        axes.text(
            place - 0.2, one.typical, f"{100 * one.typical:.0f} %", ha="center", va="bottom", fontsize=8
        )
    dress(
        axes, x="true size of a group (blue: released; grey: two samples of real records)", y="typical error"
    )
    axes.set_xticks(places, sizes)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")


def _changes(axes: list[Axes], judged: Judgement) -> None:
    for one, moved in zip(axes, judged.trends.moved, strict=True):
        one.plot(judged.trends.steps, moved.true, color=_REAL, linewidth=3.5)
        one.plot(judged.trends.steps, moved.made, color=PALETTE[0], linewidth=1.4)
        dress(one, x="step", y="", title=plain_text(moved.name, 40))
        one.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
