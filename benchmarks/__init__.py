"""Measurements of a running server, against the figures we want to reach; no part of the tests."""
