"""Reports in a real browser: every chart is drawn, nothing is loaded, nothing overflows, no label becomes code."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from math import inf
from pathlib import Path
from urllib.parse import unquote

import pytest
from chromium import PROGRAM, Browser
from cli_stream import dpstream, make
from report_pages import Page, classifier, simulated
from small_configs import PUBLIC, rewrite, write_config, write_rows

from dpstream.tools.audit import AuditFinding, AuditReport
from dpstream.tools.audit.audit_page import audit_html
from dpstream.tools.report import write_report

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")

#: Ends a script, an attribute, a comment; writes from right to left; is wide, long, and not in the BMP.
HOSTILE = [
    "</script><script>document.documentElement.setAttribute('data-owned','1')</script>",
    "\"'><img src=x onerror=\"document.documentElement.setAttribute('data-owned','2')\">",
    "<!--<script>",
    "مرحبا",
    "日本語😀&amp;\u2028end",
    "w" * 150,
]

#: Shows the page in a frame of a phone's width and writes down what came of it. The frame has this page's origin,
#: so that it may be looked into.
FRAME = (Path(__file__).parent / "browser_frame.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


def look(browser: Browser, page: Path, *, width: int = 360, dark: bool = False) -> dict[str, object]:
    """What a browser makes of a page."""
    frame = page.with_name("frame.html")
    text = html.escape(page.read_text(encoding="utf-8"))
    frame.write_text(FRAME.replace("@WIDTH@", str(width)).replace("@PAGE@", text), encoding="utf-8")
    browser.size(max(width, 600), dark=dark)
    browser.go(frame.as_uri())
    browser.until("document.documentElement.dataset.facts !== undefined")
    facts: dict[str, object] = json.loads(unquote(browser.script("document.documentElement.dataset.facts")))
    return facts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose name and labels do their worst."""
    folder = tmp_path_factory.mktemp("browser")
    values = json.dumps(HOSTILE, ensure_ascii=False)
    columns = (
        f'[schema.columns."</script><b>zip"]\ntype = "categorical"\nvalues = {values}\n'
        '[schema.columns.age]\ntype = "integer"\nmin = 0\nmax = 30\n'
        '[schema.columns.paid]\ntype = "boolean"\n'
    )
    config = make(folder / "s", 5, columns=columns)
    name = json.dumps("</title><script>alert(1)</script> \"&'")
    # Noise must not hide a label: the page draws the pairs that the release shows.
    rewrite(config, 'name = "test"', f"name = {name}", 'epsilon = "1"', 'epsilon = "100"')
    for step in range(1, 6):
        rows = "".join(
            f'{step},"{HOSTILE[i % 6].replace(chr(34), chr(34) * 2)}",{i % 31},{"true" if i % 3 else "false"}\n'
            for i in range(60)
        )
        path = folder / "s" / "data" / f"{step:03d}.csv"
        path.write_text(f"step,</script><b>zip,age,paid\n{rows}", encoding="utf-8")
    dpstream("run", config)
    return folder / "s"


def fits(facts: dict[str, object], page: Path) -> None:
    """Nothing became code, broke or ran over, and every chart is drawn, with a table behind it."""
    read = Page(page)
    charts = read.data["charts"] if len(read.scripts) > 1 else []
    assert "owned" not in facts
    assert facts.get("errors", "") == "", "a page without scripts has none"
    assert facts["faint"] == facts["unnamed"] == facts["wide"] == []
    assert facts["scroll"] == facts["client"]
    assert facts["figures"] == facts["inked"] == facts["read"] == len(charts)
    shown = [int(str(data["data-chart"])) for _, data in read.attributes if "data-chart" in data]
    assert facts["rows"] == [len(charts[number]["x"]) for number in shown]
    assert facts.get("ready") == ("true" if charts else None)


def test_hostile_labels_stay_labels(browser: Browser, folder: Path, tmp_path: Path) -> None:
    page = write_report(folder / "dpstream.toml", tmp_path / "r.html")
    read = Page(page)
    assert len(read.scripts) == 2
    assert len(read.data["charts"]) >= 2
    assert HOSTILE[0] in read.words
    facts = look(browser, page)
    fits(facts, page)
    assert str(facts["title"]).startswith("</title><script>alert(1)</script> \"&'")
    assert any("</script><b>zip" in option for option in facts["options"])  # type: ignore[attr-defined]
    assert set(HOSTILE) <= set(facts["labels"])  # type: ignore[call-overload]
    assert int(str(facts["cells"])) > 4
    assert facts["frame"] == 360


