"""Roles and bindings: who may do what, evaluated on each request. Start with feature.py."""
