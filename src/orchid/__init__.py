"""Orchid: the identity plane of Kubernetes without Kubernetes, as one service."""
