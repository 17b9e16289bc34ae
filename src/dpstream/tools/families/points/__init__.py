"""Points: distances, cells and categories against the private points, and the page of a point stream."""
