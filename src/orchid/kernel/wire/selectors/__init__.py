"""Selectors of labels and fields."""
