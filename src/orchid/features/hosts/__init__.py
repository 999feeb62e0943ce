"""Hosts join with a token, and an agent keeps their credentials fresh in files.

Start with feature.py.
"""
