"""Certificate requests, their signing, and the inventory of issued certificates.

Start with feature.py.
"""
