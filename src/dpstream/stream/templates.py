"""The words of a plan: its facts in the blocks of templates, for screens, statements, manifests and pages.

A family keeps its words in ``words.j2`` beside its plans; what no family says otherwise is in ``words.j2`` here. A
template has the facts of ``StreamPlan.facts``, the plan's options as ``options``, and as ``plan`` what every plan has.
It chooses and joins words; numbers are computed in Python and come with a filter that formats them.
"""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts import StreamPlan
from dpstream.core.errors import counted
from dpstream.core.privacy.budget import PureDP
from dpstream.core.privacy.unit import Individual, InsertedRecord, Record, User

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
    return " ".join(_rendered(plan, block, facts).split("\n")).replace(_BAR, "|").strip()


def paragraphs(plan: StreamPlan, block: str, **facts: Any) -> list[str | Table]:
    """The paragraphs of a block, and its tables: those paragraphs whose lines begin with a bar."""
    found = list[str | Table]()
    for text in re.split(r"\n(?:[ ]*\n)+", _rendered(plan, block, facts)):
        if text.startswith("|"):
            cells = [line.removeprefix("|").removesuffix("|").split("|") for line in text.split("\n")]
            found.append([[cell.strip().replace(_BAR, "|") for cell in row] for row in cells])
        elif text:
            found.append(" ".join(text.split("\n")).replace(_BAR, "|"))
    return found


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


def _rendered(plan: StreamPlan, block: str, facts: dict[str, Any]) -> str:
    templates = _templates(type(plan))
    context = templates[0].new_context({"options": plan.options(), **facts, "plan": _of_every_plan(plan)})
    # A family's block comes before the usual one, which it reaches by super().
    context.blocks = {}
    for template in templates:
        for name, render in template.blocks.items():
            context.blocks.setdefault(name, []).append(render)
    text = "".join(context.blocks[block][0](context))
    return "\n".join(line.strip(" ") for line in text.strip().split("\n"))


@cache
def _templates(kind: type[StreamPlan]) -> tuple[Template, ...]:
    """Those beside the modules of the plan's classes, and the usual one."""
    classes = kind.__mro__[: kind.__mro__.index(StreamPlan)]
    folders = [Path(sys.modules[one.__module__].__file__ or "").parent for one in classes]
    files = [file for folder in dict.fromkeys(folders) if (file := folder / _NAME).is_file()]
    usual = Path(__file__).with_name(_NAME)
    return tuple(_environment().from_string(file.read_text(encoding="utf-8")) for file in (*files, usual))


@cache
def _environment() -> Environment:
    import jinja2
    from markupsafe import Markup

    def in_one_line(value: Any) -> Any:
        """A value ends neither a paragraph nor a cell; what a block gives may. Nothing is escaped: it is no HTML."""
        if hasattr(value, "__html__"):
            return value.strip()
        return Markup(re.sub(r"\s*\n\s*", " ", str(value)).replace("|", _BAR))

    made = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=in_one_line,
        # Tells what blocks give from values.
        autoescape=True,
    )
    made.filters |= {
        "bytes": shown_bytes,
        "columns": _columns,
        "counted": counted,
        "digits": lambda value, most=4: "unknown" if value is None else f"{value:.{most}g}",
        "initial": lambda text: text[:1].upper() + text[1:],
        "number": lambda text: f"{float(Fraction(text)):.4g}",
        "quoted": repr,
        "whole": "{:,}".format,
    }
    return made


def _of_every_plan(plan: StreamPlan) -> dict[str, Any]:
    unit, kinds = plan.unit, {Individual: "person", Record: "stay", InsertedRecord: "inserted", User: "user"}
    about: dict[str, Any] = {
        "kind": next((name for kind, name in kinds.items() if isinstance(unit, kind)), "event"),
        "words": unit.describe(),
        "relation": unit.relation,
        "returns": unit.returns if isinstance(unit, Record) else None,
    }
    if isinstance(unit, User):
        about |= {"max_events": unit.max_events, "each": str(unit.per_event(plan.budget))}
    return {
        "mechanism": plan.name,
        "columns": list(plan.domain.names),
        "budget": str(plan.budget),
        "amount": "epsilon" if isinstance(plan.budget, PureDP) else "rho",
        "horizon": plan.horizon,
        "unit": about,
    }
