"""The audits of the program itself, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpstream.tools.audit.finding import Audit, AuditFinding, AuditLength, AuditProgress
from dpstream.tools.audit.runner import check_names, run_audits
from dpstream_lab.audits.aim_audit import audit_aim
from dpstream_lab.audits.asking_audit import audit_asking
from dpstream_lab.audits.census_audit import audit_census
from dpstream_lab.audits.counters_audit import audit_counters
from dpstream_lab.audits.discovery_audit import audit_discovery
from dpstream_lab.audits.drawn_audit import audit_drawn
from dpstream_lab.audits.erm_audit import audit_classifiers
from dpstream_lab.audits.exact import audit_exact
from dpstream_lab.audits.growing_audit import audit_growing
from dpstream_lab.audits.panel_audit import audit_panels
from dpstream_lab.audits.period_audit import audit_periods
from dpstream_lab.audits.points_audit import audit_points
from dpstream_lab.audits.pooled_audit import audit_pooled
from dpstream_lab.audits.published_audit import audit_published
from dpstream_lab.audits.turnover_audit import audit_turnover

#: The audits by name, the longest first, so that two processes end at about the same time.
AUDITS: dict[str, Audit] = {
    "counters": audit_counters,
    "samplers": audit_drawn,
    "exact": audit_exact,
    "panels": audit_panels,
    "census": audit_census,
    "points": audit_points,
    "pooled": audit_pooled,
    "turnover": audit_turnover,
    "aim": audit_aim,
    "schedulers": audit_growing,
    "classifiers": audit_classifiers,
    "periods": audit_periods,
    "questions": audit_asking,
    "published": audit_published,
    "discovery": audit_discovery,
}


def audit_program(
    names: Sequence[str] | None,
    length: AuditLength,
    progress: AuditProgress,
    *,
    seed: int | None = None,
    processes: int = 2,
) -> Iterator[AuditFinding]:
    """Run some audits of the program, and give findings as they come.

    Args:
        names: of ``AUDITS``; None: all.
        progress, seed, processes: see ``dpstream.tools.audit.run_audits``.

    Errors:
        ConfigError: no name, or an unknown one.
    """
    check_names(names, sorted(AUDITS))
    yield from run_audits(_program, names, length, progress, seed=seed, processes=processes)


def _program() -> dict[str, Audit]:
    return AUDITS
