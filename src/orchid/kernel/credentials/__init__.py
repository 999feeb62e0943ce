"""Certificates and tokens as values: no HTTP, no store, no clock; refusals are exceptions."""
