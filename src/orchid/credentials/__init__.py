"""Certificates and tokens as values: no HTTP, no store, no clock; every refusal has a name."""
