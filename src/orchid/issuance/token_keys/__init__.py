"""Keys that sign tokens: those in files shown as objects, their import, and long-lived tokens."""
