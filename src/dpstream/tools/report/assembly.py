"""What a family brings to a page, and the frame that all share: sealed by a policy, with the same head and foot."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import dpstream
from dpstream.core.errors import ConfigError
from dpstream.stream.release.fitness import Fitness, fitness_of_step
from dpstream.tools.evaluate.label import LABEL
from dpstream.tools.evaluate.run_folder import Folder, Told
from dpstream.tools.report import sections_promise
from dpstream.tools.report.charts import Charts
from dpstream.tools.report.markup import Html, element, integer, raw, script_json

__all__ = ["REPORT_MARKER", "FamilyPage", "Page", "Pairs", "assemble", "charts_of"]

#: Stands near the top of every page: what may be replaced by a newer one.
REPORT_MARKER = "<!-- a report by dpstream -->"
_NO_SCRIPT = (
    "Lines and heat maps need JavaScript (nothing is loaded from anywhere); the rest of the page does not."
)


Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Page:
    """What is on a page beside its frame and the section on protection.

    Attributes:
        run: what the manifests tell.
        sections: name, title in the list of links (empty: no link) and content.
        tiles: numbers for the head.
        charts: those in the sections.
        tables: how many released tables were read.
        heat: data of heat maps, for the script.
    """

    run: Told
    sections: Sequence[tuple[str, str, Html | None]]
    tiles: Sequence[Html]
    charts: Charts
    tables: int = 0
    heat: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FamilyPage:
    """How a report shows the releases of a family.

    Attributes:
        draw: reads the public folder; and the private data where the last argument says so.
        pairs, private: whether chosen pairs of columns, and the private data, can be shown.
        refusal: why not, and what to use instead.
    """

    draw: Callable[[Folder, Pairs, bool], Page]
    pairs: bool = False
    private: bool = False
    refusal: tuple[str, str] = ("", "none")

    def page(self, folder: Folder, pairs: Pairs, *, private: bool) -> str:
        """The whole page as text.

        Errors:
            ConfigError: pairs or private data that cannot be shown. Others as of ``write_report``.
        """
        if (pairs and not self.pairs) or (private and not self.private):
            what, instead = self.refusal
            raise ConfigError(what, where="report", allowed=instead)
        if private and folder.config is None:
            raise ConfigError(
                "a folder of releases does not say where the private data are",
                where="private data",
                allowed="the run's configuration file",
            )
        fit = fitness_of_step(folder.releases, folder.manifest_of, folder.steps[-1])
        return assemble(self.draw(folder, pairs, private), private=private, fit=fit)


def charts_of(run: Told) -> Charts:
    """An empty collection of charts that calls steps by their periods."""
    return Charts({facts.step: facts.period.split("/")[0] for facts in run.shown if facts.period})


def assemble(made: Page, *, private: bool, fit: Fitness) -> str:
    """The whole page as text.

    Args:
        private: whether it holds private truth.
        fit: what the newest table is fit for.
    """
    run = made.run
    links = [("promise", "Protection"), *((name, title) for name, title, _ in made.sections if title)]
    body = [sections_promise.promise(run), *(content for _, _, content in made.sections)]
    data = {**made.charts.as_json(), "heat": made.heat}
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
        raw(REPORT_MARKER),
        head,
        element(
            "body",
            sections_promise.banner(run, private, fit.unfit),
            element(
                "div",
                sections_promise.header(run, private, made.tiles, fit.verdicts),
                element(
                    "nav",
                    [element("a", text, href=f"#{name}") for name, text in links],
                    aria_label="Sections",
                ),
                element("main", element("noscript", element("p", _NO_SCRIPT, class_="note")), body),
                _footer(run, made.tables, private),
                class_="page",
            ),
            element("script", script_json(data), type="application/json", id="data"),
            [element("script", raw(script)) for script in scripts],
            class_="private" if private else None,
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _footer(run: Told, tables: int, private: bool) -> Html:
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
