"""The privacy statement: its numbers, its words and its files."""

from __future__ import annotations

import hashlib
import json
import math
import re
from fractions import Fraction
from html import unescape
from pathlib import Path

import pytest
from cli_stream import dpstream, make
from hypothesis import given
from hypothesis import strategies as st
from report_pages import Page
from small_configs import load, rewrite

from dpstream.cli.shared import ShownStream
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import ZCDP, zcdp_to_epsilon
from dpstream.core.privacy.convert import best_guess, surer
from dpstream.io.sinks import read_manifest
from dpstream.io.sinks import read_table as read


def budgeted(folder: Path, text: str, stream: str = "", steps: int = 1) -> Path:
    return rewrite(make(folder, steps), 'epsilon = "1"', text, 'name = "test"', f'name = "test"\n{stream}')


@given(st.floats(0, 20), st.floats(0.001, 0.999))
def test_randomized_response_attains_both_bounds(epsilon: float, prior: float) -> None:
    """The mechanism that tells the truth with probability e^eps / (1 + e^eps) is exactly epsilon-DP."""
    true = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert true <= best_guess(epsilon) <= true + 1e-9
    exact = Fraction(prior).limit_denominator(1000)
    after = float(exact) * true / (float(exact) * true + (1 - float(exact)) * (1 - true))
    assert after - 1e-12 <= surer(exact, epsilon) <= after + 1e-9


@pytest.mark.parametrize("rho", ["0.01", "0.1", "1"])
def test_no_test_between_two_gaussians_beats_the_bound(rho: str) -> None:
    """Noise of variance 1/(2 rho) on a count of sensitivity 1: the best guess is right with Phi(1/(2 sigma))."""
    sigma = math.sqrt(1 / (2 * float(rho)))
    right = 0.5 * (1 + math.erf(1 / (2 * sigma) / math.sqrt(2)))
    bounds = [best_guess(zcdp_to_epsilon(ZCDP.of(rho), delta), float(delta)) for delta in ("1e-2", "1e-9")]
    assert right <= min(bounds)
    # The negative control: with half the epsilon it would not be a bound.
    assert float(rho) < 0.5 or right > best_guess(zcdp_to_epsilon(ZCDP.of(rho), "1e-2") / 5)


def test_a_stream_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = budgeted(tmp_path, 'epsilon = "0.5"\nhorizon = 8', steps=3)
    dpstream("run", config, "--until", 2)
    rewrite(config, "[budget]", '[statement]\ncontact = "data@example.org <Ann>"\n[budget]')
    asked = ("statement", config)
    page = dpstream(*asked).stdout
    for words in (
        "2 tables are published of 8 that are planned. The newest one is made from all records up to step 2.",
        "Spent so far: epsilon = 0.5 (pure).",
        "in at most 62.3 of 100",
        r"data@example.org \<Ann\>",
    ):
        assert words in page
    with monkeypatch.context() as patch:  # a terminal shows no signs of Markdown
        patch.setattr(ShownStream, "isatty", lambda self: True, raising=False)
        shown = dpstream(*asked).stdout
        assert "<Ann>" in shown
        assert "\\" not in shown
        assert not shown.startswith("#")
        assert dpstream(*asked, "--out", "-").stdout == page
    rewrite(config, 'name = "test"', 'name = "test"\ntotal = "public"')
    assert "another plan" in dpstream("statement", config, code=2).stderr


def test_files(tmp_path: Path) -> None:
    config = rewrite(make(tmp_path, 1), "[budget]", '[statement]\ncontact = "<script>"\n[budget]')
    out = tmp_path / "s.html"
    assert dpstream("statement", config, "--out", out).stdout == f"wrote {out}\n"
    page = out.read_text(encoding="utf-8")
    assert not [one for _, attributes in Page(out).attributes for one in attributes if one in ("src", "href")]
    assert "<script" not in page
    assert re.search(r"<p>Questions: &lt;script&gt;</p>", page)
    assert "there is a file" in dpstream("statement", config, "--out", out, code=2).stderr
    dpstream("statement", config, "--out", out, "--force")
    dpstream("statement", config, "--out", tmp_path / "s.md")
    assert (tmp_path / "s.md").read_text(encoding="utf-8") == dpstream("statement", config).stdout
    assert ".md, .html, .json" in dpstream("statement", config, "--out", tmp_path / "s.pdf", code=2).stderr
    assert "does not exist" in dpstream("statement", config, "--out", tmp_path / "no" / "s.md", code=2).stderr


