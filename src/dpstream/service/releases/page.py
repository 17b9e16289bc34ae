"""One page that lists streams and addresses. It loads nothing: no script, no font, nothing of another machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_STYLE = (
    # On the root: the ground of the page and its links are of one scheme then.
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.4rem .6rem;"
    "border-bottom:1px solid #8886}code{overflow-wrap:break-word}small{opacity:.8}"
)


def page(openapi: Mapping[str, Any], streams: Sequence[Mapping[str, Any]]) -> str:
    """The page, made of the OpenAPI document. Every text is escaped."""
    own = "".join(
        f'<tr><td><a href="v1/streams/{escape(one["name"])}">{escape(one["name"])}</a></td>'
        f"<td>{one['steps']}</td><td>{one['last_table'] or 'none'}</td></tr>"
        for one in streams
    )
    routes = "".join(
        f"<tr><td>{_code(path)}</td><td>{_words(told['get']['summary'])}{_parameters(told['get'])}</td></tr>"
        for path, told in openapi["paths"].items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dpstream releases</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>'
        f"<h1>dpstream releases</h1><p>{escape(openapi['info']['description'])}</p>"
        "<h2>Streams</h2><table><thead><tr><th>name</th><th>steps</th><th>newest table</th></tr></thead>"
        f"<tbody>{own}</tbody></table>"
        '<h2>Addresses</h2><p>For programs: <a href="openapi.json">openapi.json</a>.</p>'
        f"<table><tbody>{routes}</tbody></table></body></html>\n"
    )


def _code(text: str) -> str:
    """An address, which may be broken before a slash only."""
    return f"<code>{escape(text).replace('/', '<wbr>/')}</code>"


def _words(text: str) -> str:
    """A sentence; what stands between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _parameters(route: Mapping[str, Any]) -> str:
    told = [
        f"<br><small><code>?{escape(one['name'])}=</code> {_words(one.get('description', ''))}</small>"
        for one in route.get("parameters", ())
        if one["in"] == "query"
    ]
    return "".join(told)
