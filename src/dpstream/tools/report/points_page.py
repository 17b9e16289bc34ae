"""The page of a point stream."""

from __future__ import annotations

from dpstream.tools.report import sections_points, sections_promise
from dpstream.tools.report.assembly import assemble, charts_of
from dpstream.tools.report.markup import integer
from dpstream.tools.report.points_run import PointRun, PointTruth

__all__ = ["render_points"]

_SECTIONS = (
    ("promise", "Protection"),
    ("releases", "Releases"),
    ("where", "Maps"),
    ("partition", "Partition"),
    ("categories", "Categories"),
    ("errors", "Error"),
)


def render_points(run: PointRun, truth: PointTruth | None) -> str:
    """The page as text."""
    charts = charts_of(run)
    first, last = run.shown[0], run.shown[-1]
    view = run.view
    body = [
        sections_promise.promise(run),
        sections_points.releases(run, charts),
        sections_points.where(run, truth),
        sections_points.partition(run),
        sections_points.categories(run, truth),
        sections_points.limits(run, truth, charts),
    ]
    more = f"{integer(view.space.categories)} categories" if view.categorical else "no categories"
    tiles = [
        sections_promise.tile(
            "Points in the last release", integer(last.rows), f"a public number; first {integer(first.rows)}"
        ),
        sections_promise.tile("Coordinates", integer(len(view.coordinates)), more),
    ]
    missing = {"categories": not view.categorical, "partition": not run.tables}
    links = [entry for entry in _SECTIONS if not missing.get(entry[0])]
    return assemble(
        run,
        body,
        tiles=tiles,
        links=links,
        charts=charts,
        tables=len(run.tables),
        private=truth is not None,
    )