WORDS = (
    '\n[statement]\ntitle = "Notices & <b>letters"\ndescription = "Invented."\npublisher = "Office"\n'
    'contact = "data@example.org"\ndecided_by = "the board"\nreason = "counts have to be right"\n'
    'version = "1.2"\nlicense = "CC-BY-4.0"\nurl = "https://example.org/notices"\n'
)


def test_what_the_owner_says_is_on_the_page_and_pinned_to_nothing(tmp_path: Path) -> None:
    config = make(tmp_path, 2)
    dpstream("run", config)
    before = dpstream("statement", config).stdout
    assert "Decided by: " in before
    config.write_text(config.read_text() + WORDS)
    # The stream goes on: the section is no part of its plan.
    page = dpstream("statement", config).stdout
    assert page.startswith(r"# Privacy statement: Notices & \<b\>letters")
    for words in ("Version 1.2 of ", "decided by the board", "data@example.org", "the central model"):
        assert words in page
    # One record, and a person with ten: ten times the epsilon.
    assert "One record: epsilon = 1 (pure); a guess is right in at most 73.2 of 100" in page
    assert "One person with 10 records: epsilon = 10 (pure)" in page
    dpstream("statement", config, "--out", tmp_path / "s.html")
    text = (tmp_path / "s.html").read_text(encoding="utf-8")
    assert "<h1><bdi>Notices &amp; &lt;b&gt;letters</bdi></h1>" in text
    assert "What you may conclude" in text
    assert "default-src 'none'; script-src 'none'" in unescape(text)
    # The report of the configuration has the owner's title; the folder alone does not know it.
    for run, title in ((config, "Notices &amp; &lt;b&gt;letters"), (tmp_path / "releases", "test")):
        dpstream("report", run, "--out", tmp_path / "r.html")
        text = (tmp_path / "r.html").read_text(encoding="utf-8")
        assert f"<h1><bdi>{title}</bdi></h1>" in text
        assert f"<title>{title}: dpstream report</title>" in text
        assert ("<p>Invented.</p>" in text) == (run is config)
        assert "of the stream test." in text
    wrong = config.read_text().replace('version = "1.2"', "version = 1.2")
    config.write_text(wrong)
    assert "[statement] version" in dpstream("statement", config, code=2).stderr


@pytest.mark.parametrize(
    ("key", "wrong", "right", "words"),
    [
        (
            "license",
            ("javascript:alert(1)", "foo bar", "foo", "http://example.org/x", "https://a b"),
            ("CC0-1.0", "ODbL-1.0", "https://creativecommons.org/licenses/by/4.0/"),
            "cannot be used (allowed: an SPDX name",
        ),
        (
            "url",
            ("javascript:alert(1)", "example.org/x", "file:///etc/passwd", "https://", "data:,x"),
            ("http://example.org", "https://example.org/x?a=b#c", "mailto:data@example.org"),
            "cannot be used (allowed: an address in http://, https:// or mailto:",
        ),
    ],
)
def test_a_link_leads_to_no_script_and_a_licence_is_known(
    tmp_path: Path, key: str, wrong: tuple[str, ...], right: tuple[str, ...], words: str
) -> None:
    for text in wrong:
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, rest=f'[statement]\n{key} = "{text}"')
        assert words in str(caught.value), text
    for text in right:
        load(tmp_path, rest=f'[statement]\n{key} = "{text}"')


def test_an_ending_promises_no_other_format(tmp_path: Path) -> None:
    config = make(tmp_path, 1)
    for form, wrong, right in (
        ("croissant", "x.html", None),
        ("registry", "x.md", "x.json"),
        ("html", "wrong.json", "x.htm"),
        ("markdown", "x.HTML", "x.txt"),
    ):
        said = dpstream("statement", config, "--format", form, "--out", tmp_path / wrong, code=2).stderr
        assert f"--format {form} contradicts the name '{wrong}'" in said
        assert not (tmp_path / wrong).exists()
        if right is not None:
            dpstream("statement", config, "--format", form, "--out", tmp_path / right)


