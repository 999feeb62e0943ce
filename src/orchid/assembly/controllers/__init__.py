"""Builds and runs the controllers of all features."""
