"""The audit of classifiers: honest ones are near their claim and within it, broken ones are caught."""

from __future__ import annotations

from dpstream.core.privacy import Randomness
from dpstream_lab.audits.erm_audit import audit_classifiers


def test_every_finding_is_as_it_must_be() -> None:
    findings = list(audit_classifiers("short", Randomness.seeded(1), lambda text: None))
    assert [one.subject for one in findings if not one.passed] == []
    honest = [one for one in findings if not one.control]
    assert len(honest) == 14
    assert {one.unit for one in honest} == {"epsilon", "rho"}
    # The claim is nearly reached: nothing is added to the sensitivity that is not needed.
    assert max(one.found / one.claimed for one in honest) > 0.99
    controls = [one for one in findings if one.control]
    assert len(controls) == 7
    assert all(one.found < 5 * one.claimed for one in controls if "parity" not in one.subject)
