"""The section on time of a report: measurements and their intervals, and "higher" only where the page can know it."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_pages import Page
from small_streams import small_stream

import dpstream as dp
from dpstream.core.privacy import Randomness
from dpstream.io.sinks import released_schema
from dpstream.stream import measured_counts, public_release
from dpstream.stream.measured_counts import Compared, compared, headlines, published_counts
from dpstream.stream.public_release import PublicRelease
from dpstream.tools.evaluate.run_folder import released_codes
from dpstream.tools.folder.explaining import page_facts
from dpstream.tools.report import table_page, time_page, write_report

PLACES = ["north", "south", "east"]
PERIODS = 5


def rows(week: int) -> dict[str, list[object]]:
    """North stays as it is, south grows by far, and east falls."""
    counts = {"north": 300, "south": 50 + 40 * week, "east": 600 - 45 * week}
    places = [place for place, many in counts.items() for _ in range(many)]
    return {"place": places, "paid": [i % 2 == 0 for i in range(len(places))]}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> PublicRelease:
    """Ten weeks, measured every two."""
    folder = tmp_path_factory.mktemp("time")
    schema = dp.Schema([dp.Categorical("place", PLACES), dp.Boolean("paid")])
    accuracy = {"headline": ["place"], "periods": "2 steps"}
    how = {"accuracy": accuracy, "randomness": Randomness.seeded(5)}
    with dp.open(folder, schema, epsilon=1, deletions=False, **how) as stream:
        for week in range(2 * PERIODS):
            first = datetime.date(2026, 2, 2) + datetime.timedelta(weeks=week)
            stream.step(rows(week), first.isoformat(), f"{first}/{first + datetime.timedelta(days=6)}")
    return dp.read(folder / "releases")


@pytest.fixture(scope="module")
def page(release: PublicRelease) -> Page:
    return Page(write_report(release.folder, Path(release.folder) / "page.html"))


def cells(page: Page) -> dict[str, list[str]]:
    """The table of changes, by its rows' headings."""
    (table,) = re.findall('<table class="plain sortable">(.*?)</table>', page.text, re.DOTALL)
    found = re.findall("<tr>(<th scope=.row.*?)</tr>", table, re.DOTALL)
    texts = [[re.sub("<[^>]+>", "", cell) for cell in re.split("(?=<td)", row)] for row in found]
    return {first: rest for first, *rest in texts}


def test_verdicts_hold_together_on_the_whole_page(release: PublicRelease, page: Page) -> None:
    """Three places and the number of records are four comparisons of one page."""
    change = release.change(["place"], earlier=(7, 8), later=(9, 10), events="came")
    table = cells(page)
    directions = dict(zip(PLACES, change.direction(1 - 0.05 * 3 / 4).tolist(), strict=True))
    assert directions == {"north": 0, "south": 1, "east": -1}
    low, high = change.daily.interval(1 - 0.05 / 4)
    width = round(14 * (high - low)[0] / 2)
    assert table["north"][-1] == f"no difference can be seen (± {width} a period)"
    assert table["south"][-1] == "higher than last period"
    assert table["east"][-1] == "lower than last period"
    later = dict(zip(PLACES, change.later.values.tolist(), strict=True))
    assert {place: int(row[0]) for place, row in table.items()} == {p: round(v) for p, v in later.items()}
    assert "of 20 such pages about one may hold a wrong comparison" in page.words


def test_the_folder_and_the_report_compare_whole_periods_that_follow_each_other(
    release: PublicRelease, page: Page
) -> None:
    """Controls: a period before the last one that was withdrawn, and a last one that is cut."""
    counts, _, flowing = published_counts(release)
    facts = page_facts(release, counts, flowing)
    verdicts = {row["name"]: row["seen"] for row in facts["changes"] if row["column"] == "place"}
    words = {1: "higher than last period", -1: "lower than last period"}
    assert verdicts == {"north": 0, "south": 1, "east": -1}
    for row in facts["changes"]:
        if row["column"] == "place":
            said = f"no difference can be seen (± {round(14 * row['width'])} a period)"
            assert cells(page)[row["name"]][-1] == words.get(row["seen"], said)
            later = release.flow(["place"], 9, 10, events="came").values[PLACES.index(row["name"])]
            assert row["last"] == later / 14
    place = next(one for one in flowing if one.columns == ("place",))

    def spans(**changes: object) -> list[tuple[int, int]]:
        series = replace(place.flows["came"], **changes)
        found: list[Compared] = compared(release, [replace(place, flows={"came": series})])[0]
        return [(span.first, span.last) for one in found for span in one.spans]

    came = place.flows["came"]
    assert spans() == [(7, 8), (9, 10)]
    assert spans(why=(*came.why[:-2], "withdrawn", "")) == []
    cut = replace(came.spans[-1], last=9, last_day=came.spans[-1].first_day + datetime.timedelta(days=6))
    assert spans(spans=(*came.spans[:-1], cut)) == [(5, 6), (7, 8)]


