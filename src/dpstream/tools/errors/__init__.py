"""Errors by simulation: how far releases are off, found out on invented data; reads public files only.

The released stream is taken as an invented truth, the same configuration is run on it several times with a seeded
generator, and what these runs release is compared with that truth. Post-processing: it costs nothing.
"""

from dpstream.tools.errors.contract import FamilySimulation, Invented, InventedTable, Observation
from dpstream.tools.errors.published import publish_errors
from dpstream.tools.errors.simulation import Simulation, doubling_steps, simulate_errors
