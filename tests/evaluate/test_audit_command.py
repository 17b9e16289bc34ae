"""``dpstream lab audit`` and ``dpstream audit CONFIG``: what is said, exit codes, files, sentences for wrong input."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial

import pytest
from cli_stream import COLUMNS, dpstream, make, silent
from small_configs import rewrite

from dpstream.cli.audit import part_progress
from dpstream.core.errors import ConfigError
from dpstream.tools.audit import AuditFinding, AuditReport, audit_file
from dpstream.tools.audit.audit_page import prepare_folder
from dpstream.tools.simulate import simulate
from dpstream_lab.audits import AUDITS

HOLDS = AuditFinding("good counter", "exact", 1.0, 1.0, None, None, False, "everywhere | here", 0.1)
BOUND = AuditFinding("good stream", "empirical", 1.0, 0.8, 1 - 1e-7, 5_000, False, "at step 1", 0.1)
CAUGHT = AuditFinding("bad counter", "exact", 1.0, math.inf, None, None, True, "at tick 1", 0.1)


@pytest.fixture
def audits(monkeypatch):
    """Replaces the program's own audits by given findings."""

    def use(**findings):
        for name in AUDITS:
            found = tuple(findings.get(name, ()))
            monkeypatch.setitem(AUDITS, name, lambda length, randomness, progress, found=found: iter(found))

    return use


@pytest.fixture
def config(tmp_path):
    return make(tmp_path / "stream", mechanism='name = "dpstabs"\nk = 2')


def test_all_as_it_must_be(audits, tmp_path):
    audits(exact=[HOLDS, CAUGHT], counters=[BOUND])
    result = dpstream("lab", "audit", "--processes", 1, "--out", tmp_path / "new" / "folder")
    answer = "Claims hold in 2 audits of real mechanisms; 1 control, none missed."
    lines = result.stdout.splitlines()
    assert lines[0].startswith(answer)
    assert len(lines) <= 24
    (others,) = [line for line in lines if line.startswith("Others")]
    assert others.split() == ["Others", "2", "100", "%", "1", "of", "1"]
    assert "probability 1e-7 at most" in result.stdout
    page = (tmp_path / "new" / "folder" / "audit.html").read_text(encoding="utf-8")
    assert answer in page
    assert "exceed it for mechanisms broken on purpose" in page
    assert "reads no private data" in page
    assert "1 - 1e-7" in page
    facts = json.loads((tmp_path / "new" / "folder" / "audit.json").read_text(encoding="utf-8"))
    assert facts["passed"] is True
    assert facts["command"].startswith("dpstream lab audit --out")
    assert [finding["found"] for finding in facts["findings"]] == [0.8, 1.0, "infinite"]
    lines = dpstream("lab", "audit", "--processes", 1, "--all").stdout.splitlines()
    assert lines[2].split() == ["verdict", "claimed", "found", "subject"]
    assert lines[3].split() == ["holds", "1", "0.8", "epsilon", "good", "stream"]
    assert lines[5].split()[:3] == ["caught", "1", "infinite"]


def test_progress_is_told_where_it_is_redirected_a_line_a_part(capsys):
    say = part_progress()
    for text in ("the configured counter", *(f"attack: run {run} of 3 without noise" for run in (1, 2))):
        say(text)
    assert capsys.readouterr().err.splitlines() == [
        "the configured counter ...",
        "attack: run 1 of 3 without noise ...",
    ]


def test_a_mechanism_that_exceeds_its_claim(audits, tmp_path):
    bad = replace(BOUND, found=1.3)
    audits(counters=[bad], exact=[CAUGHT])
    result = dpstream("lab", "audit", "--processes", 1, "--out", tmp_path, code=3)
    assert "error: audit: good stream loses 1.3 and claims 1 (epsilon): at step 1" in result.stderr
    assert result.stdout.startswith("Do not use this version: good stream loses 1.3")
    assert "EXCEEDS" in result.stdout
    # The page is written all the same, and says it first.
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert "Do not use this version: good stream loses 1.3" in page
    assert "good stream loses 1.3" in page


def test_a_control_that_was_missed(audits):
    audits(counters=[HOLDS, replace(CAUGHT, found=0.9)])
    result = dpstream("lab", "audit", "--processes", 1, "--json", code=3)
    assert "missed control: bad counter" in result.stderr
    facts = json.loads(result.stdout)
    assert facts["passed"] is False
    assert [finding["passed"] for finding in facts["findings"]] == [True, False]
    missed = AuditReport((HOLDS, replace(CAUGHT, found=0.9)), "short", "dpstream lab audit", None, 1.0)
    assert "The audit failed" in missed.answer()[1]
    assert not AuditReport((), "short", "dpstream lab audit", None, 1.0).passed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--only", "exact,nonsense"),
            "unknown audit 'nonsense' (allowed: aim, census, classifiers, counters, discovery, exact, panels, periods, "
            "points, pooled, published, questions, samplers, schedulers, turnover)",
        ),
        (("--only", " , "), "no audit is named"),
        (("missing.toml",), "unexpected extra argument"),
        (("--processes", "0"), "Invalid value"),
    ],
)
def test_wrong_arguments(arguments, sentence):
    assert sentence in dpstream("lab", "audit", *arguments, code=2).stderr


def test_wrong_places(config, tmp_path):
    for missing, sentence in (([], "Missing argument 'CONFIG'"), (["missing.toml"], "missing.toml")):
        assert sentence in dpstream("audit", *missing, code=2).stderr
    error = dpstream("audit", config, "--only", "points", code=2).stderr
    assert "unknown audit 'points' of a configuration file (allowed: attack, exact, samplers" in error
    for place in (config, config / "below"):
        assert "a file" in dpstream("audit", config, "--only", "exact", "--out", place, code=2).stderr
    with pytest.raises(ConfigError, match="is a file"):
        prepare_folder(config)
    assert prepare_folder(tmp_path / "a" / "b").is_dir()
    simulated = simulate("census", 4, tmp_path / "census", rows_per_step=20)
    error = dpstream("audit", simulated, "--only", "exact", code=2).stderr
    assert "unknown audit 'exact' of this file's mechanism (allowed: attack, transcripts, samplers)" in error
    broken = rewrite(config, 'epsilon = "1"', 'epsilon = "one"')
    assert "'one' is not a number" in dpstream("audit", broken, code=2).stderr


def test_two_processes_find_what_one_finds(config, monkeypatch):
    """Real child processes, with the same seed."""
    names = ("exact", "samplers")
    rewrite(config, "k = 2", 'k = 3\ncounter = "tree"', 'epsilon = "1"', 'epsilon = "1"\nhorizon = 2')
    told = []
    two = list(audit_file(config, names, "short", told.append, seed=3, processes=2))
    one = list(audit_file(config, names, "short", silent, seed=3, processes=1))

    def facts(findings):
        return sorted((f.subject, f.found, f.detail) for f in findings)

    assert facts(two) == facts(one)
    assert {"the configured counter", "laws of draws"} <= set(told)


def test_an_error_in_a_child_process_is_told(config):
    """A file that stops being readable after the first look ends the audit with its sentence, not with a hang."""
    from dpstream.tools.audit.runner import _audits_of_file, _parallel

    rewrite(config, COLUMNS, "")
    audits = partial(_audits_of_file, str(config), 1.0)
    with pytest.raises(ConfigError, match="the schema is missing"):
        list(_parallel(audits, ["exact", "samplers"], "short", 1, 2, silent))