def test_bars_and_lines_are_measurements(release: PublicRelease, page: Page) -> None:
    came = release.series(["place"], events="came")
    spec = page.spec("Came: south")
    assert spec["names"][-1] == "to 12 Apr 2026"
    low, high = came.flows[-1].interval()
    assert spec["lines"][0]["values"] == pytest.approx([own.values[1] for own in came.flows], rel=1e-3)
    assert spec["lines"][0]["width"][-1] == pytest.approx((high - low)[1] / 2, rel=1e-3)
    lines = page.chart("place: number of records")
    for i, step in enumerate(lines.pop("x")):
        stock = release.measured(["place"], as_of=step)
        assert {place: line[i] for place, line in lines.items()} == pytest.approx(
            dict(zip(PLACES, stock.values.tolist(), strict=True)), rel=1e-3
        )


def test_steps_have_dates_also_where_the_page_does_not_read_them(release: PublicRelease) -> None:
    """Of three steps the page reads 1, 5 or 6, and 10; numbers are measured at the ends of periods."""
    page = Page(write_report(release.folder, Path(release.folder) / "page.html", most_steps=3))
    assert page.chart("place: number of records")["x"] == [2, 6, 10]
    assert '"2":"15 Feb 2026"' in page.text.replace('": "', '":"')


def test_nothing_is_the_difference_of_two_tables(
    release: PublicRelease, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The section is made without a table, and the page reads the last one only."""
    read = list[int]()
    monkeypatch.setattr(table_page, "released_codes", lambda schema, place, step: read.append(step) or whole)
    whole = released_codes(released_schema(release.folder, release.manifest()), release.folder, 10)
    monkeypatch.setattr(public_release, "read_table", None)
    again = Page(write_report(release.folder, Path(release.folder) / "page.html"))
    assert read == [10]
    section = re.compile('<section id="time">.*?</section>', re.DOTALL)
    assert section.findall(again.text) == section.findall(page.text) != []
    assert not re.search("What moved|What changed", page.words)


def test_a_page_compares_so_many_cells_at_most(
    release: PublicRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_counts, "MAX_COMPARISONS", 2)
    page = Page(write_report(release.folder, Path(release.folder) / "page.html"))
    assert "Too many values for this page: place." in page.words
    assert re.search("(higher|lower) than|no difference can be seen", page.words)  # of the number of records


def test_a_panel_has_bars_of_who_changed(tmp_path: Path) -> None:
    with small_stream(tmp_path, "panel", 5):
        pass
    release = dp.read(tmp_path / "releases")
    assert release.measured(["poor"]) is None
    assert "no table of records" in release.missing(["poor"]).reason
    page = Page(write_report(release.folder, tmp_path / "page.html"))
    came = release.series(["poor"], events="came")
    spec = page.spec("Changed to: true")
    assert spec["lines"][0]["values"] == pytest.approx([own.values[1] for own in came.flows], rel=1e-3)
    assert "people who changed to the value in" in page.words


def test_between_two_censuses_a_page_says_what_came_and_left(tmp_path: Path) -> None:
    with small_stream(tmp_path, "keyed", 8, mechanism={"name": "census", "turnover": 4}):
        pass
    release = dp.read(tmp_path / "releases")
    (numbers,) = [own for own in headlines(release) if not own.columns]
    (earlier, first), (later, last) = numbers.known[-2:]
    told = time_page._between(release, numbers)
    assert [one["verb"] for one in told] == ["came", "left"]
    assert {one["span"] for one in told} == {str(release.flow((), earlier + 1, later).span)}
    assert told[0]["count"] - told[1]["count"] == pytest.approx(last.values.item() - first.values.item())
    assert min(one["width"] for one in told) > 0.0
