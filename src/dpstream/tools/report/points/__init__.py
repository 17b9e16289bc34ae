"""The page of a stream of points."""
