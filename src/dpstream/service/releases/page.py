"""One page that lists streams and addresses. It loads nothing: no script, no font, nothing of another machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup, escape


def page(openapi: Mapping[str, Any], streams: Sequence[Mapping[str, Any]]) -> str:
    """The page, made of the OpenAPI document. Every text is escaped."""
    return _template().render(openapi=openapi, streams=streams)


@cache
def _template() -> jinja2.Template:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("dpstream.service.releases", ""), autoescape=True, trim_blocks=True
    )
    made.filters |= {"address": _address, "words": _words}
    return made.get_template("page.html")


def _address(text: str) -> Markup:
    """As code, which may be broken before a slash only."""
    return Markup("<code>{}</code>").format(Markup("<wbr>/").join(text.split("/")))


def _words(text: str) -> Markup:
    """A sentence; what stands between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))
