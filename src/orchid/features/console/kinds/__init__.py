"""Kinds: fields, rules, columns and endpoints."""
