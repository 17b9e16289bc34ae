"""One page that lists streams and addresses. It loads nothing: no script, no font, nothing of another machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["page"]

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.4rem .6rem;"
    "border-bottom:1px solid #8886}code{overflow-wrap:anywhere}small{opacity:.8}"
)


def page(openapi: Mapping[str, Any], streams: Sequence[Mapping[str, Any]]) -> str:
    """The page, made of the OpenAPI document. Every text is escaped."""
    own = "".join(
        f'<tr><td><a href="v1/streams/{escape(one["name"])}">{escape(one["name"])}</a></td>'
        f"<td>{one['steps']}</td><td>{one['last_step'] or 'none yet'}</td></tr>"
        for one in streams
    )
    routes = "".join(
        f"<tr><td><code>{escape(path)}</code></td><td>{escape(told['get']['summary'])}{_parameters(told['get'])}</td></tr>"
        for path, told in openapi["paths"].items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dpstream releases</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>'
        f"<h1>dpstream releases</h1><p>{escape(openapi['info']['description'])}</p>"
        "<h2>Streams</h2><table><thead><tr><th>name</th><th>steps</th><th>newest</th></tr></thead>"
        f"<tbody>{own}</tbody></table>"
        '<h2>Addresses</h2><p>For programs: <a href="openapi.json">openapi.json</a>.</p>'
        f"<table><tbody>{routes}</tbody></table></body></html>\n"
    )


def _parameters(route: Mapping[str, Any]) -> str:
    told = [
        f"<br><small><code>?{escape(one['name'])}=</code> {escape(one.get('description', ''))}</small>"
        for one in route.get("parameters", ())
        if one["in"] == "query"
    ]
    return "".join(told)
