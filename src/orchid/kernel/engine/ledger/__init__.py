"""Entries of the ledger, and their keys in a store, as values."""
