"""Approval policies decide about certificate requests; people decide about the rest.

Start with feature.py.
"""
