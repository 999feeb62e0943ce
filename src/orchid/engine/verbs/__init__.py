"""The verbs that every kind has: one file each."""
