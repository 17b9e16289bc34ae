"""What belongs to streams of tables alone among the tools."""
