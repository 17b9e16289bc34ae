"""The words of a plan: its facts in the blocks of templates, for screens, statements, manifests and pages.

A family keeps its words in ``words.j2`` beside its plans; what no family says otherwise is in ``words.j2`` here. A
template has the facts of ``StreamPlan.facts``, the plan's options as ``options``, and as ``plan`` what every plan has.
It chooses and joins words; numbers are computed in Python and come with a filter that formats them.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts import StreamPlan
from dpstream.core.errors import counted
from dpstream.core.privacy import Individual, InsertedRecord, PureDP, Record, User, amount_words
from dpstream.core.showing import templates

if TYPE_CHECKING:
    from jinja2 import Environment, Template

#: A table in words: texts, row by row; the first row has the headings.
Table = list[list[str]]

_NAME = "words.j2"
#: Stands for a bar within a cell of a table while the cells are told apart.
_BAR = "\ue000"


def words(plan: StreamPlan, block: str, **facts: Any) -> str:
    """One block as running text.

    Args:
        facts: what the block says besides plan and options; ``**plan.facts()`` for what is said before any data.
    """
    return _running(_of_plan(plan, block, facts))


def paragraphs(plan: StreamPlan, block: str, **facts: Any) -> list[str | Table]:
    """The paragraphs of a block, and its tables: those paragraphs whose lines begin with a bar."""
    return _paragraphs(_of_plan(plan, block, facts))


class Words:
    """The blocks of a file that says more than a plan does: screens, statements, drafts.

    A line of the file that ends with a backslash goes on in the next one.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def text(self, block: str, **facts: Any) -> str:
        """One block as running text."""
        return _running(self._rendered(block, facts))

    def paragraphs(self, block: str, **facts: Any) -> list[str | Table]:
        """As ``paragraphs`` of a plan."""
        return _paragraphs(self._rendered(block, facts))

    def lines(self, block: str, **facts: Any) -> list[str | Table]:
        """The lines of a block, blank ones too, and its tables: neighbouring lines that begin with a bar."""
        lines = list[str | Table]()
        rendered = self._rendered(block, facts).removesuffix("\n").split("\n")
        for is_table, group in groupby(rendered, key=lambda line: line.startswith("|")):
            neighbours = list(group)
            lines += [_cells(neighbours)] if is_table else map(_plain, neighbours)
        return lines

    def _rendered(self, block: str, facts: dict[str, Any]) -> str:
        template = _compiled(self._file)
        return "".join(template.blocks[block](template.new_context(facts)))


def _plain(line: str) -> str:
    return line.rstrip().replace(_BAR, "|")


def _running(text: str) -> str:
    return _plain(" ".join(line.strip(" ") for line in text.strip().split("\n")))


def _paragraphs(text: str) -> list[str | Table]:
    parts = re.split(r"\n(?:[ ]*\n)+[ ]*", text.strip())
    return [_cells(part.split("\n")) if part.startswith("|") else _running(part) for part in parts if part]


def _cells(lines: Iterable[str]) -> Table:
    rows = [line.strip().removeprefix("|").removesuffix("|").split("|") for line in lines]
    return [[_plain(cell.strip()) for cell in row] for row in rows]


def said(block: list[str | Table]) -> list[str]:
    """The paragraphs that are sentences."""
    return [text for text in block if isinstance(text, str)]


