"""Checks shipped to users: certificates and conformance of counters."""

from dpstream.checks.certificate import Certificate, certificate

__all__ = ["Certificate", "certificate"]
