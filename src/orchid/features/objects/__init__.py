"""Namespaces, Secrets, ConfigMaps, Pods, Nodes, Events and Leases, and what removes them.

Start with feature.py.
"""
