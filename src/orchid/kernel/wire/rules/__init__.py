"""Validation rules that many kinds share: metadata, names, data keys."""
