"""Audits of the program itself: are its claims true, and are broken mechanisms caught?"""

from dpstream_lab.audits.program import AUDITS, audit_program

__all__ = ["AUDITS", "audit_program"]
