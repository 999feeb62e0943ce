"""Clients at work while things break, and a checker over what they saw. Start with run.py."""
