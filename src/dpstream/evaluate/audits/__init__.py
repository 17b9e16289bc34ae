"""Audits: does any mechanism lose more than it claims, and are broken ones caught?"""

from dpstream.evaluate.audits.finding import TOLERANCE, Audit, AuditLength, Finding, Progress
from dpstream.evaluate.audits.page import AuditReport, write_report
from dpstream.evaluate.audits.runner import AUDITS, audit_names, run_audits

__all__ = [
    "AUDITS",
    "TOLERANCE",
    "Audit",
    "AuditLength",
    "AuditReport",
    "Finding",
    "Progress",
    "audit_names",
    "run_audits",
    "write_report",
]
