"""Checks shipped to users: certificates and conformance of counters, conformance of black boxes."""

from dpstream.checks.blackbox import check_black_box
from dpstream.checks.certificate import Certificate, certificate
from dpstream.checks.conformance import CheckResult, ConformanceReport, check_counter
from dpstream.checks.tape import NoiseTape, RecordedMap, read_cell, read_map

__all__ = [
    "Certificate",
    "CheckResult",
    "ConformanceReport",
    "NoiseTape",
    "RecordedMap",
    "certificate",
    "check_black_box",
    "check_counter",
    "read_cell",
    "read_map",
]
