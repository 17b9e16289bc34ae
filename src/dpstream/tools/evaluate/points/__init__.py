"""Points against the private ones: distances, cells, categories."""
