"""Small mistakes in critical lines, and whether the tests notice. Start with run.py."""
