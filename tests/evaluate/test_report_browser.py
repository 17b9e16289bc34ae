"""Reports in a real browser: every chart is drawn, nothing is loaded, nothing overflows, no label becomes code."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from math import inf
from pathlib import Path
from urllib.parse import unquote

import pytest
from cli_stream import dpstream, make
from report_pages import Page, classifier

from dpstream.tools.audit.audit_page import AuditReport, audit_html
from dpstream.tools.audit.finding import AuditFinding
from dpstream.tools.report import write_report

BROWSER = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome", "chrome")
        if (path := shutil.which(name))
    ),
    None,
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")

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


def look(page: Path, tmp_path: Path, *, width: int = 360, dark: bool = False) -> dict[str, object]:
    """What a browser makes of a page."""
    frame = tmp_path / "frame.html"
    text = html.escape(page.read_text(encoding="utf-8"))
    frame.write_text(FRAME.replace("@WIDTH@", str(width)).replace("@PAGE@", text), encoding="utf-8")
    assert BROWSER is not None
    result = subprocess.run(
        [
            BROWSER,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-extensions",
            "--no-first-run",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--window-size={max(width, 500)},1000",
            "--virtual-time-budget=6000",
            "--dump-dom",
            frame.as_uri(),
        ],
        capture_output=True,
        check=False,
        timeout=200,
    )
    found = re.search(rb'<html[^>]*data-facts="([^"]+)"', result.stdout)
    assert found, result.stderr.decode(errors="replace")[-2000:]
    facts: dict[str, object] = json.loads(unquote(found[1].decode()))
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
    text = config.read_text(encoding="utf-8")
    # Noise must not hide a label: the page draws the pairs that the release shows.
    text = text.replace('name = "test"', f"name = {name}").replace('epsilon = "1"', 'epsilon = "100"')
    config.write_text(text, encoding="utf-8")
    for step in range(1, 6):
        rows = "".join(
            f'{step},"{HOSTILE[i % 6].replace(chr(34), chr(34) * 2)}",{i % 31},{"true" if i % 3 else "false"}\n'
            for i in range(60)
        )
        path = folder / "s" / "data" / f"{step:03d}.csv"
        path.write_text(f"step,</script><b>zip,age,paid\n{rows}", encoding="utf-8")
    dpstream("run", config)
    return folder / "s"


def test_hostile_labels_stay_labels(folder: Path, tmp_path: Path) -> None:
    page = write_report(folder / "dpstream.toml", tmp_path / "r.html")
    read = Page(page)
    assert len(read.scripts) == 2
    assert HOSTILE[0] in read.words
    facts = look(page, tmp_path)
    assert facts["errors"] == ""
    assert facts["ready"] == "true"
    assert "owned" not in facts
    assert str(facts["title"]).startswith("</title><script>alert(1)</script> \"&'")
    assert any("</script><b>zip" in option for option in facts["options"])  # type: ignore[attr-defined]
    assert set(HOSTILE) <= set(facts["labels"])  # type: ignore[call-overload]
    # Every chart is drawn, with a table behind it.
    assert facts["figures"] == facts["inked"] == facts["read"] == len(read.data["charts"]) >= 4
    assert facts["faint"] == facts["unnamed"] == []
    assert facts["rows"] == [len(chart["x"]) for chart in read.data["charts"]]
    assert int(str(facts["cells"])) > 4
    # A phone's width is enough.
    assert facts["wide"] == []
    assert facts["scroll"] == facts["client"]
    assert facts["frame"] == 360


def test_dark_and_wide(folder: Path, tmp_path: Path) -> None:
    page = write_report(folder / "releases", tmp_path / "r.html")
    light = look(page, tmp_path, width=1200)
    dark = look(page, tmp_path, width=1200, dark=True)
    brightness = [sum(map(int, re.findall(r"\d+", str(facts["paper"]))[:3])) for facts in (light, dark)]
    assert brightness[0] > 700
    assert brightness[1] < 90
    assert light["errors"] == dark["errors"] == ""
    assert light["faint"] == dark["faint"] == []
    assert light["scroll"] == light["client"]


def test_what_was_not_there_is_stopped_or_seen(folder: Path, tmp_path: Path) -> None:
    """Control: a script and an image that somebody adds are refused and recorded, and too wide a table is seen."""
    page = write_report(folder / "releases", tmp_path / "r.html")
    text = page.read_text(encoding="utf-8")
    evil = (
        "<script>document.documentElement.setAttribute('data-owned','3')</script>"
        '<img src="http://127.0.0.1:9/x.png"><figure style="width:700px">x</figure><p style="color:#999">faint</p>'
        "<svg></svg>"
    )
    page.write_text(text.replace("</body>", f"{evil}</body>"), encoding="utf-8")
    facts = look(page, tmp_path)
    assert "owned" not in facts
    assert "policy: img-src" in str(facts["errors"])
    assert "policy: script-src" in str(facts["errors"])
    assert facts["scroll"] != facts["client"]
    assert facts["wide"] != []
    assert any("faint" in name for name in facts["faint"])  # type: ignore[attr-defined]
    assert facts["unnamed"] == ["<svg></svg>"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_maps_of_points_fit_a_phone(tmp_path: Path, dark: bool) -> None:
    """Names of coordinates and of categories do their worst too."""
    folder = tmp_path / "s"
    (folder / "data").mkdir(parents=True)
    name = "</script><b>kind"
    labels = [label.replace('"', '""') for label in HOSTILE]
    for step in (1, 2):
        rows = [f'{step},{i / 60},{i % 7},"{labels[i % 6]}"' for i in range(60)]
        text = "\n".join([f"step,{HOSTILE[5]},y,{name}", *rows, ""])
        (folder / "data" / f"{step}.csv").write_text(text, encoding="utf-8")
    config = folder / "dpstream.toml"
    config.write_text(
        'format = 1\n[stream]\nname = "points"\ntotal = "public"\n[source]\npath = "data/*.csv"\n'
        f'time_column = "step"\nend = 2\n[schema.columns."{HOSTILE[5]}"]\ntype = "real"\nedges = [0, 1]\n'
        f'[schema.columns.y]\ntype = "integer"\nmin = 0\nmax = 6\n[schema.columns."{name}"]\n'
        f'type = "categorical"\nvalues = {json.dumps(HOSTILE, ensure_ascii=False)}\n[mechanism]\nname = "points"\n'
        '[budget]\nepsilon = "8"\n',
        encoding="utf-8",
    )
    dpstream("run", config)
    page = write_report(config, tmp_path / "r.html")
    facts = look(page, tmp_path, dark=dark)
    assert facts["errors"] == ""
    assert facts["ready"] == "true"
    assert "owned" not in facts
    assert facts["wide"] == []
    assert facts["scroll"] == facts["client"]
    assert facts["figures"] == facts["inked"] == facts["read"] == 1
    assert facts["faint"] == facts["unnamed"] == []
    # One of two maps at a time.
    assert facts["slides"] == [[False, True], [True, False]]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_statements_and_panels_have_the_same_design(folder: Path, tmp_path: Path, dark: bool) -> None:
    statement, panel = tmp_path / "s.html", tmp_path / "panel"
    dpstream("statement", folder / "dpstream.toml", "--out", statement)
    facts = look(statement, tmp_path, dark=dark)
    assert "owned" not in facts
    assert facts["faint"] == facts["unnamed"] == facts["wide"] == []
    assert facts["scroll"] == facts["client"]
    dpstream("simulate", "panel", "--steps", 5, "--rows-per-step", 500, "--out", panel)
    dpstream("run", panel / "dpstream.toml")
    facts = look(write_report(panel / "releases", tmp_path / "p.html"), tmp_path, dark=dark)
    assert facts["errors"] == ""
    assert facts["faint"] == facts["unnamed"] == facts["wide"] == []
    assert facts["scroll"] == facts["client"]
    assert facts["figures"] == facts["inked"] == facts["read"] == 5


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_classifiers_and_tables_with_turnover_have_the_same_design(tmp_path: Path, dark: bool) -> None:
    config, stock = classifier(tmp_path / "erm"), tmp_path / "stock"
    dpstream("simulate", "stock", "--steps", 3, "--records", 200, "--columns", 3, "--out", stock)
    for run, title in ((config, "Coefficients"), (stock / "dpstream.toml", "Column by column")):
        dpstream("run", run)
        page = write_report(run, run.parent / "r.html")
        read = Page(page)
        assert title in read.words
        facts = look(page, tmp_path, dark=dark)
        assert facts["errors"] == ""
        assert facts["ready"] == "true"
        assert facts["faint"] == facts["unnamed"] == facts["wide"] == []
        assert facts["scroll"] == facts["client"]
        assert facts["figures"] == facts["inked"] == facts["read"] == len(read.data["charts"]) >= 2
        assert facts["rows"] == [len(chart["x"]) for chart in read.data["charts"]]
        assert facts["unreached"] == []


def test_an_evaluation_has_the_same_design(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "evaluation"
    dpstream("evaluate", folder / "dpstream.toml", "--out", out, "--steps", "1-5")
    page = out / "evaluation.html"
    read = Page(page)
    assert "</script><b>zip" in read.words
    facts = look(page, tmp_path, dark=True)
    assert facts["errors"] == ""
    assert "owned" not in facts
    assert facts["faint"] == facts["unnamed"] == facts["wide"] == []
    assert facts["scroll"] == facts["client"]
    assert facts["figures"] == facts["inked"] == facts["read"] == len(read.data["charts"]) == 2


def test_an_audit_has_the_same_design(tmp_path: Path) -> None:
    findings = [
        AuditFinding(
            f"{name}, {16 * i} ticks", kind, 1.0, found, 0.99999, 200_000, bad, "most at tick 8" * i, 3.0
        )
        for i, (name, kind, found, bad) in enumerate(
            [
                ("counter simple", "empirical", 0.97, False),
                ("counter simple with 2/3 of the noise", "empirical", 1.47, True),
                ("stream dpstabs, epsilon=1/2 and eight neighbours", "exact", 1.0, False),
                ("stream dpstabs without noise", "exact", inf, True),
                ("joint noise, a law", "exact", 0.0, False),
            ]
            * 20
        )
    ]
    findings.append(
        AuditFinding("attack on the releases", "empirical", 1, 0.2, 0.9999999, 100, False, HOSTILE[0], 1)
    )
    page = tmp_path / "audit.html"
    report = AuditReport(tuple(findings), "short", "dpstream audit x.toml", HOSTILE[0], 1.0)
    page.write_text(audit_html(report), encoding="utf-8")
    for dark in (False, True):
        facts = look(page, tmp_path, dark=dark)
        assert "owned" not in facts
        assert facts["faint"] == facts["unnamed"] == facts["wide"] == facts["unreached"] == []
        assert facts["scroll"] == facts["client"]
