"""Evaluations and report pages of single families, one folder each; ``tools/family_tools.py`` loads them by name."""
