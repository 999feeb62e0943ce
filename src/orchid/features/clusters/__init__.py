"""Kubernetes clusters that ask this server about credentials, and their certificates.

Start with feature.py.
"""
