"""Graphical models of noisy marginals: fit, exact marginals, records. See README.md in this folder."""

from dpstream.graphical.fitting import fit
from dpstream.graphical.measurement import Measurement, estimate_total
from dpstream.graphical.model import FitReport, Model
from dpstream.graphical.tree import JunctionTree, junction_tree, tree_cells, tree_cells_each

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
