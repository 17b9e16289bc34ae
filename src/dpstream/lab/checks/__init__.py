"""Checks that users can run: certificates and conformance of counters, conformance of black boxes."""

from dpstream.lab.checks.blackbox_suite import check_black_box
from dpstream.lab.checks.certificate import Certificate, certify
from dpstream.lab.checks.conformance import CheckResult, ConformanceReport, check_counter
from dpstream.lab.checks.tape import NoiseTape, RecordedMap, read_cell, read_map

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
