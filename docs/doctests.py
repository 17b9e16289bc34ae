"""Doctests on the pages of the API are code: Markdown would take their prompts for quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

#: A prompt, and all lines up to the next empty one, which has the indentation of the prompt or a larger one.
_DOCTEST = re.compile(r"^([ \t]*)>>> .*(?:\n\1.*\S.*)*", re.MULTILINE)


class FencedDoctests(griffe.Extension):
    """Puts fences around the doctests of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Of any object, once it is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = _DOCTEST.sub(r"\1```pycon\n\g<0>\n\1```", obj.docstring.value)
