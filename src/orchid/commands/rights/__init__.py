"""Commands for roles and what callers may do."""
