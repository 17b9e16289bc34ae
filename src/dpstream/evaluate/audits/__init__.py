"""Audits: does any mechanism lose more than it claims, and are broken ones caught?"""

from dpstream.evaluate.audits.finding import TOLERANCE, Audit, AuditLength, Finding, Progress

__all__ = ["TOLERANCE", "Audit", "AuditLength", "Finding", "Progress"]
