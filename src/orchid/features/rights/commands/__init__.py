"""Commands for roles and permissions."""
