"""Ways to prove who is calling, one per file."""
