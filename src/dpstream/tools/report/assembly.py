"""The frame that all pages share: sealed by a content-security policy, with the same head and foot."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import dpstream
from dpstream.tools.evaluate.label import LABEL
from dpstream.tools.report import sections_promise
from dpstream.tools.report.charts import Charts
from dpstream.tools.report.markup import Html, element, integer, raw, script_json
from dpstream.tools.report.sections_promise import Promised

__all__ = ["MARKER", "assemble", "charts_of"]

#: Stands near the top of every page: what may be replaced by a newer one.
MARKER = "<!-- a report by dpstream -->"
_NO_SCRIPT = (
    "Lines and heat maps need JavaScript (nothing is loaded from anywhere); the rest of the page does not."
)


def charts_of(run: Promised) -> Charts:
    """An empty collection of charts that calls steps by their periods."""
    return Charts({facts.step: facts.period.split("/")[0] for facts in run.shown if facts.period})


def assemble(
    run: Promised,
    body: Sequence[Html | None],
    *,
    tiles: Sequence[Html],
    links: Sequence[tuple[str, str]],
    charts: Charts,
    tables: int,
    private: bool,
    heat: dict[str, Any] | None = None,
) -> str:
    """The whole page as text.

    Args:
        body: the sections. links: their names and titles. tiles: numbers for the head.
        tables: how many released tables were read.
        private: whether the page holds private truth.
        heat: data of heat maps, for the script.
    """
    data = {**charts.as_json(), "heat": heat or {}}
    scripts = [_asset("uPlot.iife.min.js"), _asset("report.js")]
    title = f"{run.manifest['stream']}: dpstream report" + (f" ({LABEL})" if private else "")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="robots", content="noindex") if private else None,
        element("title", title),
        element("style", raw(_asset("uPlot.min.css") + _asset("report.css"))),
    )
    page = element(
        "html",
        raw(MARKER),
        head,
        element(
            "body",
            sections_promise.banner(run, private),
            element(
                "div",
                sections_promise.header(run, private, tiles),
                element(
                    "nav",
                    [element("a", text, href=f"#{name}") for name, text in links],
                    aria_label="Sections",
                ),
                element("main", element("noscript", element("p", _NO_SCRIPT, class_="note")), body),
                _footer(run, tables, private),
                class_="page",
            ),
            element("script", script_json(data), type="application/json", id="data"),
            [element("script", raw(script)) for script in scripts],
            class_="private" if private else None,
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _footer(run: Promised, tables: int, private: bool) -> Html:
    program = run.manifest["program"]
    read = f"{integer(len(run.shown))} manifests and {integer(tables)} tables"
    texts = [
        f"Made by dpstream {dpstream.__version__} from releases of {program['name']} {program['version']}. "
        f"{read} were read; all of them match their published hashes.",
        f"This page holds private truth: {LABEL}."
        if private
        else "Every number on this page is computed from the releases and from public declarations.",
        "The page loads nothing. Charts are drawn by uPlot, whose licence stands in the source of the page.",
    ]
    licence = _asset("THIRD_PARTY.txt")
    return element("footer", [element("p", text) for text in texts], raw(f"<!--\n{licence}-->"))


def _policy(scripts: Sequence[str]) -> str:
    """No network at all, and no script but the page's own: each is named by its hash."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")
