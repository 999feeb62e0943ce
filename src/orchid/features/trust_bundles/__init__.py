"""Trust bundles: published to namespaces, and below /trust/ to any client.

Start with feature.py.
"""
