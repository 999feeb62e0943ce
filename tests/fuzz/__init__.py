"""Input that nobody thought of, found by following the coverage. Start with run.py."""