def test_each_answer_to_nist_stands_where_the_table_says(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/statement.md").read_text(encoding="utf-8")
    table = guide.split("## Checked against NIST")[1].splitlines()
    rows = [line.strip("| ").split(" | ") for line in table if line.startswith("|")][2:]
    assert len(rows) >= 14
    config = make(tmp_path, 2)
    dpstream("run", config)
    dpstream("statement", config, "--out", tmp_path / "s.html")
    dpstream("report", config, "--out", tmp_path / "r.html")
    page, report = ((tmp_path / name).read_text(encoding="utf-8") for name in ("s.html", "r.html"))
    statement = dpstream("statement", config).stdout
    registry = json.loads(dpstream("statement", config, "--format", "registry").stdout)
    manifest = read_manifest(tmp_path / "releases", 2)
    seen = set()
    for _, _, where in rows:
        for place in where.split("; "):
            kind, _, rest = place.partition(": ")
            seen.add(kind)
            if kind == "statement":
                rest, _, shown = rest.partition(" (on its page: ")
                # A heading may hold a comma of its own.
                for heading in (rest,) if f"## {rest}\n" in statement else re.split(", (?=[A-Z])", rest):
                    assert f"## {heading}\n" in statement, heading
                assert shown.rstrip(")") in page
            elif kind == "report":
                assert re.search(f"<h2[^>]*>{rest}", report), rest
            elif kind in ("registry", "manifests"):
                found = registry if kind == "registry" else manifest
                for key in rest.strip("`").split("."):
                    found = found[key]
                assert found, rest
            else:
                link = re.fullmatch(r"\[[^]]+\]\((.+)\)", place)
                assert link is not None, place
                assert (Path(__file__).parents[2] / "docs/guide" / link[1]).resolve().is_file(), place
    assert {"statement", "report", "registry", "manifests"} <= seen


def test_records_for_programs(tmp_path: Path) -> None:
    config = make(tmp_path, 2)
    for form in ("croissant", "dcat"):
        assert "needs a released table" in dpstream("statement", config, "--format", form, code=2).stderr
    early = json.loads(dpstream("statement", config, "--format", "registry").stdout)
    assert early["product"]["releases"] == 0
    assert early["accounting"]["spent"] is None
    dpstream("run", config)
    config.write_text(config.read_text() + WORDS)
    dpstream("statement", config, "--out", tmp_path / "registry.json")
    record = json.loads((tmp_path / "registry.json").read_text(encoding="utf-8"))
    manifest = read_manifest(tmp_path / "releases", 2)
    assert record["loss"]["epsilon"] == "1"
    assert record["unit"]["words"] == manifest["unit"]["words"]
    assert record["accounting"]["composition"] == manifest["spent"]["composition"]
    assert record["accounting"]["parts"] == manifest["mechanism"]["parts"]
    assert record["implementation"]["mechanism"] == manifest["mechanism"]["name"]
    assert record["trust_model"]["name"] == "central"
    assert record["decision"] == {"decided_by": "the board", "reason": "counts have to be right"}

    croissant = json.loads(dpstream("statement", config, "--format", "croissant").stdout)
    file, counts = croissant["distribution"]
    counted = (tmp_path / "releases/counts.csv").read_bytes()
    assert (counts["name"], counts["sha256"]) == ("counts.csv", hashlib.sha256(counted).hexdigest())
    data = (tmp_path / "releases" / "step-000002" / file["name"]).read_bytes()
    assert file["sha256"] == hashlib.sha256(data).hexdigest()
    assert file["contentUrl"] == f"https://example.org/notices/step-000002/{file['name']}"
    fields = croissant["recordSet"][0]["field"]
    assert [one["source"]["extract"]["column"] for one in fields] == read(tmp_path / "releases").column_names
    # Every term that is not schema.org's own is declared.
    used = {key for one in (croissant, file, *fields) for key in one if not key.startswith("@")}
    croissant_terms = {"field", "recordSet", "source", "dataType", "conformsTo", "citeAs", "isLiveDataset"}
    assert used & croissant_terms <= set(croissant["@context"])

    dcat = json.loads(dpstream("statement", config, "--format", "dcat").stdout)
    assert {one["dct:title"] for one in dcat["dcat:distribution"]} == {*manifest["files"], "counts.csv"}
    prefixes = {key.split(":")[0] for one in (dcat, *dcat["dcat:distribution"]) for key in one if ":" in key}
    assert prefixes <= set(dcat["@context"])
    assert dcat["dct:license"] == "CC-BY-4.0"
    assert "dct:temporal" not in dcat
    dpstream("simulate", "evictions", "--steps", 2, "--out", tmp_path / "weeks")
    dpstream("run", tmp_path / "weeks/dpstream.toml")
    dcat = json.loads(dpstream("statement", tmp_path / "weeks/dpstream.toml", "--format", "dcat").stdout)
    begin, end = (dcat["dct:temporal"][key]["@value"] for key in ("dcat:startDate", "dcat:endDate"))
    assert (begin, end) == ("2001-01-01", "2001-01-14"), "all since the stream began"