def test_the_page_of_a_folder_has_two_screens_and_a_keyboard(browser: Browser, folder: Path) -> None:
    """On a telephone of 390 by 844 points; labels that do their worst stay labels, and nothing is loaded."""
    page = folder / "releases" / "index.html"
    assert page.stat().st_size < 300_000
    browser.size(390, 844)
    browser.asked.clear()
    browser.complaints.clear()
    browser.go(page.as_uri())
    assert (browser.asked, browser.complaints) == ([page.as_uri()], [])
    facts = browser.look()
    assert [facts[name] for name in ("faint", "unnamed", "wide", "owned")] == [[], [], [], ""]
    assert facts["scroll"] == facts["client"] == 390
    assert browser.script("document.documentElement.scrollHeight") <= 2 * 844
    reached = list[str]()
    for _ in range(20):  # first the headings of the table of changes
        browser.press("Tab", 9)
        reached.append(browser.script("document.activeElement.id || document.activeElement.className"))
    first = reached.index("column")
    assert reached[0] == "scroll"
    assert reached[first : first + 4] == ["column", "kind", "value", "scroll"]
    browser.script("document.getElementById('column').focus()")
    before = browser.script("document.getElementById('rows').innerText")
    browser.press("ArrowDown", 40)
    assert browser.script("document.getElementById('column').selectedIndex") == 1
    assert browser.script("document.getElementById('rows').innerText") != before


def test_dark_and_wide(browser: Browser, folder: Path, tmp_path: Path) -> None:
    page = write_report(folder / "releases", tmp_path / "r.html")
    light, dark = (look(browser, page, width=1200, dark=dark) for dark in (False, True))
    brightness = [sum(map(int, re.findall(r"\d+", str(facts["paper"]))[:3])) for facts in (light, dark)]
    assert brightness[0] > 700
    assert brightness[1] < 90
    fits(light, page)
    fits(dark, page)


def test_what_was_not_there_is_stopped_or_seen(browser: Browser, folder: Path, tmp_path: Path) -> None:
    """Control: a script and an image that somebody adds are refused and recorded, and too wide a table is seen."""
    page = write_report(folder / "releases", tmp_path / "r.html")
    text = page.read_text(encoding="utf-8")
    evil = (
        "<script>document.documentElement.setAttribute('data-owned','3')</script>"
        '<img src="http://127.0.0.1:9/x.png"><figure style="width:700px">x</figure><p style="color:#999">faint</p>'
        "<svg></svg>"
    )
    page.write_text(text.replace("</body>", f"{evil}</body>"), encoding="utf-8")
    facts = look(browser, page)
    assert "owned" not in facts
    assert "policy: img-src" in str(facts["errors"])
    assert "policy: script-src" in str(facts["errors"])
    assert facts["scroll"] != facts["client"]
    assert facts["wide"] != []
    assert any("faint" in name for name in facts["faint"])  # type: ignore[attr-defined]
    assert facts["unnamed"] == ["<svg></svg>"]


def followed(folder: Path) -> Path:
    """A stream of six weeks with a headline, whose name and values do their worst."""
    name = "</script><b>kind"
    labels = [label.replace('"', '""') for label in HOSTILE]
    for step in range(1, 7):
        write_rows(folder, f"{step}.csv", f"step,{name}", (f'{step},"{labels[i % 6]}"' for i in range(99)))
    config = write_config(
        folder,
        stream=PUBLIC,
        source='path = "data/*.csv"\ntime_column = "step"\nend = 6',
        columns=f'[schema.columns."{name}"]\ntype = "categorical"\n'
        f"values = {json.dumps(HOSTILE, ensure_ascii=False)}\n",
        budget='epsilon = "8"',
    )
    text = config.read_text(encoding="utf-8")
    config.write_text(f'{text}\n[accuracy]\nheadline = ["{name}"]\nperiods = "2 steps"\n', encoding="utf-8")
    return config


def plane(folder: Path) -> Path:
    """A stream of points in two columns and a category, whose names do their worst."""
    name = "</script><b>kind"
    labels = [label.replace('"', '""') for label in HOSTILE]
    for step in (1, 2):
        rows = (f'{step},{i / 60},{i % 7},"{labels[i % 6]}"' for i in range(60))
        write_rows(folder, f"{step}.csv", f"step,{HOSTILE[5]},y,{name}", rows)
    return write_config(
        folder,
        stream=PUBLIC,
        source='path = "data/*.csv"\ntime_column = "step"\nend = 2',
        columns=f'[schema.columns."{HOSTILE[5]}"]\ntype = "real"\nedges = [0, 1]\n[schema.columns.y]\n'
        f'type = "integer"\nmin = 0\nmax = 6\n[schema.columns."{name}"]\ntype = "categorical"\n'
        f"values = {json.dumps(HOSTILE, ensure_ascii=False)}\n",
        mechanism='name = "points"',
        budget='epsilon = "8"',
    )


