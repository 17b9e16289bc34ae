"""Certificates of counters: their exact cost, read off running code."""

from dpstream.checks.certificate import Certificate, NoiseTape, RecordedMap, certify, read_cell, read_map

__all__ = ["Certificate", "NoiseTape", "RecordedMap", "certify", "read_cell", "read_map"]
