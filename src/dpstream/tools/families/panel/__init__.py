"""Panels: the usual questions against the private panel, and the page of a panel."""
