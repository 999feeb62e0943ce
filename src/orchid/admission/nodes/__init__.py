"""Nodes: limits of what a node may write."""
