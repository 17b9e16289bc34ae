"""The page of a stream of tables."""

from __future__ import annotations

from typing import Final

from dpstream.tools.evaluate.run_folder import Folder
from dpstream.tools.report import sections_error, sections_tables, sections_time
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of
from dpstream.tools.report.collect import collect
from dpstream.tools.report.markup import integer
from dpstream.tools.report.private_side import collect_truth
from dpstream.tools.report.sections_promise import tile

__all__ = ["TABLES"]


def _draw(folder: Folder, pairs: Pairs, private: bool) -> Page:
    if private and folder.config is not None:
        folder.config.table_recipe("report")
    run = collect(folder)
    chosen = sections_tables.chosen_pairs(run, pairs)
    truth = collect_truth(run, chosen) if private else None
    first, last = run.shown[0], run.shown[-1]
    charts = charts_of(run)
    sections = [
        ("releases", "Releases", sections_time.releases(run, truth, charts)),
        ("columns", "Columns", sections_tables.columns(run, truth)),
        ("pairs", "Pairs" if chosen else "", sections_tables.pairs(run, chosen, truth)),
        ("movement", "Over time", sections_time.movement(run, charts)),
        ("errors", "Error", sections_error.errors(run, truth, charts)),
        ("weak", "Weak spots", sections_error.weak(run, truth)),
    ]
    tiles = [
        tile("Rows in the last release", integer(last.rows), f"{last.counted}; first {integer(first.rows)}"),
        tile("Columns", integer(len(run.schema)), f"{integer(len(run.workload))} marginals asked for"),
    ]
    heat = sections_tables.heat_json(run, chosen, truth)
    return Page(run, sections, tiles, charts, tables=len(run.tables), heat=heat)


TABLES: Final = FamilyPage(_draw, pairs=True, private=True)
