"""The page of a point stream."""

from __future__ import annotations

from typing import Final

from dpstream.tools.evaluate.run_folder import Folder
from dpstream.tools.families.points import sections_points
from dpstream.tools.families.points.point_releases import collect_point_truth, collect_points
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of
from dpstream.tools.report.markup import integer


def _draw(folder: Folder, pairs: Pairs, private: bool) -> Page:
    run = collect_points(folder)
    truth = collect_point_truth(run) if private else None
    charts, view = charts_of(run), run.view
    last = run.shown[-1]
    dates = charts.dates
    sections = [
        ("where", "Maps", sections_points.where(run, truth, dates)),
        ("releases", "Over time", sections_points.releases(run, charts)),
        (
            "categories",
            "Categories" if view.categorical else "",
            sections_points.categories(run, truth, dates),
        ),
        ("partition", "Partition" if run.tables else "", sections_points.partition(run, dates)),
        ("errors", "Errors", sections_points.limits(run, truth, charts)),
    ]
    more = f" in {integer(view.space.categories)} categories" if view.categorical else ""
    what = f"{integer(last.rows)} invented points with {integer(len(view.coordinates))} coordinates{more}"
    return Page(run, sections, what, charts, tables=len(run.tables))


POINTS_PAGE: Final = FamilyPage(
    _draw, private=True, refusal=("all pairs of coordinates are drawn, and heat maps are for tables", "none")
)
