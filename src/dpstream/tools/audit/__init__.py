"""The audit of a configuration: does it lose more privacy than it claims, and are its controls caught?"""

from dpstream.tools.audit.audit_page import AuditReport, write_audit_report
from dpstream.tools.audit.finding import TOLERANCE, Audit, AuditFinding, AuditLength, AuditProgress
from dpstream.tools.audit.runner import audit_file, run_audits
