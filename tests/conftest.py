"""How Hypothesis judges in every test: by what is found, never by how long it took."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine is no failure. Single tests set other numbers of examples and keep these two.
settings.register_profile("dpstream", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dpstream")
