"""Invented example streams with drift, deletions and odd values, an invented panel, and an invented register."""

from __future__ import annotations

from dpstream.tools.simulate.example import Example
from dpstream.tools.simulate.stock_folder import Stock
from dpstream.tools.simulate.streams import poverty_panel
from dpstream.tools.simulate.write import EXAMPLES, simulate
