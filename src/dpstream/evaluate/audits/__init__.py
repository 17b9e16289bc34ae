"""Audits: does any mechanism lose more than it claims, and are broken ones caught?"""

from dpstream.evaluate.audits.finding import TOLERANCE, AuditLength, Finding

__all__ = ["TOLERANCE", "AuditLength", "Finding"]
