"""Ways to decide what a caller may do, one per file."""
