"""Questions about people in words.

::

    [CONDITION in] at least N of the last M
    [CONDITION in] at least N in a row of the last M
    [CONDITION in] at least N so far

A condition is about the columns of one report, such as ``status = 'late'``; where a report is yes or no it may be left
out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dpstream.core.errors import ConfigError
from dpstream.families.panel.queries import AtLeast, Consecutive, WindowQuery

_QUESTION = re.compile(
    r"(?:(?P<condition>.+?)\s+in\s+)?at\s+least\s+(?P<times>[0-9]{1,6})"
    r"(?:(?P<row>\s+in\s+a\s+row)?\s+of\s+the\s+last\s+(?P<width>[0-9]{1,6})|\s+so\s+far)",
    re.IGNORECASE | re.DOTALL,
)
_EXAMPLES = '"at least 2 of the last 3", "at least 2 in a row of the last 3", "at least 3 so far"'


def parse_question(
    text: str,
    codes_of: Callable[[str], tuple[int, ...]],
    default: tuple[int, ...] | None,
    *,
    so_far: int | None = None,
) -> WindowQuery:
    """The question as a query.

    Args:
        codes_of: reads a condition: the codes of the reports that satisfy it.
        default: those of a question without a condition; None where it has to say one.
        so_far: how many periods there were; None where only windows can be asked about.

    Errors:
        ConfigError: it cannot be read. Also those of ``codes_of``.

    >>> parse_question("at least 2 in a row of the last 3", lambda condition: (), (1,))
    Consecutive(times=2, width=3, values=(1,))
    """
    match = _QUESTION.fullmatch(" ".join(text.split()))
    if match is None:
        raise ConfigError(f"the question {text!r} cannot be read", where="panel", allowed=_EXAMPLES)
    values = default if match["condition"] is None else codes_of(match["condition"])
    if values is None:
        raise ConfigError(
            "the question does not say which reports it is about",
            where="panel",
            allowed="a condition first, such as: status = 'late' in at least 2 of the last 3",
        )
    width = so_far if match["width"] is None else int(match["width"])
    if width is None:
        raise ConfigError(
            "a window knows nothing of all periods so far", where="panel", allowed="the last M periods"
        )
    kind = Consecutive if match["row"] else AtLeast
    return kind(int(match["times"]), width, values)
