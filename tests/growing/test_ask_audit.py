"""The audit of questions: honest runs pass, and every broken one is caught."""

from __future__ import annotations

from dpstream.core.privacy import Randomness
from dpstream.tools.audit.finding import AuditFinding
from dpstream_lab.audits.asking_audit import audit_asking


def test_honest_questions_pass_and_broken_ones_are_caught() -> None:
    told: list[str] = []
    findings: dict[str, AuditFinding] = {
        one.subject: one for one in audit_asking("short", Randomness.seeded(1), told.append)
    }
    assert all(one.passed for one in findings.values()), [
        one.subject for one in findings.values() if not one.passed
    ]
    assert told
    honest = findings["run of tests at 2, all noise"]
    # The charge is what it really costs: not a hair less is needed.
    assert 0.999 * honest.claimed < honest.found <= honest.claimed
    broken = [one for one in findings.values() if one.control]
    assert {one.subject for one in broken} == {
        "run of tests, threshold noise anew at each test (as listed), all noise",
        "run of tests, 2/3 of the noise, all noise",
        "run of tests, half of it charged, all noise",
        "analyst who repeats, runs without end",
        "conversation, the exact share as easy",
        "conversation, a bit where nothing was checked",
        "conversation, a run forgotten on reopening",
        "conversation, a number without its noise",
        "conversation, threshold noise kept between runs",
    }
    talks = [one for one in findings.values() if one.subject.startswith("conversation, ") and not one.control]
    assert len(talks) == 4
    assert all("easy, hard, unchecked" in one.detail for one in talks)
    assert all(one.found > 1.1 * one.claimed for one in broken)