def sentence(text: str) -> str:
    """The words as a sentence: with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def shown_bytes(count: int) -> str:
    """A size for readers.

    >>> shown_bytes(1), shown_bytes(2_340_000)
    ('1 kB', '2.3 MB')
    """
    return f"{count / 1e6:.1f} MB" if count >= 10**6 else f"{max(1, round(count / 1e3))} kB"


def _columns(names: list[str], every: int, most: int | None) -> str:
    """Columns by their names; of more than ``most`` the first two and the last.

    >>> _columns(["a"], 3, 2), _columns(["a", "b"], 3, None), _columns(["a", "b", "c"], 3, 2)
    ("column 'a'", "columns 'a', 'b'", 'all 3 columns')
    >>> _columns(["a", "b", "c", "d"], 5, 3)
    "4 of 5 columns ('a', 'b', ..., 'd')"
    """
    if most is None or len(names) <= most:
        return f"column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"
    if len(names) == every:
        return f"all {every} columns"
    return f"{len(names)} of {every} columns ({names[0]!r}, {names[1]!r}, ..., {names[-1]!r})"


def _of_plan(plan: StreamPlan, block: str, facts: dict[str, Any]) -> str:
    templates = _templates(type(plan))
    context = templates[0].new_context({"options": plan.options(), **facts, "plan": about_plan(plan)})
    # A family's block comes before the usual one, which it reaches by super().
    context.blocks = {}
    for template in templates:
        for name, render in template.blocks.items():
            context.blocks.setdefault(name, []).append(render)
    return "".join(context.blocks[block][0](context))


@cache
def _templates(kind: type[StreamPlan]) -> tuple[Template, ...]:
    """Those beside the modules of the plan's classes, and the usual one."""
    classes = kind.__mro__[: kind.__mro__.index(StreamPlan)]
    folders = [Path(sys.modules[one.__module__].__file__ or "").parent for one in classes]
    files = [file for folder in dict.fromkeys(folders) if (file := folder / _NAME).is_file()]
    usual = Path(__file__).with_name(_NAME)
    return tuple(_compiled(file) for file in (*files, usual))


@cache
def _compiled(file: Path) -> Template:
    source = re.sub(r"\\\n *", "", file.read_text(encoding="utf-8"))
    return _environment().from_string(source)


@cache
def _environment() -> Environment:
    from markupsafe import Markup

    def in_one_line(value: Any) -> Any:
        """A value ends neither a paragraph nor a cell; what a block gives may. Nothing is escaped."""
        if hasattr(value, "__html__"):
            return value.strip()
        return Markup(re.sub(r"\s*\n\s*", " ", str(value)).replace("|", _BAR))

    # Escaping tells what blocks give from values.
    made = templates(finalize=in_one_line, autoescape=True)

    def beside(text: str, label: str, flag: str = "") -> Any:
        """A label, the text beside it, and at column 79 the flag that shows more."""
        lines = textwrap.wrap(text, 62 if flag else 86) or [""]
        first = f"{label:<14}{lines[0]:<65}{flag}".rstrip()
        return Markup("\n".join([first, *(f"{'':<14}{line}" for line in lines[1:])]))

    def hanging(text: str) -> Any:
        """Lines of 100 columns; all but the first are indented."""
        lines = textwrap.wrap(
            text, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        return Markup("\n".join(lines))

    made.filters |= {
        "beside": beside,
        "bytes": shown_bytes,
        "columns": _columns,
        "counted": counted,
        "digits": lambda value, most=4: "unknown" if value is None else f"{value:.{most}g}",
        "hanging": hanging,
        "initial": lambda text: text[:1].upper() + text[1:],
        "number": lambda text: f"{float(Fraction(text)):.4g}",
        "percent": lambda share: f"{100 * share:.3g} %",
        "quoted": repr,
        "short": "{:,.3g}".format,
        "tenths": "{:,.1f}".format,
        "whole": "{:,}".format,
    }
    return made


def about_plan(plan: StreamPlan) -> dict[str, Any]:
    """What every plan has, for templates."""
    unit, kinds = plan.unit, {Individual: "person", Record: "stay", InsertedRecord: "inserted", User: "user"}
    about: dict[str, Any] = {
        "kind": next((name for kind, name in kinds.items() if isinstance(unit, kind)), "event"),
        "words": unit.describe(),
        "relation": unit.relation,
        "returns": unit.returns if isinstance(unit, Record) else None,
    }
    if isinstance(unit, User):
        about |= {"max_events": unit.max_events, "each": str(unit.per_event(plan.budget))}
        about["per"] = None if unit.per is None else unit.per.name
        about["cut_share"] = str(unit.cut_share) if unit.cut_share else None
    return {
        "mechanism": plan.name,
        "columns": list(plan.domain.names),
        "budget": amount_words(plan.budget, plan.delta),
        "amount": "epsilon" if isinstance(plan.budget, PureDP) else "rho",
        "horizon": plan.horizon,
        "unit": about,
    }
