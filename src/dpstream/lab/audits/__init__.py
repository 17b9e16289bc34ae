"""Audits: does a mechanism lose more privacy than it claims, and are broken mechanisms caught?"""

from dpstream.lab.audits.audit_page import AuditReport, write_audit_report
from dpstream.lab.audits.finding import TOLERANCE, Audit, AuditFinding, AuditLength, AuditProgress
from dpstream.lab.audits.runner import AUDITS, audit_names, run_audits

__all__ = [
    "AUDITS",
    "TOLERANCE",
    "Audit",
    "AuditFinding",
    "AuditLength",
    "AuditProgress",
    "AuditReport",
    "audit_names",
    "run_audits",
    "write_audit_report",
]
