"""Hosts outside of Kubernetes."""
