"""Growing databases: the page of a classifier."""
