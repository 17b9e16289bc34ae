"""Samplers of the program itself: what runs of several families draw and choose, against its laws."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpstream.core.privacy import ZCDP, Randomness
from dpstream.tools.audit.door import record
from dpstream.tools.audit.finding import AuditFinding, AuditLength, AuditProgress
from dpstream.tools.audit.samplers_audit import audit_samplers
from dpstream_lab.audits.aim_audit import aim_subjects
from dpstream_lab.audits.points_audit import audited_plan, points_run
from dpstream_lab.audits.pooled_audit import pooled_subjects


def audit_drawn(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """The laws and choices of runs that use every kind: a pooled stream with joint draws, AIM under zCDP, points."""
    pairs = {subject.name: next(iter(subject.pairs())) for subject in (*pooled_subjects(), *aim_subjects())}
    names = ("pooled, headlines", "pooled, joint histograms", f"AIM, {ZCDP.of('1/2')}, event, pairs")
    runs = [pairs[name].base for name in names] + [points_run(audited_plan("default", 2, 1), np.arange(100))]
    yield from audit_samplers([record(run, randomness).door for run in runs], randomness, progress)
