"""Admission policies."""
