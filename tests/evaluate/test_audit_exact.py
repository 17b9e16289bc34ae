"""Exact audits: known losses are found to the last digit, honest mechanisms hold, planted bugs do not."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpstream
from dpstream.core.counters import COUNTER_NAMES, CalibratedCounter, counter_by_name
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import ZCDP, Event, PureDP, Randomness
from dpstream.mechanisms.engine import Selector
from dpstream.tools.audit import AuditFinding
from dpstream.tools.audit.configured import exact_counter
from dpstream.tools.audit.controls import quiet_counter
from dpstream.tools.audit.transcripts import audit_subject
from dpstream_lab.audits import controls
from dpstream_lab.audits.counters_audit import calibrated_by_name
from dpstream_lab.audits.exact import dpstabs_subjects, exact_selector
from dpstream_lab.audits.loss_bounds import divergence_rate

ONE, HALF = PureDP.of(1), ZCDP.of("0.5")
SOURCE = Path(dpstream.__file__).parent


def finding(found, *, claimed=1.0, control=False):
    return AuditFinding("x", "exact", claimed, found, None, None, control, "", 0.0)


def test_a_finding_is_caught_only_above_its_claim():
    assert not finding(1.0).caught
    assert not finding(1.0 + 1e-10).caught  # float arithmetic of the audit itself
    assert finding(1.0 + 1e-8).caught
    assert finding(math.inf).caught
    assert finding(math.nan).caught  # what cannot be computed is no proof of anything
    assert finding(1.5, control=True).passed
    assert not finding(0.9, control=True).passed
    facts = finding(math.inf, control=True).as_json()
    assert json.loads(json.dumps(facts, allow_nan=False))["found"] == "infinite"
    assert facts["passed"] is True


@pytest.mark.parametrize("budget", [ONE, HALF], ids=["pure", "zCDP"])
@pytest.mark.parametrize("unit", [Event(), Event("replace")], ids=lambda u: u.relation)
def test_counters_and_their_controls(budget, unit):
    claim = float(budget.amount)
    honest = [calibrated_by_name(name, 8, budget, unit) for name in COUNTER_NAMES]
    proof = exact_counter([(counter, 8) for counter in honest if counter is not None], "all")
    assert proof.passed
    assert proof.found == pytest.approx(claim)  # and nothing is wasted
    assert proof.unit == ("epsilon" if budget is ONE else "rho")
    for counter in filter(None, honest):
        proof = exact_counter([(counter, 8)], "honest")
        caught = exact_counter([(quiet_counter(counter), 8)], "quiet", control=True)
        assert caught.found == pytest.approx(proof.found * (1.5 if budget is ONE else 2.25))
        assert caught.claimed == claim
        assert caught.passed
    short = exact_counter([(controls.BrokenShortTree(8).calibrate(budget, unit), 8)], "short", control=True)
    assert short.found == pytest.approx(claim * 4 / 3)
    assert short.passed


def test_a_counter_of_somebody_elses_has_no_noise_to_take_away():
    class Other(CalibratedCounter):
        horizon = None
        name = "other"
        describe = init = step = variance = materialize = check_state = None

    with pytest.raises(ConfigError, match="unknown kind of counter"):
        quiet_counter(Other())


@pytest.mark.parametrize("sensitivity", [1, Fraction(2, 3)])
def test_selectors_reach_their_claim_and_no_more(sensitivity):
    for budget in (PureDP.of("0.25"), PureDP.of(3)):
        found = exact_selector(Selector(budget), budget, "x", sensitivity=sensitivity)
        assert found.passed
        assert found.found == pytest.approx(float(budget.epsilon))
        quiet = controls.broken_quiet_selector(Selector(budget))
        caught = exact_selector(quiet, budget, "x", sensitivity=sensitivity, control=True)
        assert caught.passed
        assert caught.found == pytest.approx(1.5 * float(budget.epsilon))
    small = ZCDP.of("0.01")
    found = exact_selector(Selector(small), small, "x")
    assert found.passed
    assert found.found > 0.0098  # the bound of the range is all but reached where epsilon is small
    quiet = controls.broken_quiet_selector(Selector(small))
    assert exact_selector(quiet, small, "x", control=True).found > 0.02


def test_divergences_of_two_points():
    """Against the formula, at an order by hand: the supremum is at least that, and zCDP's own law stays below."""
    p, q = np.array([0.7, 0.3]), np.array([0.4, 0.6])
    at_two = math.log(0.49 / 0.4 + 0.09 / 0.6) / 2
    assert divergence_rate(p, q) >= at_two - 1e-3
    assert divergence_rate(p, p) == pytest.approx(0.0, abs=1e-12)
    # Randomised response with log-odds +-1/2 is 1/2-DP, and pure epsilon-DP has rho epsilon^2 / 2 at most.
    odds = 1 / (1 + math.exp(-0.5))
    assert divergence_rate(np.array([odds, 1 - odds]), np.array([1 - odds, odds])) <= 0.125


def test_transcripts_reach_the_claim_and_catch_missing_noise():
    for subject in dpstabs_subjects():  # ``make audit`` looks at all
        if not (subject.control or "all measured" in subject.name or "zCDP" in subject.name):
            continue
        found = audit_subject(subject, 1, Randomness.seeded(3))
        assert found.passed, found
        if "all measured" in subject.name:
            # Every level of a tree is paid for, and all of it spent; the first epoch's root, a third, ends later.
            assert found.found == pytest.approx(2 / 3 if "epochs" in subject.name else 1.0)


def test_controls_cannot_be_reached_from_a_configuration():
    users = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(
            r"audit(\.| import )controls\b|\bquiet_counter|\bbroken_quiet|\bBroken(Quiet|Fresh|Short)",
            path.read_text("utf-8"),
        )
    }
    assert users
    assert all(user.startswith("tools/audit/") for user in users)
    for name in ("short-tree", "broken", "quiet", "BrokenShortTree"):
        with pytest.raises(ConfigError, match="unknown counter"):
            counter_by_name(name, horizon=8)
