"""The verbs of all kinds: one file each."""