def audited(page: Path) -> Path:
    """The page of an audit of a hundred findings, one with a hostile text."""
    kinds = [
        ("counter simple", "empirical", 0.97, False),
        ("counter simple with 2/3 of the noise", "empirical", 1.47, True),
        ("stream dpstabs, epsilon=1/2 and eight neighbours", "exact", 1.0, False),
        ("stream dpstabs without noise", "exact", inf, True),
        ("joint noise, a law", "exact", 0.0, False),
    ]
    findings = [
        AuditFinding(
            f"{name}, {16 * i} ticks", kind, 1.0, loss, 0.99999, 200_000, bad, "most at tick 8" * i, 3.0
        )
        for i, (name, kind, loss, bad) in enumerate(kinds * 20)
    ]
    hostile = AuditFinding("attack", "empirical", 1, 0.2, 0.9999999, 100, False, HOSTILE[0], 1)
    report = AuditReport((*findings, hostile), "short", "dpstream audit x.toml", HOSTILE[0], 1.0)
    page.write_text(audit_html(report), encoding="utf-8")
    return page


@pytest.mark.parametrize(
    ("kind", "charts"),
    [
        *(("points", 1), ("panel", 5), ("classifier", 2), ("turnover", 1), ("headline", 6)),
        *(("statement", 0), ("evaluation", 2), ("audit", 0)),
    ],
)
def test_every_page_fits_a_phone_by_day_and_by_night(
    browser: Browser, folder: Path, tmp_path: Path, kind: str, charts: int
) -> None:
    page = tmp_path / "page.html"
    if kind == "audit":
        audited(page)
    elif kind == "statement":
        dpstream("statement", folder / "dpstream.toml", "--out", page)
    elif kind == "evaluation":
        dpstream("evaluate", folder / "dpstream.toml", "--out", tmp_path / "e", "--steps", "1-5")
        page = tmp_path / "e" / "evaluation.html"
        assert "</script><b>zip" in Page(page).words
    else:
        config = {
            "points": lambda: plane(tmp_path / "s"),
            "panel": lambda: simulated(tmp_path, "panel", "--steps", 5, "--rows-per-step", 500),
            "classifier": lambda: classifier(tmp_path / "s"),
            "headline": lambda: followed(tmp_path / "s"),
            "turnover": lambda: simulated(
                tmp_path, "stock", *("--steps", 3, "--records", 200, "--columns", 3)
            ),
        }[kind]()
        dpstream("run", config)
        write_report(config, page)
    for dark in (False, True):
        facts = look(browser, page, dark=dark)
        fits(facts, page)
        assert facts["unreached"] == []
        assert facts["figures"] >= charts  # type: ignore[operator]
        if kind == "points":
            assert facts["slides"] == [[False, True], [True, False]], "two maps, one at a time"


@pytest.mark.parametrize("place", ["report", "folder"])
def test_a_table_of_changes_is_sorted_by_the_keyboard(browser: Browser, tmp_path: Path, place: str) -> None:
    config = followed(tmp_path / "s")
    dpstream("run", config)
    page = tmp_path / "s" / "releases" / "index.html"
    if place == "report":
        page = write_report(config, tmp_path / "r.html")
    else:
        browser.size(390)
        browser.go(page.as_uri())
        browser.until("document.querySelector('.sortable thead button') !== null")
        assert browser.script("document.documentElement.scrollWidth") <= 390
        assert browser.script("document.documentElement.scrollHeight") <= 2 * 844
    browser.size(1200)
    browser.go(page.as_uri())
    browser.until("document.querySelector('.sortable thead button') !== null")
    at = 1 if place == "report" else 3
    column = f"[...document.querySelectorAll('.sortable tbody tr')].map((row) => Number(row.cells[{at}].dataset.value))"
    before = browser.script(column)
    for order, reverse in (("descending", True), ("ascending", False)):
        browser.script(f"document.querySelectorAll('.sortable thead button')[{at}].focus()")
        browser.press("Enter", 13)
        assert browser.script(column) == sorted(before, reverse=reverse)
        sort = f"document.querySelectorAll('.sortable thead th')[{at}].getAttribute('aria-sort')"
        assert browser.script(sort) == order
    assert browser.script("document.querySelectorAll('[aria-sort]').length") == 1
