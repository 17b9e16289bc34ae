"""Audits of online points: what is attacked, and that the controls differ from the honest plans."""

from __future__ import annotations

import numpy as np
import pytest

from dpstream.core.privacy import Randomness
from dpstream.families.points.cells import PAPER
from dpstream.lab.audits.points_audit import (
    BrokenQuiet,
    FarPlan,
    PointsSubject,
    _places,
    _sampled_cells,
    cube_plan,
    exact_points,
    points_subjects,
)

SUBJECTS = points_subjects()


def test_what_is_audited() -> None:
    """Both variants in one, two and eight dimensions; early, middle and late points; every control is caught."""
    names = [subject.name for subject in SUBJECTS]
    assert len(set(names)) == len(names)
    honest = {(s.plan.design == PAPER, s.plan.schedule.dimension) for s in SUBJECTS if not s.control}
    assert honest == {(paper, d) for paper in (True, False) for d in (1, 2, 8)}
    for subject in SUBJECTS:
        places = _places(subject.plan, 4, np.random.default_rng(1))
        assert {0, 150, 299} <= set(places)
    assert [control for *_, control in _sampled_cells()] == [False, True, True]


@pytest.mark.parametrize(
    "subject", [s for s in SUBJECTS if s.control or "epsilon 8" in s.name], ids=lambda subject: subject.name
)
def test_exact_audits_tell_honest_from_broken(subject: PointsSubject) -> None:
    finding = exact_points(subject, 1, Randomness.seeded(2))
    assert finding.passed
    if not subject.control:
        # The attack is not blind: what is found is not far below the claim.
        assert finding.found > (0.25 if "paper, d = 1" in subject.name else 0.6) * finding.claimed


def test_less_noise_costs_in_proportion() -> None:
    plan = FarPlan.of(cube_plan(1, "paper", 7, 8))
    quiet = BrokenQuiet.of(plan)
    found = [exact_points(PointsSubject("", one), 1, Randomness.seeded(3)).found for one in (plan, quiet)]
    assert found[0] < found[1] <= 1.5 * found[0] * (1 + 1e-9)
