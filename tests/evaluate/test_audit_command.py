"""``dpstream audit``: what is audited, what is said, exit codes, files, and sentences for wrong input."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from cli_stream import COLUMNS, dpstream, make

from dpstream.cli.audit import say_progress
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Randomness
from dpstream.lab.audits import AuditFinding, configured, run_audits
from dpstream.lab.audits.audit_page import AuditReport, prepare_folder
from dpstream.lab.audits.configured import configured_audits
from dpstream.lab.audits.controls import broken_quiet_counter
from dpstream.lab.audits.finding import Attacked
from dpstream.lab.audits.runner import AUDITS, audit_names
from dpstream.project import Config

HOLDS = AuditFinding("good counter", "exact", 1.0, 1.0, None, None, False, "everywhere | here", 0.1)
BOUND = AuditFinding("good stream", "empirical", 1.0, 0.8, 1 - 1e-7, 5_000, False, "at step 1", 0.1)
CAUGHT = AuditFinding("bad counter", "exact", 1.0, math.inf, None, None, True, "at tick 1", 0.1)


def silent(text):
    pass


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


def rewrite(config, *changes):
    text = config.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    config.write_text(text, encoding="utf-8")
    return config


def test_all_as_it_must_be(audits, tmp_path):
    audits(exact=[HOLDS, CAUGHT], streams=[BOUND])
    result = dpstream("audit", "--processes", 1, "--out", tmp_path / "new" / "folder")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["verdict", "claimed", "found", "kind", "subject"]
    assert lines[1].split()[:3] == ["holds", "1", "0.8"]
    assert "caught" in lines[3]
    assert "infinite" in lines[3]
    assert "2 audits of real mechanisms: 0 lost more than claimed. 1 control: 0 missed." in result.stdout
    assert "probability 1e-7 at most" in result.stdout
    page = (tmp_path / "new" / "folder" / "audit.md").read_text(encoding="utf-8")
    assert "**Answer: holds.** Nothing lost more than it claims, in 2 audits of real mechanisms." in page
    assert "every one was caught" in page
    assert "reads no private data" in page
    assert "everywhere \\| here" in page
    assert "1 - 1e-7" in page
    facts = json.loads((tmp_path / "new" / "folder" / "audit.json").read_text(encoding="utf-8"))
    assert facts["passed"] is True
    assert facts["command"].startswith("dpstream audit --out")
    assert [finding["found"] for finding in facts["findings"]] == [0.8, 1.0, "infinite"]


def test_an_attack_that_finds_nothing_without_noise_either_is_no_evidence(audits, tmp_path):
    made = Attacked(50, 100, 2, (0.4, 0.6), 1.0, 0.73, ((0.5, 0.5),), ((0.5, 0.7),), "a stream")
    sees = AuditFinding("attack: sharp", "attack", 1.0, 0.0, 1 - 1e-7, 9, False, "", 0.1, attack=made)
    blind = replace(
        sees, subject="attack: closest record", attack=replace(made, without_noise=0.5, blind=True)
    )
    audits(streams=[sees, blind, HOLDS, CAUGHT])
    result = dpstream("audit", "--processes", 1, "--out", tmp_path)
    (line,) = [line for line in result.stdout.splitlines() if "closest record" in line]
    assert line.startswith("sees nothing here")
    counted = "3 audits of real mechanisms (2 attacks on the releases; 1 of these sees nothing here)"
    assert f"{counted}: 0 lost more than claimed. 1 control: 0 missed." in result.stdout
    for name in ("audit.md", "audit.html"):
        page = (tmp_path / name).read_text(encoding="utf-8")
        assert f"Nothing lost more than it claims, in {counted}." in page
        assert "closest record would find nothing here without noise either, and is no evidence" in page
    assert "Attacks on the releases: 2 real" in page
    assert "sees nothing here, nor without noise" in page
    accused = replace(blind, found=1.5)
    assert AuditReport((accused,), "short", "dpstream audit", None, 1.0).exceeding == (accused,)


def test_progress_is_told_where_it_is_redirected_a_line_a_part(capsys):
    for text in (
        "the configured counter",
        "attacks: run 1 of 3 without noise",
        "attacks: run 2 of 3 without noise",
    ):
        say_progress(text)
    assert capsys.readouterr().err.splitlines() == [
        "the configured counter ...",
        "attacks: run 1 of 3 without noise ...",
    ]


def test_a_mechanism_that_exceeds_its_claim(audits, tmp_path):
    bad = replace(BOUND, found=1.3)
    audits(streams=[bad], exact=[CAUGHT])
    result = dpstream("audit", "--processes", 1, "--out", tmp_path, code=3)
    assert "error: audit: good stream loses 1.3 and claims 1 (epsilon)" in result.stderr
    assert "EXCEEDS" in result.stdout
    # The page is written all the same, and says it first.
    page = (tmp_path / "audit.md").read_text(encoding="utf-8")
    assert "Do not use this version: good stream loses 1.3" in page
    assert "good stream loses 1.3" in page


def test_a_control_that_was_missed(audits):
    audits(counters=[HOLDS, replace(CAUGHT, found=0.9)])
    result = dpstream("audit", "--processes", 1, "--json", code=3)
    assert "the control was not caught: bad counter" in result.stderr
    facts = json.loads(result.stdout)
    assert facts["passed"] is False
    assert [finding["passed"] for finding in facts["findings"]] == [True, False]
    missed = AuditReport((HOLDS, replace(CAUGHT, found=0.9)), "short", "dpstream audit", None, 1.0)
    assert "The audit is worth nothing" in missed.markdown()
    assert not AuditReport((), "short", "dpstream audit", None, 1.0).passed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--only", "exact,nonsense"),
            "there is no audit 'nonsense' (allowed: aim, census, classifiers, counters, exact, panels, points, "
            "pooled, questions, schedulers, selection, streams, turnover)",
        ),
        (("--only", " , "), "no audit is named"),
        (("missing.toml",), "missing.toml"),
        (("--processes", "0"), "Invalid value"),
    ],
)
def test_wrong_arguments(arguments, sentence):
    assert sentence in dpstream("audit", *arguments, code=2).stderr


def test_wrong_places(config, tmp_path):
    error = dpstream("audit", config, "--only", "streams", code=2).stderr
    assert (
        "no audit 'streams' of a configuration file (allowed: attacks, counters, exact, selection)" in error
    )
    for place in (config, config / "below"):
        assert "a file" in dpstream("audit", config, "--only", "exact", "--out", place, code=2).stderr
    with pytest.raises(ConfigError, match="not a folder"):
        prepare_folder(config)
    assert prepare_folder(tmp_path / "a" / "b").is_dir()
    everything = rewrite(config, ("k = 2", "k = 3"))
    error = dpstream("audit", everything, "--only", "selection", code=2).stderr
    assert "there is nothing of this kind to audit" in error
    broken = rewrite(config, ('epsilon = "1"', 'epsilon = "one"'))
    assert "'one' is not a number" in dpstream("audit", broken, code=2).stderr


def test_what_a_user_plan_is_said_to_cost_is_a_users(config):
    own = (
        ('name = "test"', 'name = "test"\nunit = "user"\nmax_events = 3'),
        ("[source]", '[source]\nuser_column = "who"'),
    )
    loaded = Config.load(rewrite(config, *own))
    (whole,) = [
        one
        for one in configured_audits(loaded)["exact"]("short", Randomness.seeded(1), silent)
        if "sum of parts" in one.subject
    ]
    assert "all 3 events of one user (group privacy) over the whole stream" in whole.subject
    assert whole.claimed == pytest.approx(float(loaded.plan().budget.amount))
    assert whole.passed
    assert whole.found > 0.6 * whole.claimed


@pytest.mark.parametrize(
    ("changes", "unit", "selected"),
    [
        ((), "epsilon", True),
        ((("k = 2", 'k = 2\ncounter = "tree"'), ('epsilon = "1"', 'rho = "0.3"\nhorizon = 20')), "rho", True),
        ((("k = 2", "k = 3"),), "epsilon", False),
        ((('name = "dpstabs"', 'name = "baseline"'),), "epsilon", True),
        ((('name = "dpstabs"', 'name = "baseline"'), ('epsilon = "1"', 'rho = "0.3"')), "rho", True),
        ((('name = "test"', 'name = "test"\nunit = "event-replace"\ntotal = "public"'),), "epsilon", True),
    ],
    ids=["dpstabs", "tree, zCDP", "nothing selected", "baseline", "baseline, zCDP", "replace"],
)
def test_a_configuration_is_audited_as_its_plan_runs_it(config, changes, unit, selected):
    loaded = Config.load(rewrite(config, *changes))
    plan = loaded.plan()
    found = list(configured_audits(loaded)["exact"]("short", Randomness.seeded(1), silent))
    assert all(finding.passed and finding.unit == unit for finding in found)
    broken = [finding for finding in found if finding.control]
    found = found[: -len(broken)]
    assert (len(found), len(broken)) == ((3, 2) if selected else (2, 1))
    parts = {part.name: part for part in plan.parts()}
    assert found[0].claimed == pytest.approx(float(parts["measure"].budget.amount))
    if selected:
        assert found[1].claimed == pytest.approx(float(parts["select"].budget.amount))
    assert found[-1].claimed == pytest.approx(float(plan.budget.amount))
    assert found[-1].found > 0.6 * found[-1].claimed


@pytest.mark.parametrize(
    ("epsilon", "headline"),
    [
        ('epsilon = "1"', ""),
        ('epsilon = "1"', '[["zip"], ["paid"]]'),
        ('rho = "0.3"', '[["zip", "kind"], ["paid"]]'),
    ],
)
def test_the_run_of_a_pooled_configuration_is_audited(config, epsilon, headline):
    """Headlines are a part of the sum: without them a fifth of the budget would be missing."""
    loaded = Config.load(rewrite(config, ('name = "dpstabs"\nk = 2', ""), ('epsilon = "1"', epsilon)))
    if headline:
        loaded.path.write_text(f"{loaded.path.read_text()}\n[accuracy]\nheadline = {headline}\n")
        loaded = Config.load(loaded.path)
    found = list(configured_audits(loaded)["exact"]("short", Randomness.seeded(1), silent))
    assert all(finding.passed for finding in found)
    assert sum(finding.control for finding in found) == 2
    (whole,) = [finding for finding in found if "sum of parts" in finding.subject]
    assert whole.claimed == pytest.approx(float(loaded.plan().budget.amount))
    assert 0.98 * whole.claimed < whole.found <= whole.claimed * (1 + 1e-9)
    assert ("for the headlines" in whole.detail) == bool(headline)


def test_a_plan_with_too_little_noise_is_found(config, monkeypatch):
    """The audit reads the plan's own counter: a broken one in its place shows, alone and in the sum."""
    loaded = Config.load(config)
    honest = configured._parts(loaded.plan())
    monkeypatch.setattr(
        configured, "_parts", lambda plan: replace(honest, counter=broken_quiet_counter(honest.counter))
    )
    found = list(configured_audits(loaded)["exact"]("short", Randomness.seeded(1), silent))
    assert [finding.caught for finding in found if not finding.control] == [True, False, True]


def test_two_processes_find_what_one_finds(config, monkeypatch):
    """Real child processes, with the same seed; the slow part is made small by the file: one candidate's choice."""
    names = ("exact", "counters")
    rewrite(config, ("k = 2", 'k = 3\ncounter = "tree"'), ('epsilon = "1"', 'epsilon = "1"\nhorizon = 2'))
    assert audit_names(configured=True) == ("attacks", "counters", "exact", "selection")
    told = []
    two = list(run_audits(names, "short", told.append, config=config, seed=3, processes=2))
    one = list(run_audits(names, "short", silent, config=config, seed=3, processes=1))

    def facts(findings):
        return sorted((f.subject, f.found, f.detail) for f in findings)

    assert facts(two) == facts(one)
    assert len(two) == 4
    assert "the configured counter" in told


def test_an_error_in_a_child_process_is_told(config):
    """A file that stops being readable after the first look ends the audit with its sentence, not with a hang."""
    from dpstream.lab.audits.runner import _parallel

    rewrite(config, (COLUMNS, ""))
    with pytest.raises(ConfigError, match="no schema"):
        list(_parallel(["exact", "counters"], "short", str(config), 1.0, 1, 2, silent))
