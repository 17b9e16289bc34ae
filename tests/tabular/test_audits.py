"""Of each exact audit of tables a subject and a control; `dpstream lab audit` looks at all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from dpstream.core.privacy import Randomness
from dpstream.tools.audit.transcripts import Subject, audit_subject
from dpstream_lab.audits.aim_audit import aim_subjects
from dpstream_lab.audits.pooled_audit import pooled_subjects
from dpstream_lab.audits.turnover_audit import turnover_subjects


@pytest.mark.parametrize(
    ("subjects", "honest", "control"),
    [
        (pooled_subjects, "pooled, deletions", "pooled with counts that outlive their epoch"),
        (pooled_subjects, "pooled, few marginals", "pooled with joint histograms drawn apart"),
        (
            aim_subjects,
            "AIM, epsilon = 1 (pure), event, pairs",
            "AIM with half the sensitivity of its scores, epsilon = 1 (pure)",
        ),
        (
            turnover_subjects,
            "equal rows that cancel, pooled, user",
            "equal rows that cancel marginal by marginal",
        ),
    ],
)
def test_a_subject_holds_and_a_control_is_caught(
    subjects: Callable[[], Iterable[Subject]], honest: str, control: str
) -> None:
    named = {subject.name: subject for subject in subjects()}
    held, caught = (audit_subject(named[name], 2, Randomness.seeded(3)) for name in (honest, control))
    assert 0.5 * held.claimed < held.found <= held.claimed * (1 + 1e-9)
    assert caught.control
    assert caught.found > 1.3 * caught.claimed
