"""The page of a stream of tables."""

from __future__ import annotations

from functools import partial
from typing import Final

from dpstream.tools.evaluate.run_folder import Folder
from dpstream.tools.report import sections_error, sections_tables, sections_time
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of
from dpstream.tools.report.collect import collect
from dpstream.tools.report.known_errors import measured_words
from dpstream.tools.report.markup import integer


def _draw(folder: Folder, pairs: Pairs) -> Page:
    run = collect(folder)
    chosen = sections_tables.chosen_pairs(run, pairs)
    charts = charts_of(run)
    dates = charts.dates
    news = sections_tables.changed(run, dates)
    sections = [
        ("releases", "Over time", sections_time.releases(run, charts)),
        ("columns", "Columns", sections_tables.columns(run, dates)),
        ("pairs", "Pairs" if chosen else "", sections_tables.pairs(run, chosen)),
        ("changed", "What changed" if news else "", news),
        ("weak", "Weak spots", sections_error.weak(run, dates)),
        ("errors", "Errors", sections_error.errors(run, charts)),
    ]
    what = f"{integer(run.shown[-1].rows)} invented records with {integer(len(run.schema))} columns"
    heat = sections_tables.heat_json(run, chosen)
    return Page(
        run,
        sections,
        what,
        charts,
        tables=len(run.tables),
        heat=heat,
        measured=partial(measured_words, run, dates),
        columns=len(run.schema),
    )


TABLES_PAGE: Final = FamilyPage(_draw, pairs=True)
