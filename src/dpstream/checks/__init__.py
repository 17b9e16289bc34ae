"""Checks that users can run: certificates and conformance of counters, conformance of black boxes."""

from dpstream.checks.certificate import Certificate, NoiseTape, RecordedMap, certify, read_cell, read_map
from dpstream.checks.conformance import CheckResult, ConformanceReport, check_black_box, check_counter

__all__ = [
    "Certificate",
    "CheckResult",
    "ConformanceReport",
    "NoiseTape",
    "RecordedMap",
    "certify",
    "check_black_box",
    "check_counter",
    "read_cell",
    "read_map",
]
