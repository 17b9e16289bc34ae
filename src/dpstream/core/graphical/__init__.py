"""Graphical models of noisy marginals: fit, exact marginals, records. See README.md in this folder."""

from dpstream.core.graphical.fitting import Measurement, estimate_total, fit
from dpstream.core.graphical.junction_tree import JunctionTree, TreeSizes, junction_tree, tree_cells
from dpstream.core.graphical.model import Model, draw_blocks
