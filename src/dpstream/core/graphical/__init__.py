"""Graphical models of noisy marginals: fit, exact marginals, records. See README.md in this folder."""

from dpstream.core.graphical.fitting import fit
from dpstream.core.graphical.junction_tree import JunctionTree, junction_tree, tree_cells, tree_cells_each
from dpstream.core.graphical.measurement import Measurement, estimate_total
from dpstream.core.graphical.model import FitReport, Model

__all__ = [
    "FitReport",
    "JunctionTree",
    "Measurement",
    "Model",
    "estimate_total",
    "fit",
    "junction_tree",
    "tree_cells",
    "tree_cells_each",
]
