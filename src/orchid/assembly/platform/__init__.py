"""The cluster CA as an object: its import, and the files that follow from it."""
