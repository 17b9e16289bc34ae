"""The page of any stream whose family brings none: what manifests, catalogue and codebook say."""

from __future__ import annotations

from typing import Final

from dpstream.io.sinks import released_schema
from dpstream.tools.evaluate.run_folder import Folder, PublishedRun
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of
from dpstream.tools.report.markup import Html, element, integer, table
from dpstream.tools.report.sections_time import rows_over_time, states


def _draw(folder: Folder, pairs: Pairs) -> Page:
    run = PublishedRun(folder.manifest, folder.states, folder.facts())
    schema = released_schema(folder.releases, run.manifest)
    charts = charts_of(run)
    columns = [[column.name, integer(column.size)] for column in schema.columns]
    codebook = table(["column", "values or bins"], columns, caption="From the codebook")
    sections = [
        _section("releases", "Releases", "The releases", states(run.states), rows_over_time(run, charts)),
        _section("columns", "Columns", "The columns", codebook),
        _section("errors", "Error", "How wrong it can be", element("p", _words(run))),
    ]
    what = f"{integer(run.shown[-1].rows)} invented records with {integer(len(schema))} columns"
    return Page(run, sections, what, charts)


def _section(name: str, link: str, title: str, *content: Html) -> tuple[str, str, Html]:
    return name, link, element("section", element("h2", title), *content, id=name)


def _words(run: PublishedRun) -> str:
    accuracy = run.shown[-1].accuracy
    return "The manifest does not say how wrong the release may be." if accuracy is None else accuracy.words


PLAIN_PAGE: Final = FamilyPage(
    _draw,
    refusal=(
        "the page of this stream is made of manifests: it has no heat maps",
        "dpstream evaluate, which compares the released tables with the private one",
    ),
)
