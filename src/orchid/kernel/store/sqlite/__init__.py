"""The store in one SQLite file, with one writer thread."""
