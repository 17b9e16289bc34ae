"""Audits of online points: what is attacked, and that the controls differ from the honest plans."""

from __future__ import annotations

import numpy as np
import pytest

from dpstream.core.privacy import Randomness
from dpstream.tools.audit.controls import QuietNoise
from dpstream.tools.audit.door import as_it_is
from dpstream.tools.audit.transcripts import Subject, audit_subject
from dpstream_lab.audits.points_audit import (
    _places,
    _sampled_cells,
    audited_plan,
    points_subject,
    points_subjects,
)

SUBJECTS = list(points_subjects(1))


def test_what_is_audited() -> None:
    """Both variants in one, two and eight dimensions; early, middle and late points; every control is caught."""
    names = [subject.name for subject in SUBJECTS]
    assert len(set(names)) == len(names)
    honest = {
        name.rsplit(", epsilon", 1)[0] for name, s in zip(names, SUBJECTS, strict=True) if not s.control
    }
    assert honest == {f"points, {variant}, d = {d}" for variant in ("paper", "default") for d in (1, 2, 8)}
    for dimension in (1, 8):
        places = _places(audited_plan("default", dimension, 8), 4, np.random.default_rng(1))
        assert {0, 150, 299} <= set(places)
    assert [control for *_, control in _sampled_cells()] == [False, True, True]


@pytest.mark.parametrize(
    "subject", [s for s in SUBJECTS if s.control or "epsilon 8" in s.name], ids=lambda subject: subject.name
)
def test_exact_audits_tell_honest_from_broken(subject: Subject) -> None:
    finding = audit_subject(subject, 1, Randomness.seeded(2))
    assert finding.passed
    if not subject.control:
        # The attack is not blind: what is found is not far below the claim.
        assert finding.found > (0.25 if "paper, d = 1" in subject.name else 0.6) * finding.claimed


def test_less_noise_costs_in_proportion() -> None:
    plan = audited_plan("paper", 1, 8)
    tried = [points_subject(1, plan, "", wrap=wrap) for wrap in (as_it_is, QuietNoise)]
    found = [audit_subject(subject, 1, Randomness.seeded(3)).found for subject in tried]
    assert found[0] < found[1] <= 1.5 * found[0] * (1 + 1e-9)
